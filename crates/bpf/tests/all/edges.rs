//! Core and kernel program at the edges of rules, where drawn packets seldom are. Needs root.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use fordway_bpf::{Loaded, Outcome, PassReason, Program, TestOptions};
use fordway_testhost::is_root;
use fordway_testkit::checksum::checksum;
use fordway_testkit::oracle;
use fordway_testkit::packet::PacketSpec;
use fordway_xlat::addr::{Eam, EamTable};
use fordway_xlat::nat64::layout::PERMISSION;
use fordway_xlat::nat64::{
    Filtering, Memory, Pool, Protocol, Quotas, Range, Settings, Sizes, StaticBib,
};
use fordway_xlat::{Config, Offload, State, Translator};

use crate::alike::{Made, agree, frame, hex};
use crate::pair::{Pair, Way, draw};

/// Program and core of one configuration.
struct Both {
    config: Config,
    translator: Translator,
    loaded: Loaded,
}

impl Both {
    fn new(config: Config) -> Both {
        let translator = Translator::new(config.clone()).unwrap();
        let loaded = Loaded::load(&config, &[Program::Interface], &TestOptions::default()).unwrap();
        Both { config, translator, loaded }
    }

    /// Gives both a packet, and what the program made of it.
    fn pass(&mut self, packet: &[u8]) -> Outcome {
        let offload = Offload::default();
        let core = oracle::translate(&self.translator, &mut State::new(1), packet, offload);
        let run = self.loaded.run(Program::Interface, &frame(packet), 0, 1).unwrap();
        let outcome = run.outcome.expect("counted once");
        let made = Made { outcome, packet: Some(&run.frame[14..]), offload: None };
        if let Err(wrong) = agree(packet, &core, &made) {
            panic!("{wrong}\npacket {}\n{:?}", hex(packet), self.config);
        }
        outcome
    }

    /// One that the program decides by itself.
    fn decide(&mut self, packet: &[u8]) -> Outcome {
        let outcome = self.pass(packet);
        let decided = matches!(outcome, Outcome::Translated | Outcome::Dropped(_));
        assert!(decided, "{outcome:?}: {}", hex(packet));
        outcome
    }
}

fn packet(description: &str) -> Vec<u8> {
    let spec: PacketSpec = toml::from_str(description).unwrap();
    spec.build().unwrap().bytes
}

fn v4(src: Ipv4Addr, dst: Ipv4Addr) -> Vec<u8> {
    packet(&format!(
        "v4 = {{ src = \"{src}\", dst = \"{dst}\" }}\nudp = {{ sport = 5, dport = 53 }}"
    ))
}

fn v6(src: Ipv6Addr, dst: Ipv6Addr) -> Vec<u8> {
    packet(&format!(
        "v6 = {{ src = \"{src}\", dst = \"{dst}\" }}\nudp = {{ sport = 5, dport = 53 }}"
    ))
}

/// First and last addresses of networks with a meaning, and their neighbours.
fn edges4() -> Vec<Ipv4Addr> {
    let nets = [
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "100.96.0.0/11",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.0.0/29",
        "192.0.0.8/32",
        "192.0.0.9/32",
        "192.0.0.10/32",
        "192.0.0.170/31",
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "255.255.255.255/32",
    ];
    let mut edges = Vec::new();
    for net in nets {
        let net: ipnet::Ipv4Net = net.parse().unwrap();
        let (first, last) = (net.network().to_bits(), net.broadcast().to_bits());
        let around = [first.wrapping_sub(1), first, last, last.wrapping_add(1)];
        edges.extend(around.map(Ipv4Addr::from_bits));
    }
    edges
}

