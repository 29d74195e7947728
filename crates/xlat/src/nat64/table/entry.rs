//! Reading and changing one entry: addresses, state, counts.

use core::net::{Ipv4Addr, Ipv6Addr};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use core::time::Duration;

use super::{
    Bib, MAX_BLOCKS, PortBlock, Protocol, SESSION_PERMITS, Session, Subscriber, TICK_SHIFT, joined,
    state,
};

/// In the number of blocks: one more is being written.
pub(crate) const ADDING: u32 = 0x80_0000;

/// State of a life of 32 bits, and the number in its low 24.
pub(crate) fn life_parts(life: u32) -> (u8, u32) {
    ((life >> 24) as u8, life & 0x00ff_ffff)
}

pub(crate) fn life(state: u8, number: u32) -> u32 {
    u32::from(state) << 24 | number
}

/// What names a session: its IPv4 transport addresses. Of ICMP, the remote port is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionKey {
    pub(crate) local: (Ipv4Addr, u16),
    pub(crate) remote: (Ipv4Addr, u16),
    pub(crate) protocol: u8,
}

impl SessionKey {
    /// Of a TCP connection.
    pub(crate) fn tcp(local: (Ipv4Addr, u16), remote: (Ipv4Addr, u16)) -> SessionKey {
        SessionKey { local, remote, protocol: Protocol::Tcp.number() }
    }
}

/// A session's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionLife {
    pub(crate) tick: u32,
    pub(crate) state: u8,
    pub(crate) timeout: u8,
    /// A [permission](super::permission) counts it.
    pub(crate) permits: bool,
}

impl SessionLife {
    pub(crate) fn of(word: u64) -> SessionLife {
        SessionLife {
            tick: word as u32,
            state: (word >> 32) as u8,
            timeout: (word >> 40) as u8,
            permits: word & SESSION_PERMITS != 0,
        }
    }

    pub(crate) fn word(self) -> u64 {
        let permits = if self.permits { SESSION_PERMITS } else { 0 };
        u64::from(self.tick) | u64::from(self.state) << 32 | u64::from(self.timeout) << 40 | permits
    }

    pub(crate) fn is_live(self) -> bool {
        self.state >= state::LIVE
    }
}

impl Bib {
    pub(crate) fn v6(&self) -> (Ipv6Addr, u16) {
        let addr = joined(self.v6_hi.load(Relaxed), self.v6_lo.load(Relaxed));
        (addr, self.v6_port.load(Relaxed))
    }

    pub(crate) fn v4(&self) -> (Ipv4Addr, u16) {
        (Ipv4Addr::from_bits(self.v4.load(Relaxed)), self.v4_port.load(Relaxed))
    }

    pub(crate) fn state(&self) -> u8 {
        life_parts(self.life.load(Acquire)).0
    }

    pub(crate) fn is_v6(&self, (hi, lo): (u64, u64), port: u16, protocol: u8) -> bool {
        self.v6_lo.load(Relaxed) == lo
            && self.v6_hi.load(Relaxed) == hi
            && self.v6_port.load(Relaxed) == port
            && self.protocol.load(Relaxed) == protocol
    }

    pub(crate) fn is_v4(&self, addr: u32, port: u16, protocol: u8) -> bool {
        self.v4.load(Relaxed) == addr
            && self.v4_port.load(Relaxed) == port
            && self.protocol.load(Relaxed) == protocol
    }

    /// Counts a session. `false`: the entry is dead.
    pub(crate) fn add_session(&self) -> bool {
        let more = |word| {
            let (state, number) = life_parts(word);
            (state == state::LIVE && number < 0xff_ffff).then(|| word + 1)
        };
        self.life.fetch_update(AcqRel, Acquire, more).is_ok()
    }

    /// Takes back what [`Bib::add_session`] counted, down to 0. Gives what is left.
    pub(crate) fn remove_session(&self) -> u32 {
        let less = |word| (life_parts(word).1 != 0).then(|| word - 1);
        self.life.fetch_update(AcqRel, Acquire, less).map_or(0, |word| life_parts(word).1 - 1)
    }

    /// Goes from one state to another, whatever the number of sessions. `false`: it was not in it.
    pub(crate) fn change(&self, from: u8, to: u8) -> bool {
        let change = |word| {
            let (state, number) = life_parts(word);
            (state == from).then(|| life(to, number))
        };
        self.life.fetch_update(AcqRel, Acquire, change).is_ok()
    }
}

impl Session {
    /// Fills in everything but the life.
    pub(crate) fn fill(&self, bib: u32, key: &SessionKey, pool6: u8) {
        self.bib.store(bib, Relaxed);
        self.remote.store(key.remote.0.to_bits(), Relaxed);
        self.remote_port.store(key.remote.1, Relaxed);
        self.local.store(key.local.0.to_bits(), Relaxed);
        self.local_port.store(key.local.1, Relaxed);
        self.protocol.store(key.protocol, Relaxed);
        self.pool6.store(pool6, Relaxed);
        self.seen.store(0, Relaxed);
        for counter in self.packets.iter().chain(&self.octets) {
            counter.store(0, Relaxed);
        }
    }

