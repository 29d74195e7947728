//! State that the threads of a proxy share.

use std::io;
use std::ops::Deref;
use std::sync::Arc;

use arc_swap::ArcSwap;

use super::access::AccessLog;
use super::error::Error;
use super::names::Names;
use super::routes::Routes;
use super::settings::{Mode, Settings};
use super::site::Site;
use super::stats::Counters;
use super::tls::Tls;
use fordway_certificates::Counts;
use fordway_counters::SharedCounter;
use fordway_counters::proxy::Stats;
use fordway_serve::Tally;
use fordway_serve::thread::{self, Signals};

/// Settings in use, with what is made of them. It never changes; a reload replaces it.
#[derive(Debug)]
pub(super) struct Active {
    /// Another number for each.
    pub(super) generation: u64,
    pub(super) settings: Settings,
    pub(super) names: Names,
    pub(super) site: Site,
    pub(super) routes: Routes,
    pub(super) tls: Option<Tls>,
    pub(super) log: Option<Arc<AccessLog>>,
    /// The proxy's name in Via and Proxy-Status.
    pub(super) own: String,
}

/// Settings as one thread holds them: its sessions share them by a count that no other thread writes to.
pub(super) struct Held(pub(super) Arc<Active>);

impl Deref for Held {
    type Target = Active;

    fn deref(&self) -> &Active {
        &self.0
    }
}

impl Active {
    /// The first settings of a proxy, or those that follow on `before` in its threads.
    pub(super) fn new(settings: Settings, before: Option<&Active>) -> Result<Active, Error> {
        let names = Names::new(settings.resolver.as_ref(), before.map(|it| &it.names))?;
        let tls = Tls::new(&settings.tls, settings.http2, before.and_then(|it| it.tls.as_ref()))?;
        let log = match (&settings.log, before.and_then(|it| it.log.as_ref())) {
            (None, _) => None,
            (Some(wanted), Some(open)) if wanted == open.settings() => {
                open.reopen();
                Some(Arc::clone(open))
            }
            (Some(wanted), _) => {
                let fails =
                    |source: io::Error| Error::Log { target: wanted.target.clone(), source };
                Some(AccessLog::open(wanted).map_err(fails)?)
            }
        };
        let own = match (&settings.via, before) {
            (Some(via), _) => via.clone(),
            (None, Some(before)) if before.settings.via.is_none() => before.own.clone(),
            // So that two of these in a row do not take each other for themselves.
            (None, _) => format!("fordway-{:08x}", getrandom::u32().unwrap_or_default()),
        };
        let site = Site::new(&settings, before.map(|it| &it.site));
        let routes = match &settings.mode {
            Mode::Passthrough(passthrough) => Routes::new(&passthrough.routes),
            Mode::Forward(_) | Mode::Reverse(_) => Routes::default(),
        };
        let generation = before.map_or(1, |it| it.generation + 1);
        Ok(Active { generation, settings, names, site, routes, tls, log, own })
    }

    /// The first settings of a proxy that takes over from one with the settings `before`, with threads of its own.
    pub(super) fn taking_over(settings: Settings, before: &Active) -> Result<Active, Error> {
        let active = Active::new(settings, Some(before))?;
        let site = active.site.for_threads(active.settings.threads);
        Ok(Active { site, ..active })
    }
}

/// State that all threads share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) active: ArcSwap<Active>,
    pub(super) connections: Arc<Tally>,
    /// Of each thread.
    pub(super) counters: Vec<Counters>,
    /// New settings, or the end.
    pub(super) signals: Signals,
}

impl thread::Shared for Shared {
    fn stop(&self) {
        self.signals.stop();
    }
}

impl Shared {
    pub(super) fn new(active: Active, threads: usize) -> Shared {
        Shared {
            active: ArcSwap::from_pointee(active),
            connections: Arc::default(),
            counters: (0..threads).map(|_| Counters::default()).collect(),
            signals: Signals::new(threads),
        }
    }

    /// Puts settings in place; each request takes those that are there when it begins.
    pub(super) fn replace(&self, settings: Settings) -> Result<(), Error> {
        let next = Active::new(settings, Some(&self.active.load()))?;
        self.active.store(Arc::new(next));
        self.signals.wake();
        Ok(())
    }

    pub(super) fn stats(&self) -> Stats {
        let active = self.active.load();
        let is_checked = active.settings.mode.backend().is_some_and(|it| it.check.is_some());
        let certificates = |of: fn(&Counts) -> &SharedCounter| {
            active.tls.as_ref().map_or(0, |it| of(&it.certificates.counts).get())
        };
        let mut stats = Stats {
            name: active.settings.name.clone(),
            connections: self.connections.count() as u64,
            log_lost: active.log.as_ref().map_or(0, |log| log.lost()),
            servers: active.site.stats(is_checked),
            certificates_reloaded: certificates(|it| &it.reloaded),
            certificates_failed: certificates(|it| &it.failed),
            ..Stats::default()
        };
        self.counters.iter().for_each(|counters| counters.add_to(&mut stats));
        stats
    }
}
