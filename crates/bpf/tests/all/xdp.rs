//! The program at XDP on a gateway: drawn packets against the core, in the driver and in front of the
//! stack; and what it leaves to the stack, which has to come out right as well.
//!
//! Needs root; says so, and does nothing, without.

use fordway_bpf::{Outcome, PassReason};
use fordway_testhost::{can_use_tun, poll};
use fordway_testkit::fuzz::{Body, Offloading, Plan};
use fordway_testkit::oracle;
use fordway_testkit::segment::segments;
use fordway_xlat::{Offload, State};

use crate::wire::draw::{Draw, packet};
use crate::wire::{Frame, apart, same};
use crate::xdp_bench::{CONFIG, MODES, Mode, Setup};

/// Drawn packets per mode.
const CASES: usize = 6_000;

/// Of the drawn packets at most this share is left to the stack, in percent. Among them are many with
/// options, extension headers, partial checksums, or too long for the smaller MTUs.
const MAX_LEFT: usize = 55;

const CONFIGS: [&str; 5] = [
    CONFIG,
    r#"pool6 = ["2001:db8:64::/96"]
       eam = [["198.51.100.0/24", "2001:db8:1::/120"]]
       mtu4 = 1000
       mtu6 = 1280
       mss_clamp = true"#,
    r#"eam = [["198.51.100.0/24", "2001:db8:1::/120"], ["192.0.2.0/24", "2001:db8:64::c000:200/120"]]
       traffic_class = 0x28
       udp_checksum_zero = "pass""#,
    r#"pool6 = ["2001:db8:64::/96", "2001:db8:65::/64"]
       eam = [["198.51.100.0/25", "2001:db8:1::/121"], ["198.51.100.128/25", "2001:db8:1::80/121"]]
       udp_checksum_zero = "drop"
       lowest_ipv6_mtu = 1500"#,
    // 128 mappings: by the maps of the program.
    "",
];

#[test]
fn the_driver_agrees_with_the_core() {
    agrees_with_the_core(Mode::Native);
}

#[test]
fn in_front_of_the_stack_it_agrees_with_the_core() {
    agrees_with_the_core(Mode::Generic);
}

fn agrees_with_the_core(mode: Mode) {
    if !can_use_tun() {
        return;
    }
    apart(|| {
        let mut draw = Draw::new();
        let (mut seen, mut translated, mut left, mut dropped, mut unmatched) = (0, 0, 0, 0, 0);
        let pairs = (0..128).map(|i| {
            let host = 2 * i;
            format!("[\"198.51.100.{host}/31\", \"2001:db8:1::{host:x}/127\"]")
        });
        let pairs = pairs.collect::<Vec<_>>().join(",");
        let many = format!("pool6 = [\"2001:db8:64::/96\"]\neam = [{pairs}]");
        for text in CONFIGS {
            let config = if text.is_empty() { &many } else { text };
            let mut gateway = Setup { mode, config, only_xdp: true, ..Setup::default() }.make();
            for number in 0..CASES.div_ceil(CONFIGS.len()) {
                let (packet, offload) = draw.plain(number % 2 == 0, 1500);
                if packet.len() < if packet[0] >> 4 == 4 { 20 } else { 40 } {
                    continue;
                }
                match gateway.hold(&packet, offload) {
                    None => continue,
                    Some(Outcome::Translated) => translated += 1,
                    Some(Outcome::PassedOn(_)) => left += 1,
                    Some(Outcome::Dropped(_)) => dropped += 1,
                    Some(Outcome::Unmatched) => unmatched += 1,
                    Some(Outcome::HandedOver) => panic!("there is no other gateway"),
                }
                seen += 1;
            }
            gateway.close();
        }
        println!(
            "{seen} packets: {translated} translated, {left} left to the stack, {dropped} dropped, \
             {unmatched} somebody else's"
        );
        assert!(seen >= CASES * 8 / 10, "only {seen}");
        assert!(left * 100 <= MAX_LEFT * seen, "{left} of {seen} were left to the stack");
        assert!(translated > 0 && dropped > 0 && unmatched > 0);
    });
}

