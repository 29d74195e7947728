//! A transport relay translator (TRT, RFC 3142): TCP and UDP from IPv6 hosts to IPv4 servers.
//!
//! The relay takes connections to IPv4-embedded addresses (RFC 6052) as if it were the server, opens one of its own to
//! the server, and passes on what comes. Nothing is translated but addresses, so path MTU, segments and retransmissions
//! are each side's own matter; there are no sequence numbers, checksums or fragments to be carried over.
//!
//! - [`Server::bind`](fordway_serve::Service::bind) takes the sockets, which needs CAP_NET_ADMIN and CAP_NET_RAW; [`Bound::intercept`] gives the
//!   rules by which packets reach them; [`Server::start`](fordway_serve::Service::start) starts the threads, which need no privileges;
//! - [`Server::replace`] goes on with other settings: connections stay.
//!
//! Each thread has its own sockets (SO_REUSEPORT) and its own epoll set, and a connection stays with its thread. Octets
//! of TCP go from socket to socket through a pipe (splice), so they are never copied; a pipe is lent to a connection
//! only as long as something is in it.
#![forbid(unsafe_code)]

mod core;
mod icmp;
mod journal;
mod policy;
mod server;
mod settings;
mod sockets;
mod tcp;
mod timers;
mod udp;
mod worker;

pub use fordway_counters::trt::Stats;
pub use server::{Bound, Error, Server};
pub use settings::{Limits, Settings, Urgent};
