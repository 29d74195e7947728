//! The tests of RFC 9693 find what the device's table is made of.

use fordway_procedures::stateful::{
    Established, Filling, Parameters, Tuples, capacity, establishment, over_filled_table, step,
    tear_down,
};
use fordway_procedures::throughput::{self, throughput};
use fordway_procedures::{Ended, Session};
use proptest::prelude::*;

use crate::device::{Device, Full, NO_WAITS, Table, never, point};

const PARAMETERS: Parameters = Parameters {
    rate_error: 100,
    alpha: 0.5,
    fill: 0.5,
    beta: 0.1,
    gamma: 0.5,
    capacity_error: 50,
    repetitions: 1,
    gap_s: 1.0,
};

fn table(capacity: u64, full: Full, rate: f64) -> Device {
    let mut device = Device::limited(400_000.0);
    device.table = Table { capacity, full, rate, tear_down_rate: 250_000.0, ..device.table };
    device
}

fn tuples(connections: u64) -> Tuples {
    Tuples::at_least(connections).expect("few connections")
}

fn filling(connections: u64, rate: f64) -> Filling {
    Filling { tuples: tuples(connections), connections, seed: 3, rate }
}

#[test]
fn the_establishment_rate_is_that_of_the_device() {
    let mut device = table(u64::MAX, Full::KeepsOld, 123_456.0);
    let mut session = Session::new(&mut device, NO_WAITS, &never);
    let parameters = Parameters { repetitions: 5, ..PARAMETERS };
    let found = establishment(&mut session, tuples(2000), 1_000_000, &parameters, 9).unwrap();
    assert!(found.rate.max <= 123_456.0 && found.rate.min >= 123_356.0, "{:?}", found.rate);
    assert_eq!((found.rate.n(), found.connections), (5, 2000));
    // Each repetition has an order of its own, and each step begins with an empty table.
    let seeds: std::collections::BTreeSet<u64> = device.fillings.iter().map(|it| it.seed).collect();
    assert_eq!(seeds.len(), 5);
    assert!(
        device.steps.iter().zip(&device.steps[1..]).all(|(a, b)| *b != "fill" || *a == "empty")
    );
}

#[test]
fn a_device_that_collapses_has_no_establishment_rate() {
    let mut device = table(1999, Full::Collapses, 123_456.0);
    let mut session = Session::new(&mut device, NO_WAITS, &never);
    let parameters = Parameters { repetitions: 2, ..PARAMETERS };
    let found = establishment(&mut session, tuples(2000), 1_000_000, &parameters, 9).unwrap();
    assert_eq!((found.rate.median, found.searches), (0.0, vec![None; 2]));
    assert_eq!(device.steps, ["empty", "fill", "restore"].repeat(2));
}

#[test]
fn connections_that_are_not_stored_fail_the_validation() {
    let mut device = table(u64::MAX, Full::KeepsOld, 500_000.0);
    device.table.store_rate = 80_000.0;
    let mut session = Session::new(&mut device, NO_WAITS, &never);
    let found = establishment(&mut session, tuples(2000), 1_000_000, &PARAMETERS, 1).unwrap();
    assert!((79_900.0..=80_000.0).contains(&found.rate.median), "{:?}", found.rate);
    let found = step(&mut session, &filling(2000, 200_000.0), &PARAMETERS);
    assert_eq!(found, Ok(Established::Unvalidated(1)));
    assert_eq!(step(&mut session, &filling(2000, 70_000.0), &PARAMETERS), Ok(Established::All));
    let found = step(&mut session, &filling(2000, 600_000.0), &PARAMETERS);
    assert_eq!(found, Ok(Established::LostInPhase1));
}

#[test]
fn no_connection_times_out_between_phase_1_and_its_validation() {
    // The simulated device refuses to run a phase that takes longer than its timeout.
    let mut device = table(u64::MAX, Full::KeepsOld, f64::INFINITY);
    let mut session = Session::new(&mut device, NO_WAITS, &never);
    assert_eq!(step(&mut session, &filling(3000, 100.0), &PARAMETERS), Ok(Established::All));
    // 30 s of phase 1, 60 s of validation, 1 s in between.
    assert_eq!(device.timeout_s, 91.0);
}