fn edges6() -> Vec<Ipv6Addr> {
    let mut edges = Vec::new();
    for net in [
        "::/128",
        "::1/128",
        "::ffff:0:0/96",
        "fe80::/10",
        "fec0::/10",
        "fc00::/7",
        "ff00::/8",
        "2000::/3",
    ] {
        let net: ipnet::Ipv6Net = net.parse().unwrap();
        let (first, last) = (net.network().to_bits(), net.broadcast().to_bits());
        let around = [first.wrapping_sub(1), first, last, last.wrapping_add(1)];
        edges.extend(around.map(Ipv6Addr::from_bits));
    }
    // The last network of each length below fe80::/10.
    edges.extend((0xfe7f..=0xfec0).map(|first| Ipv6Addr::new(first, 0, 0, 0, 0, 0, 0, 1)));
    edges
}

#[test]
fn addresses_with_a_meaning() {
    if !is_root() {
        return;
    }
    // The one address of the documents' kind that is global.
    let peer = Ipv4Addr::new(192, 0, 0, 9);
    let host: Ipv6Addr = "2001:db8:1::5".parse().unwrap();
    let prefix: Ipv6Addr = "64:ff9b::".parse().unwrap();
    let own = Ipv4Addr::new(198, 18, 0, 1);
    let eam = Eam::new(own.into(), host.into());
    for allow_private in [false, true] {
        let mut both = Both::new(Config {
            pool6: vec!["64:ff9b::/96".parse().unwrap()],
            eam: EamTable::new([eam.unwrap()]).unwrap(),
            allow_private,
            ..Config::default()
        });
        for edge in edges4() {
            both.pass(&v4(edge, peer));
            both.pass(&v4(peer, edge));
            both.pass(&v4(edge, own));
            let embedded = |address: Ipv4Addr| {
                Ipv6Addr::from_bits(prefix.to_bits() | u128::from(address.to_bits()))
            };
            both.pass(&v6(host, embedded(edge)));
            both.pass(&v6(embedded(edge), embedded(peer)));
        }
        for edge in edges6() {
            both.pass(&v6(edge, "64:ff9b::c000:9".parse().unwrap()));
            both.pass(&v6(host, edge));
        }
        for global in [peer, Ipv4Addr::new(192, 0, 0, 10)] {
            assert_eq!(both.decide(&v4(global, own)), Outcome::Translated);
        }
        // What is nobody's on a wire ends in the kernel.
        for first in 0xfe80..=0xfebf {
            let nobody = Ipv6Addr::new(first, 0, 0, 0, 0, 0, 0, 1);
            let outcome = both.decide(&v6(nobody, "64:ff9b::c000:9".parse().unwrap()));
            assert!(matches!(outcome, Outcome::Dropped(_)), "{nobody}: {outcome:?}");
        }
    }
}

/// RFC 7757: the bits behind the prefixes go over, wherever in the IPv6 address they stand.
#[test]
fn suffixes_of_mappings_in_every_place() {
    if !is_root() {
        return;
    }
    let remote = Ipv4Addr::new(203, 0, 113, 1);
    for len4 in [4, 6, 15, 16, 20, 24] {
        // All places near the middle, some of the others.
        let places =
            (24..=128 - (32 - len4)).filter(|len6| (46..=66).contains(len6) || len6 % 16 == 1);
        for len6 in places {
            let bits: u128 = 0x2001_0db8_ffff_ffff_ffff_ffff_ffff_ffff;
            let net = ipnet::Ipv6Net::new(Ipv6Addr::from_bits(bits), len6).unwrap().trunc();
            let own = ipnet::Ipv4Net::new(Ipv4Addr::new(198, 18, 0, 0), len4).unwrap().trunc();
            let mut both = Both::new(Config {
                pool6: vec!["2001:db8:64::/96".parse().unwrap()],
                eam: EamTable::new([Eam::new(own, net).unwrap()]).unwrap(),
                ..Config::default()
            });
            for suffix in [0u32, 1, 0x55_55, 0xaa_aa, 0x0aaa_aaaa, u32::MAX] {
                let suffix = suffix & ((1 << (32 - u32::from(len4))) - 1);
                let host4 = Ipv4Addr::from_bits(own.network().to_bits() | suffix);
                both.pass(&v4(remote, host4));
                let at = 128 - u32::from(len6) - (32 - u32::from(len4));
                let host6 = Ipv6Addr::from_bits(net.network().to_bits() | u128::from(suffix) << at);
                both.pass(&v6(host6, "2001:db8:64::cb00:7101".parse().unwrap()));
            }
        }
    }
}

