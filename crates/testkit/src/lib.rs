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
//! | [`fuzz`] | the bodies of the fuzz targets, and drawn packets |
//! | [`vector`] | vectors: files with a packet and its outcome, and the subjects they are tried on |
//!
//! Nothing here shares code with what it tests, except for the types in which the core is asked and
//! answers.

pub mod checksum;
pub mod fuzz;
pub mod oracle;
pub mod packet;
pub mod properties;
pub mod segment;
pub mod vector;
pub mod view;
