use proptest::prelude::*;

use super::*;
use crate::frame::Stream;
use crate::plan::Noted;
use crate::{Addresses, Direction, Flow, Pace, Pairs, Trial};

const START: u64 = 1_000_000_000_000;
const TIMEOUT: u64 = 1_000_000;
const CLOCK: Clock = Clock { start: START, timeout: TIMEOUT, delays_from: 0 };

/// 1000 frames in a second, in two pairs of networks: one every ms.
fn plan(frames: u64) -> Plan {
    let side = |first: &str| Addresses { first: first.parse().unwrap(), shift: 8 };
    let flow = Flow { source: side("198.18.0.2"), target: side("198.19.0.2") };
    let pace = Pace::steady(1000.0, frames as f64 / 1000.0);
    let mut trial = Trial::new(Pairs { forward: flow, reverse: flow }, 64, pace);
    trial.networks = 2;
    Plan::new(&trial, 1, Direction::Forward, [[0; 6]; 2], &Noted::default()).unwrap().unwrap()
}

fn tag(sequence: u32) -> Tag {
    let stream = Stream {
        class: Class::Translated,
        direction: Direction::Forward,
        pair: (sequence % 2) as u16,
    };
    Tag { trial: 1, stream, sequence, time: START + u64::from(sequence) * 1_000_000 }
}

/// Frames of a trial of so many that arrive in this order, each with a delay.
fn arrived(frames: u32, arrivals: &[(u32, u64)]) -> Counts {
    let mut tally = Tally::new(frames, 2, CLOCK, true).unwrap();
    for (sequence, delay) in arrivals {
        let tag = tag(*sequence);
        tally.note(tag, tag.time + delay);
    }
    tally.counts(frames.into(), Class::Translated, &plan(frames.into()))
}

#[test]
fn what_arrives_in_order_and_time_is_received() {
    let all: Vec<(u32, u64)> = (0..1500).map(|sequence| (sequence, 500)).collect();
    let counts = arrived(1500, &all);
    assert_eq!((counts.sent, counts.received, counts.lost, counts.late), (1500, 1500, 0, 0));
    assert_eq!((counts.duplicates, counts.reordered, counts.reordering_extent), (0, 0, 0));
    assert_eq!((counts.first_loss_s, counts.last_loss_s), (None, None));
    assert_eq!(counts.arrivals_by_second, [1000, 500]);
    assert_eq!(counts.arrivals_by_pair, [750, 750]);
    assert_eq!(counts.delays.0, [(500, 1500)]);
    assert_eq!(counts.ipdv, Ipdv(vec![(0, 1499)]));
}

#[test]
fn losses_are_counted_with_their_times() {
    let all: Vec<(u32, u64)> =
        (0..200).filter(|it| ![3, 70, 199].contains(it)).map(|sequence| (sequence, 1)).collect();
    let counts = arrived(200, &all);
    assert_eq!((counts.received, counts.lost), (197, 3));
    assert_eq!((counts.first_loss_s, counts.last_loss_s), (Some(0.003), Some(0.199)));
    assert_eq!(arrived(64, &[]).last_loss_s, Some(0.063));
}

#[test]
fn a_frame_is_late_by_its_own_time() {
    // The second one arrives last, but in time; the first and the third are late by a nanosecond.
    let counts = arrived(3, &[(0, TIMEOUT + 1), (2, TIMEOUT + 1), (1, TIMEOUT)]);
    assert_eq!((counts.received, counts.lost, counts.late), (1, 2, 2));
    assert_eq!(counts.delays.count(), 1);
    assert_eq!(counts.first_loss_s, Some(0.0));
}

#[test]
fn the_second_arrival_is_a_duplicate_and_nothing_else() {
    let counts = arrived(4, &[(0, 1), (2, 1), (0, 2), (0, 3), (2, 1), (3, 1)]);
    assert_eq!((counts.received, counts.lost, counts.duplicates, counts.reordered), (3, 1, 3, 0));
    assert_eq!(counts.delays.count(), 3);
    // A duplicate of a late frame is no arrival in time.
    let counts = arrived(1, &[(0, TIMEOUT + 1), (0, 1)]);
    assert_eq!((counts.received, counts.late, counts.duplicates), (0, 1, 1));
}

