//! DSTM: the server that lends IPv4 addresses, the tunnel end point's side of it, and the client.
//!
//! `fordway_dstm` is the protocol; this crate has the sockets, the lease file, the threads, and the packets that wait.
//!
//! | part | what it does |
//! |---|---|
//! | `server` | requests by UDP; leases on disk; bindings to the tunnel end point, here or elsewhere |
//! | `agent` | a tunnel end point with a server on another host |
//! | `client` | asks when a packet waits, and keeps, renews and gives back the lease |
//! | `file` | the lease file |
//! | `waiting`, `inject` | the packets that wait for an address, and how they are sent then |
#![forbid(unsafe_code)]

mod agent;
mod client;
mod clock;
mod file;
mod inject;
mod server;
mod waiting;

use std::fmt;
use std::io;
use std::net::SocketAddrV6;
use std::path::PathBuf;

use fordway_dstm::{Binding, WrongSettings};

pub use agent::{Agent, AgentSettings, BoundAgent};
pub use client::{ClientHandle, ClientOptions, Host, Runner};
pub use file::{HEAD as LEASES_HEAD, read as read_leases};
pub use fordway_counters::dstm::{
    ClientStats, LeaseView, ServerStats as Stats, TepStats as AgentStats,
};
pub use fordway_dstm as protocol;
pub use inject::Injector;
pub use server::{Bound, Server, Settings, TepPlace};
pub use waiting::Waiting;

/// The UDP port of servers, and of tunnel end points with a server on another host, unless another is configured.
pub const PORT: u16 = 13_653;

/// The bindings of a tunnel end point that runs in this process, while packets flow.
pub trait Bindings: fmt::Debug + Send + Sync {
    /// Adds a binding, or replaces the one of the same address and ports.
    ///
    /// # Errors
    ///
    /// A text for the log: there is no such tunnel end point, or no room.
    fn insert(&self, binding: &Binding) -> Result<(), String>;

    /// Removes a binding, if it is there.
    fn remove(&self, binding: &Binding);
}

/// The view of a lease at `now`, in ms since 1970.
fn view(lease: &fordway_dstm::Lease, now: u64) -> LeaseView {
    let range = lease.slot.range();
    LeaseView {
        client: lease.identity.to_string(),
        v4: lease.slot.v4,
        ports: range.map(|range| (*range.start(), *range.end())),
        remote: lease.remote,
        tep: lease.local,
        seconds: lease.until.saturating_sub(now).div_ceil(1000),
    }
}

/// Why there is no server, tunnel end point or client.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The settings can't be.
    #[error(transparent)]
    Settings(#[from] WrongSettings),
    /// An address can't be listened on.
    #[error("can't listen on UDP {address}")]
    Listen {
        /// The address.
        address: SocketAddrV6,
        /// The system's error.
        source: io::Error,
    },
    /// The lease file can't be read or written.
    #[error("can't keep leases in {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// No random numbers.
    #[error("the system gives no random numbers")]
    Random(#[source] io::Error),
    /// The thread, or what it waits with, could not be made.
    #[error("can't start the thread of DSTM")]
    Thread(#[source] io::Error),
    /// The thread has ended by itself; the log says why.
    #[error("the thread of DSTM has ended")]
    Ended,
}

/// Random octets.
fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut octets = [0; N];
    getrandom::fill(&mut octets).map_err(|error| Error::Random(error.into()))?;
    Ok(octets)
}
