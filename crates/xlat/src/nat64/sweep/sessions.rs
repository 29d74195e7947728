//! Sweeping of sessions: expired, or without a BIB entry.

use alloc::vec::Vec;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, Release};

use crate::nat64::table::{
    Bib, Binding, Kind, PermissionKey, Protocol, Session, SessionLife, TcpState, Timeout, Unlinked,
    View, one_less, session_seen, state,
};

use super::{Event, Pass};

impl Pass<'_, '_> {
    pub(crate) fn sessions(&mut self) {
        // Permissions that ended after the loop had passed them.
        let mut late = Vec::new();
        for index in self.used(Kind::Session) {
            let session = &self.view.regions.sessions[index as usize];
            let life = session.life();
            let passed = |died: &u32| *died < index;
            match life.state {
                state::FREE | state::CLAIMED => {}
                state::LIMBO if self.found_limbo => self.limbo.push((Kind::Session, index)),
                state::LIMBO => {}
                _ if session.is_permission() => self.permission(index, session),
                state::DEAD => late.extend(self.finish_session(index, session).filter(passed)),
                _ => late.extend(self.session(index, session, life).filter(passed)),
            }
        }
        for index in late {
            let permission = &self.view.regions.sessions[index as usize];
            if permission.life().state == state::DEAD {
                self.finish_permission(index, permission);
            }
        }
    }

    fn permission(&mut self, index: u32, permission: &Session) {
        if permission.is_unused() {
            self.finish_permission(index, permission);
        }
    }

    /// Unlinks a dead permission.
    fn finish_permission(&mut self, index: u32, permission: &Session) {
        let unlinked = self.unlink_session(index, permission);
        if self.may_go((Kind::Session, index), unlinked) {
            self.put_in_limbo(index, permission);
        }
    }

    /// Gives the permission that has ended with the session.
    fn session(&mut self, index: u32, session: &Session, life: SessionLife) -> Option<u32> {
        let bib = View::entry(self.view.regions.bibs, session.bib.load(Relaxed));
        let Some(bib) = bib.filter(|bib| bib.state() == state::LIVE) else {
            if session.end(life) {
                count_in(&self.view.nat.ended().withdrawn, session);
                return self.finish_session(index, session);
            }
            return None;
        };
        self.tell_of(session, bib);
        let timeout = self.view.nat.ticks.of_class(life.timeout);
        if !self.expired(life.tick, timeout) {
            self.count_session(session, life);
            return None;
        }
        if life.state == TcpState::Established as u8 {
            let after = SessionLife {
                tick: self.view.now,
                state: TcpState::Trans as u8,
                timeout: Timeout::TcpTrans as u8,
                ..life
            };
            if session.change(life, after) {
                let pool6 = session.pool6.load(Relaxed);
                let remote = session.remote();
                (self.tell)(Event::Probe { host: bib.v6(), remote, pool6 });
            }
            self.count_session(session, session.life());
        } else if session.end(life) {
            count_in(&self.view.nat.ended().expired, session);
            return self.finish_session(index, session);
        } else {
            // Another thread has just used it.
            self.count_session(session, session.life());
        }
        None
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

    /// Unlinks a dead session and corrects the counts. Gives the permission that has ended with it.
    fn finish_session(&mut self, index: u32, session: &Session) -> Option<u32> {
        let unlinked = self.unlink_session(index, session);
        if !self.may_go((Kind::Session, index), unlinked) {
            return None;
        }
        let was_linked = unlinked == Unlinked::Done;
        if let Some(bib) = View::entry(self.view.regions.bibs, session.bib.load(Relaxed)) {
            if was_linked {
                // It may have ended between two sweeps.
                self.tell_of(session, bib);
            }
            if session.seen.load(Relaxed) & session_seen::TOLD != 0 {
                (self.tell)(Event::SessionRemoved(
                    Binding::of(bib),
                    session.remote(),
                    session.counts(),
                ));
            }
            if let Some(subscriber) = self.view.subscriber_of(bib) {
                one_less(&subscriber.sessions);
            }
            if bib.remove_session() == 0 {
                bib.since.store(self.view.now, Relaxed);
            }
        }
        self.forget(session);
        let permission = PermissionKey::of(session.bib.load(Relaxed), &session.key());
        let died = session.life().permits.then(|| self.view.unpermit(&permission)).flatten();
        self.put_in_limbo(index, session);
        died
    }

    fn put_in_limbo(&mut self, index: u32, session: &Session) {
        let limbo = SessionLife { tick: 0, state: state::LIMBO, timeout: 0, permits: false };
        session.life.store(limbo.word(), Release);
        self.limbo.push((Kind::Session, index));
    }

    /// Removes the ALG's state of a session, unless the same ends have a new session.
    fn forget(&self, session: &Session) {
        let store = self.view.nat.alg_store();
        if store.number() == 0 || session.protocol.load(Relaxed) != Protocol::Tcp.number() {
            return;
        }
        let key = session.key();
        if self.view.session(&key).is_none() {
            store.remove(&(key.local, key.remote));
        }
    }

    fn unlink_session(&self, index: u32, session: &Session) -> Unlinked {
        let chain = self.view.session_chain(&session.key());
        chain.map_or(Unlinked::Absent, |chain| chain.unlink(index))
    }
}

fn count_in(counters: &[AtomicU64; 3], session: &Session) {
    if let Some(protocol) = Protocol::of(session.protocol.load(Relaxed)) {
        counters[protocol.index()].fetch_add(1, Relaxed);
    }
}
