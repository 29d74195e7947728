//! What a client is told.

use std::net::SocketAddrV6;

use crate::message::{ClientId, Key};

/// What a client is told.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// The servers, the preferred one first.
    pub servers: Vec<SocketAddrV6>,
    /// Its name, if it has a key of its own; else it is its address.
    pub id: Option<ClientId>,
    /// The key that it shares with the servers.
    pub key: Key,
    /// It can do with a port set.
    pub sharing: bool,
    /// Lifetime that it wishes for, in seconds; 0: as the server likes.
    pub lifetime: u32,
}
