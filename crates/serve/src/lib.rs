//! What the services of an IPv6-only network share.
//!
//! | part | what it is |
//! |---|---|
//! | [`thread`] | threads of a service: start, commands, signals, end |
//! | [`listen`] | sockets of which each thread has its own, and taking connections |
//! | [`message`] | sockets for ICMPv6 and UDP with source, destination and interface of messages |
//! | [`pipe`] | octets from socket to socket without a copy |
//! | [`Acl`], [`Network`], [`Tally`] | which clients may use a service, and limits by client network |
//! | [`Bucket`] | a rate limit |
//! | `http2` | connections of HTTP/2 clients |
//! | [`spawn_here`] | tasks of a thread |
//! | [`resolv_conf`] | the host's DNS servers |
//! | [`clock`], [`boottime`] | time as tokio has it, and time that goes on while the host sleeps |
//!
//! A [`Service`] is bound (`bind`: sockets and files, which may need privileges), then started (`Bound::start`: threads,
//! which need none). `Server::replace` applies other settings while it runs, `Server::stats` tells what it has counted,
//! and dropping it ends it.
//!
//! Servers with many clients (DNS64, proxy, relay) have a number of threads that share nothing but settings, limits and
//! counters. Each thread is a tokio runtime; the relay's wait with epoll instead, so that a connection is an entry of a
//! table, without a task and timers. Servers with few messages (router advertisements, DSTM) have one thread, which
//! carries out commands.
#![forbid(unsafe_code)]

mod acl;
pub mod boottime;
mod bucket;
pub mod clock;
#[cfg(feature = "http2")]
pub mod http2;
pub mod listen;
pub mod message;
mod network;
pub mod pipe;
pub mod readiness;
pub mod resolv_conf;
mod service;
mod task;
pub mod thread;

pub use acl::Acl;
pub use bucket::Bucket;
pub use network::{ClientLen, Exceeded, Network, Tally, Ticket};
pub use service::{Service, differing};
pub use task::spawn_here;