#[test]
fn the_capacity_is_found_whatever_a_full_table_does() {
    for full in [Full::KeepsOld, Full::Replaces, Full::Collapses] {
        let mut device = table(12_345, full, 100_000.0);
        let mut session = Session::new(&mut device, NO_WAITS, &never);
        let found = capacity(&mut session, 1000, 1 << 20, 1_000_000, &PARAMETERS, 5).unwrap();
        let beyond = found.beyond.unwrap();
        assert!(found.capacity <= 12_345 && beyond > 12_345, "{full:?}: {found:?}");
        assert!(beyond - found.capacity <= 50);
        assert!((99_900..=100_000).contains(&found.safe_rate));
        let doubled: Vec<u64> = found.steps.iter().map(|it| it.connections).take(5).collect();
        assert_eq!(doubled, [1000, 2000, 4000, 8000, 16_000]);
        let restored = device.steps.iter().filter(|it| **it == "restore").count();
        let collapsed = found.steps.iter().filter(|it| it.collapsed).count();
        let beyond = found.steps.iter().filter(|it| it.is_beyond).count();
        assert_eq!(collapsed, if full == Full::Collapses { beyond } else { 0 });
        assert_eq!(restored, collapsed);
    }
}

#[test]
fn a_rate_may_drop_further_from_doubling_than_within_the_last_interval() {
    let run = |hard| {
        let mut device = table(hard, Full::KeepsOld, 100_000.0);
        device.table.slower = (3000, 0.3);
        let mut session = Session::new(&mut device, NO_WAITS, &never);
        capacity(&mut session, 1000, 1 << 20, 1_000_000, &PARAMETERS, 5).unwrap().capacity
    };
    // 30 % is more than beta: doubling goes on to the hard end. It is less than gamma: within 2000 to 4000 it is the end.
    assert!((19_950..=20_000).contains(&run(20_000)));
    assert!((2950..=3000).contains(&run(3900)));
}

#[test]
fn rates_below_the_unacceptable_one_are_not_tried() {
    let mut device = table(1500, Full::KeepsOld, 100_000.0);
    let mut session = Session::new(&mut device, NO_WAITS, &never);
    let found = capacity(&mut session, 1000, 1 << 20, 1 << 20, &PARAMETERS, 5).unwrap();
    // From the second number of connections on, no rate is below half of beta times the rate before.
    let least = |of: std::ops::Range<u64>| {
        let there = device.fillings.iter().filter(|it| of.contains(&it.connections));
        there.map(|it| it.rate).fold(f64::INFINITY, f64::min) / found.safe_rate as f64
    };
    assert!(least(1001..u64::MAX) >= 0.049, "{}", least(1001..u64::MAX));
    // In the last interval gamma is a half, the first rate below the highest: the search ends with it.
    assert!(least(1001..2000) >= 0.49, "{}", least(1001..2000));
}

#[test]
fn a_table_larger_than_what_may_be_tried_has_no_upper_end() {
    let mut device = table(u64::MAX, Full::KeepsOld, 100_000.0);
    let mut session = Session::new(&mut device, NO_WAITS, &never);
    let found = capacity(&mut session, 1000, 5000, 1_000_000, &PARAMETERS, 5).unwrap();
    assert_eq!((found.capacity, found.beyond), (5000, None));
}

#[test]
fn a_safe_number_that_is_not_safe_is_refused() {
    let mut device = table(500, Full::Collapses, 100_000.0);
    let mut session = Session::new(&mut device, NO_WAITS, &never);
    let found = capacity(&mut session, 1000, 5000, 1_000_000, &PARAMETERS, 5);
    assert!(matches!(found, Err(Ended::Precondition(_))), "{found:?}");
}

#[test]
fn the_tear_down_rate_is_connections_through_the_time_of_deletion() {
    let mut device = table(u64::MAX, Full::KeepsOld, 100_000.0);
    let mut session = Session::new(&mut device, NO_WAITS, &never);
    for connections in [1000, 10_000] {
        let filling = filling(connections, 50_000.0);
        let found = tear_down(&mut session, &filling, 1.0, 3).unwrap();
        assert_eq!((found.connections, found.rate.n()), (connections, 3));
        assert_eq!(found.rate.median.round(), 250_000.0);
    }
    assert_eq!(device.steps[..3], ["empty", "fill", "delete"]);
}

