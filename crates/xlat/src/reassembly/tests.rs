//! Reassembly against whole packets, and against a naive model.

mod build;
mod limits;
mod model;

use alloc::vec;
use alloc::vec::Vec;

use fordway_wire::protocol;
use proptest::prelude::*;

use super::*;
use build::{Part, checksum, ipv4, ipv6, payload};

use crate::{Config, Offload, Packet, State, Translator, Verdict};

struct Bench {
    reassembler: Reassembler,
    buffer: Vec<u8>,
}

impl Bench {
    fn new(limits: Limits) -> Bench {
        Bench { reassembler: Reassembler::new(limits), buffer: vec![0xee; BUFFER_LEN] }
    }

    fn insert(&mut self, packet: &[u8]) -> Outcome {
        self.insert_from(Origin::Network, packet)
    }

    fn insert_from(&mut self, origin: Origin, packet: &[u8]) -> Outcome {
        self.reassembler.insert(origin, packet, Duration::ZERO, &mut self.buffer)
    }

    /// Everything in order; the packet that the last one completes.
    fn whole(&mut self, packets: &[Vec<u8>]) -> Vec<u8> {
        let (last, others) = packets.split_last().unwrap();
        for packet in others {
            assert_eq!(self.insert(packet), Outcome::Incomplete);
        }
        match self.insert(last) {
            Outcome::Complete(range) => self.buffer[range].to_vec(),
            other => panic!("{other:?}"),
        }
    }
}

fn dropped(reason: DropReason, fragments: usize) -> Outcome {
    Outcome::Dropped { reason, fragments }
}

#[test]
fn ipv4_comes_out_with_its_header_and_without_fragment_fields() {
    let data = payload(100);
    for options in [0, 8] {
        let mut bench = Bench::new(Limits::default());
        // Linux sets DF in fragments that it makes itself.
        let mut first = ipv4(7, 17, options, &Part::new(0, true, &data[..64]));
        first[6] |= 0x40;
        checksum(&mut first);
        let last = ipv4(7, 17, 0, &Part::new(64, false, &data[64..]));
        let whole = bench.whole(&[last, first]);
        assert_eq!(whole, ipv4(7, 17, options, &Part::new(0, false, &data)));
        assert_eq!(bench.reassembler.occupancy(), Occupancy::default());
        assert_eq!(bench.reassembler.next_due(), None);
    }
}

#[test]
fn ipv6_comes_out_as_an_atomic_fragment() {
    let data = payload(100);
    for extensions in [0, 1, 3] {
        let mut bench = Bench::new(Limits::default());
        let packets = [
            ipv6(0xdead_beef, 6, 0, &Part::new(64, true, &data[64..88])),
            ipv6(0xdead_beef, 6, extensions, &Part::new(0, true, &data[..64])),
            ipv6(0xdead_beef, 6, 2, &Part::new(88, false, &data[88..])),
        ];
        let whole = bench.whole(&packets);
        assert_eq!(whole, ipv6(0xdead_beef, 6, extensions, &Part::new(0, false, &data)));
        assert_eq!(bench.reassembler.occupancy(), Occupancy::default());
    }
}

#[test]
fn the_next_header_of_the_first_ipv6_fragment_counts() {
    let data = payload(48);
    let mut bench = Bench::new(Limits::default());
    let last = ipv6(1, protocol::TCP, 0, &Part::new(24, false, &data[24..]));
    let first = ipv6(1, protocol::UDP, 0, &Part::new(0, true, &data[..24]));
    let whole = bench.whole(&[last, first]);
    assert_eq!(whole, ipv6(1, protocol::UDP, 0, &Part::new(0, false, &data)));
    // In IPv4 the protocol tells packets apart.
    let last = ipv4(1, protocol::TCP, 0, &Part::new(24, false, &data[24..]));
    let first = ipv4(1, protocol::UDP, 0, &Part::new(0, true, &data[..24]));
    assert_eq!(bench.insert(&last), Outcome::Incomplete);
    assert_eq!(bench.insert(&first), Outcome::Incomplete);
    assert_eq!(bench.reassembler.occupancy().datagrams, 2);
}

