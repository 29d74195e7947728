//! Core and kernel program on random sequences of packets, with time: they agree octet for octet, on
//! every packet and on the tables in the end, or the program has left a packet to the core, which then
//! works on the program's tables.
//!
//! Needs root; says so, and does nothing, without. `FORDWAY_SEED` takes another seed, `FORDWAY_CASES`
//! another number of packets.

mod alike;
mod nat64;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use fordway_bpf::{Program, TestOptions};
use fordway_testkit::model::Random;
use fordway_testkit::sys;
use fordway_xlat::nat64::{
    Addresses, Allocation, Binding, Filtering, Lifetimes, Pool, Protocol, Quotas, Range, Settings,
    Sizes, StaticBib,
};
use fordway_xlat::{Config, HopCount, IcmpErrors};

use nat64::draw::{self, Surroundings};
use nat64::{Pair, Way};

/// Packets, shared among the settings.
const CASES: usize = 200_000;

/// Of the packets with ordinary settings at most this share is left to the core, in percent. Among the
/// drawn ones are many that are not common: errors, hairpinning, first packets of a subscriber, damage.
const MAX_LEFT: usize = 25;

/// At XDP more is left.
const MAX_LEFT_AT_XDP: usize = 35;

/// Packets between looks at all of the tables.
const LOOK: usize = 64;

const JUMPS: [u64; 10] = [1, 1, 2, 3, 6, 7, 60, 121, 301, 7201];

#[test]
fn the_program_agrees_with_the_core() {
    if !sys::is_root() {
        return eprintln!("SKIPPED: programs in the kernel need root");
    }
    agrees(MAX_LEFT, &Pair::new);
}

