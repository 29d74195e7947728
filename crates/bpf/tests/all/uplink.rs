//! The programs at an uplink: what a CLAT's host sends and receives there, against the core.
//!
//! On an Ethernet device and on one without link-layer header. What is drawn goes through with every
//! offload state; what is somebody else's must not change in any way. Needs root; says so, and does
//! nothing, without.

use std::process::Command;

use fordway_bpf::Outcome;
use fordway_testhost::{can_use_tun, poll};
use fordway_testkit::oracle;
use fordway_xlat::{Config, Offload, State, Translator, Verdict};

use crate::alike::{Made, agree};
use crate::uplink_bench::{Bench, CONFIGS, Far, NEAR, ROUTER, Tally, answer, datagram};
use crate::wire::draw::{Draw, config, packet, turned};
use crate::wire::{Frame, IPV4, Veth, apart, outcome, run, take_from};

/// Drawn packets per test.
const CASES: usize = 9_000;

/// Of the CLAT's drawn packets at most this share is left to the user engine, in percent. Among them
/// are many that are not common: zero checksums with offloads, quoted errors.
const MAX_PASSED_ON: usize = 35;

#[test]
fn ethernet_agrees_with_the_core() {
    agrees_with_the_core(true, false);
}

#[test]
fn no_link_layer_agrees_with_the_core() {
    agrees_with_the_core(false, false);
}

#[test]
fn filters_of_clsact_do_the_same() {
    agrees_with_the_core(true, true);
}

fn agrees_with_the_core(ethernet: bool, force_clsact: bool) {
    if !can_use_tun() {
        return;
    }
    apart(|| {
        let mut draw = Draw::new();
        let mut tally = Tally::default();
        let cases = if force_clsact { CASES / 9 } else { CASES };
        for text in CONFIGS {
            let mut bench = Bench::new(text, ethernet, force_clsact);
            // The same mappings without a hop make the packets that come back.
            let plat = config(text);
            let plat = Config { decrement_hop_limit: false.into(), mtu6: 65_535, ..plat };
            let plat = Translator::new(plat).expect("a sound configuration");
            for number in 0..cases.div_ceil(CONFIGS.len()) {
                let (packet, offload) = match number % 4 {
                    0 | 1 => draw.offloaded(true),
                    2 => draw.offloaded(false),
                    _ => {
                        let (packet, offload) = draw.offloaded(true);
                        let out = oracle::translate(&plat, &mut State::new(1), &packet, offload);
                        match &out.packets[..] {
                            [one] if out.verdict == Verdict::Forward => (turned(one), out.offload),
                            _ => continue,
                        }
                    }
                };
                bench.hold(&packet, offload, &mut tally);
            }
            bench.close();
        }
        println!("{tally:#?}");
        assert!(tally.seen >= cases * 8 / 10, "only {tally:?}");
        assert!(tally.translated * 2 > tally.seen - tally.unmatched, "{tally:?}");
        assert!(
            tally.passed_on * 100 <= MAX_PASSED_ON * (tally.seen - tally.unmatched),
            "{tally:?}"
        );
        assert!(tally.unmatched > 0 && tally.dropped > 0, "{tally:?}");
    });
}

