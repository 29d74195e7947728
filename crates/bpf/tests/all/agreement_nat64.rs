//! Core and kernel program on random sequences of packets, with time: they agree octet for octet, on
//! every packet and on the tables in the end, or the program has left a packet to the core, which then
//! works on the program's tables.
//!
//! Needs root; says so, and does nothing, without. Each program has a test for the settings of even and of odd
//! number, so that two processors have something to do. `FORDWAY_SEED` takes another seed, `FORDWAY_CASES`
//! another number of packets.

use std::net::Ipv4Addr;
use std::time::Duration;

use fordway_bpf::{Forwarding, Program, TestOptions};
use fordway_testhost::{can_use_tun, is_root};
use fordway_testkit::model::Random;
use fordway_xlat::nat64::{
    Addresses, Allocation, Filtering, Lifetimes, Pool, Protocol, Quotas, Range, Settings, Sizes,
    StaticBib,
};
use fordway_xlat::{Config, HopCount, IcmpErrors};

use crate::alike::hex;
use crate::cases::{Tally, setting};
use crate::pair::draw::{self, Surroundings};
use crate::pair::{Pair, Way};
use crate::wire::{apart, gateway};

/// Packets, shared among the settings.
const CASES: usize = 200_000;

/// Of the packets with ordinary settings at most this share is left to the core, in percent. Among the
/// drawn ones are many that are not common: errors, hairpinning, first packets of a subscriber, damage.
const MAX_LEFT: usize = 25;

/// At XDP more is left.
const MAX_LEFT_AT_XDP: usize = 35;

/// Packets between looks at all of the tables.
const LOOK: usize = 64;

/// Packets that are drawn to meet the same entries, unless much happens meanwhile.
const FRESH: usize = 16;

const JUMPS: [u64; 10] = [1, 1, 2, 3, 6, 7, 60, 121, 301, 7201];

#[test]
fn the_program_agrees_with_the_core_even() {
    interface_agrees(0);
}

#[test]
fn the_program_agrees_with_the_core_odd() {
    interface_agrees(1);
}

#[test]
fn the_ingress_agrees_with_the_core_even() {
    in_front_of_routing_agrees(Program::Ingress, MAX_LEFT, 0, Forwarding::Stack);
}

#[test]
fn the_ingress_agrees_with_the_core_odd() {
    in_front_of_routing_agrees(Program::Ingress, MAX_LEFT, 1, Forwarding::Stack);
}

#[test]
fn direct_forwarding_agrees_with_the_core_even() {
    in_front_of_routing_agrees(Program::Ingress, MAX_LEFT, 0, Forwarding::Direct);
}

#[test]
fn direct_forwarding_agrees_with_the_core_odd() {
    in_front_of_routing_agrees(Program::Ingress, MAX_LEFT, 1, Forwarding::Direct);
}

#[test]
fn xdp_agrees_with_the_core_even() {
    in_front_of_routing_agrees(Program::XdpNat64, MAX_LEFT_AT_XDP, 0, Forwarding::Stack);
}

#[test]
fn xdp_agrees_with_the_core_odd() {
    in_front_of_routing_agrees(Program::XdpNat64, MAX_LEFT_AT_XDP, 1, Forwarding::Stack);
}

/// Tables that were used up many times over serve hosts in IPv4 in the kernel, as new ones do.
#[test]
fn recycled_tables_are_still_the_kernels() {
    if !is_root() {
        return;
    }
    let (_, config, ordinary) = &all_settings()[0];
    let server = (Ipv4Addr::new(203, 0, 113, 77), 5353);
    let settings = Settings {
        bib: vec![forward(Protocol::Udp, 53, server.0, server.1)],
        sizes: Sizes { bibs: 64, sessions: 64, subscribers: 8 },
        ..ordinary.clone()
    };
    let mut pair = Pair::new(config, &settings);
    let after = settings.lifetimes.udp + Duration::from_secs(1);
    for round in 1..=20 {
        for number in 1..=50 {
            let client = (Ipv4Addr::new(198, 51, 100, number), 1000 + round);
            let way = pair.pass(&draw::datagram(client, server), 0);
            assert_eq!(way, Ok(Way::Translated), "round {round}, client {number}");
        }
        pair.compare().unwrap();
        pair.wait(after);
        pair.sweep().unwrap();
    }
    // The last eighth is for what hosts in IPv6 open: the core knows how much is left.
    let ways = (1..=60).map(|number| {
        let client = (Ipv4Addr::new(198, 51, 100, number), 1000);
        pair.pass(&draw::datagram(client, server), 0).unwrap()
    });
    let left = ways.filter(|way| matches!(way, Way::Left(_))).count();
    assert_eq!(left, 60 - 64 * 7 / 8);
    pair.compare().unwrap();
}

