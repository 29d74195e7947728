//! When to send router advertisements on one device (RFC 4861 sections 6.2.4 and 6.2.6).

use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use fordway_dns64::ndp::{
    MAX_INITIAL_RTR_ADVERT_INTERVAL, MAX_INITIAL_RTR_ADVERTISEMENTS, MAX_RA_DELAY_TIME_MS,
    MIN_DELAY_BETWEEN_RAS,
};

const INITIAL_INTERVAL: Duration = Duration::from_secs(MAX_INITIAL_RTR_ADVERT_INTERVAL);
const MIN_DELAY: Duration = Duration::from_secs(MIN_DELAY_BETWEEN_RAS);
const MAX_DELAY: Duration = Duration::from_millis(MAX_RA_DELAY_TIME_MS);

/// Hosts that can wait for an answer of their own at a time; others share the next one to all.
const UNICAST_WAITING: usize = 32;

/// The timers of one device. Time and random numbers are arguments.
#[derive(Debug)]
pub(super) struct Schedule {
    min: Duration,
    max: Duration,
    /// How many of the first few are left.
    initial: u32,
    /// When the last one was sent to all nodes.
    last: Option<Instant>,
    /// When the next unsolicited one is due; `None` while the device does not advertise.
    next: Option<Instant>,
    /// When a solicited one is due.
    solicited: Option<Instant>,
    /// Hosts that get one of their own, and when.
    unicast: Vec<(Instant, Ipv6Addr)>,
}

/// What is to be sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Due {
    /// To all nodes.
    pub(super) multicast: bool,
    /// To these.
    pub(super) unicast: Vec<Ipv6Addr>,
}

impl Schedule {
    /// Of a device that does not advertise yet.
    pub(super) fn new(min: Duration, max: Duration) -> Schedule {
        Schedule {
            min,
            max,
            initial: 0,
            last: None,
            next: None,
            solicited: None,
            unicast: Vec::new(),
        }
    }

    /// Other intervals, from the next timer on.
    pub(super) fn set_intervals(&mut self, min: Duration, max: Duration) {
        (self.min, self.max) = (min, max);
    }

    /// The device begins to advertise, or what it advertises has changed (RFC 4861 section 6.2.4): a
    /// few advertisements, the first as soon as may be.
    pub(super) fn begin(&mut self, now: Instant) {
        self.initial = MAX_INITIAL_RTR_ADVERTISEMENTS;
        self.next = Some(self.earliest(now));
    }

    /// The one to all nodes that was just due could not be sent: it does not count, and comes again as
    /// soon as may be. What it said may be new, and the next regular one half an hour away.
    pub(super) fn again(&mut self, now: Instant) {
        if self.next.is_some() {
            self.initial = (self.initial + 1).min(MAX_INITIAL_RTR_ADVERTISEMENTS);
            self.next = Some(self.earliest(now));
        }
    }

    /// The device advertises no longer.
    pub(super) fn end(&mut self) {
        *self = Schedule { last: self.last, ..Schedule::new(self.min, self.max) };
    }

    /// A valid solicitation from `source`.
    ///
    /// The answer goes to all nodes, unless one has just been sent: then the host gets one of its own at once, if it
    /// has an address.
    pub(super) fn solicit(&mut self, now: Instant, source: Ipv6Addr, random: u64) {
        let Some(next) = self.next else {
            return;
        };
        // RFC 4861 section 6.2.6: by a random time later, and never less than the minimum delay after
        // the last one to all nodes.
        let delay = scale(MAX_DELAY, random);
        let earliest = self.earliest(now);
        if earliest == now || source.is_unspecified() || self.unicast.len() >= UNICAST_WAITING {
            let at = earliest + delay;
            // One that comes before it anyway is the answer; several solicitations have one answer,
            // relative to the first.
            if at < next && self.solicited.is_none_or(|already| at < already) {
                self.solicited = Some(at);
            }
        } else if self.unicast.iter().all(|(_, waiting)| *waiting != source) {
            self.unicast.push((now + delay, source));
        }
    }

