//! The servers that an IPv6-only network needs beside its translator, and the discovery of its prefix.
#![forbid(unsafe_code)]

mod boottime;
mod clock;
pub mod discovery;
pub mod dns64;
pub mod dstm;
mod icmp6;
mod pipe;
pub mod proxy;
mod readiness;
pub mod router;
#[cfg(test)]
#[path = "../tests/all/still.rs"]
mod still;
pub mod trt;
