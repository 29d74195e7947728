//! Core and kernel programs of softwires on drawn settings, bindings and packets: they agree octet for octet, or the
//! program has left the packet to the user engine.
//!
//! By `BPF_PROG_TEST_RUN`; what is left is bounded. Needs root; says so, and does nothing, without. There is a test for
//! the settings of even and of odd number, so that two processors have something to do.
//!
//! `FORDWAY_SEED` takes another seed, `FORDWAY_CASES` another number of test runs.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use fordway_bpf::{
    Forwarding, Loaded, Outcome, PassReason, Program, SoftwireMaps, TestOptions, Tunnels,
};
use fordway_softwire::{Binding, Bindings, Part, PortSet, Role, Settings, Softwire};
use fordway_testhost::{can_use_tun, is_root};
use fordway_testkit::fuzz::{Body, Offloading};
use fordway_xlat::{Config, HEADROOM, HopCount, Offload, Packet, State, TrafficClass, Verdict};

use crate::alike::{frame, hex};
use crate::cases::{Tally, setting};
use crate::wire::draw::Draw;
use crate::wire::{apart, gateway};

/// Test runs, shared among the settings.
const CASES: usize = 120_000;

/// Of packets that are the tunnels' own by their addresses at most this share is left to the user engine, in
/// percent. Among them are many that are not common: fragments and ICMP errors of shared addresses, damage.
const MAX_PASSED_ON: usize = 35;

/// Octets of the longest packet that a test run takes, with its new header.
const MAX_LEN: usize = 3000;

const TEP: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 1);
const OTHER_TEP: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 2);
const NOW: Duration = Duration::from_secs(1_000);

/// What an octet of Type of Service has for congestion notification.
const ECN_MASK: u8 = 3;

/// Where packets meet the program.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Interface,
    Uplink,
    /// A gateway's devices, in front of routing.
    Ingress,
}

#[test]
fn programs_agree_with_the_core_even() {
    programs_agree_with_the_core(0);
}

#[test]
fn programs_agree_with_the_core_odd() {
    programs_agree_with_the_core(1);
}

/// `first`: of the settings, which are taken in steps of two.
fn programs_agree_with_the_core(first: usize) {
    if !is_root() {
        return;
    }
    let settings = all_settings();
    let each = setting("FORDWAY_CASES", CASES).div_ceil(settings_and_hooks(&settings));
    let mut draw = Draw::with_seed(first);
    let mut seen = Seen::default();
    for (number, settings) in settings.iter().enumerate().skip(first).step_by(2) {
        for at in [At::Interface, At::Uplink] {
            if at == At::Uplink && settings.role == Role::Tep {
                continue;
            }
            let is_whole = (number + usize::from(at == At::Uplink)).is_multiple_of(2);
            let mut bench =
                Bench::new(*settings, &mut draw, (at, TestOptions::default()), is_whole);
            for _ in 0..each {
                let packet = bench.packet(&mut draw);
                let outcome = bench.compare(&packet);
                seen.count(number, outcome);
            }
        }
    }
    seen.check();
}

#[test]
fn the_ingress_agrees_with_the_core() {
    in_front_of_routing_agrees(Forwarding::Stack);
}

#[test]
fn in_place_agrees_with_the_core() {
    in_front_of_routing_agrees(Forwarding::InPlace);
}

#[test]
fn direct_forwarding_agrees_with_the_core() {
    in_front_of_routing_agrees(Forwarding::Direct);
}

/// Of tunnel end points: clients stay at their interface.
fn in_front_of_routing_agrees(forward: Forwarding) {
    if !can_use_tun() {
        return;
    }
    apart(|| {
        let options = TestOptions { forward, ..gateway(&["192.0.2.0/24", "2001:db8:2::1/128"]) };
        let all = all_settings();
        let teps = || all.iter().enumerate().filter(|(_, settings)| settings.role == Role::Tep);
        let each = setting("FORDWAY_CASES", CASES / 2).div_ceil(teps().count());
        let mut draw = Draw::with_seed(forward as usize);
        let mut seen = Seen::default();
        for (number, settings) in teps() {
            let at = (At::Ingress, options.clone());
            let mut bench = Bench::new(*settings, &mut draw, at, true);
            for _ in 0..each {
                let packet = bench.packet(&mut draw);
                let outcome = bench.compare(&packet);
                seen.count(number, outcome);
            }
        }
        seen.check();
    });
}

