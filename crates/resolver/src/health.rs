//! Health of a server: its round-trip time, whether it answers, and what it lacks.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Consecutive tries without an answer after which a server counts as dead.
const DEAD_AFTER: u32 = 3;
/// How long until a dead server is probed for the first time, and the longest between probes.
pub(super) const FIRST_PROBE: Duration = Duration::from_secs(1);
const LONGEST_PROBE: Duration = Duration::from_secs(30);
/// How long it is remembered that a server lacks something.
const MEMORY: Duration = Duration::from_secs(600);
/// Before anything is known of a server: longer than most round trips.
pub(super) const UNKNOWN_WAIT: Duration = Duration::from_millis(400);
/// Below this the next try is not started: schedulers alone may take as long.
const LEAST_WAIT: Duration = Duration::from_millis(10);

/// State of a server. Threads write it without a lock: a lost sample does no harm.
#[derive(Debug)]
pub(super) struct Health {
    began: Instant,
    /// Smoothed round-trip time and its deviation, in microseconds (RFC 6298 section 2); 0 before the first sample.
    rtt: AtomicU32,
    deviation: AtomicU32,
    failures: AtomicU32,
    dead: AtomicBool,
    /// How often it has been probed since it died, and when it is to be next, in microseconds since `began`.
    probes: AtomicU32,
    probe_at: AtomicU64,
    /// Until when queries go without mixed case, or without EDNS, in microseconds since `began`.
    plain_case_until: AtomicU64,
    no_edns_until: AtomicU64,
}