#[test]
fn what_has_not_to_wait_passes() {
    let data = payload(24);
    let mut bench = Bench::new(Limits::default());
    let part = Part::new(0, true, &data);
    let mut wrong_checksum = ipv4(1, 17, 0, &part);
    wrong_checksum[10] ^= 1;
    let cut = ipv4(1, 17, 0, &part)[..40].to_vec();
    let cut6 = ipv6(1, 17, 0, &part)[..70].to_vec();
    for packet in [
        ipv4(1, 17, 0, &Part::new(0, false, &data)),
        // RFC 6946: atomic.
        ipv6(1, 17, 0, &Part::new(0, false, &data)),
        // Ports can't be found: SCTP, ESP; and an extension header behind the Fragment Header.
        ipv4(1, 132, 0, &part),
        ipv6(1, 50, 0, &part),
        ipv6(1, protocol::IPV6_OPTS, 0, &part),
        wrong_checksum,
        cut,
        cut6,
        vec![],
        vec![0x45; 19],
        vec![0x60; 39],
    ] {
        assert_eq!(bench.insert(&packet), Outcome::Whole, "{packet:02x?}");
    }
    assert_eq!(bench.reassembler.occupancy(), Occupancy::default());
}

#[test]
fn an_atomic_fragment_has_nothing_to_do_with_others() {
    let data = payload(48);
    let mut bench = Bench::new(Limits::default());
    let first = ipv6(1, 17, 0, &Part::new(0, true, &data[..24]));
    let last = ipv6(1, 17, 0, &Part::new(24, false, &data[24..]));
    assert_eq!(bench.insert(&first), Outcome::Incomplete);
    assert_eq!(bench.insert(&ipv6(1, 17, 0, &Part::new(0, false, &data))), Outcome::Whole);
    assert!(matches!(bench.insert(&last), Outcome::Complete(_)));
}

#[test]
fn impossible_fragments_are_dropped_alone() {
    let data = payload(65_535);
    let mut bench = Bench::new(Limits::default());
    for part in [
        Part::new(8, true, &data[..12]),
        Part::new(8, true, &[]),
        Part::new(8, false, &[]),
        Part::new(0, true, &data[..33]),
        Part::new(65_520, true, &data[..8]),
        Part::new(65_528, false, &data[..8]),
        Part::new(65_512, false, &data[..16]),
    ] {
        let bad = dropped(DropReason::BadFragment, 1);
        assert_eq!(bench.insert(&ipv4(1, 17, 0, &part)), bad, "{} {}", part.offset, part.more);
        if part.offset != 65_512 {
            assert_eq!(bench.insert(&ipv6(1, 17, 0, &part)), bad, "{}", part.offset);
        }
    }
    assert_eq!(bench.reassembler.occupancy(), Occupancy::default());
}

#[test]
fn the_longest_packets_fit() {
    let data = payload(65_535);
    let mut bench = Bench::new(Limits::default());
    let packets = [
        ipv4(1, 17, 0, &Part::new(0, true, &data[..32_000])),
        ipv4(1, 17, 0, &Part::new(32_000, false, &data[32_000..65_515])),
    ];
    assert_eq!(bench.whole(&packets).len(), 65_535);
    let packets = [
        ipv6(1, 17, 0, &Part::new(0, true, &data[..32_000])),
        ipv6(1, 17, 0, &Part::new(32_000, false, &data[32_000..65_527])),
    ];
    assert_eq!(bench.whole(&packets).len(), 40 + 65_535);
    // The options of the first make it too long; that is not seen before it comes.
    let last = ipv4(2, 17, 0, &Part::new(32_000, false, &data[32_000..65_515]));
    let first = ipv4(2, 17, 8, &Part::new(0, true, &data[..32_000]));
    assert_eq!(bench.insert(&last), Outcome::Incomplete);
    assert_eq!(bench.insert(&first), dropped(DropReason::BadFragment, 2));
    assert_eq!(bench.reassembler.occupancy(), Occupancy::default());
}

