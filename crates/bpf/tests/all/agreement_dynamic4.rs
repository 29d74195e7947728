//! Core and kernel program where IPv6 hosts get IPv4 addresses on first use: random sequences of packets, with
//! time. They agree octet for octet, on every packet and on who has which address since when, or the program has
//! left a packet to the core, which then works on the program's tables.
//!
//! Needs root; says so, and does nothing, without. There is a test for the settings of even and of odd number, so that
//! two processors have something to do. `FORDWAY_SEED` takes another seed, `FORDWAY_CASES` another number of packets.

use std::net::Ipv4Addr;
use std::time::Duration;

use fordway_bpf::Outcome;
use fordway_testhost::is_root;
use fordway_testkit::checksum::checksum;
use fordway_testkit::fuzz::{Body, Offloading, Plan};
use fordway_testkit::model::Random;
use fordway_testkit::segment::complete;
use fordway_xlat::addr::{Eam, EamTable};
use fordway_xlat::nat64::{Dynamic4, Lifetimes, Nat64, Settings, Sizes};
use fordway_xlat::{Config, GsoKind, HopCount, IcmpErrors, Verdict};

use crate::alike::hex;
use crate::cases::{Tally, setting};
use crate::pair::{Pair, Way};

/// Packets, shared among the settings.
const CASES: usize = 120_000;

/// Of the packets with ordinary settings at most this share is left to the core, in percent. Among the drawn ones
/// are many that are not common: hosts without an address, hairpinning, cut fragments, quoted errors, damage.
const MAX_LEFT: usize = 25;

/// Packets between looks at all of the tables.
const LOOK: usize = 64;

/// Packets that are drawn to meet the same mappings, unless much happens meanwhile.
const FRESH: usize = 16;

/// IPv6 hosts: 2001:db8:1:: and this.
const HOSTS: u8 = 12;

/// The first octets of the pool of most settings.
const POOL: [u8; 3] = [198, 51, 100];

/// Octets of the longest packet that a test run takes.
const MAX_LEN: usize = 3000;

#[test]
fn the_program_agrees_with_the_core_even() {
    the_program_agrees_with_the_core(0);
}

#[test]
fn the_program_agrees_with_the_core_odd() {
    the_program_agrees_with_the_core(1);
}

/// `first`: of the settings, which are taken in steps of two.
fn the_program_agrees_with_the_core(first: usize) {
    if !is_root() {
        return;
    }
    let cases = setting("FORDWAY_CASES", CASES);
    let seed = setting("FORDWAY_SEED", 0x000f_0d44);
    let all = all_settings();
    let packets = cases.div_ceil(all.len());
    for (number, (name, config, settings)) in all.iter().enumerate().skip(first).step_by(2) {
        let mut random = Random::new((seed + number) as u64);
        let mut ways = Tally::default();
        let mut left = 0;
        let mut pair = Pair::new(config, settings);
        let mut known = Vec::new();
        let mut is_fresh = false;
        for step in 0..packets {
            let failed = |error: String, packet: &[u8]| -> ! {
                panic!("{name}, seed {seed}, step {step}: {error}\npacket {}", hex(packet))
            };
            if step % LOOK == 0 {
                pair.compare().unwrap_or_else(|error| failed(error, &[]));
            }
            if step % FRESH == 0 || !is_fresh {
                known = mapped(&pair.alone.nat, pair.now);
            }
            let packet = draw(&mut random, &known);
            let way = pair.pass(&packet, 0).unwrap_or_else(|error| failed(error, &packet));
            ways.add(way);
            left += usize::from(matches!(way, Way::Left(_)));
            is_fresh = live(&mut random, &mut pair).unwrap_or_else(|error| failed(error, &packet));
        }
        pair.compare().unwrap_or_else(|error| panic!("{name}, seed {seed}, at the end: {error}"));
        println!("{name}: {left} of {packets} packets were left to the core:\n{ways}");
        if number == 0 {
            assert!(left * 100 <= packets * MAX_LEFT, "that is more than {MAX_LEFT} %");
        }
    }
}

