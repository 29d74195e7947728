//! Packets built from scratch, so that what comes out can be compared octet for octet.

use alloc::vec;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};

use fordway_wire::checksum::{Sum, pseudo_v4, pseudo_v6};
use fordway_wire::ipv4::Ipv4Header;
use fordway_wire::ipv6::Ipv6Header;
use fordway_wire::protocol;

/// What is transported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Tcp,
    Udp,
    /// Without checksum.
    UdpZero,
    Echo,
    EchoReply,
}

impl Kind {
    pub(super) const ALL: [Kind; 5] =
        [Kind::Tcp, Kind::Udp, Kind::UdpZero, Kind::Echo, Kind::EchoReply];

    pub(super) fn is_icmp(self) -> bool {
        matches!(self, Kind::Echo | Kind::EchoReply)
    }

    pub(super) fn protocol(self) -> u8 {
        match self {
            Kind::Tcp => protocol::TCP,
            Kind::Udp | Kind::UdpZero => protocol::UDP,
            Kind::Echo | Kind::EchoReply => protocol::ICMP,
        }
    }

    fn next_header(self) -> u8 {
        if self.is_icmp() { protocol::ICMPV6 } else { self.protocol() }
    }

    /// Where the checksum lies in the transport header.
    pub(super) fn checksum_at(self) -> usize {
        match self {
            Kind::Tcp => 16,
            Kind::Udp | Kind::UdpZero => 6,
            Kind::Echo | Kind::EchoReply => 2,
        }
    }

    /// Octets of the transport header.
    pub(super) fn header_len(self) -> usize {
        if self == Kind::Tcp { 20 } else { 8 }
    }
}

/// What a transport checksum field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    Complete,
    /// The sum of the pseudo-header alone.
    Partial,
}

/// A packet of either family, to be built. Of an ICMP query, the first port is the identifier.
#[derive(Clone, Debug)]
pub(super) struct Spec<'a, A> {
    pub(super) ends: (A, A),
    pub(super) ports: (u16, u16),
    pub(super) kind: Kind,
    pub(super) payload: &'a [u8],
    pub(super) check: Check,
    pub(super) ttl: u8,
    /// IPv4 only.
    pub(super) identification: u16,
    pub(super) df: bool,
}

impl<'a, A> Spec<'a, A> {
    pub(super) fn new(kind: Kind, ends: (A, A), ports: (u16, u16), payload: &'a [u8]) -> Self {
        let check = Check::Complete;
        Spec { ends, ports, kind, payload, check, ttl: 64, identification: 0, df: false }
    }
}

impl Spec<'_, Ipv4Addr> {
    pub(super) fn v4(&self) -> Vec<u8> {
        let types = (8, 0);
        let mut segment = segment(self.kind, self.ports, self.payload, types);
        let len = segment.len() as u32;
        let pseudo = match self.kind.is_icmp() {
            true => Sum::ZERO,
            false => pseudo_v4(self.ends.0, self.ends.1, self.kind.protocol(), len),
        };
        put_checksum(&mut segment, self.kind, self.check, pseudo);
        let header = Ipv4Header {
            header_len: 20,
            tos: 0,
            total_len: 20 + segment.len() as u16,
            identification: self.identification,
            dont_fragment: self.df,
            more_fragments: false,
            fragment_offset: 0,
            ttl: self.ttl,
            protocol: self.kind.protocol(),
            src: self.ends.0,
            dst: self.ends.1,
        };
        [&header.to_bytes()[..], &segment].concat()
    }
}

impl Spec<'_, Ipv6Addr> {
    pub(super) fn v6(&self) -> Vec<u8> {
        let types = (128, 129);
        let mut segment = segment(self.kind, self.ports, self.payload, types);
        let len = segment.len() as u32;
        let pseudo = pseudo_v6(self.ends.0, self.ends.1, self.kind.next_header(), len);
        put_checksum(&mut segment, self.kind, self.check, pseudo);
        let header = Ipv6Header {
            traffic_class: 0,
            flow_label: 0,
            payload_len: segment.len() as u16,
            next_header: self.kind.next_header(),
            hop_limit: self.ttl,
            src: self.ends.0,
            dst: self.ends.1,
        };
        [&header.to_bytes()[..], &segment].concat()
    }
}