#[test]
fn a_short_buffer_is_no_room() {
    let data = payload(48);
    let mut bench = Bench::new(Limits::default());
    bench.buffer.truncate(HEADROOM + 67);
    let first = ipv4(1, 17, 0, &Part::new(0, true, &data[..24]));
    let last = ipv4(1, 17, 0, &Part::new(24, false, &data[24..]));
    assert_eq!(bench.insert(&first), Outcome::Incomplete);
    assert_eq!(bench.insert(&last), dropped(DropReason::NoHeadroom, 2));
}

#[test]
fn headers_that_are_cut_give_the_packet_up() {
    let data = payload(48);
    // RFC 1858: tiny first fragments; RFC 3128: the second begins within the TCP header.
    for (number, offset, len) in [
        (protocol::TCP, 0, 8),
        (protocol::TCP, 0, 16),
        (protocol::TCP, 8, 24),
        (protocol::TCP, 16, 24),
    ] {
        let mut bench = Bench::new(Limits::default());
        let other = ipv4(1, number, 0, &Part::new(40, false, &data[40..]));
        assert_eq!(bench.insert(&other), Outcome::Incomplete);
        let part = Part::new(offset, true, &data[offset..offset + len]);
        let bad = DropReason::BadFragment;
        assert_eq!(bench.insert(&ipv4(1, number, 0, &part)), dropped(bad, 2), "{offset} {len}");
        // What still comes is dropped, too.
        let late = ipv4(1, number, 0, &Part::new(24, true, &data[24..40]));
        assert_eq!(bench.insert(&late), dropped(bad, 1));
        assert_eq!(bench.insert(&ipv6(1, number, 0, &part)), dropped(bad, 1));
    }
    // Options of TCP belong to its header: here 32 octets of 24.
    let mut options = payload(24);
    options[12] = 0x80;
    let mut bench = Bench::new(Limits::default());
    let packet = ipv4(1, protocol::TCP, 0, &Part::new(0, true, &options));
    assert_eq!(bench.insert(&packet), dropped(DropReason::BadFragment, 1));
    // 8 octets hold the headers of UDP and ICMP.
    for number in [protocol::UDP, protocol::ICMP] {
        let first = ipv4(2, number, 0, &Part::new(0, true, &data[..8]));
        let last = ipv4(2, number, 0, &Part::new(8, false, &data[8..]));
        assert_eq!(bench.whole(&[first, last]).len(), 68);
    }
}

#[test]
fn overlaps_give_the_packet_up() {
    let data = payload(96);
    let other: Vec<u8> = data.iter().map(|octet| octet ^ 1).collect();
    for second in [
        // Overlaps before, behind, within, around.
        Part::new(16, true, &data[16..40]),
        Part::new(40, true, &data[40..56]),
        Part::new(40, true, &data[40..48]),
        Part::new(24, true, &data[24..72]),
        // The same place, other octets, another end, another length.
        Part::new(32, true, &other[32..64]),
        Part::new(32, false, &data[32..64]),
        Part::new(32, true, &data[32..56]),
    ] {
        for v4 in [true, false] {
            let build = |part: &Part<'_>| {
                if v4 { ipv4(1, 17, 0, part) } else { ipv6(1, 17, 0, part) }
            };
            let mut bench = Bench::new(Limits::default());
            let kept = build(&Part::new(32, true, &data[32..64]));
            assert_eq!(bench.insert(&kept), Outcome::Incomplete);
            assert_eq!(bench.insert(&kept), Outcome::Duplicate);
            let overlap = DropReason::FragmentOverlap;
            assert_eq!(bench.insert(&build(&second)), dropped(overlap, 2), "{second:?}");
            // RFC 5722 section 4: those not yet received, too.
            let rest = build(&Part::new(0, true, &data[..32]));
            assert_eq!(bench.insert(&rest), dropped(overlap, 1));
            assert_eq!(bench.reassembler.expire(Duration::from_secs(2)), 0);
            assert_eq!(bench.reassembler.occupancy(), Occupancy::default());
        }
    }
}

