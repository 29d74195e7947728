//! Answers from the configured upstream servers.
//!
//! A [`Resolver`] asks servers that do recursion themselves (it follows no referral). The same question of several
//! callers is asked once; the answer is cached for as long as its TTLs allow, within a bound of octets. Threads with a
//! tokio runtime each can share a resolver: sockets belong to the runtime that made them, the cache and the questions
//! under way to all.
//!
//! The way of a question: [`forwarder`] (cache, merging) -> [`race`] (which server, and when the next) -> [`exchange`]
//! (one server, by UDP or a connection) -> [`clean`] (what belongs to the question) -> cache. With validation,
//! [`validate`] stands before all that, and asks for signatures and keys the same way.

#![forbid(unsafe_code)]

mod anchors;
mod answer;
mod cache;
mod clean;
mod connection;
mod error;
mod exchange;
mod flight;
mod forwarder;
mod health;
mod https;
mod key;
mod lifetime;
mod links;
mod peer;
mod query;
mod race;
mod random;
mod request;
mod settings;
pub mod shares;
mod stream;
#[cfg(test)]
mod tests;
mod tls;
mod udp;
mod validate;

use std::sync::Arc;

pub use answer::Answer;
pub use error::{Error, LookupError};
pub use fordway_counters::upstream::{ServerStats, Stats};
pub use fordway_dns64::{Question, Security};
use forwarder::Forwarder;
use hickory_proto::rr::DNSClass;
use key::KeyBuf;
pub use settings::{Protocol, Server, Settings, TrustAnchors};
pub use tls::authorities;
use validate::Validator;

use fordway_serve::Network;
use fordway_serve::clock;

/// Asks upstream servers, and caches their answers.
#[derive(Debug)]
pub struct Resolver {
    settings: Settings,
    forwarder: Arc<Forwarder>,
    validator: Option<Validator>,
}

impl Resolver {
    /// Makes a resolver; reads the files that the settings name, and sends nothing yet.
    ///
    /// # Errors
    ///
    /// No servers, a file that can't be read or has nothing usable, or an invalid server name.
    pub fn new(settings: Settings) -> Result<Arc<Self>, Error> {
        if settings.servers.is_empty() {
            return Err(Error::NoServers);
        }
        let forwarder = Arc::new(Forwarder::new(&settings)?);
        let validator = match &settings.validate {
            Some(anchors) => Some(Validator::new(&forwarder, anchors, settings.deadline)?),
            None => None,
        };
        Ok(Arc::new(Self { settings, forwarder, validator }))
    }

    /// The answer to a question: from the cache, from a server, or from another lookup of the same question.
    ///
    /// Must be called within a tokio runtime that has time and input/output enabled.
    ///
    /// # Errors
    ///
    /// No server gave an answer in time. An answer with an error code (SERVFAIL, NXDOMAIN) is an [`Answer`], and so is
    /// one that does not validate.
    pub async fn lookup(&self, question: &Question) -> Result<Arc<Answer>, LookupError> {
        self.lookup_for(None, question).await
    }

    /// As [`Resolver::lookup`], for a client that has only its share of the questions under way.
    ///
    /// # Errors
    ///
    /// As [`Resolver::lookup`].
    pub async fn lookup_for(
        &self,
        client: Option<Network>,
        question: &Question,
    ) -> Result<Arc<Answer>, LookupError> {
        match self.known(question) {
            Some(outcome) => outcome,
            None => self.ask(client, question).await,
        }
    }

    /// As [`Resolver::lookup_for`], for what was not [known](Resolver::known) a moment ago.
    ///
    /// # Errors
    ///
    /// As [`Resolver::lookup`].
    pub async fn ask(
        &self,
        client: Option<Network>,
        question: &Question,
    ) -> Result<Arc<Answer>, LookupError> {
        let forwarder = &self.forwarder;
        forwarder.counters.lookups.count();
        forwarder.counters.cache_misses.count();
        let key = self.key(question).map(|key| key.to_key()).ok_or(LookupError::Unusable)?;
        match self.validator(question) {
            // Rare, and three times as large as the rest: every question would be that large.
            Some(validator) => Box::pin(validator.fetch(question, &key, client)).await,
            None => forwarder.fetch(question, &key, client).await,
        }
    }

    /// What [`Resolver::lookup`] would give at once: what is in the cache. `None`: it would have to ask.
    pub fn known(&self, question: &Question) -> Option<Result<Arc<Answer>, LookupError>> {
        let Forwarder { cache, counters, .. } = &*self.forwarder;
        let outcome = cache.get(self.key(question)?.as_octets(), clock::now())?;
        counters.lookups.count();
        counters.cache_hits.count();
        Some(outcome)
    }

    fn key(&self, question: &Question) -> Option<KeyBuf> {
        KeyBuf::new(question, self.validator(question).is_some())
    }

    /// Who validates the answer to a question, if anybody does: signatures exist in class IN.
    fn validator(&self, question: &Question) -> Option<&Validator> {
        let wanted = !question.checking_disabled && question.class == DNSClass::IN;
        self.validator.as_ref().filter(|_| wanted)
    }

    /// Its statistics.
    pub fn stats(&self) -> Stats {
        self.forwarder.stats()
    }

    /// The settings that the resolver was made with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
}
