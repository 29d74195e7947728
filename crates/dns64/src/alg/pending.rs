//! Pending questions, and the number of bindings that each client has caused. Both are bounded.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use fordway_xlat::dns::Exchange;

use super::DnsPolicy;
use super::message::Asked;

/// Pending questions at most.
const MOST: usize = 8192;

/// Pending questions of one client at most.
const MOST_OF_ONE: u32 = 1024;

/// How long a question is pending.
const PATIENCE: Duration = Duration::from_secs(15);

/// IPv4 clients whose bindings are counted at most.
const MOST_CLIENTS: usize = 4096;

/// The key of a question: both ends, and its ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    local: (Ipv4Addr, u16),
    remote: (Ipv4Addr, u16),
    id: u16,
}

impl Key {
    pub(super) fn of(exchange: &Exchange<'_>, id: u16) -> Key {
        Key { local: exchange.local, remote: exchange.remote, id }
    }
}

#[derive(Debug)]
struct Kept {
    asked: Asked,
    until: Duration,
}

/// Pending questions and counts of bindings.
#[derive(Debug, Default)]
pub(super) struct Pending {
    questions: HashMap<Key, Kept>,
    /// Pending questions by the address of the IPv4 end, which is the client's or the server's.
    of_one: HashMap<Ipv4Addr, u32>,
    /// Bindings by client, and since when they are counted.
    bindings: HashMap<Ipv4Addr, (Duration, u32)>,
}

impl Pending {
    /// Adds a question, or replaces the one with this key. `false`: there is no room.
    pub(super) fn keep(&mut self, key: Key, asked: Asked, now: Duration) -> bool {
        let kept = Kept { asked, until: now + PATIENCE };
        if let Some(known) = self.questions.get_mut(&key) {
            *known = kept;
            return true;
        }
        let of_one = self.of_one.get(&key.remote.0).copied().unwrap_or(0);
        if self.questions.len() >= MOST || of_one >= MOST_OF_ONE {
            self.expire(now);
        }
        let of_one = self.of_one.entry(key.remote.0).or_default();
        if self.questions.len() >= MOST || *of_one >= MOST_OF_ONE {
            return false;
        }
        *of_one += 1;
        self.questions.insert(key, kept);
        true
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.questions.len()
    }

    fn expire(&mut self, now: Duration) {
        self.questions.retain(|_, kept| kept.until > now);
        self.of_one.clear();
        for key in self.questions.keys() {
            *self.of_one.entry(key.remote.0).or_default() += 1;
        }
    }

    pub(super) fn find(&self, key: &Key, now: Duration) -> Option<Asked> {
        let kept = self.questions.get(key).filter(|kept| kept.until > now)?;
        Some(kept.asked.clone())
    }

    pub(super) fn forget(&mut self, key: &Key) {
        if self.questions.remove(key).is_some()
            && let Some(of_one) = self.of_one.get_mut(&key.remote.0)
        {
            *of_one -= 1;
            if *of_one == 0 {
                self.of_one.remove(&key.remote.0);
            }
        }
    }

    /// Counts a binding of a client, if it may cause one more.
    pub(super) fn may_bind(&mut self, client: Ipv4Addr, most: u32, now: Duration) -> bool {
        let is_over = |since: Duration| now >= since + DnsPolicy::WINDOW;
        if self.bindings.len() >= MOST_CLIENTS && !self.bindings.contains_key(&client) {
            self.bindings.retain(|_, (since, _)| !is_over(*since));
            if self.bindings.len() >= MOST_CLIENTS {
                return false;
            }
        }
        let (since, number) = self.bindings.entry(client).or_insert((now, 0));
        if is_over(*since) {
            (*since, *number) = (now, 0);
        }
        *number += 1;
        *number <= most
    }
}
