//! An uplink with the programs, and a packet socket at each place that a packet can get to.

use std::net::{Ipv4Addr, Ipv6Addr};

use fordway_bpf::{Accelerator, Hook, Options, Outcome, Totals};
use fordway_testhost::poll;
use fordway_testkit::oracle;
use fordway_tun::{Device, Queue};
use fordway_xlat::{Config, Offload, State, Translator, Verdict};
use ipnet::{Ipv4Net, Ipv6Net};

use crate::alike::{Made, agree, comparable, hex};
use crate::wire::draw::{config, packet};
use crate::wire::{
    Folders, Frame, IPV4, IPV6, Outside, Port, Veth, address, index, outcome, run, same, send_by,
    take_from,
};

/// The hosts of the drawn packets: 192.0.2.0/24 is the CLAT's, 198.51.100.0/24 is outside.
pub(crate) const CONFIGS: [&str; 6] = [
    // Both ends by explicit mappings, so that drawn IPv6 packets are the CLAT's too.
    r#"eam = [["192.0.2.0/24", "2001:db8:64::c000:200/120"], ["198.51.100.0/24", "2001:db8:1::/120"]]
       icmp_source4 = "203.0.113.254"
       icmp_source6 = "2001:db8:fe::1"
       pass_unmatched = true"#,
    r#"eam = [["192.0.2.0/24", "2001:db8:64::c000:200/120"], ["198.51.100.0/24", "2001:db8:1::/120"]]
       mtu4 = 1300
       mtu6 = 1320
       mss_clamp = true
       udp_checksum_zero = "pass"
       pass_unmatched = true"#,
    // As a CLAT is.
    r#"pool6 = ["2001:db8:64::/96"]
       eam = [["192.0.2.0/24", "2001:db8:c1a7::/120"]]
       ipv4_translatable = false
       pass_unmatched = true"#,
    r#"pool6 = ["2001:db8:64::/96"]
       eam = [["192.0.2.0/25", "2001:db8:c1a7::/121"]]
       ipv4_translatable = false
       icmp_source4 = "none"
       mtu4 = 1480
       mtu6 = 1500
       mss_clamp = true
       traffic_class = 0
       pass_unmatched = true"#,
    r#"pool6 = ["64:ff9b::/96"]
       allow_private = true
       eam = [["192.0.2.0/26", "2001:db8:c1a7::/122"]]
       udp_checksum_zero = "drop"
       lowest_ipv6_mtu = 1500
       pass_unmatched = true"#,
    r#"pool6 = ["2001:db8:64:64::/64", "2001:db8:64::/96"]
       eam = [["192.0.2.0/24", "2001:db8:c1a7::/120"]]
       pass_unmatched = true"#,
];

/// What became of all packets.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) seen: usize,
    pub(crate) refused: usize,
    pub(crate) translated: usize,
    pub(crate) passed_on: usize,
    pub(crate) dropped: usize,
    pub(crate) unmatched: usize,
}

impl Tally {
    pub(crate) fn count(&mut self, outcome: Outcome) {
        self.seen += 1;
        *match outcome {
            Outcome::Translated => &mut self.translated,
            Outcome::PassedOn(_) => &mut self.passed_on,
            Outcome::Dropped(_) => &mut self.dropped,
            Outcome::Unmatched => &mut self.unmatched,
            Outcome::HandedOver => panic!("there is no other gateway"),
        } += 1;
    }
}

pub(crate) const NEAR: &str = "near";
pub(crate) const ROUTER: [u8; 6] = [2, 0, 0, 0, 0, 0x42];

/// What the far end of the uplink is.
pub(crate) enum Far {
    Ethernet { port: Port, outside: Outside },
    Bare { queue: Queue, _device: Device },
}

/// An uplink with the programs, a packet socket at each place that a packet can get to.
pub(crate) struct Bench {
    pub(crate) config: Config,
    pub(crate) translator: Translator,
    pub(crate) accelerator: Accelerator,
    own: Own,
    pub(crate) before: Totals,
    pub(crate) near: Port,
    pub(crate) inside4: Port,
    pub(crate) inside6: Port,
    pub(crate) far: Far,
    pub(crate) tun: Queue,
    pub(crate) tun_device: Device,
    pub(crate) mac: [u8; 6],
    /// Last, so that everything above is gone when they go.
    pub(crate) folders: Folders,
}

/// The CLAT's addresses, by the configuration's first mapping.
pub(crate) struct Own {
    pub(crate) v4: Vec<Ipv4Net>,
    pub(crate) v6: Vec<Ipv6Net>,
}

