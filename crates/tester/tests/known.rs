//! The tester finds what devices with known behaviour do: exactly where it is a number of frames, at least where it is a time.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fordway_tester::{
    Addresses, End, Enumeration, Flow, Outcome, Pace, Pairs, Sending, Setup, Tester, Trial, Tuples,
};
use fordway_testhost::has_programs;
use fordway_testhost::namespace::{Namespace, can_test};
use known::Bridge;

// The kit as a whole is made of gateway crates, which the tester must not know.
#[allow(dead_code, unreachable_pub)]
#[path = "../../testkit/src/known.rs"]
mod known;
#[allow(dead_code, unreachable_pub)]
#[path = "../../testkit/src/sys.rs"]
mod sys;

/// Frames of a trial: fewer than the ring of a veth holds.
const FRAMES: u64 = 200;
const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

/// A device between two ends. Dropping it ends it.
struct Known {
    hosts: [Namespace; 3],
    stop: Arc<AtomicBool>,
    setup: Setup,
}

impl Drop for Known {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Known {
    fn new(behaviour: &str) -> Known {
        let hosts = [Namespace::create(), Namespace::create(), Namespace::create()];
        let device = &hosts[2];
        let task = device.path.split('/').nth(4).expect("/proc/PROCESS/task/THREAD");
        let ends = [0, 1].map(|end| {
            let (host, other) = (&hosts[end], ["near", "far"][end]);
            let own = MACS[end].map(|octet| format!("{octet:02x}")).join(":");
            host.ip(&format!(
                "link add uplink address {own} type veth peer name {other} netns {task}"
            ));
            host.ip("link set uplink up");
            device.ip(&format!("link set {other} up"));
            let namespace = Some(PathBuf::from(&host.path));
            End {
                device: "uplink".into(),
                namespace,
                own: MACS[end],
                next: MACS[1 - end],
                queues: 1,
            }
        });
        let behaviour = behaviour.parse().unwrap();
        let mut bridge = device.run(move || Bridge::open("near", "far", behaviour).unwrap());
        let stop = Arc::new(AtomicBool::new(false));
        let ended = stop.clone();
        device.spawn(move || bridge.run(&ended).unwrap());
        let [client, server] = ends;
        Known { hosts, stop, setup: Setup::new(client, server) }
    }
}

/// 200 frames at a rate; nothing about them is too late.
fn trial(rate: f64) -> Trial {
    let side = |first: &str| Addresses { first: first.parse().unwrap(), shift: 64 };
    let forward = Flow { source: side("2001:2:0:18::2"), target: side("2001:2:0:19::2") };
    let reverse = Flow { source: forward.target, target: forward.source };
    let pace = Pace::steady(rate, FRAMES as f64 / rate);
    let mut trial = Trial::new(Pairs { forward, reverse }, 84, pace);
    (trial.timeout_s, trial.lateness_limit_s) = (5.0, 60.0);
    trial
}

#[track_caller]
fn run(tester: &mut Tester, trial: &Trial) -> Outcome {
    let outcome = tester.run(trial, &AtomicBool::new(false)).unwrap();
    assert!(outcome.is_valid(), "{outcome:?}");
    let counts = &outcome.forward.translated;
    assert_eq!((counts.sent, counts.late, counts.duplicates, counts.reordered), (FRAMES, 0, 0, 0));
    outcome
}

#[test]
fn a_lost_frame_in_fifty_is_found() {
    if !can_test() {
        return;
    }
    let known = Known::new("loss=50");
    let mut tester = Tester::open(known.setup.clone()).unwrap();
    let mut trial = trial(2000.0);
    trial.reverse = trial.forward.clone();
    let outcome = run(&mut tester, &trial);
    let counts = &outcome.forward.translated;
    assert_eq!((counts.received, counts.lost), (196, 4));
    // Numbers 49 and 199 of a frame each 0.5 ms.
    assert_eq!((counts.first_loss_s, counts.last_loss_s), (Some(0.0245), Some(0.0995)));
    assert_eq!(outcome.reverse.translated.received, FRAMES);
}

#[test]
fn the_rate_of_a_limiter_is_found() {
    if !can_test() {
        return;
    }
    let known = Known::new("rate=1000");
    let mut tester = Tester::open(known.setup.clone()).unwrap();
    let mut lossless = |rate: f64| run(&mut tester, &trial(rate)).forward.translated.lost == 0;
    // RFC 2544 section 26.1: the highest rate without loss, to an eighth of the range.
    let (mut least, mut most) = (500.0, 1500.0);
    for _ in 0..3 {
        let rate = (least + most) / 2.0;
        if lossless(rate) { least = rate } else { most = rate }
    }
    assert_eq!((least, most), (1000.0, 1125.0));
    let counts = run(&mut tester, &trial(2000.0)).forward.translated;
    assert_eq!(counts.received, FRAMES / 2);
}

#[test]
fn a_delay_is_measured_in_full() {
    if !can_test() {
        return;
    }
    let known = Known::new("delay=20000");
    let mut tester = Tester::open(known.setup.clone()).unwrap();
    let counts = run(&mut tester, &trial(2000.0)).forward.translated;
    assert_eq!((counts.received, counts.delays.count()), (FRAMES, FRAMES));
    assert!(counts.delays.quantile(0.0).unwrap() >= 20_000_000, "{:?}", counts.delays);
}

#[test]
fn the_size_of_a_table_is_found() {
    if !can_test() {
        return;
    }
    let known = Known::new("table=77");
    let mut tester = Tester::open(known.setup.clone()).unwrap();
    let mut trial = trial(2000.0);
    let flows = FRAMES as u32;
    let enumeration = Enumeration { flows, source_ports: (1024, 40), target_ports: (1, 5) };
    trial.tuples = Tuples::Enumerated(enumeration);
    for _ in 0..2 {
        let outcome = run(&mut tester, &trial);
        assert_eq!((outcome.forward.translated.received, outcome.noted), (77, 77));
    }
}

#[test]
fn a_program_that_sends_is_no_other_tester() {
    if !can_test() || !has_programs(&["ethtool"]) {
        return;
    }
    let known = Known::new("loss=50");
    // The device's own ends of the veths take redirected frames only with receive offload.
    for end in ["near", "far"] {
        known.hosts[2].output("ethtool", &format!("-K {end} gro on"));
    }
    let setup = Setup { sending: Sending::Program, ..known.setup.clone() };
    let counts = run(&mut Tester::open(setup).unwrap(), &trial(2000.0)).forward.translated;
    assert_eq!((counts.received, counts.lost), (196, 4));
}