/// Super-packets, which a test run takes with complete checksums, and the core with partial ones.
#[test]
fn super_packets_of_known_hosts_are_taken() {
    if !is_root() {
        return;
    }
    let (_, config, settings) = &all_settings()[0];
    let mut random = Random::new(0x000f_0d45);
    let mut pair = Pair::new(config, settings);
    let mut taken = [0; 2];
    while taken.iter().any(|number| *number < 50) {
        let mut plan = plan(&mut random, &mapped(&pair.beside.nat, pair.now));
        (plan.fragment, plan.extras) = (None, 0);
        plan.offload = Offloading::Super(random.below(1400) as u16);
        plan.payload = 1 + random.below(MAX_LEN - 100) as u16;
        let (packet, offload) = plan.build();
        if offload.gso.kind == GsoKind::None || plan.hop < 2 {
            continue;
        }
        // Whoever has no address gets one.
        let core = pair.by_core(&packet, offload);
        let run = pair.by_program(&complete(&packet, &offload), u32::from(offload.gso.size));
        let run = run.expect("a test run");
        if run.outcome != Some(Outcome::Translated) {
            continue;
        }
        assert_eq!(core.verdict, Verdict::Forward, "{plan:?}");
        let mut expected = complete(&core.packets[0], &core.offload);
        let mut got = run.frame[14..].to_vec();
        if got[0] >> 4 == 4 {
            // The generators of identifications are each engine's own.
            assert_eq!(checksum(&got[..20]), 0, "the header checksum");
            for packet in [&mut expected, &mut got] {
                packet[4..6].fill(0);
                packet[10..12].fill(0);
            }
        }
        assert_eq!(hex(&got), hex(&expected), "{plan:?}");
        taken[usize::from(plan.v4)] += 1;
    }
}

/// What happens beside packets. Gives whether most mappings are what they were.
fn live(random: &mut Random, pair: &mut Pair) -> Result<bool, String> {
    match random.below(100) {
        0..=9 => pair.wait(Duration::from_millis(50 * (1 + random.below(20) as u64))),
        10..=11 => {
            pair.wait(Duration::from_secs(random.pick(&[1, 5, 20, 61, 121])));
            return Ok(false);
        }
        12..=14 => return pair.sweep().map(|()| false),
        15 => pair.drain(random.percent(10)),
        _ => {}
    }
    Ok(true)
}

/// The last octets of the addresses that hosts have.
fn mapped(nat: &Nat64, now: Duration) -> Vec<u8> {
    nat.bib(now).map(|bib| bib.binding.v4.0.octets()[3]).collect()
}

/// A plan between hosts that meet each other's addresses. Most packets are short, and most hop limits high enough.
fn plan(random: &mut Random, known: &[u8]) -> Plan {
    loop {
        let octets = [(); 25].map(|()| random.number().to_le_bytes());
        let Some(mut plan) = Plan::draw(octets.as_flattened()) else { continue };
        // One in eight quotes another.
        if matches!(plan.body, Body::Error(_)) && random.percent(20) {
            continue;
        }
        plan.payload %= random.pick(&[64, 600, 1500, 2400]);
        if random.percent(90) {
            plan.hop |= 32;
        }
        plan.offload = Offloading::None;
        let host = host(random, known, plan.v4);
        plan.hosts.1 = host;
        if let Body::Error(error) = &mut plan.body {
            error.extended &= random.percent(30);
            if random.percent(80) {
                error.inner.hosts.1 = host;
            }
        }
        return plan;
    }
}

/// The last octet of an IPv6 host, or, seen from IPv4, of its address, if it has one.
fn host(random: &mut Random, known: &[u8], v4: bool) -> u8 {
    match v4 {
        false if random.percent(96) => random.below(usize::from(HOSTS)) as u8,
        true if !known.is_empty() && random.percent(92) => random.pick(known),
        _ => random.below(256) as u8,
    }
}

