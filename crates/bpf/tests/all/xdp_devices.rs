//! XDP and the gateway around it: what routing, neighbours and devices don't allow takes the stack's
//! way; devices that change, vanish or are somebody else's already.
//!
//! What XDP knows of a pair of hosts it keeps for a tick of the kernel's clock: after each change another
//! host is asked. Needs root; says so, and does nothing, without.

use fordway_bpf::{Accelerator, Error, Hook, Options, Outcome, PassReason};
use fordway_testhost::{can_use_tun, poll};
use fordway_testkit::view::View;
use fordway_xlat::{ChecksumState, Direction, Gso, GsoKind, Offload};

use crate::wire::draw::packet;
use crate::wire::{Folders, Frame, IPV4, IPV6, apart, index, run, same};
use crate::xdp_bench::{Gateway, MODES, Setup, knob, text};

const PLAIN: Offload = Offload {
    checksum: ChecksumState::Complete,
    gso: Gso { kind: GsoKind::None, ecn: false, size: 0, header_len: 0 },
};

/// A datagram of the IPv4 host to the IPv6 host with this number.
fn datagram(host: u8, payload: usize) -> Vec<u8> {
    packet(&format!(
        "v4 = {{ src = \"192.0.2.5\", dst = \"198.51.100.{host}\", df = true }}\nudp = {{}}\n\
         payload = {payload}"
    ))
}

/// A datagram of the IPv6 host with this number.
fn answer(host: u8, payload: usize) -> Vec<u8> {
    packet(&format!(
        "v6 = {{ src = \"2001:db8:1::{host:x}\", dst = \"2001:db8:64::c000:205\" }}\nudp = {{}}\n\
         payload = {payload}"
    ))
}

/// What XDP makes of a packet.
fn asked(gateway: &mut Gateway, packet: &[u8]) -> Option<Outcome> {
    gateway.settle();
    let frame = gateway.frame(packet, PLAIN);
    let outcome = gateway.pass(&frame);
    if outcome != Some(Outcome::Translated) {
        let found = gateway.side(packet).stack.expect("the frame, in the stack");
        assert!(same(&found, &frame), "left to the stack, but changed: {found:x?}");
    }
    outcome
}

const NO_ROUTE: Option<Outcome> = Some(Outcome::PassedOn(PassReason::NoRoute));

#[test]
fn routing_decides() {
    if !can_use_tun() {
        return;
    }
    for mode in MODES {
        apart(|| {
            let mut gateway = Setup { mode, only_xdp: true, ..Setup::default() }.make();
            assert_eq!(gateway.hold(&datagram(1, 1392), PLAIN), Some(Outcome::Translated));
            assert_eq!(gateway.hold(&answer(1, 1392), PLAIN), Some(Outcome::Translated));

            run("ip route change 2001:db8:1::/64 via 2001:db8:b::2 mtu lock 1400");
            assert_eq!(asked(&mut gateway, &datagram(2, 1392)), NO_ROUTE, "{mode:?}: too long");
            assert_eq!(gateway.hold(&datagram(2, 1352), PLAIN), Some(Outcome::Translated));
            run("ip route replace 2001:db8:1::/64 via 2001:db8:b::2");
            run("ip link set gwb mtu 1300");
            assert_eq!(asked(&mut gateway, &datagram(3, 1292)), NO_ROUTE, "{mode:?}: too long");
            run("ip link set gwb mtu 1500");
            assert_eq!(gateway.hold(&datagram(4, 1392), PLAIN), Some(Outcome::Translated));

            run("ip route replace unreachable 2001:db8:1::/64");
            assert_eq!(asked(&mut gateway, &datagram(5, 9)), NO_ROUTE);
            run("ip route del unreachable 2001:db8:1::/64");
            assert_eq!(asked(&mut gateway, &datagram(6, 9)), NO_ROUTE);
            run("ip route add 2001:db8:1::/64 via 2001:db8:b::2");

            knob("ipv6/conf/gwa/forwarding", "0");
            knob("ipv6/conf/all/forwarding", "0");
            let outcome = asked(&mut gateway, &datagram(7, 9));
            assert_eq!(outcome, NO_ROUTE, "{mode:?}: no forwarding");
            assert_eq!(asked(&mut gateway, &answer(7, 9)), Some(Outcome::Unmatched));
            knob("ipv6/conf/all/forwarding", "1");
            knob("ipv4/ip_forward", "0");
            assert_eq!(asked(&mut gateway, &datagram(8, 9)), Some(Outcome::Unmatched));
            assert_eq!(asked(&mut gateway, &answer(8, 9)), NO_ROUTE);
            knob("ipv4/ip_forward", "1");

            // What the translator makes would come back to it.
            run("ip route replace 2001:db8:1::/64 dev fw0");
            assert_eq!(asked(&mut gateway, &datagram(9, 9)), NO_ROUTE, "{mode:?}: a loop");
            run("ip route replace 2001:db8:1::/64 via 2001:db8:b::2");
            // And out of where it came from.
            run("ip route add 2001:db8:1::a/128 via inet6 2001:db8:a::2 dev gwa onlink");
            let mac = text(gateway.a.host_mac);
            run(&format!("ip neigh add 2001:db8:a::2 lladdr {mac} dev gwa"));
            assert_eq!(asked(&mut gateway, &datagram(10, 9)), Some(Outcome::Translated));
            assert_eq!(gateway.a.host.expect("back where it came from").kind, IPV6);
            assert_eq!(gateway.hold(&datagram(11, 9), PLAIN), Some(Outcome::Translated));
            gateway.close();
        });
    }
}

