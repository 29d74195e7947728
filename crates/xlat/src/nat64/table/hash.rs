//! Keyed hashes: which chain an entry is in, and which port is tried first.
//!
//! `crates/bpf/c/nat64_hash.h` is the same in C: both engines must find each other's entries. The
//! functions are quick, not cryptographic; the secret keeps hosts from choosing colliding addresses, and
//! from guessing ports (RFC 6056 section 3.3.3).

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::hash::mix;

/// First and last 64 bits of an address.
#[inline]
pub(crate) fn halves(addr: Ipv6Addr) -> (u64, u64) {
    let bits = addr.to_bits();
    ((bits >> 64) as u64, bits as u64)
}

/// The address of its halves.
#[inline]
pub(crate) fn joined(hi: u64, lo: u64) -> Ipv6Addr {
    Ipv6Addr::from_bits(u128::from(hi) << 64 | u128::from(lo))
}

/// The key of the hashes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Secret(pub(crate) [u64; 2]);

impl Secret {
    /// Of an IPv6 transport address.
    #[inline]
    pub(crate) fn v6(self, addr: Ipv6Addr, port: u16, protocol: u8) -> u64 {
        let (hi, lo) = halves(addr);
        let word = mix(self.0[0] ^ hi);
        let word = mix(word ^ lo);
        mix(word ^ self.0[1] ^ (u64::from(port) | u64::from(protocol) << 16))
    }

    /// Of an IPv4 transport address.
    #[inline]
    pub(crate) fn v4(self, addr: Ipv4Addr, port: u16, protocol: u8) -> u64 {
        let word = u64::from(addr.to_bits()) << 32 | u64::from(port) << 16 | u64::from(protocol);
        mix(self.0[0] ^ word)
    }

    /// Of a session: its IPv4 transport addresses.
    #[inline]
    pub(crate) fn session(
        self,
        local: (Ipv4Addr, u16),
        remote: (Ipv4Addr, u16),
        protocol: u8,
    ) -> u64 {
        let far = u64::from(remote.0.to_bits()) << 16 | u64::from(remote.1);
        mix(self.v4(local.0, local.1, protocol) ^ self.0[1] ^ far)
    }

    /// Of a subscriber.
    #[inline]
    pub(crate) fn subscriber(self, prefix: Ipv6Addr, mark: u32) -> u64 {
        let (hi, lo) = halves(prefix);
        mix(mix(mix(self.0[0] ^ hi) ^ lo) ^ self.0[1] ^ u64::from(mark))
    }

    /// For the choice of a port of an IPv6 transport address: neighbouring ports, an even one and the
    /// next, have the same.
    #[inline]
    pub(crate) fn port(self, addr: Ipv6Addr, port: u16, protocol: u8) -> u64 {
        mix(self.v6(addr, port >> 1, protocol) ^ self.0[0].rotate_left(17))
    }

    /// The next number after `hash` in a sequence.
    #[inline]
    pub(crate) fn again(self, hash: u64, attempt: u32) -> u64 {
        if attempt == 0 { hash } else { mix(hash ^ self.0[1] ^ u64::from(attempt)) }
    }
}
