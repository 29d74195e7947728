//! The servers of a site: the order in which they are tried, and pauses after failures.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::authority::Authority;
use super::health::Health;
use super::settings::{Backend, CheckKind, Mode, Settings};
use fordway_counters::Counter;
use fordway_counters::proxy::ServerStats;
use fordway_serve::clock;

/// The servers, in the order of the settings.
#[derive(Debug)]
pub(super) struct Site {
    servers: Vec<Member>,
    /// Of each route, its servers; in front of one site there is one.
    groups: Vec<Vec<usize>>,
    /// What checks ask of the servers.
    checked: Option<CheckKind>,
    start: Instant,
}

/// A server. Clones share what is known of it.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) authority: Authority,
    /// Its name in the pool.
    pub(super) key: String,
    tried: Arc<Tried>,
    /// What active checks have found.
    pub(super) health: Arc<Health>,
    /// Of each thread.
    requests: Arc<[Requests]>,
    /// Requests of the threads before these.
    earlier: u64,
}

/// What requests have found of a server.
#[derive(Debug, Default)]
struct Tried {
    /// Until when it is paused, in milliseconds since `start`; 0: it is not.
    paused: AtomicU64,
    failures: AtomicU64,
}

/// The requests of one thread, apart from the cache lines of others.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Requests(Counter);

impl Site {
    /// Keeps what `before` knows of servers that stay. What checks have found stays if they ask the same.
    pub(super) fn new(settings: &Settings, before: Option<&Site>) -> Site {
        let groups: Vec<&[Authority]> = match &settings.mode {
            Mode::Forward(_) => Vec::new(),
            Mode::Reverse(reverse) => vec![&reverse.upstream],
            Mode::Passthrough(it) => it.routes.iter().map(|it| it.upstream.as_slice()).collect(),
        };
        let mut upstream: Vec<&Authority> = Vec::new();
        let mut place = |server| {
            upstream.iter().position(|it| *it == server).unwrap_or_else(|| {
                upstream.push(server);
                upstream.len() - 1
            })
        };
        let groups: Vec<Vec<usize>> =
            groups.iter().map(|group| group.iter().map(&mut place).collect()).collect();
        let check = settings.mode.backend().and_then(|it| it.check.as_ref());
        let checked = check.map(|it| it.kind.clone());
        let member = |authority: &Authority| {
            let known = before.and_then(|it| it.member(authority)).cloned();
            let member = known.unwrap_or_else(|| Member::new(authority, settings.threads));
            match before.is_some_and(|it| it.checked != checked) {
                true => Member { health: Arc::new(member.health.for_another_check()), ..member },
                false => member,
            }
        };
        Site {
            servers: upstream.into_iter().map(member).collect(),
            groups,
            checked,
            start: before.map_or_else(clock::now, |it| it.start),
        }
    }

    /// For other threads, while those before may still end their requests.
    pub(super) fn for_threads(mut self, threads: NonZeroUsize) -> Site {
        for member in &mut self.servers {
            member.earlier = member.requests();
            member.requests = requests(threads);
        }
        self
    }

    fn member(&self, authority: &Authority) -> Option<&Member> {
        self.servers.iter().find(|it| it.authority == *authority)
    }

    /// All servers.
    pub(super) fn servers(&self) -> &[Member] {
        &self.servers
    }

    /// The servers of a group in the order in which they are to be tried: those last that are paused or have failed their
    /// checks. `turn`: grows with each request of a thread.
    pub(super) fn order(&self, group: usize, backend: &Backend, turn: usize) -> Vec<&Member> {
        let now = self.now();
        let group = self.groups.get(group).map_or(&[][..], Vec::as_slice);
        let mut order: Vec<&Member> = group.iter().map(|at| &self.servers[*at]).collect();
        if backend.balance && !order.is_empty() {
            let first = turn % order.len();
            order.rotate_left(first);
        }
        let is_checked = backend.check.is_some();
        order.sort_by_key(|it| it.is_avoided(now, is_checked));
        order
    }

    /// A server could not be reached.
    pub(super) fn failed(&self, member: &Member, pause: Duration) {
        member.tried.failures.fetch_add(1, Ordering::Relaxed);
        let until = self.now().saturating_add(u64::try_from(pause.as_millis()).unwrap_or(u64::MAX));
        if member.tried.paused.swap(until, Ordering::Relaxed) == 0 {
            tracing::warn!("{} can't be reached", member.authority);
        }
    }

    /// A server was reached by this thread.
    pub(super) fn works(&self, member: &Member, thread: usize) {
        member.requests[thread].0.add(1);
        if member.tried.paused.load(Ordering::Relaxed) != 0
            && member.tried.paused.swap(0, Ordering::Relaxed) != 0
        {
            tracing::info!("{} can be reached again", member.authority);
        }
    }

    /// `is_checked`: there are active checks.
    pub(super) fn stats(&self, is_checked: bool) -> Vec<ServerStats> {
        let now = self.now();
        let one = |member: &Member| ServerStats {
            server: member.authority.to_string(),
            alive: !member.is_avoided(now, is_checked),
            requests: member.requests(),
            failures: member.tried.failures.load(Ordering::Relaxed),
            checks: member.health.checks.get(),
            checks_failed: member.health.failed.get(),
            check_failure: member.health.failure(),
        };
        self.servers.iter().map(one).collect()
    }

    fn now(&self) -> u64 {
        u64::try_from(clock::since(self.start).as_millis()).unwrap_or(u64::MAX)
    }
}

impl Member {
    fn new(authority: &Authority, threads: NonZeroUsize) -> Member {
        Member {
            key: authority.to_string(),
            authority: authority.clone(),
            tried: Arc::default(),
            health: Arc::default(),
            requests: requests(threads),
            earlier: 0,
        }
    }

    fn requests(&self) -> u64 {
        self.earlier + self.requests.iter().map(|it| it.0.get()).sum::<u64>()
    }

    /// Whether others are tried first.
    fn is_avoided(&self, now: u64, is_checked: bool) -> bool {
        self.is_paused(now) || is_checked && self.health.is_down()
    }

    fn is_paused(&self, now: u64) -> bool {
        self.tried.paused.load(Ordering::Relaxed) > now
    }
}

fn requests(threads: NonZeroUsize) -> Arc<[Requests]> {
    (0..threads.get()).map(|_| Requests::default()).collect()
}