impl Own {
    pub(crate) fn of(text: &str) -> Own {
        let table: toml::Table = text.parse().expect("a configuration");
        let mappings = table["eam"].as_array().expect("mappings").iter();
        let (v4, v6) = mappings
            .map(|mapping| {
                let end = |at: usize| mapping[at].as_str().expect("a prefix");
                let (v4, v6) = (end(0), end(1));
                (v4.parse::<Ipv4Net>(), v6.parse::<Ipv6Net>())
            })
            .map(|(v4, v6)| (v4.expect("a prefix"), v6.expect("a prefix")))
            .unzip();
        Own { v4, v6 }
    }

    /// Whether a packet that leaves (IPv4) or arrives (IPv6) is the CLAT's.
    pub(crate) fn covers(&self, packet: &[u8]) -> bool {
        if packet[0] >> 4 == 4 {
            let src: [u8; 4] = packet[12..16].try_into().expect("four octets");
            self.v4.iter().any(|net| net.contains(&Ipv4Addr::from(src)))
        } else {
            let dst: [u8; 16] = packet[24..40].try_into().expect("sixteen octets");
            self.v6.iter().any(|net| net.contains(&Ipv6Addr::from(dst)))
        }
    }
}

impl Bench {
    pub(crate) fn new(text: &str, ethernet: bool, force_clsact: bool) -> Bench {
        let folders = Folders::new();
        let (tun_device, tun) = folders.tun("clat0", 65_535);
        let far = if ethernet {
            let (outside, mut ports) = Veth::default().make();
            Far::Ethernet { port: ports.remove(0), outside }
        } else {
            let (device, queue) = folders.tun(NEAR, 65_535);
            Far::Bare { queue, _device: device }
        };
        let config = config(text);
        let hook = Hook::Uplink { device: index(NEAR), tun: tun_device.ifindex() };
        // Taking times and writing events changes no packet.
        let options = Options {
            force_clsact,
            measure: !ethernet,
            trace: (!ethernet).then_some(100),
            ..Options::new(&folders.pins, hook)
        };
        let accelerator = Accelerator::start(&config, &options).expect("attached programs");
        Bench {
            translator: Translator::new(config.clone()).expect("a sound configuration"),
            own: Own::of(text),
            config,
            before: accelerator.totals().expect("counters"),
            accelerator,
            near: Port::open(NEAR, ethernet),
            inside4: Port::behind_ingress(NEAR, IPV4, ethernet),
            inside6: Port::behind_ingress(NEAR, IPV6, ethernet),
            far,
            tun,
            tun_device,
            mac: if ethernet { address(NEAR, None) } else { [0; 6] },
            folders,
        }
    }

    /// An uplink of Ethernet with the third configuration.
    pub(crate) fn ethernet() -> Bench {
        Bench::new(CONFIGS[2], true, false)
    }

    /// A frame that the host sends (IPv4), or that the router sends to the host (IPv6).
    pub(crate) fn frame(&self, packet: &[u8]) -> Frame {
        let bare = matches!(self.far, Far::Bare { .. });
        let (dst, src) = match packet[0] >> 4 {
            _ if bare => ([0; 6], [0; 6]),
            4 => (ROUTER, self.mac),
            _ => (self.mac, ROUTER),
        };
        Frame::new(dst, src, packet)
    }

    /// Lets the host send a frame, or receive one. What the programs made of it; `None`: the kernel
    /// refuses to make such a frame.
    pub(crate) fn pass(&mut self, frame: &Frame, leaves: bool) -> Option<Outcome> {
        let sent = match &mut self.far {
            _ if leaves => self.near.send(frame),
            Far::Ethernet { port, .. } => port.send(frame),
            Far::Bare { queue, .. } => send_by(queue, &frame.packet, frame.offload),
        };
        if !sent {
            return None;
        }
        let (outcome, totals) = poll("the counters to move", || {
            let totals = self.totals();
            Some((outcome(&self.before, &totals)?, totals))
        });
        self.before = totals;
        Some(outcome)
    }

    pub(crate) fn totals(&self) -> Totals {
        self.accelerator.totals().expect("counters")
    }

    /// The frames that came out where this outcome leads to; fails if there are some anywhere else.
    pub(crate) fn arrived(&mut self, outcome: Outcome, leaves: bool) -> Vec<Frame> {
        // What a packet socket sees in front of the programs.
        let _ = self.near.take();
        let due = !matches!(outcome, Outcome::Dropped(_));
        let mut found: [Vec<Frame>; 4] = Default::default();
        poll("the packet", || {
            let far = match &mut self.far {
                Far::Ethernet { port, .. } => port.take(),
                Far::Bare { queue, .. } => take_from(queue),
            };
            let more = [take_from(&mut self.tun), far, self.inside4.take(), self.inside6.take()];
            for (all, more) in found.iter_mut().zip(more) {
                all.extend(more);
            }
            (!due || found.iter().any(|frames| !frames.is_empty())).then_some(())
        });
        let place = match outcome {
            Outcome::PassedOn(_) => 0,
            _ if leaves => 1,
            Outcome::Translated => 2,
            _ => 3,
        };
        let frames = std::mem::take(&mut found[place]);
        assert!(found.iter().all(Vec::is_empty), "{outcome:?}, and elsewhere: {found:x?}");
        frames
    }

