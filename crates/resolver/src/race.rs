//! Servers asked one after the other until one answers: the best first, the next as soon as the first takes longer than
//! it usually does.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use hickory_proto::op::Message;
use tokio::time::sleep_until;

use super::error::{AttemptError, LookupError};
use super::exchange::{self, Worth};
use super::key::Key;
use super::links::{LinkTable, Links};
use super::peer::Peer;
use super::settings::Settings;
use fordway_serve::clock;

/// One question in so many is also put to a server that is not the best, to learn how fast it is now.
const EXPLORE: usize = 64;
/// How far the last two tries at one server are apart, unless a try takes less than four times that.
pub(super) const LAST_APART: Duration = Duration::from_millis(500);

/// Whom to ask.
#[derive(Debug)]
pub(super) struct Racers {
    peers: Vec<Arc<Peer>>,
    links: LinkTable,
    timeout: Duration,
    attempts: usize,
    deadline: Duration,
    /// How often there were others to ask as well.
    races: AtomicUsize,
}

impl Racers {
    pub(super) fn new(peers: Vec<Arc<Peer>>, settings: &Settings) -> Self {
        // Every server gets its chance.
        let attempts = settings.attempts.max(peers.len());
        let (links, races) = (LinkTable::default(), AtomicUsize::new(0));
        let Settings { timeout, deadline, .. } = *settings;
        Self { peers, links, timeout, attempts, deadline, races }
    }

    /// The first usable answer; failing that, a failure that a server reports.
    pub(super) async fn run(&self, key: &Key) -> Result<Message, LookupError> {
        let links = self.links.here(self.peers.len());
        let began = clock::now();
        let order = self.order();
        self.probe(key, &links, &order, began);

        let deadline = began + self.deadline;
        let mut tries: FuturesUnordered<BoxFuture<'_, _>> = FuturesUnordered::new();
        let mut started = 0;
        let mut next_start = began;
        let mut last_chance = began;
        let mut ended = Ended::default();
        loop {
            // A server that has responded is not asked again.
            let limit = if ended.has_response() { order.len() } else { self.attempts };
            let now = clock::now();
            if started < limit && now >= next_start {
                let place = order[started % order.len()];
                let peer = &self.peers[place];
                tries.push(Box::pin(one_try(peer, &links[place], key, self.timeout, now)));
                started += 1;
                next_start = now + self.wait(peer, started);
                last_chance = now + self.timeout;
            }
            let wake = if started < limit { next_start } else { last_chance };
            tokio::select! {
                biased;
                Some(outcome) = tries.next() => {
                    match outcome {
                        Ok((message, Worth::Answer)) => return Ok(message),
                        Ok((message, worth)) => ended.note(message, worth),
                        Err(trouble) => ended.trouble = Some(trouble),
                    }
                    if started < order.len() {
                        next_start = clock::now();
                    } else if tries.is_empty() {
                        if started >= self.attempts || !ended.may_try_again() {
                            return ended.result();
                        }
                        next_start = clock::now();
                    }
                }
                () = sleep_until(wake.min(deadline).into()) => {
                    if wake >= deadline || started >= limit {
                        return ended.result();
                    }
                }
            }
        }
    }