#[test]
fn neighbours_are_found_by_the_stack() {
    if !can_use_tun() {
        return;
    }
    for mode in MODES {
        apart(|| {
            let mut gateway = Setup { mode, ..Setup::default() }.make();
            run("ip neigh del 2001:db8:b::2 dev gwb");
            assert_eq!(asked(&mut gateway, &datagram(1, 9)), NO_ROUTE);
            // The stack asks for it, and keeps the packet until there is an answer.
            let solicitation = gateway.b.host.expect("a neighbour solicitation");
            assert_eq!((solicitation.kind, solicitation.packet[40]), (IPV6, 135));
            let mac = text(gateway.b.host_mac);
            run(&format!("ip neigh replace 2001:db8:b::2 lladdr {mac} nud stale dev gwb"));
            let found = gateway.b.host.expect("the packet that waited");
            assert_eq!(View::of(&found.packet).expect("IPv6").protocol, 17);
            assert_eq!(asked(&mut gateway, &datagram(2, 9)), Some(Outcome::Translated));
            gateway.close();
        });
    }
}

#[test]
fn what_is_not_routed_to_the_translator_is_routed_natively() {
    if !can_use_tun() {
        return;
    }
    for mode in MODES {
        apart(|| {
            let mut gateway = Setup { mode, ..Setup::default() }.make();
            run("ip route add 198.51.100.128/25 via inet6 2001:db8:b::2 dev gwb");
            let octets = datagram(200, 40);
            assert_eq!(asked(&mut gateway, &octets), Some(Outcome::Unmatched));
            let found = gateway.b.host.expect("IPv4 on the other side");
            assert_eq!((found.kind, found.packet[8]), (IPV4, octets[8] - 1));
            assert_eq!(found.packet[12..], octets[12..]);
            gateway.close();
        });
    }
}

#[test]
fn a_device_that_takes_no_redirected_frames_gets_them_from_the_stack() {
    if !can_use_tun() {
        return;
    }
    let without = Setup { takes_redirected: false, ..Setup::default() };
    let apart_from = Setup { both: false, ..Setup::default() };
    for setup in [without, apart_from] {
        apart(|| {
            let mut gateway = setup.make();
            let reason = PassReason::NoRedirect;
            let (there, back) = (datagram(7, 40), answer(7, 40));
            gateway.takes_the_stacks_way(&there, PLAIN, reason, "there");
            if setup.both {
                // The other direction is not concerned.
                assert_eq!(asked(&mut gateway, &back), Some(Outcome::Translated));
                assert_eq!(gateway.a.host.expect("IPv4").kind, IPV4);
            }
            gateway.close();
        });
    }
}

