//! Which flow has which addresses and ports.

use std::net::IpAddr;

use crate::{Result, Unfit};

/// The first source port; RFC 8219 section 4 asks for 1024 to 65535.
pub(super) const FIRST_PORT: u16 = 16_384;
/// The port that the first source address sends to; RFC 8219 section 4 asks for 1 to 49151.
pub(super) const FIRST_TARGET_PORT: u16 = 20_000;
/// Flow numbers are multiplied by this odd number, so that neighbours in time are no neighbours in any
/// table (RFC 4814 section 4.5 asks for pseudorandom ports), and yet no two flows are alike.
pub(super) const STRIDE: u32 = 0x9e37_79b1;
/// Most source addresses, as a power of two: so many target ports are free.
const MOST_SOURCES: u8 = 13;
/// Most ports of one source address, as a power of two.
const MOST_PORTS: u8 = 15;

/// The addresses and ports of numbered flows: every flow has a source transport address of its own.
///
/// Each source address sends to a port of its own. So two flows never differ in the source address
/// alone, and a NAT that puts all of them behind one address finds every source port free: what is
/// easiest for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Walk {
    /// What all source addresses have in common. What counts from 1 is the last 16 bits of an IPv4
    /// address, and the last 16 bits of the /64 prefix of an IPv6 address: there every source is a
    /// subscriber of its own, whatever a translator takes for one.
    pub(super) source: IpAddr,
    /// Where all flows go.
    pub(super) target: IpAddr,
    /// Number of source addresses, as a power of two.
    pub(super) sources: u8,
    /// Number of ports of each, as a power of two.
    pub(super) ports: u8,
}

/// One flow.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Tuple {
    /// The source address's own 16 bits.
    pub(super) host: u16,
    /// Source port.
    pub(super) port: u16,
    /// Target port.
    pub(super) target_port: u16,
}

impl Walk {
    /// A walk over at least `flows` flows from `2^sources` addresses.
    pub fn new(source: IpAddr, target: IpAddr, sources: u8, flows: u32) -> Result<Self> {
        let needed = u32::BITS - flows.max(2).saturating_sub(1).leading_zeros();
        let ports = u8::try_from(needed).unwrap_or(u8::MAX).saturating_sub(sources).max(1);
        if sources > MOST_SOURCES || ports > MOST_PORTS {
            return Err(Unfit(format!(
                "{flows} flows from 2^{sources} addresses are too many: at most 2^{MOST_SOURCES} \
                 addresses with 2^{MOST_PORTS} ports each"
            )));
        }
        if source.is_ipv4() != target.is_ipv4() {
            return Err(Unfit(format!("{source} and {target} are of two families")));
        }
        if host_part(source) != 0 {
            return Err(Unfit(format!(
                "{source}: the last 16 bits (of the /64 prefix) are not zero"
            )));
        }
        Ok(Self { source, target, sources, ports })
    }

    /// The flow of this number, as the sender's program makes it.
    #[cfg(test)]
    pub(super) fn tuple(&self, flow: u32) -> Tuple {
        let mixed = flow.wrapping_mul(STRIDE) & self.mask();
        let host = (mixed & ((1 << self.sources) - 1)) as u16;
        let port = (mixed >> self.sources) as u16;
        Tuple { host: host + 1, port: FIRST_PORT + port, target_port: FIRST_TARGET_PORT + host }
    }

    /// A flow number and this mask, both multiplied as above, give a number without its like.
    pub(super) fn mask(&self) -> u32 {
        (1 << (self.sources + self.ports)) - 1
    }

    /// Number of source addresses; as many consecutive flows have one each.
    pub fn hosts(&self) -> u32 {
        1 << self.sources
    }
}

/// The 16 bits that differ from source to source.
fn host_part(address: IpAddr) -> u16 {
    match address {
        IpAddr::V4(v4) => v4.to_bits() as u16,
        IpAddr::V6(v6) => v6.segments()[3],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(flows: u32) -> Walk {
        let [source, target] = ["198.18.0.0", "198.51.100.2"].map(|a| a.parse().unwrap());
        Walk::new(source, target, 4, flows).unwrap()
    }

    #[test]
    fn no_two_flows_are_alike_and_consecutive_ones_have_all_addresses() {
        let walk = walk(5000);
        let all: Vec<Tuple> = (0..5000).map(|flow| walk.tuple(flow)).collect();
        let distinct: std::collections::BTreeSet<Tuple> = all.iter().copied().collect();
        assert_eq!(distinct.len(), all.len());
        for some in all.chunks_exact(16) {
            let hosts: std::collections::BTreeSet<u16> = some.iter().map(|t| t.host).collect();
            assert_eq!(hosts, (1..=16).collect());
        }
        // Behind one address nobody needs another port.
        let behind: std::collections::BTreeSet<(u16, u16)> =
            all.iter().map(|t| (t.port, t.target_port)).collect();
        assert_eq!(behind.len(), all.len());
    }

    #[test]
    fn ports_stay_in_their_ranges() {
        let walk = walk(16 << MOST_PORTS);
        for flow in [0, 1, 77, (16 << MOST_PORTS) - 1] {
            let tuple = walk.tuple(flow);
            assert!((FIRST_PORT..=49_151).contains(&tuple.port), "{tuple:?}");
            assert!((FIRST_TARGET_PORT..=49_151).contains(&tuple.target_port), "{tuple:?}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let [v4, v6] = ["198.18.0.0", "2001:db8::"].map(|a| a.parse().unwrap());
        assert!(Walk::new(v4, v6, 4, 100).is_err());
        assert!(Walk::new("198.18.0.1".parse().unwrap(), v4, 4, 100).is_err());
        assert!(Walk::new(v4, v4, 14, 100).is_err());
        assert!(Walk::new(v4, v4, 4, u32::MAX).is_err());
    }
}
