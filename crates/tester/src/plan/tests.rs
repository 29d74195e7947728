use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::frame::{Arrived, parse};
use crate::{Addresses, Flow, Pairs, Step};

const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

fn side(first: &str, shift: u8) -> Addresses {
    Addresses { first: first.parse().unwrap(), shift }
}

/// SIIT: IPv6 at the client end, IPv4 at the server end; and native IPv6.
fn trial(share: u8, networks: u16) -> Trial {
    let client = side("2001:2:0:1::2", 64);
    let (mapped, server) = (side("64:ff9b::198.19.0.2", 8), side("198.19.0.2", 8));
    let translated = Pairs {
        forward: Flow { source: client, target: mapped },
        reverse: Flow { source: server, target: side("198.18.0.2", 8) },
    };
    let far = side("2001:2:1:1::2", 64);
    let native = Pairs {
        forward: Flow { source: client, target: far },
        reverse: Flow { source: far, target: client },
    };
    let mut trial = Trial::new(translated, 84, Pace::steady(1000.0, 1.0));
    trial.native = Some(native);
    trial.translated_share = share;
    trial.networks = networks;
    trial.reverse = Pace::steady(1000.0, 1.0);
    trial
}

fn plan(trial: &Trial, direction: Direction) -> Plan {
    Plan::new(trial, 7, direction, MACS, &Noted::default()).unwrap().unwrap()
}

fn sent(plan: &Plan, number: u64) -> Arrived {
    let frame = plan.frame(number, plan.due(number));
    let mut octets = vec![0; frame.length()];
    frame.write(&mut octets);
    let arrived = parse(&octets).unwrap();
    assert!(arrived.intact);
    arrived
}

#[test]
fn frames_are_due_at_their_number_over_the_rate() {
    let mut steps = trial(100, 1);
    let step = |rate, seconds| Step { rate, seconds };
    steps.forward = Pace::Steps(vec![step(1000.0, 2.0), step(500.0, 1.0)]);
    let plan = plan(&steps, Direction::Forward);
    assert_eq!(plan.total(), 2500);
    assert_eq!(
        [0, 1, 1999, 2000, 2001].map(|i| plan.due(i)),
        [0, 1_000_000, 1_999_000_000, 2_000_000_000, 2_002_000_000]
    );
    assert_eq!(plan.length(), 3_000_000_000);
    // Rounding does not add up: the last of 100 million frames is due to the nanosecond.
    steps.forward = Pace::steady(3_000_000.0, 33.0);
    let plan = self::plan(&steps, Direction::Forward);
    assert_eq!(plan.due(89_999_999), 29_999_999_666);
}

#[test]
fn networks_take_turns_and_each_has_its_addresses() {
    let plan = plan(&trial(100, 256), Direction::Reverse);
    for number in [0, 1, 255, 256, 300] {
        let arrived = sent(&plan, number);
        let network = (number % 256) as u8;
        assert_eq!(arrived.tag.stream.pair, u16::from(network));
        assert_eq!(arrived.tuple.source.to_string(), format!("198.19.{network}.2"));
        assert_eq!(arrived.tuple.target.to_string(), format!("198.18.{network}.2"));
    }
    let plan = self::plan(&trial(0, 256), Direction::Forward);
    assert_eq!(sent(&plan, 255).tuple.source.to_string(), "2001:2:0:100::2");
}

#[test]
fn the_smallest_frames_have_84_octets_over_ipv6_and_64_over_ipv4() {
    let length = |direction| plan(&trial(100, 1), direction).frame(0, 0).length() + 4;
    assert_eq!(length(Direction::Forward), 84);
    assert_eq!(length(Direction::Reverse), 64);
}

/// As a search for the longest burst comes to them.
#[test]
fn a_burst_at_a_rate_may_have_a_few_frames() {
    let mut trial = trial(100, 1);
    trial.forward = Pace::steady(1e6, 3e-6);
    let plan = plan(&trial, Direction::Forward);
    assert_eq!(plan.total, 3);
}

#[test]
fn what_can_not_be_sent_is_refused() {
    let refused = |change: &dyn Fn(&mut Trial)| {
        let mut trial = trial(50, 4);
        change(&mut trial);
        let all = trial.check().and_then(|()| {
            Plan::new(&trial, 1, Direction::Forward, MACS, &Noted::default()).map(drop)
        });
        assert!(matches!(all, Err(Error::Unfit(_))), "{trial:?}");
    };
    refused(&|it| it.forward = Pace::steady(0.0, 1.0));
    refused(&|it| it.forward = Pace::steady(f64::NAN, 1.0));
    refused(&|it| it.forward = Pace::steady(1.0, 0.0));
    refused(&|it| it.forward = Pace::steady(1e9, 1e9));
    refused(&|it| it.forward = Pace::Burst(u64::MAX));
    refused(&|it| it.networks = 0);
    refused(&|it| it.networks = 257);
    refused(&|it| it.native = None);
    refused(&|it| it.translated_share = 101);
    refused(&|it| it.batch = 0);
    refused(&|it| it.timeout_s = -1.0);
    refused(&|it| it.frame_size = 64);
    refused(&|it| it.translated.forward.source.shift = 127);
    refused(&|it| it.translated.forward.target = side("198.18.0.1", 8));
}

