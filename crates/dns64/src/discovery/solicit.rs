//! When to send router solicitations (RFC 4861 section 6.3.7, RFC 7559).

use std::time::Duration;

use super::Time;
use super::random::Random;

/// First retransmission time (RFC 7559 section 2, IRT).
pub(super) const INITIAL: Duration = Duration::from_secs(4);
/// Longest retransmission time (RFC 7559 section 2, MRT).
pub(super) const LONGEST: Duration = Duration::from_secs(3600);

/// The solicitations of one interface.
#[derive(Clone, Debug, Default)]
pub(super) struct Solicitor {
    /// When the next is due.
    next: Option<Time>,
    /// The last retransmission time, which the next one doubles.
    last: Option<Duration>,
    /// How many were sent since the link is up.
    sent: u32,
    /// The link can carry unsolicited advertisements.
    multicast: bool,
    /// A default router has been heard since the link is up.
    heard: bool,
}

impl Solicitor {
    /// Begins: the link has come up.
    pub(super) fn start(&mut self, now: Time, delay: Duration, multicast: bool) {
        *self = Self { next: Some(now + delay), multicast, ..Self::default() };
    }

    /// The link has gone.
    pub(super) fn stop(&mut self) {
        self.next = None;
    }

    /// When the next is due.
    pub(super) fn next(&self) -> Option<Time> {
        self.next
    }

    /// How many were sent since the link is up.
    pub(super) fn count(&self) -> u32 {
        self.sent
    }

    /// One has been sent.
    pub(super) fn sent(&mut self, now: Time, random: &mut Random) {
        self.sent = self.sent.saturating_add(1);
        // RFC 4861 section 6.3.7: a host that has sent no solicitation sends one even after an advertisement, and then
        // no more. RFC 7559 section 2.1: on a link without multicast there are no unsolicited advertisements.
        if self.heard && self.multicast {
            self.next = None;
            return;
        }
        // RFC 3315 section 14: RT = 2*RTprev + RAND*RTprev; above MRT it is MRT + RAND*MRT.
        let time = match self.last {
            None => random.about(INITIAL),
            Some(last) => last + random.about(last),
        };
        let time = if time > LONGEST { random.about(LONGEST) } else { time };
        self.last = Some(time);
        self.next = Some(now + time);
    }

    /// An advertisement was heard. One whose router lifetime is zero does not make a default route, so that
    /// solicitations go on (RFC 7559 section 2.1).
    pub(super) fn heard(&mut self, default_router: bool) {
        self.heard |= default_router;
        if self.heard && self.multicast && self.sent > 0 {
            self.next = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn run(solicitor: &mut Solicitor, random: &mut Random, until: Time) -> Vec<Time> {
        let mut sent = Vec::new();
        while let Some(at) = solicitor.next().filter(|at| *at <= until) {
            sent.push(at);
            solicitor.sent(at, random);
        }
        sent
    }

    /// RFC 7559 section 2: 4 seconds, then twice as long each time, to an hour, each with a tenth of spread, for ever.
    #[test]
    fn solicitations_go_on_ever_more_seldom() {
        let (mut solicitor, mut random) = (Solicitor::default(), Random::new(1));
        solicitor.start(Time::ZERO, SECOND / 2, true);
        let sent = run(&mut solicitor, &mut random, 50 * LONGEST);
        assert_eq!(sent[0], SECOND / 2);
        let times: Vec<Duration> = sent.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(times[0] >= INITIAL * 9 / 10 && times[0] <= INITIAL * 11 / 10, "{times:?}");
        for pair in times.windows(2) {
            let twice = pair[0] * 2;
            let doubled = pair[1] >= pair[0] * 19 / 10 && pair[1] <= pair[0] * 21 / 10;
            let longest = pair[1] >= LONGEST * 9 / 10 && pair[1] <= LONGEST * 11 / 10;
            assert!(doubled || (longest && twice >= LONGEST * 9 / 10), "{pair:?}");
        }
        assert!(times.len() > 50 && *times.last().unwrap() >= LONGEST * 9 / 10);
    }

    #[test]
    fn an_advertisement_of_a_default_router_ends_them() {
        let (mut solicitor, mut random) = (Solicitor::default(), Random::new(2));
        solicitor.start(Time::ZERO, Duration::ZERO, true);
        solicitor.sent(Time::ZERO, &mut random);
        solicitor.heard(false);
        assert!(solicitor.next().is_some(), "router lifetime zero");
        solicitor.heard(true);
        assert_eq!(solicitor.next(), None);
        // The next event of the link begins anew.
        solicitor.start(10 * SECOND, Duration::ZERO, true);
        assert_eq!(solicitor.next(), Some(10 * SECOND));
    }

    #[test]
    fn one_is_sent_although_an_advertisement_came_first() {
        let (mut solicitor, mut random) = (Solicitor::default(), Random::new(3));
        solicitor.start(Time::ZERO, SECOND, true);
        solicitor.heard(true);
        assert_eq!(run(&mut solicitor, &mut random, 100 * LONGEST), [SECOND]);
    }

    #[test]
    fn on_links_without_multicast_they_never_end() {
        let (mut solicitor, mut random) = (Solicitor::default(), Random::new(4));
        solicitor.start(Time::ZERO, Duration::ZERO, false);
        solicitor.sent(Time::ZERO, &mut random);
        solicitor.heard(true);
        assert!(solicitor.next().is_some());
    }
}
