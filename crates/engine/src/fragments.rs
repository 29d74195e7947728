//! Fragments that wait for each other before a stateful translator gets their packet whole.
//!
//! The kernel may give fragments of one packet to several queues, so all threads share them: in shards, each behind a
//! lock that only fragments take. All of one source are in one shard, which so bounds what the source can have.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fordway_xlat::HEADROOM;
use fordway_xlat::reassembly::{Limits, Origin, Outcome, Reassembler};

/// Locks that fragments are spread over. Few, so that a source may have many packets in the making in one.
const SHARDS: usize = 4;

/// IPv4: octets of the flags and the fragment offset, and which bits say that it is a fragment.
const V4_FRAGMENT: Range<usize> = 6..8;
const V4_MORE_OR_OFFSET: u16 = 0x3fff;

/// IPv4: octets of the source.
const V4_SOURCE: Range<usize> = 12..16;

/// IPv6: octets in which the source's prefix is, by which the reassembler charges.
const V6_SOURCE_PREFIX: Range<usize> = 8..16;

/// IPv6: the Next Header, and those behind which a Fragment Header can stand: Hop-by-Hop Options, Routing, Fragment,
/// Destination Options.
const V6_NEXT_HEADER: usize = 6;
const V6_EXTENSIONS: [u8; 4] = [0, 43, 44, 60];

/// The fragments of all queues.
#[derive(Debug)]
pub(crate) struct Fragments {
    shards: Vec<Mutex<Reassembler>>,
    /// Bits of an IPv6 source that do not name it, of its first 64.
    rest: u32,
}

impl Default for Fragments {
    fn default() -> Fragments {
        Fragments::new(64)
    }
}

/// Whether a packet is a fragment, or may be one behind its extension headers.
#[inline]
pub(crate) fn may_be_fragment(packet: &[u8]) -> bool {
    match packet.first().map(|octet| octet >> 4) {
        Some(4) => packet
            .get(V4_FRAGMENT)
            .is_some_and(|field| u16::from_be_bytes([field[0], field[1]]) & V4_MORE_OR_OFFSET != 0),
        Some(6) => packet.get(V6_NEXT_HEADER).is_some_and(|next| V6_EXTENSIONS.contains(next)),
        _ => false,
    }
}

impl Fragments {
    /// 8 MiB in all, and 1 MiB of one source: room for fifteen packets of 64 KiB. A source is an IPv4 address, or an
    /// IPv6 prefix of `source_len` bits, of 64 at most.
    pub(crate) fn new(source_len: u8) -> Fragments {
        let (all, source_len) = (Limits::default(), source_len.clamp(1, 64));
        let octets = all.octets / SHARDS;
        // The number of packets in the making is not divided: one source must not be able to use it up.
        let limits = Limits { octets, octets_per_source: octets / 2, source_len, ..all };
        let shards = (0..SHARDS).map(|_| Mutex::new(Reassembler::new(limits))).collect();
        Fragments { shards, rest: 64 - u32::from(source_len) }
    }

    fn shard(&self, origin: Origin, packet: &[u8]) -> MutexGuard<'_, Reassembler> {
        let shard = &self.shards[shard_of(origin, packet, self.rest)];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a packet. A whole one is written to `buffer`, `start` octets from its beginning (at least [`HEADROOM`]);
    /// its range is that of the buffer.
    pub(crate) fn insert(
        &self,
        origin: Origin,
        packet: &[u8],
        now: Duration,
        buffer: &mut [u8],
        start: usize,
    ) -> Outcome {
        let before = start - HEADROOM;
        match self.shard(origin, packet).insert(origin, packet, now, &mut buffer[before..]) {
            Outcome::Complete(range) => Outcome::Complete(range.start + before..range.end + before),
            outcome => outcome,
        }
    }

    /// How many fragments have waited in vain until now; they are gone.
    pub(crate) fn expire(&self, now: Duration) -> usize {
        let expire = |shard: &Mutex<Reassembler>| {
            // If the shard is locked, the next call does it.
            shard.try_lock().map_or(0, |mut shard| shard.expire(now))
        };
        self.shards.iter().map(expire).sum()
    }
}

