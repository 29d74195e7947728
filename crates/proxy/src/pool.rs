//! Idle connections to servers, of one thread.

use std::cell::Cell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;

use tokio::time::Instant;

use super::conn::Conn;
use fordway_serve::Ticket;

/// A connection to a server.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) conn: Conn,
    /// Its destination: host and port.
    pub(super) key: String,
    pub(super) address: SocketAddr,
    /// The server's address leads to this host itself.
    pub(super) is_own: bool,
    /// It has served before.
    pub(super) reused: bool,
    /// The settings under which it was made.
    pub(super) generation: u64,
    /// Its client has authenticated on this connection (NTLM, Negotiate), which serves this client alone.
    pub(super) bound: bool,
    /// Of a client network, while it is in use.
    pub(super) share: Option<Ticket>,
    pub(super) _place: Place,
}

/// One of the connections to servers that a thread may have, counted as long as this is there.
#[derive(Debug)]
pub(super) struct Place(Rc<Cell<usize>>);

impl Place {
    /// One more, if there are fewer than `most`.
    pub(super) fn take(number: &Rc<Cell<usize>>, most: usize) -> Option<Place> {
        (number.get() < most).then(|| {
            number.set(number.get() + 1);
            Place(Rc::clone(number))
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Idle connections, the last one first.
#[derive(Debug, Default)]
pub(super) struct Pool {
    by_key: HashMap<String, Vec<(Server, Instant)>>,
    count: usize,
}

impl Pool {
    /// A connection for this key, made under these settings, that `fits`.
    pub(super) fn take(
        &mut self,
        key: &str,
        generation: u64,
        fits: impl Fn(&Server) -> bool,
    ) -> Option<Server> {
        let waiting = self.by_key.get_mut(key)?;
        let mut found = None;
        while let Some((server, _)) = waiting.pop() {
            self.count -= 1;
            if server.generation == generation && server.conn.is_quiet() && fits(&server) {
                found = Some(server);
                break;
            }
        }
        found
    }

    /// Keeps a connection, unless there are `most`.
    pub(super) fn put(&mut self, mut server: Server, most: usize) -> bool {
        if self.count >= most {
            return false;
        }
        server.reused = true;
        server.share = None;
        server.conn.release();
        self.count += 1;
        match self.by_key.get_mut(&server.key) {
            Some(waiting) => waiting.push((server, Instant::now())),
            None => {
                let key = server.key.clone();
                self.by_key.insert(key, vec![(server, Instant::now())]);
            }
        }
        true
    }

    /// Closes connections that have been idle since before `oldest`, have ended, or were made under other settings.
    pub(super) fn sweep(&mut self, oldest: Instant, generation: u64) {
        for waiting in self.by_key.values_mut() {
            waiting.retain(|(server, since)| {
                *since >= oldest && server.generation == generation && server.conn.is_quiet()
            });
        }
        self.by_key.retain(|_, waiting| !waiting.is_empty());
        self.count = self.by_key.values().map(Vec::len).sum();
    }

    /// Closes one, whose place is needed.
    pub(super) fn drop_one(&mut self) {
        let Some(waiting) = self.by_key.values_mut().find(|waiting| !waiting.is_empty()) else {
            return;
        };
        waiting.remove(0);
        self.count -= 1;
    }

    pub(super) fn clear(&mut self) {
        *self = Pool::default();
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }
}
