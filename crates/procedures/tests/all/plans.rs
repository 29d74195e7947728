//! Profiles: departures follow from their values, and wall times told beforehand hold.

use fordway_procedures::Session;
use fordway_procedures::latency::Definition;
use fordway_procedures::plan::{self, Kind, benchmark, capacity, establishment, points};
use fordway_procedures::profile::Profile;
use fordway_procedures::stateful::{self, Tuples};
use fordway_procedures::suite::{Benchmark, measure};
use fordway_procedures::traffic::{Limit, Start};
use proptest::prelude::*;

use crate::device::{Device, Full, MAXIMUM, Table, never, point};

#[test]
fn strict_departs_from_nothing_but_a_missing_line_rate() {
    let strict = Profile::strict();
    assert_eq!(strict.departures(Limit::Theoretical), []);
    let departures = strict.departures(Limit::Calibrated);
    assert_eq!(departures.len(), 1);
    assert_eq!(departures[0].section, "RFC 8219 appendix A");
}

#[test]
fn each_shortened_value_is_a_departure() {
    type Change = (&'static str, fn(&mut Profile));
    let shorten: [Change; 13] = [
        ("RFC 8219 section 5.1.1", |it| it.sizes = vec![64]),
        ("RFC 8219 section 5.3", |it| it.mixes = vec![100]),
        ("RFC 2544 section 12", |it| it.networks = vec![1]),
        ("RFC 2544 section 23", |it| it.waits.settle = 1.0),
        ("RFC 2544 section 24", |it| it.throughput.full_s = 59.0),
        ("RFC 8219 section 7.2", |it| it.latency.seconds = 60.0),
        ("RFC 8219 section 7.2", |it| it.latency.tags = 499),
        ("RFC 8219 section 7.3", |it| it.variation.repetitions = 19),
        ("RFC 2544 section 26.4", |it| it.back_to_back.repetitions = 49),
        ("RFC 2544 section 26.5", |it| it.recovery.overload_s = 59.0),
        ("RFC 6201 section 4", |it| it.reset.before_s = 14.0),
        ("RFC 9693 section 6", |it| it.stateful.repetitions = 1),
        ("RFC 8219 section 10", |it| it.flows = 1),
    ];
    for (section, change) in shorten {
        let mut profile = Profile::strict();
        change(&mut profile);
        let found = profile.departures(Limit::Theoretical);
        let sections: Vec<&str> = found.iter().map(|it| it.section.as_str()).collect();
        assert_eq!(sections, [section]);
    }
}

#[test]
fn quick_takes_minutes_standard_hours_and_strict_days() {
    let hours = |profile: &Profile| {
        let n = profile.sizes.len() * profile.mixes.len() * profile.networks.len();
        points(profile, &Benchmark::ALL, &vec![MAXIMUM; n]).seconds / 3600.0
    };
    let all = ["quick", "standard", "strict"].map(|name| Profile::named(name).unwrap());
    let [quick, standard, strict] = all.each_ref().map(hours);
    assert!(quick < 0.5, "{quick} h");
    assert!((2.0..60.0).contains(&standard), "{standard} h");
    assert!((24.0..10_000.0).contains(&strict), "{strict} h");
    assert!(all[0].departures(Limit::Calibrated).len() > 15);
    assert_eq!(Profile::named("slow"), None);
}

#[test]
fn a_bound_stays_one_only_among_bounds() {
    let profile = Profile::strict();
    let cost = |chosen: &[Benchmark]| points(&profile, chosen, &[MAXIMUM, MAXIMUM]);
    assert_eq!(cost(&[Benchmark::Latency, Benchmark::FrameLossRate]).kind, Kind::UpperBound);
    assert_eq!(cost(&[Benchmark::Latency, Benchmark::Reset]).kind, Kind::Estimate);
    let latency = benchmark(&profile, Benchmark::Latency, MAXIMUM);
    assert_eq!((latency.trials, latency.seconds), (20, 20.0 * 129.0));
}

proptest! {
    #[test]
    fn no_device_takes_longer_than_the_upper_bound(
        rate in 500.0..1.2e6f64, buffer in 0.0..1e5f64, every in prop::option::of(1000..100_000_000u64),
    ) {
        let profile = Profile::standard();
        let chosen =
            [Benchmark::Latency, Benchmark::Variation, Benchmark::FrameLossRate, Benchmark::Recovery];
        let bound = points(&profile, &chosen, &[MAXIMUM]);
        prop_assert_eq!(bound.kind, Kind::UpperBound);
        let mut device = Device { buffer, every_lost: every, ..Device::limited(rate) };
        let mut session = Session::new(&mut device, profile.waits, &never);
        let definition = Definition::StoreAndForward;
        measure(&mut session, &point(), &profile, definition, &chosen).unwrap();
        prop_assert!(session.trials() <= bound.trials && session.seconds() <= bound.seconds + 1e-6);
    }
}

#[test]
fn flows_and_filled_tables_cost_their_time_in_every_trial() {
    let profile = Profile::strict();
    let chosen = [Benchmark::Latency];
    let one = points(&profile, &chosen, &[MAXIMUM]);
    let many = plan::overload(&profile, &chosen, MAXIMUM, 11, Start::Incremental(2.0));
    // Flows: 1, 3, 6, 9, 11; the last of them start after 4, 10, 16, 20 s.
    assert_eq!(many.trials, 5 * one.trials);
    let ramps = (4.0 + 10.0 + 16.0 + 20.0) * one.trials as f64;
    assert!((many.seconds - 5.0 * one.seconds - ramps).abs() < 1e-6);
    let filled = plan::over_filled_table(one, &profile, 4_000_000, 400_000.0);
    assert_eq!(filled.seconds - one.seconds, 12.0 * one.trials as f64);
    let torn_down = plan::tear_down(&profile, 4_000_000, 400_000.0);
    assert_eq!((torn_down.trials, torn_down.seconds), (10, 120.0));
}

#[test]
fn estimates_are_of_the_order_of_what_is_run() {
    let profile = Profile::standard();
    let chosen = [Benchmark::Mlrsearch, Benchmark::BackToBack, Benchmark::Reset];
    let told = points(&profile, &chosen, &[MAXIMUM]);
    let mut device = Device { buffer: 500.0, ..Device::limited(400_000.0) };
    let mut session = Session::new(&mut device, profile.waits, &never);
    let definition = Definition::StoreAndForward;
    measure(&mut session, &point(), &profile, definition, &chosen).unwrap();
    let ratio = session.seconds() / told.seconds;
    assert!((0.2..2.0).contains(&ratio), "{ratio}");

    let mut device = Device::default();
    device.table =
        Table { capacity: 20_000, full: Full::KeepsOld, rate: 100_000.0, ..device.table };
    let profile = Profile::quick();
    let mut session = Session::new(&mut device, profile.waits, &never);
    let tuples = Tuples::at_least(5000).unwrap();
    let told = establishment(&profile, 5000, 1_000_000, 100_000.0);
    stateful::establishment(&mut session, tuples, 1_000_000, &profile.stateful, 1).unwrap();
    let ratio = session.seconds() / told.seconds;
    assert!((0.2..2.0).contains(&ratio) && told.kind == Kind::Estimate, "{ratio}");
    let mut session = Session::new(&mut device, profile.waits, &never);
    let told = capacity(&profile, 5000, 20_000, 1_000_000, 100_000.0);
    stateful::capacity(&mut session, 5000, 1 << 20, 1_000_000, &profile.stateful, 1).unwrap();
    let ratio = session.seconds() / told.seconds;
    assert!((0.2..2.0).contains(&ratio), "{ratio}");
}
