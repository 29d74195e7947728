//! A naive model: every fragment in a list, everything computed anew from it each time.

use alloc::vec::Vec;

use proptest::prelude::*;

use super::super::*;
use super::Bench;
use super::build::{Part, checksum, ipv4, ipv6, payload};

#[derive(Clone, Debug)]
struct Drawn {
    v4: bool,
    id: u8,
    number: u8,
    /// In units of 8 octets.
    offset: usize,
    len: usize,
    more: bool,
    /// Another payload than the usual.
    other: bool,
    ecn: u8,
    /// Milliseconds that pass before it.
    wait: u64,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let number = prop_oneof![Just(17u8), Just(6), Just(1)];
    let len = prop_oneof![6 => (1usize..8).prop_map(|len| len * 8), 1 => 0usize..30];
    let ecn = prop_oneof![8 => Just(0u8), 1 => Just(3)];
    let wait = prop_oneof![20 => Just(0u64), 2 => Just(500), 1 => Just(2000)];
    let more = prop_oneof![2 => Just(true), 1 => Just(false)];
    let other = prop_oneof![10 => Just(false), 1 => Just(true)];
    (any::<bool>(), 0u8..3, number, 0usize..10, len, more, other, ecn, wait).prop_map(
        |(v4, id, number, offset, len, more, other, ecn, wait)| Drawn {
            v4,
            id,
            number,
            offset,
            len,
            more,
            other,
            ecn,
            wait,
        },
    )
}

/// A packet in the making.
#[derive(Debug, Default)]
struct Making {
    begun: u64,
    pieces: Vec<(usize, bool, Vec<u8>, u8)>,
    refused: Option<DropReason>,
}

#[derive(Debug, Default)]
struct Model {
    makings: Vec<((bool, u8, u8), Making)>,
}

/// What the model says of an outcome; the octets of whole packets are compared in another test.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Whole,
    Incomplete,
    Duplicate,
    Complete(usize),
    Dropped(DropReason, usize),
}

impl Model {
    fn insert(&mut self, now: u64, limits: &Limits, drawn: &Drawn, data: &[u8]) -> Said {
        let (offset, end) = (drawn.offset * 8, drawn.offset * 8 + data.len());
        if offset == 0 && !drawn.more {
            return Said::Whole;
        }
        if data.is_empty() || drawn.more && !data.len().is_multiple_of(8) {
            return Said::Dropped(DropReason::BadFragment, 1);
        }
        let number = if drawn.v4 { drawn.number } else { 0 };
        let key = (drawn.v4, drawn.id, number);
        let known = self.makings.iter().position(|making| making.0 == key);
        let index = known.unwrap_or(self.makings.len());
        if known.is_none() {
            let of_source = self.makings.iter().filter(|making| making.0.0 == drawn.v4).count();
            let share = (limits.datagrams * limits.octets_per_source / limits.octets).max(1);
            if self.makings.len() == limits.datagrams || of_source == share {
                return Said::Dropped(DropReason::FragmentsFull, 1);
            }
            self.makings.push((key, Making { begun: now, ..Making::default() }));
        }
        let making = &mut self.makings[index].1;
        if let Some(reason) = making.refused {
            return Said::Dropped(reason, 1);
        }
        let tcp = drawn.number == 6;
        let cuts = tcp && (offset == 0 && data.len() < 20 || (1..20).contains(&offset));
        let new = (offset, drawn.more, data.to_vec(), drawn.ecn);
        let duplicate =
            making.pieces.iter().any(|old| (old.0, old.1, &old.2) == (new.0, new.1, &new.2));
        let contradicts = making.pieces.iter().any(|(at, more, octets, _)| {
            let until = at + octets.len();
            let overlaps = *at < end && offset < until;
            overlaps || !more && end > until || !drawn.more && until > end
        });
        let count = making.pieces.len() + 1;
        let reason = if cuts {
            DropReason::BadFragment
        } else if duplicate {
            return Said::Duplicate;
        } else if contradicts {
            DropReason::FragmentOverlap
        } else if count > limits.fragments {
            DropReason::FragmentsFull
        } else {
            making.pieces.push(new);
            return self.finish(index);
        };
        making.refused = Some(reason);
        making.pieces.clear();
        Said::Dropped(reason, count)
    }

    fn finish(&mut self, index: usize) -> Said {
        let pieces = &self.makings[index].1.pieces;
        let Some(end) = pieces.iter().find(|piece| !piece.1).map(|piece| piece.0 + piece.2.len())
        else {
            return Said::Incomplete;
        };
        let here =
            |octet| pieces.iter().any(|piece| (piece.0..piece.0 + piece.2.len()).contains(&octet));
        if !(0..end).all(here) {
            return Said::Incomplete;
        }
        let marks: Vec<u8> = pieces.iter().map(|piece| piece.3).collect();
        let count = pieces.len();
        self.makings.swap_remove(index);
        if marks.contains(&0) && marks.contains(&3) {
            return Said::Dropped(DropReason::FragmentOverlap, count);
        }
        Said::Complete(end)
    }

    fn expire(&mut self, now: u64) -> usize {
        let mut expired = 0;
        self.makings.retain(|(_, making)| {
            let due = making.begun + 2000 <= now;
            expired += if due { making.pieces.len() } else { 0 };
            !due
        });
        expired
    }

    fn kept(&self) -> usize {
        self.makings.iter().map(|making| making.1.pieces.len()).sum()
    }
}

