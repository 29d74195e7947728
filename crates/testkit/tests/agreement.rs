//! Core and kernel program on drawn configurations and packets: they agree octet for octet, or the
//! program has left the packet to the user engine.
//!
//! Twice: by `BPF_PROG_TEST_RUN`, which is fast and knows no offloads; and with real packets through a
//! TUN device, with every offload state. What is left to the user engine is bounded, so that the fast
//! path can't quietly give everything up. Needs root; says so, and does nothing, without.
//!
//! `FORDWAY_SEED` takes another seed, `FORDWAY_CASES` another number of test runs.

mod alike;
mod drawn;

use std::collections::BTreeMap;

use alike::{Made, agree};
use fordway_bpf::{Accelerator, Hook, Loaded, Options, Outcome, Program, TestOptions, Totals};
use fordway_testkit::fuzz::{self, Body, CONFIGS, Plan};
use fordway_testkit::segment::segment_count;
use fordway_testkit::tap::Tap;
use fordway_testkit::{oracle, sys};
use fordway_tun::{Device, OpenOptions, Queue, RecvOutcome};
use fordway_xlat::addr::{map_v4, map_v6};
use fordway_xlat::{
    ChecksumState, Config, Direction, DropReason, GsoKind, HEADROOM, Offload, State, Translator,
};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

/// Test runs, shared among the configurations.
const CASES: usize = 120_000;

/// Packets through a device.
const LIVE_CASES: usize = 24_000;

/// Drawn configurations beside the fixed ones.
const DRAWN_CONFIGS: usize = 40;

/// Of sound packets with an ordinary configuration at most this share is left to the user engine, in
/// percent. Among the drawn ones are many that are not common: cut fragments, quoted errors.
const MAX_PASSED_ON: usize = 25;

/// Octets of the longest packet that a test run takes.
const MAX_LEN: usize = 3000;

#[test]
fn programs_agree_with_the_core() {
    if !sys::is_root() {
        return eprintln!("SKIPPED: programs in the kernel need root");
    }
    let cases =
        std::env::var("FORDWAY_CASES").map_or(CASES, |text| text.parse().expect("a number"));
    let mut draw = Draw::new();
    let mut tally = Tally::default();
    let configs = configs();
    for (number, config) in configs.iter().enumerate() {
        let translator = Translator::new(config.clone()).expect("a sound configuration");
        let mut loaded = Loaded::load(config, &[Program::Interface], &TestOptions::default())
            .unwrap_or_else(|error| panic!("{error}\n{config:?}"));
        for _ in 0..cases.div_ceil(configs.len()) {
            let packet = draw.packet();
            let Some(kind) = ethernet_type(&packet) else { continue };
            // A test run makes no frame without a whole IP header.
            if packet.len() < if packet[0] >> 4 == 4 { 20 } else { 40 } {
                continue;
            }
            let offload = Offload::default();
            let core = oracle::translate(&translator, &mut State::new(1), &packet, offload);
            let frame = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2], &kind[..], &packet].concat();
            let run = loaded.run(Program::Interface, &frame, 0, 1).expect("a test run");
            let outcome = run.outcome.expect("counted once");
            tally.count(number, outcome);
            let made = Made { outcome, packet: Some(run.frame[14..].to_vec()), offload: None };
            if let Err(wrong) = agree(&packet, &core, &made) {
                panic!("{wrong}\npacket {}\n{config:?}", hex(&packet));
            }
        }
    }
    println!("{tally}");
    assert!(tally.seen >= cases * 9 / 10, "only {} cases", tally.seen);
    tally.check();
}

#[test]
fn packets_with_offloads_agree_with_the_core() {
    if !sys::is_root() || !std::path::Path::new("/dev/net/tun").exists() {
        return eprintln!("SKIPPED: packets through a device need root and /dev/net/tun");
    }
    sys::enter_new_namespace().expect("a network namespace");
    let folder = std::env::temp_dir().join(format!("fordway-agreement-{}", std::process::id()));
    let pins = Pins(fordway_bpf::pins_dir(u64::from(std::process::id()), "agreement"));
    let mut draw = Draw::new();
    let mut tally = Tally::default();
    let configs = configs();
    for (number, config) in configs.iter().enumerate() {
        let mut wire = Wire::new(config, &folder, &pins.0);
        for _ in 0..LIVE_CASES.div_ceil(configs.len()) {
            let (packet, offload) = draw.plan().build();
            let Some(offload) = expressible(&packet, offload) else { continue };
            let core = oracle::translate(&wire.translator, &mut State::new(1), &packet, offload);
            let Some(made) = wire.pass(&packet, offload) else { continue };
            tally.count(number, made.outcome);
            if let Err(wrong) = agree(&packet, &core, &made) {
                panic!("{wrong}\npacket {} {offload:?}\n{config:?}", hex(&packet));
            }
        }
        wire.close();
    }
    let _ = std::fs::remove_dir_all(&folder);
    println!("{tally}");
    assert!(tally.seen >= LIVE_CASES * 9 / 10, "only {} cases", tally.seen);
    tally.check();
}

