//! ICMPv4 (RFC 792) and ICMPv6 (RFC 4443) messages.
//!
//! Both begin alike:
//!
//! ```text
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |     Type      |     Code      |          Checksum             |
//! |                  rest of header (4 octets)                    |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```
//!
//! In the rest of header of an error lie the length of the original datagram (RFC 4884), the MTU,
//! or the pointer.

use crate::{get_u8, get_u16, get_u32};

/// Octets of an ICMP header.
pub const HEADER_LEN: usize = 8;

/// Offset of the checksum field.
pub const CHECKSUM_AT: usize = 2;

/// ICMPv4 types (IANA "ICMP Parameters").
pub mod v4 {
    /// Echo Reply.
    pub const ECHO_REPLY: u8 = 0;
    /// Destination Unreachable.
    pub const UNREACHABLE: u8 = 3;
    /// Source Quench.
    pub const SOURCE_QUENCH: u8 = 4;
    /// Redirect.
    pub const REDIRECT: u8 = 5;
    /// Echo.
    pub const ECHO: u8 = 8;
    /// Time Exceeded.
    pub const TIME_EXCEEDED: u8 = 11;
    /// Parameter Problem.
    pub const PARAMETER_PROBLEM: u8 = 12;

    /// Code of Destination Unreachable: host unreachable.
    pub const HOST_UNREACHABLE: u8 = 1;
    /// Code of Destination Unreachable: protocol unreachable.
    pub const PROTOCOL_UNREACHABLE: u8 = 2;
    /// Code of Destination Unreachable: port unreachable.
    pub const PORT_UNREACHABLE: u8 = 3;
    /// Code of Destination Unreachable: fragmentation needed and DF set.
    pub const FRAGMENTATION_NEEDED: u8 = 4;
    /// Code of Destination Unreachable: source route failed.
    pub const SOURCE_ROUTE_FAILED: u8 = 5;
    /// Code of Destination Unreachable: communication administratively prohibited.
    pub const ADMINISTRATIVELY_PROHIBITED: u8 = 13;

    /// Whether a type is an error message (RFC 1122 section 3.2.2).
    pub fn is_error(kind: u8) -> bool {
        matches!(kind, UNREACHABLE | SOURCE_QUENCH | REDIRECT | TIME_EXCEEDED | PARAMETER_PROBLEM)
    }
}

/// ICMPv6 types (IANA "ICMPv6 Parameters").
pub mod v6 {
    /// Destination Unreachable.
    pub const UNREACHABLE: u8 = 1;
    /// Packet Too Big.
    pub const PACKET_TOO_BIG: u8 = 2;
    /// Time Exceeded.
    pub const TIME_EXCEEDED: u8 = 3;
    /// Parameter Problem.
    pub const PARAMETER_PROBLEM: u8 = 4;
    /// Echo Request.
    pub const ECHO_REQUEST: u8 = 128;
    /// Echo Reply.
    pub const ECHO_REPLY: u8 = 129;
    /// Redirect (RFC 4861).
    pub const REDIRECT: u8 = 137;

    /// Code of Destination Unreachable: communication administratively prohibited.
    pub const ADMINISTRATIVELY_PROHIBITED: u8 = 1;
    /// Code of Destination Unreachable: address unreachable.
    pub const ADDRESS_UNREACHABLE: u8 = 3;
    /// Code of Destination Unreachable: port unreachable.
    pub const PORT_UNREACHABLE: u8 = 4;
    /// Code of Destination Unreachable: source address failed ingress/egress policy.
    pub const SOURCE_POLICY: u8 = 5;

    /// Whether a type is an error message (RFC 4443 section 2.1).
    pub fn is_error(kind: u8) -> bool {
        kind < 128
    }
}

/// The first 8 octets of an ICMP message, of either version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpHeader {
    /// Type.
    pub kind: u8,
    /// Code.
    pub code: u8,
    /// Checksum field as it stands.
    pub checksum: u16,
    /// The rest of the header, as a big-endian number.
    pub rest: u32,
}

impl IcmpHeader {
    /// Reads the header at the start of `bytes`; `None` when there are fewer than 8 octets.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<IcmpHeader> {
        (bytes.len() >= HEADER_LEN).then(|| IcmpHeader {
            kind: get_u8(bytes, 0),
            code: get_u8(bytes, 1),
            checksum: get_u16(bytes, CHECKSUM_AT),
            rest: get_u32(bytes, 4),
        })
    }

    /// The header as 8 octets.
    #[inline]
    pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let mut out = [0u8; HEADER_LEN];
        out[0] = self.kind;
        out[1] = self.code;
        out[2..4].copy_from_slice(&self.checksum.to_be_bytes());
        out[4..8].copy_from_slice(&self.rest.to_be_bytes());
        out
    }
}
