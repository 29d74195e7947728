//! What the services of an IPv6-only network share: access lists, limits by client network, counters, clocks, pipes and
//! raw ICMPv6 sockets.
#![forbid(unsafe_code)]

mod acl;
pub mod boottime;
pub mod clock;
mod counter;
pub mod listen;
pub mod message;
mod network;
pub mod pipe;
pub mod readiness;
pub mod thread;

pub use acl::Acl;
pub use counter::{Counter, SharedCounter};
pub use network::{ClientLen, Network, Over, Tally, Ticket};
