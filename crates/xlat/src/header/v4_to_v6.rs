//! The IPv6 header of an IPv4 packet (RFC 7915 section 4.1).

use core::net::Ipv6Addr;

use fordway_wire::ipv4::Ipv4Header;
use fordway_wire::ipv6::{self, FragmentHeader, Ipv6Header};
use fordway_wire::protocol;

use crate::config::Config;
use crate::mapper::Outgoing;
use crate::verdict::DropReason;

/// Octets of the longest header made: IPv6 with a Fragment Header.
pub(crate) const HEADER_MAX: usize = ipv6::HEADER_LEN + ipv6::FRAGMENT_HEADER_LEN;

/// The IPv6 header of an IPv4 packet, with the same hop limit (RFC 7915 section 4.1).
#[inline]
pub(crate) fn new_header(
    config: &Config,
    header: &Ipv4Header,
    next_header: u8,
    outgoing: &Outgoing<Ipv6Addr>,
) -> Ipv6Header {
    Ipv6Header {
        traffic_class: config.traffic_class.of(header.tos),
        payload_len: header.payload_len() as u16,
        hop_limit: header.ttl,
        ..Ipv6Header::new(next_header, outgoing.src.addr, outgoing.dst.addr)
    }
}

/// The Next Header of the translated packet.
///
/// A number that means something else in IPv6 (an extension header, ICMPv6) is refused: copied, it
/// would let an IPv4 host write IPv6 headers. IGMP is dropped by RFC 7915 section 4.2.
pub(crate) fn check_protocol(protocol: u8) -> Result<u8, DropReason> {
    match protocol {
        protocol::ICMP => Ok(protocol::ICMPV6),
        protocol::IGMP => Err(DropReason::Protocol),
        protocol::HOPOPT
        | protocol::IPV6_ROUTE
        | protocol::IPV6_FRAG
        | protocol::IPV6_OPTS
        | protocol::ICMPV6 => Err(DropReason::Protocol),
        other => Ok(other),
    }
}

/// The octets of `fields`, and of a Fragment Header behind it with the fragment fields of the IPv4 header
/// if that is a fragment or will be `split`; how many are used comes second.
pub(crate) fn with_fragment_header(
    mut fields: Ipv6Header,
    header: &Ipv4Header,
    split: bool,
) -> ([u8; HEADER_MAX], usize) {
    let mut out = [0u8; HEADER_MAX];
    if !header.is_fragment() && !split {
        out[..ipv6::HEADER_LEN].copy_from_slice(&fields.to_bytes());
        return (out, ipv6::HEADER_LEN);
    }
    let fragment = FragmentHeader {
        next_header: fields.next_header,
        offset: header.fragment_offset,
        more: header.more_fragments,
        identification: u32::from(header.identification),
    };
    fields.next_header = protocol::IPV6_FRAG;
    fields.payload_len = fields.payload_len.saturating_add(ipv6::FRAGMENT_HEADER_LEN as u16);
    out[..ipv6::HEADER_LEN].copy_from_slice(&fields.to_bytes());
    out[ipv6::HEADER_LEN..].copy_from_slice(&fragment.to_bytes());
    (out, HEADER_MAX)
}
