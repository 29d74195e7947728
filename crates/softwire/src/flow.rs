//! The flow label of tunnel packets (RFC 6438): routers in the tunnel's path that have several ways tell flows
//! apart by it.
//!
//! `crates/bpf/c` has the same function in C. It is quick, not cryptographic; the secret keeps others from
//! guessing labels (RFC 6437 section 6.1).

use core::net::Ipv4Addr;

use fordway_xlat::steps::mix;

/// The label of a flow: 20 bits, never zero. Ports are 0 where a packet has none that can be read: a fragment,
/// or another transport than TCP and UDP.
#[inline]
#[must_use]
pub fn label(
    secret: [u64; 2],
    src: Ipv4Addr,
    dst: Ipv4Addr,
    protocol: u8,
    (src_port, dst_port): (u16, u16),
) -> u32 {
    let addresses = u64::from(src.to_bits()) << 32 | u64::from(dst.to_bits());
    let transport = u64::from(protocol) << 32 | u64::from(src_port) << 16 | u64::from(dst_port);
    let hash = mix(mix(secret[0] ^ addresses) ^ secret[1] ^ transport);
    ((hash & 0xf_ffff) as u32).max(1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn of(secret: [u64; 2], ports: (u16, u16)) -> u32 {
        label(secret, Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 51, 100, 1), 6, ports)
    }

    #[test]
    fn flows_have_labels_of_their_own() {
        let labels: BTreeSet<_> = (0..10_000).map(|port| of([1, 2], (port, 443))).collect();
        // Of 2^20 labels, 10,000 flows share some 50 by chance.
        assert!(labels.len() > 9_900, "{}", labels.len());
        assert!(labels.iter().all(|label| (1..1 << 20).contains(label)));
        assert_eq!(of([1, 2], (7, 443)), of([1, 2], (7, 443)));
    }

    #[test]
    fn the_secret_decides() {
        let same = |port| of([1, 2], (port, 443)) == of([1, 3], (port, 443));
        assert!((0..1000).filter(|port| same(*port)).count() < 5);
    }
}