    /// When [`Schedule::take`] has something next.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let unicast = self.unicast.iter().map(|(at, _)| *at);
        unicast.chain(self.next).chain(self.solicited).min()
    }

    /// What is to be sent now; the timers go on.
    pub(super) fn take(&mut self, now: Instant, random: u64) -> Due {
        let multicast = [self.next, self.solicited].into_iter().flatten().any(|at| at <= now);
        if multicast {
            self.solicited = None;
            self.restart(now, random);
        }
        let due = self.unicast.extract_if(.., |(at, _)| *at <= now);
        Due { multicast, unicast: due.map(|(_, host)| host).collect() }
    }

    /// The interval timer, after an advertisement to all nodes (RFC 4861 section 6.2.4).
    fn restart(&mut self, now: Instant, random: u64) {
        let mut interval = self.min + scale(self.max.saturating_sub(self.min), random);
        self.initial = self.initial.saturating_sub(1);
        if self.initial > 0 {
            interval = interval.min(INITIAL_INTERVAL);
        }
        self.last = Some(now);
        self.next = Some(now + interval);
    }

    /// The first moment from `now` on when an advertisement may be sent to all nodes.
    fn earliest(&self, now: Instant) -> Instant {
        self.last.map_or(now, |last| now.max(last + MIN_DELAY))
    }
}