#[test]
fn what_is_somebody_elses_is_not_touched() {
    if !can_use_tun() {
        return;
    }
    apart(|| {
        let mut bench = Bench::ethernet();
        let v4 = |body: &str| packet(&format!("v4 = {body}\nudp = {{}}\npayload = 40"));
        for (what, octets) in [
            ("another source", v4(r#"{ src = "203.0.113.5", dst = "198.51.100.7" }"#)),
            (
                "a wrong sum",
                v4(r#"{ src = "203.0.113.5", dst = "198.51.100.7", checksum = "bad" }"#),
            ),
            (
                "options",
                v4(r#"{ src = "203.0.113.5", dst = "198.51.100.7", options = "830704c6336407" }"#),
            ),
            ("no total length", v4(r#"{ src = "203.0.113.5", dst = "198.51.100.7", len = 0 }"#)),
            (
                "too long a length",
                v4(r#"{ src = "203.0.113.5", dst = "198.51.100.7", len = 999 }"#),
            ),
            ("link-local", v4(r#"{ src = "169.254.1.1", dst = "198.51.100.7" }"#)),
            ("no address yet", v4(r#"{ src = "0.0.0.0", dst = "255.255.255.255" }"#)),
            ("multicast", v4(r#"{ src = "192.0.2.5", dst = "224.0.0.251" }"#)),
            ("broadcast", v4(r#"{ src = "192.0.2.5", dst = "255.255.255.255" }"#)),
            ("ttl 0", v4(r#"{ src = "203.0.113.5", dst = "198.51.100.7", ttl = 0 }"#)),
        ] {
            let frame = bench.frame(&octets);
            bench.untouched(&frame, true, what);
        }
        let own = r#"{ src = "2001:db8:64::c633:6407", dst = "2001:db8:9::1" }"#;
        let v6 = |rest: &str| packet(&format!("v6 = {own}\n{rest}\nudp = {{}}\npayload = 40"));
        let many = "{ kind = \"dstopts\" },".repeat(6);
        for (what, octets) in [
            ("the host's own", v6("")),
            ("a source route", v6("ext = [{ kind = \"routing\", segments_left = 1 }]")),
            ("six extension headers", v6(&format!("ext = [{many}]"))),
            (
                "a header behind a fragment header",
                v6("ext = [{ kind = \"fragment\", id = 1 }, { kind = \"dstopts\" }]"),
            ),
            ("an atomic fragment", v6("ext = [{ kind = \"fragment\", id = 1 }]")),
        ] {
            let frame = bench.frame(&octets);
            bench.untouched(&frame, false, what);
        }
        for (what, text) in [
            ("not from the prefix", r#"v6 = { src = "2001:db8:9::7", dst = "2001:db8:c1a7::5" }"#),
            ("multicast", r#"v6 = { src = "2001:db8:64::c633:6407", dst = "ff0e::5" }"#),
            (
                "a hop limit of 0",
                r#"v6 = { src = "2001:db8:9::7", dst = "2001:db8:9::1", hop = 0 }"#,
            ),
        ] {
            let frame = bench.frame(&packet(&format!("{text}\nudp = {{}}\npayload = 40")));
            bench.untouched(&frame, false, what);
        }
        // Neighbour Unreachability Detection by a router with a global address.
        let solicitation = packet(
            r#"v6 = { src = "2001:db8:c1a7::ffff", dst = "2001:db8:c1a7::5", hop = 255 }
               icmp = { type = 135 }
               payload = "20010db8c1a700000000000000000005""#,
        );
        let frame = bench.frame(&solicitation);
        bench.untouched(&frame, false, "a neighbour solicitation");
        let arp =
            [&[0, 1, 8, 0, 6, 4, 0, 1][..], &[2; 6], &[192, 0, 2, 5], &[0; 6], &[192, 0, 2, 1]];
        let arp = Frame { kind: 0x0806, ..Frame::new([0xff; 6], bench.mac, &arp.concat()) };
        bench.untouched(&arp, true, "an ARP request");
        let other = Frame { kind: 0x88b5, ..Frame::new(ROUTER, bench.mac, &datagram(40)) };
        bench.untouched(&other, true, "another EtherType");
        // IPv6 out and IPv4 in are nobody's business here.
        let out = Frame { dst: ROUTER, src: bench.mac, ..bench.frame(&answer(40)) };
        bench.untouched(&out, true, "IPv6 that leaves");
        let arriving = Frame { dst: bench.mac, src: ROUTER, ..bench.frame(&datagram(40)) };
        bench.untouched(&arriving, false, "IPv4 that arrives");
        bench.close();
    });
}

#[test]
fn frames_for_others_stay_frames_for_others() {
    if !can_use_tun() {
        return;
    }
    apart(|| {
        let mut bench = Bench::ethernet();
        for (what, dst) in [
            ("another host's", [2, 0, 0, 0, 0, 0x99]),
            ("broadcast", [0xff; 6]),
            ("multicast", [0x33, 0x33, 0, 0, 0, 5]),
        ] {
            let frame = Frame { dst, ..bench.frame(&answer(40)) };
            bench.untouched(&frame, false, what);
        }
        bench.close();
    });
}

#[test]
fn padding_goes() {
    if !can_use_tun() {
        return;
    }
    apart(|| {
        let mut bench = Bench::ethernet();
        let mut tally = Tally::default();
        for payload in 0..12 {
            for octets in [datagram(payload), answer(payload)] {
                for padding in [1, 3, 18, 46] {
                    let mut padded = octets.clone();
                    padded.resize(octets.len() + padding, 0xee);
                    let frame = bench.frame(&padded);
                    let leaves = frame.kind == IPV4;
                    let outcome = bench.pass(&frame, leaves).expect("a frame");
                    assert_eq!(outcome, Outcome::Translated);
                    tally.count(outcome);
                    let frames = bench.arrived(outcome, leaves);
                    let core = oracle::translate(
                        &bench.translator,
                        &mut State::new(1),
                        &octets,
                        Offload::default(),
                    );
                    let made = Made {
                        outcome,
                        packet: Some(&frames[0].packet),
                        offload: Some(frames[0].offload),
                    };
                    agree(&octets, &core, &made).expect("as without padding");
                }
            }
        }
        assert_eq!(tally.translated, 96);
        bench.close();
    });
}

#[test]
fn tagged_frames_belong_to_another_device() {
    if !can_use_tun() {
        return;
    }
    apart(|| {
        let mut bench = Bench::ethernet();
        let tagged = |frame: &Frame| {
            let packet = [&[0, 5][..], &frame.kind.to_be_bytes(), &frame.packet].concat();
            Frame { kind: 0x8100, packet, ..frame.clone() }
        };
        let leaving = bench.frame(&datagram(40));
        let arriving = bench.frame(&answer(40));
        // Sockets see them without their tags, which the kernel puts beside the frame at once.
        assert!(bench.near.send(&tagged(&leaving)));
        let Far::Ethernet { port, .. } = &bench.far else { unreachable!() };
        assert_eq!(port.expect("with a tag inside"), leaving);
        assert!(port.send(&tagged(&arriving)));
        assert_eq!(bench.inside6.expect("with a tag beside it"), arriving);
        let _ = bench.near.take();
        // A bridge sends with the tag beside the frame, as VLAN devices do.
        let (_other, other) = Veth { near: "port", far: "host", ..Veth::default() }.make();
        // One that looks into multicast says so to its ports.
        run("ip link add bridge type bridge mcast_snooping 0");
        for device in [NEAR, "port"] {
            run(&format!("ip link set {device} master bridge"));
        }
        run("ip link set bridge addrgenmode none up");
        // A port forwards when the kernel has heard of its carrier.
        poll("both ports forward", || {
            let links = Command::new("bridge").args(["link", "show"]).output().unwrap().stdout;
            let links = String::from_utf8_lossy(&links).into_owned();
            (links.matches("state forwarding").count() == 2).then_some(())
        });
        assert!(other[0].send(&tagged(&leaving)));
        assert_eq!(port.expect("from the bridge"), leaving);
        assert_eq!(outcome(&bench.before, &bench.totals()), None, "no program saw them");
        assert!(take_from(&mut bench.tun).is_empty());
        bench.close();
    });
}