fn datagram(host: u8, payload: usize) -> Vec<u8> {
    packet(&format!(
        "v4 = {{ src = \"192.0.2.5\", dst = \"198.51.100.{host}\" }}\nudp = {{}}\n\
         payload = {payload}"
    ))
}

fn answer(host: u8, payload: usize) -> Vec<u8> {
    packet(&format!(
        "v6 = {{ src = \"2001:db8:1::{host:x}\", dst = \"2001:db8:64::c000:205\" }}\nudp = {{}}\n\
         payload = {payload}"
    ))
}

#[test]
fn what_is_left_to_the_stack_comes_out_right() {
    if !can_use_tun() {
        return;
    }
    let v4 = "src = \"192.0.2.5\", dst = \"198.51.100.7\"";
    let v6 = "src = \"2001:db8:1::7\", dst = \"2001:db8:64::c000:205\"";
    let cases = [
        (
            "IPv4 options",
            PassReason::NotLinear,
            format!("v4 = {{ {v4}, options = \"01010101\" }}\nudp = {{}}\npayload = 64"),
        ),
        (
            "an extension header",
            PassReason::ExtensionHeaders,
            format!("v6 = {{ {v6} }}\next = [{{ kind = \"dstopts\" }}]\nudp = {{}}\npayload = 64"),
        ),
        (
            "an IPv6 fragment",
            PassReason::ExtensionHeaders,
            format!(
                "v6 = {{ {v6} }}\next = [{{ kind = \"fragment\", id = 7 }}]\nudp = {{}}\npayload = 64\nslice = [8, 40]"
            ),
        ),
        (
            "an ICMPv4 error",
            PassReason::IcmpError,
            format!(
                "v4 = {{ {v4} }}\nicmp = {{ type = 3, code = 3 }}\n[inner]\n\
                 v4 = {{ src = \"198.51.100.7\", dst = \"192.0.2.5\" }}\nudp = {{}}\npayload = 64"
            ),
        ),
        (
            "an ICMPv6 error",
            PassReason::IcmpError,
            format!(
                "v6 = {{ {v6} }}\nicmp = {{ type = 1, code = 4 }}\n[inner]\n\
                 v6 = {{ src = \"2001:db8:64::c000:205\", dst = \"2001:db8:1::7\" }}\nudp = {{}}\n\
                 payload = 64"
            ),
        ),
        (
            "UDP without checksum",
            PassReason::UdpChecksum,
            format!("v4 = {{ {v4} }}\nudp = {{ checksum = 0 }}\npayload = 65"),
        ),
        (
            "SCTP whose CRC a device is to make",
            PassReason::PartialChecksum,
            format!("v4 = {{ {v4}, proto = 132 }}\npayload = \"000700080000000900000000000000aa\""),
        ),
    ];
    for mode in MODES {
        apart(|| {
            let mut gateway = Setup { mode, ..Setup::default() }.make();
            for (what, reason, text) in &cases {
                let octets = packet(text);
                gateway.takes_the_stacks_way(&octets, Offload::default(), *reason, what);
            }
            gateway.close();
        });
    }
}

