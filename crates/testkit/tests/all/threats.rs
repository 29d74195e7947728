//! Attacks on stateful translation: `docs/threats.md` tells what each of them is about.

mod bench;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use bench::{Bench, T, Wire};
use fordway_testkit::model::Random;
use fordway_xlat::DropReason;
use fordway_xlat::nat64::{Filtering, Protocol, Quotas, Settings, Sizes, StaticBib};
use fordway_xlat::reassembly::Limits;

const HOST: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);
const VICTIM: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);

const SYN: &str = "S";
const SYN_ACK: &str = "SA";
const ACK: &str = "A";
const RST: &str = "R";

fn small() -> Settings {
    Settings { sizes: Sizes { bibs: 1024, sessions: 1024, subscribers: 64 }, ..bench::settings() }
}

/// An established connection of the victim; gives its external port.
fn established(bench: &mut Bench) -> u16 {
    let wire = bench.tcp6(VICTIM, 40_000, SERVER, 443, SYN);
    let Wire::To4 { sport, .. } = wire else { panic!("{wire:?}") };
    let answer = bench.tcp4(SERVER, 443, sport, SYN_ACK);
    assert!(matches!(answer, Wire::To6 { .. }), "{answer:?}");
    sport
}

fn still_works(bench: &mut Bench, port: u16) {
    assert!(matches!(bench.tcp6(VICTIM, 40_000, SERVER, 443, ACK), Wire::To4 { .. }));
    assert!(matches!(bench.tcp4(SERVER, 443, port, ACK), Wire::To6 { .. }));
}

#[test]
fn a_syn_flood_from_ipv6_is_its_senders_own_trouble() {
    let quotas = Quotas { ports: [200, 200, 50], sessions: 300, new_per_second: 100 };
    let mut bench = Bench::new(Settings { quotas, ..small() });
    let port = established(&mut bench);
    let mut opened = 0;
    for number in 0..20_000_u32 {
        if number % 1000 == 0 {
            bench.seconds(2);
        }
        let far = Ipv4Addr::from_bits(SERVER.to_bits() + 1 + number % 50_000);
        let wire = bench.tcp6(HOST, 1024 + (number % 60_000) as u16, far, 80, SYN);
        match wire {
            Wire::To4 { .. } => opened += 1,
            Wire::Refused(reason) => assert!(
                matches!(
                    reason,
                    DropReason::PortQuota | DropReason::SessionQuota | DropReason::RateQuota
                ),
                "{reason:?}"
            ),
            other => panic!("{other:?}"),
        }
    }
    assert!((1..=300).contains(&opened), "{opened}");
    still_works(&mut bench, port);
    // Others open new connections meanwhile.
    assert!(matches!(bench.tcp6(VICTIM, 40_001, SERVER, 443, SYN), Wire::To4 { .. }));
    // And half-open connections are gone after TCP_TRANS.
    bench.seconds(242);
    assert_eq!(bench.sessions(), 1);
}

#[test]
fn full_tables_harm_no_connection() {
    let mut bench = Bench::new(small());
    let port = established(&mut bench);
    let mut random = Random::new(1);
    let mut refused = 0;
    for number in 0..5000_u16 {
        let host = Ipv6Addr::from_bits(HOST.to_bits() + u128::from(random.number() % 4));
        let wire = bench.tcp6(host, 1024 + number, SERVER, 80, SYN);
        refused += u32::from(matches!(
            wire,
            Wire::Refused(DropReason::SessionsFull | DropReason::BibFull)
        ));
    }
    assert!(refused > 3000, "{refused}");
    still_works(&mut bench, port);
    bench.seconds(242);
    assert_eq!(bench.sessions(), 1);
    still_works(&mut bench, port);
    assert!(matches!(bench.tcp6(HOST, 1024, SERVER, 80, SYN), Wire::To4 { .. }));
}

