//! Address-dependent filtering (RFC 6146 section 3.5): which remote addresses may send to an IPv4 transport address,
//! whatever their port; `crates/bpf/c/nat64_permission.h` in C.
//!
//! A permission is an entry of the session table, under (T,t), Z and the BIB entry. It counts the sessions of (T,t)
//! with Z, except those of unsolicited SYNs, and ends with the last of them. So a packet without a session needs one
//! search, however many sessions its sender has, and each session lies in a chain of its own.
//!
//! A session whose life says [`permits`](SessionLife::permits) is counted. Its count is taken back when the sweeper
//! takes the session out of the tables.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::verdict::DropReason;

use super::{
    Chain, Found, FreeList, Kind, PERMISSION, Seen, Session, SessionKey, Trouble, View, state,
};

/// What names a permission: the BIB entry and the key of any session that it would count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PermissionKey {
    bib: u32,
    key: SessionKey,
}

impl PermissionKey {
    /// For sessions of the BIB entry with this remote address.
    pub(crate) fn of(bib: u32, session: &SessionKey) -> PermissionKey {
        let SessionKey { local, remote, protocol } = *session;
        let key = SessionKey { local, remote: (remote.0, 0), protocol: protocol | PERMISSION };
        PermissionKey { bib, key }
    }
}

/// State and number of sessions of a permission's life.
fn parts(life: u64) -> (u8, u32) {
    ((life >> 32) as u8, life as u32)
}

fn life(state: u8, number: u32) -> u64 {
    u64::from(state) << 32 | u64::from(number)
}

impl Session {
    /// Whether the entry is a permission, not a session.
    pub(crate) fn is_permission(&self) -> bool {
        self.protocol.load(Relaxed) & PERMISSION != 0
    }

    /// Of a permission, how many sessions it counts; `None`: it is dead.
    pub(crate) fn permitted(&self) -> Option<u32> {
        let (state, number) = parts(self.life.load(Acquire));
        (state == state::LIVE).then_some(number)
    }

    /// Whether it is dead. A permission without sessions, which a kernel program may leave, is marked dead.
    pub(crate) fn is_unused(&self) -> bool {
        let unused = (life(state::LIVE, 0), life(state::DEAD, 0));
        self.permitted().is_none()
            || self.life.compare_exchange(unused.0, unused.1, AcqRel, Acquire).is_ok()
    }

    /// Counts one session more. `false`: the permission is dead.
    fn permit_one_more(&self) -> bool {
        let more = |word| {
            let (state, number) = parts(word);
            (state == state::LIVE && number < u32::MAX).then(|| life(state, number + 1))
        };
        self.life.fetch_update(AcqRel, Acquire, more).is_ok()
    }

    /// Takes one session back. `true`: it was the last, and the permission is dead now.
    fn permit_one_less(&self) -> bool {
        let less = |word| {
            let (state, number) = parts(word);
            let after = if number <= 1 { state::DEAD } else { state };
            (state == state::LIVE).then(|| life(after, number.saturating_sub(1)))
        };
        self.life.fetch_update(AcqRel, Acquire, less).is_ok_and(|before| parts(before).1 <= 1)
    }

    /// Sets the number of sessions of a live permission that no other thread changes. Gives whether it was wrong.
    pub(crate) fn mend_permitted(&self, number: u32) -> bool {
        let after = if number == 0 { state::DEAD } else { state::LIVE };
        self.permitted().is_some_and(|before| {
            self.life.store(life(after, number), Release);
            before != number
        })
    }
}

impl<'a> View<'a> {
    fn find_permission(
        &self,
        chain: &Chain<'a, Session>,
        wanted: &PermissionKey,
    ) -> (Option<Found<'a, Session>>, Seen) {
        chain.find(|entry| {
            entry.is(&wanted.key)
                && entry.bib.load(Relaxed) == wanted.bib
                && entry.permitted().is_some()
        })
    }

    /// The live permission of a key.
    pub(crate) fn permission(&self, wanted: &PermissionKey) -> Option<Found<'a, Session>> {
        self.find_permission(&self.session_chain(&wanted.key)?, wanted).0
    }

    /// Whether a remote address may send.
    pub(crate) fn is_permitted(&self, wanted: &PermissionKey) -> bool {
        let number = self.permission(wanted).and_then(|(_, found)| found.permitted());
        number.is_some_and(|number| number != 0)
    }

    /// Counts a session that permits its remote address; makes the permission if there is none.
    pub(crate) fn permit(&self, wanted: &PermissionKey) -> Result<(), Trouble> {
        let chain = self.session_chain(&wanted.key).ok_or(DropReason::SessionsFull)?;
        let mut made: Option<u32> = None;
        let give_up = |made: Option<u32>| {
            // The sweeper takes it out.
            let entry = made.and_then(|index| Self::entry(self.regions.sessions, index));
            entry.inspect(|entry| entry.life.store(life(state::DEAD, 0), Release));
        };
        loop {
            match self.find_permission(&chain, wanted) {
                (Some((_, found)), _) => {
                    if found.permit_one_more() {
                        give_up(made);
                        return Ok(());
                    }
                }
                (None, seen) if !seen.is_whole() => {
                    give_up(made);
                    return Err(DropReason::SessionsFull.into());
                }
                (None, seen) => {
                    let index = match made {
                        Some(index) => index,
                        None => self.new_permission(wanted)?,
                    };
                    made = Some(index);
                    if chain.insert(index, seen) {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// A permission that counts one session, and is linked nowhere yet.
    fn new_permission(&self, wanted: &PermissionKey) -> Result<u32, DropReason> {
        let list = FreeList::of(&self.regions, Kind::Session);
        let index = list.take(self.regions.sessions, self.shard).ok_or(DropReason::SessionsFull)?;
        let entry = &self.regions.sessions[index as usize];
        entry.fill(wanted.bib, &wanted.key, 0);
        entry.life.store(life(state::LIVE, 1), Release);
        Ok(index)
    }

    /// Takes back what [`View::permit`] counted. Gives the permission if it has ended with that.
    pub(crate) fn unpermit(&self, wanted: &PermissionKey) -> Option<u32> {
        let (index, found) = self.permission(wanted)?;
        found.permit_one_less().then_some(index)
    }
}