#[test]
fn the_classic_benchmarks_run_over_a_table_that_is_full_before_each_trial() {
    let mut device = table(u64::MAX, Full::KeepsOld, 100_000.0);
    let mut session = Session::new(&mut device, NO_WAITS, &never);
    let parameters = throughput::Parameters {
        short_s: 1.0,
        full_s: 60.0,
        precision: 0.05,
        least: 0.01,
        repetitions: 1,
    };
    let filling = filling(2000, 50_000.0);
    let found = over_filled_table(&mut session, &filling, 1.0, |session| {
        throughput(session, &point(), &parameters)
    });
    let rate = found.unwrap().rate.median;
    assert!((380_000.0..=400_000.0).contains(&rate), "{rate}");
    // A trial of a minute and 0.04 s of phase 1.
    assert!(session.trials() > 0 && session.seconds() > 60.04);
    let trials = device.orders.len();
    assert_eq!(device.fillings.len(), trials);
    assert_eq!(device.steps, ["empty", "fill"].repeat(trials));
    assert!(device.timeout_s > 60.0, "phase 2 outlasts connections");
}

#[test]
fn a_filling_that_loses_a_frame_by_chance_is_done_anew() {
    let over = |unlucky| {
        let mut device = table(u64::MAX, Full::KeepsOld, 100_000.0);
        device.table.unlucky = unlucky;
        let mut session = Session::new(&mut device, NO_WAITS, &never);
        let filling = filling(2000, 50_000.0);
        let forwards = over_filled_table(&mut session, &filling, 1.0, |session| {
            session.passes(&point().traffic, 1000.0, 1.0)
        });
        let deletes = tear_down(&mut session, &filling, 1.0, 1).map(|found| found.connections);
        let refilled = session.refilled();
        (forwards, deletes, (refilled, device.steps))
    };
    let (forwards, deletes, (refilled, steps)) = over(2);
    assert_eq!((forwards, deletes, refilled), (Ok(true), Ok(2000), 2));
    assert_eq!(steps, [["empty", "fill"].repeat(4), vec!["delete"]].concat());
    let (forwards, deletes, _) = over(3);
    assert_eq!(forwards, Err(Ended::NotFilled { sent: 2000, received: 1999 }));
    assert_eq!(deletes, Ok(2000));
    let (_, deletes, (refilled, _)) = over(6);
    assert_eq!(deletes, Err(Ended::NotFilled { sent: 2000, received: 1999 }));
    assert_eq!(refilled, 4);
}

#[test]
fn a_table_that_is_not_full_ends_phase_2() {
    let mut device = table(u64::MAX, Full::KeepsOld, 10_000.0);
    let mut session = Session::new(&mut device, NO_WAITS, &never);
    let found = over_filled_table(&mut session, &filling(2000, 20_000.0), 1.0, |session| {
        session.passes(&point().traffic, 1000.0, 1.0)
    });
    assert_eq!(found, Err(Ended::NotFilled { sent: 2000, received: 1000 }));
    let part = Filling { connections: 1999, ..filling(2000, 5000.0) };
    let found = over_filled_table(&mut session, &part, 1.0, |session| {
        session.passes(&point().traffic, 1000.0, 1.0)
    });
    assert!(matches!(found, Err(Ended::Precondition(_))), "{found:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_table_is_measured_within_the_errors(
        size in 600..5000u64, rate in 20_000.0..300_000.0f64, safe in 300..600u64,
        full in prop_oneof![Just(Full::KeepsOld), Just(Full::Replaces), Just(Full::Collapses)],
    ) {
        let mut device = table(size, full, rate);
        let mut session = Session::new(&mut device, NO_WAITS, &never);
        let found = capacity(&mut session, safe, 1 << 20, 1_000_000, &PARAMETERS, size).unwrap();
        let beyond = found.beyond.unwrap();
        prop_assert!(found.capacity <= size && size < beyond && beyond - found.capacity <= 50);
        let error = rate - found.safe_rate as f64;
        prop_assert!((0.0..=100.0).contains(&error), "{} of {rate}", found.safe_rate);
    }
}