#[test]
fn a_reload_learns_which_devices_take_redirected_frames() {
    if !can_use_tun() {
        return;
    }
    apart(|| {
        let mut gateway = Setup::default().make();
        assert_eq!(asked(&mut gateway, &datagram(1, 40)), Some(Outcome::Translated));
        assert_eq!(gateway.b.host.expect("IPv6").kind, IPV6);
        // Another host's administrator: now the gateway's device takes no redirected frames.
        gateway.b.outside.run("ethtool -K hostb gro off");
        let hook =
            Hook::Xdp { devices: vec![index("gwa"), index("gwb")], tun: gateway.tun.ifindex() };
        let options = Options::new(&gateway.folders.pins, hook);
        gateway.accelerator.replace(&gateway.config, &options).expect("a reload");
        gateway.takes_the_stacks_way(&datagram(3, 40), PLAIN, PassReason::NoRedirect, "reloaded");
        gateway.close();
    });
}

/// As a gateway has it that shares its address by VRRP (RFC 9568 section 7.3).
const VIRTUAL: [u8; 6] = [0, 0, 0x5e, 0, 1, 7];

#[test]
fn virtual_addresses_are_taken_and_frames_for_others_counted() {
    if !can_use_tun() {
        return;
    }
    for mode in MODES {
        apart(|| {
            let mut gateway = Setup { mode, ..Setup::default() }.make();
            let frame = gateway.frame(&datagram(1, 40), PLAIN);
            let other = Frame { dst: VIRTUAL, ..frame.clone() };
            let tagged = Frame { kind: 0x8100, ..frame.clone() };
            let many = Frame { dst: [0xff; 6], ..frame.clone() };
            for frame in [&other, &tagged, &many] {
                assert!(gateway.a.host.send(frame));
            }
            // The last one, so all have been seen.
            assert_eq!(gateway.pass(&frame), Some(Outcome::Translated), "{mode:?}");
            let totals = gateway.totals();
            assert_eq!((totals.elsewhere, totals.tagged), (1, 1), "{mode:?}");

            let devices = vec![index("gwa"), index("gwb")];
            let (pins, tun) = (gateway.folders.pins.clone(), gateway.tun.ifindex());
            let hook = Hook::Xdp { devices: devices.clone(), tun };
            let virtual_macs = vec![(index("gwa"), VIRTUAL)];
            let options = Options { virtual_macs, ..Options::new(&pins, hook) };
            gateway.accelerator.replace(&gateway.config, &options).expect("a reload");
            gateway.settle();
            assert_eq!(gateway.pass(&other), Some(Outcome::Translated), "{mode:?}");
            // At the other device it is nobody's.
            let frame = gateway.frame(&answer(1, 40), PLAIN);
            assert!(gateway.b.host.send(&Frame { dst: VIRTUAL, ..frame.clone() }));
            assert_eq!(gateway.pass(&frame), Some(Outcome::Translated), "{mode:?}");
            assert_eq!(gateway.totals().elsewhere, 2, "{mode:?}");

            // At the ingress, the device on top has hooks of its own.
            let options = Options::new(&pins, Hook::Ingress { devices, tun });
            gateway.accelerator.replace(&gateway.config, &options).expect("a reload");
            for frame in [&other, &tagged, &many] {
                assert!(gateway.a.host.send(frame));
            }
            poll("the ingress to count both", || {
                let totals = gateway.totals();
                (totals.elsewhere == 3 && totals.tagged == 2).then_some(())
            });
            gateway.close();
        });
    }
}

