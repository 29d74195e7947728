//! Which addresses may be translated.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::verdict::DropReason;

/// Networks that IANA's IPv4 Special-Purpose Address Registry marks as not globally reachable, or
/// deprecated: value and prefix length. Source: RFC 6890 and its registry; RFC 6052 section 3.1.
const NON_GLOBAL_V4: &[(u32, u8)] = &[
    (0x0000_0000, 8),  // 0.0.0.0/8
    (0x0a00_0000, 8),  // 10.0.0.0/8
    (0x6440_0000, 10), // 100.64.0.0/10
    (0x7f00_0000, 8),  // 127.0.0.0/8
    (0xa9fe_0000, 16), // 169.254.0.0/16
    (0xac10_0000, 12), // 172.16.0.0/12
    (0xc000_0000, 24), // 192.0.0.0/24
    (0xc000_0200, 24), // 192.0.2.0/24
    (0xc058_6300, 24), // 192.88.99.0/24
    (0xc0a8_0000, 16), // 192.168.0.0/16
    (0xc612_0000, 15), // 198.18.0.0/15
    (0xc633_6400, 24), // 198.51.100.0/24
    (0xcb00_7100, 24), // 203.0.113.0/24
    (0xe000_0000, 4),  // 224.0.0.0/4
    (0xf000_0000, 4),  // 240.0.0.0/4
];

/// 192.0.0.9/32 (PCP anycast) and 192.0.0.10/32 (TURN anycast): global within 192.0.0.0/24.
const GLOBAL_V4: &[u32] = &[0xc000_0009, 0xc000_000a];

/// Whether an IPv4 address is global, so that 64:ff9b::/96 may carry it (RFC 6052 section 3.1).
pub fn is_global_v4(addr: Ipv4Addr) -> bool {
    let bits = addr.to_bits();
    GLOBAL_V4.contains(&bits)
        || !NON_GLOBAL_V4.iter().any(|&(net, len)| (bits ^ net) >> (32 - len) == 0)
}

/// Why an IPv4 address may not be the source or destination of a translated packet, if so.
///
/// RFC 7915 section 4.1 ("illegal source address") and RFC 1812 section 5.3.7.
#[inline]
pub fn illegal_v4(addr: Ipv4Addr) -> Option<DropReason> {
    match addr.octets() {
        [255, 255, 255, 255] => Some(DropReason::Broadcast),
        [127, ..] => Some(DropReason::Loopback),
        [169, 254, ..] => Some(DropReason::LinkLocal),
        [224..=239, ..] => Some(DropReason::Multicast),
        [0 | 240..=255, ..] => Some(DropReason::Martian),
        _ => None,
    }
}

/// Why an IPv6 address may not be the source or destination of a translated packet, if so.
///
/// RFC 7915 section 5.1; RFC 4291 section 2.
#[inline]
pub fn illegal_v6(addr: Ipv6Addr) -> Option<DropReason> {
    let bits = addr.to_bits();
    match bits >> 112 {
        0xff00..=0xffff => Some(DropReason::Multicast),
        0xfe80..=0xfebf => Some(DropReason::LinkLocal),
        // ::/96 and ::ffff:0:0/96 never lie on a wire.
        0 if bits == 1 => Some(DropReason::Loopback),
        0 if matches!(bits >> 32, 0 | 0xffff) => Some(DropReason::Martian),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
