//! Reassembly of fragments, of both families (RFC 791 section 3.2, RFC 8200 section 4.5).
//!
//! Stateful translation needs the ports of every fragment, but only the first has them. So fragments are kept, in any
//! order, until the packet is whole (RFC 6146 section 3.4). The result is one packet: IPv4 with its Identification and
//! without DF, or IPv6 with an atomic Fragment Header, which keeps its Identification.
//!
//! Memory is bounded in total and per source, and no fragment is kept longer than the interval. A packet whose
//! fragments overlap or contradict each other is discarded, with the fragments of it that come later (RFC 5722).

mod datagram;
mod piece;

use alloc::collections::{BTreeMap, BTreeSet};
use core::net::{IpAddr, Ipv6Addr};
use core::ops::Range;
use core::time::Duration;

use crate::packet::HEADROOM;
use crate::verdict::DropReason;

use datagram::{Datagram, Placed};
use piece::Piece;

/// The least time that fragments of a packet may take to arrive (RFC 6146 section 4).
pub const FRAGMENT_MIN: Duration = Duration::from_secs(2);

/// Octets of a buffer that every reassembled packet fits into, with [`HEADROOM`] in front.
pub const BUFFER_LEN: usize = HEADROOM + fordway_wire::ipv6::HEADER_LEN + u16::MAX as usize;

/// Memory that an incomplete packet takes beside its fragments, in octets: an upper estimate of its entries in three
/// trees.
const DATAGRAM: usize = 384;

/// Memory that a fragment takes beside its octets.
const FRAGMENT: usize = 64;

/// How much is kept, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Incomplete packets, including refused ones whose other fragments may still come. A source has the same share of
    /// these as of the octets.
    pub datagrams: usize,
    /// Octets in all, with an overhead for each packet and fragment.
    pub octets: usize,
    /// Octets of one source: an IPv4 address, or an IPv6 prefix of [`Limits::source_len`] bits.
    pub octets_per_source: usize,
    /// How many bits of an IPv6 address name a source, 1 to 64.
    pub source_len: u8,
    /// Fragments of one packet.
    pub fragments: usize,
    /// How long after a packet's first fragment the last may come; at least [`FRAGMENT_MIN`].
    pub interval: Duration,
}

impl Default for Limits {
    /// 4,096 packets of 128 fragments, 8 MiB in all and 2 MiB of one source, [`FRAGMENT_MIN`].
    fn default() -> Limits {
        Limits {
            datagrams: 4096,
            octets: 8 << 20,
            octets_per_source: 2 << 20,
            source_len: 64,
            fragments: 128,
            interval: FRAGMENT_MIN,
        }
    }
}

/// The outcome of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// It does not wait for others: no fragment, an atomic one (RFC 6946), one of a transport without ports to be
    /// found, or too malformed to tell. Translate it as it is.
    Whole,
    /// It is kept until the others come.
    Incomplete,
    /// A duplicate of a fragment that is kept. Ignored.
    Duplicate,
    /// It was the last one missing: the packet lies in this range of the buffer.
    Complete(Range<usize>),
    /// It is dropped, and with it those that were kept.
    Dropped {
        /// Why.
        reason: DropReason,
        /// How many fragments, this one included.
        fragments: usize,
    },
}

/// Use of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Incomplete packets, as [`Limits::datagrams`] counts them.
    pub datagrams: usize,
    /// Octets, as [`Limits::octets`] counts them.
    pub octets: usize,
}

/// Fragments that wait for others.
#[derive(Debug)]
pub struct Reassembler {
    limits: Limits,
    waiting: BTreeMap<Key, Entry>,
    /// When the interval of each ends.
    due: BTreeSet<(Duration, Key)>,
    octets: usize,
    sources: BTreeMap<IpAddr, Occupancy>,
}

/// To which packet a fragment belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    src: IpAddr,
    dst: IpAddr,
    /// IPv4 only: in IPv6 the Next Header of fragments may differ (RFC 8200 section 4.5).
    protocol: u8,
    identification: u32,
    /// The far end of the softwire that it came out of: its clients share addresses.
    softwire: Option<Ipv6Addr>,
}