#[test]
fn jumbo_frames_pass() {
    if !can_use_tun() {
        return;
    }
    for mode in MODES {
        apart(|| {
            let mut gateway = Setup { mode, mtu: 9000, ..Setup::default() }.make();
            for (there, octets) in [datagram(7, 8900), answer(7, 8900)].iter().enumerate() {
                let what = format!("{mode:?} {there}");
                let frame = gateway.frame(octets, PLAIN);
                assert!(gateway.side(octets).host.send(&frame), "{what}");
                let found = gateway.other(octets).host.expect(&what);
                let (before, after) = (octets, &found.packet);
                let (before, after) =
                    (View::of(before).expect("a packet"), View::of(after).expect("a packet"));
                assert_eq!(after.payload()[8..], before.payload()[8..], "{what}");
                assert_eq!(after.deviation(), Some(0), "{what}: the checksum");
                gateway.settle();
            }
            for octets in [datagram(7, 1400), answer(7, 1400), datagram(7, 40), answer(7, 40)] {
                assert_eq!(asked(&mut gateway, &octets), Some(Outcome::Translated), "{mode:?}");
                let _ = gateway.other(&octets).host.expect("small ones are XDP's");
            }
            gateway.close();
        });
    }
}

#[test]
fn one_translator_per_device() {
    if !can_use_tun() {
        return;
    }
    for mode in MODES {
        apart(|| {
            let mut gateway = Setup { mode, ..Setup::default() }.make();
            let folders = Folders::new();
            let (tun, _queue) = folders.tun("fw1", 1500);
            let hook = Hook::Xdp { devices: vec![index("gwb")], tun: tun.ifindex() };
            let second = Accelerator::start(&gateway.config, &Options::new(&folders.pins, hook));
            match second {
                Err(Error::Busy { device }) => assert_eq!(device, "gwb"),
                other => panic!("{mode:?}: {other:?}"),
            }
            assert!(!folders.pins.exists(), "nothing is left of it");
            let egress = run("tc filter show dev fw1 egress");
            assert!(egress.trim().is_empty(), "{egress}");
            assert_eq!(asked(&mut gateway, &datagram(7, 40)), Some(Outcome::Translated));
            gateway.close();
        });
    }
}

#[test]
fn devices_go_down_and_up_and_away() {
    if !can_use_tun() {
        return;
    }
    for mode in MODES {
        apart(|| {
            let mut gateway = Setup { mode, ..Setup::default() }.make();
            for device in ["gwa", "fw0"] {
                run(&format!("ip link set {device} down"));
                run(&format!("ip link set {device} up"));
            }
            // The kernel forgets routes and neighbours of a device that was down.
            run("ip route replace 192.0.2.0/24 via 203.0.113.2");
            run("ip route replace 198.51.100.0/24 dev fw0");
            run("ip route replace 2001:db8:64::/96 dev fw0");
            let mac = text(gateway.a.host_mac);
            run(&format!("ip neigh replace 203.0.113.2 lladdr {mac} dev gwa"));
            let _ = (gateway.a.host.take(), gateway.a.stack.take());
            gateway.settle();
            assert_eq!(asked(&mut gateway, &datagram(1, 40)), Some(Outcome::Translated));
            assert_eq!(asked(&mut gateway, &answer(1, 40)), Some(Outcome::Translated));

            // One device goes: the other goes on, and what would have left by it is left to the stack.
            run("ip link del gwb");
            gateway.settle();
            let frame = gateway.frame(&datagram(2, 40), PLAIN);
            assert_eq!(gateway.pass(&frame), NO_ROUTE, "{mode:?}");
            let hook = |devices| Hook::Xdp { devices, tun: gateway.tun.ifindex() };
            let options = Options::new(&gateway.folders.pins, hook(vec![index("gwa")]));
            gateway.accelerator.replace(&gateway.config, &options).expect("with what is left");
            let translated = gateway.totals().direction(Direction::V4ToV6).packets;
            assert!(translated > 0, "counters go on");
            let Gateway { accelerator, a, folders, .. } = gateway;
            // Another namespace: the link goes along with the device.
            run(&format!("ip link set gwa netns {}", a.outside.path()));
            accelerator.totals().expect("counters");
            accelerator.detach().expect("to detach");
            assert!(!folders.pins.exists());
            let text = a.outside.run("ip -d link show gwa");
            assert!(!text.contains("prog/xdp"), "{text}");
        });
    }
}
