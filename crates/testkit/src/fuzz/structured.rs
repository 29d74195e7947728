//! Packets drawn field by field, so that most of them are sound.

use std::net::{Ipv4Addr, Ipv6Addr};

use arbitrary::{Arbitrary, Unstructured};
use fordway_xlat::{Gso, GsoKind, Offload};

use super::{translator, try_packet};
use crate::packet::{
    Dccp, Ext, ExtKind, Extension, Fill, Icmp, PacketSpec, Payload, Sum, Tcp, Udp, UdpLite, V4, V6,
};
use crate::properties;

/// A packet to be built, between hosts that configuration 0 maps.
#[derive(Clone, Debug, Arbitrary)]
pub struct Plan {
    /// IPv4, else IPv6.
    pub v4: bool,
    /// Last octet of the IPv4 host, and of the IPv6 host (as IPv4 sees it).
    pub hosts: (u8, u8),
    /// Type of Service or Traffic Class.
    pub class: u8,
    /// TTL or Hop Limit.
    pub hop: u8,
    /// Identification.
    pub id: u32,
    /// Don't Fragment.
    pub df: bool,
    /// IPv4 options, or IPv6 extension headers, by the bits set.
    pub extras: u8,
    /// What is transported.
    pub body: Body,
    /// Octets of payload.
    pub payload: u16,
    /// First octet and number of octets of a fragment, in units of 8.
    pub fragment: Option<(u8, u8)>,
    /// How it is offloaded.
    pub offload: Offloading,
}

/// What is transported.
#[derive(Clone, Debug, Arbitrary)]
pub enum Body {
    /// UDP; with `zero` no checksum over IPv4.
    Udp {
        /// Ports.
        ports: (u16, u16),
        /// Without checksum.
        zero: bool,
    },
    /// TCP.
    Tcp {
        /// Ports.
        ports: (u16, u16),
        /// Sequence and acknowledgment numbers.
        numbers: (u32, u32),
        /// SYN, FIN, CWR by bits.
        flags: u8,
        /// MSS.
        mss: Option<u16>,
    },
    /// UDP-Lite.
    UdpLite(u8),
    /// DCCP.
    Dccp,
    /// Echo request or reply.
    Echo {
        /// Reply.
        reply: bool,
        /// Identifier and sequence number.
        id: (u16, u16),
    },
    /// Another protocol.
    Other(u8),
    /// An ICMP error about a packet of the other host.
    Error(Box<ErrorPlan>),
}

/// An ICMP error.
#[derive(Clone, Debug, Arbitrary)]
pub struct ErrorPlan {
    /// Chooses type and code.
    pub kind: u8,
    /// MTU or pointer.
    pub value: u16,
    /// The packet in error; its family and hosts follow from the error.
    pub inner: Plan,
    /// How much of it is quoted.
    pub cut: u16,
    /// With an extension structure.
    pub extended: bool,
}

/// How a packet is offloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Arbitrary)]
pub enum Offloading {
    /// Not at all.
    None,
    /// Checksum verified.
    Verified,
    /// Checksum partial.
    Partial,
    /// A super-packet of segments of about so many octets.
    Super(u16),
}

/// Protocols that mean the same in both families and have no checksum here.
const OTHERS: [u8; 6] = [4, 41, 47, 50, 132, 252];

impl Plan {
    /// Draws a plan.
    pub fn draw(data: &[u8]) -> Option<Plan> {
        Plan::arbitrary(&mut Unstructured::new(data)).ok()
    }

    /// The packet and its offload state.
    pub fn build(&self) -> (Vec<u8>, Offload) {
        let partial = matches!(self.offloading(), Offloading::Partial | Offloading::Super(_));
        let fill = if partial { Fill::Partial } else { Fill::Complete };
        let spec = self.spec(false, self.v4);
        let built =
            spec.build_with(fill, Default::default()).expect("plans make sound descriptions");
        let mut offload = Offload::default();
        match self.offloading() {
            Offloading::None => {}
            Offloading::Verified => {
                offload.checksum = fordway_xlat::ChecksumState::Verified;
            }
            Offloading::Partial | Offloading::Super(_) => {
                offload.checksum = fordway_xlat::ChecksumState::Partial {
                    start: built.transport as u16,
                    offset: built.checksum.unwrap_or(0) as u16,
                };
            }
        }
        if let Offloading::Super(size) = self.offloading() {
            let kind = match (&self.body, self.v4) {
                (Body::Udp { .. }, _) => GsoKind::Udp,
                (_, true) => GsoKind::TcpV4,
                (_, false) => GsoKind::TcpV6,
            };
            offload.gso = Gso {
                kind,
                ecn: self.id & 1 != 0,
                size: size % 1400 + 1,
                header_len: built.headers as u16,
            };
        }
        (built.bytes, offload)
    }

