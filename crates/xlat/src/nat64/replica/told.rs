//! What was told of each entry, or what a standby was told: beside the tables, by the entries' indices.
//!
//! It is the truth for the protocol: chunks are read from it, and the tables are compared with it. Invariants: the BIB
//! entry of a session here is here, and has the session's shard; the subscriber of a BIB entry here is here, too, though
//! perhaps [without a record](Presence::Unrecorded); `index` has exactly the recorded entries.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::sync::atomic::Ordering::Relaxed;

use crate::nat64::table::{
    Bib, Kind, MAX_BLOCKS, PortBlock, Protocol, Regions, Session, SessionKey, Subscriber, View,
    bib_flags, halves, joined, state,
};

use super::index::Index;
use super::record::{BibValue, Named, Octets, RecordKey, SessionValue, blocks_value, sessions_of};

/// Whether something of a subscriber is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Presence {
    #[default]
    Absent,
    /// BIB entries need the entry; there is no record of it.
    Unrecorded,
    Recorded,
}

/// A subscriber, 96 octets.
#[derive(Clone, Debug)]
pub(super) struct ToldSubscriber {
    hi: u64,
    lo: u64,
    pub(super) mark: u32,
    pub(super) shard: u16,
    pub(super) presence: Presence,
    number: u8,
    /// BIB entries that were told.
    pub(super) bibs: u32,
    blocks: [PortBlock; MAX_BLOCKS],
}

/// A BIB entry, 40 octets. `subscriber` is 0: nothing was told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ToldBib {
    hi: u64,
    lo: u64,
    v4: u32,
    v4_port: u16,
    v6_port: u16,
    pub(super) subscriber: u32,
    /// Sessions that were told.
    pub(super) sessions: u32,
    pub(super) shard: u16,
    protocol: u8,
    is_expected: bool,
}

/// A session, 24 octets. `bib` is 0: nothing was told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ToldSession {
    pub(super) bib: u32,
    remote: u32,
    local: u32,
    remote_port: u16,
    local_port: u16,
    pub(super) shard: u16,
    protocol: u8,
    state: u8,
    class: u8,
    left: u8,
    pool6: u8,
    is_shifted: bool,
}

impl Default for ToldSubscriber {
    fn default() -> ToldSubscriber {
        let none = PortBlock { v4: Ipv4Addr::UNSPECIFIED, low: 0, high: 0 };
        ToldSubscriber {
            hi: 0,
            lo: 0,
            mark: 0,
            shard: 0,
            presence: Presence::Absent,
            number: 0,
            bibs: 0,
            blocks: [none; MAX_BLOCKS],
        }
    }
}

impl ToldSubscriber {
    /// One without a record.
    pub(super) fn of(prefix: Ipv6Addr, mark: u32, shard: u16) -> Self {
        let (hi, lo) = halves(prefix);
        let presence = Presence::Unrecorded;
        ToldSubscriber { hi, lo, mark, shard, presence, ..ToldSubscriber::default() }
    }

    pub(super) fn is_told(&self) -> bool {
        self.presence != Presence::Absent
    }

    pub(super) fn is(&self, entry: &Subscriber) -> bool {
        self.lo == entry.lo.load(Relaxed)
            && self.hi == entry.hi.load(Relaxed)
            && self.mark == entry.mark.load(Relaxed)
    }

    pub(super) fn prefix(&self) -> Ipv6Addr {
        joined(self.hi, self.lo)
    }

    pub(super) fn named(&self) -> Named {
        Named::Subscriber { prefix: self.prefix(), mark: self.mark }
    }

    pub(super) fn blocks(&self) -> &[PortBlock] {
        self.blocks.get(..usize::from(self.number)).unwrap_or_default()
    }
}

impl ToldBib {
    /// Of an entry that was found or made.
    pub(super) fn of(entry: &Bib, shard: u16) -> ToldBib {
        let (v6, v4) = (entry.v6(), entry.v4());
        let (hi, lo) = halves(v6.0);
        ToldBib {
            hi,
            lo,
            v4: v4.0.to_bits(),
            v4_port: v4.1,
            v6_port: v6.1,
            subscriber: entry.subscriber.load(Relaxed),
            sessions: 0,
            shard,
            protocol: entry.protocol.load(Relaxed),
            is_expected: entry.flags.load(Relaxed) & bib_flags::EXPECTED != 0,
        }
    }

    pub(super) fn is_told(&self) -> bool {
        self.subscriber != 0
    }

    pub(super) fn is(&self, entry: &Bib) -> bool {
        entry.is_v6((self.hi, self.lo), self.v6_port, self.protocol)
            && entry.is_v4(self.v4, self.v4_port, self.protocol)
            && entry.subscriber.load(Relaxed) == self.subscriber
    }

    pub(super) fn v4(&self) -> (Ipv4Addr, u16) {
        (Ipv4Addr::from_bits(self.v4), self.v4_port)
    }

    pub(super) fn v6(&self) -> (Ipv6Addr, u16) {
        (joined(self.hi, self.lo), self.v6_port)
    }

