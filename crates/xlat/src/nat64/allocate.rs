//! Allocation of IPv4 transport addresses (RFC 6146 sections 3.5.1.1 and 3.5.2.3).
//!
//! The port is a keyed hash of the IPv6 transport address: nobody outside can guess it (RFC 6056), a host
//! gets the same again after a while, and both engines choose alike. An even port and the next odd one are
//! hashed as one and become such a pair again, so that parity and contiguity are kept (RFC 4787 sections
//! 4.2.2 and 4.2.3). Hosts' ports below 1024 stay there if the pool has such (REQ-3a).
//!
//! `crates/bpf/c/nat64_port.h` has the tries by hash in C; what these don't find is searched here.

use core::net::Ipv4Addr;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

use super::chain::state;
use super::layout::{Bib, MAX_BLOCKS, PORT_TRIES, Subscriber};
use super::pool::PortBlock;
use super::settings::Protocol;
use super::subscriber::prefix;
use super::view::View;

/// The first port that is not well-known.
const FIRST_UNPRIVILEGED: u16 = 1024;

/// More tries by hash, where the first ones and a search in order would take too long.
const MORE_TRIES: u32 = 224;

/// Ports looked at in order, from a hashed one on: all of a block of ordinary size.
const WINDOW: u32 = 4096;

/// The ports of a block that suit an IPv6 port best: of its class, well-known or not, if there are any.
fn suited(block: PortBlock, protocol: Protocol, port: u16) -> (u16, u16) {
    let PortBlock { low, high, .. } = block;
    match protocol {
        Protocol::Icmp => (low, high),
        _ if port < FIRST_UNPRIVILEGED && low < FIRST_UNPRIVILEGED => {
            (low, high.min(FIRST_UNPRIVILEGED - 1))
        }
        _ if port >= FIRST_UNPRIVILEGED && high >= FIRST_UNPRIVILEGED => {
            (low.max(FIRST_UNPRIVILEGED), high)
        }
        _ => (low, high),
    }
}

/// The port to try with this hash; `None`: the block has no pair of ports.
fn by_hash(block: PortBlock, protocol: Protocol, port: u16, hash: u64) -> Option<u16> {
    let (low, high) = suited(block, protocol, port);
    let first = u32::from(low).next_multiple_of(2);
    let pairs = (u32::from(high) + 1).saturating_sub(first) / 2;
    if pairs == 0 {
        return None;
    }
    Some((first + 2 * (hash as u32 % pairs)) as u16 | (port & 1))
}

impl<'a> View<'a> {
    /// Finds a free transport address for `bib`, whose IPv6 side is filled in and which is CLAIMED, and
    /// links it under it: under `again` if that is the subscriber's and free. `false`: there is none.
    pub(crate) fn allocate(
        &self,
        index: u32,
        bib: &Bib,
        subscriber: &Subscriber,
        again: Option<(Ipv4Addr, u16)>,
    ) -> bool {
        let Some(protocol) = Protocol::of(bib.protocol.load(Relaxed)) else { return false };
        if let Some((v4, port)) = again
            && subscriber
                .blocks()
                .any(|block| block.v4 == v4 && (block.low..=block.high).contains(&port))
            && self.claim(index, bib, subscriber, (v4, port), protocol)
        {
            return true;
        }
        loop {
            let mut blocks = [PortBlock { v4: Ipv4Addr::UNSPECIFIED, low: 1, high: 0 }; MAX_BLOCKS];
            let mut number = 0;
            for (slot, block) in blocks.iter_mut().zip(subscriber.blocks()) {
                *slot = block;
                number += 1;
            }
            if self.allocate_in(index, bib, subscriber, protocol, &blocks[..number]) {
                return true;
            }
            // As long as somebody adds blocks there is something new to try.
            if !self.extend(subscriber) {
                return false;
            }
        }
    }

