//! Loaded programs on single frames, and the maps of many mappings. Needs root.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use fordway_bpf::{Action, Loaded, Outcome, PassReason, Program, StateMaps, Stateful, TestOptions};
use fordway_testhost::is_root;
use fordway_xlat::addr::{Eam, EamTable};
use fordway_xlat::nat64::{Dynamic4, Pool, Range, Settings, Sizes};
use fordway_xlat::{Config, Direction, DropReason};

use crate::common::{config, in_namespace, tun};

const ETHERNET: usize = 14;
const IPV6: [u8; 2] = [0x86, 0xdd];

/// An Ethernet frame with an IPv4 packet that has a UDP datagram without data.
fn frame_v4(source: Ipv4Addr, destination: Ipv4Addr, ttl: u8) -> Vec<u8> {
    let mut ip = vec![0x45, 0, 0, 28, 0, 0, 0x40, 0, ttl, 17, 0, 0];
    ip.extend(source.octets());
    ip.extend(destination.octets());
    let header = checksum(&ip);
    ip[10..12].copy_from_slice(&header);
    let mut pseudo = [source.octets(), destination.octets()].concat();
    let mut udp = vec![0x10, 0x20, 0x30, 0x40, 0, 8, 0, 0];
    pseudo.extend([0, 17, 0, 8]);
    pseudo.extend(&udp);
    let sum = checksum(&pseudo);
    udp[6..8].copy_from_slice(&sum);
    let mut frame = vec![0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 2, 8, 0];
    frame.extend(ip);
    frame.extend(udp);
    frame
}

