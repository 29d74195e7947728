//! Access lists.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// A set of networks, and whether an address is in one of them.
///
/// Networks that overlap or touch are one range, so that the answer is one binary search however many there are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Acl {
    /// First and last address of each range, in order.
    v4: Vec<(Ipv4Addr, Ipv4Addr)>,
    v6: Vec<(Ipv6Addr, Ipv6Addr)>,
}

impl Acl {
    /// The addresses of these networks; none at all if there are none.
    pub fn new(networks: impl IntoIterator<Item = IpNet>) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for network in networks {
            match network {
                IpNet::V4(net) => v4.push((net.network(), net.broadcast())),
                IpNet::V6(net) => v6.push((net.network(), net.broadcast())),
            }
        }
        Acl {
            v4: merge(v4, |address| u32::from(address).checked_add(1).map(Ipv4Addr::from)),
            v6: merge(v6, |address| u128::from(address).checked_add(1).map(Ipv6Addr::from)),
        }
    }

    /// Whether the address is in one of the networks. A mapped address (`::ffff:0:0/96`) counts as what it maps.
    pub fn contains(&self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(address) => covers(&self.v4, address),
            IpAddr::V6(address) => covers(&self.v6, address),
        }
    }
}

/// Sorts ranges and joins those that overlap or touch.
fn merge<A: Copy + Ord>(mut ranges: Vec<(A, A)>, next: impl Fn(A) -> Option<A>) -> Vec<(A, A)> {
    ranges.sort_unstable();
    let mut merged: Vec<(A, A)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match merged.last_mut() {
            Some((_, end)) if next(*end).is_none_or(|after| first <= after) => {
                *end = (*end).max(last);
            }
            _ => merged.push((first, last)),
        }
    }
    merged
}

fn covers<A: Copy + Ord>(ranges: &[(A, A)], address: A) -> bool {
    let after = ranges.partition_point(|(first, _)| *first <= address);
    after > 0 && ranges[after - 1].1 >= address
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(networks: &[&str]) -> Acl {
        Acl::new(networks.iter().map(|text| text.parse().unwrap()))
    }

    fn has(acl: &Acl, address: &str) -> bool {
        acl.contains(address.parse().unwrap())
    }

    #[test]
    fn nobody_by_default() {
        assert!(!has(&Acl::default(), "192.0.2.1"));
        assert!(!has(&Acl::default(), "::1"));
    }

    #[test]
    fn first_and_last_address_of_each_network() {
        let acl = acl(&[
            "192.0.2.0/25",
            "192.0.2.128/26",
            "198.51.100.7/32",
            "2001:db8:1::/64",
            "2001:db8:1:1::/64",
        ]);
        for inside in [
            "192.0.2.0",
            "192.0.2.191",
            "198.51.100.7",
            "2001:db8:1::",
            "2001:db8:1:1:ffff:ffff:ffff:ffff",
        ] {
            assert!(has(&acl, inside), "{inside}");
        }
        for outside in [
            "192.0.1.255",
            "192.0.2.192",
            "198.51.100.6",
            "198.51.100.8",
            "2001:db8:0:ffff:ffff::",
            "2001:db8:1:2::",
        ] {
            assert!(!has(&acl, outside), "{outside}");
        }
        assert_eq!(acl.v4.len(), 2, "networks that touch are one range");
        assert_eq!(acl.v6.len(), 1);
    }

    #[test]
    fn a_network_within_another_does_not_shorten_it() {
        let acl = acl(&["2001:db8::/32", "2001:db8:1::/48", "192.0.2.0/24", "192.0.2.0/32"]);
        assert!(has(&acl, "2001:db8:ffff::1"));
        assert!(has(&acl, "192.0.2.255"));
    }

    #[test]
    fn everybody() {
        let acl = acl(&["0.0.0.0/0", "192.0.2.0/24", "::/0"]);
        assert!(has(&acl, "255.255.255.255"));
        assert!(has(&acl, "0.0.0.0"));
        assert!(has(&acl, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"));
    }

    #[test]
    fn a_mapped_address_is_the_address_it_maps() {
        assert!(has(&acl(&["192.0.2.0/24"]), "::ffff:192.0.2.1"));
        assert!(!has(&acl(&["::/0"]), "::ffff:192.0.2.1"));
    }
}
