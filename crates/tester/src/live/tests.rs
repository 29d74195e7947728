use std::net::IpAddr;

use fordway_testhost::{is_root, require};
use libbpf_rs::ProgramInput;
use proptest::prelude::*;

use super::*;
use crate::frame::Tuple;
use crate::plan::Noted;
use crate::{Addresses, Direction, Enumeration, Flow, Pace, Pairs, Step, Trial, Tuples};

const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

/// Sets the number of the next frame, and what the program makes of a frame that begins as zeros.
fn made(live: &Live, number: u64, length: usize) -> Vec<u8> {
    live.variables.words()[live.done].store(number, Relaxed);
    let program = live.object.progs_mut().find(|program| program.name() == "transmit").unwrap();
    let (frame, mut out) = (vec![0; length], vec![0; 4096]);
    let input =
        ProgramInput { data_in: Some(&frame), data_out: Some(&mut out), ..Default::default() };
    program.test_run(input).unwrap().data.unwrap().to_vec()
}

fn trial(share: u8, networks: u16, size: u16, seed: u64) -> Trial {
    let side = |first: &str, shift| Addresses { first: first.parse().unwrap(), shift };
    let (client, server) = (side("2001:2:0:1::2", 64), side("198.19.0.2", 8));
    let translated = Pairs {
        forward: Flow { source: client, target: side("64:ff9b::198.19.0.2", 8) },
        reverse: Flow { source: server, target: side("198.18.0.2", 8) },
    };
    let far = side("2001:2:1:1::2", 64);
    let native = Pairs {
        forward: Flow { source: client, target: far },
        reverse: Flow { source: far, target: client },
    };
    let step = |rate, seconds| Step { rate, seconds };
    let steps = vec![step(1234.5, 3.0), step(77_777.7, 0.5), step(3.1, 400.0)];
    let mut trial = Trial::new(translated, size, Pace::Steps(steps));
    trial.reverse = trial.forward.clone();
    trial.native = Some(native);
    (trial.translated_share, trial.networks, trial.seed) = (share, networks, seed);
    trial
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The program and the plan are two ways to the same frames.
    #[test]
    fn the_program_makes_the_frames_of_the_plan(
        share in 0u8..=100, networks in 1u16..=256, size in prop_oneof![84u16..110, 84u16..1518], seed: u64, reverse: bool,
    ) {
        if !is_root() {
            return Ok(());
        }
        let mut live = Live::new(0).unwrap();
        let direction = if reverse { Direction::Reverse } else { Direction::Forward };
        let trial = trial(share, networks, size, seed);
        let plan = plan(&trial, direction, &Noted::default());
        // All frames are due by now, unless the machine has just started.
        let start = crate::now().saturating_sub(plan.length()).max(1);
        let tables = live.fill(&plan).unwrap();
        live.prepare(&plan, &tables, start, 32);
        let last = plan.total() - 1;
        let mut classes = [0, 0];
        for number in (0..200).chain(3600..3800).chain(last - 20..=last) {
            let time = start + plan.due(number);
            if time > crate::now() {
                continue;
            }
            let frame = plan.frame(number, time);
            let mut expected = vec![0; frame.length()];
            frame.write(&mut expected);
            classes[frame.class() as usize] += 1;
            prop_assert_eq!(made(&live, number, plan.longest(&tables)), expected, "frame {}", number);
        }
        prop_assert_eq!(live.sent().sent, classes);
        prop_assert_eq!(live.counter(2), 0, "frames that could not be made");
        let mut lateness = crate::tally::recorder().unwrap();
        live.lateness(&mut lateness);
        prop_assert_eq!(lateness.len(), classes.iter().sum::<u64>());
        prop_assert!(lateness.max() >= live.sent().worst);
    }
}

/// A plan whose frames are all due.
fn plan(trial: &Trial, direction: Direction, noted: &Noted) -> Plan {
    Plan::new(trial, 9, direction, MACS, noted).unwrap().unwrap()
}