    pub(super) fn protocol(&self) -> Option<Protocol> {
        Protocol::of(self.protocol)
    }

    pub(super) fn named(&self) -> Option<Named> {
        Some(Named::Bib { protocol: self.protocol()?, v4: self.v4() })
    }
}

impl ToldSession {
    /// Of an entry that was found or made.
    pub(super) fn of(entry: &Session, shard: u16) -> ToldSession {
        let SessionKey { local, remote, protocol } = entry.key();
        ToldSession {
            bib: entry.bib.load(Relaxed),
            remote: remote.0.to_bits(),
            local: local.0.to_bits(),
            remote_port: remote.1,
            local_port: local.1,
            shard,
            protocol,
            ..ToldSession::default()
        }
    }

    pub(super) fn is_told(&self) -> bool {
        self.bib != 0
    }

    pub(super) fn is(&self, entry: &Session) -> bool {
        entry.bib.load(Relaxed) == self.bib && entry.is(&self.key())
    }

    pub(super) fn key(&self) -> SessionKey {
        SessionKey {
            local: (Ipv4Addr::from_bits(self.local), self.local_port),
            remote: (Ipv4Addr::from_bits(self.remote), self.remote_port),
            protocol: self.protocol,
        }
    }
}

/// What was told.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) subscribers: Vec<ToldSubscriber>,
    pub(super) bibs: Vec<ToldBib>,
    pub(super) sessions: Vec<ToldSession>,
    /// Of sessions whose octets an ALG has changed.
    shifts: BTreeMap<u32, [u32; 2]>,
    /// The recorded entries of each shard, in the order of their keys.
    index: Vec<Index>,
    /// Whose a block is that no other subscriber has, by address and first port.
    pub(super) owners: BTreeMap<(Ipv4Addr, u16), u32>,
}

impl Told {
    /// For tables of these sizes. Memory is touched only as far as entries are used.
    pub(super) fn new(regions: &Regions<'_>, shards: u16) -> Told {
        Told {
            subscribers: Vec::with_capacity(regions.subscribers.len()),
            bibs: Vec::with_capacity(regions.bibs.len()),
            sessions: Vec::with_capacity(regions.sessions.len()),
            shifts: BTreeMap::new(),
            index: (0..shards).map(|_| Index::default()).collect(),
            owners: BTreeMap::new(),
        }
    }

    /// Makes room for entries before these ends: subscribers, BIB entries, sessions.
    pub(super) fn grow(&mut self, subscribers: usize, bibs: usize, sessions: usize) {
        fn to<T: Clone + Default>(told: &mut Vec<T>, end: usize) {
            if told.len() < end {
                told.resize(end, T::default());
            }
        }
        to(&mut self.subscribers, subscribers);
        to(&mut self.bibs, bibs);
        to(&mut self.sessions, sessions);
    }

    /// The end of the entries of a kind that there is room for: others may have been made since it was made.
    pub(super) fn end(&self, kind: Kind) -> u32 {
        let end = match kind {
            Kind::Subscriber => self.subscribers.len(),
            Kind::Bib => self.bibs.len(),
            Kind::Session => self.sessions.len(),
        };
        u32::try_from(end).unwrap_or(u32::MAX)
    }

