//! From A records to AAAA records (RFC 6147 section 5.1.7, section 5.2).

use std::collections::HashSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use fordway_xlat::addr::{Pool6, classify};
use hickory_proto::rr::rdata::{A, AAAA};
use hickory_proto::rr::{Name, RData, Record};

use crate::chain::is;
use crate::policy::Policy;

/// The most octets of synthetic records in a response, which has to fit into 65,535, with room for all the rest.
const MAX_OCTETS: usize = 48_000;

/// Type, class, TTL, length and data of an AAAA record, in octets.
const AAAA_OCTETS: usize = 26;

/// The TTL of a synthetic record if no SOA says otherwise, seconds (RFC 6147 section 5.1.7).
pub(crate) const NO_SOA_TTL: u32 = 600;

/// The synthetic records for the A records of `name`, those with the first prefix first.
///
/// `limit` is what the negative answer to the AAAA question leaves of the TTL.
pub(crate) fn synthesise(
    policy: &Policy,
    name: &Name,
    answers: &[Record],
    limit: u32,
) -> Vec<Record> {
    let addresses: Vec<(Vec<Ipv6Addr>, &Record)> = answers
        .iter()
        .filter(|record| is(record, name))
        .filter_map(|record| match record.data {
            RData::A(A(v4)) => Some((represent(policy, v4), record)),
            _ => None,
        })
        .collect();
    let prefixes = addresses.iter().map(|(addresses, _)| addresses.len()).max().unwrap_or(0);
    // hickory compresses no more than 120 names of a message.
    let most = MAX_OCTETS / (name.len() + 1 + AAAA_OCTETS);
    let mut seen = HashSet::new();
    (0..prefixes)
        .flat_map(|nth| addresses.iter().filter_map(move |(v6, a)| Some((*v6.get(nth)?, *a))))
        .filter(|(v6, _)| seen.insert(*v6))
        .take(most)
        .map(|(v6, a)| {
            let ttl = a.ttl.min(limit);
            Record::from_rdata(a.name.clone(), ttl, RData::AAAA(AAAA(v6)))
        })
        .collect()
}

/// The IPv6 representations of an address, one for each prefix that is meant for it; none if it is not to
/// be represented.
fn represent(policy: &Policy, v4: Ipv4Addr) -> Vec<Ipv6Addr> {
    // What no translator forwards is not to be sent to one.
    let pointless = classify::illegal_v4(v4).is_some();
    if pointless || policy.exclude_a.iter().any(|net| net.contains(&v4)) {
        return Vec::new();
    }
    let prefixes = policy.prefixes_of(v4).iter();
    prefixes.filter(|pool6| may_carry(policy, **pool6, v4)).map(|pool6| pool6.embed(v4)).collect()
}

/// RFC 6052 section 3.1: the Well-Known Prefix must not represent non-global IPv4 addresses.
pub(crate) fn may_carry(policy: &Policy, pool6: Pool6, v4: Ipv4Addr) -> bool {
    !pool6.is_well_known() || policy.allow_private || classify::is_global_v4(v4)
}