/// RFC 7915 section 5.1: the segments of a super-packet, which the device numbers on, must not meet what follows.
#[test]
fn each_segment_has_an_identification_of_its_own() {
    if !sys::is_root() {
        return eprintln!("SKIPPED: programs in the kernel need root");
    }
    // Each processor has its own.
    let processors = fordway_tun::allowed_processors().expect("processors");
    fordway_tun::set_processors(&processors[..1]).expect("to stay on one processor");
    let config = &configs()[0];
    let mut loaded = Loaded::load(config, &[Program::Interface], &TestOptions::default())
        .unwrap_or_else(|error| panic!("{error}\n{config:?}"));
    let mut next = None;
    for (payload, gso_size) in [(40, 0), (2800, 500), (1000, 500), (40, 0), (1001, 500), (40, 0)] {
        let body = Body::Tcp { ports: (4000, 80), numbers: (1, 1), flags: 0, mss: None };
        let mut plan = Plan { v4: false, hop: 64, extras: 0, fragment: None, ..Draw::new().plan() };
        (plan.hosts, plan.body, plan.payload) = ((5, 5), body, payload);
        plan.offload = fuzz::Offloading::None;
        let (packet, _) = plan.build();
        let frame = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd], &packet[..]].concat();
        let run = loaded.run(Program::Interface, &frame, gso_size, 1).expect("a test run");
        assert_eq!(run.outcome, Some(Outcome::Translated), "{plan:?}");
        let identification = u16::from_be_bytes([run.frame[18], run.frame[19]]);
        assert_eq!(identification, *next.get_or_insert(identification), "{payload} {gso_size}");
        let segments = if gso_size == 0 { 1 } else { u32::from(payload).div_ceil(gso_size) };
        next = Some(identification.wrapping_add(segments as u16));
    }
}

/// The offload state as a packet socket can hand it to the kernel.
fn expressible(packet: &[u8], offload: Offload) -> Option<Offload> {
    match offload.checksum {
        // There is no way to say so.
        ChecksumState::Verified => Some(Offload::default()),
        // A super-packet of one segment is none to the kernel.
        _ if offload.gso.kind != GsoKind::None && segment_count(packet, &offload) < 2 => None,
        _ => Some(offload),
    }
}

/// A TUN device with the program at its egress, and nobody at its queue but this test.
struct Wire {
    translator: Translator,
    accelerator: Accelerator,
    tap: Tap,
    _device: Device,
    queue: Queue,
    before: Totals,
}

impl Wire {
    fn new(config: &Config, folder: &std::path::Path, pins: &std::path::Path) -> Wire {
        let options =
            OpenOptions { run_dir: folder.to_owned(), adopt: false, ..OpenOptions::default() };
        let (device, mut queues) = Device::open("agree0", &options).expect("a TUN device");
        std::fs::write("/proc/sys/net/ipv6/conf/agree0/disable_ipv6", "1").expect("a sysctl");
        sys::bring_up("agree0", 65_535).expect("an interface that is up");
        let options = Options::new(pins, Hook::Interface { tun: device.ifindex() });
        let accelerator = Accelerator::start(config, &options).expect("an attached program");
        let before = accelerator.totals().expect("counters");
        Wire {
            translator: Translator::new(config.clone()).expect("a sound configuration"),
            accelerator,
            tap: Tap::open("agree0").expect("a packet socket"),
            _device: device,
            queue: queues.remove(0),
            before,
        }
    }

    /// Sends a packet through the device. `None`: the kernel refuses to make such a packet.
    fn pass(&mut self, packet: &[u8], offload: Offload) -> Option<Made> {
        self.tap.send(packet, &offload).ok()?;
        let totals = self.accelerator.totals().expect("counters");
        let outcome = difference(&self.before, &totals);
        self.before = totals;
        let mut received = self.tap.receive_all().expect("packets");
        let made = match outcome? {
            outcome @ Outcome::PassedOn(_) => {
                let mut buffer = vec![0u8; HEADROOM + 70_000];
                let packet = match self.queue.recv(&mut buffer, HEADROOM).expect("the queue") {
                    RecvOutcome::Packet { len, .. } => Some(buffer[HEADROOM..][..len].to_vec()),
                    // What the kernel's stack itself refuses to hand to a TUN device.
                    _ => None,
                };
                Made { outcome, packet, offload: None }
            }
            outcome => {
                let (packet, offload) = received.pop().unzip();
                Made { outcome, packet, offload }
            }
        };
        assert!(received.is_empty(), "one packet in, several out");
        Some(made)
    }

    fn close(self) {
        self.accelerator.detach().expect("to detach");
    }
}

/// Whatever a test that failed left pinned.
struct Pins(std::path::PathBuf);

impl Drop for Pins {
    fn drop(&mut self) {
        let _ = fordway_bpf::take_down(&self.0);
        let _ = self.0.parent().map(std::fs::remove_dir);
    }
}