/// How often packets are drawn: at the interface, and clients at the uplink too.
fn settings_and_hooks(settings: &[Settings]) -> usize {
    settings.len() + settings.iter().filter(|settings| settings.role == Role::Client).count()
}

fn all_settings() -> Vec<Settings> {
    let tep =
        Settings { mtu6: 1500, flow_secret: [0x1234_5678_9abc_def0, 77], ..Settings::default() };
    let client = Settings { role: Role::Client, ..tep };
    let counting = Settings { hop_count: HopCount::from(true), hop_limit: 255, ..tep };
    vec![
        tep,
        client,
        counting,
        Settings { hop_count: HopCount::from(true), pass_unmatched: true, ..client },
        Settings { traffic_class: TrafficClass::Set(0xb9), mtu6: 1280, hairpin: false, ..tep },
        Settings { mss_clamp: true, mtu6: 1400, ..tep },
        Settings { mss_clamp: true, mtu6: 9000, traffic_class: TrafficClass::Set(0), ..client },
    ]
}

/// Core and program with the same bindings.
struct Bench {
    softwire: Softwire,
    loaded: Loaded,
    bindings: Vec<Binding>,
    at: At,
}

impl Bench {
    /// `is_whole`: a client has an address of its own.
    fn new(
        settings: Settings,
        draw: &mut Draw,
        (at, options): (At, TestOptions),
        is_whole: bool,
    ) -> Bench {
        let mut list = bindings(draw);
        if settings.role == Role::Client {
            list.retain(|binding| binding.ports.is_none() == is_whole);
            list = vec![list[draw.number() as usize % list.len()]];
        }
        let maps = SoftwireMaps::make(settings.role, 4096).expect("maps");
        let mut table = Bindings::default();
        for binding in &list {
            table.insert(*binding).expect("bindings that can be together");
        }
        maps.replace(list.iter().copied()).expect("room");
        // Some paths have told of their MTU.
        for (number, entry) in table.iter().enumerate().filter(|(number, _)| number % 4 == 0) {
            let lifetime = Duration::from_secs(3600);
            let told = [1280, 1300, 1490][number / 4 % 3];
            if let Some(mtu) = entry.path.learn(told, settings.mtu6, NOW) {
                maps.set_path_mtu(&entry.binding, mtu, lifetime).expect("the binding");
            }
        }
        let programs: &[Program] = match at {
            At::Interface => &[Program::SoftwireInterface],
            At::Uplink => &[Program::SoftwireUplinkEgress, Program::SoftwireUplinkIngress],
            At::Ingress => &[Program::SoftwireIngress],
        };
        let tunnels = Some(Tunnels { settings, maps: Arc::new(maps) });
        let options = TestOptions { tunnels, ..options };
        let loaded = Loaded::load(&Config::default(), programs, &options)
            .unwrap_or_else(|error| panic!("{error}\n{settings:?}"));
        let softwire = Softwire::new(settings, table).expect("sound settings");
        Bench { softwire, loaded, bindings: list, at }
    }

    /// A packet for either direction, whose addresses are mostly those of a binding.
    fn packet(&self, draw: &mut Draw) -> Vec<u8> {
        loop {
            let mut plan = draw.plan(true);
            plan.offload = Offloading::None;
            if !draw.number().is_multiple_of(4) {
                plan.fragment = None;
                if !matches!(plan.body, Body::Tcp { .. } | Body::Udp { .. } | Body::Echo { .. }) {
                    continue;
                }
            }
            let (mut inner, _) = plan.build();
            let binding = self.bindings[draw.number() as usize % self.bindings.len()];
            let into = draw.number().is_multiple_of(2);
            let at_source = into == (self.softwire.settings().role == Role::Client);
            if !draw.number().is_multiple_of(8) {
                give_to(&mut inner, &binding, at_source, draw);
            }
            let mut packet = if into { inner } else { self.wrapped(&inner, &binding, draw) };
            if packet.len() + 40 > MAX_LEN {
                continue;
            }
            if draw.number().is_multiple_of(16) {
                packet.extend((0..draw.number() % 40).map(|_| 0xee));
            }
            if draw.number().is_multiple_of(8) {
                for _ in 0..=draw.number() % 3 {
                    let at = draw.number() as usize % packet.len().min(100);
                    packet[at] = draw.number() as u8;
                }
            }
            let header = if packet[0] >> 4 == 4 { 20 } else { 40 };
            // A frame says by its type which program takes it; a test run makes none without a whole IP header.
            if packet[0] >> 4 == if into { 4 } else { 6 } && packet.len() >= header {
                return packet;
            }
        }
    }

