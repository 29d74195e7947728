//! What servers count and list of themselves, as the control protocol carries it: types alone.
//!
//! A server fills them and the control protocol has them in its replies, so that a client needs no code of a server.
#![forbid(unsafe_code)]

pub mod dstm;