    fn allocate_in(
        &self,
        index: u32,
        bib: &Bib,
        subscriber: &Subscriber,
        protocol: Protocol,
        blocks: &[PortBlock],
    ) -> bool {
        let (v6, port) = bib.v6();
        let secret = self.nat.secret;
        let first = secret.port(v6, port, protocol.number());
        let claim = |v4| self.claim(index, bib, subscriber, v4, protocol);
        let tries = |range: core::ops::Range<u32>| {
            range.into_iter().any(|attempt| {
                let hash = secret.again(first, attempt);
                let block = blocks.get((hash >> 32) as usize % blocks.len().max(1));
                block.is_some_and(|block| {
                    by_hash(*block, protocol, port, hash).is_some_and(|t| claim((block.v4, t)))
                })
            })
        };
        if tries(0..PORT_TRIES) {
            return true;
        }
        let search = (bib.subscriber.load(Relaxed), protocol, blocks.len());
        if self.nat.known_exhausted(search, self.now) {
            return false;
        }
        let found = tries(PORT_TRIES..PORT_TRIES + MORE_TRIES)
            || blocks.iter().any(|block| self.search(*block, protocol, port, first, &claim));
        if !found {
            self.nat.note_exhausted(search, self.now);
        }
        found
    }

    /// Tries ports in order: those of the right class and parity, then of the right class, then all.
    fn search(
        &self,
        block: PortBlock,
        protocol: Protocol,
        port: u16,
        hash: u64,
        claim: &impl Fn((Ipv4Addr, u16)) -> bool,
    ) -> bool {
        let suited = suited(block, protocol, port);
        [(suited, true), (suited, false), ((block.low, block.high), false)].into_iter().any(
            |((low, high), parity)| {
                let ports = u32::from(high.saturating_sub(low)) + 1;
                let from = hash as u32 % ports;
                (0..ports.min(WINDOW)).any(|step| {
                    let t = low + ((from + step) % ports) as u16;
                    (!parity || t & 1 == port & 1) && claim((block.v4, t))
                })
            },
        )
    }

    /// Links an entry under a transport address, if nobody holds it.
    fn claim(
        &self,
        index: u32,
        bib: &Bib,
        subscriber: &Subscriber,
        v4: (Ipv4Addr, u16),
        protocol: Protocol,
    ) -> bool {
        let rests = |holder: &Bib| self.is_own_rest(holder, subscriber);
        self.claim4((index, bib), v4, protocol.number(), rests).is_ok()
    }

    /// RFC 6888 REQ-8: a port rests before another subscriber gets it; the same one may have it at once.
    /// `true`: it rested, and is now free.
    fn is_own_rest(&self, holder: &Bib, subscriber: &Subscriber) -> bool {
        let (state, _) = super::view::life_parts(holder.life.load(Acquire));
        state == state::RESTING
            && prefix(holder.v6().0, self.nat.settings.subscriber_len) == subscriber.prefix()
            && holder.change(state::RESTING, state::DEAD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_stay_pairs() {
        let block = PortBlock { v4: Ipv4Addr::new(192, 0, 2, 1), low: 1025, high: 4096 };
        for hash in 0..10_000_u64 {
            let even = by_hash(block, Protocol::Udp, 5004, hash).unwrap();
            let odd = by_hash(block, Protocol::Udp, 5005, hash).unwrap();
            assert_eq!((even % 2, odd), (0, even + 1));
            assert!(block.low <= even && odd <= block.high);
        }
    }

    #[test]
    fn classes_are_kept_if_the_block_has_them() {
        let block = |low, high| PortBlock { v4: Ipv4Addr::new(192, 0, 2, 1), low, high };
        assert_eq!(suited(block(1, 65_535), Protocol::Tcp, 80), (1, 1023));
        assert_eq!(suited(block(1, 65_535), Protocol::Tcp, 1024), (1024, 65_535));
        assert_eq!(suited(block(1024, 65_535), Protocol::Udp, 53), (1024, 65_535));
        assert_eq!(suited(block(1, 512), Protocol::Udp, 5000), (1, 512));
        assert_eq!(suited(block(1, 65_535), Protocol::Icmp, 7), (1, 65_535));
    }

    #[test]
    fn a_block_of_one_port_has_no_pair() {
        let block = PortBlock { v4: Ipv4Addr::new(192, 0, 2, 1), low: 2000, high: 2000 };
        assert_eq!(by_hash(block, Protocol::Tcp, 1, 99), None);
    }
}
