//! What Fordway's tests are made of.
//!
//! | module | content |
//! |---|---|
//! | [`packet`] | packets from readable descriptions, sound or broken |
//! | [`checksum`] | the Internet checksum, naively |
//! | [`segment`] | what devices do with offloaded packets |
//! | [`view`] | a second reading of packets |
//! | [`oracle`] | what must hold of every outcome |
//! | [`properties`] | what must hold of sound packets |
//! | [`drawn`] | configurations drawn at random |
//! | [`model`] | stateful NAT64, naively |
//! | [`fuzz`] | the bodies of the fuzz targets, and drawn packets |
//! | [`tap`] | packets with offload state, into an interface and out of it |
//! | [`known`] | devices under test with known behaviour |
//! | [`live`] | what the tests of living subjects share |
//! | [`sys`] | the system calls for that |
//! | [`vector`] | vectors: files with a packet and its outcome, and the subjects they are tried on |
//!
//! Nothing here shares code with what it tests, except for the types in which the core is asked and
//! answers.

#![deny(unsafe_code)]

pub mod checksum;
pub mod drawn;
pub mod fuzz;
pub mod known;
pub mod live;
pub mod model;
pub mod oracle;
pub mod packet;
pub mod properties;
pub mod segment;
#[allow(unsafe_code)]
pub mod sys;
pub mod tap;
pub mod vector;
pub mod view;