    /// The session of the tables, if it is as it was told.
    pub(super) fn has_session<'a>(&self, view: &View<'a>, entry: u32) -> Option<&'a Session> {
        let session = View::entry(view.regions.sessions, entry)?;
        let told = self.sessions.get(entry as usize)?;
        (told.is_told() && told.is(session) && session.life().is_live()).then_some(session)
    }

    /// The BIB entry of the tables, if it is as it was told.
    pub(super) fn has_bib<'a>(&self, view: &View<'a>, entry: u32) -> Option<&'a Bib> {
        let bib = View::entry(view.regions.bibs, entry)?;
        let told = self.bibs.get(entry as usize)?;
        (told.is_told() && told.is(bib) && bib.state() == state::LIVE).then_some(bib)
    }

    /// The subscriber of the tables, if it is as it was told but for its blocks.
    pub(super) fn has_subscriber<'a>(&self, view: &View<'a>, entry: u32) -> Option<&'a Subscriber> {
        let subscriber = View::entry(view.regions.subscribers, entry)?;
        let told = self.subscribers.get(entry as usize)?;
        (told.is_told() && told.is(subscriber) && subscriber.state() == state::LIVE)
            .then_some(subscriber)
    }

    pub(super) fn index(&self, shard: u16) -> Option<&Index> {
        self.index.get(usize::from(shard))
    }

    fn put_key(&mut self, shard: u16, key: RecordKey, entry: u32) {
        if let Some(index) = self.index.get_mut(usize::from(shard)) {
            index.insert(&key, entry);
        }
    }

    fn remove_key(&mut self, shard: u16, key: &RecordKey) {
        if let Some(index) = self.index.get_mut(usize::from(shard)) {
            index.remove(key);
        }
    }

    /// The entry of a record.
    pub(super) fn find(&self, shard: u16, named: &Named) -> Option<u32> {
        self.index(shard)?.get(&named.key())
    }

    /// The last session of a BIB entry that was told.
    pub(super) fn last_session_of(&self, bib: &ToldBib) -> Option<u32> {
        let keys = sessions_of(bib.protocol()?, bib.v4());
        self.index(bib.shard)?.range(keys).next_back().map(|(_, session)| session)
    }

    /// From now on there is a record of a subscriber, or none.
    pub(super) fn set_recorded(&mut self, entry: u32, is_recorded: bool) {
        let told = &mut self.subscribers[entry as usize];
        let (shard, key) = (told.shard, told.named().key());
        if is_recorded {
            told.presence = Presence::Recorded;
            self.put_key(shard, key, entry);
        } else {
            told.presence = Presence::Unrecorded;
            self.remove_key(shard, &key);
        }
    }

    pub(super) fn set_blocks(&mut self, entry: u32, blocks: &[PortBlock]) {
        let told = &mut self.subscribers[entry as usize];
        told.number = blocks.len().min(MAX_BLOCKS) as u8;
        for (room, block) in told.blocks.iter_mut().zip(blocks) {
            *room = *block;
        }
    }

    /// Nothing was told of a subscriber any more, which has no BIB entries here.
    pub(super) fn remove_subscriber(&mut self, entry: u32) -> Option<(u16, RecordKey)> {
        let told = core::mem::take(&mut self.subscribers[entry as usize]);
        debug_assert_eq!(told.bibs, 0, "its entries come first");
        let key = told.named().key();
        self.remove_key(told.shard, &key);
        (told.presence == Presence::Recorded).then_some((told.shard, key))
    }

    /// A BIB entry, whose subscriber is here.
    pub(super) fn put_bib(&mut self, entry: u32, told: ToldBib) {
        if let Some(named) = told.named() {
            self.put_key(told.shard, named.key(), entry);
            self.subscribers[told.subscriber as usize].bibs += 1;
            self.bibs[entry as usize] = told;
        }
    }

    /// Nothing was told of a BIB entry any more, which has no sessions here.
    pub(super) fn remove_bib(&mut self, entry: u32) -> Option<(u16, RecordKey)> {
        let told = core::mem::take(&mut self.bibs[entry as usize]);
        debug_assert_eq!(told.sessions, 0, "its sessions come first");
        let owner = &mut self.subscribers[told.subscriber as usize];
        owner.bibs = owner.bibs.saturating_sub(1);
        let key = told.named()?.key();
        self.remove_key(told.shard, &key);
        Some((told.shard, key))
    }

    /// A session, whose BIB entry is here.
    pub(super) fn put_session(&mut self, entry: u32, told: ToldSession, value: &SessionValue) {
        self.put_key(told.shard, Named::Session(told.key()).key(), entry);
        self.bibs[told.bib as usize].sessions += 1;
        self.sessions[entry as usize] = told;
        self.set_session(entry, value);
    }

    pub(super) fn set_session(&mut self, entry: u32, value: &SessionValue) {
        let told = &mut self.sessions[entry as usize];
        let SessionValue { state, class, left, pool6, shift } = *value;
        *told = ToldSession { state, class, left, pool6, is_shifted: shift.is_some(), ..*told };
        match shift {
            Some(shift) => self.shifts.insert(entry, shift),
            None => self.shifts.remove(&entry),
        };
    }

    /// Nothing was told of a session any more.
    pub(super) fn remove_session(&mut self, entry: u32) -> (u16, RecordKey) {
        let told = core::mem::take(&mut self.sessions[entry as usize]);
        self.shifts.remove(&entry);
        let bib = &mut self.bibs[told.bib as usize];
        bib.sessions = bib.sessions.saturating_sub(1);
        let key = Named::Session(told.key()).key();
        self.remove_key(told.shard, &key);
        (told.shard, key)
    }

    pub(super) fn bib_value(&self, entry: u32) -> BibValue {
        let told = &self.bibs[entry as usize];
        let mark = self.subscribers[told.subscriber as usize].mark;
        BibValue { v6: told.v6(), mark, is_expected: told.is_expected }
    }

    pub(super) fn session_value(&self, entry: u32) -> SessionValue {
        let told = &self.sessions[entry as usize];
        let ToldSession { state, class, left, pool6, is_shifted, .. } = *told;
        let shift = if is_shifted { self.shifts.get(&entry).copied() } else { None };
        SessionValue { state, class, left, pool6, shift }
    }

    /// The value of a record, as it was told last.
    pub(super) fn value(&self, named: &Named, entry: u32) -> Octets {
        match named {
            Named::Subscriber { .. } => blocks_value(self.subscribers[entry as usize].blocks()),
            Named::Bib { .. } => self.bib_value(entry).octets(),
            Named::Session(_) => self.session_value(entry).octets(),
        }
    }
}

const _: () = {
    assert!(size_of::<ToldSession>() == 24);
    assert!(size_of::<ToldBib>() == 40);
    assert!(size_of::<ToldSubscriber>() == 96);
};