#[test]
fn the_programs_in_front_of_routing_agree_with_the_core() {
    if !sys::is_root() {
        return eprintln!("SKIPPED: programs in the kernel need root");
    }
    for (program, max_left) in [(Program::Ingress, MAX_LEFT), (Program::XdpNat64, MAX_LEFT_AT_XDP)]
    {
        let tested = std::thread::spawn(move || {
            sys::enter_new_namespace().expect("a network namespace");
            let options = gateway();
            agrees(max_left, &|config, settings| {
                Pair::of(program, options.clone(), config, settings)
            });
        });
        tested.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
}

/// This namespace forwards what arrives at its loopback device: pool6 into a translator's interface, all else
/// to a neighbour.
fn gateway() -> TestOptions {
    for command in [
        "ip link set lo up",
        "ip tuntap add dev fw0 mode tun",
        "ip link set fw0 up",
        "ip link add out type veth peer name far",
        "ip link set out mtu 65535 up",
        "ip link set far mtu 65535 up",
        "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1",
        "ip -6 addr add 2001:db8:ffff::1/64 dev out nodad",
        "ip addr add 198.19.255.1/24 dev out",
        "ip neigh add 198.19.255.2 lladdr 02:00:00:00:00:09 dev out nud permanent",
        "ip -6 neigh add 2001:db8:ffff::2 lladdr 02:00:00:00:00:09 dev out nud permanent",
        "ip route add default via 198.19.255.2",
        "ip -6 route add default via 2001:db8:ffff::2",
        "ip -6 route add 2001:db8:64::/96 dev fw0",
        "ip -6 route add 2001:db8:65::/96 dev fw0",
        "ip -6 route add 64:ff9b::/96 dev fw0",
        "ip route add 203.0.113.0/24 dev fw0",
    ] {
        let mut words = command.split(' ');
        let program = words.next().expect("a program");
        let status = std::process::Command::new(program).args(words).status();
        assert!(status.expect(program).success(), "{command}");
    }
    let index = |name| sys::interface_index(name).expect("the device") as u32;
    TestOptions { tun: index("fw0"), devices: vec![index("out")], ..TestOptions::default() }
}

/// Draws packets for all settings; of ordinary ones at most so many percent are left to the core.
fn agrees(max_left: usize, make: &dyn Fn(&Config, &Settings) -> Pair) {
    let cases =
        std::env::var("FORDWAY_CASES").map_or(CASES, |text| text.parse().expect("a number"));
    let seed =
        std::env::var("FORDWAY_SEED").map_or(0x000f_0d64, |text| text.parse().expect("a number"));
    let settings = all_settings();
    for (number, (name, config, settings)) in settings.iter().enumerate() {
        let mut random = Random::new(seed + number as u64);
        let mut tally = BTreeMap::<String, usize>::new();
        let mut left = 0;
        let mut pair = make(config, settings);
        let packets = cases.div_ceil(all_settings().len());
        for step in 0..packets {
            let failed = |error: String, packet: &[u8]| -> ! {
                panic!("{name}, seed {seed}, step {step}: {error}\npacket {}", hex(packet))
            };
            if step % LOOK == 0 {
                pair.compare().unwrap_or_else(|error| failed(error, &[]));
            }
            let around = surroundings(config, settings, &pair);
            let packet = draw::packet(&mut random, &around);
            let mark = random.below(3) as u32;
            let way = pair.pass(&packet, mark).unwrap_or_else(|error| failed(error, &packet));
            *tally.entry(format!("{way:?}")).or_default() += 1;
            left += usize::from(matches!(way, Way::Left(_) | Way::LeftUnmatched));
            live(&mut random, &mut pair).unwrap_or_else(|error| failed(error, &packet));
        }
        pair.compare().unwrap_or_else(|error| panic!("{name}, seed {seed}, at the end: {error}"));
        println!("{name}: {left} of {packets} packets were left to the core: {tally:?}");
        if number == 0 {
            assert!(left * 100 <= packets * max_left, "that is more than {max_left} %");
        }
    }
}

/// What happens beside packets.
fn live(random: &mut Random, pair: &mut Pair) -> Result<(), String> {
    match random.below(100) {
        0..=7 => pair.wait(Duration::from_millis(50 * (1 + random.below(20) as u64))),
        8..=9 => pair.wait(Duration::from_secs(random.pick(&JUMPS))),
        10..=11 => return pair.sweep(),
        12 => pair.drain(random.percent(10)),
        13..=16 => {
            return pair.bind_by_name(random.pick(&draw::HOSTS).parse().expect("an address"));
        }
        _ => {}
    }
    Ok(())
}

fn surroundings(config: &Config, settings: &Settings, pair: &Pair) -> Surroundings {
    let ranges = settings.pools.iter().flat_map(|pool| &pool.ranges);
    let fixed = settings.addresses.iter().flat_map(|it| &it.fixed).map(|(addr, _)| *addr);
    let pool4 = ranges.clone().flat_map(|range| [range.first, range.last]).chain(fixed).collect();
    let ports = ranges.clone().next().map_or((1, 1), |range| {
        (range.low.saturating_sub(3).max(1), range.high.min(range.low.saturating_add(40)))
    });
    let nat = &pair.alone.nat;
    Surroundings {
        prefixes: config.pool6.iter().map(|pool6| pool6.net().addr()).collect(),
        pool4,
        ports,
        bindings: nat.bib(pair.now).flat_map(|bib| with_ports(bib.binding)).collect(),
        sessions: nat.sessions(pair.now).collect(),
    }
}

/// A binding that packets can meet: of a whole address (NAT-PT), some ports.
fn with_ports(binding: Binding) -> Vec<Binding> {
    if binding.protocol.is_some() {
        return vec![binding];
    }
    let at =
        |port: &u16| Binding { v4: (binding.v4.0, *port), v6: (binding.v6.0, *port), ..binding };
    draw::HOST_PORTS.iter().map(at).collect()
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
        lifetimes: Lifetimes { port_rest: Duration::ZERO, ..Lifetimes::default() },
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
        ("two prefixes", two_prefixes, ordinary),
        ("blocks, address-dependent", config.clone(), crowded),
        ("quotas", config.clone(), limited),
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

fn hex(octets: &[u8]) -> String {
    octets.iter().take(120).map(|octet| format!("{octet:02x}")).collect()
}