/// The shard of a packet's source: its IPv4 address, or the prefix of its IPv6 address without the last `rest` of 64
/// bits. Out of a softwire, that of its far end.
fn shard_of(origin: Origin, packet: &[u8], rest: u32) -> usize {
    let source = match (origin, packet.first().map(|octet| octet >> 4)) {
        (Origin::Inside(remote), _) => (remote.to_bits() >> 64) as u64 >> rest,
        (_, Some(4)) => number(packet.get(V4_SOURCE)),
        _ => number(packet.get(V6_SOURCE_PREFIX)) >> rest,
    };
    // An odd multiplier brings all bits to the top.
    (source.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % SHARDS
}

fn number(octets: Option<&[u8]>) -> u64 {
    let octets = octets.unwrap_or_default().iter();
    octets.fold(0, |number, octet| number << 8 | u64::from(*octet))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1);

    /// The IPv4 fragment of a UDP datagram, whose payload octets `offset..offset + len` it holds.
    fn fragment(
        source: u32,
        destination: u8,
        id: u16,
        offset: usize,
        len: usize,
        more: bool,
    ) -> Vec<u8> {
        let mut packet = vec![0x45, 0];
        packet.extend(((20 + len) as u16).to_be_bytes());
        packet.extend(id.to_be_bytes());
        packet.extend((u16::from(more) << 13 | (offset / 8) as u16).to_be_bytes());
        packet.extend([64, 17, 0, 0]);
        // 192.0.2.0/24 and 198.51.100.0/24.
        packet.extend((0xc000_0200 + source).to_be_bytes());
        packet.extend([198, 51, 100, destination]);
        let words = packet.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
        let sum: u32 = words.sum();
        let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        packet.resize(20 + len, 0x5a);
        packet
    }

    fn insert(fragments: &Fragments, packet: &[u8]) -> Outcome {
        fragments.insert(Origin::Network, packet, NOW, &mut vec![0; 1 << 17], 128)
    }

    #[test]
    fn a_source_may_have_many_long_packets_in_the_making() {
        const LEN: usize = 64_000;
        let fragments = Fragments::default();
        let mut ends = Vec::new();
        for offset in (0..LEN).step_by(1_600) {
            for id in 0..12 {
                let more = offset + 1_600 < LEN;
                let packet = fragment(1, 1, id, offset, 1_600, more);
                match insert(&fragments, &packet) {
                    Outcome::Incomplete if more => {}
                    Outcome::Complete(range) if !more => ends.push(range.len()),
                    outcome => panic!("packet {id}, offset {offset}: {outcome:?}"),
                }
            }
        }
        assert_eq!(ends, [20 + LEN; 12]);
    }

    #[test]
    fn a_source_has_no_more_than_its_part_whomever_it_sends_to() {
        let fragments = Fragments::default();
        let mut kept = 0;
        for id in 0..40 {
            for destination in 0..=255 {
                let packet = fragment(1, destination, id, 0, 1_480, true);
                kept += match insert(&fragments, &packet) {
                    Outcome::Incomplete => packet.len(),
                    _ => 0,
                };
            }
        }
        assert!((700_000..=1 << 20).contains(&kept), "{kept} octets");
    }

    #[test]
    fn many_short_fragments_of_a_source_leave_room_for_the_others() {
        let fragments = Fragments::default();
        for id in 0..10_000 {
            let _ = insert(&fragments, &fragment(1, 1, id, 0, 8, true));
        }
        for source in 2..66 {
            let outcome = insert(&fragments, &fragment(source, 1, 1, 0, 1_480, true));
            assert_eq!(outcome, Outcome::Incomplete, "source {source}");
        }
    }

    /// Octets that wait of a customer who sends from all of its links.
    fn kept_of_a_56(fragments: &Fragments) -> usize {
        let mut kept = 0;
        for (link, id) in (0..=255).flat_map(|link| (0..40).map(move |id| (link, id))) {
            let mut packet = vec![0x60, 0, 0, 0];
            packet.extend(1448_u16.to_be_bytes());
            packet.extend([44, 64, 0x20, 1, 0x0d, 0xb8, 0, 1, 0, link]);
            packet.extend([0; 7]);
            packet.push(1);
            packet.extend([0x20, 1, 0x0d, 0xb8, 0, 0x64, 0, 0, 0, 0, 0, 0, 192, 0, 2, 1]);
            packet.extend([17, 0, 0, 1, 0, 0, 0, id]);
            packet.resize(40 + 1448, 0);
            if insert(fragments, &packet) == Outcome::Incomplete {
                kept += packet.len();
            }
        }
        kept
    }

    #[test]
    fn a_customer_is_one_source_where_customers_are_subscribers() {
        let kept = kept_of_a_56(&Fragments::new(56));
        assert!((700_000..=1 << 20).contains(&kept), "{kept} octets");
        // Where a host is a subscriber, each link is a source.
        let kept = kept_of_a_56(&Fragments::new(128));
        assert!((4 << 20..=8 << 20).contains(&kept), "{kept} octets");
    }

    #[test]
    fn what_waits_in_vain_is_counted_once() {
        let fragments = Fragments::default();
        for source in 0..9 {
            let outcome = insert(&fragments, &fragment(source, 1, 1, 0, 1_480, true));
            assert_eq!(outcome, Outcome::Incomplete);
        }
        assert_eq!(fragments.expire(NOW), 0);
        assert_eq!(fragments.expire(NOW + Duration::from_secs(2)), 9);
        assert_eq!(fragments.expire(NOW + Duration::from_secs(9)), 0);
    }

    #[test]
    fn only_what_may_be_a_fragment_waits() {
        assert!(may_be_fragment(&fragment(1, 1, 1, 0, 8, true)));
        assert!(may_be_fragment(&fragment(1, 1, 1, 8, 8, false)));
        assert!(!may_be_fragment(&fragment(1, 1, 1, 0, 8, false)));
        let v6 = |next: u8| [0x60, 0, 0, 0, 0, 0, next, 64];
        assert!(V6_EXTENSIONS.iter().all(|next| may_be_fragment(&v6(*next))));
        assert!([6, 17, 58].iter().all(|next| !may_be_fragment(&v6(*next))));
        assert!(!may_be_fragment(&[]) && !may_be_fragment(&[0x45]) && !may_be_fragment(&[0x60]));
    }
}
