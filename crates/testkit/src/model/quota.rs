//! RFC 6888 REQ-4 and REQ-5: how much a subscriber may use.

use std::net::Ipv6Addr;

use super::filter::{Model, Opener, Outcome, Peek};
use super::packet::End6;
use super::table::{Session, Subscriber};

impl Model {
    /// RFC 6888 REQ-4 and REQ-5: one session more of a subscriber. Those that IPv4 hosts open can't use up
    /// more than half of its quota.
    pub(super) fn count_session(
        &mut self,
        v6: End6,
        opener: Opener,
        peek: &dyn Peek,
    ) -> Result<(), Outcome> {
        let prefix = self.rules.prefix(v6.0);
        let sessions = self.sessions_of(prefix);
        let (now, most_new) = (self.now, self.rules.most_new);
        let Some(subscriber) = self.subscribers.iter_mut().find(|known| known.prefix == prefix)
        else {
            return Ok(());
        };
        // The core's "second" is not the clock's: it may reach over into the one before.
        let this = subscriber.new_in(now);
        let before = subscriber.new_in(now.wrapping_sub(1));
        if most_new != 0 {
            // Only what is refused on the IPv6 side is told.
            let refused = peek.refused() == Some(("rate_quota", opener == Opener::V6));
            let least = match opener {
                Opener::V6 => most_new,
                Opener::V4 => most_new.div_ceil(2),
            };
            if this >= least || (refused && this + before >= least) {
                return Err(Outcome::Refused("rate_quota"));
            }
        }
        subscriber.count_new(now);
        let most = match opener {
            Opener::V6 => self.rules.most_sessions,
            Opener::V4 => self.rules.most_sessions.div_ceil(2),
        };
        if most != 0 && sessions >= most as usize {
            return Err(Outcome::Refused("session_quota"));
        }
        subscriber.last_used = now;
        Ok(())
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
