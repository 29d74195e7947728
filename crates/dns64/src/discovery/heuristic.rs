//! Translation prefixes out of synthesised addresses of `ipv4only.arpa` (RFC 7050 section 3).

use std::net::{Ipv4Addr, Ipv6Addr};

use fordway_xlat::addr::Pool6;
use ipnet::Ipv6Net;

pub use crate::well_known::WELL_KNOWN_ADDRESSES;

/// How many prefixes of one answer are taken.
pub const MOST_PREFIXES: usize = 16;

/// How many addresses of one answer are looked at.
const MOST_ADDRESSES: usize = 64;

/// A prefix, and the addresses it was found in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The prefix.
    pub pool6: Pool6,
    /// `Pref64::WKA`: addresses of the answer that are the prefix with a well-known address.
    pub addresses: Vec<Ipv6Addr>,
}

/// Searches addresses for well-known IPv4 addresses at the places of RFC 6052 section 2.2, and gives
/// the prefixes before them, in the order of the addresses.
///
/// An address in which none is found is passed over: a network may answer every name that does not exist
/// with an address of its own. So is one where it can't be told which of two places is meant.
#[must_use]
pub fn prefixes(addresses: &[Ipv6Addr]) -> Vec<Candidate> {
    let addresses = addresses.get(..MOST_ADDRESSES).unwrap_or(addresses);
    let mut found: Vec<Candidate> = Vec::new();
    for address in addresses {
        let Some(pool6) = prefix(*address, addresses) else { continue };
        if let Some(known) = found.iter_mut().find(|candidate| candidate.pool6 == pool6) {
            if !known.addresses.contains(address) {
                known.addresses.push(*address);
            }
        } else if found.len() < MOST_PREFIXES {
            found.push(Candidate { pool6, addresses: vec![*address] });
        }
    }
    found
}

/// The prefix of one address, with the help of the others of the answer.
fn prefix(address: Ipv6Addr, all: &[Ipv6Addr]) -> Option<Pool6> {
    let [first, second] = WELL_KNOWN_ADDRESSES;
    // Each with the well-known address that the other address of its pair must have.
    let (here, there) = (Instances::of(first, address), Instances::of(second, address));
    let places: Vec<(Pool6, Ipv4Addr, Ipv4Addr)> =
        [(&here, first, second), (&there, second, first)]
            .into_iter()
            .filter_map(|(instances, own, other)| Some((instances.only()?, own, other)))
            .collect();
    if let ([(pool6, ..)], 1) = (places.as_slice(), here.count + there.count) {
        return Some(*pool6);
    }
    // Some octets of the prefix, or of what stands behind, look like a well-known address, too. The true
    // place has the one in one record and the other in another; octets of the prefix are the same in both.
    let is_paired = |(pool6, _, other): &&(Pool6, Ipv4Addr, Ipv4Addr)| {
        all.iter().any(|one| pool6.contains(*one) && pool6.extract(*one) == Some(*other))
    };
    // Behind it nothing should be (RFC 6052 section 2.2).
    let is_plain = |(pool6, own, _): &&(Pool6, Ipv4Addr, Ipv4Addr)| pool6.embed(*own) == address;
    only(places.iter().filter(is_paired)).or_else(|| only(places.iter().filter(is_plain)))
}

fn only<'a>(mut places: impl Iterator<Item = &'a (Pool6, Ipv4Addr, Ipv4Addr)>) -> Option<Pool6> {
    match (places.next(), places.next()) {
        (Some((pool6, ..)), None) => Some(*pool6),
        _ => None,
    }
}

/// Where an IPv4 address stands in an IPv6 address.
struct Instances {
    /// How often, at any octet, and at the places where the octet u lies between its octets.
    count: usize,
    /// The prefixes before those that are at a place of RFC 6052.
    standard: Vec<Pool6>,
}

impl Instances {
    fn of(v4: Ipv4Addr, address: Ipv6Addr) -> Self {
        let octets = address.octets();
        let together = octets.windows(4).filter(|window| **window == v4.octets()).count();
        let standard: Vec<Pool6> = [32, 40, 48, 56, 64, 96]
            .into_iter()
            .filter_map(|len| Pool6::new(Ipv6Net::new(address, len).ok()?.trunc()).ok())
            .filter(|pool6| pool6.extract(address) == Some(v4))
            .collect();
        let split = standard.iter().filter(|pool6| (40..=56).contains(&pool6.len())).count();
        Self { count: together + split, standard }
    }

    /// RFC 7050 section 3: the value must be present only once.
    fn only(&self) -> Option<Pool6> {
        match (self.count, self.standard.as_slice()) {
            (1, [pool6]) => Some(*pool6),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