/// Where a packet comes from: which fragments wait, and which go together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// From the network, for a stateful translator.
    #[default]
    Network,
    /// From the network, for a softwire: fragments of the packets that hold IPv4 wait, too.
    Softwire,
    /// Out of a softwire, whose far end this is. It is charged instead of the IPv4 source, which it may share.
    Inside(Ipv6Addr),
}

#[derive(Debug)]
struct Entry {
    due: Duration,
    cost: usize,
    state: State,
}

#[derive(Debug)]
enum State {
    Waiting(Datagram),
    /// Refused: further fragments are dropped for this reason.
    Refused(DropReason),
}

impl Reassembler {
    /// An empty reassembler.
    #[must_use]
    pub fn new(limits: Limits) -> Reassembler {
        let interval = limits.interval.max(FRAGMENT_MIN);
        Reassembler {
            limits: Limits { interval, ..limits },
            waiting: BTreeMap::new(),
            due: BTreeSet::new(),
            octets: 0,
            sources: BTreeMap::new(),
        }
    }

    /// Takes a packet that starts with its IP header.
    ///
    /// A packet that it makes whole is written into `buffer`, [`HEADROOM`] octets from its start; [`BUFFER_LEN`] octets
    /// are always enough.
    pub fn insert(
        &mut self,
        origin: Origin,
        packet: &[u8],
        now: Duration,
        buffer: &mut [u8],
    ) -> Outcome {
        let Some(piece) = Piece::parse(origin, packet) else {
            return Outcome::Whole;
        };
        if let Err(reason) = piece.check() {
            return Outcome::Dropped { reason, fragments: 1 };
        }
        let limit = self.limits.fragments;
        let entry = match self.waiting.get_mut(&piece.key) {
            Some(entry) => entry,
            None => {
                if !self.has_place(&piece.key) || !self.has_room(&piece.key, DATAGRAM) {
                    return Outcome::Dropped { reason: DropReason::FragmentsFull, fragments: 1 };
                }
                self.begin(piece.key, now)
            }
        };
        let datagram = match &mut entry.state {
            State::Refused(reason) => return Outcome::Dropped { reason: *reason, fragments: 1 },
            State::Waiting(datagram) => datagram,
        };
        let place = match datagram.place(&piece) {
            _ if piece.cuts_header() => return self.refuse(&piece.key, DropReason::BadFragment),
            Placed::Duplicate => return Outcome::Duplicate,
            Placed::Contradiction => {
                return self.refuse(&piece.key, DropReason::FragmentOverlap);
            }
            Placed::At(place) => place,
        };
        let cost = FRAGMENT + packet.len();
        if datagram.fragments() >= limit || !self.has_room(&piece.key, cost) {
            return self.refuse(&piece.key, DropReason::FragmentsFull);
        }
        self.add(&piece, place, cost);
        self.finish(&piece.key, buffer)
    }

    /// Gives up what has waited for its interval, and returns how many fragments these were: they are dropped as
    /// [`DropReason::FragmentTimeout`].
    #[must_use]
    pub fn expire(&mut self, now: Duration) -> usize {
        let mut fragments = 0;
        while let Some(&(due, key)) = self.due.first()
            && due <= now
        {
            fragments += self.remove(&key).map_or(0, |datagram| datagram.fragments());
        }
        fragments
    }

    /// When [`Reassembler::expire`] will next have something to do.
    #[must_use]
    pub fn next_due(&self) -> Option<Duration> {
        self.due.first().map(|&(due, _)| due)
    }

    /// What is kept now.
    #[must_use]
    pub fn occupancy(&self) -> Occupancy {
        Occupancy { datagrams: self.waiting.len(), octets: self.octets }
    }