#[test]
fn a_syn_flood_from_ipv4_fills_no_table() {
    let mut bench = Bench::new(small());
    let port = established(&mut bench);
    let mut random = Random::new(2);
    let (mut stored, mut dropped) = (0_u32, 0_u32);
    for _ in 0..20_000 {
        let far = Ipv4Addr::from_bits(0xc612_0000 | random.number() as u32 & 0xffff);
        let mine = 1024 + random.below(60_000) as u16;
        if mine == port {
            continue;
        }
        match bench.tcp4(far, random.number() as u16, mine, SYN) {
            Wire::Stored => stored += 1,
            Wire::Dropped(DropReason::SynsFull) => dropped += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(stored <= 1024 && dropped > 15_000, "{stored} {dropped}");
    assert_eq!((bench.bibs(), bench.sessions()), (1, 1));
    still_works(&mut bench, port);
    // Nothing is answered for six seconds; then no more than ICMP errors may be.
    bench.seconds(5);
    assert_eq!(bench.unanswered, 0);
    bench.seconds(2);
    assert!((1..=1100).contains(&bench.unanswered), "{}", bench.unanswered);
    // The room is free again.
    assert_eq!(bench.tcp4(SERVER, 9, 2000, SYN), Wire::Stored);
}

#[test]
fn a_syn_flood_to_a_port_forward_leaves_room_for_those_inside() {
    let forward = StaticBib { protocol: Protocol::Tcp, v6: (VICTIM, 80), v4: (T, 80) };
    let mut bench = Bench::new(Settings { bib: vec![forward], ..small() });
    let port = established(&mut bench);
    let mut random = Random::new(3);
    let mut refused = 0;
    for number in 0..5000_u16 {
        let far = Ipv4Addr::from_bits(0xc612_0000 | random.number() as u32 & 0xffff);
        match bench.tcp4(far, number, 80, SYN) {
            Wire::To6 { .. } => {}
            Wire::Dropped(DropReason::SessionsFull) => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(refused > 3000, "{refused}");
    assert!(bench.sessions() <= 1024 * 7 / 8, "{}", bench.sessions());
    still_works(&mut bench, port);
    assert!(matches!(bench.tcp6(HOST, 1024, SERVER, 80, SYN), Wire::To4 { .. }));
}

#[test]
fn outsiders_use_up_half_a_quota_at_most() {
    let quotas = Quotas { sessions: 100, ..Quotas::default() };
    let mut bench = Bench::new(Settings { quotas, ..small() });
    let Wire::To4 { sport, .. } = bench.udp6(VICTIM, 5000, SERVER, 53) else { panic!() };
    let mut random = Random::new(4);
    for _ in 0..1000 {
        let far = Ipv4Addr::from_bits(0xc612_0000 | random.number() as u32 & 0xffff);
        bench.udp4(far, 53, sport);
    }
    assert_eq!(bench.sessions(), 50);
    for number in 0..50 {
        let far = Ipv4Addr::from_bits(SERVER.to_bits() + 1 + number);
        assert!(matches!(bench.udp6(VICTIM, 5000, far, 53), Wire::To4 { .. }), "{number}");
    }
}

#[test]
fn a_port_scan_learns_nothing() {
    let settings = Settings { filtering: Filtering::AddressDependent, ..small() };
    let mut bench = Bench::new(settings);
    let port = established(&mut bench);
    let scanner = Ipv4Addr::new(192, 0, 2, 66);
    for mine in 1..=u16::MAX {
        for wire in [
            bench.udp4(scanner, 53, mine),
            bench.tcp4(scanner, 80, mine, ACK),
            bench.tcp4(scanner, 80, mine, RST),
            bench.tcp4(scanner, 80, mine, SYN_ACK),
            bench.echo4(scanner, mine),
        ] {
            // Nothing comes out on either side.
            assert!(matches!(wire, Wire::Dropped(_)), "{mine}: {wire:?}");
        }
    }
    assert_eq!((bench.bibs(), bench.sessions()), (1, 1));
    still_works(&mut bench, port);
}

#[test]
fn forged_icmp_errors_must_know_both_ends_and_change_nothing() {
    let mut bench = Bench::new(small());
    let port = established(&mut bench);
    let before = bench.describe_sessions();
    bench.seconds(10);
    for guess in 0..=u16::MAX {
        let wire = bench.error4((T, guess), (SERVER, 443));
        if guess != port {
            assert!(matches!(wire, Wire::Dropped(DropReason::NoBib)), "{guess}: {wire:?}");
        }
    }
    for far in 0..=u16::MAX {
        let wire = bench.error4((T, port), (SERVER, far));
        assert_eq!(matches!(wire, Wire::Dropped(DropReason::NoBib)), far != 443, "{far}");
    }
    // The host sees those that fit, and decides (RFC 5927); the session is as it was.
    assert!(matches!(bench.error4((T, port), (SERVER, 443)), Wire::Error6));
    assert_eq!(bench.describe_sessions(), before);
    still_works(&mut bench, port);
}

#[test]
fn a_forged_reset_ends_nothing() {
    let mut bench = Bench::new(small());
    let port = established(&mut bench);
    bench.tcp4(SERVER, 443, port, RST);
    bench.seconds(200);
    still_works(&mut bench, port);
    // As long as before.
    bench.seconds(7000);
    still_works(&mut bench, port);
    assert_eq!(bench.sessions(), 1);
}

#[test]
fn fragments_fill_no_memory() {
    let limits = Limits::default();
    let mut bench = Bench::new(small());
    let port = established(&mut bench);
    let mut random = Random::new(5);
    for number in 0..60_000_u32 {
        let far = Ipv4Addr::from_bits(0xc612_0000 | random.number() as u32 & 0xffff);
        bench.fragment4(far, number as u16, 0, 1400);
        if number % 10_000 == 0 {
            let kept = bench.fragments();
            assert!(kept.octets <= limits.octets && kept.datagrams <= limits.datagrams, "{kept:?}");
        }
    }
    assert!(bench.fragments().octets <= limits.octets);
    // What is whole passes, and fragments pass again when the flood's interval is over.
    still_works(&mut bench, port);
    bench.seconds(3);
    assert_eq!(bench.fragments().octets, 0);
    let Wire::To4 { sport, .. } = bench.udp6(VICTIM, 5000, SERVER, 53) else { panic!() };
    assert_eq!(bench.fragment4_to(SERVER, sport, 7, 0, 800), Wire::Stored);
    assert!(matches!(bench.fragment4_to(SERVER, sport, 7, 800, 1600), Wire::To6 { .. }));
}

#[test]
fn ports_can_not_be_guessed() {
    // Neighbouring hosts with the same port; a stranger knows his own and asks what the others have.
    let ports = |secret: u64| -> Vec<u16> {
        let mut bench = Bench::with_secret(bench::settings(), [secret, !secret]);
        (0..2000)
            .map(|number| {
                let host = Ipv6Addr::from_bits(HOST.to_bits() + number);
                match bench.udp6(host, 40_000, SERVER, 53) {
                    Wire::To4 { sport, .. } => sport,
                    other => panic!("{other:?}"),
                }
            })
            .collect()
    };
    let first = ports(1);
    // Spread over the pool: of 16 parts of it each has its share of 125, within six standard deviations.
    let mut parts = [0_u32; 16];
    for port in &first {
        parts[usize::from((port - 1024) / 4032)] += 1;
    }
    assert!(parts.iter().all(|number| (60..=190).contains(number)), "{parts:?}");
    // No step between neighbours is common.
    let steps: BTreeSet<u16> = first.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
    assert!(steps.len() > 1900, "{}", steps.len());
    // Another translator, or the same after its tables were made anew, has other ports.
    let same = first.iter().zip(ports(2)).filter(|(first, second)| **first == *second).count();
    assert!(same < 10, "{same}");
}

#[test]
fn chosen_addresses_do_not_collide() {
    // What a host can choose: ports, addresses of its prefix, destinations. Each in order, each alone.
    type Draw = fn(u32) -> (Ipv6Addr, u16, Ipv4Addr, u16);
    let draws: [(&str, Draw); 4] = [
        ("ports", |n| (HOST, n as u16, SERVER, 53)),
        ("low bits", |n| (Ipv6Addr::from_bits(HOST.to_bits() + u128::from(n)), 5000, SERVER, 53)),
        ("high bits", |n| {
            (Ipv6Addr::from_bits(HOST.to_bits() + (u128::from(n) << 64)), 5000, SERVER, 53)
        }),
        ("destinations", |n| (HOST, 5000, Ipv4Addr::from_bits(0xc612_0000 + n), 53)),
    ];
    for (name, draw) in draws {
        let sizes = Sizes { bibs: 16_384, sessions: 16_384, subscribers: 16_384 };
        let mut bench = Bench::new(Settings { sizes, ..bench::settings() });
        for number in 0..16_000 {
            let (host, port, far, far_port) = draw(number + 1);
            let wire = bench.udp6(host, port, far, far_port);
            assert!(matches!(wire, Wire::To4 { .. }), "{name} {number}: {wire:?}");
        }
        // As many chains as entries: the longest of a random choice has about eight.
        let longest = bench.longest_chains();
        assert!(longest.iter().all(|length| *length <= 16), "{name}: {longest:?}");
    }
}

#[test]
fn nothing_is_told_to_forged_senders() {
    // A source within pool6, and one within pool4: an answer would come back to the translator.
    let mut bench = Bench::new(small());
    let embedded = "2001:db8:64::203.0.113.1".parse().unwrap();
    assert_eq!(bench.udp6(embedded, 5000, SERVER, 53), Wire::Dropped(DropReason::Loop));
    assert_eq!(bench.udp4(T, 2000, 3000), Wire::Dropped(DropReason::Loop));
    assert_eq!((bench.bibs(), bench.sessions()), (0, 0));
}
