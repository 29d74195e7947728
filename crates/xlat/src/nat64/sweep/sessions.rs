//! Sweeping of sessions: expired, or without a BIB entry.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, Release};

use crate::nat64::table::{
    Bib, Binding, Kind, PermissionKey, Protocol, Session, SessionLife, TcpState, Timeout, Unlinked,
    View, one_less, session_seen, state,
};

use super::{Event, Pass};

impl<'a> Pass<'a, '_> {
    pub(crate) fn session(&mut self, index: u32) {
        let session = &self.view.regions.sessions[index as usize];
        let life = session.life();
        match life.state {
            state::FREE | state::CLAIMED => {}
            state::LIMBO => self.found_in_limbo((Kind::Session, index)),
            _ if session.is_permission() => self.permission(index, session),
            state::DEAD => self.finish_session(index, session),
            _ => self.live_session(index, session, life),
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
            self.session_to_limbo(index, permission);
        }
    }

    fn live_session(&mut self, index: u32, session: &Session, life: SessionLife) {
        let is_told = session.seen.load(Relaxed) & session_seen::TOLD != 0;
        if !is_told || self.sweep.has_orphans {
            let Some(bib) = self.live_bib_of(session) else {
                if session.end(life) {
                    count_in(&self.view.nat.ended().withdrawn, session);
                    self.finish_session(index, session);
                }
                return;
            };
            self.tell_of(session, bib);
        }
        let timeout = self.view.nat.ticks.of_class(life.timeout);
        if !self.expired(life.tick, timeout) || !self.ages(session) {
            self.count_session(session, life);
        } else if life.state == TcpState::Established as u8 {
            let after = SessionLife {
                tick: self.view.now,
                state: TcpState::Trans as u8,
                timeout: Timeout::TcpTrans as u8,
                ..life
            };
            if session.change(life, after) {
                self.view.note(index);
                if let Some(bib) = self.live_bib_of(session) {
                    let pool6 = session.pool6.load(Relaxed);
                    let remote = session.remote();
                    (self.tell)(Event::Probe { host: bib.v6(), remote, pool6 });
                }
            }
            self.count_session(session, session.life());
        } else if session.end(life) {
            count_in(&self.view.nat.ended().expired, session);
            self.finish_session(index, session);
        } else {
            // Another thread has just used it.
            self.count_session(session, session.life());
        }
    }

    /// Whether the session is this gateway's to end.
    fn ages(&self, session: &Session) -> bool {
        let settings = &self.view.nat.settings;
        settings.shards.is_none()
            || self.live_bib_of(session).is_none_or(|bib| settings.ages_host(bib.v6().0))
    }

    fn count_session(&mut self, session: &Session, life: SessionLife) {
        let swept = &mut self.sweep.swept;
        if let Some(protocol) = Protocol::of(session.protocol.load(Relaxed)) {
            swept.sessions[protocol.index()] += 1;
        }
        if let Some(place) = TcpState::ALL.iter().position(|state| *state as u8 == life.state) {
            swept.tcp_states[place] += 1;
        }
    }

    fn tell_of(&mut self, session: &Session, bib: &Bib) {
        if session.seen.load(Relaxed) & session_seen::TOLD == 0 {
            session.seen.fetch_or(session_seen::TOLD, Relaxed);
            (self.tell)(Event::SessionCreated(Binding::of(bib), session.remote()));
        }
    }

    /// Unlinks a dead session and corrects the counts. What has ended with it is unlinked, too.
    fn finish_session(&mut self, index: u32, session: &Session) {
        let unlinked = self.unlink_session(index, session);
        if !self.may_go((Kind::Session, index), unlinked) {
            return;
        }
        let was_linked = unlinked == Unlinked::Done;
        let owner = session.bib.load(Relaxed);
        let bib = View::entry(self.view.regions.bibs, owner);
        let mut is_last = false;
        if let Some(bib) = bib {
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
            is_last = bib.remove_session() == 0;
        }
        self.view.forget_watched(session);
        let permission = PermissionKey::of(owner, &session.key());
        let died = session.life().permits.then(|| self.view.unpermit(&permission)).flatten();
        self.session_to_limbo(index, session);
        if let Some(bib) = bib.filter(|_| is_last) {
            self.lost_last_session(owner, bib);
        }
        // The sweep comes to one that lies behind the session.
        if let Some(died) = died.filter(|died| *died < index) {
            let permission = &self.view.regions.sessions[died as usize];
            if permission.life().state == state::DEAD {
                self.finish_permission(died, permission);
            }
        }
    }

    fn session_to_limbo(&mut self, index: u32, session: &Session) {
        let limbo = SessionLife { tick: 0, state: state::LIMBO, timeout: 0, permits: false };
        session.life.store(limbo.word(), Release);
        self.view.note(index);
        self.put_in_limbo((Kind::Session, index));
    }

    fn live_bib_of(&self, session: &Session) -> Option<&'a Bib> {
        View::entry(self.view.regions.bibs, session.bib.load(Relaxed))
            .filter(|bib| bib.state() == state::LIVE)
    }

    fn unlink_session(&self, index: u32, session: &Session) -> Unlinked {
        let chain = self.view.session_chain(&session.key());
        chain.map_or(Unlinked::Absent, |chain| chain.unlink(index))
    }
}

impl View<'_> {
    /// Removes the ALG's state of a session, unless the same ends have a new session.
    pub(super) fn forget_watched(&self, session: &Session) {
        let store = self.nat.alg_store();
        if store.number() == 0 || session.protocol.load(Relaxed) != Protocol::Tcp.number() {
            return;
        }
        let key = session.key();
        if self.session(&key).is_none() {
            store.remove(&(key.local, key.remote));
        }
    }
}

fn count_in(counters: &[AtomicU64; 3], session: &Session) {
    if let Some(protocol) = Protocol::of(session.protocol.load(Relaxed)) {
        counters[protocol.index()].fetch_add(1, Relaxed);
    }
}