    /// The offloading that this body can have.
    pub fn offloading(&self) -> Offloading {
        let plain = self.slice().is_some() || self.payload == 0;
        match (&self.body, self.offload) {
            (_, Offloading::None) => Offloading::None,
            (_, Offloading::Verified) => Offloading::Verified,
            (Body::Udp { zero: false, .. } | Body::Tcp { .. }, offload) if !plain => {
                match offload {
                    // Extension headers are never in a super-packet: devices do not walk them.
                    Offloading::Super(_) if self.extras != 0 => Offloading::Partial,
                    offload => offload,
                }
            }
            _ => Offloading::None,
        }
    }

    /// Whether nothing at all stands against forwarding it (with configuration 0).
    pub fn is_ordinary(&self) -> bool {
        let sound = match self.body {
            Body::Udp { zero, .. } => {
                !(zero && self.v4 && self.slice().is_some_and(|[from, _]| from == 0))
            }
            Body::Echo { .. } => self.slice().is_none(),
            Body::Error(_) => false,
            _ => true,
        };
        sound && self.hop >= 2
    }

    /// Octets of payload.
    fn payload(&self) -> usize {
        usize::from(self.payload) % 60_000
    }

    fn slice(&self) -> Option<[usize; 2]> {
        let (from, units) = self.fragment?;
        let header = match self.body {
            Body::Tcp { mss, .. } => 20 + if mss.is_some() { 4 } else { 0 },
            Body::Dccp => 16,
            Body::Other(_) => 0,
            Body::Error(_) => return None,
            _ => 8,
        };
        let len = header + self.payload();
        // A first fragment holds the whole transport header.
        let from = usize::from(from) * 8;
        let least = if from == 0 { 3 } else { 1 };
        let to = (from + usize::from(units).max(least) * 8).min(len);
        (from < to && !(from == 0 && to == len)).then_some([from, to])
    }