fn build(drawn: &Drawn, data: &[u8]) -> Vec<u8> {
    let part = Part::new(drawn.offset * 8, drawn.more, data);
    if drawn.v4 {
        let mut packet = ipv4(u16::from(drawn.id), drawn.number, 0, &part);
        packet[1] |= drawn.ecn;
        checksum(&mut packet);
        packet
    } else {
        let number = if drawn.number == 1 { 58 } else { drawn.number };
        let mut packet = ipv6(u32::from(drawn.id), number, 0, &part);
        packet[1] |= drawn.ecn << 4;
        packet
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn the_reassembler_is_the_model(
        drawn in proptest::collection::vec(drawn(), 1..80),
        fragments in 2usize..6,
        datagrams in 3usize..10,
        part in 1usize..5,
    ) {
        let default = Limits::default();
        let octets_per_source = default.octets / part;
        let limits = Limits { fragments, datagrams, octets_per_source, ..default };
        let mut bench = Bench::new(limits);
        let mut model = Model::default();
        let mut now = 0;
        let (mut taken, mut gone) = (0, 0);
        for drawn in &drawn {
            now += drawn.wait;
            let at = Duration::from_millis(now);
            let expired = model.expire(now);
            prop_assert_eq!(bench.reassembler.expire(at), expired);
            gone += expired;
            let usual = payload(160);
            let mut data = usual[drawn.offset * 8..drawn.offset * 8 + drawn.len].to_vec();
            if let Some(octet) = data.last_mut() {
                *octet ^= u8::from(drawn.other);
            }
            let packet = build(drawn, &data);
            let said = match bench.reassembler.insert(Origin::Network, &packet, at, &mut bench.buffer) {
                Outcome::Whole => Said::Whole,
                Outcome::Incomplete => Said::Incomplete,
                Outcome::Duplicate => Said::Duplicate,
                Outcome::Dropped { reason, fragments } => Said::Dropped(reason, fragments),
                Outcome::Complete(range) => {
                    Said::Complete(range.len() - if drawn.v4 { 20 } else { 48 })
                }
            };
            let before = model.kept();
            prop_assert_eq!(&said, &model.insert(now, &limits, drawn, &data), "{:?}", drawn);
            // Every fragment is kept, passed on in a whole packet, or counted as dropped.
            match said {
                Said::Whole | Said::Duplicate => {}
                Said::Incomplete => taken += 1,
                Said::Dropped(_, fragments) => (taken, gone) = (taken + 1, gone + fragments),
                Said::Complete(_) => (taken, gone) = (taken + 1, gone + before + 1 - model.kept()),
            }
            prop_assert_eq!(taken, gone + model.kept());
            let occupancy = bench.reassembler.occupancy();
            prop_assert_eq!(occupancy.datagrams, model.makings.len());
            prop_assert!(occupancy.datagrams <= datagrams);
        }
    }

    /// Anything at all, with tight limits, which hold at each step.
    #[test]
    fn nothing_panics_and_limits_hold(
        packets in proptest::collection::vec(
            (any::<bool>(), proptest::collection::vec(any::<u8>(), 0..120), any::<u16>()),
            1..60,
        ),
    ) {
        let limits =
            Limits { datagrams: 6, octets: 5000, octets_per_source: 2500, ..Limits::default() };
        let mut bench = Bench::new(limits);
        let mut now = Duration::ZERO;
        for (sound, mut packet, word) in packets {
            if sound && packet.len() >= 48 {
                mend(&mut packet, word);
            }
            now += Duration::from_millis(u64::from(word % 100));
            let outcome = bench.reassembler.insert(Origin::Network, &packet, now, &mut bench.buffer);
            if let Outcome::Complete(range) = outcome {
                prop_assert!(range.len() > packet.len());
            }
            let Occupancy { datagrams, octets } = bench.reassembler.occupancy();
            prop_assert!(datagrams <= 6 && octets <= 5000);
            let sources = || bench.reassembler.sources.values();
            prop_assert_eq!(sources().map(|held| held.octets).sum::<usize>(), octets);
            prop_assert_eq!(sources().map(|held| held.datagrams).sum::<usize>(), datagrams);
            prop_assert!(sources().all(|held| held.octets <= 2500 && held.datagrams <= 3));
            prop_assert_eq!(bench.reassembler.due.len(), datagrams);
            let _ = bench.reassembler.expire(now);
        }
    }
}

/// Makes of any octets a fragment of one of a few packets.
fn mend(packet: &mut [u8], word: u16) {
    let len = packet.len();
    let offset = word & 0x1f;
    if word & 0x8000 == 0 {
        packet[0] = 0x45;
        packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
        packet[4..6].copy_from_slice(&(word >> 9 & 3).to_be_bytes());
        packet[6..8].copy_from_slice(&((word >> 8 & 1) << 13 | offset).to_be_bytes());
        packet[9] = 17;
        packet[12..20].fill(9 + (word >> 13) as u8);
        checksum(packet);
    } else {
        packet[0] = 0x60;
        packet[4..6].copy_from_slice(&(len as u16 - 40).to_be_bytes());
        packet[6] = 44;
        packet[8..40].fill(9 + (word >> 13) as u8);
        packet[40] = 17;
        packet[42..44].copy_from_slice(&(offset << 3 | word >> 8 & 1).to_be_bytes());
        packet[44..48].fill((word >> 9 & 3) as u8);
    }
}