/// RFC 1071.
fn checksum(octets: &[u8]) -> [u8; 2] {
    let mut sum: u32 =
        octets.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

fn addresses(frame: &[u8]) -> (Ipv6Addr, Ipv6Addr) {
    let addr = |at: usize| <[u8; 16]>::try_from(&frame[ETHERNET + at..][..16]).unwrap().into();
    (addr(8), addr(24))
}

#[test]
fn a_frame_is_translated_and_counted() {
    if !is_root() {
        return;
    }
    // A host's own address is mapped explicitly: only that is an uplink's to translate.
    let host = Eam::new("192.0.2.1/32".parse().unwrap(), "2001:db8:1::1/128".parse().unwrap());
    let config = Config { eam: EamTable::new(host).unwrap(), ..config() };
    let programs =
        [Program::Interface, Program::UplinkEgress, Program::UplinkIngress, Program::Xdp];
    let mut loaded =
        Loaded::load(&config, &programs, &TestOptions { tun: 1, ..TestOptions::default() })
            .unwrap();
    let frame = frame_v4([192, 0, 2, 1].into(), [198, 51, 100, 7].into(), 64);

    let run = loaded.run(Program::Interface, &frame, 0, 1).unwrap();
    assert_eq!((run.action, run.outcome), (Action::Redirect, Some(Outcome::Translated)));
    assert_eq!(run.frame[ETHERNET - 2..ETHERNET], IPV6);
    assert_eq!(run.frame.len(), frame.len() + 20);
    let expected = ("2001:db8:1::1".parse().unwrap(), "2001:db8:64::c633:6407".parse().unwrap());
    assert_eq!(addresses(&run.frame), expected);
    assert_eq!(run.frame[ETHERNET + 7], 63, "the configuration counts one hop");

    let run = loaded.run(Program::UplinkEgress, &frame, 0, 1).unwrap();
    assert_eq!((run.action, run.code), (Action::Continue, -1));
    assert_eq!(run.outcome, Some(Outcome::Translated));
    assert_eq!(run.frame[ETHERNET - 2..ETHERNET], IPV6);

    let run = loaded.run(Program::UplinkIngress, &frame, 0, 1).unwrap();
    assert_eq!((run.action, run.frame), (Action::Continue, frame), "IPv4 is not for it");
    assert_eq!(loaded.totals().unwrap().direction(Direction::V4ToV6).packets, 2);
}

#[test]
fn outcomes_are_told_by_the_counters() {
    if !is_root() {
        return;
    }
    let mut loaded =
        Loaded::load(&config(), &[Program::Interface], &TestOptions::default()).unwrap();
    let mut frame = frame_v4([192, 0, 2, 1].into(), [198, 51, 100, 7].into(), 1);
    let run = loaded.run(Program::Interface, &frame, 0, 1).unwrap();
    assert!(matches!(run.outcome, Some(Outcome::PassedOn(_))), "{run:?}");
    assert_eq!((run.action, run.frame), (Action::Continue, frame.clone()));

    frame[ETHERNET + 10] ^= 1;
    let run = loaded.run(Program::Interface, &frame, 0, 1).unwrap();
    let reasons = [
        Some(Outcome::Dropped(DropReason::BadHeaderChecksum)),
        Some(Outcome::PassedOn(PassReason::Malformed)),
    ];
    assert!(reasons.contains(&run.outcome), "{run:?}");
}

/// The tables are the business of the interface's program.
#[test]
fn xdp_leaves_what_state_decides_to_the_stack() {
    let range = Range {
        first: Ipv4Addr::new(198, 51, 100, 7),
        last: Ipv4Addr::new(198, 51, 100, 7),
        low: 1024,
        high: 65_535,
    };
    let pool = Pool { ranges: vec![range], ..Pool::default() };
    let dynamic4 = Dynamic4 { pool: vec!["198.51.100.0/24".parse().unwrap()], clients: vec![] };
    let sizes = Sizes { bibs: 10, sessions: 10, subscribers: 10 };
    let shared = Settings { pools: vec![pool], sizes, ..Settings::default() };
    let of_its_own = Settings { dynamic4: Some(dynamic4), sizes, ..Settings::default() };
    for settings in [shared, of_its_own] {
        in_namespace(|| {
            let tun = tun();
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
            let maps = Arc::new(StateMaps::make(&sizes, [3, 5]).unwrap());
            let stateful = Some(Stateful { settings, maps, gates: None });
            let options = TestOptions { tun, stateful, ..TestOptions::default() };
            let mut loaded = Loaded::load(&config(), &[Program::Xdp], &options).unwrap();
            let frame = frame_v4([203, 0, 113, 5].into(), [198, 51, 100, 7].into(), 64);
            let run = loaded.run(Program::Xdp, &frame, 0, 1).unwrap();
            let outcome = Some(Outcome::PassedOn(PassReason::Session));
            assert_eq!((run.action, run.outcome), (Action::Continue, outcome));
        });
    }
}

#[test]
fn only_what_was_loaded_runs() {
    if !is_root() {
        return;
    }
    let mut loaded =
        Loaded::load(&config(), &[Program::Interface], &TestOptions::default()).unwrap();
    let frame = frame_v4([192, 0, 2, 1].into(), [198, 51, 100, 7].into(), 64);
    for program in [Program::UplinkEgress, Program::Xdp] {
        let error = loaded.run(program, &frame, 0, 1).unwrap_err();
        assert!(error.to_string().contains(program.name()), "{error}");
    }
    assert!(
        loaded.run(Program::Interface, &frame[..10], 0, 1).is_err(),
        "too short for the kernel"
    );
}

#[test]
fn a_hundred_thousand_mappings_are_looked_up() {
    if !is_root() {
        return;
    }
    const MAPPINGS: u32 = 100_000;
    // 198.18.0.0/15 has 131,072 addresses.
    let v4 = |n: u32| Ipv4Addr::from_bits(0xc612_0000 + n);
    let v6 = |n: u32| Ipv6Addr::from_bits((0x2001_0db8_0001_u128 << 80) | u128::from(n));
    let entries = (0..MAPPINGS).map(|n| {
        let (v4, v6) = (format!("{}/32", v4(n)), format!("{}/128", v6(n)));
        Eam::new(v4.parse().unwrap(), v6.parse().unwrap()).unwrap()
    });
    let config = Config { eam: EamTable::new(entries).unwrap(), ..config() };
    let mut loaded = Loaded::load(&config, &[Program::Interface], &TestOptions::default()).unwrap();
    for (source, destination) in [(0, MAPPINGS - 1), (4095, 4096), (4097, 8192), (70_000, 1)] {
        let frame = frame_v4(v4(source), v4(destination), 64);
        let run = loaded.run(Program::Interface, &frame, 0, 1).unwrap();
        assert_eq!(run.outcome, Some(Outcome::Translated), "{run:?}");
        assert_eq!(addresses(&run.frame), (v6(source), v6(destination)));
    }
    // Not mapped explicitly: by the prefix.
    let frame = frame_v4(v4(MAPPINGS), v4(0), 64);
    let run = loaded.run(Program::Interface, &frame, 0, 1).unwrap();
    assert_eq!(addresses(&run.frame).0, "2001:db8:64::c613:86a0".parse::<Ipv6Addr>().unwrap());
}

/// An Ethernet frame with an IPv6 packet that has a UDP datagram without data.
fn frame_v6(source: Ipv6Addr, destination: Ipv6Addr) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend(IPV6);
    frame.extend([0x60, 0, 0, 0, 0, 8, 17, 64]);
    frame.extend(source.octets());
    frame.extend(destination.octets());
    frame.extend([0x10, 0x20, 0x30, 0x40, 0, 8, 0x12, 0x34]);
    frame
}

