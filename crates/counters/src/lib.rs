//! What servers count and list of themselves: counters, and the statistics that the control protocol carries.
//!
//! A server fills them and the control protocol has them in its replies, so that a client needs no code of a server.
#![forbid(unsafe_code)]

pub mod cluster;
mod counter;
pub mod dns64;
pub mod dstm;
pub mod proxy;
pub mod router;
pub mod trt;
pub mod upstream;

pub use counter::{Counter, SharedCounter};
