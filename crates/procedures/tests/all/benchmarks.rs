//! Each benchmark of RFC 8219 section 7 and 10 finds what the device is made of.

use fordway_procedures::latency::{self, Definition, latency};
use fordway_procedures::overload::{Dimension, Score, overload};
use fordway_procedures::tester::{Load, Order, Record, Waits};
use fordway_procedures::throughput::{self, throughput};
use fordway_procedures::traffic::{Direction, Flows, Point, Start, Traffic};
use fordway_procedures::variation::{self, variation};
use fordway_procedures::{Session, back_to_back, frame_loss_rate, recovery, reset};

use crate::device::{Device, MAXIMUM, NO_WAITS, never, point};

const THROUGHPUT: throughput::Parameters = throughput::Parameters {
    short_s: 1.0,
    full_s: 60.0,
    precision: 0.01,
    least: 1e-3,
    repetitions: 3,
};

fn is_near(found: f64, truth: f64, error: f64) -> bool {
    (found - truth).abs() <= error * truth
}

#[test]
fn throughput_is_the_device_s_rate() {
    let mut device = Device::limited(412_345.0);
    let mut session = Session::new(&mut device, NO_WAITS, &never);
    let found = throughput(&mut session, &point(), &THROUGHPUT).unwrap();
    assert!(found.rate.max <= 412_345.0 && is_near(found.rate.min, 412_345.0, 0.01), "{found:?}");
    assert_eq!((found.rate.n(), found.at_maximum), (3, false));
    assert_eq!(found.bits_per_second, found.rate.median * 84.0 * 8.0);
    assert!(device.orders.iter().all(|it| it.traffic.direction == Direction::Both));
}

#[test]
fn the_last_counted_trial_of_throughput_has_full_length() {
    // The buffer carries trials of a second at 450,000 frames/s, but not those of a minute.
    let mut device = Device { buffer: 50_000.0, ..Device::limited(400_000.0) };
    let mut session = Session::new(&mut device, NO_WAITS, &never);
    let found = throughput(&mut session, &point(), &THROUGHPUT).unwrap();
    assert!(is_near(found.rate.median, 400_000.0, 0.011), "{:?}", found.rate);
    let rate = found.searches[0].unwrap().rate;
    let full = Load::Constant { rate, seconds: 60.0 };
    assert!(device.orders.iter().any(|order| order.load == full));
    let short = |load| matches!(load, Load::Constant { seconds, .. } if seconds == 1.0);
    assert!(device.orders.iter().any(|order| short(order.load)));
}

#[test]
fn a_device_that_always_loses_frames_has_no_throughput() {
    let mut device = Device { every_lost: Some(100), ..Device::default() };
    let mut session = Session::new(&mut device, NO_WAITS, &never);
    let found = throughput(&mut session, &point(), &THROUGHPUT).unwrap();
    assert_eq!((found.rate.median, found.searches[0]), (0.0, None));
}

#[test]
fn a_device_as_fast_as_the_medium_is_at_the_maximum() {
    let mut device = Device::default();
    let mut session = Session::new(&mut device, NO_WAITS, &never);
    let found = throughput(&mut session, &point(), &THROUGHPUT).unwrap();
    assert_eq!((found.rate.median, found.at_maximum), (MAXIMUM, true));
}

#[test]
fn latency_is_median_and_worst_case_of_tagged_frames() {
    let mut device = Device { delay_ns: 50_000, jitter_ns: 999_000, ..Device::default() };
    let mut session = Session::new(&mut device, NO_WAITS, &never);
    let parameters =
        latency::Parameters { seconds: 120.0, tags_after_s: 60.0, tags: 10_000, repetitions: 20 };
    let traffic = point().traffic;
    let found =
        latency(&mut session, &traffic, 1e5, Definition::StoreAndForward, &parameters).unwrap();
    for one in &found.directions {
        // Delays from 0.05 ms to 1.049 ms in steps of 1 µs.
        assert!((one.typical_ms.median - 0.5495).abs() < 1e-9, "{one:?}");
        assert!((one.worst_case_ms.median - 1.048).abs() < 1e-9, "{one:?}");
        assert_eq!((one.typical_ms.n(), one.tags), (20, 10_000));
        assert_eq!(one.histogram.iter().map(|(_, frames)| frames).sum::<u64>(), 10_000);
    }
    assert_eq!(found.directions.len(), 2);
    let order = &device.orders[0];
    assert_eq!(order.record, Record::Tags { after: 60.0, frames: 10_000 });
    assert_eq!(
        (order.load, device.orders.len()),
        (Load::Constant { rate: 1e5, seconds: 120.0 }, 20)
    );
}

