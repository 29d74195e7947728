//! The IPv6 header and its extension headers (RFC 8200).
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |Version| Traffic Class |           Flow Label                  |
//! |         Payload Length        |  Next Header  |   Hop Limit   |
//! |                     Source Address (16 octets)                |
//! |                  Destination Address (16 octets)              |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```

use core::net::Ipv6Addr;

use crate::{get_u16, get_u32, protocol};

/// Octets of the fixed header.
pub const HEADER_LEN: usize = 40;

/// Offset of Payload Length (2 octets).
pub const PAYLOAD_LEN_AT: usize = 4;

/// Offset of Next Header (1 octet).
pub const NEXT_HEADER_AT: usize = 6;

/// Octets of a Fragment Header.
pub const FRAGMENT_HEADER_LEN: usize = 8;

/// The fields of an IPv6 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Header {
    /// Traffic Class octet (DSCP and ECN).
    pub traffic_class: u8,
    /// Flow Label, 20 bits.
    pub flow_label: u32,
    /// Octets behind the fixed header, extension headers included.
    pub payload_len: u16,
    /// Next Header of the fixed header.
    pub next_header: u8,
    /// Hop Limit.
    pub hop_limit: u8,
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
}

/// A Fragment Header (RFC 8200 section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentHeader {
    /// Next Header: the first header of the fragmentable part.
    pub next_header: u8,
    /// Offset of the payload in the original packet, in octets (a multiple of 8).
    pub offset: usize,
    /// More fragments follow.
    pub more: bool,
    /// Identification.
    pub identification: u32,
}

/// Why octets are no IPv6 header, or its extension headers can't be walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ipv6Error {
    /// Shorter than the headers.
    Truncated,
    /// Not version 6.
    Version,
    /// A Fragment Header is followed by another extension header.
    ExtensionBehindFragment,
}

impl Ipv6Header {
    /// The header of a packet that is not yet filled in: no payload, hop limit 64.
    #[inline]
    pub const fn new(next_header: u8, src: Ipv6Addr, dst: Ipv6Addr) -> Ipv6Header {
        let (traffic_class, flow_label, payload_len) = (0, 0, 0);
        Ipv6Header { traffic_class, flow_label, payload_len, next_header, hop_limit: 64, src, dst }
    }

    /// Reads the header at the start of `bytes`.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Ipv6Header, Ipv6Error> {
        let fixed: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(Ipv6Error::Truncated)?;
        let first = get_u32(fixed, 0);
        if first >> 28 != 6 {
            return Err(Ipv6Error::Version);
        }
        Ok(Ipv6Header {
            traffic_class: (first >> 20) as u8,
            flow_label: first & 0x000f_ffff,
            payload_len: get_u16(fixed, 4),
            next_header: fixed[6],
            hop_limit: fixed[7],
            src: address(fixed, 8),
            dst: address(fixed, 24),
        })
    }

    /// The header as 40 octets.
    #[inline]
    pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let mut out = [0u8; HEADER_LEN];
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | (self.flow_label & 0x000f_ffff);
        out[0..4].copy_from_slice(&first.to_be_bytes());
        out[4..6].copy_from_slice(&self.payload_len.to_be_bytes());
        out[6] = self.next_header;
        out[7] = self.hop_limit;
        out[8..24].copy_from_slice(&self.src.octets());
        out[24..40].copy_from_slice(&self.dst.octets());
        out
    }
}

impl FragmentHeader {
    /// Reads the Fragment Header at the start of `bytes`.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<FragmentHeader, Ipv6Error> {
        let fixed: &[u8; FRAGMENT_HEADER_LEN] = bytes.first_chunk().ok_or(Ipv6Error::Truncated)?;
        let offset = get_u16(fixed, 2);
        Ok(FragmentHeader {
            next_header: fixed[0],
            offset: usize::from(offset & !7),
            more: offset & 1 != 0,
            identification: get_u32(fixed, 4),
        })
    }

    /// The header as 8 octets.
    #[inline]
    pub fn to_bytes(&self) -> [u8; FRAGMENT_HEADER_LEN] {
        let mut out = [0u8; FRAGMENT_HEADER_LEN];
        out[0] = self.next_header;
        let offset = (self.offset as u16 & !7) | u16::from(self.more);
        out[2..4].copy_from_slice(&offset.to_be_bytes());
        out[4..8].copy_from_slice(&self.identification.to_be_bytes());
        out
    }
}

