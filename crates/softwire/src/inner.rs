//! Fields of the IPv4 packet in a tunnel.

use std::net::Ipv4Addr;

use fordway_wire::ipv4::{self, Ipv4Header};
use fordway_wire::{get_u8, protocol, put_u8, put_u16};
use fordway_xlat::steps::{self, Segment, illegal_v4};
use fordway_xlat::trace::Trace;
use fordway_xlat::tuple::{Incoming, Part, Transport};
use fordway_xlat::{DropReason, Packet};

use crate::OVERHEAD;

/// Offsets in an IPv4 header.
const TOS_AT: usize = 1;
const TTL_AT: usize = 8;

/// Octets of an IPv4 and a TCP header without options: by so much the MSS is less than the MTU.
const MSS_OVERHEAD: u32 = 40;

/// Which end of the packet is a client's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Its source: it comes from the client.
    Source,
    /// Its destination: it goes to the client.
    Destination,
}

/// The packet whose header is `header`, at the start of `packet`.
pub(crate) fn incoming<'a>(packet: &'a [u8], header: &Ipv4Header) -> Incoming<'a, Ipv4Addr> {
    let ends = (header.src, header.dst);
    Incoming::new(packet, header.header_len, ends, header.protocol, part(header))
}

pub(crate) fn part(header: &Ipv4Header) -> Part {
    Part::of(header.fragment_offset, header.more_fragments)
}

/// Where its transport header lies, if the IPv4 header lies at `at`.
pub(crate) fn segment(header: &Ipv4Header, at: usize) -> Segment {
    Segment { at: at + header.header_len, protocol: header.protocol, part: part(header) }
}

/// The client's address.
pub(crate) fn address(incoming: &Incoming<'_, Ipv4Addr>, end: End) -> Ipv4Addr {
    match end {
        End::Source => incoming.src,
        End::Destination => incoming.dst,
    }
}

/// The client's port: of an ICMP query the identifier (RFC 7596 section 8.1), of an ICMP error the port of the packet
/// that it is about, which went the other way (RFC 5508 REQ-3).
pub(crate) fn port(incoming: &Incoming<'_, Ipv4Addr>, end: End) -> Result<u16, DropReason> {
    let of = |transport: Transport, end| match (transport.ports(), end) {
        ((src, _), End::Source) => src,
        ((_, dst), End::Destination) => dst,
    };
    if !incoming.is_icmp_error {
        return incoming.transport().map(|transport| of(transport, end));
    }
    let quoted = incoming.quoted()?;
    let other = match end {
        End::Source => End::Destination,
        End::Destination => End::Source,
    };
    if address(&quoted, other) != address(incoming, end) {
        return Err(DropReason::IcmpInner);
    }
    quoted.transport().map(|transport| of(transport, other))
}

/// Source and destination port for the flow label: of TCP and UDP, of which the packet is no fragment.
pub(crate) fn flow_ports(packet: &[u8], header: &Ipv4Header) -> (u16, u16) {
    match (header.protocol, part(header)) {
        (protocol::TCP | protocol::UDP, Part::Whole) => {
            let ports = packet.get(header.header_len..).unwrap_or_default();
            (fordway_wire::get_u16(ports, 0), fordway_wire::get_u16(ports, 2))
        }
        _ => (0, 0),
    }
}

/// Addresses that can't be on a wire.
pub(crate) fn check_addresses(header: &Ipv4Header) -> Result<(), DropReason> {
    match illegal_v4(header.src).or_else(|| illegal_v4(header.dst)) {
        Some(reason) => Err(reason),
        None => Ok(()),
    }
}

/// Lowers the MSS of a TCP SYN, at the start of `packet`, to what fits a tunnel whose packets have `mtu` octets.
pub(crate) fn clamp_mss(
    packet: &mut Packet<'_>,
    header: &Ipv4Header,
    mtu: u32,
    trace: &mut impl Trace,
) {
    if header.protocol == protocol::TCP && part(header) != Part::Later {
        let mss = mtu.saturating_sub(OVERHEAD as u32 + MSS_OVERHEAD);
        steps::clamp_mss(packet, header.header_len, mss.try_into().unwrap_or(u16::MAX), trace);
    }
}

/// Writes the octet of Type of Service.
pub(crate) fn set_tos(packet: &mut Packet<'_>, tos: u8) {
    put_u8(packet.bytes_mut(), TOS_AT, tos);
    correct(packet);
}

/// Decrements the TTL.
pub(crate) fn decrement_ttl(packet: &mut Packet<'_>) {
    let ttl = get_u8(packet.bytes(), TTL_AT);
    put_u8(packet.bytes_mut(), TTL_AT, ttl.saturating_sub(1));
    correct(packet);
}

/// Computes the header's checksum. The packet begins with an IPv4 header.
fn correct(packet: &mut Packet<'_>) {
    let header = usize::from(get_u8(packet.bytes(), 0) & 15) * 4;
    let bytes = packet.bytes_mut();
    put_u16(bytes, ipv4::CHECKSUM_AT, 0);
    let covered = bytes.get(..header.max(ipv4::HEADER_LEN)).unwrap_or_default();
    let checksum = fordway_wire::checksum::Sum::ZERO.add_bytes(covered).finish();
    put_u16(bytes, ipv4::CHECKSUM_AT, checksum);
}