#[test]
fn ends_that_contradict_each_other_give_the_packet_up() {
    let data = payload(96);
    let last = Part::new(64, false, &data[64..80]);
    for second in [
        Part::new(80, true, &data[80..88]),
        Part::new(80, false, &data[80..88]),
        Part::new(32, false, &data[32..40]),
    ] {
        let mut bench = Bench::new(Limits::default());
        assert_eq!(bench.insert(&ipv4(1, 17, 0, &last)), Outcome::Incomplete);
        let outcome = bench.insert(&ipv4(1, 17, 0, &second));
        assert_eq!(outcome, dropped(DropReason::FragmentOverlap, 2), "{second:?}");
    }
    // An end before what is there.
    let mut bench = Bench::new(Limits::default());
    let kept = ipv4(1, 17, 0, &Part::new(64, true, &data[64..80]));
    assert_eq!(bench.insert(&kept), Outcome::Incomplete);
    let early = ipv4(1, 17, 0, &Part::new(32, false, &data[32..40]));
    assert_eq!(bench.insert(&early), dropped(DropReason::FragmentOverlap, 2));
}

#[test]
fn congestion_is_kept() {
    let data = payload(48);
    // RFC 3168 section 5.3: codepoints of the two fragments, and of the packet.
    for (first, last, whole) in [
        (0, 0, Some(0)),
        (1, 1, Some(1)),
        (2, 2, Some(2)),
        (3, 3, Some(3)),
        (2, 3, Some(3)),
        (3, 1, Some(3)),
        (0, 3, None),
        (3, 0, None),
        (1, 2, Some(1)),
    ] {
        let mut bench = Bench::new(Limits::default());
        let mark4 = |mut packet: Vec<u8>, ecn: u8| {
            packet[1] |= ecn;
            checksum(&mut packet);
            packet
        };
        let mark6 = |mut packet: Vec<u8>, ecn: u8| {
            packet[1] |= ecn << 4;
            packet
        };
        let parts = [Part::new(0, true, &data[..24]), Part::new(24, false, &data[24..])];
        let v4 = [mark4(ipv4(1, 17, 0, &parts[0]), first), mark4(ipv4(1, 17, 0, &parts[1]), last)];
        let v6 = [mark6(ipv6(1, 17, 0, &parts[0]), first), mark6(ipv6(1, 17, 0, &parts[1]), last)];
        match whole {
            Some(ecn) => {
                let all = Part::new(0, false, &data);
                assert_eq!(bench.whole(&v4), mark4(ipv4(1, 17, 0, &all), ecn));
                assert_eq!(bench.whole(&v6), mark6(ipv6(1, 17, 0, &all), ecn));
            }
            None => {
                for packets in [v4, v6] {
                    assert_eq!(bench.insert(&packets[0]), Outcome::Incomplete);
                    let overlap = dropped(DropReason::FragmentOverlap, 2);
                    assert_eq!(bench.insert(&packets[1]), overlap);
                }
            }
        }
    }
}

#[test]
fn the_interval_is_at_least_fragment_min() {
    let data = payload(48);
    let at = Duration::from_millis;
    for (interval, due) in [(0, 2000), (1999, 2000), (2500, 2500)] {
        let limits = Limits { interval: at(interval), ..Limits::default() };
        let mut bench = Bench::new(limits);
        let mut insert = |id, offset, ms| {
            let part = Part::new(offset, offset == 0, &data[offset..offset + 24]);
            bench.reassembler.insert(
                Origin::Network,
                &ipv4(id, 17, 0, &part),
                at(ms),
                &mut bench.buffer,
            )
        };
        assert_eq!(insert(1, 0, 100), Outcome::Incomplete);
        assert_eq!(insert(2, 0, 200), Outcome::Incomplete);
        assert_eq!(insert(3, 24, 200), Outcome::Incomplete);
        assert!(matches!(insert(3, 0, 300), Outcome::Complete(_)));
        assert_eq!(bench.reassembler.next_due(), Some(at(100 + due)));
        assert_eq!(bench.reassembler.expire(at(99 + due)), 0);
        assert_eq!(bench.reassembler.expire(at(100 + due)), 1);
        assert_eq!(bench.reassembler.expire(at(200 + due)), 1);
        assert_eq!(bench.reassembler.next_due(), None);
    }
}

