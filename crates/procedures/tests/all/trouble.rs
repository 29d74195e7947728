//! Cancellation, broken testers, and generators that are too slow.

use fordway_procedures::distribution::Distribution;
use fordway_procedures::latency::{self, Definition, latency};
use fordway_procedures::overload::Dimension;
use fordway_procedures::profile::Profile;
use fordway_procedures::stateful::{Tuples, establishment};
use fordway_procedures::suite::{Benchmark, measure};
use fordway_procedures::tester::{Order, Outcome, Stream, Tester};
use fordway_procedures::throughput::throughput;
use fordway_procedures::traffic::{Direction, Maximum, Point, Traffic};
use fordway_procedures::{Ended, Session, variation};
use proptest::prelude::*;

use crate::device::{Broken, Device, NO_WAITS, never, point};

/// Returns one outcome, whatever is ordered.
struct Says(Vec<Stream>);

impl Tester for Says {
    type Error = Broken;

    fn run(&mut self, _: &Order) -> Result<Outcome, Broken> {
        Ok(Outcome { streams: self.0.clone() })
    }

    fn restore(&mut self) -> Result<(), Broken> {
        Ok(())
    }
}

fn forward() -> Traffic {
    Traffic { direction: Direction::Forward, ..point().traffic }
}

#[test]
fn cancellation_ends_a_procedure_before_the_next_trial() {
    let profile = Profile::quick();
    let asked = std::cell::Cell::new(0);
    let cancelled = || asked.replace(asked.get() + 1) >= 5;
    let mut device = Device::limited(400_000.0);
    let mut session = Session::new(&mut device, NO_WAITS, &cancelled);
    let found = throughput(&mut session, &point(), &profile.throughput);
    assert_eq!((found, device.orders.len()), (Err(Ended::Cancelled), 5));
    let mut session = Session::new(&mut device, NO_WAITS, &cancelled);
    let tuples = Tuples::at_least(100).unwrap();
    let found = establishment(&mut session, tuples, 1000, &profile.stateful, 1);
    assert_eq!((found, device.fillings.len()), (Err(Ended::Cancelled), 0));
}

proptest! {
    #[test]
    fn a_tester_that_breaks_at_any_trial_ends_all_benchmarks(at in 1..60u64) {
        let mut device = Device { breaks_at: Some(at), buffer: 100.0, ..Device::limited(400_000.0) };
        let mut session = Session::new(&mut device, NO_WAITS, &never);
        let all = Benchmark::ALL;
        let definition = Definition::StoreAndForward;
        let found = measure(&mut session, &point(), &Profile::quick(), definition, &all);
        prop_assert_eq!(found.map(|_| ()), Err(Ended::Tester(Broken)));
        prop_assert_eq!(device.orders.len() as u64, at);
    }
}

#[test]
fn more_frames_received_than_sent_are_no_result() {
    let mut tester = Says(vec![Stream::counted(Direction::Forward, 100, 101)]);
    let mut session = Session::new(&mut tester, NO_WAITS, &never);
    let found = session.passes(&forward(), 100.0, 1.0);
    assert_eq!(found, Err(Ended::Counts { sent: 100, received: 101 }));
}

#[test]
fn a_report_without_a_stream_for_each_direction_is_no_result() {
    for streams in [
        vec![],
        vec![Stream::counted(Direction::Forward, 100, 100)],
        vec![Stream::counted(Direction::Forward, 100, 100); 2],
    ] {
        let mut tester = Says(streams);
        let mut session = Session::new(&mut tester, NO_WAITS, &never);
        let found = session.passes(&point().traffic, 100.0, 1.0);
        assert!(matches!(found, Err(Ended::Missing(_))), "{found:?}");
    }
}

