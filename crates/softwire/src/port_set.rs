//! Which ports of a shared address a client has (RFC 7597 section 5.1).
//!
//! ```text
//!  0                   1
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5
//! +---------------+-------+-------+
//! |   i (a bits)  | PSID  |   j   |
//! +---------------+-------+-------+
//! ```

use core::fmt;
use core::ops::RangeInclusive;

/// A port set: all ports that have these bits, but with an offset none whose first bits are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortSet {
    offset_bits: u8,
    psid_len: u8,
    psid: u16,
}

/// Why numbers make no port set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortSetError {
    /// A port has 16 bits.
    #[error("offset and PSID have {0} bits together, and a port has 16")]
    TooLong(u16),
    /// Without a PSID there is nothing to share.
    #[error("a PSID of 0 bits shares nothing")]
    NoPsid,
    /// The PSID has more bits than its length says.
    #[error("PSID {psid} does not fit {len} bits: it must be below {}", 1u32 << len)]
    Psid {
        /// The PSID.
        psid: u16,
        /// Its length in bits.
        len: u8,
    },
}

impl PortSet {
    /// The set of `psid`, which has `psid_len` bits (1 to 16) behind `offset_bits` others.
    pub fn new(offset_bits: u8, psid_len: u8, psid: u16) -> Result<PortSet, PortSetError> {
        let bits = u16::from(offset_bits) + u16::from(psid_len);
        if bits > 16 {
            return Err(PortSetError::TooLong(bits));
        }
        if psid_len == 0 {
            return Err(PortSetError::NoPsid);
        }
        if u32::from(psid) >> psid_len != 0 {
            return Err(PortSetError::Psid { psid, len: psid_len });
        }
        Ok(PortSet { offset_bits, psid_len, psid })
    }

    /// a: bits in front of the PSID. If there are any, ports in which all of them are zero belong to no set.
    #[must_use]
    pub const fn offset_bits(self) -> u8 {
        self.offset_bits
    }

    /// k: bits of the PSID.
    #[must_use]
    pub const fn psid_len(self) -> u8 {
        self.psid_len
    }

    /// The number of this set among those that share the address.
    #[must_use]
    pub const fn psid(self) -> u16 {
        self.psid
    }

    /// Whether a port belongs to the set.
    #[must_use]
    pub const fn contains(self, port: u16) -> bool {
        matches!(psid_of(self.offset_bits, self.psid_len, port), Some(psid) if psid == self.psid)
    }

    /// The PSID of a port of an address that is shared with this offset and length; `None`: the port is in no set.
    #[must_use]
    pub const fn psid_of(self, port: u16) -> Option<u16> {
        psid_of(self.offset_bits, self.psid_len, port)
    }

    /// The ports, as ranges in ascending order: one without an offset, else 2^a - 1 of them.
    pub fn ranges(self) -> impl Iterator<Item = RangeInclusive<u16>> {
        let PortSet { offset_bits, psid_len, psid } = self;
        let rest = 16 - offset_bits - psid_len;
        let first = if offset_bits == 0 { 0 } else { 1 };
        (first..1u32 << offset_bits).map(move |i| {
            let low = (i << psid_len | u32::from(psid)) << rest;
            low as u16..=(low + (1 << rest) - 1) as u16
        })
    }

    /// How many ports there are.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "no set is empty")]
    pub const fn len(self) -> u32 {
        let ranges = if self.offset_bits == 0 { 1 } else { (1u32 << self.offset_bits) - 1 };
        ranges << (16 - self.offset_bits - self.psid_len)
    }
}

/// The PSID of `port`, where an address is shared by `psid_len` bits behind `offset_bits`.
pub(crate) const fn psid_of(offset_bits: u8, psid_len: u8, port: u16) -> Option<u16> {
    let port = port as u32;
    if offset_bits > 0 && port >> (16 - offset_bits) == 0 {
        return None;
    }
    let psid = port >> (16 - offset_bits - psid_len) & ((1 << psid_len) - 1);
    Some(psid as u16)
}

/// The form of the configuration file: `psid 3/6 offset 4`.
impl fmt::Display for PortSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "psid {}/{}", self.psid, self.psid_len)?;
        if self.offset_bits != 0 {
            write!(f, " offset {}", self.offset_bits)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(a: u8, k: u8, psid: u16) -> PortSet {
        PortSet::new(a, k, psid).unwrap()
    }

    #[test]
    fn rfc7597_appendix_a_example_1() {
        let ranges: Vec<_> = set(6, 8, 0x34).ranges().take(2).collect();
        assert_eq!(ranges, [1232..=1235, 2256..=2259]);
        assert_eq!(set(6, 8, 0x34).ranges().last(), Some(64720..=64723));
        assert_eq!(set(6, 8, 0x34).len(), 252);
    }

    #[test]
    fn without_an_offset_a_set_is_one_range() {
        assert_eq!(set(0, 4, 15).ranges().collect::<Vec<_>>(), [61440..=65535]);
        assert_eq!(set(0, 16, 9).ranges().collect::<Vec<_>>(), [9..=9]);
        assert_eq!(set(0, 1, 0).len(), 32768);
        assert_eq!(set(15, 1, 1).ranges().next(), Some(3..=3));
    }

    #[test]
    fn what_is_no_set_is_refused() {
        assert_eq!(PortSet::new(8, 9, 0), Err(PortSetError::TooLong(17)));
        assert_eq!(PortSet::new(255, 255, 0), Err(PortSetError::TooLong(510)));
        assert_eq!(PortSet::new(4, 0, 0), Err(PortSetError::NoPsid));
        assert_eq!(PortSet::new(0, 4, 16), Err(PortSetError::Psid { psid: 16, len: 4 }));
    }

    proptest! {
        #[test]
        fn sets_divide_the_ports_among_them(a in 0u8..=15, k in 1u8..=8, port: u16) {
            prop_assume!(a + k <= 16);
            let having: Vec<_> = (0..1 << k).filter(|psid| set(a, k, *psid).contains(port)).collect();
            let reserved = a > 0 && u32::from(port) < 1 << (16 - a);
            prop_assert_eq!(having.len(), usize::from(!reserved));
            prop_assert_eq!(set(a, k, 0).psid_of(port), having.first().copied());
        }

        #[test]
        fn ranges_are_the_ports_that_it_contains(a in 0u8..=12, k in 1u8..=12, psid: u16) {
            prop_assume!(a + k <= 16);
            let set = set(a, k, psid & ((1 << k) - 1));
            let naive: Vec<u16> = (0..=u16::MAX).filter(|port| set.contains(*port)).collect();
            let ports: Vec<u16> = set.ranges().flatten().collect();
            prop_assert_eq!(ports.len(), set.len() as usize);
            prop_assert_eq!(ports, naive);
        }
    }
}
