//! The IPv4 header (RFC 791 section 3.1).
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |Version|  IHL  |Type of Service|          Total Length         |
//! |         Identification        |Flags|      Fragment Offset    |
//! |  Time to Live |    Protocol   |         Header Checksum       |
//! |                       Source Address                          |
//! |                    Destination Address                        |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```

use core::net::Ipv4Addr;

use crate::checksum::Sum;
use crate::{get_u16, get_u32, put_u16};

/// Octets of a header without options.
pub const HEADER_LEN: usize = 20;

/// Longest IPv4 packet in octets: Total Length has 16 bits.
pub const MAX_LEN: usize = 65_535;

/// Offset of Total Length (2 octets).
pub const TOTAL_LEN_AT: usize = 2;

/// Offset of Identification (2 octets).
pub const IDENTIFICATION_AT: usize = 4;

/// Offset of the flags and Fragment Offset (2 octets).
pub const FRAGMENT_AT: usize = 6;

/// Offset of Protocol (1 octet).
pub const PROTOCOL_AT: usize = 9;

/// Offset of the header checksum (2 octets).
pub const CHECKSUM_AT: usize = 10;

/// Don't Fragment, in the octets at [`FRAGMENT_AT`].
pub const DF: u16 = 0x4000;
const MF: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;

/// The fields of an IPv4 header, options apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Header {
    /// Octets of the header with its options: 20 to 60, a multiple of 4.
    pub header_len: usize,
    /// Type of Service octet (DSCP and ECN).
    pub tos: u8,
    /// Octets of the packet with its header.
    pub total_len: u16,
    /// Identification.
    pub identification: u16,
    /// Don't Fragment.
    pub dont_fragment: bool,
    /// More Fragments.
    pub more_fragments: bool,
    /// Offset of the payload in the original packet, in octets (a multiple of 8).
    pub fragment_offset: usize,
    /// Time to Live.
    pub ttl: u8,
    /// Protocol number.
    pub protocol: u8,
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
}

/// Why octets are no IPv4 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ipv4Error {
    /// Shorter than the header.
    Truncated,
    /// Not version 4.
    Version,
    /// IHL below 5, or Total Length below the header length.
    Length,
}

impl Ipv4Header {
    /// The header of a packet that is not yet filled in: 20 octets, no payload, TTL 64, no fragment.
    #[inline]
    pub const fn new(protocol: u8, src: Ipv4Addr, dst: Ipv4Addr) -> Ipv4Header {
        Ipv4Header {
            header_len: HEADER_LEN,
            tos: 0,
            total_len: HEADER_LEN as u16,
            identification: 0,
            dont_fragment: false,
            more_fragments: false,
            fragment_offset: 0,
            ttl: 64,
            protocol,
            src,
            dst,
        }
    }

    /// Reads the header at the start of `bytes`. `bytes` may end before Total Length does (the
    /// packet inside an ICMP error); the header with its options must be there whole.
    ///
    /// The checksum is not looked at; see [`header_checksum_is_valid`].
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Ipv4Header, Ipv4Error> {
        let fixed: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(Ipv4Error::Truncated)?;
        if fixed[0] >> 4 != 4 {
            return Err(Ipv4Error::Version);
        }
        let header_len = usize::from(fixed[0] & 0x0f) * 4;
        let total_len = get_u16(fixed, 2);
        if header_len < HEADER_LEN || usize::from(total_len) < header_len {
            return Err(Ipv4Error::Length);
        }
        if bytes.len() < header_len {
            return Err(Ipv4Error::Truncated);
        }
        let flags = get_u16(fixed, 6);
        Ok(Ipv4Header {
            header_len,
            tos: fixed[1],
            total_len,
            identification: get_u16(fixed, 4),
            dont_fragment: flags & DF != 0,
            more_fragments: flags & MF != 0,
            fragment_offset: usize::from(flags & OFFSET) * 8,
            ttl: fixed[8],
            protocol: fixed[9],
            src: Ipv4Addr::from_bits(get_u32(fixed, 12)),
            dst: Ipv4Addr::from_bits(get_u32(fixed, 16)),
        })
    }

    /// Octets behind the header, by Total Length.
    #[inline]
    pub fn payload_len(&self) -> usize {
        usize::from(self.total_len) - self.header_len
    }

    /// Whether the packet is a fragment, first or other.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        self.more_fragments || self.fragment_offset != 0
    }

    /// The header as 20 octets without options, its checksum computed.
    #[inline]
    pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let mut out = [0u8; HEADER_LEN];
        let mut flags = (self.fragment_offset / 8) as u16 & OFFSET;
        if self.dont_fragment {
            flags |= DF;
        }
        if self.more_fragments {
            flags |= MF;
        }
        out[0] = 0x45;
        out[1] = self.tos;
        out[2..4].copy_from_slice(&self.total_len.to_be_bytes());
        out[4..6].copy_from_slice(&self.identification.to_be_bytes());
        out[6..8].copy_from_slice(&flags.to_be_bytes());
        out[8] = self.ttl;
        out[9] = self.protocol;
        out[12..16].copy_from_slice(&self.src.octets());
        out[16..20].copy_from_slice(&self.dst.octets());
        let checksum = Sum::ZERO.add_bytes(&out).finish();
        out[10..12].copy_from_slice(&checksum.to_be_bytes());
        out
    }
}

/// Whether the checksum of the header (options included) in `header` is right.
#[inline]
pub fn header_checksum_is_valid(header: &[u8]) -> bool {
    Sum::ZERO.add_bytes(header).fold() == 0xffff
}

/// Writes Total Length, and the checksum of the header (options included) in `header`.
#[inline]
pub fn set_total_len(header: &mut [u8], total_len: u16) {
    put_u16(header, TOTAL_LEN_AT, total_len);
    put_u16(header, CHECKSUM_AT, 0);
    let checksum = Sum::ZERO.add_bytes(header).finish();
    put_u16(header, CHECKSUM_AT, checksum);
}

/// Whether the options hold a source route that has not been used up: LSRR (131) or SSRR (137)
/// whose pointer is not beyond its length. Source: RFC 791 section 3.1.
///
/// `options` are the octets between the fixed header and the payload. Options that contradict
/// themselves end the search.
pub fn has_unexpired_source_route(mut options: &[u8]) -> bool {
    const END: u8 = 0;
    const NOP: u8 = 1;
    const LSRR: u8 = 131;
    const SSRR: u8 = 137;
    loop {
        match *options {
            [] | [END, ..] => return false,
            [NOP, ref rest @ ..] => options = rest,
            [kind, len, ..] if len >= 2 && usize::from(len) <= options.len() => {
                if matches!(kind, LSRR | SSRR) && len >= 3 && options[2] <= len {
                    return true;
                }
                options = &options[usize::from(len)..];
            }
            [_, ..] => return false,
        }
    }
}