#[test]
fn delays_that_were_ordered_and_are_missing_are_no_result() {
    let parameters =
        latency::Parameters { seconds: 1.0, tags_after_s: 0.5, tags: 10, repetitions: 1 };
    for delays in [None, Some(Distribution::default())] {
        let stream = Stream { delays, ..Stream::counted(Direction::Forward, 100, 100) };
        let mut tester = Says(vec![stream]);
        let mut session = Session::new(&mut tester, NO_WAITS, &never);
        let definition = Definition::BitForwarding;
        let found = latency(&mut session, &forward(), 100.0, definition, &parameters);
        assert!(matches!(found, Err(Ended::Missing(_))), "{found:?}");
        let parameters = variation::Parameters { seconds: 1.0, repetitions: 1 };
        let found = variation::variation(&mut session, &forward(), 100.0, &parameters);
        assert!(matches!(found, Err(Ended::Missing(_))), "{found:?}");
    }
}

#[test]
fn a_rate_that_the_generator_does_not_reach_has_not_passed() {
    // The device forwards everything, but only 300,000 frames/s are offered.
    let mut device = Device { generator: 300_000.0, ..Device::default() };
    let mut session = Session::new(&mut device, NO_WAITS, &never);
    let found = throughput(&mut session, &point(), &Profile::standard().throughput).unwrap();
    assert!((297_000.0..305_000.0).contains(&found.rate.median), "{:?}", found.rate);
    let parameters = variation::Parameters { seconds: 1.0, repetitions: 1 };
    let found = variation::variation(&mut session, &point().traffic, 400_000.0, &parameters);
    let (sent, intended) = (600_000, 800_000);
    assert_eq!(found, Err(Ended::Generator { sent, intended, attempts: 3 }));
}

#[test]
fn all_benchmarks_of_a_point_are_measured_and_scored() {
    let mut device = Device {
        buffer: 2000.0,
        jitter_ns: 10_000,
        recovery_s: 0.5,
        reset_s: Some(0.25),
        ..Device::limited(400_000.0)
    };
    let mut session = Session::new(&mut device, NO_WAITS, &never);
    let (profile, definition) = (Profile::quick(), Definition::StoreAndForward);
    let all = Benchmark::ALL;
    let found = measure(&mut session, &point(), &profile, definition, &all).unwrap();
    let scores = found.scores();
    assert_eq!(scores.len(), 11, "{scores:?}");
    let of = |dimension| scores.iter().find(|it| it.dimension == dimension).unwrap().value;
    assert!((of(Dimension::Reset) - 250.0).abs() < 1e-3 && of(Dimension::Recovery) == 0.5);
    assert!((of(Dimension::BackToBack) - 3333.0).abs() <= 65.0);
    assert!((of(Dimension::TypicalLatency) - 0.105).abs() < 1e-4);
    // What is read back is what was measured.
    let text = serde_json::to_string(&found).unwrap();
    let again: fordway_procedures::suite::Results = serde_json::from_str(&text).unwrap();
    assert_eq!(again.frame_loss_rate.unwrap().curve.len(), 8);
    assert_eq!(again.reset.unwrap().directions[1].direction, Direction::Reverse);
    assert_eq!(again.latency.unwrap().directions[0].tags, 10_000);
}

#[test]
fn without_throughput_nothing_is_measured_at_it() {
    let mut device = Device { every_lost: Some(3), ..Device::default() };
    let mut session = Session::new(&mut device, NO_WAITS, &never);
    let (profile, definition) = (Profile::quick(), Definition::StoreAndForward);
    let all = Benchmark::ALL;
    let found = measure(&mut session, &point(), &profile, definition, &all).unwrap();
    assert_eq!(found.throughput.rate.median, 0.0);
    assert!(found.latency.is_none() && found.recovery.is_none() && found.reset.is_none());
    assert_eq!(found.frame_loss_rate.unwrap().curve.len(), 10);
    let least = Point { maximum: Maximum { rate: 0.5, ..point().maximum }, ..point() };
    let found = throughput(&mut session, &least, &profile.throughput).unwrap();
    assert!(found.rate.median <= 0.5);
}
