//! The Internet checksum, written down as plainly as RFC 1071 says it.
//!
//! On purpose it shares nothing with `fordway-wire`: what the core computes incrementally is compared
//! with a sum over everything.

use std::net::{Ipv4Addr, Ipv6Addr};

/// The one's complement sum of `bytes` as big-endian 16-bit words, an odd last octet padded with zero.
///
/// The sum is folded to 16 bits and not complemented. Source: RFC 1071 section 1.
pub fn sum(bytes: &[u8]) -> u16 {
    let (pairs, odd) = bytes.as_chunks::<2>();
    let mut total: u64 = odd.iter().map(|&high| u64::from(high) << 8).sum();
    for pair in pairs {
        total += u64::from(u16::from_be_bytes(*pair));
    }
    while total > 0xffff {
        total = (total >> 16) + (total & 0xffff);
    }
    total as u16
}

/// One's complement addition of two folded sums.
pub fn add(a: u16, b: u16) -> u16 {
    let total = u32::from(a) + u32::from(b);
    ((total >> 16) + (total & 0xffff)) as u16
}

/// The checksum of `bytes` whose checksum field holds zero, or 0 when `bytes` contains a correct one.
pub fn checksum(bytes: &[u8]) -> u16 {
    !sum(bytes)
}

/// Source and destination of a pseudo-header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoints {
    /// RFC 9293 section 3.1 and RFC 768: addresses, zero, protocol, 16-bit length.
    V4(Ipv4Addr, Ipv4Addr),
    /// RFC 8200 section 8.1: addresses, 32-bit length, zeros, next header.
    V6(Ipv6Addr, Ipv6Addr),
}

impl Endpoints {
    /// The folded sum of the pseudo-header. `len`: octets of the upper-layer header and data.
    pub fn pseudo_header(&self, protocol: u8, len: usize) -> u16 {
        let mut bytes = Vec::with_capacity(40);
        match self {
            Endpoints::V4(src, dst) => {
                bytes.extend(src.octets());
                bytes.extend(dst.octets());
                bytes.extend([0, protocol]);
                bytes.extend((len as u16).to_be_bytes());
            }
            Endpoints::V6(src, dst) => {
                bytes.extend(src.octets());
                bytes.extend(dst.octets());
                bytes.extend((len as u32).to_be_bytes());
                bytes.extend([0, 0, 0, protocol]);
            }
        }
        sum(&bytes)
    }
}