    fn spec(&self, inner: bool, v4: bool) -> PacketSpec {
        let (four, six) = self.hosts;
        // What is inside an error went the other way.
        let host4 = Ipv4Addr::new(192, 0, 2, four);
        let mapped4 = Ipv4Addr::new(198, 51, 100, six);
        let host6 = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, u16::from(six));
        let mapped6 = Ipv6Addr::new(0x2001, 0xdb8, 0x64, 0, 0, 0, 0xc000, 0x200 | u16::from(four));
        let mut spec = PacketSpec { slice: self.slice(), ..PacketSpec::default() };
        if v4 {
            let (src, dst) = if inner { (mapped4, host4) } else { (host4, mapped4) };
            spec.v4 = Some(V4 {
                src,
                dst,
                ttl: self.hop,
                tos: self.class,
                id: self.id as u16,
                df: self.df && self.slice().is_none(),
                mf: false,
                reserved: false,
                offset: 0,
                // Router alert; no operation.
                options: match self.extras & 3 {
                    0 => String::new(),
                    1 => "94040000".into(),
                    n => "01".repeat(usize::from(n) * 10),
                },
                proto: None,
                version: None,
                ihl: None,
                len: None,
                checksum: None,
            });
        } else {
            let (src, dst) = if inner { (mapped6, host6) } else { (host6, mapped6) };
            spec.v6 = Some(V6 {
                src,
                dst,
                hop: self.hop,
                tc: self.class,
                flow: self.id >> 12,
                next: None,
                version: None,
                len: None,
            });
            let kinds = [ExtKind::HopOpts, ExtKind::DstOpts, ExtKind::Routing];
            for (bit, kind) in kinds.into_iter().enumerate() {
                if self.extras >> bit & 1 != 0 {
                    spec.ext.push(extension(kind, 0));
                }
            }
            if self.slice().is_some() {
                spec.ext.push(extension(ExtKind::Fragment, self.id));
            }
        }
        self.fill(&mut spec, v4);
        spec
    }

    fn fill(&self, spec: &mut PacketSpec, v4: bool) {
        spec.payload = Payload::Pattern(self.payload());
        match &self.body {
            Body::Udp { ports: (sport, dport), zero } => {
                let checksum = (*zero && v4).then_some(Sum::Value(0));
                spec.udp = Some(Udp { sport: *sport, dport: *dport, len: None, checksum });
            }
            Body::Tcp { ports: (sport, dport), numbers: (seq, ack), flags, mss } => {
                let letters = ["S", "F", "C"];
                let chosen = (0..3).filter(|bit| flags >> bit & 1 != 0).map(|bit| letters[bit]);
                spec.tcp = Some(Tcp {
                    sport: *sport,
                    dport: *dport,
                    seq: *seq,
                    ack: *ack,
                    flags: chosen.collect(),
                    mss: *mss,
                    ..Tcp::default()
                });
            }
            Body::UdpLite(coverage) => {
                let coverage = if *coverage < 8 { 0 } else { u16::from(*coverage) };
                let coverage = coverage.min(self.payload() as u16 + 8);
                spec.udplite = Some(UdpLite { coverage, ..UdpLite::default() });
            }
            Body::Dccp => spec.dccp = Some(Dccp::default()),
            Body::Echo { reply, id: (id, seq) } => {
                let kind = match (v4, reply) {
                    (true, false) => 8,
                    (true, true) => 0,
                    (false, reply) => 128 + u8::from(*reply),
                };
                spec.icmp = Some(Icmp { kind, id: *id, seq: *seq, ..Icmp::default() });
            }
            Body::Other(which) => {
                let number = OTHERS[usize::from(*which) % OTHERS.len()];
                if let Some(v4) = &mut spec.v4 {
                    v4.proto = Some(number);
                }
                if let Some(v6) = &mut spec.v6 {
                    v6.next = Some(number);
                }
            }
            Body::Error(error) => error.fill(spec, v4),
        }
    }
}

impl ErrorPlan {
    fn fill(&self, spec: &mut PacketSpec, v4: bool) {
        let kinds: &[(u8, u8)] = match v4 {
            true => &[
                (3, 0),
                (3, 1),
                (3, 2),
                (3, 3),
                (3, 4),
                (3, 13),
                (11, 0),
                (11, 1),
                (12, 0),
                (12, 2),
            ],
            false => &[(1, 0), (1, 1), (1, 3), (1, 4), (2, 0), (3, 0), (3, 1), (4, 0), (4, 1)],
        };
        let (kind, code) = kinds[usize::from(self.kind) % kinds.len()];
        let with_mtu = (v4 && (kind, code) == (3, 4)) || (!v4 && kind == 2);
        let with_pointer = kind == if v4 { 12 } else { 4 };
        spec.icmp = Some(Icmp {
            kind,
            code,
            mtu: with_mtu.then_some(u32::from(self.value)),
            pointer: with_pointer.then_some(u32::from(self.value) & 63),
            ..Icmp::default()
        });
        spec.payload = Payload::Pattern(0);
        let mut inner = self.inner.spec(true, v4);
        inner.cut = Some(usize::from(self.cut) % 1200);
        if self.extended {
            // The length field counts whole words, at least 128 octets.
            inner.cut = inner.cut.map(|cut| cut & 0x3f8);
            spec.inner_pad = inner.cut.unwrap_or(0).max(128);
            spec.extension =
                Some(Extension { class: 1, ctype: 1, data: "00065140".into(), cut: None });
        }
        spec.inner = Some(Box::new(inner));
    }
}

fn extension(kind: ExtKind, id: u32) -> Ext {
    Ext {
        kind,
        body: String::new(),
        routing_type: 0,
        segments_left: 0,
        id,
        offset: 0,
        more: false,
        len: None,
    }
}

/// A drawn packet, one octet of configuration in front: the general rules, and all that must hold of
/// sound packets.
pub fn structured(data: &[u8]) {
    let Some((config, data)) = data.split_first() else {
        return;
    };
    let Some(plan) = Plan::draw(data) else { return };
    let (packet, offload) = plan.build();
    try_packet(translator(*config), &packet, offload);
    if let Err(wrong) = properties::all(&plan) {
        panic!("{wrong}: {plan:?}");
    }
}
