//! Sessions, and the permissions that count them.

use core::sync::atomic::Ordering::{Relaxed, Release, SeqCst};

use crate::nat64::policy::ticks;
use crate::nat64::table::{
    Bib, Found, FreeList, Kind, PermissionKey, Protocol, Session, SessionKey, SessionLife, View,
    session_seen, state,
};

use super::super::apply::ApplyError;
use super::super::record::{LEFT_UNIT, Named, SessionValue};
use super::super::told::ToldSession;
use super::Place;

impl<'a> Place<'a> {
    /// A session's record. `false`: its BIB entry is missing.
    pub(in super::super) fn put_session(
        &mut self,
        shard: u16,
        key: &SessionKey,
        value: &SessionValue,
    ) -> Result<bool, ApplyError> {
        let protocol = Protocol::of(key.protocol).ok_or(ApplyError::Malformed)?;
        let named = Named::Bib { protocol, v4: key.local };
        let owner = self.told.find(shard, &named);
        let Some((owner, bib)) = owner.and_then(|owner| Some((owner, self.has_bib(owner)?))) else {
            return Ok(false);
        };
        if self.told.bibs[owner as usize].sessions != 0
            && let Some(entry) = self.told.find(shard, &Named::Session(*key))
        {
            if let Some(session) = self.has_session(entry) {
                self.update(session, key, value)?;
                self.told.set_session(entry, value);
                return Ok(true);
            }
            self.remove_session(entry);
        }
        let mut found = self.view.session(key);
        if let Some((other, session)) = found
            && session.bib.load(Relaxed) != owner
        {
            self.displace_session(other, session)?;
            found = None;
        }
        let found = match found {
            Some(found) => found,
            None => self.make_session((owner, bib), key, value)?,
        };
        let (entry, session) = found;
        self.grow();
        if self.told.sessions[entry as usize].is_told() {
            self.untell_session(entry);
        }
        self.told.put_session(entry, ToldSession::of(session, shard), value);
        self.update(session, key, value).inspect_err(|_| {
            self.told.remove_session(entry);
        })?;
        Ok(true)
    }

    /// Removes a session of a BIB entry that has ended.
    fn displace_session(&mut self, entry: u32, session: &Session) -> Result<(), ApplyError> {
        let bib = View::entry(self.view.regions.bibs, session.bib.load(Relaxed));
        if bib.is_some_and(|bib| bib.state() == state::LIVE)
            || !self.sweeper.remove_session(&self.view, entry)
        {
            return Err(ApplyError::Conflict);
        }
        Ok(())
    }

    fn life(&self, value: &SessionValue, permits: bool) -> SessionLife {
        let tick = begun(&self.view, value);
        SessionLife { tick, state: value.state, timeout: value.class, permits }
    }

    /// Makes a live session what a record says.
    fn update(
        &mut self,
        session: &Session,
        key: &SessionKey,
        value: &SessionValue,
    ) -> Result<(), ApplyError> {
        loop {
            let before = session.life();
            if !before.is_live() {
                return Err(ApplyError::Conflict);
            }
            let permits = self.view.nat.filters_by_address();
            let permission = PermissionKey::of(session.bib.load(Relaxed), key);
            let is_first = permits && !before.permits;
            if is_first {
                self.view.permit(&permission).map_err(|_| ApplyError::SessionsFull)?;
            }
            if session.change(before, self.life(value, permits)) {
                break;
            }
            if is_first {
                self.view.unpermit(&permission);
            }
        }
        session.pool6.store(value.pool6, Relaxed);
        match value.shift {
            Some(shift) => self.view.keep_shift(key, shift),
            None => {
                session.seen.fetch_and(!session_seen::SHIFTED, Relaxed);
            }
        }
        Ok(())
    }

    fn make_session(
        &mut self,
        (owner, bib): Found<'a, Bib>,
        key: &SessionKey,
        value: &SessionValue,
    ) -> Result<Found<'a, Session>, ApplyError> {
        let view = &self.view;
        let chain = view.session_chain(key).ok_or(ApplyError::SessionsFull)?;
        let permits = view.nat.filters_by_address();
        let permission = PermissionKey::of(owner, key);
        if permits {
            view.permit(&permission).map_err(|_| ApplyError::SessionsFull)?;
        }
        let give_up = || {
            if permits {
                view.unpermit(&permission);
            }
        };
        if !bib.add_session() {
            give_up();
            return Err(ApplyError::Conflict);
        }
        let list = FreeList::of(&view.regions, Kind::Session);
        let Some(entry) = list.take(view.regions.sessions, view.shard) else {
            bib.remove_session();
            give_up();
            return Err(ApplyError::SessionsFull);
        };
        let subscriber = view.subscriber_of(bib);
        subscriber.inspect(|subscriber| {
            subscriber.sessions.fetch_add(1, SeqCst);
        });
        let session = &view.regions.sessions[entry as usize];
        session.fill(owner, key, value.pool6);
        // The gateway on which it was made has reported it.
        session.seen.store(session_seen::TOLD, Relaxed);
        let life = self.life(value, permits);
        session.life.store(life.word(), Release);
        if chain.link(entry, || view.find_session(&chain, key)).is_err() {
            // The sweeper removes it, and corrects the counts. Fails if it has ended it already.
            let _ = session.end(life);
            return Err(ApplyError::Conflict);
        }
        Ok((entry, session))
    }
}

/// The tick of the last use that leaves as much of the lifetime as a record says.
pub(in super::super) fn begun(view: &View<'_>, value: &SessionValue) -> u32 {
    let lifetime = view.nat.ticks.of_class(value.class);
    let left = ticks(LEFT_UNIT).saturating_mul(u32::from(value.left)).min(lifetime);
    view.now.wrapping_sub(lifetime - left)
}
