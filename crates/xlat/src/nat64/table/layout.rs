//! The entries of the tables, as they lie in memory: `crates/bpf/c/include/fordway_nat64.h` in Rust.
//!
//! Everything that more than one thread may look at is atomic, so that the same octets can be a BPF map
//! that programs in the kernel change at the same time. That header says what the fields mean and how
//! they are changed. Integers are in the host's byte order; offsets are asserted at the end.

use core::mem::{offset_of, size_of};
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// Version of the layout: tables of another one are not adopted.
pub const LAYOUT: u32 = 1;

/// Version of the layout with permissions, for address-dependent filtering.
pub const LAYOUT_PERMISSIONS: u32 = 2;

/// In [`Session::life`]: a permission counts the session.
pub const SESSION_PERMITS: u64 = 1 << 48;

/// In [`Session::protocol`]: the entry is no session, but a permission.
pub const PERMISSION: u8 = 0x80;

/// A tick is 2^27 ns, 0.134 s.
pub const TICK_SHIFT: u32 = 27;

/// Blocks of ports that a subscriber can have.
pub const MAX_BLOCKS: usize = 8;

/// Free lists for each kind of entry.
pub const FREE_SHARDS: usize = 64;

/// Ports tried by hash before all are searched.
pub const PORT_TRIES: u32 = 32;

/// Kinds of entries: index of [`Meta::entries`] and of the free lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
pub enum Kind {
    /// [`Bib`].
    Bib = 0,
    /// [`Session`].
    Session = 1,
    /// [`Subscriber`].
    Subscriber = 2,
}

/// The number of kinds.
pub const KINDS: usize = 3;

/// A BIB entry (RFC 6146 section 3.1), 64 octets.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Bib {
    /// First 64 bits of X'.
    pub v6_hi: AtomicU64,
    /// Last 64 bits of X'.
    pub v6_lo: AtomicU64,
    /// T.
    pub v4: AtomicU32,
    /// t.
    pub v4_port: AtomicU16,
    /// x.
    pub v6_port: AtomicU16,
    /// Next in the chain by IPv6 transport address, or of the free list.
    pub next6: AtomicU32,
    /// Next in the chain by IPv4 transport address.
    pub next4: AtomicU32,
    /// State (8 bits), number of sessions (24 bits).
    pub life: AtomicU32,
    /// Index of its subscriber.
    pub subscriber: AtomicU32,
    /// Tick of creation.
    pub created: AtomicU32,
    /// Tick of the last change of state, or (protocol 0) of the last use.
    pub since: AtomicU32,
    /// Protocol number of IPv4; 0: all of them (dynamic 1:1 mapping).
    pub protocol: AtomicU8,
    /// [`bib_flags`].
    pub flags: AtomicU8,
    reserved: [u8; 2],
    /// Of a connection whose octets an ALG has changed: the index of its session.
    pub alg_session: AtomicU32,
    /// What is added to the sequence numbers of the IPv4 and of the IPv6 host; only where the session has
    /// [`session_seen::SHIFTED`].
    pub alg_shift: [AtomicU32; 2],
}

/// State of an entry: the top octet of a [`Bib`]'s and a [`Subscriber`]'s `life`, bits 32 to 39 of a [`Session`]'s.
pub mod entry_state {
    /// In a free list.
    pub const FREE: u8 = 0;
    /// Taken off the free list, not complete yet.
    pub const CLAIMED: u8 = 1;
    /// Gone; may still be in chains.
    pub const DEAD: u8 = 2;
    /// In no chain; free after a grace period, when no thread can be reading it.
    pub const LIMBO: u8 = 3;
    /// In use. Sessions of TCP have the states of [`TcpState`](crate::nat64::TcpState) in its place.
    pub const LIVE: u8 = 4;
    /// [`Bib`]: its port is held back (RFC 6888 REQ-8).
    pub const HOLD_DOWN: u8 = 5;
}

/// Flags of a [`Bib`].
pub mod bib_flags {
    /// Set by the operator: never expires.
    pub const STATIC: u8 = 1;
    /// The sweeper has reported it.
    pub const SEEN: u8 = 2;
    /// Made while the daemon ran, not by its configuration: a reload leaves it.
    pub const ADDED: u8 = 4;
    /// Made for an ALG: from IPv4 only expected connections pass.
    pub const EXPECTED: u8 = 8;
    /// Protocol 0: asked for by name, and not yet used.
    pub const HELD: u8 = 16;
}