/// A packet, some of them spoiled.
fn draw(random: &mut Random, known: &[u8]) -> Vec<u8> {
    loop {
        let (mut packet, _) = plan(random, known).build();
        if packet.len() > MAX_LEN {
            continue;
        }
        let v4 = packet[0] >> 4 == 4;
        // Transport checksums follow the difference, right or not.
        match random.below(100) {
            0..=1 if v4 => {
                let addresses = [[203, 0, 113, 3], [203, 0, 113, 254], [198, 51, 100, 3]];
                packet[12..16].copy_from_slice(&random.pick(&addresses));
            }
            0..=2 if !v4 => {
                let last = host(random, known, true);
                packet[36..40].copy_from_slice(&[POOL[0], POOL[1], POOL[2], last]);
            }
            3 if v4 => packet.copy_within(12..16, 16),
            4..=7 => {
                for _ in 0..=random.below(3) {
                    let at = random.below(packet.len().min(90));
                    packet[at] = random.below(256) as u8;
                }
            }
            8 => packet.truncate(20 + random.below(packet.len())),
            _ => {}
        }
        if packet.len() < if packet[0] >> 4 == 4 { 20 } else { 40 }
            || !matches!(packet[0] >> 4, 4 | 6)
        {
            continue;
        }
        if v4 && packet[0] >> 4 == 4 && random.percent(90) {
            let len = usize::from(packet[0] & 15) * 4;
            if (20..=packet.len()).contains(&len) {
                packet[10..12].fill(0);
                let sum = checksum(&packet[..len]);
                packet[10..12].copy_from_slice(&sum.to_be_bytes());
            }
        }
        return packet;
    }
}

fn all_settings() -> Vec<(&'static str, Config, Settings)> {
    let config = Config {
        pool6: vec!["2001:db8:64::/96".parse().expect("a prefix")],
        icmp_source4: Some(Ipv4Addr::new(203, 0, 113, 254)),
        icmp_errors: IcmpErrors::Unlimited,
        ipv4_translatable: false,
        ..Config::default()
    };
    let dynamic4 = |pool: &[&str], clients: &[&str]| {
        let pool = pool.iter().map(|net| net.parse().expect("a network")).collect();
        let clients = clients.iter().map(|net| net.parse().expect("a prefix")).collect();
        Some(Dynamic4 { pool, clients })
    };
    let ordinary = Settings {
        dynamic4: dynamic4(&["198.51.100.0/24"], &[]),
        lifetimes: Lifetimes { dynamic4: Duration::from_secs(60), ..Lifetimes::default() },
        sizes: Sizes { bibs: 500, sessions: 1, subscribers: 1 },
        ..Settings::default()
    };
    let eam = [
        // Some of the hosts; an address of the pool; the other network.
        ("203.0.113.0/30", "2001:db8:1::4/126"),
        ("198.51.100.128/25", "2001:db8:7::/121"),
        ("192.0.2.128/25", "2001:db8:8::/121"),
    ];
    let eam = eam.map(|(v4, v6)| {
        Eam::new(v4.parse().expect("a network"), v6.parse().expect("a prefix")).expect("a mapping")
    });
    let beside = Config {
        eam: EamTable::new(eam).expect("a table"),
        icmp_source6: Some("2001:db8:fe::1".parse().expect("an address")),
        decrement_hop_limit: HopCount::NONE,
        mss_clamp: true,
        mtu4: 1400,
        mtu6: 1420,
        ipv4_translatable: true,
        ..config.clone()
    };
    let well_known = |allow_private| Config {
        pool6: ["64:ff9b::/96", "2001:db8:64::/96"]
            .map(|prefix| prefix.parse().expect("a prefix"))
            .to_vec(),
        allow_private,
        icmp_source4: Some(Ipv4Addr::new(198, 51, 100, 7)),
        ..config.clone()
    };
    let crowded = Settings {
        dynamic4: dynamic4(&["198.51.100.0/29", "198.51.100.64/31"], &["2001:db8:1::/125"]),
        sizes: Sizes { bibs: 7, sessions: 1, subscribers: 1 },
        ..ordinary.clone()
    };
    let alone = Config { icmp_source4: None, hairpin: false, ..config.clone() };
    vec![
        ("ordinary", config.clone(), ordinary.clone()),
        ("explicit mappings beside", beside, ordinary.clone()),
        ("the well-known prefix", well_known(true), ordinary.clone()),
        ("the well-known prefix, strict", well_known(false), ordinary),
        ("a full pool", alone, crowded),
    ]
}
