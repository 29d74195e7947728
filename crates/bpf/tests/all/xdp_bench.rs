//! A gateway with the program at XDP: IPv4 hosts on one side, IPv6 hosts on the other.
//!
//! Everything that leaves a side's host is sent by its port, everything that reaches the host is taken
//! there; what XDP leaves to the gateway's stack is seen by a second port on the way.

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use fordway_bpf::{
    Accelerator, Hook, Kind, Options, Outcome, PassReason, Place, RoutingNews, Totals,
};
use fordway_testhost::poll;
use fordway_testkit::checksum::checksum;
use fordway_testkit::oracle;
use fordway_tun::{Device, Queue};
use fordway_xlat::{Config, Offload, State, Translator};

use crate::alike::{Made, agree, hex};
use crate::wire::draw::config;
use crate::wire::{
    Folders, Frame, IPV4, IPV6, Outside, Port, Veth, address, index, left, outcome, run, same,
};

/// The mappings that most tests have.
pub(crate) const CONFIG: &str = r#"
    pool6 = ["2001:db8:64::/96"]
    eam = [["198.51.100.0/24", "2001:db8:1::/120"]]
    icmp_source4 = "203.0.113.254"
    icmp_source6 = "2001:db8:fe::1""#;

/// Where the kernel runs the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// In the driver.
    Native,
    /// In front of the stack.
    Generic,
}

pub(crate) const MODES: [Mode; 2] = [Mode::Native, Mode::Generic];

/// The gateway's own address on the IPv6 side, 2001:db8:b::1.
const OWN6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0xb, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

/// One side of the gateway.
pub(crate) struct Side {
    /// The host's end.
    pub(crate) host: Port,
    /// What XDP leaves to the stack.
    pub(crate) stack: Port,
    pub(crate) outside: Outside,
    pub(crate) mac: [u8; 6],
    pub(crate) host_mac: [u8; 6],
}

/// The gateway. Its devices are `gwa` (IPv4 side), `gwb` (IPv6 side) and `fw0`.
pub(crate) struct Gateway {
    pub(crate) config: Config,
    pub(crate) translator: Translator,
    pub(crate) accelerator: Accelerator,
    pub(crate) a: Side,
    pub(crate) b: Side,
    pub(crate) before: Totals,
    pub(crate) tun: Device,
    _queue: Queue,
    pub(crate) folders: Folders,
}

/// How a gateway differs from the usual one.
pub(crate) struct Setup<'a> {
    pub(crate) mode: Mode,
    pub(crate) config: &'a str,
    pub(crate) mtu: u32,
    /// The stack drops what XDP leaves to it.
    pub(crate) only_xdp: bool,
    /// The IPv6 host's end has generic receive offload, by which the gateway's takes redirected frames.
    pub(crate) takes_redirected: bool,
    /// Attach to both devices, or to `gwa` alone.
    pub(crate) both: bool,
    pub(crate) routing: Option<Arc<RoutingNews>>,
}

impl Default for Setup<'_> {
    fn default() -> Self {
        Setup {
            mode: Mode::Native,
            config: CONFIG,
            mtu: 1500,
            only_xdp: false,
            takes_redirected: true,
            both: true,
            routing: None,
        }
    }
}

