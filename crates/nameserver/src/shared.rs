//! State that the threads of a server share.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;

use super::cache::ReadyCache;
use super::cookie::Secrets;
use super::error::Error;
use super::rate::Limiter;
use super::settings::{Cookies, Rate, Settings};
use super::stats::Counters;
use super::tls::Tls;
use fordway_certificates::Counts;
use fordway_counters::SharedCounter;
use fordway_counters::dns64::Stats;
use fordway_resolver::Resolver;
use fordway_resolver::shares::Shares;
use fordway_serve::Tally;
use fordway_serve::clock;
use fordway_serve::thread::{self, Signals};

/// Refusals for one client network: enough to show a wrong configuration, too few for a reflection attack.
const REFUSALS: Rate =
    Rate { per_second: NonZeroU32::new(10).unwrap(), burst: NonZeroU32::new(20).unwrap() };

/// Settings in use, with what is made of them. It never changes; a reload replaces it.
#[derive(Debug)]
pub(super) struct Active {
    /// Another number for each.
    pub(super) generation: u64,
    pub(super) settings: Settings,
    pub(super) resolver: Arc<Resolver>,
    /// Answers that were made under these settings.
    pub(super) ready: ReadyCache,
    /// Answers by UDP.
    pub(super) limiter: Option<Arc<Limiter>>,
    /// What server cookies are made with.
    pub(super) cookies: Option<Arc<Secrets>>,
    /// For clients that speak TLS.
    pub(super) tls: Option<Arc<Tls>>,
}

impl Active {
    /// The first settings of a server, or those that follow `before`: resolver and limiter stay, with their state, if their
    /// settings do.
    pub(super) fn new(settings: Settings, before: Option<&Active>) -> Result<Self, Error> {
        let same = |it: &&Active| *it.resolver.settings() == settings.upstream;
        let resolver = match before.filter(same) {
            Some(before) => Arc::clone(&before.resolver),
            None => Resolver::new(settings.upstream.clone())?,
        };
        let limiter = settings.rate.map(|rate| {
            let before = before.and_then(|it| it.limiter.clone());
            before.filter(|it| it.rate() == rate).unwrap_or_else(|| Arc::new(Limiter::new(rate)))
        });
        let generation = before.map_or(1, |it| it.generation + 1);
        let ready = ReadyCache::new(settings.cache_octets);
        let cookies = cookies(&settings.cookies, before)?;
        // A reload reads the files again, whether they have changed or not.
        let tls = before.and_then(|it| it.tls.as_deref());
        let tls = Tls::new(settings.tls.as_ref(), tls)?.map(Arc::new);
        Ok(Active { generation, settings, resolver, ready, limiter, cookies, tls })
    }
}

/// What server cookies are made with: a file that is read each time, or what was drawn when the server was started.
fn cookies(wanted: &Cookies, before: Option<&Active>) -> Result<Option<Arc<Secrets>>, Error> {
    let secrets = match wanted {
        Cookies::Off => return Ok(None),
        Cookies::File(path) => Secrets::read(path)?,
        Cookies::Drawn => {
            let before = before.filter(|it| it.settings.cookies == Cookies::Drawn);
            match before.and_then(|it| it.cookies.clone()) {
                Some(drawn) => return Ok(Some(drawn)),
                None => Secrets::draw()?,
            }
        }
    };
    Ok(Some(Arc::new(secrets)))
}

/// State that all threads share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) active: ArcSwap<Active>,
    /// Queries that wait for an upstream server.
    pub(super) queries: Arc<Shares>,
    pub(super) connections: Arc<Tally>,
    /// Octets of answers by TCP that clients have not taken yet.
    pub(super) unread: Arc<Tally>,
    /// Of refusals to clients that are not allowed.
    pub(super) refusals: Limiter,
    /// What times are counted from.
    pub(super) start: Instant,
    pub(super) threads: Vec<Thread>,
    /// New settings, or the end.
    pub(super) signals: Signals,
    /// Signalled by a thread that has taken new settings.
    taken: Mutex<()>,
    is_taken: Condvar,
}

/// What a thread reports.
#[derive(Debug, Default)]
pub(super) struct Thread {
    pub(super) counters: Counters,
    /// The generation of settings that the thread works by; `u64::MAX` when it has ended.
    generation: AtomicU64,
}

impl thread::Shared for Shared {
    fn stop(&self) {
        self.signals.stop();
    }
}

impl Shared {
    pub(super) fn new(active: Active, threads: usize) -> Self {
        Shared {
            active: ArcSwap::from_pointee(active),
            queries: Arc::default(),
            connections: Arc::default(),
            unread: Arc::default(),
            refusals: Limiter::new(REFUSALS),
            start: clock::now(),
            threads: (0..threads).map(|_| Thread::default()).collect(),
            signals: Signals::new(threads),
            taken: Mutex::new(()),
            is_taken: Condvar::new(),
        }
    }

    /// Puts settings in place, and waits until every thread works by them.
    pub(super) fn replace(&self, settings: Settings) -> Result<(), Error> {
        let next = Arc::new(Active::new(settings, Some(&self.active.load()))?);
        let generation = next.generation;
        self.active.store(next);
        self.signals.wake();
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        while self.threads.iter().any(|thread| thread.generation() < generation) {
            // A thread that ends signals it; the timeout is for one that could not.
            let (lock, result) = self
                .is_taken
                .wait_timeout(taken, Duration::from_secs(5))
                .unwrap_or_else(PoisonError::into_inner);
            taken = lock;
            if result.timed_out() {
                tracing::warn!("a DNS64 thread does not take new settings");
                break;
            }
        }
        Ok(())
    }

    /// A thread works by this generation from now on: no answer of one before it leaves any more.
    pub(super) fn takes(&self, thread: usize, generation: u64) {
        let lock = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        self.threads[thread].generation.store(generation, Ordering::Release);
        drop(lock);
        self.is_taken.notify_all();
    }

    pub(super) fn stats(&self) -> Stats {
        let active = self.active.load();
        let certificates = |of: fn(&Counts) -> &SharedCounter| {
            active.tls.as_ref().map_or(0, |it| of(&it.certificates.counts).get())
        };
        let mut stats = Stats {
            certificates_reloaded: certificates(|it| &it.reloaded),
            certificates_failed: certificates(|it| &it.failed),
            connections: self.connections.count() as u64,
            waiting: self.queries.count() as u64,
            upstream: active.resolver.stats(),
            ..Stats::default()
        };
        for thread in &self.threads {
            thread.counters.add_to(&mut stats);
        }
        stats
    }
}

impl Thread {
    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
}