    /// The packet in a tunnel, mostly that of the binding.
    fn wrapped(&self, inner: &[u8], binding: &Binding, draw: &mut Draw) -> Vec<u8> {
        let (mut src, mut dst) = match self.softwire.settings().role {
            Role::Tep => (binding.remote, binding.local),
            Role::Client => (binding.local, binding.remote),
        };
        match draw.number() % 24 {
            0 => src = self.bindings[draw.number() as usize % self.bindings.len()].remote,
            1 => dst = OTHER_TEP,
            2 => (src, dst) = (dst, src),
            _ => {}
        }
        // The field of congestion notification is drawn for itself.
        let class = inner.get(1).copied().unwrap_or_default() & !ECN_MASK
            | if draw.number().is_multiple_of(3) { draw.number() as u8 } else { 0 };
        let mut next = 4;
        let mut behind = Vec::new();
        match draw.number() % 32 {
            // Destination Options with an encapsulation limit; an atomic and another Fragment Header.
            0 => {
                next = 60;
                behind.extend([4, 0, 4, 1, 4, 1, 1, 0]);
            }
            1 => {
                next = 44;
                behind.extend([4, 0, 0, 0, 0, 0, 0, 9]);
            }
            2 => {
                next = 44;
                behind.extend([4, 0, 0, 1, 0, 0, 0, 9]);
            }
            3 => next = 58,
            _ => {}
        }
        behind.extend(inner);
        let label = draw.number() as u32 & 0xf_ffff;
        let first = 6 << 28 | u32::from(class) << 20 | label;
        let len = (behind.len() as u16).to_be_bytes();
        [&first.to_be_bytes(), &len[..], &[next, 60], &src.octets(), &dst.octets(), &behind]
            .concat()
    }

    fn compare(&mut self, packet: &[u8]) -> Outcome {
        let core = translate(&self.softwire, packet);
        let program = match (self.at, packet[0] >> 4) {
            (At::Interface, _) => Program::SoftwireInterface,
            (At::Uplink, 4) => Program::SoftwireUplinkEgress,
            (At::Uplink, _) => Program::SoftwireUplinkIngress,
            (At::Ingress, _) => Program::SoftwireIngress,
        };
        let run = self.loaded.run(program, &frame(packet), 0, 1).expect("a test run");
        let outcome = run.outcome.expect("counted once");
        let made = &run.frame[14..];
        let right = match (outcome, &core) {
            (Outcome::Translated, Made::Forwarded(pieces)) => {
                matches!(&pieces[..], [one] if one == made)
            }
            (Outcome::PassedOn(_), _) => made == packet,
            // At an uplink, what the core should not see.
            (Outcome::Unmatched, Made::Other(_) | Made::Part) => {
                self.at != At::Interface && made == packet
            }
            // In front of routing there is what may be somebody else's.
            (Outcome::Unmatched, _) => self.at == At::Ingress && made == packet,
            _ => false,
        };
        assert!(
            right,
            "packet {}\nprogram {outcome:?} {}\ncore {core:?}\n{:?}\n{:?}",
            hex(packet),
            hex(made),
            self.softwire.settings(),
            self.bindings,
        );
        outcome
    }
}

/// What the core says.
enum Made {
    Forwarded(Vec<Vec<u8>>),
    Other(Verdict),
    /// It waits for other fragments.
    Part,
}

impl std::fmt::Debug for Made {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Made::Forwarded(pieces) => {
                f.debug_list().entries(pieces.iter().map(|piece| hex(piece))).finish()
            }
            Made::Other(verdict) => verdict.fmt(f),
            Made::Part => f.write_str("a part"),
        }
    }
}

