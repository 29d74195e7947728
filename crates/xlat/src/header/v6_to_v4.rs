//! The IPv4 header of an IPv6 packet (RFC 7915 section 5.1).

use core::net::Ipv4Addr;

use fordway_wire::ipv4::Ipv4Header;
use fordway_wire::ipv6::{FragmentHeader, Ipv6Header};
use fordway_wire::protocol;

use crate::config::Config;
use crate::mapper::Outgoing;
use crate::verdict::DropReason;

/// Longest IPv4 packet that leaves with DF clear (RFC 7915 section 5.1, "Flags").
pub(crate) const DF_CLEAR_MAX: usize = 1260;

/// The IPv4 header of an IPv6 packet, with the same hop limit and without length and identification (RFC 7915 section
/// 5.1).
#[inline]
pub(crate) fn new_header(
    config: &Config,
    header: &Ipv6Header,
    fragment: Option<FragmentHeader>,
    protocol: u8,
    outgoing: &Outgoing<Ipv4Addr>,
) -> Ipv4Header {
    Ipv4Header {
        tos: config.traffic_class.of(header.traffic_class),
        more_fragments: fragment.is_some_and(|f| f.more),
        fragment_offset: fragment.map_or(0, |f| f.offset),
        ttl: header.hop_limit,
        ..Ipv4Header::new(protocol, outgoing.src.addr, outgoing.dst.addr)
    }
}

/// The Protocol of the translated packet. ICMPv4 and IGMP have no business in IPv6: copied, they
/// would let an IPv6 host write messages that IPv4 hosts believe came over IPv4.
pub(crate) fn check_protocol(next_header: u8) -> Result<u8, DropReason> {
    match next_header {
        protocol::ICMPV6 => Ok(protocol::ICMP),
        protocol::ICMP | protocol::IGMP => Err(DropReason::Protocol),
        other => Ok(other),
    }
}
