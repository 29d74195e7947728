//! An upstream server at work.

use std::sync::Arc;
use std::time::Duration;

use hickory_proto::op::Message;
use tracing::{info, warn};

use super::cookie::Jar;
use super::error::{AttemptError, Error};
use super::health::Health;
use super::query::{Match, Query};
use super::settings::{Server, Settings};
use super::tls::{self, Tls};
use fordway_counters::upstream::{ServerCounters, ServerStats};
use fordway_serve::clock;

/// A server, with what all threads know of it.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) server: Server,
    pub(super) tls: Option<Tls>,
    pub(super) health: Health,
    pub(super) counters: ServerCounters,
    /// None: it is shown no cookies.
    pub(super) jar: Option<Jar>,
    /// How long a try, and the making of a connection, may take.
    pub(super) timeout: Duration,
}

impl Peer {
    /// Some servers of some settings.
    pub(super) fn all(servers: &[&Server], settings: &Settings) -> Result<Vec<Arc<Self>>, Error> {
        let now = clock::now();
        let mut roots = None;
        let peer = |server: &&Server| {
            Ok(Arc::new(Self {
                server: Server::clone(server),
                tls: tls::of_server(server, settings.ca.as_deref(), &mut roots)?,
                health: Health::new(now),
                counters: ServerCounters::default(),
                jar: settings.cookies.then(Jar::default),
                timeout: settings.timeout,
            }))
        };
        servers.iter().map(peer).collect()
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
        self.counters.add_to(&mut stats);
        stats
    }
}