/// Address-dependent filtering: one host in IPv4 that sends from thousands of ports makes no long chain, and the program
/// lets in whom the core lets in.
#[test]
fn a_sender_with_many_ports_is_the_kernels() {
    const PORTS: u16 = 6000;
    if !is_root() {
        return;
    }
    let (_, config, ordinary) = &all_settings()[0];
    let settings = Settings {
        filtering: Filtering::AddressDependent,
        sizes: Sizes { bibs: 64, sessions: 8192, subscribers: 8 },
        ..ordinary.clone()
    };
    let mut pair = Pair::new(config, &settings);
    let host = (draw::HOSTS[0].parse().expect("an address"), 5004);
    let prefix = config.pool6[0].net().addr();
    let sender = Ipv4Addr::new(198, 51, 100, 1);
    let stranger = (Ipv4Addr::new(198, 51, 100, 2), 53);
    let translated = |pair: &mut Pair, packet: &[u8]| {
        assert_eq!(pair.pass(packet, 0), Ok(Way::Translated));
    };
    // The first packet of a subscriber is the core's.
    pair.pass(&draw::datagram6(host, prefix, stranger), 0).unwrap();
    for round in 0..2 {
        translated(&mut pair, &draw::datagram6(host, prefix, (sender, 53)));
        let local = pair.alone.nat.bib(pair.now).next().expect("a binding").binding.v4;
        let other = (Ipv4Addr::new(198, 51, 100, 3), 53);
        assert_eq!(pair.pass(&draw::datagram(other, local), 0), Ok(Way::Dropped));
        for _ in 0..2 {
            for port in 1000..1000 + PORTS {
                translated(&mut pair, &draw::datagram((sender, port), local));
            }
        }
        pair.compare().unwrap();
        // All of them end, and their entries are used again.
        pair.wait(settings.lifetimes.udp / 2);
        translated(&mut pair, &draw::datagram6(host, prefix, stranger));
        pair.wait(settings.lifetimes.udp / 2 + Duration::from_secs(1));
        pair.sweep().unwrap();
        pair.compare().unwrap();
        let refused = pair.pass(&draw::datagram((sender, 1000), local), 0);
        assert_eq!(refused, Ok(Way::Dropped), "round {round}");
    }
}

fn interface_agrees(first: usize) {
    if is_root() {
        agrees(first, MAX_LEFT, &Pair::new);
    }
}

fn in_front_of_routing_agrees(
    program: Program,
    max_left: usize,
    first: usize,
    forward: Forwarding,
) {
    if !can_use_tun() {
        return;
    }
    apart(|| {
        let into = ["2001:db8:64::/96", "2001:db8:65::/96", "64:ff9b::/96", "203.0.113.0/24"];
        let options = TestOptions { forward, ..gateway(&into) };
        agrees(first, max_left, &|config, settings| {
            Pair::of(program, options.clone(), config, settings)
        });
    });
}

/// Draws packets for every second of the settings from `first` on; of ordinary ones at most so many percent are left
/// to the core.
fn agrees(first: usize, max_left: usize, make: &dyn Fn(&Config, &Settings) -> Pair) {
    let cases = setting("FORDWAY_CASES", CASES);
    let seed = setting("FORDWAY_SEED", 0x000f_0d64);
    let all = all_settings();
    let packets = cases.div_ceil(all.len());
    for (number, (name, config, settings)) in all.iter().enumerate().skip(first).step_by(2) {
        let mut random = Random::new((seed + number) as u64);
        let mut ways = Tally::default();
        let mut left = 0;
        let mut pair = make(config, settings);
        let mut around = Surroundings::of(config, settings);
        let mut is_fresh = false;
        for step in 0..packets {
            let failed = |error: String, packet: &[u8]| -> ! {
                panic!("{name}, seed {seed}, step {step}: {error}\npacket {}", hex(packet))
            };
            if step % LOOK == 0 {
                pair.compare().unwrap_or_else(|error| failed(error, &[]));
            }
            if step % FRESH == 0 || !is_fresh {
                around.look_at(&pair.alone.nat, pair.now);
            }
            let packet = draw::packet(&mut random, &around);
            let mark = random.below(3) as u32;
            let way = pair.pass(&packet, mark).unwrap_or_else(|error| failed(error, &packet));
            ways.add(way);
            left += usize::from(matches!(way, Way::Left(_) | Way::LeftUnmatched));
            is_fresh = live(&mut random, &mut pair).unwrap_or_else(|error| failed(error, &packet));
        }
        pair.compare().unwrap_or_else(|error| panic!("{name}, seed {seed}, at the end: {error}"));
        println!("{name}: {left} of {packets} packets were left to the core:\n{ways}");
        if number == 0 {
            assert!(left * 100 <= packets * max_left, "that is more than {max_left} %");
        }
    }
}

/// What happens beside packets. Gives whether most entries are what they were.
fn live(random: &mut Random, pair: &mut Pair) -> Result<bool, String> {
    match random.below(100) {
        0..=7 => pair.wait(Duration::from_millis(50 * (1 + random.below(20) as u64))),
        8..=9 => {
            pair.wait(Duration::from_secs(random.pick(&JUMPS)));
            return Ok(false);
        }
        10..=11 => return pair.sweep().map(|()| false),
        12 => pair.drain(random.percent(10)),
        13..=16 => {
            let host = random.pick(&draw::HOSTS).parse().expect("an address");
            return pair.bind_by_name(host).map(|()| false);
        }
        _ => {}
    }
    Ok(true)
}

