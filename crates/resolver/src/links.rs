//! What joins a thread to the upstream servers.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tokio::runtime::{Handle, Id};

use super::connection::Connection;
use super::peer::Peer;
use super::udp::{Idle, lock};

/// Sockets and connection of one runtime to one server. Sockets wake only the runtime that made them.
#[derive(Debug, Default)]
pub(super) struct Links {
    pub(super) sockets: Mutex<Vec<Idle>>,
    pub(super) connection: Mutex<Option<Connection>>,
}

impl Links {
    /// The connection to a server, a new one if there is none; it may still be connecting.
    pub(super) fn connection(&self, peer: &Arc<Peer>) -> Connection {
        let mut place = lock(&self.connection);
        match &*place {
            Some(connection) if connection.is_open() => connection.clone(),
            _ => place.insert(Connection::open(Arc::clone(peer))).clone(),
        }
    }
}

/// The links of all runtimes.
#[derive(Debug, Default)]
pub(super) struct LinkTable(RwLock<Vec<(Id, Arc<[Links]>)>>);

impl LinkTable {
    /// The links of this runtime, to so many servers.
    pub(super) fn here(&self, servers: usize) -> Arc<[Links]> {
        let id = Handle::current().id();
        let of_id = |table: &Vec<(Id, Arc<[Links]>)>| {
            table.iter().find(|(owner, _)| *owner == id).map(|(_, links)| Arc::clone(links))
        };
        let found = of_id(&self.0.read().unwrap_or_else(PoisonError::into_inner));
        found.unwrap_or_else(|| {
            let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
            of_id(&table).unwrap_or_else(|| {
                let links: Arc<[Links]> = (0..servers).map(|_| Links::default()).collect();
                table.push((id, Arc::clone(&links)));
                links
            })
        })
    }
}