#[test]
fn delay_variation_is_that_of_all_frames() {
    let mut device = Device { delay_ns: 200_000, jitter_ns: 1_998_000, ..Device::default() };
    let mut session = Session::new(&mut device, NO_WAITS, &never);
    let parameters = variation::Parameters { seconds: 60.0, repetitions: 20 };
    let found = variation(&mut session, &point().traffic, 1000.0, &parameters).unwrap();
    let one = &found.directions[0];
    // Delays rise from 0.2 ms in 999 steps of 2 µs: the 999th of a thousand is 998 steps above the least.
    assert!((one.pdv_ms.median - 1.996).abs() < 1e-9, "{one:?}");
    let (min, median, max) = (&one.ipdv_ms.min, &one.ipdv_ms.median, &one.ipdv_ms.max);
    assert_eq!((min.median, median.median, max.median), (-1.998, 0.002, 0.002));
    assert_eq!((one.pdv_ms.n(), min.n()), (20, 20));
    assert!(device.orders.iter().all(|it| it.record == Record::Every && it.seconds() == 60.0));
}

#[test]
fn the_frame_loss_rate_ends_after_two_lossless_trials() {
    let mut device = Device::limited(750_000.0);
    let mut session = Session::new(&mut device, NO_WAITS, &never);
    let parameters = frame_loss_rate::Parameters { seconds: 60.0, step: 10 };
    let found = frame_loss_rate::frame_loss_rate(&mut session, &point(), &parameters).unwrap();
    let curve: Vec<(u8, f64)> =
        found.curve.iter().map(|it| (it.offered, (it.loss * 100.0).round() / 100.0)).collect();
    assert_eq!(curve, [(100, 25.0), (90, 16.67), (80, 6.25), (70, 0.0), (60, 0.0)]);
    assert_eq!(found.curve[1].rate, 900_000.0);
}

#[test]
fn one_lossless_trial_between_others_does_not_end_the_frame_loss_rate() {
    // Of 110 million frames one is lost; a trial at 100 % has 120 million.
    let mut device = Device { every_lost: Some(110_000_000), ..Device::default() };
    let mut session = Session::new(&mut device, NO_WAITS, &never);
    let parameters = frame_loss_rate::Parameters { seconds: 60.0, step: 10 };
    let found = frame_loss_rate::frame_loss_rate(&mut session, &point(), &parameters).unwrap();
    let lossless: Vec<u8> =
        found.curve.iter().filter(|it| it.loss == 0.0).map(|it| it.offered).collect();
    assert_eq!((lossless, found.curve.len()), (vec![80, 50, 30, 20], 9));
}

#[test]
fn back_to_back_frames_give_the_size_of_the_buffer() {
    // A burst of L frames takes L / 1e6 s in which 400,000 L / 1e6 leave: 3000 frames fill the buffer at L = 5000.
    let mut device = Device { buffer: 3000.0, ..Device::limited(400_000.0) };
    let mut session = Session::new(&mut device, NO_WAITS, &never);
    let parameters =
        back_to_back::Parameters { limit_s: 2.0, step: 1, verifications: 0, repetitions: 50 };
    let found = back_to_back::back_to_back(&mut session, &point(), 400_000.0, &parameters);
    let found = found.unwrap().unwrap();
    assert!((found.frames.average - 5000.0).abs() <= 2.0, "{:?}", found.frames);
    assert!((found.implied_buffer_s - 0.005).abs() < 1e-5);
    assert!((found.corrected_buffer_s - 0.003).abs() < 1e-5);
    assert!((found.actual_buffer_s(200_000.0) - 0.015).abs() < 5e-5);
    assert_eq!((found.frames.n(), found.frames.stddev, found.near_limit), (50, 0.0, false));
    // Two seconds for buffers to deplete, whatever the session waits.
    assert!(device.orders.iter().all(|order| order.waits.residual >= 2.0));
}

#[test]
fn bursts_near_the_limit_raise_it() {
    let mut device = Device { buffer: 3e6, ..Device::limited(400_000.0) };
    let mut session = Session::new(&mut device, NO_WAITS, &never);
    let parameters =
        back_to_back::Parameters { limit_s: 2.0, step: 1000, verifications: 0, repetitions: 2 };
    let found = back_to_back::back_to_back(&mut session, &point(), 400_000.0, &parameters);
    let found = found.unwrap().unwrap();
    assert!(is_near(found.frames.average, 5e6, 0.001), "{found:?}");
    assert_eq!((found.limit_s, found.near_limit), (8.0, false));
    // Buffers get as long to deplete as it took to send.
    assert!(device.orders.iter().all(|order| order.waits.residual >= order.seconds().max(2.0)));
    let mut endless = Device { buffer: 1e9, ..Device::limited(400_000.0) };
    let mut session = Session::new(&mut endless, NO_WAITS, &never);
    let found = back_to_back::back_to_back(&mut session, &point(), 400_000.0, &parameters);
    let found = found.unwrap().unwrap();
    assert_eq!((found.limit_s, found.near_limit), (30.0, true));
}

