//! RFC 6888 REQ-4 and REQ-5: how much a subscriber may use.

use std::net::Ipv6Addr;

use super::filter::{Model, Opener, Outcome, Peek};
use super::packet::End6;
use super::table::{Session, Subscriber};

impl Model {
    /// RFC 6888 REQ-4 and REQ-5: whether a subscriber may have one session more. Those that IPv4 hosts open can't use up
    /// more than half of its quota.
    pub(super) fn has_room(
        &self,
        v6: End6,
        opener: Opener,
        peek: &dyn Peek,
    ) -> Result<(), Outcome> {
        let part = |quota: u32| match opener {
            Opener::V6 => quota,
            Opener::V4 => quota.div_ceil(2),
        };
        let prefix = self.rules.prefix(v6.0);
        let Some(subscriber) = self.subscribers.iter().find(|known| known.prefix == prefix) else {
            return Ok(());
        };
        // The core's "second" is not the clock's: it may reach over into the one before.
        let this = subscriber.new_in(self.now);
        let before = subscriber.new_in(self.now.wrapping_sub(1));
        let most = part(self.rules.most_new);
        // Only what is refused on the IPv6 side is told.
        let refused = peek.refused() == Some(("rate_quota", opener == Opener::V6));
        if most != 0 && (this >= most || (refused && this + before >= most)) {
            return Err(Outcome::Refused("rate_quota"));
        }
        let most = part(self.rules.most_sessions);
        if most != 0 && self.sessions_of(prefix) >= most as usize {
            return Err(Outcome::Refused("session_quota"));
        }
        Ok(())
    }

    /// Counts one session more, if there is room. One that finds its place among all sessions taken counts in its second.
    pub(super) fn count_session(
        &mut self,
        v6: End6,
        opener: Opener,
        peek: &dyn Peek,
    ) -> Result<(), Outcome> {
        let room = self.has_room(v6, opener, peek);
        let (prefix, now) = (self.rules.prefix(v6.0), self.now);
        let known = self.subscribers.iter_mut().find(|known| known.prefix == prefix);
        if let Some(subscriber) = known
            && room != Err(Outcome::Refused("rate_quota"))
        {
            subscriber.count_new(now);
            if room.is_ok() {
                subscriber.last_used = now;
            }
        }
        room
    }

    /// Sessions that a subscriber's quota counts.
    pub fn sessions_of(&self, prefix: Ipv6Addr) -> usize {
        let counts = |session: &&Session| self.rules.prefix(session.v6.0) == prefix;
        self.sessions.iter().filter(counts).count()
    }
}

impl Subscriber {
    fn new_in(&self, second: u64) -> u32 {
        self.new.iter().find(|(at, _)| *at == second).map_or(0, |(_, number)| *number)
    }

    fn count_new(&mut self, second: u64) {
        if self.new[0].0 == second {
            self.new[0].1 += 1;
        } else {
            self.new = [(second, 1), self.new[0]];
        }
    }
}
