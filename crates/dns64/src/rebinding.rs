//! DNS rebinding: a public name whose addresses are private makes a browser a tool against the network that it is in.
//!
//! Of answers to questions for public names, records with such addresses are taken out before anything else is made of them:
//! A and AAAA records, those of the additional section, and HTTPS and SVCB records with such hints.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hickory_proto::op::{Edns, Message};
use hickory_proto::rr::rdata::SVCB;
use hickory_proto::rr::rdata::svcb::SvcParamValue;
use hickory_proto::rr::{Name, RData, Record, RecordType};

use crate::chain::covered;
use crate::ede::Ede;
use crate::policy::{Policy, Rebinding};

impl Rebinding {
    /// The networks that [`Rebinding::private`] has as a rule: those of this host, of links, of private use and shared
    /// (RFC 1122, 1918, 3927, 6598; RFC 4291, 4193, 3879).
    pub const USUAL: [&str; 11] = [
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "::/127",
        "fc00::/7",
        "fe80::/10",
        "fec0::/10",
    ];

    /// An answer to a question for `name` without private addresses; none if it has none.
    pub(crate) fn without_private(
        &self,
        policy: &Policy,
        name: &Name,
        message: &Message,
    ) -> Option<Message> {
        let is_private = |record: &Record| self.is_private(policy, &record.data);
        let mut sections = [&message.answers, &message.additionals].into_iter().flatten();
        if self.exempt.cover(name) || !sections.any(is_private) {
            return None;
        }
        let mut message = message.clone();
        for section in [&mut message.answers, &mut message.additionals] {
            let taken: Vec<(Name, RecordType)> = section
                .extract_if(.., |record| self.is_private(policy, &record.data))
                .map(|record| (record.name.clone(), record.record_type()))
                .collect();
            // A signature of the whole set does not fit what is left of it.
            section.retain(|record| {
                let signed = covered(record).map(|kind| (record.name.clone(), kind));
                signed.is_none_or(|signed| !taken.contains(&signed))
            });
        }
        let edns = message.edns.get_or_insert_with(Edns::new);
        Ede::new(Ede::BLOCKED, "private address").insert(edns);
        Some(message)
    }

    fn is_private(&self, policy: &Policy, data: &RData) -> bool {
        match data {
            RData::A(v4) => self.has(v4.0.into()),
            RData::AAAA(v6) => self.has_v6(policy, v6.0),
            RData::HTTPS(https) => self.has_hint(policy, &https.0),
            RData::SVCB(svcb) => self.has_hint(policy, svcb),
            _ => false,
        }
    }

    fn has_hint(&self, policy: &Policy, svcb: &SVCB) -> bool {
        svcb.svc_params.iter().any(|(_, value)| match value {
            SvcParamValue::Ipv4Hint(hint) => hint.0.iter().any(|v4| self.has(v4.0.into())),
            SvcParamValue::Ipv6Hint(hint) => hint.0.iter().any(|v6| self.has_v6(policy, v6.0)),
            _ => false,
        })
    }

    /// Whether an IPv6 address is private, or packets for it may reach a private IPv4 address.
    fn has_v6(&self, policy: &Policy, v6: Ipv6Addr) -> bool {
        let translated = policy.containing(v6).filter_map(|pool6| pool6.extract(v6));
        let mut embedded = translated.chain(embedded(v6));
        self.has(v6.into()) || embedded.any(|v4| self.has(v4.into()))
    }

    fn has(&self, address: IpAddr) -> bool {
        self.private.iter().any(|net| net.contains(&address))
    }
}

/// The IPv4 address in an IPv6 address that needs no prefix of a translator: 6to4 (RFC 3056 section 2), the client's of Teredo
/// (RFC 4380 section 4), IPv4-mapped and IPv4-compatible (RFC 4291 section 2.5.5).
fn embedded(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    let of = |high, low| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match v6.segments() {
        [0x2002, high, low, ..] => Some(of(high, low)),
        // Teredo inverts it.
        [0x2001, 0, .., high, low] => Some(of(!high, !low)),
        _ => v6.to_ipv4(),
    }
}

#[cfg(test)]
mod tests;