/// Compares frames of the program with those of the plan that sockets send.
fn compare(live: &mut Live, plan: &Plan, numbers: impl Iterator<Item = u64>) {
    let start = crate::now().saturating_sub(plan.length()).max(1);
    let tables = live.fill(plan).unwrap();
    live.prepare(plan, &tables, start, 32);
    for number in numbers {
        let frame = plan.frame(number, start + plan.due(number));
        let mut expected = vec![0; frame.length()];
        frame.write(&mut expected);
        let found = made(live, number, plan.longest(&tables));
        assert_eq!(found, expected, "frame {number}");
        assert!(crate::frame::parse(&found).unwrap().intact);
    }
    assert_eq!(live.counter(2), 0, "frames that could not be made");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Connections are opened, and answered to wherever they were noted, in the order of sockets.
    #[test]
    fn the_program_makes_the_enumerated_tuples_of_the_plan(
        share in prop_oneof![Just(100u8), 1u8..100], networks in 1u16..4, sources in 1u16..60, targets in 1u16..20,
        size in 84u16..200, seed: u64, v6: bool, noted in 1usize..300,
    ) {
        if !is_root() {
            return Ok(());
        }
        let mut trial = trial(share, networks, size, seed);
        // Few enough to have all been due since the machine started.
        trial.forward = Pace::steady(10_000.0, 0.2);
        trial.reverse = trial.forward.clone();
        let flows = u32::from(sources) * u32::from(targets) * u32::from(networks);
        let enumeration =
            Enumeration { flows, source_ports: (2000, sources), target_ports: (1, targets) };
        trial.tuples = Tuples::Enumerated(enumeration);
        let mut live = Live::new(0).unwrap();
        let none = Noted::default();
        let forward = plan(&trial, Direction::Forward, &none);
        let turn = u64::from(flows) * 100 / u64::from(share);
        compare(&mut live, &forward, (0..150).chain(turn.saturating_sub(20)..turn + 20).filter(|it| *it < 2000));
        // The order is at its place, and is not written again; another seed's is another one.
        live.tuples.words()[0].store(u64::MAX, Relaxed);
        live.fill(&forward).unwrap();
        prop_assert_eq!(live.tuples.words()[0].load(Relaxed), u64::MAX);
        trial.seed ^= 1;
        compare(&mut live, &plan(&trial, Direction::Forward, &none), 0..150);
        let phase_2 = Trial { order: 1, ..trial.clone() };
        compare(&mut live, &plan(&phase_2, Direction::Forward, &none), 0..150);
        // A translator with several addresses, of either family.
        let noted: Vec<Tuple> = (0..noted as u64).map(|number| {
            let (low, port) = ((number.wrapping_mul(seed) % 7) as u8, (number * 31 % 60_000) as u16 + 1);
            let [source, target]: [IpAddr; 2] = if v6 {
                [[0x2001, 0xdb8, 0, 0, 0, 0, 0, low.into()], [0x2001, 0xdb8, 1, 0, 0, 0, 0, 2]].map(Into::into)
            } else {
                [[198, 51, 100, low], [198, 19, 0, 2]].map(Into::into)
            };
            Tuple { source, source_port: port, target, target_port: 80 + port % 3 }
        }).collect();
        let count = noted.len() as u64;
        let reverse = plan(&trial, Direction::Reverse, &Noted::new(noted));
        compare(&mut live, &reverse, (0..150).chain(count.saturating_sub(20)..count + 20));
        compare(&mut live, &forward, 0..150);
    }
}

#[test]
fn tables_grow_and_keep_what_is_in_them() {
    if !require(is_root(), "this test needs root") {
        return;
    }
    let mut live = Live::new(0).unwrap();
    let mut trial = trial(50, 2, 84, 1);
    trial.forward = Pace::steady(10_000.0, 0.2);
    let enumeration = Enumeration { flows: 40, source_ports: (2000, 20), target_ports: (1, 2) };
    trial.tuples = Tuples::Enumerated(enumeration);
    compare(&mut live, &plan(&trial, Direction::Forward, &Noted::default()), 0..200);
    // More templates than there is room for, and the same tuples.
    trial.networks = 256;
    compare(&mut live, &plan(&trial, Direction::Forward, &Noted::default()), 0..2000);
    trial.tuples = Tuples::Enumerated(Enumeration {
        flows: 2560,
        source_ports: (2000, 10),
        target_ports: (1, 1),
    });
    compare(&mut live, &plan(&trial, Direction::Forward, &Noted::default()), 0..2000);
}

#[test]
fn what_is_not_due_is_not_sent() {
    if !require(is_root(), "this test needs root") {
        return;
    }
    let mut live = Live::new(0).unwrap();
    let trial = trial(100, 1, 84, 1);
    let plan = Plan::new(&trial, 9, Direction::Forward, [[0; 6]; 2], &Noted::default());
    let plan = plan.unwrap().unwrap();
    let tables = live.fill(&plan).unwrap();
    live.prepare(&plan, &tables, crate::now() + 3_600_000_000_000, 32);
    assert!(made(&live, 0, plan.longest(&tables)).iter().all(|octet| *octet == 0));
    // Nor is what lies behind the last frame.
    live.prepare(&plan, &tables, 1, 32);
    assert!(made(&live, plan.total(), plan.longest(&tables)).iter().all(|octet| *octet == 0));
    assert_eq!(live.sent().sent, [0, 0]);
}

#[test]
fn buckets_hold_all_numbers_to_three_per_cent() {
    // The program's function, in Rust.
    let bucket = |ns: u64| {
        let bits = u64::BITS - (ns >> PRECISION).leading_zeros();
        let rest = if bits == 0 { ns } else { (ns >> (bits - 1)) & ((1 << PRECISION) - 1) };
        ((bits as usize) << PRECISION) + rest as usize
    };
    for shift in 0..63 {
        for ns in [1u64 << shift, (1 << shift) + (1 << shift) / 3, (1u64 << shift) * 2 - 1] {
            let found = greatest(bucket(ns));
            assert!(found >= ns && found - ns <= ns >> PRECISION, "{ns}: {found}");
        }
    }
    assert_eq!(greatest(bucket(u64::MAX)), u64::MAX);
    assert_eq!(greatest(bucket(0)), 0);
}
