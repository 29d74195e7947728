//! Devices with known behaviour, on made-up frames.

use std::time::Duration;

use fordway_testkit::known::{Behaviour, Device};

/// A frame of a tester: UDP over IPv4 with a source port and a time in its tag.
fn frame(port: u16, time: u64) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
    frame[23] = 17;
    frame[34..36].copy_from_slice(&port.to_be_bytes());
    frame[52..60].copy_from_slice(&time.to_be_bytes());
    frame
}

fn passed(behaviour: &str, frames: impl Iterator<Item = Vec<u8>>) -> Vec<usize> {
    let mut device = Device::new(behaviour.parse().unwrap());
    let passes = frames.enumerate().filter(|(_, frame)| device.pass(frame).is_some());
    passes.map(|(number, _)| number).collect()
}

#[test]
fn every_third_is_lost() {
    assert_eq!(passed("loss=3", (0..7).map(|it| frame(it, 0))), [0, 1, 3, 4, 6]);
    assert_eq!(passed("loss=1", (0..3).map(|it| frame(it, 0))), Vec::<usize>::new());
    assert_eq!(passed("nothing", (0..3).map(|it| frame(it, 0))), [0, 1, 2]);
}

#[test]
fn a_rate_is_kept_by_the_times_of_frames() {
    // A frame each ms, at most 500 a second: every second one.
    let frames = (0..6).map(|it| frame(1, 7 + it * 1_000_000));
    assert_eq!(passed("rate=500", frames), [0, 2, 4]);
    let frames = (0..6).map(|it| frame(1, 7 + it * 1_000_000));
    assert_eq!(passed("rate=1000", frames), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn a_table_has_its_size() {
    let ports = [1, 2, 1, 3, 4, 2, 3];
    assert_eq!(passed("table=2", ports.into_iter().map(|port| frame(port, 0))), [0, 1, 2, 5]);
    assert_eq!(
        passed("table=0", ports.into_iter().map(|port| frame(port, 0))),
        Vec::<usize>::new()
    );
}

#[test]
fn a_delay_is_passed_on_and_others_are_not_touched() {
    let mut device = Device::new(Behaviour::Delay(Duration::from_micros(1500)));
    assert_eq!(device.pass(&frame(1, 0)), Some(Duration::from_micros(1500)));
    let mut device = Device::new(Behaviour::Loss(1));
    let mut arp = frame(1, 0);
    arp[13] = 6;
    assert_eq!(device.pass(&arp), Some(Duration::ZERO));
    assert_eq!(device.pass(&[]), Some(Duration::ZERO));
}

#[test]
fn behaviours_that_can_not_be_are_refused() {
    for text in ["loss=0", "rate=0", "rate=x", "delay=-1", "other=1", ""] {
        assert!(text.parse::<Behaviour>().is_err(), "{text}");
    }
}
