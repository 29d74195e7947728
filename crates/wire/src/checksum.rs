//! The Internet checksum: full (RFC 1071) and incremental (RFC 1624).

use core::net::{Ipv4Addr, Ipv6Addr};
use core::ops::{Add, Sub};

/// An unfinished one's complement sum of 16-bit big-endian words.
///
/// Order does not matter, so a sum may be built from pieces, each starting at an even offset of what it covers. Source:
/// RFC 1071 section 2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum(u64);

impl Sum {
    /// The empty sum.
    pub const ZERO: Sum = Sum(0);

    /// Adds one 16-bit word given as a number.
    #[inline]
    #[must_use]
    pub fn add_u16(self, word: u16) -> Sum {
        Sum(self.0 + u64::from(word))
    }

    /// Adds a 32-bit number as two words. What is carried out of the lower one counts 2^16, which is 1 in this
    /// arithmetic.
    #[inline]
    #[must_use]
    pub fn add_u32(self, word: u32) -> Sum {
        Sum(self.0 + u64::from(word))
    }

    /// Adds octets; an odd last octet is padded with a zero octet behind it (RFC 1071 section 4.1).
    #[inline]
    #[must_use]
    pub fn add_bytes(self, bytes: &[u8]) -> Sum {
        // Native 64-bit words with end-around carry; RFC 1071 section 2 (B) says that the byte order of the machine
        // only swaps the result.
        let mut sum: u64 = 0;
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            let mut word = [0u8; 8];
            word.copy_from_slice(chunk);
            let (added, carry) = sum.overflowing_add(u64::from_ne_bytes(word));
            sum = added + u64::from(carry);
        }
        let rest = chunks.remainder();
        if !rest.is_empty() {
            let mut word = [0u8; 8];
            word[..rest.len()].copy_from_slice(rest);
            let (added, carry) = sum.overflowing_add(u64::from_ne_bytes(word));
            sum = added + u64::from(carry);
        }
        self.add_u16(u16::from_be(fold(sum)))
    }

    /// Adds an IPv4 address.
    #[inline]
    #[must_use]
    pub fn add_v4(self, addr: Ipv4Addr) -> Sum {
        self.add_u32(addr.to_bits())
    }

    /// Adds an IPv6 address.
    #[inline]
    #[must_use]
    pub fn add_v6(self, addr: Ipv6Addr) -> Sum {
        let bits = addr.to_bits();
        [96, 64, 32, 0].into_iter().fold(self, |sum, at| sum.add_u32((bits >> at) as u32))
    }

    /// The sum folded to 16 bits, not complemented. This is what the checksum field holds while a checksum is partial
    /// (the device will complete it).
    #[inline]
    #[must_use]
    pub fn fold(self) -> u16 {
        fold(self.0)
    }

    /// The checksum: the one's complement of the folded sum.
    #[inline]
    #[must_use]
    pub fn finish(self) -> u16 {
        !self.fold()
    }
}

impl Add for Sum {
    type Output = Sum;

    #[inline]
    fn add(self, other: Sum) -> Sum {
        Sum(self.0 + other.0)
    }
}

impl Sub for Sum {
    type Output = Sum;

    /// Adds the one's complement (RFC 1624 section 3, equation 3).
    #[inline]
    fn sub(self, other: Sum) -> Sum {
        self.add_u16(!other.fold())
    }
}

#[inline]
fn fold(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    // 32 bits now; the first fold leaves at most 0x1_fffe, the second settles it.
    let sum = (sum >> 16) + (sum & 0xffff);
    ((sum >> 16) + (sum & 0xffff)) as u16
}

/// Sum of the IPv4 pseudo-header (RFC 793 section 3.1). `len` is the transport length in octets.
#[inline]
pub fn pseudo_v4(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, len: u32) -> Sum {
    Sum::ZERO.add_v4(src).add_v4(dst).add_u16(u16::from(protocol)).add_u32(len)
}

/// Sum of the IPv6 pseudo-header (RFC 8200 section 8.1). `len` is the upper-layer length in octets.
#[inline]
pub fn pseudo_v6(src: Ipv6Addr, dst: Ipv6Addr, next_header: u8, len: u32) -> Sum {
    Sum::ZERO.add_v6(src).add_v6(dst).add_u16(u16::from(next_header)).add_u32(len)
}

/// Updates a complete checksum for covered words that changed from `old` to `new`.
///
/// Source: RFC 1624 section 3, equation 3: `HC' = ~(~HC + ~m + m')`.
#[inline]
pub fn update(checksum: u16, old: Sum, new: Sum) -> u16 {
    (Sum::ZERO.add_u16(!checksum) - old + new).finish()
}

/// Updates a partial checksum (a folded, uncomplemented pseudo-header sum) the same way.
#[inline]
pub fn update_partial(checksum: u16, old: Sum, new: Sum) -> u16 {
    (Sum::ZERO.add_u16(checksum) - old + new).fold()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rfc1071_section_3_example() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::ZERO.add_bytes(&bytes).fold(), 0xddf2);
    }

    #[test]
    fn rfc1624_section_4_example() {
        // HC = 0xDD2F, m = 0x5555, m' = 0x3285 gives 0x0000 by equation 3.
        let old = Sum::ZERO.add_u16(0x5555);
        let new = Sum::ZERO.add_u16(0x3285);
        assert_eq!(update(0xdd2f, old, new), 0x0000);
    }

    fn naive(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    proptest! {
        #[test]
        fn full_sum_is_the_naive_sum(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(Sum::ZERO.add_bytes(&bytes).fold(), naive(&bytes));
        }

        #[test]
        fn numbers_are_summed_as_their_octets(bits in any::<u128>(), add in any::<u32>()) {
            let octets = bits.to_be_bytes();
            let sum = Sum::ZERO.add_v6(Ipv6Addr::from_bits(bits));
            prop_assert_eq!(sum.fold(), naive(&octets));
            let both = [&octets[..], &add.to_be_bytes()].concat();
            prop_assert_eq!((sum + Sum::ZERO.add_u32(add)).fold(), naive(&both));
        }

        #[test]
        fn incremental_update_is_recomputation(
            mut bytes in proptest::collection::vec(any::<u8>(), 8..64),
            word in any::<u16>(),
        ) {
            // A checksum of a packet with a non-zero octet is never 0xffff, so both agree exactly.
            bytes[0] = 1;
            let before = Sum::ZERO.add_bytes(&bytes).finish();
            let old = Sum::ZERO.add_bytes(&bytes[4..6]);
            bytes[4..6].copy_from_slice(&word.to_be_bytes());
            let after = Sum::ZERO.add_bytes(&bytes).finish();
            prop_assert_eq!(update(before, old, Sum::ZERO.add_u16(word)), after);
        }
    }
}
