//! What time does to the tables, and what an operator does by hand.

use super::filter::Model;
use super::packet::{End4, End6, Transport};
use super::table::{Bib, Session};
use super::tcp::State;

/// What a sweep sends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Sessions whose host is asked whether they live (RFC 6146 section 3.5.2.2, ESTABLISHED).
    pub probes: Vec<Session>,
    /// Stored SYNs that nobody has answered: who is told of it.
    pub unanswered: Vec<Told>,
}

/// Who is told that nobody has answered his SYN: its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Told {
    /// Over IPv4.
    V4(End4, End4),
    /// Over IPv6, for it was hairpinned.
    V6(End6, End6),
}

impl Model {
    /// Lets the clock go to `now`, and takes out what has expired.
    pub fn sweep(&mut self, now: u64) -> Swept {
        self.now = now;
        self.garbage = [0; 2];
        let mut swept = Swept::default();
        self.sweep_stored(&mut swept);
        self.sweep_sessions(&mut swept);
        self.sweep_bibs();
        self.sweep_subscribers();
        swept
    }

    fn sweep_sessions(&mut self, swept: &mut Swept) {
        let (now, trans) = (self.now, self.rules.tcp_trans);
        for session in &mut self.sessions {
            if now - session.since > session.lifetime && session.tcp == Some(State::Established) {
                session.tcp = Some(State::Trans);
                session.since = now;
                session.lifetime = trans;
                swept.probes.push(*session);
            }
        }
        self.sessions.retain(|session| now - session.since <= session.lifetime);
    }

    fn sweep_bibs(&mut self) {
        let (now, rest) = (self.now, self.rules.port_rest);
        self.bibs.retain(|bib| bib.resting.is_none_or(|since| now - since <= rest));
        let mut resting = self.bibs.iter().filter(|bib| bib.resting.is_some()).count();
        let mut kept = Vec::new();
        for mut bib in std::mem::take(&mut self.bibs) {
            let has_session = self
                .sessions
                .iter()
                .any(|session| (session.transport, session.v4) == (bib.transport, bib.v4));
            // One that was made for a session that could not be has a moment more.
            let young = !bib.had_session && now - bib.created <= 1;
            if bib.is_static || bib.resting.is_some() || has_session || young {
                kept.push(bib);
                continue;
            }
            // Nobody knows a port that never had a session.
            let rests = bib.transport != Transport::Tcp && rest != 0 && bib.had_session;
            if rests && resting < self.rules.most_resting {
                resting += 1;
                bib.resting = Some(now);
                bib.had_session = false;
                kept.push(bib);
            }
        }
        self.bibs = kept;
    }

    fn sweep_subscribers(&mut self) {
        let subscribers = std::mem::take(&mut self.subscribers);
        let lives = |known: &super::table::Subscriber| {
            self.sessions_of(known.prefix) != 0
                || Transport::ALL.iter().any(|of| self.ports_of(known.prefix, *of) != 0)
                || self.now - known.last_used <= self.rules.subscriber
        };
        self.subscribers = subscribers.into_iter().filter(lives).collect();
    }

    /// V4 INIT: if the lifetime expires, ICMP port unreachable with the stored SYN.
    fn sweep_stored(&mut self, swept: &mut Swept) {
        let (now, waits) = (self.now, self.rules.tcp_incoming_syn);
        for syn in std::mem::take(&mut self.stored) {
            if now - syn.since < waits {
                self.stored.push(syn);
                continue;
            }
            let session = self.session(Transport::Tcp, syn.to, syn.from);
            if session.is_some_and(|place| !self.sessions[place].is_stored_syn) {
                continue;
            }
            if !syn.hairpin {
                swept.unanswered.push(Told::V4(syn.from, syn.to));
            } else if let Some(place) = self.session(Transport::Tcp, syn.from, syn.to) {
                let sender = &self.sessions[place];
                let far = self.rules.embed(syn.to.0, sender.pool6);
                swept.unanswered.push(Told::V6(sender.v6, (far, syn.to.1)));
            }
        }
    }

    /// The operator makes a BIB entry. `false`: another is in the way.
    pub fn add_bib(&mut self, transport: Transport, v6: End6, v4: End4) -> bool {
        if let Some(bib) = self
            .bibs
            .iter_mut()
            .find(|bib| bib.transport == transport && bib.v6 == v6 && bib.resting.is_none())
        {
            bib.is_static |= bib.v4 == v4;
            return bib.v4 == v4;
        }
        if self.in_use(transport, |bib| bib.v4 == v4).is_some() {
            return false;
        }
        // Its host is its owner.
        let (prefix, now) = (self.rules.prefix(v6.0), self.now);
        let is_new = !self.subscribers.iter().any(|known| known.prefix == prefix);
        if is_new && self.subscribers.len() >= self.rules.sizes[2] {
            return false;
        }
        self.subscriber(prefix, now);
        let before = self.bibs.len();
        self.bibs.retain(|bib| bib.transport != transport || (bib.v6 != v6 && bib.v4 != v4));
        self.garbage[0] += before - self.bibs.len();
        self.bibs.push(Bib {
            transport,
            v6,
            v4,
            is_static: true,
            resting: None,
            created: self.now,
            had_session: false,
        });
        true
    }

    /// The operator takes a BIB entry away; its sessions go with it. `false`: there is none.
    pub fn remove_bib(&mut self, transport: Transport, v4: End4) -> bool {
        if self.in_use(transport, |bib| bib.v4 == v4).is_none() {
            return false;
        }
        self.bibs.retain(|bib| (bib.transport, bib.v4) != (transport, v4));
        self.garbage[0] += 1;
        let before = self.sessions.len();
        self.sessions.retain(|session| (session.transport, session.v4) != (transport, v4));
        self.garbage[1] += before - self.sessions.len();
        true
    }
}