fn range(first: u8, last: u8, low: u16, high: u16) -> Range {
    let address = |octet| Ipv4Addr::new(203, 0, 113, octet);
    Range { first: address(first), last: address(last), low, high }
}

fn all_settings() -> Vec<(&'static str, Config, Settings)> {
    let config = Config {
        pool6: vec!["2001:db8:64::/96".parse().expect("a prefix")],
        icmp_errors: IcmpErrors::Unlimited,
        hairpin: true,
        ..Config::default()
    };
    let ordinary = Settings {
        pools: vec![Pool { ranges: vec![range(1, 2, 1024, 65_535)], ..Pool::default() }],
        sizes: Sizes { bibs: 500, sessions: 1000, subscribers: 50 },
        ..Settings::default()
    };
    let two_prefixes = Config {
        pool6: ["2001:db8:65::/96", "64:ff9b::/96"]
            .map(|prefix| prefix.parse().expect("a prefix"))
            .to_vec(),
        allow_private: true,
        decrement_hop_limit: HopCount::NONE,
        mss_clamp: true,
        mtu4: 1400,
        mtu6: 1420,
        ..config.clone()
    };
    // Remote hosts are not global: whoever reaches one asks by the second prefix.
    let well_known_first = Config {
        pool6: ["64:ff9b::/96", "2001:db8:64::/96"]
            .map(|prefix| prefix.parse().expect("a prefix"))
            .to_vec(),
        icmp_source6: Some("2001:db8:fe::1".parse().expect("an address")),
        ..config.clone()
    };
    let crowded = Settings {
        pools: vec![Pool {
            ranges: vec![range(1, 1, 1000, 1047), range(9, 9, 2000, 2007)],
            allocation: Allocation::Blocks { size: 4, most: 3 },
            ..Pool::default()
        }],
        subscriber_len: 64,
        filtering: Filtering::AddressDependent,
        ..ordinary.clone()
    };
    let by_address = Settings {
        filtering: Filtering::AddressDependent,
        sizes: Sizes { bibs: 500, sessions: 60, subscribers: 50 },
        ..ordinary.clone()
    };
    let limited = Settings {
        quotas: Quotas { ports: [3, 4, 2], sessions: 6, new_per_second: 4 },
        refresh_from_v4: false,
        accept_v4_syn: false,
        subscriber_len: 56,
        ..ordinary.clone()
    };
    let full = Settings {
        sizes: Sizes { bibs: 12, sessions: 16, subscribers: 3 },
        subscriber_len: 48,
        ..ordinary.clone()
    };
    let forwards = Settings {
        pools: vec![
            Pool { ranges: vec![range(1, 1, 1, 2047)], mark: Some(1), ..Pool::default() },
            Pool { ranges: vec![range(5, 8, 1, 65_535)], ..Pool::default() },
        ],
        bib: vec![
            forward(Protocol::Tcp, 80, Ipv4Addr::new(203, 0, 113, 1), 80),
            forward(Protocol::Udp, 53, Ipv4Addr::new(203, 0, 113, 77), 5353),
        ],
        lifetimes: Lifetimes { hold_down: Duration::ZERO, ..Lifetimes::default() },
        quotas: Quotas { ports: [20, 20, 20], sessions: 24, new_per_second: 12 },
        ..ordinary.clone()
    };
    // NAT-PT: addresses for hosts beside pool4, and in the place of it.
    let addresses = Addresses {
        pool: vec!["203.0.113.64/29".parse().expect("a network")],
        fixed: vec![(Ipv4Addr::new(203, 0, 113, 99), draw::HOSTS[1].parse().expect("an address"))],
        hold: Duration::from_secs(5),
        ..Addresses::default()
    };
    let napt_pt = Settings { addresses: Some(addresses.clone()), ..ordinary.clone() };
    let initiators = vec!["198.51.100.0/25".parse().expect("a network")];
    let basic = Settings {
        pools: Vec::new(),
        addresses: Some(Addresses { outgoing: true, initiators, ..addresses }),
        quotas: Quotas { ports: [6, 6, 6], sessions: 12, new_per_second: 0 },
        lifetimes: Lifetimes { dynamic4: Duration::from_secs(100), ..Lifetimes::default() },
        ..ordinary.clone()
    };
    vec![
        ("ordinary", config.clone(), ordinary.clone()),
        ("two prefixes", two_prefixes, ordinary.clone()),
        ("the Well-Known Prefix and another", well_known_first, ordinary),
        ("blocks, address-dependent", config.clone(), crowded),
        ("quotas", config.clone(), limited),
        ("few entries, address-dependent", config.clone(), by_address),
        ("full tables", config.clone(), full),
        ("marks and forwards", config.clone(), forwards),
        ("NAPT-PT", config.clone(), napt_pt),
        ("Basic-NAT-PT", config, basic),
    ]
}

fn forward(protocol: Protocol, port: u16, v4: Ipv4Addr, v4_port: u16) -> StaticBib {
    let host = "2001:db8:1::1".parse().expect("an address");
    StaticBib { protocol, v6: (host, port), v4: (v4, v4_port) }
}