/// The longest prefix is found, as the core finds it.
#[test]
fn many_mappings_of_any_length_are_those_of_the_core() {
    if !is_root() {
        return;
    }
    let prefixes: [&[(u8, u8)]; 5] = [
        &[(32, 128)],
        &[(28, 124)],
        &[(28, 124), (28, 60)],
        &[(28, 96), (29, 96)],
        &[(24, 56), (32, 128)],
    ];
    for lengths in prefixes {
        let entries = (0..40u32).map(|n| {
            let (v4_len, v6_len) = lengths[n as usize % lengths.len()];
            let v4 = Ipv4Addr::from_bits(0xc612_0000 + n * 1024);
            let v6 = Ipv6Addr::from_bits(0x2001_0db8_0001 << 80 | u128::from(n) << 72);
            let (v4, v6) = (format!("{v4}/{v4_len}"), format!("{v6}/{v6_len}"));
            Eam::new(v4.parse().unwrap(), v6.parse().unwrap()).unwrap()
        });
        // Around all of them: one in IPv4, one in IPv6.
        let around =
            [("198.18.0.0/16", "2001:db8:1:ff00::/112"), ("203.0.113.0/28", "2001:db8:1::/48")];
        let around =
            around.map(|(v4, v6)| Eam::new(v4.parse().unwrap(), v6.parse().unwrap()).unwrap());
        let eam = EamTable::new(entries.chain(around)).unwrap();
        let config = Config { eam: eam.clone(), ..config() };
        let mut loaded =
            Loaded::load(&config, &[Program::Interface], &TestOptions::default()).unwrap();
        // The other end of every packet.
        let other4 = Ipv4Addr::from_bits(0xc612_0000);
        let (other6, _) = eam.v4_to_v6(other4).unwrap();
        for number in 1..41_000 {
            if number % 61 != 0 && number % 1024 > 16 {
                continue;
            }
            let v4 = Ipv4Addr::from_bits(0xc612_0000 + number);
            let (v6, _) = eam.v4_to_v6(v4).unwrap();
            let run = loaded.run(Program::Interface, &frame_v4(v4, other4, 64), 0, 1).unwrap();
            assert_eq!(run.outcome, Some(Outcome::Translated), "{lengths:?} {v4} {run:?}");
            assert_eq!(addresses(&run.frame), (v6, other6), "{lengths:?} {v4}");
            let (back, _) = eam.v6_to_v4(v6).unwrap();
            let run = loaded.run(Program::Interface, &frame_v6(v6, other6), 0, 1).unwrap();
            assert_eq!(run.outcome, Some(Outcome::Translated), "{lengths:?} {v6} {run:?}");
            assert_eq!(
                run.frame[ETHERNET + 12..ETHERNET + 20],
                [back.octets(), other4.octets()].concat()
            );
        }
    }
}

/// The identifications that a program gives to so many packets of the same ends, on one processor.
fn identifications(loaded: &mut Loaded, packets: usize, processor: usize) -> Vec<u16> {
    fordway_tun::set_processors(&[processor]).unwrap();
    let ends = ["2001:db8:64::c000:201", "2001:db8:1::1"].map(|end| end.parse().unwrap());
    let frame = frame_v6(ends[0], ends[1]);
    let one = |_| {
        let run = loaded.run(Program::Interface, &frame, 0, 1).unwrap();
        assert_eq!(run.outcome, Some(Outcome::Translated), "{run:?}");
        u16::from_be_bytes([run.frame[ETHERNET + 4], run.frame[ETHERNET + 5]])
    };
    (0..packets).map(one).collect()
}