impl Health {
    /// Nothing is known yet.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            began: now,
            rtt: AtomicU32::new(0),
            deviation: AtomicU32::new(0),
            failures: AtomicU32::new(0),
            dead: AtomicBool::new(false),
            probes: AtomicU32::new(0),
            probe_at: AtomicU64::new(0),
            plain_case_until: AtomicU64::new(0),
            no_edns_until: AtomicU64::new(0),
        }
    }

    /// Records an answer after so long. Returns whether it counted as dead before.
    pub(super) fn answered(&self, after: Duration) -> bool {
        self.sample(after);
        if self.failures.load(Ordering::Relaxed) == 0 {
            return false;
        }
        self.failures.store(0, Ordering::Relaxed);
        self.dead.swap(false, Ordering::Relaxed)
    }

    /// Records that it has not answered for so long. Returns whether it counts as dead from now on.
    pub(super) fn silent(&self, for_: Duration, now: Instant) -> bool {
        if for_ > self.rtt() && self.rtt() > Duration::ZERO {
            // It is slower than estimated.
            self.sample(for_);
        }
        self.failed(now)
    }

    /// Records that it could not be asked, or has refused. Returns whether it counts as dead from now on.
    pub(super) fn failed(&self, now: Instant) -> bool {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if failures < DEAD_AFTER || self.dead.swap(true, Ordering::Relaxed) {
            return false;
        }
        self.probes.store(0, Ordering::Relaxed);
        self.probe_at.store(self.micros(now + FIRST_PROBE), Ordering::Relaxed);
        true
    }

    /// Whether it has answered lately.
    pub(super) fn is_alive(&self) -> bool {
        !self.dead.load(Ordering::Relaxed)
    }

    /// Whether the caller is to probe a dead server: one at a time, and seldom.
    pub(super) fn take_probe(&self, now: Instant) -> bool {
        let at = self.probe_at.load(Ordering::Relaxed);
        if self.is_alive() || self.micros(now) < at {
            return false;
        }
        let doublings = self.probes.load(Ordering::Relaxed).min(10) + 1;
        let pause = FIRST_PROBE.saturating_mul(1 << doublings).min(LONGEST_PROBE);
        let next = self.micros(now + pause);
        let order = Ordering::Relaxed;
        let taken = self.probe_at.compare_exchange(at, next, order, order).is_ok();
        if taken {
            self.probes.fetch_add(1, Ordering::Relaxed);
        }
        taken
    }

    /// Smoothed round-trip time; zero if it has never answered.
    pub(super) fn rtt(&self) -> Duration {
        Duration::from_micros(self.rtt.load(Ordering::Relaxed).into())
    }

    /// How long an answer is waited for before the next server is asked as well.
    pub(super) fn patience(&self, most: Duration) -> Duration {
        let rtt = self.rtt();
        if rtt.is_zero() {
            return UNKNOWN_WAIT.min(most);
        }
        let deviation = Duration::from_micros(self.deviation.load(Ordering::Relaxed).into());
        (rtt + 4 * deviation).max(LEAST_WAIT).min(most)
    }

    /// Whether it keeps the case of names, as far as is known.
    pub(super) fn keeps_case(&self, now: Instant) -> bool {
        self.micros(now) >= self.plain_case_until.load(Ordering::Relaxed)
    }

    /// It has been shown that it does not.
    pub(super) fn loses_case(&self, now: Instant) {
        self.plain_case_until.store(self.micros(now + MEMORY), Ordering::Relaxed);
    }

    /// Whether it understands EDNS, as far as is known.
    pub(super) fn knows_edns(&self, now: Instant) -> bool {
        self.micros(now) >= self.no_edns_until.load(Ordering::Relaxed)
    }

    /// It has been shown that it does not.
    pub(super) fn lacks_edns(&self, now: Instant) {
        self.no_edns_until.store(self.micros(now + MEMORY), Ordering::Relaxed);
    }

    fn sample(&self, rtt: Duration) {
        let rtt = u32::try_from(rtt.as_micros()).unwrap_or(u32::MAX).clamp(1, 60_000_000);
        let smoothed = self.rtt.load(Ordering::Relaxed);
        if smoothed == 0 {
            self.rtt.store(rtt, Ordering::Relaxed);
            self.deviation.store(rtt / 2, Ordering::Relaxed);
            return;
        }
        let deviation = self.deviation.load(Ordering::Relaxed);
        let deviation = deviation - deviation / 4 + smoothed.abs_diff(rtt) / 4;
        self.deviation.store(deviation, Ordering::Relaxed);
        self.rtt.store((smoothed - smoothed / 8 + rtt / 8).max(1), Ordering::Relaxed);
    }

    fn micros(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.began).as_micros();
        u64::try_from(since).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_round_trip_time_follows_the_samples() {
        let health = Health::new(Instant::now());
        assert_eq!(health.rtt(), Duration::ZERO);
        assert_eq!(health.patience(2000 * MS), UNKNOWN_WAIT);
        for _ in 0..50 {
            health.answered(40 * MS);
        }
        assert!(health.rtt().abs_diff(40 * MS) < MS, "{:?}", health.rtt());
        assert!(health.patience(2000 * MS) < 50 * MS, "{:?}", health.patience(2000 * MS));
        health.answered(200 * MS);
        assert!(health.patience(2000 * MS) > 100 * MS, "{:?}", health.patience(2000 * MS));
        assert_eq!(health.patience(30 * MS), 30 * MS);
    }

    #[test]
    fn silence_is_death_until_the_next_answer() {
        let now = Instant::now();
        let health = Health::new(now);
        assert!(!health.silent(MS, now) && !health.silent(MS, now));
        assert!(health.is_alive());
        assert!(health.silent(MS, now), "the third is its death");
        assert!(!health.silent(MS, now), "nobody dies twice");
        assert!(!health.is_alive());
        assert!(health.answered(MS), "back again");
        assert!(health.is_alive() && !health.answered(MS));
        assert!(!health.silent(MS, now), "it is counted from the beginning");
    }

    #[test]
    fn a_dead_server_is_probed_by_one_at_a_time_and_ever_less_often() {
        let now = Instant::now();
        let health = Health::new(now);
        for _ in 0..3 {
            health.failed(now);
        }
        assert!(!health.take_probe(now), "not at once");
        let later = now + FIRST_PROBE;
        assert!(health.take_probe(later));
        assert!(!health.take_probe(later), "somebody does already");
        assert!(!health.take_probe(later + FIRST_PROBE), "the pause has doubled");
        assert!(health.take_probe(later + 2 * FIRST_PROBE));
        health.answered(MS);
        assert!(!health.take_probe(later + 2 * LONGEST_PROBE), "nobody probes the living");
    }

    #[test]
    fn what_it_lacks_is_remembered_for_a_while() {
        let now = Instant::now();
        let health = Health::new(now);
        assert!(health.keeps_case(now) && health.knows_edns(now));
        health.loses_case(now);
        assert!(!health.keeps_case(now) && health.knows_edns(now));
        health.lacks_edns(now);
        assert!(!health.knows_edns(now));
        assert!(health.keeps_case(now + MEMORY) && health.knows_edns(now + MEMORY));
    }
}