/// What the counters say became of one packet.
fn difference(before: &Totals, after: &Totals) -> Option<Outcome> {
    let translated =
        Direction::ALL.iter().any(|d| after.direction(*d).packets > before.direction(*d).packets);
    if translated {
        return Some(Outcome::Translated);
    }
    let passed = fordway_bpf::PassReason::ALL.iter().copied();
    let dropped = DropReason::ALL.iter().copied();
    let passed = passed.filter(|reason| after.passed_on(*reason) > before.passed_on(*reason));
    let dropped = dropped.filter(|reason| after.drops(*reason) > before.drops(*reason));
    passed.map(Outcome::PassedOn).chain(dropped.map(Outcome::Dropped)).next()
}

/// Configurations: those of the fuzz targets, and drawn ones. The program of an interface is given what
/// was routed to it.
fn configs() -> Vec<Config> {
    let mut runner = TestRunner::deterministic();
    let drawn = std::iter::repeat_with(|| {
        drawn::any_config().new_tree(&mut runner).expect("a configuration").current()
    });
    // Most of them map the hosts of the drawn packets.
    let drawn = drawn.enumerate().filter(|(number, config)| {
        Translator::new(config.clone()).is_ok()
            && (number.is_multiple_of(5) || maps_the_hosts(config))
    });
    let drawn = drawn.map(|(_, config)| config).take(DRAWN_CONFIGS);
    let fixed = (0..CONFIGS.len()).map(|number| fuzz::translator(number as u8).config().clone());
    fixed.chain(drawn).map(|config| Config { pass_unmatched: false, ..config }).collect()
}

/// Whether both hosts of the plans have addresses in both families.
fn maps_the_hosts(config: &Config) -> bool {
    let v6 = |text: &str| map_v6(config, text.parse().expect("an address")).is_ok();
    let v4 = |text: &str| map_v4(config, text.parse().expect("an address")).is_ok();
    v6("2001:db8:1::5") && v6("2001:db8:64::c000:205") && v4("192.0.2.5") && v4("198.51.100.5")
}

/// Draws packets.
struct Draw(u64);

impl Draw {
    fn new() -> Draw {
        let seed = std::env::var("FORDWAY_SEED").map(|text| text.parse().expect("a number"));
        Draw(seed.unwrap_or(0x0f0d_3a77))
    }

    /// SplitMix64: the octets only have to be well spread.
    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn plan(&mut self) -> Plan {
        loop {
            let octets: Vec<u8> = (0..25).flat_map(|_| self.number().to_le_bytes()).collect();
            if let Some(mut plan) = Plan::draw(&octets) {
                // Most packets are short, and most hop limits high enough.
                plan.payload %= [64, 600, 1500, 2400][(self.number() % 4) as usize];
                if !self.number().is_multiple_of(4) {
                    plan.hop |= 32;
                }
                return plan;
            }
        }
    }

    /// A packet without offloads, one in four damaged.
    fn packet(&mut self) -> Vec<u8> {
        loop {
            let mut plan = self.plan();
            plan.offload = fuzz::Offloading::None;
            let (mut packet, offload) = plan.build();
            if packet.len() > MAX_LEN || offload.gso.kind != GsoKind::None {
                continue;
            }
            if self.number().is_multiple_of(4) {
                for _ in 0..=self.number() % 3 {
                    // Headers are where it hurts.
                    let at = self.number() as usize % packet.len().min(90);
                    packet[at] = self.number() as u8;
                }
                if self.number().is_multiple_of(4) {
                    packet.truncate(1 + self.number() as usize % packet.len());
                }
            }
            return packet;
        }
    }
}

fn ethernet_type(packet: &[u8]) -> Option<[u8; 2]> {
    match packet.first()? >> 4 {
        4 => Some([0x08, 0x00]),
        6 => Some([0x86, 0xdd]),
        _ => None,
    }
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// What became of all packets.
#[derive(Default)]
struct Tally {
    seen: usize,
    outcomes: BTreeMap<String, usize>,
    /// With the first configuration, which most traffic resembles.
    ordinary: [usize; 2],
}

impl Tally {
    fn count(&mut self, config: usize, outcome: Outcome) {
        self.seen += 1;
        *self.outcomes.entry(format!("{outcome:?}")).or_default() += 1;
        if config == 0 {
            self.ordinary[0] += 1;
            self.ordinary[1] += usize::from(matches!(outcome, Outcome::PassedOn(_)));
        }
    }

    fn check(&self) {
        let [all, passed_on] = self.ordinary;
        assert!(
            passed_on * 100 <= all * MAX_PASSED_ON,
            "{passed_on} of {all} packets were left to the user engine\n{self}"
        );
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{} packets; ordinary configuration: {:?}", self.seen, self.ordinary)?;
        for (outcome, number) in &self.outcomes {
            writeln!(f, "{number:8} {outcome}")?;
        }
        Ok(())
    }
}
