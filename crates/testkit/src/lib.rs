//! What Fordway's tests are made of.
//!
//! | module | content |
//! |---|---|
//! | [`packet`] | packets from readable descriptions, sound or broken |
//! | [`checksum`] | the Internet checksum, naively |
//! | [`segment`] | what devices do with offloaded packets |
//! | [`vector`] | vectors: files with a packet and its outcome, and the subjects they are tried on |
//!
//! Nothing here shares code with what it tests, except for the types in which the core is asked and
//! answers.

pub mod checksum;
pub mod packet;
pub mod segment;
pub mod vector;
