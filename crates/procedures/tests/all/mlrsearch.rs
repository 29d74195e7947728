//! MLRsearch finds the rates of quiet and of noisy devices.

use fordway_procedures::Session;
use fordway_procedures::mlrsearch::{Control, Goal, mlrsearch, search};
use fordway_procedures::tester::Load;
use proptest::prelude::*;

use crate::device::{Device, MAXIMUM, NO_WAITS, never, point};

const CONTROL: Control =
    Control { min_load: 1000.0, max_load: MAXIMUM, growth: 4.0, max_trials: 500 };

fn goals() -> [Goal; 2] {
    [Goal::rfc2544(60.0, 1.0, 0.005), Goal::partial(0.005, 60.0, 1.0, 0.005)]
}

#[test]
fn one_search_finds_the_rates_without_loss_and_with_half_a_per_cent() {
    let mut device = Device::limited(400_000.0);
    let mut session = Session::new(&mut device, NO_WAITS, &never);
    let found = mlrsearch(&mut session, &point(), &goals(), &CONTROL).unwrap().result;
    let [zero, half] = [&found.goals[0], &found.goals[1]];
    assert!(zero.is_regular && half.is_regular, "{found:?}");
    // What is offered at the lower bound of the second goal is 0.5 % more than what the device forwards.
    for (goal, truth) in [(zero, 400_000.0), (half, 400_000.0 / 0.995)] {
        let (lower, upper) = (goal.lower.unwrap(), goal.upper.unwrap());
        assert!(lower <= truth && truth <= upper && upper - lower <= 0.0051 * upper, "{goal:?}");
    }
    let throughput = half.conditional_throughput.unwrap();
    assert!((throughput - 400_000.0).abs() <= 0.0051 * 400_000.0, "{throughput}");
    assert_eq!(zero.conditional_throughput, zero.lower);
    assert_eq!(found.trials as usize, device.orders.len());
    assert!(found.trials <= 30, "{} trials", found.trials);
}

#[test]
fn the_lower_bound_rests_on_trials_of_final_duration() {
    // Short trials pass thanks to a buffer.
    let mut device = Device { buffer: 60_000.0, ..Device::limited(400_000.0) };
    let mut session = Session::new(&mut device, NO_WAITS, &never);
    let found = mlrsearch(&mut session, &point(), &goals()[..1], &CONTROL).unwrap().result;
    let (lower, upper) = (found.goals[0].lower.unwrap(), found.goals[0].upper.unwrap());
    assert!(lower <= 401_000.0 && upper >= 400_000.0 && found.goals[0].is_regular, "{found:?}");
    let full = Load::Constant { rate: lower, seconds: 60.0 };
    assert!(device.orders.iter().any(|order| order.load == full));
}

#[test]
fn a_device_as_fast_as_the_medium_has_an_irregular_result() {
    let mut device = Device::default();
    let mut session = Session::new(&mut device, NO_WAITS, &never);
    let found = mlrsearch(&mut session, &point(), &goals(), &CONTROL).unwrap().result;
    for goal in &found.goals {
        assert_eq!((goal.lower, goal.upper, goal.is_regular), (Some(MAXIMUM), None, false));
    }
}

#[test]
fn a_device_that_always_loses_has_a_rate_with_loss_alone() {
    let mut device = Device { every_lost: Some(1000), ..Device::limited(400_000.0) };
    let mut session = Session::new(&mut device, NO_WAITS, &never);
    let found = mlrsearch(&mut session, &point(), &goals(), &CONTROL).unwrap().result;
    let [zero, half] = [&found.goals[0], &found.goals[1]];
    assert_eq!((zero.lower, zero.is_regular), (None, false));
    assert!(half.is_regular && (half.lower.unwrap() - 401_600.0).abs() < 3000.0, "{half:?}");
}

#[test]
fn a_noisy_device_keeps_its_rate_where_one_bad_trial_of_two_is_borne() {
    let run = |goal: Goal, seed| {
        // One trial in twelve (both directions) loses a frame in a thousand for reasons of its own.
        let mut device = Device { noise: (0.04, 0.001), seed, ..Device::limited(400_000.0) };
        let mut session = Session::new(&mut device, NO_WAITS, &never);
        let found = mlrsearch(&mut session, &point(), &[goal], &CONTROL).unwrap().result;
        assert!(found.trials < CONTROL.max_trials, "seed {seed}: {} trials", found.trials);
        found.goals[0].lower.unwrap_or(0.0)
    };
    let verified = Goal { loss_ratio: 0.0, ..Goal::partial(0.0, 10.0, 1.0, 0.005) };
    let strict = Goal::rfc2544(10.0, 1.0, 0.005);
    let near = |rates: Vec<f64>| {
        assert!(rates.iter().all(|rate| *rate <= 400_000.0));
        rates.into_iter().filter(|rate| *rate > 0.98 * 400_000.0).count()
    };
    let (verified, strict) = (
        near((0..200).map(|seed| run(verified, seed)).collect()),
        near((0..200).map(|seed| run(strict, seed)).collect()),
    );
    assert!(verified >= 180 && verified > strict, "{verified} against {strict} of 200");
}

#[test]
fn the_search_ends_at_its_number_of_trials() {
    let mut trials = 0;
    let control = Control { max_trials: 7, ..CONTROL };
    let found = search(&goals(), &control, |load, _| {
        trials += 1;
        Ok::<f64, ()>((1.0 - 123_456.0 / load).max(0.0))
    })
    .unwrap();
    assert_eq!((trials, found.trials), (7, 7));
    assert!(found.goals.iter().any(|goal| !goal.is_regular));
}

#[test]
fn loss_inversion_is_judged_conservatively() {
    // A band of loads below the device's rate loses frames: the smallest upper bound is what counts.
    let found = search(&goals()[..1], &CONTROL, |load, _| {
        let bad = (200_000.0..210_000.0).contains(&load) || load > 400_000.0;
        Ok::<f64, ()>(if bad { 0.01 } else { 0.0 })
    })
    .unwrap();
    let goal = &found.goals[0];
    assert!(goal.lower < goal.upper && goal.is_regular, "{goal:?}");
}

proptest! {
    #[test]
    fn bounds_enclose_the_rate_of_any_device(
        rate in 2_000.0..950_000.0f64, buffer in 0.0..2000.0f64, width in 0.002..0.05f64, growth in 1.5..60.0f64,
    ) {
        let mut device = Device { buffer, ..Device::limited(rate) };
        let mut session = Session::new(&mut device, NO_WAITS, &never);
        let goals = [Goal::rfc2544(30.0, 1.0, width), Goal::partial(0.005, 30.0, 1.0, width)];
        let control = Control { growth, ..CONTROL };
        let found = mlrsearch(&mut session, &point(), &goals, &control).unwrap().result;
        for (goal, loss) in found.goals.iter().zip([0.0, 0.005]) {
            // In 30 s the buffer adds this much to the rate; a frame less is rounding.
            let truth = (rate + buffer / 30.0) / (1.0 - loss);
            let (lower, upper) = (goal.lower.unwrap(), goal.upper.unwrap());
            prop_assert!(goal.is_regular && lower <= truth + 1.0 && upper >= rate - 1.0, "{goal:?}");
            prop_assert!(upper >= truth * (1.0 - 1e-3) - 1.0 || buffer > 0.0, "{goal:?}");
        }
        prop_assert!(found.trials <= 80, "{} trials", found.trials);
    }
}
