//! Allocation of IPv4 transport addresses (RFC 6146 sections 3.5.1.1 and 3.5.2.3).
//!
//! The port is a keyed hash of the IPv6 transport address: it can't be guessed (RFC 6056), a host gets the same one
//! again later, and both engines choose alike. An even port and the next odd one are hashed as one and become such a
//! pair again, so that parity and contiguity are kept (RFC 4787 sections 4.2.2 and 4.2.3). Hosts' ports below 1024, and
//! others, stay on their side of it as long as the subscriber has such (REQ-3a).
//!
//! `crates/bpf/c/nat64_port.h` has the tries by hash in C; what these don't find is searched here.

use core::net::Ipv4Addr;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::nat64::table::{
    Bib, Found, MAX_BLOCKS, PORT_TRIES, PortBlock, Protocol, Subscriber, View, life_parts, state,
};

use super::subscriber::prefix;

/// The first port that is not well-known.
const FIRST_UNPRIVILEGED: u16 = 1024;

/// More tries by hash, where the first ones and a search in order would take too long.
const MORE_TRIES: u32 = 224;

/// Ports looked at in order, from a hashed one on: all of a block of ordinary size.
const WINDOW: u32 = 4096;

/// The ports of a block that are of the class of an IPv6 port: well-known, or not. Identifiers have no classes.
fn of_class(block: PortBlock, protocol: Protocol, port: u16) -> Option<PortBlock> {
    let (low, high) = match protocol {
        Protocol::Icmp => (0, u16::MAX),
        _ if port < FIRST_UNPRIVILEGED => (0, FIRST_UNPRIVILEGED - 1),
        _ => (FIRST_UNPRIVILEGED, u16::MAX),
    };
    let part = PortBlock { low: block.low.max(low), high: block.high.min(high), ..block };
    (part.low <= part.high).then_some(part)
}

/// The port to try with this hash; `None`: there is no pair of ports.
fn by_hash(ports: PortBlock, port: u16, hash: u64) -> Option<u16> {
    let first = u32::from(ports.low).next_multiple_of(2);
    let pairs = (u32::from(ports.high) + 1).saturating_sub(first) / 2;
    if pairs == 0 {
        return None;
    }
    Some((first + 2 * (hash as u32 % pairs)) as u16 | (port & 1))
}

/// The purpose of a search for a port.
struct Wanted<'a> {
    bib: Found<'a, Bib>,
    subscriber: &'a Subscriber,
    protocol: Protocol,
    /// x.
    port: u16,
    /// Where the tries begin.
    hash: u64,
}

/// The result of a search.
enum Search {
    Found,
    /// The subscriber has more ports now.
    MorePorts,
    Failed,
}

impl<'a> View<'a> {
    /// Finds a free transport address for a BIB entry, whose IPv6 side is filled in and which is CLAIMED, and links it
    /// under it: under `again` if that is the subscriber's and free. `false`: there is none.
    pub(crate) fn allocate(
        &self,
        bib: Found<'a, Bib>,
        subscriber: &'a Subscriber,
        again: Option<(Ipv4Addr, u16)>,
    ) -> bool {
        let Some(protocol) = Protocol::of(bib.1.protocol.load(Relaxed)) else { return false };
        let (v6, port) = bib.1.v6();
        let hash = self.nat.secret.port(v6, port, protocol.number());
        let wanted = Wanted { bib, subscriber, protocol, port, hash };
        if let Some((v4, port)) = again
            && subscriber.blocks().any(|block| block.v4 == v4 && block.contains(port))
            && self.claim(&wanted, (v4, port))
        {
            return true;
        }
        // Other threads may add blocks meanwhile, whose ports can be tried.
        for _ in 0..2 * MAX_BLOCKS {
            let mut blocks = [PortBlock { v4: Ipv4Addr::UNSPECIFIED, low: 1, high: 0 }; MAX_BLOCKS];
            let mut number = 0;
            for (slot, block) in blocks.iter_mut().zip(subscriber.blocks()) {
                *slot = block;
                number += 1;
            }
            match self.allocate_in(&wanted, &blocks[..number]) {
                Search::Found => return true,
                Search::Failed if !self.extend(subscriber) => return false,
                Search::Failed | Search::MorePorts => {}
            }
        }
        false
    }

