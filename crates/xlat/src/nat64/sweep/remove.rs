//! Removal of entries that have not expired: records that a shard's owner has removed (`replica`).
//!
//! Unlike an end that the sweeper finds, it is complete at once, but for the grace period: counts are right, and the
//! address is free. It belongs to the sweeper because links behind a chain's head are changed by one thread alone. No
//! events: the gateway on which the entry ended reports it.

use core::sync::atomic::Ordering::{Relaxed, Release, SeqCst};

use crate::nat64::table::{
    Bib, Kind, PermissionKey, Protocol, Session, SessionLife, Unlinked, View, life, life_parts,
    one_less, state,
};

use super::{Sweeper, is_unused};

impl Sweeper {
    /// An entry is LIMBO now. Those that the sweeper has not looked at yet, it finds.
    fn retire(&mut self, kind: Kind, index: u32) {
        if index < self.known[kind as usize] {
            self.limbo.push((kind, index));
        }
    }

    /// Removes a live session, and its permission if it was the last. `false`: it was not live.
    pub(crate) fn remove_session(&mut self, view: &View<'_>, index: u32) -> bool {
        let Some(session) = View::entry(view.regions.sessions, index) else { return false };
        loop {
            let life = session.life();
            if !life.is_live() || session.is_permission() {
                return false;
            }
            if session.end(life) {
                break;
            }
        }
        if !self.unlink_session(view, index, session) {
            // A sweep ends it, and corrects the counts.
            return true;
        }
        let owner = session.bib.load(Relaxed);
        if let Some(bib) = View::entry(view.regions.bibs, owner) {
            if let Some(subscriber) = view.subscriber_of(bib) {
                one_less(&subscriber.sessions);
            }
            bib.remove_session();
        }
        view.forget_watched(session);
        let permission = PermissionKey::of(owner, &session.key());
        let died = session.life().permits.then(|| view.unpermit(&permission)).flatten();
        self.session_to_limbo(index, session);
        if let Some(died) = died
            && let Some(permission) = View::entry(view.regions.sessions, died)
            && self.unlink_session(view, died, permission)
        {
            self.session_to_limbo(died, permission);
        }
        true
    }

    fn unlink_session(&self, view: &View<'_>, index: u32, session: &Session) -> bool {
        let chain = view.session_chain(&session.key());
        chain.is_some_and(|chain| chain.unlink(index) == Unlinked::Done)
    }

    fn session_to_limbo(&mut self, index: u32, session: &Session) {
        let limbo = SessionLife { tick: 0, state: state::LIMBO, timeout: 0, permits: false };
        session.life.store(limbo.word(), Release);
        self.retire(Kind::Session, index);
    }

    /// Removes a live BIB entry. Sessions that it still has end at the next sweep. `false`: it was not live.
    pub(crate) fn remove_bib(&mut self, view: &View<'_>, index: u32) -> bool {
        let Some(bib) = View::entry(view.regions.bibs, index) else { return false };
        if !bib.change(state::LIVE, state::DEAD) {
            return false;
        }
        let protocol = bib.protocol.load(Relaxed);
        if let (Some(protocol), Some(subscriber)) =
            (Protocol::of(protocol), view.subscriber_of(bib))
        {
            one_less(&subscriber.ports[protocol.index()]);
        }
        if life_parts(bib.life.load(Relaxed)).1 != 0 {
            self.has_orphans = true;
        } else if Self::unlink_bib(view, index, bib) {
            bib.life.store(life(state::LIMBO, 0), Release);
            self.retire(Kind::Bib, index);
        }
        true
    }

    fn unlink_bib(view: &View<'_>, index: u32, bib: &Bib) -> bool {
        let protocol = bib.protocol.load(Relaxed);
        let unlink = |chain: Option<crate::nat64::table::Chain<'_, Bib>>| {
            chain.map_or(Unlinked::Absent, |chain| chain.unlink(index))
        };
        let from6 = unlink(view.bib6_chain(bib.v6(), protocol));
        from6.and(unlink(view.bib4_chain(bib.v4(), protocol))) == Unlinked::Done
    }

    /// Removes a live subscriber that has no sessions and ports, and whose blocks were taken back. `false`: it was none.
    pub(crate) fn remove_subscriber(&mut self, view: &View<'_>, index: u32) -> bool {
        let Some(entry) = View::entry(view.regions.subscribers, index) else { return false };
        let word = entry.life.load(SeqCst);
        if life_parts(word).0 != state::LIVE || !is_unused(entry) || !entry.claim(word) {
            return false;
        }
        entry.settle(word);
        if entry.state() != state::DEAD {
            return false;
        }
        let chain = view.subscriber_chain(entry.prefix(), entry.mark.load(Relaxed));
        if chain.is_some_and(|chain| chain.unlink(index) == Unlinked::Done) {
            entry.life.store(life(state::LIMBO, 0), SeqCst);
            self.retire(Kind::Subscriber, index);
        }
        true
    }
}
