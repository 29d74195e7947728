//! Fields of UDP (RFC 768), UDP-Lite (RFC 3828) and DCCP (RFC 4340), and where transport checksums lie.

use crate::{get_u16, protocol, tcp};

/// Octets of a UDP header.
pub const UDP_HEADER_LEN: usize = 8;

/// Offset of the UDP length field.
pub const UDP_LENGTH_AT: usize = 4;

/// Offset of the UDP checksum field.
pub const UDP_CHECKSUM_AT: usize = 6;

/// Where in a transport header the checksum that covers the pseudo-header lies; `None` for protocols
/// without one (SCTP, ESP) and for protocols that are not known.
#[inline]
pub fn checksum_at(protocol: u8) -> Option<usize> {
    match protocol {
        protocol::TCP => Some(tcp::CHECKSUM_AT),
        protocol::UDP | protocol::UDP_LITE | protocol::DCCP => Some(UDP_CHECKSUM_AT),
        _ => None,
    }
}

/// The UDP length field of `datagram`.
#[inline]
pub fn udp_len(datagram: &[u8]) -> usize {
    usize::from(get_u16(datagram, UDP_LENGTH_AT))
}

/// RFC 768 and RFC 3828: a computed checksum of zero of UDP or UDP-Lite is sent as all ones.
#[inline]
pub fn never_zero(protocol: u8, checksum: u16) -> u16 {
    match (protocol, checksum) {
        (protocol::UDP | protocol::UDP_LITE, 0) => 0xffff,
        _ => checksum,
    }
}