impl Setup<'_> {
    pub(crate) fn make(&self) -> Gateway {
        let folders = Folders::new();
        knob("ipv4/ip_forward", "1");
        knob("ipv6/conf/all/forwarding", "1");
        knob("ipv6/conf/default/forwarding", "1");
        for scope in ["all", "default"] {
            knob(&format!("ipv4/conf/{scope}/rp_filter"), "0");
        }
        let (tun, queue) = folders.tun("fw0", self.mtu);
        let gro = |on: bool| if on { "on" } else { "off" };
        let a = self.side("gwa", "hosta", gro(true));
        let b = self.side("gwb", "hostb", gro(self.takes_redirected));
        run("ip addr add 203.0.113.1/24 dev gwa");
        run("ip addr add 2001:db8:b::1/64 dev gwb nodad");
        run("ip addr add fe80::b/64 dev gwb nodad");
        for (neighbour, mac, device) in
            [("203.0.113.2", a.host_mac, "gwa"), ("2001:db8:b::2", b.host_mac, "gwb")]
        {
            run(&format!("ip neigh add {neighbour} lladdr {} dev {device}", text(mac)));
        }
        run("ip route add 192.0.2.0/24 via 203.0.113.2");
        run("ip route add 198.51.100.0/24 dev fw0");
        run("ip route add 2001:db8:1::/64 via 2001:db8:b::2");
        run("ip route add 2001:db8:64::/96 dev fw0");
        run("nft add table inet test");
        // The interface's program would count the gateway's own multicast.
        run("nft add chain inet test own { type filter hook output priority 0 ; }");
        run("nft add rule inet test own oifname fw0 drop");
        if self.only_xdp {
            run("nft add chain inet test stack { type filter hook prerouting priority -400 ; }");
            run("nft add rule inet test stack iifname { gwa, gwb } drop");
        }
        let config = config(self.config);
        let devices = if self.both { vec![index("gwa"), index("gwb")] } else { vec![index("gwa")] };
        let hook = Hook::Xdp { devices, tun: tun.ifindex() };
        // Taking times and writing events changes no packet.
        let generic = self.mode == Mode::Generic;
        let options = Options {
            measure: generic,
            trace: generic.then_some(100),
            routing: self.routing.clone(),
            ..Options::new(&folders.pins, hook)
        };
        let accelerator = Accelerator::start(&config, &options);
        let accelerator = accelerator.expect("attached programs");
        for attachment in accelerator.attachments() {
            let kind = match self.mode {
                Mode::Native => Kind::XdpNative,
                Mode::Generic => Kind::XdpGeneric,
            };
            // Drivers may refuse jumbo frames.
            let matters = attachment.place == Place::Xdp;
            assert!(!matters || attachment.kind == kind, "{attachment:?}");
        }
        Gateway {
            translator: Translator::new(config.clone()).expect("a sound configuration"),
            config,
            before: accelerator.totals().expect("counters"),
            accelerator,
            a,
            b,
            tun,
            _queue: queue,
            folders,
        }
    }

    fn side(&self, near: &str, far: &str, gro: &str) -> Side {
        let gro = format!("ethtool -K {far} gro {gro}");
        let far_queues = if self.mode == Mode::Native { 1 } else { 2 };
        let setup = [&*gro];
        let veth = Veth { near, far, mtu: self.mtu, setup: &setup, far_queues, more: &[] };
        let (outside, mut ports) = veth.make();
        Side {
            host: ports.remove(0),
            stack: Port::open(near, true),
            mac: address(near, None),
            host_mac: address(far, Some(&outside)),
            outside,
        }
    }
}

impl Gateway {
    /// A frame of the host of the packet's family to the gateway.
    pub(crate) fn frame(&self, packet: &[u8], offload: Offload) -> Frame {
        let side = self.side(packet);
        Frame { offload, ..Frame::new(side.mac, side.host_mac, packet) }
    }

    /// The side where a packet of this family comes from.
    pub(crate) fn side(&self, packet: &[u8]) -> &Side {
        if packet[0] >> 4 == 4 { &self.a } else { &self.b }
    }

    /// The side where it goes.
    pub(crate) fn other(&self, packet: &[u8]) -> &Side {
        if packet[0] >> 4 == 4 { &self.b } else { &self.a }
    }

    pub(crate) fn totals(&self) -> Totals {
        self.accelerator.totals().expect("counters")
    }

    /// Sends a frame and tells what became of it in XDP; `None`: the kernel refuses to make it.
    pub(crate) fn pass(&mut self, frame: &Frame) -> Option<Outcome> {
        if !self.side(&frame.packet).host.send(frame) {
            return None;
        }
        let (outcome, totals) = poll("the counters of XDP to move", || {
            let totals = self.totals();
            let left = left(&self.before, &totals).map(Outcome::PassedOn);
            Some((left.or_else(|| outcome(&self.before, &totals))?, totals))
        });
        self.before = totals;
        Some(outcome)
    }