    /// The servers in the order in which they are asked: those alive by their round-trip time, the unknown first; then
    /// the dead.
    fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.peers.len()).collect();
        if order.len() > 1 {
            order.sort_by_cached_key(|place| {
                let health = &self.peers[*place].health;
                (!health.is_alive(), health.rtt())
            });
        }
        order
    }

    /// How long a server that has just been asked has for itself, after so many tries.
    fn wait(&self, peer: &Peer, started: usize) -> Duration {
        let patience = peer.health.patience(self.timeout);
        if started < self.peers.len() {
            return patience;
        }
        // A server that is asked again may have lost the first query in a burst: the last tries are further apart.
        let left = u32::try_from(self.attempts.saturating_sub(started + 1)).unwrap_or(u32::MAX);
        let apart = (self.timeout / 4).min(LAST_APART) / 4_u32.saturating_pow(left);
        patience.max(apart)
    }

    /// Sends the question to a server that would not be asked otherwise, to measure whether and how fast it answers.
    /// The lookup does not wait for that answer.
    fn probe(&self, key: &Key, links: &Arc<[Links]>, order: &[usize], now: Instant) {
        let due = |place: &&usize| self.peers[**place].health.take_probe(now);
        let Some(place) = order[1..].iter().find(due).copied().or_else(|| self.explore(order))
        else {
            return;
        };
        let (peer, links, key) = (Arc::clone(&self.peers[place]), Arc::clone(links), key.clone());
        let timeout = self.timeout;
        tokio::spawn(async move {
            let one_try = one_try(&peer, &links[place], &key, timeout, now);
            // `one_try` records the outcome.
            let _ = tokio::time::timeout(timeout, one_try).await;
        });
    }

    fn explore(&self, order: &[usize]) -> Option<usize> {
        let others = &order[1..];
        if others.is_empty() {
            return None;
        }
        let races = self.races.fetch_add(1, Ordering::Relaxed);
        let place = others[(races / EXPLORE) % others.len()];
        let is_alive = || self.peers[place].health.is_alive();
        (races % EXPLORE == EXPLORE - 1 && is_alive()).then_some(place)
    }
}

/// Outcomes of the tries that have ended.
#[derive(Default)]
struct Ended {
    failure: Option<Message>,
    refusal: Option<Message>,
    trouble: Option<AttemptError>,
}

impl Ended {
    fn note(&mut self, message: Message, worth: Worth) {
        let place = if worth == Worth::Failure { &mut self.failure } else { &mut self.refusal };
        *place = Some(message);
    }

    fn has_response(&self) -> bool {
        self.failure.is_some() || self.refusal.is_some()
    }

    /// Whether a repetition may have another outcome.
    fn may_try_again(&self) -> bool {
        let transient = [AttemptError::Malformed, AttemptError::Closed];
        !self.has_response() && self.trouble.is_some_and(|trouble| transient.contains(&trouble))
    }

    /// A failure says more than a refusal.
    fn result(self) -> Result<Message, LookupError> {
        if let Some(message) = self.failure.or(self.refusal) {
            return Ok(message);
        }
        Err(match self.trouble {
            None => LookupError::Timeout,
            Some(AttemptError::Malformed) => LookupError::Unusable,
            Some(AttemptError::Exhausted) => LookupError::Busy,
            Some(_) => LookupError::Unreachable,
        })
    }
}

async fn one_try(
    peer: &Arc<Peer>,
    links: &Links,
    key: &Key,
    timeout: Duration,
    began: Instant,
) -> Result<(Message, Worth), AttemptError> {
    let mut record = Record { peer, timeout, began, ended: false };
    let outcome = exchange::ask(peer, links, key, began).await;
    record.ended = true;
    match outcome {
        Ok(message) => {
            let worth = exchange::worth(&message);
            if worth == Worth::Answer {
                peer.counters.answers.count();
            } else {
                peer.counters.errors.count();
            }
            if worth == Worth::Refusal {
                peer.refused();
            } else {
                peer.answered(clock::since(began));
            }
            Ok((message, worth))
        }
        Err(trouble) => {
            match trouble {
                AttemptError::Exhausted => {}
                AttemptError::Malformed => peer.refused(),
                _ => peer.unreachable(),
            }
            Err(trouble)
        }
    }
}

/// Records a try that is given up.
struct Record<'a> {
    peer: &'a Peer,
    timeout: Duration,
    began: Instant,
    ended: bool,
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let waited = clock::since(self.began);
        if waited >= self.timeout {
            self.peer.counters.timeouts.count();
        }
        // Another server was faster: that counts if this one had as long as it usually takes.
        if waited >= self.peer.health.patience(self.timeout) {
            self.peer.silent(waited);
        }
    }
}