    fn allocate_in(&self, wanted: &Wanted<'_>, blocks: &[PortBlock]) -> Search {
        let Wanted { protocol, port, hash: first, .. } = *wanted;
        let of_class = |block: &PortBlock| of_class(*block, protocol, port);
        let has_class = blocks.iter().any(|block| of_class(block).is_some());
        // Other ranges of the address are free of charge, and may have the class.
        if !has_class && self.extend_shared(wanted.subscriber) {
            return Search::MorePorts;
        }
        let tries = |mut range: core::ops::Range<u32>| {
            range.any(|attempt| {
                let hash = self.nat.secret.again(first, attempt);
                let Some(block) = blocks.get((hash >> 32) as usize % blocks.len().max(1)) else {
                    return false;
                };
                let ports = if has_class { of_class(block) } else { Some(*block) };
                let t = ports.and_then(|ports| by_hash(ports, port, hash));
                t.is_some_and(|t| self.claim(wanted, (block.v4, t)))
            })
        };
        if tries(0..PORT_TRIES) {
            return Search::Found;
        }
        let Some(search) = self.nat.search_key(blocks, protocol) else { return Search::Failed };
        if self.nat.known_exhausted(search, self.now) {
            return Search::Failed;
        }
        let in_class = || blocks.iter().filter_map(of_class);
        let (same, other) = (port & 1, !port & 1);
        if tries(PORT_TRIES..PORT_TRIES + MORE_TRIES)
            || in_class().any(|ports| self.search(wanted, ports, same))
            || in_class().any(|ports| self.search(wanted, ports, other))
        {
            return Search::Found;
        }
        if self.extend_shared(wanted.subscriber) {
            return Search::MorePorts;
        }
        // RFC 6146 section 3.5.1.1: MAY, if there is none of the class.
        let beside = || blocks.iter().filter(|block| of_class(block) != Some(**block)).copied();
        if beside().any(|block| self.search(wanted, block, same))
            || beside().any(|block| self.search(wanted, block, other))
        {
            return Search::Found;
        }
        self.nat.note_exhausted(search, self.now);
        Search::Failed
    }

    /// Tries ports in order.
    fn search(&self, wanted: &Wanted<'_>, ports: PortBlock, parity: u16) -> bool {
        let number = u32::from(ports.high - ports.low) + 1;
        let from = wanted.hash as u32 % number;
        (0..number.min(WINDOW)).any(|step| {
            let t = ports.low + ((from + step) % number) as u16;
            parity == t & 1 && self.claim(wanted, (ports.v4, t))
        })
    }

    /// Links the entry under a transport address, if that is free.
    fn claim(&self, wanted: &Wanted<'_>, v4: (Ipv4Addr, u16)) -> bool {
        let makes_way = |holder: &Bib| self.end_own_hold_down(holder, wanted.subscriber);
        self.claim4(wanted.bib, v4, makes_way).is_ok()
    }

    /// RFC 6888 REQ-8: a port is in hold-down before another subscriber gets it; its own subscriber may reuse it at
    /// once. `true`: it was in hold-down, and is now free.
    fn end_own_hold_down(&self, holder: &Bib, subscriber: &Subscriber) -> bool {
        let (state, _) = life_parts(holder.life.load(Acquire));
        state == state::HOLD_DOWN
            && prefix(holder.v6().0, self.nat.settings.subscriber_len) == subscriber.prefix()
            && holder.change(state::HOLD_DOWN, state::DEAD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(low: u16, high: u16) -> PortBlock {
        PortBlock { v4: Ipv4Addr::new(192, 0, 2, 1), low, high }
    }

    #[test]
    fn pairs_stay_pairs() {
        let block = block(1025, 4096);
        for hash in 0..10_000_u64 {
            let even = by_hash(block, 5004, hash).unwrap();
            let odd = by_hash(block, 5005, hash).unwrap();
            assert_eq!((even % 2, odd), (0, even + 1));
            assert!(block.low <= even && odd <= block.high);
        }
    }

    #[test]
    fn classes_end_at_1024() {
        let tcp = |block, port| of_class(block, Protocol::Tcp, port);
        assert_eq!(tcp(block(1, 65_535), 80), Some(block(1, 1023)));
        assert_eq!(tcp(block(1, 65_535), 1024), Some(block(1024, 65_535)));
        assert_eq!(tcp(block(1001, 2000), 1023), Some(block(1001, 1023)));
        assert_eq!(tcp(block(1024, 65_535), 53), None);
        assert_eq!(tcp(block(1, 1023), 5000), None);
        assert_eq!(of_class(block(1, 1023), Protocol::Icmp, 5000), Some(block(1, 1023)));
    }

    #[test]
    fn each_pair_may_be_tried() {
        let tried = [0, 1, 2].map(|hash| by_hash(block(1999, 2003), 80, hash));
        assert_eq!(tried, [Some(2000), Some(2002), Some(2000)]);
    }

    #[test]
    fn one_port_is_no_pair() {
        assert_eq!(by_hash(block(2000, 2000), 1, 99), None);
    }
}
