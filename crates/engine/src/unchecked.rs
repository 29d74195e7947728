//! UDP datagrams without a checksum that were dropped (RFC 7915 section 4.5).

use std::net::SocketAddrV4;

use fordway_wire::ipv4::Ipv4Header;
use fordway_wire::{get_u16, icmp};
use fordway_xlat::{DropReason, IcmpError, Verdict};

/// Source and destination of a datagram that was dropped because it has no checksum: of the packet itself, or of the
/// one that the answer to its sender quotes.
pub(crate) fn dropped_unchecked(
    verdict: Verdict,
    packet: &[u8],
) -> Option<(SocketAddrV4, SocketAddrV4)> {
    let (reason, quoted) = match verdict {
        Verdict::Drop(reason) => (reason, false),
        Verdict::Reply(IcmpError { reason, .. }) => (reason, true),
        _ => return None,
    };
    if !matches!(reason, DropReason::UdpChecksumZero | DropReason::UdpChecksumZeroFragment) {
        return None;
    }
    let at = |packet| Ipv4Header::parse(packet).ok().map(|header| header.header_len);
    let packet = if quoted { packet.get(at(packet)? + icmp::HEADER_LEN..)? } else { packet };
    let header = Ipv4Header::parse(packet).ok()?;
    let ports = packet.get(header.header_len..header.header_len + 4)?;
    let src = SocketAddrV4::new(header.src, get_u16(ports, 0));
    Some((src, SocketAddrV4::new(header.dst, get_u16(ports, 2))))
}
