//! Fields of TCP (RFC 9293), UDP (RFC 768), UDP-Lite (RFC 3828) and DCCP (RFC 4340).

use crate::{get_u8, get_u16, protocol};

/// Octets of a TCP header without options.
pub const TCP_HEADER_LEN: usize = 20;

/// Octets of a UDP header.
pub const UDP_HEADER_LEN: usize = 8;

/// Offset of the UDP length field.
pub const UDP_LENGTH_AT: usize = 4;

/// Offset of the UDP checksum field.
pub const UDP_CHECKSUM_AT: usize = 6;

/// Offset of the TCP checksum field.
pub const TCP_CHECKSUM_AT: usize = 16;

/// Where in a transport header the checksum that covers the pseudo-header lies; `None` for protocols
/// without one (SCTP, ESP) and for protocols that are not known.
#[inline]
pub fn checksum_at(protocol: u8) -> Option<usize> {
    match protocol {
        protocol::TCP => Some(TCP_CHECKSUM_AT),
        protocol::UDP | protocol::UDP_LITE | protocol::DCCP => Some(UDP_CHECKSUM_AT),
        _ => None,
    }
}

/// Octets of the TCP header in `segment` by its data offset; `None` when it is below 20 or beyond
/// the segment.
#[inline]
pub fn tcp_header_len(segment: &[u8]) -> Option<usize> {
    let len = usize::from(get_u8(segment, 12) >> 4) * 4;
    (TCP_HEADER_LEN..=segment.len()).contains(&len).then_some(len)
}

/// Whether the TCP segment has SYN set.
#[inline]
pub fn tcp_is_syn(segment: &[u8]) -> bool {
    get_u8(segment, 13) & 0x02 != 0
}

/// Offset of the value of the MSS option (2 octets) in a TCP segment, counted from the start of its
/// header. Source: RFC 9293 section 3.2.
#[inline]
pub fn tcp_mss_at(segment: &[u8]) -> Option<usize> {
    const END: u8 = 0;
    const NOP: u8 = 1;
    const MSS: u8 = 2;
    let header = segment.get(..tcp_header_len(segment)?)?;
    let mut at = TCP_HEADER_LEN;
    while at < header.len() {
        match header[at] {
            END => return None,
            NOP => at += 1,
            kind => {
                let len = usize::from(*header.get(at + 1)?);
                if len < 2 || at + len > header.len() {
                    return None;
                }
                if kind == MSS {
                    return (len == 4).then_some(at + 2);
                }
                at += len;
            }
        }
    }
    None
}

/// The UDP length field of `datagram`.
#[inline]
pub fn udp_len(datagram: &[u8]) -> usize {
    usize::from(get_u16(datagram, UDP_LENGTH_AT))
}
