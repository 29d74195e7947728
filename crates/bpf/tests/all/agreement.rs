//! Core and kernel program on drawn configurations and packets: they agree octet for octet, or the
//! program has left the packet to the user engine.
//!
//! Twice: by `BPF_PROG_TEST_RUN`, which is fast and knows no offloads; and with real packets through a
//! TUN device, with every offload state. What is left to the user engine is bounded, so that the fast
//! path can't quietly give everything up. Each has a test for the configurations of even and of odd number,
//! so that two processors have something to do.
//!
//! `FORDWAY_SEED` takes another seed, `FORDWAY_CASES` another number of test runs.

use std::path::Path;

use fordway_bpf::{
    Accelerator, Forwarding, Hook, Loaded, Options, Outcome, Program, TestOptions, Totals,
};
use fordway_testhost::{can_use_tun, is_root, poll};
use fordway_testkit::drawn::any_config;
use fordway_testkit::fuzz::{self, Body, CONFIGS, Plan};
use fordway_testkit::oracle;
use fordway_testkit::segment::segment_count;
use fordway_testkit::tap::Tap;
use fordway_tun::{Device, Queue, RecvOutcome};
use fordway_xlat::mapping::{map_v4, map_v6};
use fordway_xlat::{ChecksumState, Config, GsoKind, HEADROOM, Offload, State, Translator};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use crate::alike::{Made, agree, frame, hex, unchanged};
use crate::cases::{Tally, setting};
use crate::wire::{Folders, apart, gateway, outcome, stay_on_one_processor};

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
fn programs_agree_with_the_core_even() {
    programs_agree_with_the_core(0);
}

#[test]
fn programs_agree_with_the_core_odd() {
    programs_agree_with_the_core(1);
}

/// `first`: of the configurations, which are taken in steps of two.
fn programs_agree_with_the_core(first: usize) {
    if is_root() {
        agrees(Program::Interface, &TestOptions::default(), first);
    }
}

#[test]
fn the_ingress_agrees_with_the_core() {
    in_front_of_routing_agrees(0, Forwarding::Stack);
}

#[test]
fn in_place_agrees_with_the_core() {
    in_front_of_routing_agrees(0, Forwarding::InPlace);
}

#[test]
fn direct_forwarding_agrees_with_the_core() {
    in_front_of_routing_agrees(1, Forwarding::Direct);
}

fn in_front_of_routing_agrees(first: usize, forward: Forwarding) {
    if !can_use_tun() {
        return;
    }
    apart(|| {
        let options = TestOptions { forward, ..gateway(&["198.51.100.0/24", "2001:db8:64::/96"]) };
        agrees(Program::Ingress, &options, first);
    });
}

fn agrees(program: Program, options: &TestOptions, first: usize) {
    let cases = setting("FORDWAY_CASES", CASES);
    let mut draw = Draw::new(first);
    let mut seen = Seen::default();
    let configs = configs();
    let each = cases.div_ceil(configs.len());
    for (number, config) in configs.iter().enumerate().skip(first).step_by(2) {
        let translator = Translator::new(config.clone()).expect("a sound configuration");
        let mut loaded = Loaded::load(config, &[program], options)
            .unwrap_or_else(|error| panic!("{error}\n{config:?}"));
        for _ in 0..each {
            let packet = draw.packet();
            // A test run makes no frame without a whole IP header, and its type says which program takes it.
            if !matches!((packet[0] >> 4, packet.len()), (4, 20..) | (6, 40..)) {
                continue;
            }
            let offload = Offload::default();
            let core = oracle::translate(&translator, &mut State::new(1), &packet, offload);
            let run = loaded.run(program, &frame(&packet), 0, 1).expect("a test run");
            let outcome = run.outcome.expect("counted once");
            seen.count(number, outcome);
            let made = Made { outcome, packet: Some(&run.frame[14..]), offload: None };
            // In front of routing there is what is somebody else's, or may be.
            let agreed = if program == Program::Ingress && outcome == Outcome::Unmatched {
                unchanged(&packet, &made)
            } else {
                agree(&packet, &core, &made)
            };
            if let Err(wrong) = agreed {
                panic!("{wrong}\npacket {}\n{config:?}", hex(&packet));
            }
        }
    }
    seen.check(each * (configs.len() - first).div_ceil(2));
}

