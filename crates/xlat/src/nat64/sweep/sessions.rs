//! Sessions whose lifetime is over, or whose BIB entry is gone.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, Release};

use super::{Event, Pass};
use crate::nat64::chain::state;
use crate::nat64::layout::{Bib, Kind, Session, session_seen};
use crate::nat64::make::one_session_less;
use crate::nat64::settings::Protocol;
use crate::nat64::table::Binding;
use crate::nat64::tcp::{TcpState, Timeout};
use crate::nat64::view::{SessionKey, SessionLife, View, one_less};

impl Pass<'_, '_> {
    pub(super) fn sessions(&mut self) {
        for index in self.used(Kind::Session) {
            let session = &self.view.regions.sessions[index as usize];
            let life = session.life();
            match life.state {
                state::FREE | state::CLAIMED => {}
                state::LIMBO if self.found_limbo => self.limbo.push((Kind::Session, index)),
                state::LIMBO => {}
                state::DEAD => self.finish_session(index, session),
                _ => self.session(index, session, life),
            }
        }
    }

    fn session(&mut self, index: u32, session: &Session, life: SessionLife) {
        let bib = View::entry(self.view.regions.bibs, session.bib.load(Relaxed));
        let Some(bib) = bib.filter(|bib| bib.state() == state::LIVE) else {
            if session.end(life) {
                count_in(&self.view.nat.ended().withdrawn, session);
                self.finish_session(index, session);
            }
            return;
        };
        self.tell_of(session, bib);
        let timeout = self.view.nat.ticks.of_class(life.timeout);
        if !self.expired(life.tick, timeout) {
            self.count_session(session, life);
            return;
        }
        if life.state == TcpState::Established as u8 {
            let after = SessionLife {
                tick: self.view.now,
                state: TcpState::Trans as u8,
                timeout: Timeout::TcpTrans as u8,
            };
            if session.change(life, after) {
                let pool6 = session.pool6.load(Relaxed);
                let remote = session.remote();
                (self.tell)(Event::Probe { host: bib.v6(), remote, pool6 });
            }
            self.count_session(session, session.life());
        } else if session.end(life) {
            count_in(&self.view.nat.ended().expired, session);
            self.finish_session(index, session);
        } else {
            // Somebody has used it just now.
            self.count_session(session, session.life());
        }
    }

    fn count_session(&mut self, session: &Session, life: SessionLife) {
        if let Some(protocol) = Protocol::of(session.protocol.load(Relaxed)) {
            self.swept.sessions[protocol.index()] += 1;
        }
        if let Some(place) = TcpState::ALL.iter().position(|state| *state as u8 == life.state) {
            self.swept.tcp_states[place] += 1;
        }
    }

    fn tell_of(&mut self, session: &Session, bib: &Bib) {
        if session.seen.fetch_or(session_seen::TOLD, Relaxed) & session_seen::TOLD == 0 {
            (self.tell)(Event::SessionCreated(Binding::of(bib), session.remote()));
        }
    }

    /// A dead session: out of its chain, and off the counts.
    fn finish_session(&mut self, index: u32, session: &Session) {
        let was_linked = self.unlink_session(index, session);
        if !self.may_go((Kind::Session, index), was_linked) {
            return;
        }
        if let Some(bib) = View::entry(self.view.regions.bibs, session.bib.load(Relaxed)) {
            if was_linked {
                // It may have ended between two sweeps.
                self.tell_of(session, bib);
            }
            if session.seen.load(Relaxed) & session_seen::TOLD != 0 {
                let counts = [0, 1].map(|side| {
                    (session.packets[side].load(Relaxed), session.octets[side].load(Relaxed))
                });
                (self.tell)(Event::SessionRemoved(Binding::of(bib), session.remote(), counts));
            }
            if let Some(subscriber) = self.view.subscriber_of(bib) {
                one_less(&subscriber.sessions);
            }
            if one_session_less(bib) == 0 {
                bib.since.store(self.view.now, Relaxed);
            }
        }
        self.forget(session);
        let limbo = SessionLife { tick: 0, state: state::LIMBO, timeout: 0 };
        session.life.store(limbo.word(), Release);
        self.limbo.push((Kind::Session, index));
    }

    /// No gateway watches it any more, unless the same ends have a new session.
    fn forget(&self, session: &Session) {
        let store = self.view.nat.alg_store();
        if store.number() == 0 || session.protocol.load(Relaxed) != Protocol::Tcp.number() {
            return;
        }
        let (local, remote) = (session.local(), session.remote());
        let key = SessionKey { local, remote, protocol: Protocol::Tcp.number() };
        if self.view.session(&key).is_none() {
            store.remove(&(local, remote));
        }
    }

    fn unlink_session(&self, index: u32, session: &Session) -> bool {
        let protocol = session.protocol.load(Relaxed);
        let key = SessionKey { local: session.local(), remote: session.remote(), protocol };
        // Where the filtering was another when it was made, it is in the chain of the other hash.
        [self.view.nat.by_address, !self.view.nat.by_address].into_iter().any(|by_address| {
            self.view.session_chain_by(&key, by_address).is_some_and(|chain| chain.unlink(index))
        })
    }
}

fn count_in(counters: &[AtomicU64; 3], session: &Session) {
    if let Some(protocol) = Protocol::of(session.protocol.load(Relaxed)) {
        counters[protocol.index()].fetch_add(1, Relaxed);
    }
}
