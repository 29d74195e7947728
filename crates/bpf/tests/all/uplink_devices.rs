//! The programs at an uplink while devices come and go, and with others at the same device.
//!
//! Needs root; says so, and does nothing, without.

use std::net::Ipv6Addr;

use fordway_bpf::{Accelerator, Hook, Options, Outcome, PassReason};
use fordway_testhost::{can_use_tun, poll};
use fordway_testkit::view::View;
use fordway_xlat::{ChecksumState, Gso, GsoKind, Offload};

use crate::uplink_bench::{Bench, CONFIGS, Far, NEAR, ROUTER, Tally, answer, datagram};
use crate::wire::draw::{config, packet, turned};
use crate::wire::{Folders, Frame, IPV4, IPV6, Port, Veth, address, apart, index, run};

#[test]
fn the_filters_of_others_stay() {
    if !can_use_tun() {
        return;
    }
    for force_clsact in [false, true] {
        apart(|| {
            let folders = Folders::new();
            let (_outside, _ports) = Veth::default().make();
            run(&format!("tc qdisc add dev {NEAR} clsact"));
            for place in ["egress", "ingress"] {
                run(&format!(
                    "tc filter add dev {NEAR} {place} prio 60000 protocol all u32 match u32 0 0"
                ));
            }
            let (tun, _queue) = folders.tun("clat0", 65_535);
            let hook = Hook::Uplink { device: index(NEAR), tun: tun.ifindex() };
            let options = Options { force_clsact, ..Options::new(&folders.pins, hook) };
            let accelerator = Accelerator::start(&config(CONFIGS[2]), &options).expect("programs");
            let seen = |place: &str| run(&format!("tc filter show dev {NEAR} {place}"));
            accelerator.detach().expect("to detach");
            for place in ["egress", "ingress"] {
                assert!(seen(place).contains("u32"), "{}", seen(place));
                assert!(!seen(place).contains("fordway"), "{}", seen(place));
            }
        });
    }
}

#[test]
fn two_translators_share_an_uplink() {
    if !can_use_tun() {
        return;
    }
    for force_clsact in [false, true] {
        apart(|| {
            let (first_folders, second_folders) = (Folders::new(), Folders::new());
            let (_outside, ports) = Veth::default().make();
            let mut running = Vec::new();
            for (folders, name, mapping) in [
                (&first_folders, "clat0", ["192.0.2.0/25", "2001:db8:c1a7::/121"]),
                (&second_folders, "clat1", ["192.0.2.128/25", "2001:db8:c1a8::/121"]),
            ] {
                let (tun, queue) = folders.tun(name, 65_535);
                let hook = Hook::Uplink { device: index(NEAR), tun: tun.ifindex() };
                let options = Options { force_clsact, ..Options::new(&folders.pins, hook) };
                let [v4, v6] = mapping;
                let text = format!(
                    "pool6 = [\"2001:db8:64::/96\"]\neam = [[\"{v4}\", \"{v6}\"]]\n\
                     pass_unmatched = true"
                );
                let accelerator = Accelerator::start(&config(&text), &options);
                running.push((accelerator.expect("both have room"), tun, queue));
            }
            let near = Port::open(NEAR, true);
            let inside = Port::behind_ingress(NEAR, IPV4, true);
            let mac = address(NEAR, None);
            for (host, expected) in [(5, "2001:db8:c1a7::5"), (133, "2001:db8:c1a8::5")] {
                let out = packet(&format!(
                    "v4 = {{ src = \"192.0.2.{host}\", dst = \"198.51.100.7\" }}\nudp = {{}}"
                ));
                assert!(near.send(&Frame::new(ROUTER, mac, &out)));
                let found = ports[0].expect("IPv6");
                let expected: Ipv6Addr = expected.parse().expect("an address");
                assert_eq!(found.kind, IPV6);
                assert_eq!(View::of(&found.packet).expect("IPv6").src, expected.octets());
                assert!(ports[0].send(&Frame::new(mac, ROUTER, &turned(&found.packet))));
                let found = inside.expect("IPv4");
                assert_eq!(View::of(&found.packet).expect("IPv4").dst, [192, 0, 2, host]);
            }
            // One that goes leaves the other at work.
            let (first, ..) = running.remove(0);
            first.detach().expect("to detach");
            let out = packet(
                "v4 = { src = \"192.0.2.133\", dst = \"198.51.100.7\" }\nudp = {}\npayload = 9",
            );
            assert!(near.send(&Frame::new(ROUTER, mac, &out)));
            assert_eq!(ports[0].expect("IPv6").kind, IPV6, "clsact {force_clsact}");
            running.remove(0).0.detach().expect("to detach");
        });
    }
}