    /// Holds a packet against the core.
    pub(crate) fn hold(&mut self, packet: &[u8], offload: Offload, tally: &mut Tally) {
        let frame = Frame { offload, ..self.frame(packet) };
        let leaves = frame.kind == IPV4;
        let Some(outcome) = self.pass(&frame, leaves) else {
            tally.refused += 1;
            return;
        };
        tally.count(outcome);
        let frames = self.arrived(outcome, leaves);
        let core = oracle::translate(&self.translator, &mut State::new(1), packet, offload);
        let wrong = match (outcome, frames.len()) {
            (_, 2..) => Err("several packets of one".to_owned()),
            (Outcome::Unmatched, _) if self.own.covers(packet) && core.verdict != Verdict::Pass => {
                Err(format!("unmatched, the core says {:?}", core.verdict))
            }
            (Outcome::Unmatched, 1) if same(&frames[0], &frame) => Ok(()),
            (Outcome::Unmatched, _) => Err("not touched, and not the same".into()),
            _ if !self.own.covers(packet) => Err(format!("{outcome:?} of somebody else's")),
            (Outcome::PassedOn(_), 0) => Err("passed on and lost".into()),
            (Outcome::PassedOn(_), _) if comparable(frames[0].offload) != comparable(offload) => {
                Err("passed on with another offload state".into())
            }
            (Outcome::Translated, 1)
                if (frames[0].dst, frames[0].src, frames[0].kind)
                    != (frame.dst, frame.src, IPV4 + IPV6 - frame.kind) =>
            {
                Err("the link-layer header is wrong".into())
            }
            _ => {
                let made = frames.first();
                let offload = made.map(|frame| frame.offload);
                agree(packet, &core, &Made { outcome, packet: made.map(|it| &*it.packet), offload })
            }
        };
        if let Err(wrong) = wrong {
            panic!(
                "{wrong}\n{outcome:?}, core {:?}\npacket {} {offload:?}\nmade {frames:x?}\n{:?}",
                core.verdict,
                hex(packet),
                self.config
            );
        }
    }

    /// A frame that is not the CLAT's, or not to be touched: it is at the other end as it was. Returns
    /// whether a program counted it.
    pub(crate) fn untouched(&mut self, frame: &Frame, leaves: bool, what: &str) {
        let sent = match &self.far {
            _ if leaves => self.near.send(frame),
            Far::Ethernet { port, .. } => port.send(frame),
            Far::Bare { .. } => false,
        };
        assert!(sent, "{what}: could not be sent");
        let found = match &self.far {
            Far::Ethernet { port, .. } if leaves => port.expect(what),
            _ if frame.kind == IPV4 => self.inside4.expect(what),
            _ if frame.kind == IPV6 => self.inside6.expect(what),
            _ => self.near.expect(what),
        };
        assert!(same(&found, frame), "{what} was changed: {found:x?}");
        let totals = self.totals();
        let outcome = outcome(&self.before, &totals);
        self.before = totals;
        assert!(matches!(outcome, None | Some(Outcome::Unmatched)), "{what}: {outcome:?}");
        assert!(take_from(&mut self.tun).is_empty(), "{what} reached the user engine");
        let _ = self.near.take();
    }

    pub(crate) fn close(self) {
        self.accelerator.detach().expect("to detach");
        drop((self.near, self.inside4, self.inside6));
        if matches!(self.far, Far::Ethernet { .. }) {
            run(&format!("ip link del {NEAR}"));
        }
    }
}

/// A datagram of the CLAT's host.
pub(crate) fn datagram(payload: usize) -> Vec<u8> {
    packet(&format!(
        "v4 = {{ src = \"192.0.2.5\", dst = \"198.51.100.7\" }}\nudp = {{}}\npayload = {payload}"
    ))
}

/// Its answer.
pub(crate) fn answer(payload: usize) -> Vec<u8> {
    packet(&format!(
        "v6 = {{ src = \"2001:db8:64::c633:6407\", dst = \"2001:db8:c1a7::5\" }}\nudp = {{}}\n\
         payload = {payload}"
    ))
}
