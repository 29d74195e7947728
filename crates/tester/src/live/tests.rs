use fordway_testhost::{is_root, require};
use libbpf_rs::ProgramInput;
use proptest::prelude::*;

use super::*;
use crate::plan::Noted;
use crate::{Addresses, Direction, Flow, Pace, Pairs, Step, Trial};

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
        let live = Live::new(0).unwrap();
        let direction = if reverse { Direction::Reverse } else { Direction::Forward };
        let trial = trial(share, networks, size, seed);
        let macs = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
        let plan = Plan::new(&trial, 9, direction, macs, &Noted::default()).unwrap().unwrap();
        // All frames are due by now, unless the machine has just started.
        let start = crate::now().saturating_sub(plan.length()).max(1);
        prop_assert!(live.prepare(&plan, start, 32));
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
            prop_assert_eq!(made(&live, number, plan.longest()), expected, "frame {}", number);
        }
        prop_assert_eq!(live.sent().sent, classes);
        prop_assert_eq!(live.counter(2), 0, "frames that could not be made");
        let mut lateness = crate::tally::recorder().unwrap();
        live.lateness(&mut lateness);
        prop_assert_eq!(lateness.len(), classes.iter().sum::<u64>());
        prop_assert!(lateness.max() >= live.sent().worst);
    }
}

#[test]
fn what_is_not_due_is_not_sent() {
    if !require(is_root(), "this test needs root") {
        return;
    }
    let live = Live::new(0).unwrap();
    let trial = trial(100, 1, 84, 1);
    let plan = Plan::new(&trial, 9, Direction::Forward, [[0; 6]; 2], &Noted::default());
    let plan = plan.unwrap().unwrap();
    assert!(live.prepare(&plan, crate::now() + 3_600_000_000_000, 32));
    assert!(made(&live, 0, plan.longest()).iter().all(|octet| *octet == 0));
    // Nor is what lies behind the last frame.
    assert!(live.prepare(&plan, 1, 32));
    assert!(made(&live, plan.total(), plan.longest()).iter().all(|octet| *octet == 0));
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
