//! The settings of a server.

use std::net::Ipv6Addr;

use ipnet::{Ipv4Net, Ipv6Net};

use crate::lease::Slot;
use crate::message::{ClientId, Key};
use crate::pool::WrongPool;

/// The settings of a server.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// The addresses that it leases.
    pub pool: Vec<Ipv4Net>,
    /// Ports of each client, a power of two; `None`: all, so no address is shared.
    pub ports: Option<u32>,
    /// Lifetime of a lease in seconds, by default.
    pub lifetime: u32,
    /// The longest lifetime that a client can wish for.
    pub max_lifetime: u32,
    /// Hold-down in seconds: how long other clients do not get an address after its lease, as far as others are free.
    pub rest: u32,
    /// The tunnel end point.
    pub tep: Ipv6Addr,
    /// Clients with keys of their own.
    pub clients: Vec<ClientKey>,
    /// Prefixes whose clients share a key.
    pub prefixes: Vec<PrefixKey>,
}

/// A client with a key of its own.
#[derive(Clone, Debug)]
pub struct ClientKey {
    /// Its name.
    pub id: ClientId,
    /// Its key.
    pub key: Key,
    /// Its reserved address.
    pub slot: Option<Slot>,
}

/// A prefix whose clients share a key, and are told apart by their addresses.
#[derive(Clone, Debug)]
pub struct PrefixKey {
    /// The prefix.
    pub prefix: Ipv6Net,
    /// Their key.
    pub key: Key,
    /// Most leases of all of them.
    pub most: usize,
}

/// Why settings are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrongSettings {
    /// The pool.
    #[error(transparent)]
    Pool(#[from] WrongPool),
    /// Two clients have one name.
    #[error("the client {0} is there twice")]
    Twice(ClientId),
}

/// Shortest lifetime that a client can wish for, in seconds.
const SHORTEST: u32 = 10;

impl ServerSettings {
    /// The lifetime that a client gets who wishes for `wish` seconds, or has no wish (0).
    pub(super) fn lifetime_for(&self, wish: u32) -> u32 {
        let wish = if wish == 0 { self.lifetime } else { wish };
        wish.clamp(SHORTEST.min(self.lifetime), self.max_lifetime.max(self.lifetime))
    }
}