/// Where the extension headers of a packet end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extensions {
    /// Octets from the start of the packet to the transport header.
    pub header_len: usize,
    /// Protocol number of the first header that is not Hop-by-Hop Options, Routing, Destination Options or Fragment.
    pub protocol: u8,
    /// The Fragment Header, if there is one.
    pub fragment: Option<FragmentHeader>,
    /// Offset of the Segments Left field of the first Routing header that has segments left.
    pub segments_left_at: Option<usize>,
}

impl Extensions {
    /// Octets of extension headers without the Fragment Header.
    pub fn skipped(&self) -> usize {
        let fragment = if self.fragment.is_some() { FRAGMENT_HEADER_LEN } else { 0 };
        self.header_len - HEADER_LEN - fragment
    }
}

/// Walks the extension headers of the packet in `bytes`, which starts with an IPv6 header whose Next Header is
/// `next_header`.
///
/// Hop-by-Hop Options, Routing and Destination Options are stepped over, a Fragment Header is read; anything else ends
/// the walk (RFC 7915 section 5.1, "Protocol"). A Fragment Header followed by an extension header other than ESP is an
/// error (RFC 7915 section 5.1.1).
#[inline]
pub fn walk(bytes: &[u8], next_header: u8) -> Result<Extensions, Ipv6Error> {
    let mut found = Extensions {
        header_len: HEADER_LEN,
        protocol: next_header,
        fragment: None,
        segments_left_at: None,
    };
    loop {
        let rest = bytes.get(found.header_len..).ok_or(Ipv6Error::Truncated)?;
        match found.protocol {
            protocol::HOPOPT | protocol::IPV6_ROUTE | protocol::IPV6_OPTS => {
                let &[next, len, ..] = rest else {
                    return Err(Ipv6Error::Truncated);
                };
                let octets = (usize::from(len) + 1) * 8;
                if rest.len() < octets {
                    return Err(Ipv6Error::Truncated);
                }
                // Routing header: Next Header, length, type, Segments Left.
                if found.protocol == protocol::IPV6_ROUTE
                    && rest[3] != 0
                    && found.segments_left_at.is_none()
                {
                    found.segments_left_at = Some(found.header_len + 3);
                }
                found.protocol = next;
                found.header_len += octets;
            }
            protocol::IPV6_FRAG => {
                let fragment = FragmentHeader::parse(rest)?;
                if is_extension(fragment.next_header) {
                    return Err(Ipv6Error::ExtensionBehindFragment);
                }
                found.fragment = Some(fragment);
                found.protocol = fragment.next_header;
                found.header_len += FRAGMENT_HEADER_LEN;
                return Ok(found);
            }
            _ => return Ok(found),
        }
    }
}

/// The protocol of the transport header behind all extension headers of the packet in `bytes`, also behind those that
/// [`walk`] does not step over: AH, Mobility, HIP, Shim6, and whatever follows a Fragment Header. `None`: a header is
/// cut off or unknown, or the packet is a fragment other than the first.
pub fn transport_behind(bytes: &[u8], next_header: u8) -> Option<u8> {
    let (mut protocol, mut at) = (next_header, HEADER_LEN);
    while is_extension(protocol) {
        let rest = bytes.get(at..)?;
        let &[next, len, ..] = rest else { return None };
        at += match protocol {
            protocol::IPV6_FRAG if FragmentHeader::parse(rest).ok()?.offset != 0 => return None,
            protocol::IPV6_FRAG => FRAGMENT_HEADER_LEN,
            // RFC 4302 section 2.2: in units of 4 octets.
            protocol::AH => (usize::from(len) + 2) * 4,
            253 | 254 => return None,
            _ => (usize::from(len) + 1) * 8,
        };
        protocol = next;
    }
    (at <= bytes.len()).then_some(protocol)
}

/// Whether a Next Header value is an extension header other than ESP (IANA "IPv6 Extension Header Types"; RFC 7915
/// section 5.1.1 counts AH among them).
#[inline]
pub fn is_extension(next_header: u8) -> bool {
    matches!(
        next_header,
        protocol::HOPOPT
            | protocol::IPV6_ROUTE
            | protocol::IPV6_FRAG
            | protocol::AH
            | protocol::IPV6_OPTS
            | protocol::MOBILITY
            | protocol::HIP
            | protocol::SHIM6
            | 253
            | 254
    )
}

#[inline]
fn address(fixed: &[u8; HEADER_LEN], at: usize) -> Ipv6Addr {
    let mut octets = [0u8; 16];
    octets.copy_from_slice(&fixed[at..at + 16]);
    Ipv6Addr::from(octets)
}

#[cfg(test)]
mod tests;
