//! Prints what the tester itself can do over one veth pair, and how exact it is: `ceiling sockets|program [PROCESSOR...]`. With
//! one processor one thread serves both ends; with two each end has one. Needs root.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use fordway_tester::{
    Addresses, End, Flow, Pace, Pairs, Sending, Setup, Tester, Trial, ceiling, jitter,
};
use fordway_testhost::namespace::Namespace;

const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let sending = match std::env::args().nth(1).as_deref() {
        Some("program") => Sending::Program,
        _ => Sending::Sockets,
    };
    let processors: Vec<usize> =
        std::env::args().skip(2).map(|word| word.parse()).collect::<Result<_, _>>()?;
    let ends = [Namespace::create(), Namespace::create()];
    let far = ends[1].path.split('/').nth(4).unwrap_or_default();
    ends[0].ip(&format!(
        "link add uplink address 02:00:00:00:00:01 type veth peer name uplink address 02:00:00:00:00:02 netns {far}"
    ));
    let [client, server] = [0, 1].map(|end| {
        ends[end].ip("link set uplink up");
        let namespace = Some(PathBuf::from(&ends[end].path));
        End { device: "uplink".into(), namespace, own: MACS[end], next: MACS[1 - end], queues: 1 }
    });
    let one_thread = processors.len() == 1;
    let mut tester = Tester::open(Setup {
        one_thread,
        processors,
        sending,
        waiting: 1 << 16,
        ..Setup::new(client, server)
    })?;
    let side = |first: &str| {
        Ok::<_, std::net::AddrParseError>(Addresses { first: first.parse()?, shift: 8 })
    };
    let forward = Flow { source: side("198.18.0.2")?, target: side("198.19.0.2")? };
    let reverse = Flow { source: forward.target, target: forward.source };
    let trial = Trial::new(Pairs { forward, reverse }, 64, Pace::Silent);
    let stop = AtomicBool::new(false);
    println!("modes: {:?}, batches of {}", tester.modes(), trial.batch);
    let found = ceiling(&mut tester, &trial, 2_000_000, 8, 0.3, &stop)?;
    println!(
        "out {:.0} frames/s, in {:.0} frames/s, {:.0} in a second of processor time, {} of {} lost; steady without loss {:.0} frames/s",
        found.out, found.arrived, found.by_processor, found.lost, found.sent, found.lossless
    );
    for rate in [1e3, 1e4, 1e5] {
        let found = jitter(&mut tester, &trial, rate, 3.0, &stop)?;
        println!(
            "at {rate:.0} frames/s: delay min {:?} median {:?} P99 {:?} P99.9 {:?} ns, {} lost; lateness median {:?} P99.9 {:?} worst {:?} ns {:?}",
            found.min_ns,
            found.median_ns,
            found.p99_ns,
            found.p999_ns,
            found.lost,
            found.lateness.quantile(0.5),
            found.lateness.quantile(0.999),
            found.lateness.quantile(1.0),
            found.invalid
        );
    }
    Ok(())
}