#[test]
fn packets_with_offloads_agree_with_the_core_even() {
    packets_with_offloads_agree_with_the_core(0);
}

#[test]
fn packets_with_offloads_agree_with_the_core_odd() {
    packets_with_offloads_agree_with_the_core(1);
}

fn packets_with_offloads_agree_with_the_core(first: usize) {
    if !can_use_tun() {
        return;
    }
    apart(|| {
        let folders = Folders::new();
        let mut draw = Draw::new(first);
        let mut seen = Seen::default();
        let configs = configs();
        let each = LIVE_CASES.div_ceil(configs.len());
        let mut wire = Wire::new(&folders);
        for (number, config) in configs.iter().enumerate().skip(first).step_by(2) {
            let translator = Translator::new(config.clone()).expect("a sound configuration");
            wire.attach(config, &folders.pins);
            for _ in 0..each {
                let (packet, offload) = draw.plan().build();
                let Some(offload) = expressible(&packet, offload) else { continue };
                let core = oracle::translate(&translator, &mut State::new(1), &packet, offload);
                let Some(passed) = wire.pass(&packet, offload) else { continue };
                seen.count(number, passed.outcome);
                if let Err(wrong) = agree(&packet, &core, &passed.made()) {
                    panic!("{wrong}\npacket {} {offload:?}\n{config:?}", hex(&packet));
                }
            }
        }
        wire.close();
        seen.check(each * (configs.len() - first).div_ceil(2));
    });
}

/// RFC 7915 section 5.1: the segments of a super-packet, which the device numbers on, must not meet what follows.
#[test]
fn each_segment_has_an_identification_of_its_own() {
    if !is_root() {
        return;
    }
    // Each processor has its own.
    stay_on_one_processor();
    let config = &configs()[0];
    let mut loaded = Loaded::load(config, &[Program::Interface], &TestOptions::default())
        .unwrap_or_else(|error| panic!("{error}\n{config:?}"));
    let mut next = None;
    for (payload, gso_size) in [(40, 0), (2800, 500), (1000, 500), (40, 0), (1001, 500), (40, 0)] {
        let body = Body::Tcp { ports: (4000, 80), numbers: (1, 1), flags: 0, mss: None };
        let mut plan =
            Plan { v4: false, hop: 64, extras: 0, fragment: None, ..Draw::new(0).plan() };
        (plan.hosts, plan.body, plan.payload) = ((5, 5), body, payload);
        plan.offload = fuzz::Offloading::None;
        let (packet, _) = plan.build();
        let run = loaded.run(Program::Interface, &frame(&packet), gso_size, 1).expect("a test run");
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
    tap: Tap,
    device: Device,
    queue: Queue,
    buffer: Vec<u8>,
    accelerator: Option<Accelerator>,
    before: Totals,
}

/// What came out of the device, or reached its queue.
struct Passed {
    outcome: Outcome,
    packet: Option<Vec<u8>>,
    offload: Option<Offload>,
}

impl Passed {
    fn made(&self) -> Made<'_> {
        let Passed { outcome, offload, .. } = *self;
        Made { outcome, packet: self.packet.as_deref(), offload }
    }
}

impl Wire {
    fn new(folders: &Folders) -> Wire {
        // The host's own stack has no part in it.
        std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").expect("a sysctl");
        let (device, queue) = folders.tun("agree0", 65_535);
        Wire {
            tap: Tap::open("agree0").expect("a packet socket"),
            device,
            queue,
            buffer: vec![0; HEADROOM + 70_000],
            accelerator: None,
            before: Totals::default(),
        }
    }