    fn begin(&mut self, key: Key, now: Duration) -> &mut Entry {
        let due = now.saturating_add(self.limits.interval);
        self.due.insert((due, key));
        self.charge(&key, DATAGRAM);
        self.sources.entry(self.source(&key)).or_default().datagrams += 1;
        let state = State::Waiting(Datagram::default());
        self.waiting.entry(key).or_insert(Entry { due, cost: DATAGRAM, state })
    }

    fn add(&mut self, piece: &Piece<'_>, place: usize, cost: usize) {
        if let Some(entry) = self.waiting.get_mut(&piece.key)
            && let State::Waiting(datagram) = &mut entry.state
        {
            datagram.add(piece, place);
            entry.cost += cost;
            self.charge(&piece.key, cost);
        }
    }

    /// Writes the packet out if it is whole.
    fn finish(&mut self, key: &Key, buffer: &mut [u8]) -> Outcome {
        match self.waiting.get(key) {
            Some(Entry { state: State::Waiting(datagram), .. }) if datagram.is_whole() => {}
            _ => return Outcome::Incomplete,
        }
        let Some(datagram) = self.remove(key) else { return Outcome::Incomplete };
        match datagram.write(key.identification, buffer) {
            Ok(range) => Outcome::Complete(range),
            Err(reason) => Outcome::Dropped { reason, fragments: datagram.fragments() },
        }
    }

    /// RFC 5722 section 4: gives a packet up, with the fragment in hand and those not yet received.
    fn refuse(&mut self, key: &Key, reason: DropReason) -> Outcome {
        let mut fragments = 1;
        let mut freed = 0;
        if let Some(entry) = self.waiting.get_mut(key) {
            if let State::Waiting(datagram) = &entry.state {
                fragments += datagram.fragments();
            }
            entry.state = State::Refused(reason);
            freed = entry.cost - DATAGRAM;
            entry.cost = DATAGRAM;
        }
        self.discharge(key, freed);
        Outcome::Dropped { reason, fragments }
    }

    fn remove(&mut self, key: &Key) -> Option<Datagram> {
        let entry = self.waiting.remove(key)?;
        self.due.remove(&(entry.due, *key));
        self.discharge(key, entry.cost);
        let source = self.source(key);
        if let Some(held) = self.sources.get_mut(&source) {
            held.datagrams -= 1;
            if held.datagrams == 0 {
                self.sources.remove(&source);
            }
        }
        match entry.state {
            State::Waiting(datagram) => Some(datagram),
            State::Refused(_) => None,
        }
    }

    /// Whether there is a place for another incomplete packet.
    fn has_place(&self, key: &Key) -> bool {
        let Limits { datagrams, octets, octets_per_source, .. } = self.limits;
        let share = datagrams.saturating_mul(octets_per_source) / octets.max(1);
        self.waiting.len() < datagrams && self.held_by(key).datagrams < share.max(1)
    }

    /// Whether so many octets more may be kept.
    fn has_room(&self, key: &Key, cost: usize) -> bool {
        self.octets + cost <= self.limits.octets
            && self.held_by(key).octets + cost <= self.limits.octets_per_source
    }

    fn held_by(&self, key: &Key) -> Occupancy {
        self.sources.get(&self.source(key)).copied().unwrap_or_default()
    }

    fn charge(&mut self, key: &Key, cost: usize) {
        self.octets += cost;
        self.sources.entry(self.source(key)).or_default().octets += cost;
    }

    fn discharge(&mut self, key: &Key, cost: usize) {
        self.octets -= cost;
        let source = self.source(key);
        if let Some(held) = self.sources.get_mut(&source) {
            held.octets -= cost;
        }
    }

    /// The source that is charged: a prefix of [`Limits::source_len`] bits, since a host mostly has all addresses of
    /// one.
    fn source(&self, key: &Key) -> IpAddr {
        let host = 128 - u32::from(self.limits.source_len.clamp(1, 64));
        match key.softwire.map_or(key.src, IpAddr::V6) {
            IpAddr::V6(addr) => Ipv6Addr::from_bits(addr.to_bits() >> host << host).into(),
            addr @ IpAddr::V4(_) => addr,
        }
    }
}

#[cfg(test)]
mod tests;