#[test]
fn enumerated_tuples_are_all_sent_once_and_answered_to_where_they_arrived() {
    let mut trial = trial(100, 2);
    let enumeration = Enumeration { flows: 300, source_ports: (2000, 20), target_ports: (1, 10) };
    trial.tuples = Tuples::Enumerated(enumeration);
    let forward = plan(&trial, Direction::Forward);
    let first: Vec<Tuple> = (0..300).map(|number| sent(&forward, number).tuple).collect();
    let distinct: std::collections::HashSet<&Tuple> = first.iter().collect();
    assert_eq!(distinct.len(), 300);
    assert_eq!(sent(&forward, 300).tuple, first[0]);
    // Another order has the same tuples.
    let again = plan(&Trial { order: 1, ..trial.clone() }, Direction::Forward);
    let second: Vec<Tuple> = (0..300).map(|number| sent(&again, number).tuple).collect();
    assert_eq!(second.iter().collect::<std::collections::HashSet<&Tuple>>(), distinct);
    assert!(second.iter().zip(&first).filter(|(one, other)| one == other).count() < 20);
    let none = Plan::new(&trial, 7, Direction::Reverse, MACS, &Noted::default());
    assert!(matches!(none, Err(Error::Unfit(_))));
    let noted = Noted::new(first.clone());
    let reverse = Plan::new(&trial, 7, Direction::Reverse, MACS, &noted).unwrap().unwrap();
    for number in 0..600 {
        let arrived = sent(&reverse, number);
        assert_eq!(arrived.tuple, first[number as usize % 300].reversed());
        assert_eq!(arrived.tag.stream.direction, Direction::Reverse);
    }
}

proptest! {
    #[test]
    fn classes_have_their_share_and_number_their_frames(share in 0u8..=100, networks in 1u16..=256) {
        let plan = plan(&trial(share, networks), Direction::Forward);
        let mut next = BTreeMap::from([(0, 0u32), (1, 0)]);
        for number in 0..1000 {
            let tag = sent(&plan, number).tag;
            let class = tag.stream.class;
            let expected = next.get_mut(&(class as usize)).unwrap();
            prop_assert_eq!(tag.sequence, *expected);
            prop_assert_eq!(plan.frame_number(class, tag.sequence), number);
            *expected += 1;
            // At any time the share is right to one frame.
            prop_assert!((i64::from(next[&0]) * 100 - (number as i64 + 1) * i64::from(share)).abs() < 100);
        }
        prop_assert_eq!(plan.of_class(Class::Translated), u64::from(next[&0]));
        prop_assert_eq!(plan.of_class(Class::Native), u64::from(next[&1]));
    }
}

#[test]
fn pairs_of_networks_start_one_after_the_other_each_at_its_own_rate() {
    let mut rising = trial(100, 4);
    rising.start_s = 0.5;
    rising.forward = Pace::steady(4000.0, 2.0);
    let plan = plan(&rising, Direction::Forward);
    // Pair k starts at k / 2 s, and sends 1000 frames/s from then on.
    assert_eq!(plan.length(), 3_500_000_000);
    assert_eq!(plan.total(), 1000 * (7 + 6 + 5 + 4) / 2);
    let mut counts = BTreeMap::<(u16, u64), u64>::new();
    for number in 0..plan.total() {
        let pair = sent(&plan, number).tag.stream.pair;
        *counts.entry((pair, plan.due(number) / 500_000_000)).or_default() += 1;
    }
    for (pair, half) in (0..4).flat_map(|pair| (0..7).map(move |half| (pair, half))) {
        let found = counts.get(&(pair, half)).copied().unwrap_or(0);
        let wanted = if half < u64::from(pair) { 0 } else { 500 };
        assert!(found.abs_diff(wanted) <= 1, "pair {pair}, half second {half}: {found}");
    }
    // The last pair starts on time although hardly a frame is due before.
    rising.forward = Pace::steady(1.0, 10.0);
    let slow = Plan::new(&rising, 7, Direction::Forward, MACS, &Noted::default());
    assert_eq!(slow.unwrap().unwrap().length(), 11_500_000_000);
    // The program that sends by itself knows no such plan.
    assert!(!plan.fits_program());
    rising.start_s = 0.0;
    let at_once = Plan::new(&rising, 7, Direction::Forward, MACS, &Noted::default());
    assert!(at_once.unwrap().unwrap().fits_program());
}

#[test]
fn what_has_no_time_or_tuples_of_its_own_does_not_start_one_after_the_other() {
    let mut rising = trial(100, 4);
    rising.start_s = 0.5;
    assert!(rising.check().is_ok());
    rising.forward = Pace::Burst(10);
    assert!(rising.check().unwrap_err().to_string().contains("a burst"));
    rising.forward = Pace::steady(1000.0, 1.0);
    let ports = (1000, 10);
    rising.tuples =
        Tuples::Enumerated(Enumeration { flows: 10, source_ports: ports, target_ports: ports });
    assert!(rising.check().unwrap_err().to_string().contains("random ports"));
    rising.start_s = f64::NAN;
    assert!(rising.check().is_err());
}
