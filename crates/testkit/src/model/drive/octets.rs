//! Tuples to octets and back.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::super::packet::{Datagram, Quoted4, Quoted6, Transport};
use crate::packet::{Icmp, PacketSpec, Payload, Tcp, Udp, V4, V6};
use crate::view::View;

/// Flags of a TCP header as the packet builder wants them.
fn letters(flags: u8) -> String {
    "FSRPAUEC"
        .chars()
        .enumerate()
        .filter(|(bit, _)| flags >> bit & 1 != 0)
        .map(|(_, l)| l)
        .collect()
}

fn v4(src: Ipv4Addr, dst: Ipv4Addr) -> V4 {
    V4 {
        src,
        dst,
        ttl: 64,
        tos: 0,
        id: 0,
        df: false,
        mf: false,
        reserved: false,
        offset: 0,
        options: String::new(),
        proto: None,
        version: None,
        ihl: None,
        len: None,
        checksum: None,
    }
}

fn v6(src: Ipv6Addr, dst: Ipv6Addr) -> V6 {
    V6 { src, dst, hop: 64, tc: 0, flow: 0, next: None, version: None, len: None }
}

/// What lies behind the IP header.
fn transport<A>(packet: &Datagram<A>, request: u8, payload: usize) -> PacketSpec {
    let mut spec = PacketSpec { payload: Payload::Pattern(payload), ..PacketSpec::default() };
    let (sport, dport) = (packet.src.1, packet.dst.1);
    match packet.transport {
        Transport::Tcp => {
            let flags = letters(packet.flags);
            spec.tcp = Some(Tcp { sport, dport, flags, ..Tcp::default() });
        }
        Transport::Udp => spec.udp = Some(Udp { sport, dport, ..Udp::default() }),
        Transport::Icmp => {
            let kind = match (packet.flags, request) {
                (0, kind) => kind,
                (_, 8) => 0,
                _ => 129,
            };
            spec.icmp = Some(Icmp { kind, id: sport, seq: 5, ..Icmp::default() });
        }
    }
    spec
}

/// An IPv4 packet.
pub(super) fn spec4(packet: &Datagram<Ipv4Addr>, payload: usize) -> PacketSpec {
    PacketSpec { v4: Some(v4(packet.src.0, packet.dst.0)), ..transport(packet, 8, payload) }
}

/// An IPv6 packet.
pub(super) fn spec6(packet: &Datagram<Ipv6Addr>, payload: usize) -> PacketSpec {
    PacketSpec { v6: Some(v6(packet.src.0, packet.dst.0)), ..transport(packet, 128, payload) }
}

/// An ICMPv4 error: port unreachable. `cut`: octets of the packet inside.
pub(super) fn error4(error: &Quoted4, cut: Option<usize>) -> PacketSpec {
    PacketSpec {
        v4: Some(v4(error.router, error.to)),
        icmp: Some(Icmp { kind: 3, code: 3, ..Icmp::default() }),
        inner: Some(Box::new(PacketSpec { cut, ..spec4(&error.inner, 20) })),
        ..PacketSpec::default()
    }
}

/// An ICMPv6 error: port unreachable.
pub(super) fn error6(error: &Quoted6, cut: Option<usize>) -> PacketSpec {
    PacketSpec {
        v6: Some(v6(error.router, error.to)),
        icmp: Some(Icmp { kind: 1, code: 4, ..Icmp::default() }),
        inner: Some(Box::new(PacketSpec { cut, ..spec6(&error.inner, 20) })),
        ..PacketSpec::default()
    }
}

/// What a packet says.
pub(super) enum Read {
    V4(Datagram<Ipv4Addr>),
    V6(Datagram<Ipv6Addr>),
    Error4(Quoted4),
    Error6(Quoted6),
}

/// Reads what a gateway has sent.
pub(super) fn read(bytes: &[u8]) -> Option<Read> {
    let view = View::of(bytes)?;
    if view.is_icmp_error() {
        let inner = view.inner()?;
        return Some(if view.v4 {
            let inner = datagram(&inner, addr4)?;
            Read::Error4(Quoted4 { router: addr4(view.src)?, to: addr4(view.dst)?, inner })
        } else {
            let inner = datagram(&inner, addr6)?;
            Read::Error6(Quoted6 { router: addr6(view.src)?, to: addr6(view.dst)?, inner })
        });
    }
    Some(if view.v4 {
        Read::V4(datagram(&view, addr4)?)
    } else {
        Read::V6(datagram(&view, addr6)?)
    })
}

fn addr4(octets: &[u8]) -> Option<Ipv4Addr> {
    Some(Ipv4Addr::from(<[u8; 4]>::try_from(octets).ok()?))
}

fn addr6(octets: &[u8]) -> Option<Ipv6Addr> {
    Some(Ipv6Addr::from(<[u8; 16]>::try_from(octets).ok()?))
}

fn datagram<A>(view: &View<'_>, addr: fn(&[u8]) -> Option<A>) -> Option<Datagram<A>> {
    let bytes = view.payload();
    let word = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    let (transport, ports, flags) = match view.protocol {
        // Of a packet inside an ICMP error, eight octets may be all there is.
        6 => (Transport::Tcp, (word(0)?, word(2)?), bytes.get(13).copied().unwrap_or(0)),
        17 => (Transport::Udp, (word(0)?, word(2)?), 0),
        _ if view.is_icmp() => {
            let reply = matches!(bytes.first()?, 0 | 129);
            (Transport::Icmp, (word(4)?, word(4)?), u8::from(reply))
        }
        _ => return None,
    };
    let (src, dst) = ((addr(view.src)?, ports.0), (addr(view.dst)?, ports.1));
    Some(Datagram { transport, src, dst, flags, mark: 0 })
}

/// Whether all of a packet but addresses and ports came through: hop limit, checksum, what lies behind the
/// ports.
pub(super) fn came_through(input: &[u8], output: &[u8]) -> Result<(), String> {
    let (Some(before), Some(after)) = (View::of(input), View::of(output)) else {
        return Err("no packet came out".into());
    };
    if after.length != output.len() || !after.header_checksum_is_right() {
        return Err("length or header checksum".into());
    }
    if after.deviation() != Some(0) {
        return Err("transport checksum".into());
    }
    if after.hop != before.hop - 1 {
        return Err(format!("hop limit {} after {}", after.hop, before.hop));
    }
    if before.is_icmp_error() {
        return Ok(());
    }
    // Between ports and checksum, and behind the checksum.
    let rest: [(usize, usize); 2] = match before.protocol {
        6 => [(4, 16), (18, usize::MAX)],
        17 => [(4, 6), (8, usize::MAX)],
        _ => [(6, 6), (6, usize::MAX)],
    };
    for range in rest {
        let part = |view: &View<'_>| {
            let bytes = view.payload();
            bytes[range.0.min(bytes.len())..range.1.min(bytes.len())].to_vec()
        };
        if part(&before) != part(&after) {
            return Err(format!("octets {range:?} behind the IP header"));
        }
    }
    Ok(())
}