#[test]
fn a_frame_size_without_a_bottleneck_has_no_longest_burst() {
    let mut device = Device::default();
    let mut session = Session::new(&mut device, NO_WAITS, &never);
    let parameters =
        back_to_back::Parameters { limit_s: 2.0, step: 1, verifications: 0, repetitions: 1 };
    let found = back_to_back::back_to_back(&mut session, &point(), MAXIMUM, &parameters);
    assert_eq!(found.unwrap(), None);
    assert_eq!(device.orders.len(), 0);
}

#[test]
fn loss_verification_repeats_a_burst_that_lost_frames() {
    let run = |verifications| {
        // A tenth of the trials suffers a disturbance that has nothing to do with the buffer.
        let mut device =
            Device { buffer: 3000.0, noise: (0.1, 1e-4), ..Device::limited(400_000.0) };
        let mut session = Session::new(&mut device, NO_WAITS, &never);
        let parameters =
            back_to_back::Parameters { limit_s: 0.1, step: 10, verifications, repetitions: 50 };
        let found = back_to_back::back_to_back(&mut session, &point(), 400_000.0, &parameters);
        found.unwrap().unwrap().frames
    };
    let (plain, verified) = (run(0), run(3));
    assert!((verified.median - 5000.0).abs() <= 11.0 && verified.average > plain.average);
    assert!(plain.min < 4000.0, "{plain:?}");
}

#[test]
fn system_recovery_counts_from_the_change_of_the_rate() {
    let mut device = Device { recovery_s: 3.5, ..Device::limited(400_000.0) };
    let mut session = Session::new(&mut device, NO_WAITS, &never);
    let parameters = recovery::Parameters { overload_s: 60.0, relief_s: 60.0, repetitions: 5 };
    let found = recovery::recovery(&mut session, &point(), 400_000.0, &parameters).unwrap();
    assert_eq!((found.seconds.average, found.seconds.n(), found.not_recovered), (3.5, 5, 0));
    assert!((found.overload - 440_000.0).abs() < 1e-6);
    let Load::Step { first, seconds, then, .. } = device.orders[0].load else { panic!("no step") };
    assert_eq!((first, then, seconds), (found.overload, found.overload / 2.0, 60.0));
}

#[test]
fn overload_is_no_more_than_the_maximum_rate_and_no_loss_is_no_recovery() {
    let mut device = Device::default();
    let mut session = Session::new(&mut device, NO_WAITS, &never);
    let parameters = recovery::Parameters { overload_s: 60.0, relief_s: 60.0, repetitions: 1 };
    let found = recovery::recovery(&mut session, &point(), 0.99 * MAXIMUM, &parameters).unwrap();
    assert_eq!((found.overload, found.seconds.average), (MAXIMUM, 0.0));
    let mut slow = Device { recovery_s: 100.0, ..Device::limited(400_000.0) };
    let mut session = Session::new(&mut slow, NO_WAITS, &never);
    let found = recovery::recovery(&mut session, &point(), 400_000.0, &parameters).unwrap();
    assert_eq!(found.not_recovered, 1);
}

#[test]
fn the_reset_time_is_lost_frames_through_the_rate() {
    let mut device = Device { reset_s: Some(2.25), ..Device::limited(400_000.0) };
    let mut session = Session::new(&mut device, NO_WAITS, &never);
    let parameters =
        reset::Parameters { before_s: 15.0, after_s: 5.0, longest_s: 80.0, repetitions: 3 };
    let found = reset::reset(&mut session, &point().traffic, 400_000.0, &parameters).unwrap();
    for one in &found.directions {
        assert_eq!((one.reset_ms.average, one.lost.average), (2250.0, 900_000.0));
        assert_eq!((one.reset_ms.n(), one.not_recovered), (3, 0));
    }
    assert!(device.orders.iter().all(|order| order.reset == Some(15.0)));
}

#[test]
fn a_slow_reset_is_waited_for_and_one_without_end_is_told() {
    let parameters =
        reset::Parameters { before_s: 15.0, after_s: 5.0, longest_s: 80.0, repetitions: 1 };
    let mut slow = Device { reset_s: Some(30.0), ..Device::default() };
    let mut session = Session::new(&mut slow, NO_WAITS, &never);
    let found = reset::reset(&mut session, &point().traffic, 1e5, &parameters).unwrap();
    assert_eq!(found.directions[0].reset_ms.average, 30_000.0);
    assert_eq!(
        slow.orders.iter().map(Order::seconds).collect::<Vec<f64>>(),
        [20.0, 25.0, 35.0, 55.0]
    );
    let mut dead = Device { reset_s: None, ..Device::default() };
    let mut session = Session::new(&mut dead, NO_WAITS, &never);
    let parameters = reset::Parameters { repetitions: 2, ..parameters };
    let found = reset::reset(&mut session, &point().traffic, 1e5, &parameters).unwrap();
    assert_eq!((found.directions[0].not_recovered, found.directions[1].not_recovered), (2, 2));
    // 5, 10, 20, 40, 80 s, then 80 s again: it is brought back after each of them.
    assert_eq!(dead.steps, ["restore"; 6]);
}

