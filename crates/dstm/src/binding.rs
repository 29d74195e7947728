//! Whose an IPv4 address is, or which ports of it.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

/// A set of ports as RFC 7597 section 5.1 has it: `i | psid | j`, of `a`, `k` and `16 - a - k` bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortSet {
    offset_bits: u8,
    psid_len: u8,
    psid: u16,
}

impl PortSet {
    /// `None`: more than 16 bits, no bits at all for the PSID, or a PSID that has more bits.
    #[must_use]
    pub fn new(offset_bits: u8, psid_len: u8, psid: u16) -> Option<PortSet> {
        let fits = psid_len > 0
            && u16::from(offset_bits) + u16::from(psid_len) <= 16
            && u32::from(psid) < 1 << psid_len;
        fits.then_some(PortSet { offset_bits, psid_len, psid })
    }

    /// Bits in front of the PSID.
    #[must_use]
    pub fn offset_bits(self) -> u8 {
        self.offset_bits
    }

    /// Bits of the PSID.
    #[must_use]
    pub fn psid_len(self) -> u8 {
        self.psid_len
    }

    /// The PSID.
    #[must_use]
    pub fn psid(self) -> u16 {
        self.psid
    }

    /// Whether `port` is in the set. With offset bits, ports whose offset is 0 are in none.
    #[must_use]
    pub fn contains(self, port: u16) -> bool {
        let behind = 16 - u32::from(self.offset_bits) - u32::from(self.psid_len);
        let port = u32::from(port);
        let psid = (port >> behind) & ((1 << self.psid_len) - 1);
        let i = port >> (16 - u32::from(self.offset_bits));
        psid == u32::from(self.psid) && (self.offset_bits == 0 || i != 0)
    }

    /// The ports, if they are in one piece.
    #[must_use]
    pub fn range(self) -> Option<RangeInclusive<u16>> {
        let behind = 16 - u32::from(self.psid_len);
        let first = u32::from(self.psid) << behind;
        let last = first + (1 << behind) - 1;
        // Both lie below 65536.
        (self.offset_bits == 0).then_some(first as u16..=last as u16)
    }
}

impl fmt::Display for PortSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.offset_bits, self.psid_len, self.psid)
    }
}

/// A tunnel: one client's IPv4 address, or ports of it, and the ends of the tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The IPv4 address.
    pub v4: Ipv4Addr,
    /// The ports; `None`: all.
    pub ports: Option<PortSet>,
    /// The client's end.
    pub remote: Ipv6Addr,
    /// The tunnel end point.
    pub local: Ipv6Addr,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_port_is_in_one_set_and_the_range_says_the_same() {
        for (offset, len) in [(0, 4), (6, 8), (4, 12), (0, 16), (0, 1)] {
            let sets: Vec<PortSet> =
                (0..=u16::MAX).map_while(|psid| PortSet::new(offset, len, psid)).collect();
            assert_eq!(sets.len(), 1 << len);
            for port in [0, 1, 1023, 1024, 4095, 4096, 30_000, 65_535] {
                let of: Vec<_> = sets.iter().filter(|set| set.contains(port)).collect();
                let system = offset > 0 && port >> (16 - offset) == 0;
                assert_eq!(of.len(), usize::from(!system), "{port} with {offset}/{len}");
                let range = of.first().and_then(|set| set.range());
                assert!(range.is_none_or(|range| range.contains(&port)));
            }
        }
        assert_eq!(PortSet::new(0, 4, 1).unwrap().range(), Some(4096..=8191));
    }

    #[test]
    fn sets_that_can_not_be() {
        for (offset, len, psid) in [(0, 0, 0), (9, 8, 0), (0, 4, 16), (255, 255, 0), (0, 17, 0)] {
            assert_eq!(PortSet::new(offset, len, psid), None);
        }
    }
}