/// A part of `range` that a random number of 64 bits chooses evenly.
fn scale(range: Duration, random: u64) -> Duration {
    let nanos = (range.as_nanos() * u128::from(random)) >> 64;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
    const OTHER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 3);
    const NOBODY: Ipv6Addr = Ipv6Addr::UNSPECIFIED;
    const HALF: u64 = 1 << 63;

    fn ms(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    fn begun() -> (Schedule, Instant) {
        let start = Instant::now();
        let mut schedule = Schedule::new(ms(200_000), ms(600_000));
        schedule.begin(start);
        (schedule, start)
    }

    /// Past the first few.
    fn settled() -> (Schedule, Instant) {
        let (mut schedule, mut now) = begun();
        for _ in 0..3 {
            now = schedule.deadline().expect("a next one");
            assert!(schedule.take(now, HALF).multicast);
        }
        (schedule, now)
    }

    #[test]
    fn the_first_few_come_soon() {
        let (mut schedule, start) = begun();
        let mut at = Vec::new();
        for _ in 0..4 {
            let now = schedule.deadline().expect("a next one");
            at.push((now - start).as_secs());
            assert_eq!(schedule.take(now, HALF), Due { multicast: true, unicast: vec![] });
        }
        assert_eq!(at, [0, 16, 32, 432]);
        let (least, most) = (schedule.take(start + ms(1_000_000), 0), schedule.deadline());
        assert!(least.multicast);
        assert_eq!(most, Some(start + ms(1_200_000)));
    }

    #[test]
    fn one_that_could_not_be_sent_comes_again() {
        let (mut schedule, start) = begun();
        let mut at = Vec::new();
        for number in 0..6 {
            let now = schedule.deadline().expect("a next one");
            at.push((now - start).as_secs());
            assert!(schedule.take(now, HALF).multicast);
            if [1, 4].contains(&number) {
                schedule.again(now);
            }
        }
        // The second and the last of the first few were not heard.
        assert_eq!(at, [0, 16, 19, 35, 435, 438]);
        assert_eq!(schedule.deadline(), Some(start + ms(838_000)));
        schedule.end();
        schedule.again(start + ms(440_000));
        assert_eq!(schedule.deadline(), None);
    }

    /// However often it happens, there are no more of the first few than there are.
    #[test]
    fn what_could_not_be_sent_does_not_add_up() {
        let (mut schedule, _) = begun();
        for _ in 0..100 {
            let now = schedule.deadline().expect("a next one");
            assert!(schedule.take(now, HALF).multicast);
            schedule.again(now);
            schedule.again(now);
        }
        assert!(schedule.initial <= MAX_INITIAL_RTR_ADVERTISEMENTS, "{}", schedule.initial);
    }

    #[test]
    fn short_intervals_are_not_made_longer_at_first() {
        let start = Instant::now();
        let mut schedule = Schedule::new(ms(3000), ms(4000));
        schedule.begin(start);
        assert!(schedule.take(start, u64::MAX).multicast);
        let next = schedule.deadline().expect("a next one") - start;
        assert!(next > ms(3999) && next <= ms(4000), "{next:?}");
    }

    #[test]
    fn an_answer_comes_within_half_a_second_and_restarts_the_timer() {
        let (mut schedule, last) = settled();
        let now = last + ms(10_000);
        schedule.solicit(now, HOST, HALF);
        schedule.solicit(now + ms(100), OTHER, 0);
        // Both have one answer, the earlier.
        assert_eq!(schedule.deadline(), Some(now + ms(100)));
        let due = schedule.take(now + ms(100), 0);
        assert_eq!(due, Due { multicast: true, unicast: vec![] });
        assert_eq!(schedule.deadline(), Some(now + ms(200_100)));
    }

    #[test]
    fn a_later_solicitation_does_not_delay_the_answer() {
        let (mut schedule, last) = settled();
        let now = last + ms(10_000);
        schedule.solicit(now, HOST, HALF);
        schedule.solicit(now + ms(200), OTHER, HALF);
        assert_eq!(schedule.deadline(), Some(now + ms(250)));
    }

    #[test]
    fn one_already_due_is_the_answer() {
        let (mut schedule, last) = settled();
        let next = schedule.deadline().expect("a next one");
        assert!(next > last + ms(3000));
        schedule.solicit(next - ms(100), HOST, HALF);
        assert_eq!(schedule.deadline(), Some(next));
    }

    #[test]
    fn within_the_minimum_delay_a_host_gets_its_own() {
        let (mut schedule, last) = settled();
        let now = last + ms(1000);
        schedule.solicit(now, HOST, HALF);
        schedule.solicit(now, HOST, 0);
        assert_eq!(schedule.deadline(), Some(now + ms(250)));
        assert_eq!(
            schedule.take(now + ms(250), HALF),
            Due { multicast: false, unicast: vec![HOST] }
        );
        // Who has no address waits until all may hear one.
        schedule.solicit(now, NOBODY, HALF);
        assert_eq!(schedule.deadline(), Some(last + ms(3250)));
    }

    #[test]
    fn all_nodes_are_never_told_more_often_than_every_three_seconds() {
        let (mut schedule, mut now) = settled();
        let mut told = Vec::new();
        let mut random = 1u64;
        for _ in 0..4000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            now += ms(random >> 56);
            let source = [HOST, OTHER, NOBODY][(random >> 40) as usize % 3];
            schedule.solicit(now, source, random);
            if random & 0xff00 == 0 {
                schedule.begin(now);
            }
            while let Some(at) = schedule.deadline().filter(|at| *at <= now) {
                if schedule.take(at, random).multicast {
                    told.push(at);
                }
            }
        }
        assert!(told.len() > 100, "{}", told.len());
        assert!(told.windows(2).all(|pair| pair[1] - pair[0] >= MIN_DELAY));
    }

    #[test]
    fn hosts_that_wait_are_bounded() {
        let (mut schedule, last) = settled();
        for host in 0..1000 {
            schedule.solicit(last + ms(10), Ipv6Addr::from_bits(0xfe80 << 112 | host), HALF);
        }
        assert_eq!(schedule.unicast.len(), UNICAST_WAITING);
        // The others have the next one to all.
        assert_eq!(schedule.solicited, Some(last + ms(3250)));
    }

    #[test]
    fn what_has_ended_is_silent() {
        let (mut schedule, last) = settled();
        schedule.solicit(last + ms(1), HOST, 0);
        schedule.end();
        schedule.solicit(last + ms(2), HOST, 0);
        assert_eq!(schedule.deadline(), None);
        // And a new beginning keeps the minimum delay.
        schedule.begin(last + ms(100));
        assert_eq!(schedule.deadline(), Some(last + MIN_DELAY));
    }
}