#[test]
fn degradation_by_flows_is_that_of_the_device() {
    // Each further flow costs a hundredth of the rate.
    let mut device = Device { flow_cost: 0.01, ..Device::limited(500_000.0) };
    let mut session = Session::new(&mut device, NO_WAITS, &never);
    let start = Start::Incremental(0.5);
    let traffic = point().traffic;
    let found = overload(&mut session, &traffic, 21, start, |session, traffic| {
        let point = Point { traffic: *traffic, ..point() };
        let value = throughput(session, &point, &THROUGHPUT)?.rate.median;
        Ok(vec![Score { dimension: Dimension::Throughput, value }])
    })
    .unwrap();
    let flows: Vec<u32> = found.degradations.iter().map(|it| it.flows).collect();
    assert_eq!(flows, [6, 11, 16, 21]);
    for (cell, truth) in found.degradations.iter().zip([5.0, 10.0, 15.0, 20.0]) {
        assert!((cell.percent.unwrap() - truth).abs() < 1.5, "{cell:?}");
    }
    // The time to start all flows comes on top: 20 times half a second.
    let full = |order: &&Order| {
        order.traffic.flows.count == 21
            && matches!(order.load, Load::Constant { seconds, .. } if seconds == 60.0)
    };
    assert!(device.orders.iter().filter(full).all(|order| order.seconds() == 70.0));
}

#[test]
fn flows_that_start_one_after_the_other_have_all_started_when_time_counts() {
    let flows = Flows { count: 5, start: Start::Incremental(2.0) };
    let point = Point { traffic: Traffic { flows, ..point().traffic }, ..point() };
    let mut device = Device { recovery_s: 3.5, reset_s: Some(2.25), ..Device::limited(400_000.0) };
    let mut session = Session::new(&mut device, NO_WAITS, &never);
    let parameters = recovery::Parameters { overload_s: 60.0, relief_s: 60.0, repetitions: 1 };
    let found = recovery::recovery(&mut session, &point, 400_000.0, &parameters).unwrap();
    assert_eq!(found.seconds.average, 3.5);
    let parameters =
        reset::Parameters { before_s: 15.0, after_s: 5.0, longest_s: 80.0, repetitions: 1 };
    let found = reset::reset(&mut session, &point.traffic, 400_000.0, &parameters).unwrap();
    assert_eq!(found.directions[0].reset_ms.average, 2250.0);
    let parameters =
        latency::Parameters { seconds: 120.0, tags_after_s: 60.0, tags: 500, repetitions: 1 };
    let definition = Definition::StoreAndForward;
    latency(&mut session, &point.traffic, 1e5, definition, &parameters).unwrap();
    let [_, reset, latency] = &device.orders[..] else { panic!("more than three trials") };
    assert_eq!((reset.reset, reset.seconds()), (Some(23.0), 28.0));
    assert_eq!(latency.record, Record::Tags { after: 68.0, frames: 500 });
}

#[test]
fn what_the_generator_does_not_offer_is_marked_in_the_frame_loss_rate() {
    let mut device = Device { generator: 750_000.0, ..Device::default() };
    let mut session = Session::new(&mut device, NO_WAITS, &never);
    let parameters = frame_loss_rate::Parameters { seconds: 60.0, step: 10 };
    let found = frame_loss_rate::frame_loss_rate(&mut session, &point(), &parameters).unwrap();
    let curve: Vec<(f64, bool)> = found.curve.iter().map(|it| (it.loss, it.is_short)).collect();
    assert_eq!(curve[0], (25.0, true));
    assert_eq!(curve[3..], [(0.0, false); 2]);
}

#[test]
fn waits_of_a_session_are_those_of_its_orders() {
    let mut device = Device::default();
    let mut session = Session::new(&mut device, Waits::RFC2544, &never);
    assert!(session.passes(&Traffic { networks: 256, ..point().traffic }, 1e5, 60.0).unwrap());
    assert_eq!((session.trials(), session.seconds()), (1, 69.0));
    assert_eq!((device.orders[0].waits, device.orders[0].traffic.networks), (Waits::RFC2544, 256));
}
