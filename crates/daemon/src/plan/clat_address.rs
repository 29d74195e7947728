//! The IPv6 address that a CLAT takes for itself.
//!
//! RFC 6877 section 6.3 wants a /64 of the CLAT's own; where there is none, one address of the
//! uplink's /64 stands for the whole IPv4 side, and the CLAT answers for it as a neighbour. The
//! address is stable (RFC 7217): the same host, link and network give the same address at every
//! start, another network gives an unrelated one.

use std::net::Ipv6Addr;

use fordway_net::{Address, IpNet, Link};
use fordway_xlat::addr::classify::illegal_v6;
use sha2::{Digest, Sha256};

/// The address from which the translator `name` reaches `to`; `None`: the uplink has no usable /64.
pub(crate) fn derive(
    name: &str,
    uplink: &Link,
    addresses: &[Address],
    to: Ipv6Addr,
) -> Option<Ipv6Addr> {
    let prefix = prefix(&uplink.name, addresses, to)?;
    Some(make(prefix, name, &uplink.hardware_address, &machine(), 0))
}

/// What tells this machine from others.
pub(crate) fn machine() -> Vec<u8> {
    std::fs::read("/etc/machine-id").unwrap_or_default()
}

/// The first /64 of the uplink's preferred addresses that has the label of `to`, else the first one; deprecated ones are
/// going away.
fn prefix(uplink: &str, addresses: &[Address], to: Ipv6Addr) -> Option<Ipv6Addr> {
    let of_uplink = addresses.iter().filter(|address| address.device == uplink);
    let mut networks = of_uplink.filter(|address| !address.deprecated).filter_map(|address| {
        match address.address {
            IpNet::V6(net) if net.prefix_len() == 64 && illegal_v6(net.addr()).is_none() => {
                Some(net.network())
            }
            _ => None,
        }
    });
    let first = networks.next()?;
    let fits = |net: &Ipv6Addr| has_label_of(*net, to);
    std::iter::once(first).chain(networks).find(fits).or(Some(first))
}

/// RFC 6724 section 5, rule 6: whether both are unique local addresses, or neither is. A PLAT with a global prefix,
/// or with the Well-Known Prefix, may have no way back to unique local sources.
pub(crate) fn has_label_of(source: Ipv6Addr, destination: Ipv6Addr) -> bool {
    source.is_unique_local() == destination.is_unique_local()
}

/// RFC 7217 section 5: a hash of prefix, interface, and a secret of the machine. Its link-layer
/// address goes in too, since clones of a machine share the rest. `number`: how many addresses have been tried and were
/// in use (`DAD_Counter`).
pub(crate) fn make(
    prefix: Ipv6Addr,
    name: &str,
    hardware_address: &[u8],
    machine: &[u8],
    number: u8,
) -> Ipv6Addr {
    let mut counter = 0u8;
    let mut left = number;
    loop {
        let mut hash = Sha256::new();
        hash.update(b"fordway clat\0");
        for part in [&prefix.octets(), name.as_bytes(), hardware_address, machine] {
            // Lengths keep neighbouring parts apart.
            hash.update([part.len().min(255) as u8]);
            hash.update(part);
        }
        hash.update([counter]);
        let digest = hash.finalize();
        let mut id = [0u8; 8];
        id.copy_from_slice(&digest[..8]);
        let id = u64::from_be_bytes(id);
        let usable = !is_reserved(id);
        if (usable && left == 0) || counter == u8::MAX {
            return Ipv6Addr::from_bits(prefix.to_bits() | u128::from(id));
        }
        counter += 1;
        left -= u8::from(usable);
    }
}

/// RFC 5453: the subnet-router anycast address, the addresses of IANA's own Ethernet numbers, and
/// the reserved subnet anycast addresses.
fn is_reserved(id: u64) -> bool {
    id == 0
        || (0x0200_5eff_fe00_0000..=0x0200_5eff_feff_ffff).contains(&id)
        || (0xfdff_ffff_ffff_ff80..=0xfdff_ffff_ffff_ffff).contains(&id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIX: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 2, 0, 0, 0, 0);

    #[test]
    fn stable_and_different_where_anything_differs() {
        let one = make(PREFIX, "clat0", &[2, 0, 0, 0, 0, 1], b"machine", 0);
        assert_eq!(one, make(PREFIX, "clat0", &[2, 0, 0, 0, 0, 1], b"machine", 0));
        assert_eq!(one.to_bits() >> 64, PREFIX.to_bits() >> 64);
        let other_prefix = Ipv6Addr::new(0x2001, 0xdb8, 1, 3, 0, 0, 0, 0);
        for other in [
            make(other_prefix, "clat0", &[2, 0, 0, 0, 0, 1], b"machine", 0),
            make(PREFIX, "clat1", &[2, 0, 0, 0, 0, 1], b"machine", 0),
            make(PREFIX, "clat0", &[2, 0, 0, 0, 0, 2], b"machine", 0),
            make(PREFIX, "clat0", &[2, 0, 0, 0, 0, 1], b"another", 0),
            make(PREFIX, "clat0", &[2, 0, 0, 0, 0, 1], b"machine", 1),
        ] {
            assert_ne!(one.segments()[4..], other.segments()[4..]);
        }
    }

    #[test]
    fn the_prefix_is_global_preferred_and_of_64_bits() {
        let make = |device: &str, net: &str| Address::new(device, net.parse().unwrap());
        let mut old = make("eth0", "2001:db8:0:1::7/64");
        old.deprecated = true;
        let addresses = [
            make("eth1", "2001:db8:0:9::7/64"),
            make("eth0", "fe80::7/64"),
            make("eth0", "192.0.2.7/24"),
            make("eth0", "2001:db8:0:8::7/128"),
            old,
            make("eth0", "2001:db8:0:2::7/64"),
        ];
        let expected: Ipv6Addr = "2001:db8:0:2::".parse().unwrap();
        let plat = "64:ff9b::c000:aa".parse().unwrap();
        assert_eq!(prefix("eth0", &addresses, plat), Some(expected));
        assert_eq!(prefix("eth2", &addresses, plat), None);
    }

    #[test]
    fn the_prefix_has_the_label_of_the_plats() {
        let make = |net: &str| Address::new("eth0", net.parse().unwrap());
        let (local, global) = (make("fd00:db8::7/64"), make("2001:db8:0:2::7/64"));
        let chosen = |addresses: &[Address], plat: &str| {
            prefix("eth0", addresses, plat.parse().unwrap()).unwrap().is_unique_local()
        };
        for both in [[local.clone(), global.clone()], [global.clone(), local.clone()]] {
            for plat in ["64:ff9b::c000:aa", "2001:db8:64::c000:aa"] {
                assert!(!chosen(&both, plat), "{plat}");
            }
            assert!(chosen(&both, "fd00:db8:64::c000:aa"));
        }
        // The only one is better than none.
        assert!(chosen(&[local], "64:ff9b::c000:aa"));
        assert!(!chosen(&[global], "fd00:db8:64::c000:aa"));
    }

    #[test]
    fn reserved_identifiers() {
        for id in [0, 0x0200_5eff_fe00_5213, 0xfdff_ffff_ffff_ff80, 0xfdff_ffff_ffff_ffff] {
            assert!(is_reserved(id), "{id:x}");
        }
        assert!(!is_reserved(0x0200_5eff_fd00_5213));
    }
}