    /// Holds a packet against the core, where the stack drops what it gets.
    pub(crate) fn hold(&mut self, packet: &[u8], offload: Offload) -> Option<Outcome> {
        let frame = self.frame(packet, offload);
        let outcome = self.pass(&frame)?;
        let core = oracle::translate(&self.translator, &mut State::new(1), packet, offload);
        let wrong = match outcome {
            Outcome::Translated => {
                let other = self.other(packet);
                let found = other.host.expect("the translated frame");
                let header = (found.dst, found.src, found.kind);
                let offload = Some(found.offload);
                let made = Made { outcome, packet: Some(&found.packet), offload };
                if header == (other.host_mac, other.mac, IPV4 + IPV6 - frame.kind) {
                    agree(packet, &core, &made)
                } else {
                    Err(format!("the link-layer header is wrong: {header:x?}"))
                }
            }
            Outcome::Dropped(_) => {
                agree(packet, &core, &Made { outcome, packet: None, offload: None })
            }
            Outcome::HandedOver => Err("there is no other gateway".into()),
            Outcome::PassedOn(_) | Outcome::Unmatched => {
                let found = self.side(packet).stack.expect("the frame, in the stack");
                if !same(&found, &frame) {
                    Err(format!("left to the stack, but changed: {found:x?}"))
                } else if outcome == Outcome::Unmatched && is_routed_here(packet) {
                    Err("the program took it for somebody else's".into())
                } else {
                    Ok(())
                }
            }
        };
        if let Err(wrong) = wrong {
            panic!(
                "{wrong}\n{outcome:?}, core {:?}\npacket {} {offload:?}\n{:?}",
                core.verdict,
                hex(packet),
                self.config
            );
        }
        for side in [&self.a, &self.b] {
            let (stack, mut host) = (side.stack.take(), side.host.take());
            // Of damaged Hop-by-Hop Options the stack complains before any rule of its.
            host.retain(|frame| !(frame.kind == IPV6 && frame.packet[8..24] == OWN6));
            assert!(stack.is_empty() && host.is_empty(), "{outcome:?}, and: {stack:x?} {host:x?}");
        }
        Some(outcome)
    }

    /// A packet that XDP leaves to the stack for this reason: it is there as it was, and reaches the
    /// other side through the stack, one hop later than by XDP, translated as by the core.
    pub(crate) fn takes_the_stacks_way(
        &mut self,
        packet: &[u8],
        offload: Offload,
        reason: PassReason,
        what: &str,
    ) {
        let frame = self.frame(packet, offload);
        let totals = self.totals();
        assert!(self.side(packet).host.send(&frame), "{what}: could not be sent");
        let found = self.side(packet).stack.expect(what);
        assert!(same(&found, &frame), "{what}: changed before the stack: {found:x?}");
        assert_eq!(left(&totals, &self.totals()), Some(reason), "{what}");
        let found = self.other(packet).host.expect(what);
        let core = oracle::translate(&self.translator, &mut State::new(1), packet, offload);
        let before_routing = one_hop_less(&found.packet);
        let made = Made {
            outcome: Outcome::Translated,
            packet: Some(&before_routing),
            offload: Some(found.offload),
        };
        if let Err(wrong) = agree(packet, &core, &made) {
            panic!("{what}: {wrong}\n{:?}", core.verdict);
        }
        self.settle();
    }

    /// Forgets what has happened so far.
    pub(crate) fn settle(&mut self) {
        for side in [&self.a, &self.b] {
            let _ = (side.stack.take(), side.host.take());
        }
        self.before = self.totals();
    }

    pub(crate) fn close(self) {
        self.accelerator.detach().expect("to detach");
        for device in ["gwa", "gwb"] {
            run(&format!("ip link del {device}"));
        }
    }
}

/// The packet as it was one routing step earlier.
fn one_hop_less(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    if packet[0] >> 4 == 6 {
        packet[7] += 1;
    } else {
        packet[8] += 1;
        let header = usize::from(packet[0] & 15) * 4;
        packet[10..12].fill(0);
        let sum = checksum(&packet[..header]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    packet
}

/// Whether the gateway routes a packet into the translator's interface.
fn is_routed_here(packet: &[u8]) -> bool {
    if packet[0] >> 4 == 4 {
        let dst: [u8; 4] = packet[16..20].try_into().expect("four octets");
        Ipv4Addr::from(dst).octets().starts_with(&[198, 51, 100])
    } else {
        let dst: [u8; 16] = packet[24..40].try_into().expect("sixteen octets");
        Ipv6Addr::from(dst).segments()[..6] == [0x2001, 0xdb8, 0x64, 0, 0, 0]
    }
}

/// An Ethernet address as commands take it.
pub(crate) fn text(mac: [u8; 6]) -> String {
    mac.map(|octet| format!("{octet:02x}")).join(":")
}

/// Sets a knob of the network namespace.
pub(crate) fn knob(name: &str, value: &str) {
    fs::write(format!("/proc/sys/net/{name}"), value).expect(name);
}