#[test]
fn partial_checksums_and_super_packets_come_out_right() {
    if !can_use_tun() {
        return;
    }
    for mode in MODES {
        apart(|| {
            let mut gateway = Setup { mode, ..Setup::default() }.make();
            let mut draw = Draw::new();
            let (mut partial, mut large) = (0, 0);
            while partial < 60 || large < 60 {
                let v4 = draw.number().is_multiple_of(2);
                let plan = Plan {
                    hop: 64,
                    extras: 0,
                    fragment: None,
                    class: 0,
                    payload: 100 + (draw.number() % 1000) as u16,
                    ..draw.plan(v4)
                };
                // CWR belongs to the first segment alone only if the offload state says so.
                let size = match plan.body {
                    Body::Udp { zero: false, .. } => 50 + draw.number() % 400,
                    Body::Tcp { flags, .. } if flags & 4 == 0 => 50 + draw.number() % 400,
                    _ => continue,
                };
                let large_one = draw.number().is_multiple_of(2);
                let offload =
                    if large_one { Offloading::Super(size as u16) } else { Offloading::Partial };
                let (octets, offload) = Plan { offload, ..plan.clone() }.build();
                let frame = gateway.frame(&octets, offload);
                if !gateway.side(&octets).host.send(&frame) {
                    continue;
                }
                *if large_one { &mut large } else { &mut partial } += 1;
                let core =
                    oracle::translate(&gateway.translator, &mut State::new(1), &octets, offload);
                let due = segments(&core.packets[0], &core.offload).expect("segments");
                // However it came: as it is, or in segments, with checksums complete or not.
                let mut found = Vec::new();
                poll("all segments", || {
                    for frame in gateway.other(&octets).host.take() {
                        found.extend(segments(&frame.packet, &frame.offload).expect("segments"));
                    }
                    (found.len() >= due.len()).then_some(())
                });
                assert_eq!(found.len(), due.len(), "{mode:?} {plan:?}");
                for (found, due) in found.iter().zip(&due) {
                    let transport = if due[0] >> 4 == 4 { 20 } else { 40 };
                    assert_eq!(found[transport..], due[transport..], "{mode:?} {plan:?}");
                    assert_eq!(found[..1], due[..1]);
                }
                gateway.settle();
            }
            gateway.close();
        });
    }
}

#[test]
fn padding_goes_and_fragments_pass() {
    if !can_use_tun() {
        return;
    }
    for mode in MODES {
        apart(|| {
            let mut gateway = Setup { mode, only_xdp: true, ..Setup::default() }.make();
            for payload in 0..12 {
                for octets in [datagram(7, payload), answer(7, payload)] {
                    for padding in [1, 3, 18, 46] {
                        let mut padded = octets.clone();
                        padded.resize(octets.len() + padding, 0xee);
                        let outcome = gateway.hold(&padded, Offload::default());
                        assert_eq!(outcome, Some(Outcome::Translated), "{payload} {padding}");
                    }
                }
            }
            for slice in [[0, 48], [48, 96], [96, 500]] {
                let octets = packet(&format!(
                    "v4 = {{ src = \"192.0.2.5\", dst = \"198.51.100.7\", id = 9 }}\nudp = {{}}\n\
                     payload = 492\nslice = {slice:?}"
                ));
                assert_eq!(gateway.hold(&octets, Offload::default()), Some(Outcome::Translated));
            }
            gateway.close();
        });
    }
}

#[test]
fn frames_for_others_are_left_alone() {
    if !can_use_tun() {
        return;
    }
    for mode in MODES {
        apart(|| {
            let gateway = Setup { mode, only_xdp: true, ..Setup::default() }.make();
            for octets in [datagram(7, 40), answer(7, 40)] {
                let frame = gateway.frame(&octets, Offload::default());
                let tagged = [&[0, 5][..], &frame.kind.to_be_bytes(), &octets].concat();
                for (what, frame) in [
                    ("another host's", Frame { dst: [2, 0, 0, 0, 0, 0x99], ..frame.clone() }),
                    ("broadcast", Frame { dst: [0xff; 6], ..frame.clone() }),
                    ("multicast", Frame { dst: [1, 0, 0x5e, 0, 0, 1], ..frame.clone() }),
                    ("another EtherType", Frame { kind: 0x88b5, ..frame.clone() }),
                    ("tagged", Frame { kind: 0x8100, packet: tagged, ..frame.clone() }),
                ] {
                    let side = gateway.side(&octets);
                    assert!(side.host.send(&frame));
                    let found = side.stack.expect(what);
                    // A socket sees a frame without its tag.
                    let due = if what == "tagged" {
                        gateway.frame(&octets, frame.offload)
                    } else {
                        frame
                    };
                    assert!(same(&found, &due), "{mode:?} {what}: {found:x?}");
                    let totals = gateway.totals();
                    assert_eq!(totals.directions, gateway.before.directions, "{mode:?} {what}");
                }
            }
            gateway.close();
        });
    }
}