/// A translator that has a mapping for everybody, and answers nobody.
fn translator() -> Translator {
    let pool6 = "2001:db8::/96".parse().unwrap();
    let (udp_checksum_zero, ipv4_translatable) = (crate::UdpChecksumZero::Pass, true);
    let config =
        Config { pool6: vec![pool6], udp_checksum_zero, ipv4_translatable, ..Config::default() };
    Translator::new(config).unwrap()
}

/// Cuts `data` at these places (in units of 8 octets).
fn cut<'a>(data: &'a [u8], places: &[usize], least: usize) -> Vec<Part<'a>> {
    let mut ends: Vec<usize> =
        places.iter().map(|place| least + place * 8).filter(|end| *end < data.len()).collect();
    ends.push(data.len());
    ends.sort_unstable();
    ends.dedup();
    let mut start = 0;
    let mut parts = Vec::new();
    for end in ends {
        parts.push(Part::new(start, end < data.len(), &data[start..end]));
        start = end;
    }
    parts
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Any order, with duplicates, several packets at once: each comes out when its last fragment comes,
    /// as it was, and the translator takes it.
    #[test]
    fn packets_come_out_as_they_were(
        packets in proptest::collection::vec(
            (any::<bool>(), 25usize..3000, proptest::collection::vec(0usize..380, 1..12), 0usize..3),
            1..5,
        ),
        order in proptest::collection::vec(any::<u32>(), 64),
    ) {
        let payloads: Vec<Vec<u8>> = packets.iter().map(|packet| payload(packet.1)).collect();
        let mut pending = Vec::new();
        let mut missing = Vec::new();
        let mut expected = Vec::new();
        for (id, ((v4, _, places, front), data)) in packets.iter().zip(&payloads).enumerate() {
            let build = |part: &Part<'_>| {
                if *v4 { ipv4(id as u16, 6, front * 4, part) } else { ipv6(id as u32, 6, *front, part) }
            };
            let parts = cut(data, places, 24);
            let count = parts.len();
            pending.extend(parts.iter().map(|part| (id, build(part))));
            missing.push(count);
            expected.push(build(&Part::new(0, false, data)));
        }
        let mut order = order.iter().cycle();
        let mut bench = Bench::new(Limits::default());
        let mut seen: Vec<(usize, Vec<u8>)> = Vec::new();
        let translator = translator();
        let mut repeats = 0;
        while !pending.is_empty() {
            let drawn = *order.next().unwrap() as usize;
            if drawn.is_multiple_of(4) && !seen.is_empty() && repeats < 100 {
                repeats += 1;
                let (id, packet) = &seen[drawn / 4 % seen.len()];
                if missing[*id] > 0 {
                    prop_assert_eq!(bench.insert(packet), Outcome::Duplicate);
                }
                continue;
            }
            let (id, packet) = pending.swap_remove(drawn % pending.len());
            missing[id] -= 1;
            let was_alone = packet == expected[id];
            match bench.insert(&packet) {
                // One piece alone: IPv4 is no fragment then, IPv6 an atomic one.
                Outcome::Whole => prop_assert!(was_alone && missing[id] == 0),
                Outcome::Complete(range) => {
                    prop_assert_eq!(missing[id], 0);
                    prop_assert_eq!(range.start, HEADROOM);
                    prop_assert_eq!(&bench.buffer[range.clone()], &expected[id][..]);
                    let offload = Offload::default();
                    let mut packet = Packet::new(&mut bench.buffer, range, offload);
                    let (state, now) = (&mut State::new(1), Duration::ZERO);
                    let verdict = translator.translate(&mut packet, now, state, &mut ());
                    prop_assert_eq!(verdict, Verdict::Forward);
                }
                outcome => {
                    prop_assert_eq!(outcome, Outcome::Incomplete);
                    prop_assert!(missing[id] > 0);
                }
            }
            seen.push((id, packet));
        }
        prop_assert_eq!(bench.reassembler.occupancy(), Occupancy::default());
    }
}