#[test]
fn down_and_up_change_nothing() {
    if !can_use_tun() {
        return;
    }
    apart(|| {
        let mut bench = Bench::ethernet();
        run(&format!("ip link set {NEAR} down"));
        run(&format!("ip link set {NEAR} up"));
        // Each socket is told once that the device was down.
        for port in [&bench.near, &bench.inside4, &bench.inside6] {
            assert!(port.take().is_empty());
        }
        let mut tally = Tally::default();
        bench.hold(&datagram(40), Offload::default(), &mut tally);
        bench.hold(&answer(40), Offload::default(), &mut tally);
        assert_eq!(tally.translated, 2, "{tally:?}");
        // Without its TUN device: what is passed on is lost, nothing else.
        run("ip link set clat0 down");
        bench.hold(&datagram(40), Offload::default(), &mut tally);
        let expires = packet(
            "v4 = { src = \"192.0.2.5\", dst = \"198.51.100.7\", ttl = 1 }\nudp = {}\npayload = 9",
        );
        let frame = bench.frame(&expires);
        assert_eq!(bench.pass(&frame, true), Some(Outcome::PassedOn(PassReason::HopLimit)));
        run("ip link set clat0 up");
        bench.hold(&expires, Offload::default(), &mut tally);
        assert_eq!((tally.translated, tally.passed_on), (3, 1));
        bench.close();
    });
}

#[test]
fn an_uplink_may_vanish() {
    if !can_use_tun() {
        return;
    }
    for force_clsact in [false, true] {
        apart(|| {
            let bench = Bench::new(CONFIGS[2], true, force_clsact);
            let Bench { mut accelerator, folders, config, near, tun_device, .. } = bench;
            drop(near);
            let gone = index(NEAR);
            run(&format!("ip link del {NEAR}"));
            accelerator.totals().expect("counters outlive the device");
            let hook = Hook::Uplink { device: gone, tun: tun_device.ifindex() };
            let options = Options { force_clsact, ..Options::new(&folders.pins, hook) };
            let error = accelerator.replace(&config, &options).expect_err("there is no device");
            println!("{error}");
            // Another one of the same name.
            let (_outside, ports) = Veth::default().make();
            let hook = Hook::Uplink { device: index(NEAR), tun: tun_device.ifindex() };
            let options = Options { force_clsact, ..Options::new(&folders.pins, hook) };
            accelerator.replace(&config, &options).expect("the new device gets the programs");
            let near = Port::open(NEAR, true);
            assert!(near.send(&Frame::new(ROUTER, address(NEAR, None), &datagram(40))));
            assert_eq!(ports[0].expect("IPv6").kind, IPV6);
            run(&format!("ip link del {NEAR}"));
            accelerator.detach().expect("nothing to be detached is no error");
            assert!(!folders.pins.exists());
        });
    }
}

#[test]
fn an_uplink_may_move_to_another_namespace() {
    if !can_use_tun() {
        return;
    }
    apart(|| {
        let bench = Bench::ethernet();
        let Bench { accelerator, folders, far: Far::Ethernet { outside, port }, near, .. } = bench
        else {
            unreachable!()
        };
        drop((near, port));
        let namespace = outside.path();
        run(&format!("ip link set {NEAR} netns {namespace}"));
        accelerator.totals().expect("counters");
        accelerator.detach().expect("to detach");
        assert!(!folders.pins.exists());
        let text = outside.run(&format!("ip -d link show {NEAR}"));
        assert!(!text.contains("prog/"), "{text}");
        outside.run(&format!("ip link del {NEAR}"));
    });
}