fn segment(kind: Kind, ports: (u16, u16), payload: &[u8], types: (u8, u8)) -> Vec<u8> {
    let mut octets = vec![0; kind.header_len()];
    octets[0..2].copy_from_slice(&ports.0.to_be_bytes());
    octets[2..4].copy_from_slice(&ports.1.to_be_bytes());
    match kind {
        Kind::Tcp => octets[4..16].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8, 0x50, 0x18, 9, 9]),
        Kind::Udp | Kind::UdpZero => {
            octets[4..6].copy_from_slice(&(8 + payload.len() as u16).to_be_bytes());
        }
        Kind::Echo | Kind::EchoReply => {
            let number = if kind == Kind::Echo { types.0 } else { types.1 };
            octets[0..4].copy_from_slice(&[number, 0, 0, 0]);
            octets[4..6].copy_from_slice(&ports.0.to_be_bytes());
            octets[6..8].copy_from_slice(&[0, 7]);
        }
    }
    octets.extend(payload);
    octets
}

fn put_checksum(segment: &mut [u8], kind: Kind, check: Check, pseudo: Sum) {
    let checksum = match (kind, check) {
        (Kind::UdpZero, _) => return,
        (_, Check::Partial) => pseudo.fold(),
        (Kind::Udp, Check::Complete) => match pseudo.add_bytes(segment).finish() {
            0 => 0xffff,
            checksum => checksum,
        },
        _ => pseudo.add_bytes(segment).finish(),
    };
    let at = kind.checksum_at();
    segment[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// Whether the transport checksum of a whole packet is right; a UDP checksum of zero is none.
pub(super) fn verifies(packet: &[u8]) -> bool {
    let (at, number, pseudo) = match packet[0] >> 4 {
        4 => {
            let header = Ipv4Header::parse(packet).unwrap();
            let len = header.payload_len() as u32;
            let pseudo = match header.protocol {
                protocol::ICMP => Sum::ZERO,
                number => pseudo_v4(header.src, header.dst, number, len),
            };
            (20, header.protocol, pseudo)
        }
        _ => {
            let header = Ipv6Header::parse(packet).unwrap();
            let len = u32::from(header.payload_len);
            (40, header.next_header, pseudo_v6(header.src, header.dst, header.next_header, len))
        }
    };
    let segment = &packet[at..];
    number == protocol::UDP && segment[6..8] == [0, 0] || pseudo.add_bytes(segment).fold() == 0xffff
}

/// An ICMPv4 error that quotes these octets.
pub(super) fn error_v4(kind: (u8, u8), ends: (Ipv4Addr, Ipv4Addr), quoted: &[u8]) -> Vec<u8> {
    let mut message = [&[kind.0, kind.1, 0, 0, 0, 0, 0, 0], quoted].concat();
    let checksum = Sum::ZERO.add_bytes(&message).finish();
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    let header = Ipv4Header {
        header_len: 20,
        tos: 0,
        total_len: 20 + message.len() as u16,
        identification: 0,
        dont_fragment: false,
        more_fragments: false,
        fragment_offset: 0,
        ttl: 64,
        protocol: protocol::ICMP,
        src: ends.0,
        dst: ends.1,
    };
    [&header.to_bytes()[..], &message].concat()
}

/// An ICMPv6 error that quotes these octets.
pub(super) fn error_v6(kind: (u8, u8), ends: (Ipv6Addr, Ipv6Addr), quoted: &[u8]) -> Vec<u8> {
    let mut message = [&[kind.0, kind.1, 0, 0, 0, 0, 0, 0], quoted].concat();
    let pseudo = pseudo_v6(ends.0, ends.1, protocol::ICMPV6, message.len() as u32);
    let checksum = pseudo.add_bytes(&message).finish();
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    let header = Ipv6Header {
        traffic_class: 0,
        flow_label: 0,
        payload_len: message.len() as u16,
        next_header: protocol::ICMPV6,
        hop_limit: 64,
        src: ends.0,
        dst: ends.1,
    };
    [&header.to_bytes()[..], &message].concat()
}