/// RFC 1071: what is carried over the sum of 32-bit words is added again, and may carry once more.
#[test]
fn sums_that_carry_twice() {
    if !is_root() {
        return;
    }
    let (own, remote) = (Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(203, 0, 113, 1));
    let far: Ipv6Addr = "2001:db8:64::cb00:7101".parse().unwrap();
    let words = |address: Ipv6Addr| -> u32 {
        let octets = address.octets();
        let words = octets.chunks(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap()));
        words.fold(0, u32::wrapping_add)
    };
    let head: Ipv6Addr = "2001:db8:ffff:ffff:ffff:ffff::".parse().unwrap();
    let last = u32::MAX.wrapping_sub(words(head)).wrapping_sub(words(far));
    for near in [last.wrapping_sub(2), last.wrapping_sub(1), last, last.wrapping_add(1)] {
        // The word as it lies in memory.
        let tail = u128::from(u32::from_be_bytes(near.to_ne_bytes()));
        let host = Ipv6Addr::from_bits(head.to_bits() | tail);
        let mut both = Both::new(Config {
            pool6: vec!["2001:db8:64::/96".parse().unwrap()],
            eam: EamTable::new([Eam::new(own.into(), host.into()).unwrap()]).unwrap(),
            ..Config::default()
        });
        assert_eq!(both.decide(&v6(host, far)), Outcome::Translated);
        assert_eq!(both.decide(&v4(remote, own)), Outcome::Translated);
    }
}

fn siit() -> Config {
    Config {
        pool6: vec!["2001:db8:64::/96".parse().unwrap()],
        ipv4_translatable: true,
        ..Config::default()
    }
}

/// A fragment of UDP from IPv4, with this place, these octets, and whether more follow.
fn fragment(offset: usize, len: usize, more: bool) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 7, 0, 0, 64, 17, 0, 0, 198, 51, 100, 1, 203, 0, 113, 1];
    packet[2..4].copy_from_slice(&((20 + len) as u16).to_be_bytes());
    let field = (offset / 8) as u16 | u16::from(more) << 13;
    packet[6..8].copy_from_slice(&field.to_be_bytes());
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.resize(20 + len, 0x5a);
    packet
}

#[test]
fn fragments_at_their_limits() {
    if !is_root() {
        return;
    }
    let mut both = Both::new(siit());
    for (offset, len, more) in [
        (8, 0, true),
        (8, 0, false),
        (8, 1, true),
        (8, 7, true),
        (8, 8, true),
        (8, 9, true),
        (8, 1, false),
        (65_528, 7, false),
        (65_528, 8, false),
        (65_528, 8, true),
        (65_520, 15, false),
        (65_520, 16, false),
        (65_520, 17, false),
        (65_512, 16, true),
        (65_512, 24, true),
        (65_512, 23, false),
        (65_512, 24, false),
    ] {
        both.pass(&fragment(offset, len, more));
    }
    // What no packet has is dropped without the user engine.
    for (offset, len, more) in [(8, 0, true), (65_528, 8, false), (65_520, 16, false)] {
        let outcome = both.decide(&fragment(offset, len, more));
        assert!(matches!(outcome, Outcome::Dropped(_)), "{offset} {len}: {outcome:?}");
    }
}

