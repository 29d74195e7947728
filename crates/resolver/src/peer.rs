//! An upstream server at work, and what joins a thread to it.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use hickory_proto::op::Message;
use rustix::io::Errno;
use tokio::runtime::{Handle, Id};
use tracing::{info, warn};

use super::connection::Connection;
use super::error::Error;
use super::health::Health;
use super::query::{Match, Query};
use super::settings::{Server, Settings};
use super::stats::{ServerCounters, ServerStats};
use super::tls::{self, Tls};
use super::udp::Idle;
use fordway_serve::clock;

/// A server, with what all threads know of it.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) server: Server,
    pub(super) tls: Option<Tls>,
    pub(super) health: Health,
    pub(super) counters: ServerCounters,
    /// How long a try, and the making of a connection, may take.
    pub(super) timeout: Duration,
}

/// Why a server has given no answer to a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttemptError {
    /// It can't be reached, or its certificate is not valid.
    Unreachable,
    /// This host has no socket, port or memory left.
    Exhausted,
    /// The connection was closed with the question unanswered.
    Closed,
    /// What came can't be read.
    Malformed,
    /// The answer by UDP is truncated.
    Truncated,
    /// The answer by UDP has its name in another case.
    OtherCase,
    /// The response by UDP is an error without a question: it may be forged by guessing port and identifier.
    NoQuestion,
    /// So many datagrams do not answer the query that an attacker seems to guess.
    Suspicious,
}

impl Peer {
    /// The servers of some settings.
    pub(super) fn all(settings: &Settings) -> Result<Vec<Arc<Self>>, Error> {
        let now = clock::now();
        let mut roots = None;
        let peer = |server: &Server| {
            Ok(Arc::new(Self {
                server: server.clone(),
                tls: tls::of_server(server, settings.ca.as_deref(), &mut roots)?,
                health: Health::new(now),
                counters: ServerCounters::default(),
                timeout: settings.timeout,
            }))
        };
        settings.servers.iter().map(peer).collect()
    }

    /// Reads a response that answers `query`.
    pub(super) fn read(&self, query: &Query, octets: &mut [u8]) -> Result<Message, AttemptError> {
        query.lower_question(octets);
        Message::from_vec(octets).map_err(|_| {
            self.counters.malformed.count();
            AttemptError::Malformed
        })
    }

    /// Parses a response that came by a connection, where it can't be forged; returns whether the case of the question
    /// was kept.
    pub(super) fn read_stream(
        &self,
        query: &Query,
        octets: &mut [u8],
    ) -> Result<(Message, bool), AttemptError> {
        match query.matches(octets) {
            Match::Answers | Match::ErrorWithoutQuestion => {
                self.read(query, octets).map(|message| (message, true))
            }
            Match::OtherCase => self.read(query, octets).map(|message| (message, false)),
            Match::Mismatch => {
                self.counters.mismatches.count();
                Err(AttemptError::Malformed)
            }
            Match::Malformed => {
                self.counters.malformed.count();
                Err(AttemptError::Malformed)
            }
        }
    }

    /// Records an answer.
    pub(super) fn answered(&self, after: Duration) {
        if self.health.answered(after) {
            info!(server = %self.server, "upstream server answers again");
        }
    }

    /// Records that it has not answered for so long.
    pub(super) fn silent(&self, for_: Duration) {
        if self.health.silent(for_, clock::now()) {
            warn!(server = %self.server, "upstream server does not answer");
        }
    }

    /// Records an unusable answer.
    pub(super) fn refused(&self) {
        if self.health.failed(clock::now()) {
            warn!(server = %self.server, "upstream server refuses, or gives no usable answers");
        }
    }

    /// Records that it could not be asked.
    pub(super) fn unreachable(&self) {
        self.counters.unreachable.count();
        if self.health.failed(clock::now()) {
            warn!(server = %self.server, "upstream server can't be reached");
        }
    }

    /// Its statistics.
    pub(super) fn stats(&self) -> ServerStats {
        let mut stats = ServerStats {
            server: self.server.to_string(),
            alive: self.health.is_alive(),
            rtt_us: u32::try_from(self.health.rtt().as_micros()).unwrap_or(u32::MAX),
            ..ServerStats::default()
        };
        self.counters.add_counted_to(&mut stats);
        stats
    }
}

impl From<io::Error> for AttemptError {
    fn from(error: io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(
                Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS | Errno::ADDRNOTAVAIL,
            ) => Self::Exhausted,
            _ => Self::Unreachable,
        }
    }
}

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

/// Locks; the data behind these locks is consistent even if a thread has panicked.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