/// A session table entry (RFC 6146 section 3.2), 64 octets.
///
/// With address-dependent filtering some entries are permissions: their protocol has the bit [`PERMISSION`], their
/// remote port is 0, and the low 32 bits of their life are the number of sessions that they count.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Session {
    /// Tick of the last use that counts (32 bits), state (8), timeout class (8), [`SESSION_PERMITS`] (1), zero (15).
    pub life: AtomicU64,
    /// Index of its BIB entry.
    pub bib: AtomicU32,
    /// Next in the chain, or of the free list.
    pub next: AtomicU32,
    /// Z.
    pub remote: AtomicU32,
    /// z; 0 for ICMP.
    pub remote_port: AtomicU16,
    /// Which of `pool6` Z is embedded in.
    pub pool6: AtomicU8,
    /// Protocol number of IPv4.
    pub protocol: AtomicU8,
    /// T.
    pub local: AtomicU32,
    /// t.
    pub local_port: AtomicU16,
    /// [`session_seen`].
    pub seen: AtomicU16,
    /// Packets by direction.
    pub packets: [AtomicU64; 2],
    /// Octets by direction, as they came in.
    pub octets: [AtomicU64; 2],
}

/// What is known of a [`Session`] outside the packets' way.
pub mod session_seen {
    /// The sweeper has reported it.
    pub const TOLD: u16 = 1;
    /// An ALG has changed its octets: [`Bib::alg_shift`](super::Bib::alg_shift).
    pub const SHIFTED: u16 = 2;
}

/// Ports of an IPv4 address, for one subscriber.
#[derive(Debug, Default)]
#[repr(C, align(4))]
pub struct Block {
    /// The address.
    pub v4: AtomicU32,
    /// The first port.
    pub low: AtomicU16,
    /// The last port.
    pub high: AtomicU16,
}

/// A subscriber, 128 octets.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Subscriber {
    /// First 64 bits of the prefix.
    pub hi: AtomicU64,
    /// Last 64 bits of the prefix.
    pub lo: AtomicU64,
    /// Next in the chain, or of the free list.
    pub next: AtomicU32,
    /// State (8 bits), number of blocks (24 bits).
    pub life: AtomicU32,
    /// Mark of the packets.
    pub mark: AtomicU32,
    /// Live sessions.
    pub sessions: AtomicU32,
    /// BIB entries: TCP, UDP, ICMP.
    pub ports: [AtomicU32; 3],
    /// Tick of the last new session.
    pub last_used: AtomicU32,
    /// New sessions: second (high 32 bits), how many in it (low 32 bits).
    pub rate: AtomicU64,
    /// Which pool its blocks are of.
    pub pool: AtomicU16,
    /// How many of its blocks the sweeper has reported.
    pub seen: AtomicU16,
    /// Tick of creation.
    pub created: AtomicU32,
    /// The first [`Subscriber::life`] of them are set.
    pub blocks: [Block; MAX_BLOCKS],
}

/// The head of a free list, in a cache line of its own.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Free {
    /// Index (low 32 bits), version (high 32 bits).
    pub head: AtomicU64,
    /// Entries in the list, roughly.
    pub count: AtomicU64,
    reserved: [u64; 6],
}

/// What a later process and the kernel programs need to know of the tables.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Meta {
    /// [`LAYOUT`] or [`LAYOUT_PERMISSIONS`].
    pub layout: AtomicU32,
    /// Entries of each kind, entry 0 included.
    pub entries: [AtomicU32; KINDS],
    /// Number of heads less 1: bib6, bib4, session, subscriber.
    pub masks: [AtomicU32; 4],
    /// Key of the hashes.
    pub secret: [AtomicU64; 2],
    /// Added to CLOCK_MONOTONIC by the programs; 0 but in tests.
    pub clock_offset_ns: AtomicU64,
    /// 1: no new sessions.
    pub draining: AtomicU32,
    /// The first entry of each kind that was never used.
    pub fresh: [AtomicU32; KINDS],
    /// 1: tables of an earlier version that left remote ports out of the sessions' hash. They are not adopted.
    pub by_address: AtomicU32,
    /// What the entries' numbers of prefixes and subscribers' prefixes mean: see [`super::memory::tell_prefixes`]. 0:
    /// an earlier version has not said it.
    pub prefixes: AtomicU32,
}

const _: () = {
    assert!(size_of::<Bib>() == 64);
    assert!(offset_of!(Bib, v4) == 16 && offset_of!(Bib, life) == 32);
    assert!(offset_of!(Bib, since) == 44 && offset_of!(Bib, protocol) == 48);
    assert!(offset_of!(Bib, alg_session) == 52 && offset_of!(Bib, alg_shift) == 56);
    assert!(size_of::<Session>() == 64);
    assert!(offset_of!(Session, remote) == 16 && offset_of!(Session, local) == 24);
    assert!(offset_of!(Session, packets) == 32);
    assert!(size_of::<Block>() == 8);
    assert!(size_of::<Subscriber>() == 128);
    assert!(offset_of!(Subscriber, ports) == 32 && offset_of!(Subscriber, rate) == 48);
    assert!(offset_of!(Subscriber, blocks) == 64);
    assert!(size_of::<Free>() == 64);
    assert!(size_of::<Meta>() == 80);
    assert!(offset_of!(Meta, secret) == 32 && offset_of!(Meta, fresh) == 60);
};