#[test]
fn reordering_is_counted_within_a_pair_of_networks() {
    // 4 behind 8: both are of pair 0. 3 and 5 are of pair 1, in order.
    let counts = arrived(10, &[(0, 1), (8, 1), (3, 1), (4, 1), (5, 1), (6, 1)]);
    assert_eq!((counts.reordered, counts.reordering_extent), (2, 4));
}

#[test]
fn frames_that_were_not_sent_are_refused() {
    let mut tally = Tally::new(10, 2, CLOCK, false).unwrap();
    assert_eq!(tally.note(tag(10), START), None);
    let stream = Stream { pair: 2, ..tag(0).stream };
    assert_eq!(tally.note(Tag { stream, ..tag(0) }, START), None);
    assert_eq!(tally.note(tag(9), START), Some(true));
    assert_eq!(tally.note(tag(9), START), Some(false));
}

#[test]
fn delays_count_from_the_given_time_on() {
    let clock = Clock { delays_from: 5_000_000, ..CLOCK };
    let mut tally = Tally::new(10, 2, clock, false).unwrap();
    for sequence in 0..10 {
        tally.note(tag(sequence), tag(sequence).time + 7);
    }
    let counts = tally.counts(10, Class::Translated, &plan(10));
    assert_eq!((counts.received, counts.delays.0), (10, vec![(7, 5)]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Against a model that knows every arrival; two threads that share the arrivals find the same.
    #[test]
    fn counts_are_those_of_a_naive_model(
        frames in 1u32..200,
        arrivals in proptest::collection::vec((0u32..200, 0u64..2 * TIMEOUT), 0..400),
        halves in proptest::collection::vec(any::<bool>(), 400),
    ) {
        let sent: Vec<(u32, u64)> =
            arrivals.into_iter().map(|(sequence, delay)| (sequence % frames, delay)).collect();
        let mut first = std::collections::BTreeMap::new();
        let (mut reordered, mut extent, mut highest) = (0, 0, [None::<u32>; 2]);
        for (sequence, delay) in &sent {
            if first.contains_key(sequence) {
                continue;
            }
            first.insert(*sequence, *delay);
            let highest = &mut highest[(sequence % 2) as usize];
            match highest {
                Some(before) if *before > *sequence => {
                    reordered += 1;
                    extent = extent.max(*before - sequence);
                }
                _ => *highest = Some(*sequence),
            }
        }
        let in_time = |sequence: u32| first.get(&sequence).is_some_and(|it| *it <= TIMEOUT);
        let received = (0..frames).filter(|sequence| in_time(*sequence)).count() as u64;
        let missing: Vec<u32> = (0..frames).filter(|sequence| !in_time(*sequence)).collect();
        let found = arrived(frames, &sent);
        prop_assert_eq!(found.received, received);
        prop_assert_eq!(found.lost, u64::from(frames) - received);
        prop_assert_eq!(found.late, first.len() as u64 - received);
        prop_assert_eq!(found.duplicates, (sent.len() - first.len()) as u64);
        prop_assert_eq!((found.reordered, found.reordering_extent), (reordered, extent));
        let due = |sequence: Option<&u32>| sequence.map(|it| f64::from(*it) / 1000.0);
        prop_assert_eq!(found.first_loss_s, due(missing.first()));
        prop_assert_eq!(found.last_loss_s, due(missing.last()));
        prop_assert_eq!(found.delays.count(), received);

        let mut threads = [0, 1].map(|_| Tally::new(frames, 2, CLOCK, true).unwrap());
        for ((sequence, delay), half) in sent.iter().zip(halves) {
            threads[usize::from(half)].note(tag(*sequence), tag(*sequence).time + delay);
        }
        let [mut one, other] = threads;
        one.add(&other);
        let both = one.counts(frames.into(), Class::Translated, &plan(frames.into()));
        prop_assert_eq!(both.arrivals_by_second, found.arrivals_by_second);
        prop_assert_eq!(both.arrivals_by_pair, found.arrivals_by_pair);
        prop_assert_eq!(both.received + both.late, found.received + found.late);
        prop_assert_eq!(both.duplicates, found.duplicates);
    }
}
