//! UDP datagrams without a checksum that were dropped (RFC 7915 section 4.5).

use std::net::{Ipv4Addr, SocketAddrV4};

use fordway_xlat::{DropReason, IcmpError, Verdict};

/// Octets of an ICMP header in front of what an error quotes.
const ICMP_LEN: usize = 8;

/// Source and destination of a datagram that was dropped because it has no checksum: of the packet itself, or of the one
/// that the answer to its sender quotes.
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
    let packet = if quoted { packet.get(header_len(packet)? + ICMP_LEN..)? } else { packet };
    let at = header_len(packet)?;
    let address = |from: usize| -> Option<Ipv4Addr> {
        Some(Ipv4Addr::from(<[u8; 4]>::try_from(packet.get(from..from + 4)?).ok()?))
    };
    let port = |from: usize| -> Option<u16> {
        Some(u16::from_be_bytes(packet.get(from..from + 2)?.try_into().ok()?))
    };
    let src = SocketAddrV4::new(address(12)?, port(at)?);
    Some((src, SocketAddrV4::new(address(16)?, port(at + 2)?)))
}

fn header_len(packet: &[u8]) -> Option<usize> {
    let first = *packet.first()?;
    (first >> 4 == 4).then_some(usize::from(first & 0xf) * 4)
}
