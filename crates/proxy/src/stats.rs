//! What a proxy counts.

use std::net::IpAddr;
use std::ops::Deref;

use fordway_counters::Counter;
use fordway_counters::proxy::{Counted, Stats};

use super::reason::{MEANINGS, REASONS, Reason};

/// The counters of one thread.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    counted: Counted,
    responses: [Counter; 4],
    refused: [Counter; REASONS],
    pub(crate) tunnels_closed: Counter,
    pub(crate) pooled: Counter,
    pub(crate) unpooled: Counter,
}

impl Deref for Counters {
    type Target = Counted;

    fn deref(&self) -> &Counted {
        &self.counted
    }
}

impl Counters {
    /// A final response goes out.
    pub(super) fn response(&self, status: u16) {
        if let Some(counter) =
            usize::from(status / 100).checked_sub(2).and_then(|it| self.responses.get(it))
        {
            counter.add(1);
        }
    }

    /// The proxy refuses a connection whose client does not speak HTTP with it.
    pub(super) fn closed(&self, reason: Reason) {
        self.refused[reason as usize].add(1);
    }

    /// The proxy refuses a request.
    pub(super) fn refused(&self, reason: Reason) {
        self.closed(reason);
        self.response(reason.status());
    }

    /// A connection to a server was made.
    pub(super) fn server(&self, address: IpAddr) {
        if address.is_ipv4() { &self.servers_v4 } else { &self.servers_v6 }.add(1);
    }

    /// Adds the numbers of this thread.
    pub(super) fn add_to(&self, stats: &mut Stats) {
        for (sum, counter) in stats.responses.iter_mut().zip(&self.responses) {
            *sum += counter.get();
        }
        for (told, counter) in MEANINGS.iter().zip(&self.refused) {
            *stats.refused.entry(told.label.to_owned()).or_default() += counter.get();
        }
        self.counted.add_to(stats);
        stats.tunnels_open += self.tunnels.get().saturating_sub(self.tunnels_closed.get());
        stats.idle += self.pooled.get().saturating_sub(self.unpooled.get());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_summed_up() {
        let (one, other) = (Counters::default(), Counters::default());
        one.response(204);
        other.refused(Reason::Framing);
        other.refused(Reason::Framing);
        one.server("192.0.2.1".parse().unwrap());
        one.tunnels.add(3);
        one.tunnels_closed.add(1);
        let mut stats = Stats::default();
        one.add_to(&mut stats);
        other.add_to(&mut stats);
        assert_eq!(stats.responses, [1, 0, 2, 0]);
        assert_eq!(stats.refused["framing"], 2);
        assert_eq!(stats.refused.len(), REASONS);
        assert_eq!((stats.servers_v4, stats.servers_v6, stats.tunnels_open), (1, 0, 2));
    }
}
