//! Questions through the cache, and each of them once to the servers.

use std::sync::Arc;

use fordway_dns64::{Question, Security};

use super::answer::Answer;
use super::cache::{Cache, Outcome};
use super::clean::clean;
use super::error::{Error, LookupError};
use super::flight::{Flights, Join};
use super::key::{Key, KeyBuf, query_of};
use super::lifetime;
use super::peer::Peer;
use super::race::Racers;
use super::settings::Settings;
use fordway_counters::upstream::{ResolverCounters, Stats};
use fordway_serve::Network;
use fordway_serve::clock;

/// Servers, cache, and the questions under way.
#[derive(Debug)]
pub(super) struct Forwarder {
    pub(super) cache: Cache,
    pub(super) flights: Flights,
    pub(super) counters: ResolverCounters,
    pub(super) racers: Racers,
}

impl Forwarder {
    pub(super) fn new(settings: &Settings) -> Result<Self, Error> {
        let peers = Peer::all(settings)?;
        Ok(Self {
            cache: Cache::new(settings.cache_octets),
            flights: Flights::new(settings.in_flight),
            counters: ResolverCounters::default(),
            racers: Racers::new(peers, settings),
        })
    }

    /// What servers say to a question, as they say it; it may be in the cache.
    pub(super) async fn lookup(&self, question: &Question, client: Option<Network>) -> Outcome {
        let Some(key) = KeyBuf::new(question, false) else {
            return Err(LookupError::Unusable);
        };
        match self.cache.get(key.as_octets(), clock::now()) {
            Some(outcome) => outcome,
            None => self.fetch(question, &key.to_key(), client).await,
        }
    }

    /// What servers say to a question that is not in the cache.
    pub(super) async fn fetch(
        &self,
        question: &Question,
        key: &Key,
        client: Option<Network>,
    ) -> Outcome {
        self.once(key, client, async |key| self.ask(question, key).await).await
    }

    /// Runs `ask` for what is not in the cache, once for all concurrent lookups, and caches the outcome. The question
    /// counts for the client that was first.
    pub(super) async fn once(
        &self,
        key: &Key,
        client: Option<Network>,
        ask: impl AsyncFnOnce(&Key) -> Outcome,
    ) -> Outcome {
        loop {
            match self.flights.join(key, client) {
                Join::Lead(leader) => {
                    // Another lookup may have finished since the cache was searched.
                    if let Some(outcome) = self.cache.get(key, clock::now()) {
                        leader.tell(&outcome);
                        return outcome;
                    }
                    let outcome = ask(key).await;
                    if outcome.is_err() {
                        self.counters.failures.count();
                    }
                    self.cache.insert(Arc::clone(key), &outcome, clock::now());
                    leader.tell(&outcome);
                    return outcome;
                }
                Join::Follow(flight) => {
                    self.counters.merged.count();
                    if let Some(outcome) = flight.wait().await {
                        return outcome;
                    }
                }
                Join::Full => {
                    self.counters.busy.count();
                    return Err(LookupError::Busy);
                }
            }
        }
    }

    async fn ask(&self, question: &Question, key: &Key) -> Outcome {
        let mut message = self.racers.run(key).await?;
        let query = query_of(question);
        clean(&mut message, &Question { name: query.name().clone(), ..*question });
        let lifetime = lifetime::of_answer(&message, question.record_type);
        message.queries = vec![query];
        let fetched = clock::now();
        let expires = fetched + lifetime;
        Ok(Arc::new(Answer { message, fetched, expires, security: Security::Unchecked }))
    }

    /// The numbers of this moment.
    pub(super) fn stats(&self) -> Stats {
        let Self { cache, flights, counters, racers } = self;
        let mut stats = Stats {
            cache_evictions: cache.evictions(),
            cache_entries: cache.len(),
            cache_octets: cache.octets(),
            in_flight: flights.len() as u64,
            servers: racers.peers().iter().map(|peer| peer.stats()).collect(),
            ..Stats::default()
        };
        counters.add_to(&mut stats);
        stats
    }
}