fn translate(softwire: &Softwire, packet: &[u8]) -> Made {
    if softwire.part(packet) != Part::Whole {
        return Made::Part;
    }
    let mut buffer = vec![0xa5; HEADROOM + packet.len() + HEADROOM];
    let range = HEADROOM..HEADROOM + packet.len();
    buffer[range.clone()].copy_from_slice(packet);
    let mut packet = Packet::new(&mut buffer, range, Offload::default());
    match softwire.translate(&mut packet, NOW, &mut State::new(1), &mut ()) {
        Verdict::Forward => Made::Forwarded(
            packet.fragments().map(|piece| [piece.head(), piece.body].concat()).collect(),
        ),
        verdict => Made::Other(verdict),
    }
}

/// Bindings of whole and of shared addresses among the hosts of drawn packets.
fn bindings(draw: &mut Draw) -> Vec<Binding> {
    let mut bindings = Vec::new();
    for last in 0..=255u16 {
        let v4 = Ipv4Addr::new(192, 0, 2, last as u8);
        let remote = |number: u16| Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, last, number);
        match last % 4 {
            0 => {}
            1..=2 => bindings.push(Binding { v4, ports: None, remote: remote(0), local: TEP }),
            _ => {
                let offset = (draw.number() % 9) as u8;
                let len = 1 + (draw.number() % 4) as u8;
                for psid in (0..1 << len).filter(|psid| psid % 3 != 2) {
                    let ports = Some(PortSet::new(offset, len, psid).expect("a port set"));
                    bindings.push(Binding { v4, ports, remote: remote(psid), local: TEP });
                }
            }
        }
    }
    bindings
}

/// Writes the address of a binding, and mostly one of its ports, into an IPv4 packet; header checksum follows, the
/// transport's does not: nobody looks at it.
fn give_to(packet: &mut [u8], binding: &Binding, at_source: bool, draw: &mut Draw) {
    let header = usize::from(packet[0] & 15) * 4;
    let at = if at_source { 12 } else { 16 };
    packet[at..at + 4].copy_from_slice(&binding.v4.octets());
    if let (Some(ports), true) = (binding.ports, !draw.number().is_multiple_of(8)) {
        let nth = draw.number() % u64::from(ports.len());
        let port = nth_port(&ports, nth as usize);
        let place = match (packet[9], at_source) {
            (6 | 17, true) => Some(header),
            (6 | 17, false) => Some(header + 2),
            (1, _) => Some(header + 4),
            _ => None,
        };
        if let Some(octets) = place.and_then(|place| packet.get_mut(place..place + 2)) {
            octets.copy_from_slice(&port.to_be_bytes());
        }
    }
    packet[10..12].fill(0);
    let checksum = fordway_testkit::checksum::checksum(&packet[..header]);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
}

fn nth_port(ports: &PortSet, mut nth: usize) -> u16 {
    for range in ports.ranges() {
        if nth < range.len() {
            return range.start() + nth as u16;
        }
        nth -= range.len();
    }
    panic!("as many as it says");
}

/// What became of all packets.
#[derive(Default)]
struct Seen {
    outcomes: Tally<Outcome>,
    /// Of the first two settings, which most traffic resembles: taken, and left.
    ordinary: [usize; 2],
}

impl Seen {
    fn count(&mut self, settings: usize, outcome: Outcome) {
        self.outcomes.add(outcome);
        let is_left = match outcome {
            Outcome::Translated => 0,
            // Drawn to be strange: spoofed, of nobody, damaged.
            Outcome::PassedOn(
                PassReason::SoftwireSource | PassReason::Unmapped | PassReason::Malformed,
            )
            | Outcome::Unmatched => return,
            _ => 1,
        };
        if settings < 2 {
            self.ordinary[is_left] += 1;
        }
    }

    fn check(&self) {
        let Seen { outcomes, ordinary: [taken, left] } = self;
        println!("ordinary: {left} left, {taken} taken\n{outcomes}");
        assert!(
            left * 100 <= (taken + left) * MAX_PASSED_ON,
            "{left} packets were left to the user engine, {taken} taken"
        );
        let (made, others) = (Outcome::Translated, Outcome::Unmatched);
        assert!(outcomes.of(&others) < outcomes.of(&made), "most are ours");
        // Each of the programs' cases was met.
        for reason in [
            PassReason::SoftwireSource,
            PassReason::SoftwireEcn,
            PassReason::SoftwireFragment,
            PassReason::HopLimit,
            PassReason::TooBig,
        ] {
            assert!(outcomes.of(&Outcome::PassedOn(reason)) > 0, "{reason:?}");
        }
    }
}
