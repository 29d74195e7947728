//! The settings of a client.

use std::net::SocketAddrV6;

use crate::message::{ClientId, Key};

/// The settings of a client.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// The servers, the preferred one first.
    pub servers: Vec<SocketAddrV6>,
    /// Its name, if it has a key of its own; else it is its address.
    pub id: Option<ClientId>,
    /// The key that it shares with the servers.
    pub key: Key,
    /// It accepts a port set.
    pub sharing: bool,
    /// Lifetime that it requests, in seconds; 0: the server's default.
    pub lifetime: u32,
}