/// RFC 6864 section 4.1.
#[test]
fn processors_do_not_repeat_identifications() {
    if !is_root() {
        return;
    }
    let host = Eam::new("192.0.2.9/32".parse().unwrap(), "2001:db8:1::1/128".parse().unwrap());
    let config = Config { eam: EamTable::new(host).unwrap(), ..config() };
    let load = || Loaded::load(&config, &[Program::Interface], &TestOptions::default()).unwrap();
    let mut loaded = load();
    let processors = fordway_tun::allowed_processors().unwrap();
    let (first, last) = (processors[0], processors[processors.len() - 1]);
    let mut seen = Vec::new();
    for processor in [first, last, first, last] {
        seen.extend(identifications(&mut loaded, 50, processor));
    }
    let distinct: std::collections::HashSet<u16> = seen.iter().copied().collect();
    assert_eq!(distinct.len(), seen.len(), "{seen:?}");
    // What a processor has of a range is not used long after the others' identifications.
    let others = identifications(&mut loaded, 17_000, last);
    let (late, next) = (others[others.len() - 1], identifications(&mut loaded, 2, first));
    assert!(next[0].wrapping_sub(late) < 128, "{late} {next:?}");
    assert_eq!(next[1], next[0].wrapping_add(1));
    // Four loads that all begin alike would be one chance in 2^48.
    let begins: Vec<u16> = (0..4).map(|_| identifications(&mut load(), 1, first)[0]).collect();
    assert!(begins.iter().any(|&begin| begin != begins[0]), "{begins:?}");
}

/// RFC 7915 section 4: what follows a packet that the user engine has to cut does not overtake it in the kernel.
#[test]
fn packets_do_not_overtake_one_that_is_cut() {
    if !is_root() {
        return;
    }
    let config = Config { mtu6: 1500, ..config() };
    let options = TestOptions { keep_order: true, ..TestOptions::default() };
    let mut loaded = Loaded::load(&config, &[Program::Interface], &options).unwrap();
    let mut outcome = |source: [u8; 4], dont_fragment: bool, payload: usize| {
        let mut frame = frame_v4(source.into(), [198, 51, 100, 7].into(), 64);
        let len = (28 + payload) as u16;
        frame[ETHERNET + 2..ETHERNET + 4].copy_from_slice(&len.to_be_bytes());
        frame[ETHERNET + 6] = if dont_fragment { 0x40 } else { 0 };
        frame[ETHERNET + 10..ETHERNET + 12].fill(0);
        let header = checksum(&frame[ETHERNET..ETHERNET + 20]);
        frame[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&header);
        frame[ETHERNET + 24..ETHERNET + 26].copy_from_slice(&(len - 20).to_be_bytes());
        frame.extend(vec![0; payload]);
        loaded.run(Program::Interface, &frame, 0, 1).unwrap().outcome
    };
    let (one, other) = ([192, 0, 2, 1], [192, 0, 2, 3]);
    let left = Some(Outcome::PassedOn(PassReason::NeedsFragments));
    assert_eq!(outcome(one, false, 100), Some(Outcome::Translated));
    // However slow the machine is: one of these follows within the time that ends are remembered.
    fordway_testhost::poll("a packet that is left behind one that is cut", || {
        assert_eq!(outcome(one, false, 1400), left);
        (outcome(one, false, 100) == left).then_some(())
    });
    assert_eq!(outcome(one, true, 100), Some(Outcome::Translated), "with DF");
    assert_eq!(outcome(other, false, 100), Some(Outcome::Translated), "of other ends");
    fordway_testhost::poll("the ends to be forgotten", || {
        (outcome(one, false, 100) == Some(Outcome::Translated)).then_some(())
    });
}

/// A tunnel's super-packet has packets inside, not datagrams; the program is not shown which it is.
#[test]
fn super_packets_of_tunnels_are_left() {
    if !is_root() {
        return;
    }
    let config = Config { mtu6: 1500, ..config() };
    let mut loaded = Loaded::load(&config, &[Program::Interface], &TestOptions::default()).unwrap();
    let mut outcome = |port: u16, gso_size: u32| {
        let mut frame = frame_v4([192, 0, 2, 1].into(), [198, 51, 100, 7].into(), 64);
        frame[ETHERNET + 2..ETHERNET + 4].copy_from_slice(&3028_u16.to_be_bytes());
        frame[ETHERNET + 10..ETHERNET + 12].fill(0);
        let header = checksum(&frame[ETHERNET..ETHERNET + 20]);
        frame[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&header);
        frame[ETHERNET + 22..ETHERNET + 24].copy_from_slice(&port.to_be_bytes());
        frame[ETHERNET + 24..ETHERNET + 26].copy_from_slice(&3008_u16.to_be_bytes());
        frame.extend(vec![0; 3000]);
        loaded.run(Program::Interface, &frame, gso_size, 1).unwrap().outcome
    };
    for port in [4789, 4790, 6081, 6635, 8472] {
        assert_eq!(outcome(port, 1000), Some(Outcome::PassedOn(PassReason::Offload)), "{port}");
    }
    assert_eq!(outcome(443, 1000), Some(Outcome::Translated));
}