    /// Lets the program of another configuration run.
    fn attach(&mut self, config: &Config, pins: &Path) {
        let options = Options::new(pins, Hook::Interface { tun: self.device.ifindex() });
        let accelerator = match self.accelerator.take() {
            Some(mut accelerator) => {
                accelerator.replace(config, &options).expect("another program");
                accelerator
            }
            None => Accelerator::start(config, &options).expect("an attached program"),
        };
        self.before = accelerator.totals().expect("counters");
        self.accelerator = Some(accelerator);
    }

    /// Sends a packet through the device. `None`: the kernel refuses to make such a packet.
    fn pass(&mut self, packet: &[u8], offload: Offload) -> Option<Passed> {
        self.tap.send(packet, &offload).ok()?;
        // The program has run when the packet is sent.
        let totals = self.accelerator.as_ref().expect("a program").totals().expect("counters");
        let outcome = outcome(&self.before, &totals);
        self.before = totals;
        let outcome = outcome?;
        let (packet, offload) = match outcome {
            Outcome::PassedOn(_) => (self.queued(), None),
            Outcome::Translated => {
                let received = || self.tap.receive_all().expect("packets");
                let mut received = poll("the translated packet", || {
                    Some(received()).filter(|received| !received.is_empty())
                });
                let (packet, offload) = received.remove(0);
                assert!(received.is_empty(), "one packet in, several out");
                (Some(packet), Some(offload))
            }
            Outcome::Dropped(_) | Outcome::Unmatched | Outcome::HandedOver => (None, None),
        };
        assert!(self.tap.receive_all().expect("packets").is_empty(), "{outcome:?}, and more out");
        Some(Passed { outcome, packet, offload })
    }

    /// The packet in the queue; `None`: the kernel's stack itself refuses to hand it to a TUN device.
    fn queued(&mut self) -> Option<Vec<u8>> {
        poll("a packet in the queue", || {
            match self.queue.recv(&mut self.buffer, HEADROOM).expect("the queue") {
                RecvOutcome::Packet { len, .. } => {
                    Some(Some(self.buffer[HEADROOM..][..len].to_vec()))
                }
                RecvOutcome::Empty => None,
                RecvOutcome::Truncated | RecvOutcome::Unreadable => Some(None),
                RecvOutcome::Gone => panic!("the device has gone"),
            }
        })
    }

    fn close(self) {
        self.accelerator.expect("a program").detach().expect("to detach");
    }
}

/// Configurations: those of the fuzz targets, and drawn ones. The program of an interface is given what
/// was routed to it.
fn configs() -> Vec<Config> {
    let mut runner = TestRunner::deterministic();
    let drawn = std::iter::repeat_with(|| {
        any_config().new_tree(&mut runner).expect("a configuration").current()
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
    fn new(part: usize) -> Draw {
        Draw((setting("FORDWAY_SEED", 0x0f0d_3a77) + part) as u64)
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
            let octets = [(); 25].map(|()| self.number().to_le_bytes());
            if let Some(mut plan) = Plan::draw(octets.as_flattened()) {
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

/// What became of all packets.
#[derive(Default)]
struct Seen {
    packets: usize,
    outcomes: Tally<Outcome>,
    /// With the first configuration, which most traffic resembles: packets, and those left to the user engine.
    ordinary: [usize; 2],
}

impl Seen {
    fn count(&mut self, config: usize, outcome: Outcome) {
        self.packets += 1;
        self.outcomes.add(outcome);
        if config == 0 {
            self.ordinary[0] += 1;
            self.ordinary[1] += usize::from(matches!(outcome, Outcome::PassedOn(_)));
        }
    }

    fn check(&self, cases: usize) {
        let Seen { packets, outcomes, ordinary: [all, passed_on] } = self;
        println!(
            "{packets} packets; ordinary configuration: {passed_on} of {all} left\n{outcomes}"
        );
        assert!(*packets >= cases * 9 / 10, "only {packets} of {cases} cases");
        let translated = outcomes.of(&Outcome::Translated);
        assert!(translated * 3 >= *packets, "{translated} of {packets} packets were translated");
        assert!(
            passed_on * 100 <= all * MAX_PASSED_ON,
            "{passed_on} of {all} packets were left to the user engine"
        );
    }
}