#[test]
fn nothing_leaves_that_is_longer_than_the_device_allows() {
    if !can_use_tun() {
        return;
    }
    apart(|| {
        let mut bench = Bench::ethernet();
        run(&format!("ip link set {NEAR} mtu 1400"));
        let fits = datagram(1400 - 20 - 28);
        let mut tally = Tally::default();
        bench.hold(&fits, Offload::default(), &mut tally);
        let large = packet(
            "v4 = { src = \"192.0.2.5\", dst = \"198.51.100.7\", df = true }\nudp = {}\n\
             payload = 1370",
        );
        let frame = bench.frame(&large);
        let outcome = bench.pass(&frame, true).expect("a frame");
        if outcome == Outcome::Translated {
            let frames = bench.arrived(outcome, true);
            panic!("a packet of {} octets left by an MTU of 1400", frames[0].packet.len());
        }
        bench.close();
    });
}

#[test]
fn what_the_device_has_merged_reaches_sockets() {
    if !can_use_tun() {
        return;
    }
    let ways = [
        "rx-gro-list off rx-udp-gro-forwarding off",
        "rx-gro-list off rx-udp-gro-forwarding on",
        "rx-gro-list on rx-udp-gro-forwarding off",
    ];
    for way in ways {
        apart(|| {
            let mut bench = Bench::ethernet();
            run(&format!("ethtool -K {NEAR} gro on {way}"));
            let Far::Ethernet { port, outside } = &bench.far else { unreachable!() };
            // The peer cuts super-packets, and the segments arrive together.
            outside.run("ethtool -K far tso off gso off tx-udp-segmentation off");
            run(&format!("ip addr add 192.0.2.5/32 dev {NEAR}"));
            run(&format!("ip route add 198.51.100.0/24 dev {NEAR}"));
            let socket = std::net::UdpSocket::bind("192.0.2.5:4000").expect("a socket");
            socket.set_nonblocking(true).expect("a socket that does not wait");
            for segment in [100, 333, 1200] {
                let spec = packet(&format!(
                    "v6 = {{ src = \"2001:db8:64::c633:6407\", dst = \"2001:db8:c1a7::5\" }}\n\
                     udp = {{ sport = 9, dport = 4000 }}\npayload = {}",
                    segment * 5 + 7
                ));
                let offload = Offload {
                    checksum: ChecksumState::Partial { start: 40, offset: 6 },
                    gso: Gso { kind: GsoKind::Udp, ecn: false, size: segment, header_len: 48 },
                };
                let mut octets = spec.clone();
                octets[46..48].copy_from_slice(&pseudo_header(&spec));
                let frame = Frame { offload, ..bench.frame(&octets) };
                assert!(port.send(&frame), "{way}");
                let mut received = Vec::new();
                poll("the datagrams", || {
                    let mut buffer = [0; 2000];
                    while let Ok(len) = socket.recv(&mut buffer) {
                        received.push(buffer[..len].to_vec());
                    }
                    (received.len() >= 6).then_some(())
                });
                let due: Vec<&[u8]> = spec[48..].chunks(usize::from(segment)).collect();
                assert_eq!(received, due, "{way}, {segment}");
            }
            let totals = bench.totals();
            println!("{way}: {:?}", totals.directions[1]);
            bench.before = totals;
            let _ = (bench.near.take(), bench.inside4.take(), bench.inside6.take());
            bench.close();
        });
    }
}

/// The sum of the pseudo-header, which a partial checksum starts from.
fn pseudo_header(packet: &[u8]) -> [u8; 2] {
    let len = packet.len() as u16 - 40;
    let octets = [&packet[8..40], &len.to_be_bytes(), &[0, 17]].concat();
    fordway_testkit::checksum::sum(&octets).to_be_bytes()
}
