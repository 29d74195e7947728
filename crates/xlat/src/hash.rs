//! The hash of tables and identifications, which `crates/bpf/c/nat64_hash.h` has in C.

/// Spreads 64 bits over 64 bits.
#[inline]
pub fn mix(mut word: u64) -> u64 {
    const ODD: u64 = 0xd6e8_feb8_6659_fd93;
    word ^= word >> 32;
    word = word.wrapping_mul(ODD);
    word ^= word >> 32;
    word = word.wrapping_mul(ODD);
    word ^ (word >> 32)
}
