//! Which client has which policy.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::policy::Policy;

/// The policies of all clients.
#[derive(Clone, Debug)]
pub struct Policies {
    /// The first is everybody else's.
    policies: Vec<Policy>,
    v4: Clients,
    v6: Clients,
}

/// Why policies can't stand beside each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoliciesError {
    /// Two policies name one network.
    #[error("two policies name the clients {0}")]
    Duplicate(IpNet),
}

/// Networks by prefix length, the longest first; addresses as their bits, left-aligned.
type Clients = Vec<(u8, HashMap<u128, usize>)>;

impl Policies {
    /// Everybody's policy, and those of some clients; a client has the policy of the longest prefix.
    pub fn new(
        default: Policy,
        by_client: Vec<(Vec<IpNet>, Policy)>,
    ) -> Result<Policies, PoliciesError> {
        let mut found = Policies { policies: vec![default], v4: Vec::new(), v6: Vec::new() };
        for (nets, policy) in by_client {
            let index = found.policies.len();
            found.policies.push(policy);
            for net in nets {
                let clients = if net.addr().is_ipv4() { &mut found.v4 } else { &mut found.v6 };
                if insert(clients, net, index) {
                    return Err(PoliciesError::Duplicate(net.trunc()));
                }
            }
        }
        for clients in [&mut found.v4, &mut found.v6] {
            clients.sort_by_key(|(len, _)| std::cmp::Reverse(*len));
        }
        found.join_sites();
        Ok(found)
    }

    /// The policy of a client and its number; 0 is everybody else's. An IPv4-mapped address is the IPv4 client's that
    /// it stands for.
    pub fn of(&self, client: IpAddr) -> (usize, &Policy) {
        let client = client.to_canonical();
        let clients = if client.is_ipv4() { &self.v4 } else { &self.v6 };
        let bits = bits(client);
        let found = clients.iter().find_map(|(len, nets)| nets.get(&truncate(bits, *len)));
        let index = found.copied().unwrap_or(0);
        (index, &self.policies[index])
    }

    /// All policies, everybody else's first.
    pub fn iter(&self) -> impl Iterator<Item = &Policy> {
        self.policies.iter()
    }

    /// Each policy gets to know the prefixes of the others.
    fn join_sites(&mut self) {
        let mut site = Vec::new();
        for policy in &self.policies {
            let ranges = policy.ranges.iter().flat_map(|range| &range.pool6);
            for pool6 in policy.pool6.iter().chain(ranges).chain(&policy.site) {
                if !site.contains(pool6) {
                    site.push(*pool6);
                }
            }
        }
        for policy in &mut self.policies {
            policy.site.clone_from(&site);
        }
    }
}

impl Default for Policies {
    fn default() -> Policies {
        Policies { policies: vec![Policy::default()], v4: Vec::new(), v6: Vec::new() }
    }
}

/// Whether the network was there already.
fn insert(clients: &mut Clients, net: IpNet, index: usize) -> bool {
    let len = net.prefix_len();
    let at = clients.iter().position(|(known, _)| *known == len).unwrap_or_else(|| {
        clients.push((len, HashMap::new()));
        clients.len() - 1
    });
    clients[at].1.insert(truncate(bits(net.addr()), len), index).is_some()
}

fn bits(addr: IpAddr) -> u128 {
    match addr {
        IpAddr::V4(addr) => u128::from(Ipv4Addr::to_bits(addr)) << 96,
        IpAddr::V6(addr) => Ipv6Addr::to_bits(addr),
    }
}

fn truncate(bits: u128, len: u8) -> u128 {
    bits & u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
}

#[cfg(test)]
mod tests;
