//! The services over real sockets: on loopback, and in network namespaces of the tests' own, which need root.

mod corpus;
mod discovery;
mod dns64;
mod dstm;
mod namespace;
mod proxy;
mod router;
#[allow(dead_code, reason = "the unit tests, which share it, use all of it")]
mod still;
mod trt;
mod upstream;