    /// Packets and octets from IPv4, and from IPv6.
    pub(crate) fn counts(&self) -> [(u64, u64); 2] {
        [0, 1]
            .map(|side: usize| (self.packets[side].load(Relaxed), self.octets[side].load(Relaxed)))
    }

    pub(crate) fn life(&self) -> SessionLife {
        SessionLife::of(self.life.load(Acquire))
    }

    pub(crate) fn local(&self) -> (Ipv4Addr, u16) {
        (Ipv4Addr::from_bits(self.local.load(Relaxed)), self.local_port.load(Relaxed))
    }

    pub(crate) fn remote(&self) -> (Ipv4Addr, u16) {
        (Ipv4Addr::from_bits(self.remote.load(Relaxed)), self.remote_port.load(Relaxed))
    }

    pub(crate) fn key(&self) -> SessionKey {
        let protocol = self.protocol.load(Relaxed);
        SessionKey { local: self.local(), remote: self.remote(), protocol }
    }

    /// From one life to another. `false`: it has changed meanwhile.
    pub(crate) fn change(&self, from: SessionLife, to: SessionLife) -> bool {
        self.life.compare_exchange(from.word(), to.word(), AcqRel, Acquire).is_ok()
    }

    /// Marks a session dead; the sweeper takes it out. `false`: it has changed meanwhile.
    pub(crate) fn end(&self, from: SessionLife) -> bool {
        self.change(from, SessionLife { state: state::DEAD, ..from })
    }

    pub(crate) fn is(&self, key: &SessionKey) -> bool {
        self.local.load(Relaxed) == key.local.0.to_bits()
            && self.remote.load(Relaxed) == key.remote.0.to_bits()
            && self.local_port.load(Relaxed) == key.local.1
            && self.remote_port.load(Relaxed) == key.remote.1
            && self.protocol.load(Relaxed) == key.protocol
    }
}

impl Subscriber {
    pub(crate) fn prefix(&self) -> Ipv6Addr {
        joined(self.hi.load(Relaxed), self.lo.load(Relaxed))
    }

    pub(crate) fn state(&self) -> u8 {
        life_parts(self.life.load(SeqCst)).0
    }

    /// The blocks that it has.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = PortBlock> {
        let number = (life_parts(self.life.load(Acquire)).1 & !ADDING) as usize;
        self.blocks.iter().take(number.min(MAX_BLOCKS)).map(|block| PortBlock {
            v4: Ipv4Addr::from_bits(block.v4.load(Relaxed)),
            low: block.low.load(Relaxed),
            high: block.high.load(Relaxed),
        })
    }

    /// Marks a subscriber dead; the sweeper takes it out.
    pub(crate) fn end(&self) {
        let change = |word| {
            let (state, number) = life_parts(word);
            (state == state::LIVE).then(|| life(state::DEAD, number))
        };
        // Fails if it was dead.
        let _ = self.life.fetch_update(SeqCst, SeqCst, change);
    }

    /// Replaces the blocks of a live subscriber that no other thread uses. They count as reported.
    pub(crate) fn replace_blocks(&self, blocks: &[PortBlock]) {
        for (room, block) in self.blocks.iter().zip(blocks) {
            room.v4.store(block.v4.to_bits(), Relaxed);
            room.low.store(block.low, Relaxed);
            room.high.store(block.high, Relaxed);
        }
        let number = blocks.len().min(MAX_BLOCKS) as u32;
        self.seen.store(number as u16, Relaxed);
        self.life.store(life(self.state(), number), SeqCst);
    }

    /// Appends a block. `false`: another thread is doing so, or there is no room.
    pub(crate) fn add(&self, block: PortBlock) -> bool {
        let before = self.life.load(Acquire);
        let (state, number) = life_parts(before);
        let Some(room) = self.blocks.get(number as usize).filter(|_| state == state::LIVE) else {
            return false;
        };
        let adding = life(state, number | ADDING);
        if self.life.compare_exchange(before, adding, AcqRel, Acquire).is_err() {
            return false;
        }
        room.v4.store(block.v4.to_bits(), Relaxed);
        room.low.store(block.low, Relaxed);
        room.high.store(block.high, Relaxed);
        self.life.compare_exchange(adding, life(state, number + 1), AcqRel, Acquire).is_ok()
    }
}

/// Takes one off a counter that others count up and down; stays at 0, where a killed process may have
/// left it too low.
pub(crate) fn one_less(counter: &AtomicU32) {
    let _ = counter.fetch_update(AcqRel, Acquire, |number| number.checked_sub(1));
}

/// The tick of a time.
pub(crate) fn tick(now: Duration) -> u32 {
    (now.as_nanos() >> TICK_SHIFT) as u32
}
