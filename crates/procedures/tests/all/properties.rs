//! Devices with random parameters: each procedure finds them within its stated error.

use fordway_procedures::latency::{self, Definition, latency};
use fordway_procedures::throughput::{self, throughput};
use fordway_procedures::{Session, back_to_back, recovery, reset};
use proptest::prelude::*;

use crate::device::{Device, MAXIMUM, NO_WAITS, never, point};

proptest! {
    #[test]
    fn any_rate_is_found_within_the_precision(
        rate in 2000.0..990_000.0f64, precision in 0.002..0.05f64, buffer in 0.0..500.0f64,
    ) {
        let mut device = Device { buffer, ..Device::limited(rate) };
        let mut session = Session::new(&mut device, NO_WAITS, &never);
        let parameters =
            throughput::Parameters { short_s: 2.0, full_s: 60.0, precision, least: 1e-3, repetitions: 1 };
        let found = throughput(&mut session, &point(), &parameters).unwrap().rate.median;
        // In a minute the buffer adds this to the rate; a part of a frame is no loss.
        let most = rate + (buffer + 1.0) / 60.0;
        prop_assert!(found <= most && found >= rate / (1.0 + precision) - 1.0, "{found} of {rate}");
    }

    #[test]
    fn any_delay_is_found(delay in 1000..50_000_000i64, jitter in 0..20_000_000i64) {
        let mut device = Device { delay_ns: delay, jitter_ns: jitter, ..Device::default() };
        let mut session = Session::new(&mut device, NO_WAITS, &never);
        let parameters =
            latency::Parameters { seconds: 3.0, tags_after_s: 1.0, tags: 5000, repetitions: 3 };
        let definition = Definition::StoreAndForward;
        let found = latency(&mut session, &point().traffic, 1e4, definition, &parameters).unwrap();
        let one = &found.directions[1];
        let (delay, jitter) = (delay as f64 / 1e6, jitter as f64 / 1e6);
        prop_assert!((one.typical_ms.median - delay - 0.5 * jitter).abs() <= 0.002 * jitter + 1e-6);
        prop_assert!((one.worst_case_ms.median - delay - 0.998 * jitter).abs() <= 0.002 * jitter + 1e-6);
    }

    #[test]
    fn any_buffer_is_found_within_the_step(
        rate in 1e5..9e5f64, buffer in 50.0..20_000.0f64, step in 1..64u64,
    ) {
        let mut device = Device { buffer, ..Device::limited(rate) };
        let mut session = Session::new(&mut device, NO_WAITS, &never);
        let parameters =
            back_to_back::Parameters { limit_s: 2.0, step, verifications: 0, repetitions: 2 };
        let found = back_to_back::back_to_back(&mut session, &point(), rate, &parameters);
        let found = found.unwrap().unwrap();
        // Frames are lost one by one, so the burst may be as much longer as one frame takes to leave.
        let (found, truth) = (found.corrected_buffer_s * MAXIMUM, buffer);
        prop_assert!((found - truth).abs() <= step as f64 + 2.0, "{found} of {truth}");
    }

    #[test]
    fn any_recovery_and_reset_is_timed(recovery_s in 0.01..50.0f64, reset_s in 0.01..60.0f64) {
        let mut device = Device { recovery_s, reset_s: Some(reset_s), ..Device::limited(4e5) };
        let mut session = Session::new(&mut device, NO_WAITS, &never);
        let parameters = recovery::Parameters { overload_s: 60.0, relief_s: 60.0, repetitions: 2 };
        let found = recovery::recovery(&mut session, &point(), 4e5, &parameters).unwrap();
        prop_assert!((found.seconds.average - recovery_s).abs() < 1e-9);
        let parameters =
            reset::Parameters { before_s: 15.0, after_s: 2.0, longest_s: 240.0, repetitions: 2 };
        let found = reset::reset(&mut session, &point().traffic, 4e5, &parameters).unwrap();
        for one in &found.directions {
            prop_assert!((one.reset_ms.average - 1e3 * reset_s).abs() < 0.01);
        }
    }
}