#[test]
fn a_packet_of_exactly_the_mtu_fits() {
    if !is_root() {
        return;
    }
    let mut both = Both::new(Config { mtu6: 1500, ..siit() });
    let whole = |len: usize| {
        let mut packet = fragment(0, len, false);
        packet[20..28].copy_from_slice(&[0, 5, 0, 53, (len >> 8) as u8, len as u8, 0x12, 0x34]);
        packet[6] |= 0x40;
        packet[10..12].fill(0);
        let sum = checksum(&packet[..20]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet
    };
    assert_eq!(both.decide(&whole(1460)), Outcome::Translated);
    assert_eq!(both.pass(&whole(1461)), Outcome::PassedOn(PassReason::TooBig));
}

/// RFC 768, RFC 3828: a checksum that comes to 0 is sent as all ones.
#[test]
fn a_checksum_of_nothing() {
    if !is_root() {
        return;
    }
    let mut both = Both::new(siit());
    for protocol in [17, 136] {
        // The header says how much of UDP-Lite the checksum covers: all of it.
        let with = |sum: u16| {
            let mut packet = fragment(0, 8, false);
            packet[9] = protocol;
            packet[10..12].fill(0);
            let header = checksum(&packet[..20]);
            packet[10..12].copy_from_slice(&header.to_be_bytes());
            packet[20..].copy_from_slice(&[0, 5, 0, 53, 0, 8, 0, 0]);
            packet[26..28].copy_from_slice(&sum.to_be_bytes());
            packet
        };
        let offload = Offload::default();
        let first = with(0x1234);
        let made = oracle::translate(&both.translator, &mut State::new(1), &first, offload);
        let sum = u16::from_be_bytes(made.packets[0][46..48].try_into().unwrap());
        // Translation adds a number to it, in arithmetic modulo 0xffff.
        let zero = (0x1234 + 0xffff - u32::from(sum)) % 0xffff;
        for near in [zero + 0xffff - 1, zero, zero + 1] {
            let near = (near % 0xffff) as u16;
            assert_eq!(
                both.decide(&with(if near == 0 { 0xffff } else { near })),
                Outcome::Translated
            );
        }
    }
}

fn stateful(quotas: Quotas, filtering: Filtering) -> (Config, Settings) {
    let address = Ipv4Addr::new(192, 0, 2, 1);
    let range = Range { first: address, last: address, low: 1024, high: 65_535 };
    let settings = Settings {
        pools: vec![Pool { ranges: vec![range], ..Pool::default() }],
        sizes: Sizes { bibs: 64, sessions: 64, subscribers: 8 },
        bib: vec![StaticBib {
            protocol: Protocol::Udp,
            v4: (address, 53),
            v6: (draw::HOSTS[0].parse().unwrap(), 53),
        }],
        quotas,
        filtering,
        ..Settings::default()
    };
    let config = Config { pool6: vec!["2001:db8:64::/96".parse().unwrap()], ..Config::default() };
    (config, settings)
}

/// Hosts in IPv4 may use up half of a quota, rounded up.
#[test]
fn half_of_an_odd_quota() {
    if !is_root() {
        return;
    }
    let quotas = Quotas { sessions: 5, ..Quotas::default() };
    let (config, settings) = stateful(quotas, Filtering::EndpointIndependent);
    let mut pair = Pair::new(&config, &settings);
    let sender = Ipv4Addr::new(198, 51, 100, 1);
    let forward = (Ipv4Addr::new(192, 0, 2, 1), 53);
    let ways = (1..=4).map(|port| pair.pass(&draw::datagram((sender, port), forward), 0).unwrap());
    let ways: Vec<Way> = ways.collect();
    assert_eq!(ways, [Way::Translated, Way::Translated, Way::Translated, Way::Dropped]);
    pair.compare().unwrap();
}

/// Only a SYN of its own may be kept until its host has one, too (RFC 6146 section 3.5.2.2).
#[test]
fn an_answer_that_nobody_has_asked_for() {
    if !is_root() {
        return;
    }
    let (config, settings) = stateful(Quotas::default(), Filtering::EndpointIndependent);
    let mut pair = Pair::new(&config, &settings);
    let segment = |flags: &str| {
        packet(&format!(
            "v4 = {{ src = \"198.51.100.1\", dst = \"192.0.2.1\" }}\n\
             tcp = {{ sport = 80, dport = 4096, flags = \"{flags}\" }}"
        ))
    };
    assert_eq!(pair.pass(&segment("SA"), 0), Ok(Way::Dropped));
    assert!(matches!(pair.pass(&segment("S"), 0), Ok(Way::Left(_))));
}

/// RFC 6888 REQ-8: a port that rests is another host's only after its time, however near that host is.
#[test]
fn a_neighbour_gets_no_resting_port() {
    if !is_root() {
        return;
    }
    let (config, settings) = stateful(Quotas::default(), Filtering::EndpointIndependent);
    let address = Ipv4Addr::new(192, 0, 2, 1);
    let range = Range { first: address, last: address, low: 2000, high: 2001 };
    let settings = Settings {
        pools: vec![Pool { ranges: vec![range], ..Pool::default() }],
        bib: Vec::new(),
        ..settings
    };
    let mut pair = Pair::new(&config, &settings);
    let prefix = config.pool6[0].net().addr();
    let hosts: [Ipv6Addr; 2] = ["2001:db8:1::1", "2001:db8:1::2"].map(|it| it.parse().unwrap());
    let remote = (Ipv4Addr::new(198, 51, 100, 1), 53);
    // Parity is kept (RFC 4787 REQ-4): one has the odd port, the other one the even one.
    for (host, port) in [(hosts[0], 5001), (hosts[1], 5002)] {
        pair.pass(&draw::datagram6((host, port), prefix, remote), 0).unwrap();
    }
    pair.wait(settings.lifetimes.udp + Duration::from_secs(1));
    pair.sweep().unwrap();
    pair.sweep().unwrap();
    // Both ports rest: each host has its own again, and no other.
    assert_eq!(
        pair.pass(&draw::datagram6((hosts[0], 5001), prefix, remote), 0),
        Ok(Way::Translated)
    );
    let way = pair.pass(&draw::datagram6((hosts[0], 5004), prefix, remote), 0);
    assert!(matches!(way, Ok(Way::Left(_))), "{way:?}");
    pair.compare().unwrap();
}

/// Subscribers of packets with a mark are found in the kernel.
#[test]
fn subscribers_with_a_mark_are_known() {
    if !is_root() {
        return;
    }
    let (config, settings) = stateful(Quotas::default(), Filtering::EndpointIndependent);
    let mut pools = settings.pools.clone();
    pools[0].mark = Some(7);
    let mut pair = Pair::new(&config, &Settings { pools, bib: Vec::new(), ..settings });
    let prefix = config.pool6[0].net().addr();
    let host: Ipv6Addr = "2001:db8:1::1".parse().unwrap();
    let remote = (Ipv4Addr::new(198, 51, 100, 1), 53);
    let mut pass = |port| pair.pass(&draw::datagram6((host, port), prefix, remote), 7);
    assert!(matches!(pass(1), Ok(Way::Left(_))));
    let second = pass(2);
    assert!(!matches!(second, Ok(Way::Left(PassReason::Subscriber))), "{second:?}");
}

/// A permission that was a dead binding's lets nobody in to the next one at its port.
#[test]
fn a_permission_is_of_its_binding() {
    if !is_root() {
        return;
    }
    let (config, settings) = stateful(Quotas::default(), Filtering::AddressDependent);
    let mut pair = Pair::new(&config, &settings);
    let host = (draw::HOSTS[1].parse().unwrap(), 5004);
    let remote = Ipv4Addr::new(198, 51, 100, 1);
    let prefix = config.pool6[0].net().addr();
    pair.pass(&draw::datagram6(host, prefix, (remote, 53)), 0).unwrap();
    let dynamic = |bib: &fordway_xlat::nat64::BibEntry| bib.binding.v6 == host;
    let local = pair.alone.nat.bib(pair.now).find(dynamic).expect("a binding").binding.v4;
    assert_eq!(pair.pass(&draw::datagram((remote, 1000), local), 0), Ok(Way::Translated));
    let sessions = pair.maps.regions().sessions;
    let permission =
        sessions.iter().find(|it| it.protocol.load(Relaxed) & PERMISSION != 0).unwrap();
    permission.bib.store(permission.bib.load(Relaxed) + 1, Relaxed);
    let run = pair.by_program(&draw::datagram((remote, 1001), local), 0).unwrap();
    assert!(matches!(run.outcome, Some(Outcome::Dropped(_))), "{:?}", run.outcome);
}
