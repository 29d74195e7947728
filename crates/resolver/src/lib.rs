//! Answers from the configured upstream servers.
//!
//! A [`Resolver`] asks servers that do recursion themselves (it follows no referral). The same question of several
//! callers is asked once; the answer is cached for as long as its TTLs allow, within a bound of octets. Threads with a
//! tokio runtime each can share a resolver: sockets belong to the runtime that made them, the cache and the questions
//! under way to all.
//!
//! The way of a question: [`forwarder`] (cache, merging) -> [`routes`] (whose servers) -> [`race`] (which server, and when
//! the next) -> [`exchange`] (one server, by UDP or a connection) -> [`clean`] (what belongs to the question) -> cache. With validation,
//! [`validate`] stands before all that, and asks for signatures and keys the same way.

#![forbid(unsafe_code)]

mod anchors;
mod answer;
mod asker;
mod cache;
mod clean;
mod connection;
mod cookie;
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
mod routes;
mod selection;
mod settings;
pub mod shares;
mod stale;
mod stream;
#[cfg(test)]
mod tests;
mod tls;
mod udp;
mod validate;

use std::pin::Pin;
use std::sync::Arc;

use answer::Outcome;
pub use answer::{Answer, Kept};
pub use asker::Asker;
pub use error::{Error, LookupError};
pub use fordway_counters::upstream::{ServerStats, Stats};
pub use fordway_dns64::{Question, Security};
use forwarder::Forwarder;
use hickory_proto::rr::DNSClass;
use key::{Key, KeyBuf};
pub use selection::Selection;
pub use settings::{Domain, Protocol, Server, Settings, TrustAnchors};
pub use tls::authorities;
use validate::Validator;

use fordway_serve::clock;
use tokio::time::timeout;

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
    pub async fn lookup(self: &Arc<Self>, question: &Question) -> Result<Arc<Answer>, LookupError> {
        self.lookup_for(Asker::default(), question).await
    }

    /// As [`Resolver::lookup`], on behalf of a client, or ahead of need.
    ///
    /// # Errors
    ///
    /// As [`Resolver::lookup`].
    pub async fn lookup_for(
        self: &Arc<Self>,
        asker: Asker,
        question: &Question,
    ) -> Result<Arc<Answer>, LookupError> {
        match self.known(question, asker) {
            Some(outcome) => outcome,
            None => self.ask(asker, question).await,
        }
    }

    /// As [`Resolver::lookup_for`], for what was not [known](Resolver::known) a moment ago. The future is boxed: the crates that
    /// await it would compile all of it anew, TLS, HTTP/2 and validation with it.
    ///
    /// # Errors
    ///
    /// As [`Resolver::lookup`].
    pub fn ask<'a>(
        self: &'a Arc<Self>,
        asker: Asker,
        question: &'a Question,
    ) -> Pin<Box<dyn Future<Output = Result<Arc<Answer>, LookupError>> + Send + 'a>> {
        Box::pin(self.ask_servers(asker, question))
    }

    async fn ask_servers(self: &Arc<Self>, asker: Asker, question: &Question) -> Outcome {
        let Forwarder { cache, counters, .. } = &*self.forwarder;
        counters.lookups.count();
        counters.cache_misses.count();
        let key = self.key(question).map(|key| key.to_key()).ok_or(LookupError::Unusable)?;
        match cache.stale(&key, clock::now()) {
            Some(stale) => Box::pin(self.ask_or(stale, question, key, asker)).await,
            None => self.fetch(question, &key, asker).await,
        }
    }

    async fn fetch(&self, question: &Question, key: &Key, asker: Asker) -> Outcome {
        // Validation is rare, and three times as large as the rest: every question would be that large.
        match self.validation(question) {
            Some(validator) if self.forwarder.routes.validates(question) => {
                Box::pin(validator.fetch(question, key, asker)).await
            }
            Some(validator) => Box::pin(validator.fetch_unchecked(question, key, asker)).await,
            None => self.forwarder.fetch(question, key, asker).await,
        }
    }

    /// Asks for what there is a stale answer to, which is given if the servers fail, or take too long (RFC 8767 section 5).
    /// Then the question goes on without the caller.
    async fn ask_or(
        self: &Arc<Self>,
        stale: Arc<Answer>,
        question: &Question,
        key: Key,
        asker: Asker,
    ) -> Outcome {
        let (resolver, asked, of) = (Arc::clone(self), question.clone(), Arc::clone(&key));
        let fetch = tokio::spawn(async move { resolver.fetch(&asked, &of, asker).await });
        let Forwarder { cache, counters, .. } = &*self.forwarder;
        match timeout(self.settings.stale_after, fetch).await {
            Ok(Ok(outcome)) if !stale::may_replace(&outcome) => return outcome,
            Ok(_) => {}
            // Others do not wait in their turn.
            Err(_elapsed) => cache.wait_for(&key, clock::now()),
        }
        counters.stale.count();
        Ok(stale)
    }

    /// What [`Resolver::lookup`] would give at once: what is in the cache. `None`: it would have to ask.
    pub fn known(
        &self,
        question: &Question,
        asker: Asker,
    ) -> Option<Result<Arc<Answer>, LookupError>> {
        let Forwarder { cache, counters, .. } = &*self.forwarder;
        let (key, now) = (self.key(question)?, clock::now());
        let (outcome, is_stale) = cache.known(key.as_octets(), now, asker.ahead)?;
        if is_stale {
            counters.stale.count();
        }
        counters.lookups.count();
        counters.cache_hits.count();
        Some(outcome)
    }

    fn key(&self, question: &Question) -> Option<KeyBuf> {
        let validates = self.validation(question).is_some();
        KeyBuf::new(question, validates && self.forwarder.routes.validates(question))
    }

    /// The validator, if the question wants one: signatures exist in class IN. Whether the answers of a name's servers are
    /// validated is up to their [route](routes::Routes::validates).
    fn validation(&self, question: &Question) -> Option<&Validator> {
        let wanted = !question.checking_disabled && question.class == DNSClass::IN;
        self.validator.as_ref().filter(|_| wanted)
    }

    /// What is in the cache at this moment, of some names; it changes meanwhile.
    pub fn kept<'a>(&'a self, of: &'a Selection) -> impl Iterator<Item = Kept> + 'a {
        self.forwarder.cache.iter(of)
    }

    /// Removes what is in the cache of some names. Answers to questions under way are not cached, and lookups that begin from
    /// now on do not wait for them. How many were removed.
    pub fn flush(&self, of: &Selection) -> u64 {
        let removed = self.forwarder.cache.flush(of);
        self.forwarder.flights.close();
        removed
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
