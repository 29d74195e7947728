//! Questions through the cache, and each of them once to the servers.

use std::sync::Arc;

use fordway_dns64::{Question, Security};
use hickory_proto::op::Message;
use hickory_proto::rr::Name;

use super::answer::{Answer, Outcome};
use super::asker::Asker;
use super::cache::Cache;
use super::clean::clean;
use super::error::{Error, LookupError};
use super::flight::{Flights, Join};
use super::key::{Key, KeyBuf, query_of};
use super::lifetime;
use super::routes::{Crossing, Routes};
use super::settings::Settings;
use fordway_counters::upstream::{ResolverCounters, Stats};
use fordway_serve::clock;

/// How often the answer to a question goes on at other servers, because an alias leads to a name of theirs.
const MOST_CROSSINGS: usize = 8;

/// Servers, cache, and the questions under way.
#[derive(Debug)]
pub(super) struct Forwarder {
    pub(super) cache: Cache,
    pub(super) flights: Flights,
    pub(super) counters: ResolverCounters,
    pub(super) routes: Routes,
}

impl Forwarder {
    pub(super) fn new(settings: &Settings) -> Result<Self, Error> {
        Ok(Self {
            cache: Cache::new(settings.cache_octets, settings.stale),
            flights: Flights::new(settings.in_flight),
            counters: ResolverCounters::default(),
            routes: Routes::new(settings)?,
        })
    }

    /// What servers say to a question, as they say it; it may be in the cache.
    pub(super) async fn lookup(&self, question: &Question, asker: Asker) -> Outcome {
        let Some(key) = KeyBuf::new(question, false) else {
            return Err(LookupError::Unusable);
        };
        match self.cache.get(key.as_octets(), clock::now(), asker.ahead) {
            Some(outcome) => outcome,
            None => self.fetch(question, &key.to_key(), asker).await,
        }
    }

    /// What servers say to a question that is not in the cache.
    pub(super) async fn fetch(&self, question: &Question, key: &Key, asker: Asker) -> Outcome {
        self.once(key, asker, async |key| self.ask(question, key, asker).await).await
    }

    /// Runs `ask` for what is not in the cache, once for all concurrent lookups, and caches the outcome. The question
    /// counts for the client that was first.
    pub(super) async fn once(
        &self,
        key: &Key,
        asker: Asker,
        ask: impl AsyncFnOnce(&Key) -> Outcome,
    ) -> Outcome {
        loop {
            match self.flights.join(key, asker.client) {
                Join::Lead(leader) => {
                    // Another lookup may have finished since the cache was searched.
                    if let Some(outcome) = self.cache.get(key, clock::now(), asker.ahead) {
                        leader.tell(&outcome);
                        return outcome;
                    }
                    let flushes = self.cache.flushes();
                    let outcome = ask(key).await;
                    if outcome.is_err() {
                        self.counters.failures.count();
                    }
                    self.cache.insert(key, &outcome, clock::now(), flushes);
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

    async fn ask(&self, question: &Question, key: &Key, asker: Asker) -> Outcome {
        let (message, _) = self.ask_servers(question, key, asker, |_| false).await?;
        Ok(Arc::new(answer_of(message, question)))
    }

    /// Asks the servers of a question, and those of the names that aliases lead to, until one leads to a name that `leaves`
    /// holds for: that name, with the answer as far as it leads there.
    pub(super) async fn ask_servers(
        &self,
        question: &Question,
        key: &Key,
        asker: Asker,
        leaves: impl Fn(&Question) -> bool,
    ) -> Result<(Message, Option<Name>), LookupError> {
        let mut message = self.routes.of(key).racers.run(key).await?;
        let question = Question { name: query_of(question).name().clone(), ..question.clone() };
        clean(&mut message, &question);
        let left = self.cross(question, key, asker, &mut message, leaves).await?;
        Ok((message, left))
    }

    /// Puts what other servers know of the names that aliases of an answer lead to in the place of what its own servers say
    /// of them, until one leads to a name that `leaves` holds for.
    async fn cross(
        &self,
        mut at: Question,
        key: &Key,
        asker: Asker,
        message: &mut Message,
        leaves: impl Fn(&Question) -> bool,
    ) -> Result<Option<Name>, LookupError> {
        let mut key = Arc::clone(key);
        // Where the part of the answer begins that the servers of `key` have given.
        let mut begin = 0;
        for crossings in 0.. {
            let Some(Crossing { kept, target }) = self.routes.crossing(&key, &at, message, begin)
            else {
                break;
            };
            if crossings == MOST_CROSSINGS {
                return Err(LookupError::Unusable);
            }
            at.name = target.to_lowercase();
            if leaves(&at) {
                message.answers.truncate(kept);
                return Ok(Some(at.name));
            }
            key = KeyBuf::new(&at, false).ok_or(LookupError::Unusable)?.to_key();
            // Not by way of the questions under way: two aliases that lead to each other would wait for each other.
            let mut rest = match self.cache.get(&key, clock::now(), asker.ahead) {
                Some(outcome) => outcome?.message_at(clock::now()),
                None => {
                    let mut rest = self.routes.of(&key).racers.run(&key).await?;
                    clean(&mut rest, &at);
                    rest
                }
            };
            begin = kept;
            message.answers.truncate(kept);
            rest.answers.splice(0..0, message.answers.drain(..));
            rest.metadata.authentic_data &= message.metadata.authentic_data;
            *message = rest;
        }
        Ok(None)
    }

    /// The numbers of this moment.
    pub(super) fn stats(&self) -> Stats {
        let Self { cache, flights, counters, routes } = self;
        let mut stats = Stats {
            cache_evictions: cache.evictions(),
            cache_entries: cache.len(),
            cache_octets: cache.octets(),
            in_flight: flights.len() as u64,
            servers: routes.peers().iter().map(|peer| peer.stats()).collect(),
            ..Stats::default()
        };
        counters.add_to(&mut stats);
        stats
    }
}

/// The answer to a question that a cleaned message is, and how long it may be used. It is not validated.
pub(super) fn answer_of(mut message: Message, question: &Question) -> Answer {
    let fetched = clock::now();
    let expires = fetched + lifetime::of_answer(&message, question.record_type);
    message.queries = vec![query_of(question)];
    Answer { message, fetched, expires, security: Security::Unchecked }
}
