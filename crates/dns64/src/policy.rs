//! What is synthesised, and for whom.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use fordway_xlat::addr::Pool6;
use hickory_proto::rr::Name;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// What DNS64 does for a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Whether anything is synthesised at all; otherwise every answer is the upstream's.
    pub enabled: bool,
    /// The translation prefixes, in order of preference. Without any, the Well-Known Prefix is used (RFC 6147 section
    /// 5.2).
    pub pool6: Vec<Pool6>,
    /// IPv4 ranges that have prefixes of their own; of several ranges the longest counts (RFC 6147 section 5, section
    /// 5.1.7).
    pub ranges: Vec<Range>,
    /// AAAA records in these networks do not count (RFC 6147 section 5.1.4).
    pub exclude: Vec<Ipv6Net>,
    /// For A records in these networks nothing is synthesised.
    pub exclude_a: Vec<Ipv4Net>,
    /// For these names, and all below them, nothing is synthesised.
    pub exempt: Names,
    /// Which names may not have private addresses; none: all may.
    pub rebinding: Option<Rebinding>,
    /// How questions for the names of synthetic addresses are answered.
    pub reverse: Reverse,
    /// The domain of the names that [`Reverse::Local`] gives.
    pub reverse_domain: Name,
    /// The names of the translator, if it has any: what the PTR of Pref64::WKA says (RFC 7050 section 3.1.1). Without
    /// any it says `ipv4only.arpa` (RFC 8880 section 7.2.1).
    pub nat64_names: Vec<Name>,
    /// Let 64:ff9b::/96 carry non-global IPv4 addresses, against RFC 6052 section 3.1.
    pub allow_private: bool,
    /// Further prefixes that are used at this site, for reverse lookups only (RFC 6147 section 5.3.1).
    /// [`Policies::new`](crate::Policies::new) adds those of all the other policies.
    pub site: Vec<Pool6>,
}

/// An IPv4 range with prefixes of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The IPv4 addresses.
    pub v4: Ipv4Net,
    /// Their prefixes, in order of preference; with none, nothing is synthesised for the range.
    pub pool6: Vec<Pool6>,
}

/// Which addresses are private, and which names may have them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebinding {
    /// Networks of private addresses. An IPv4 network stands for all IPv6 addresses that have its addresses embedded, too.
    pub private: Vec<IpNet>,
    /// The name asked for decides, and not what it is an alias of.
    pub exempt: Names,
}

/// The two ways of RFC 6147 section 5.3.1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reverse {
    /// The second way: a CNAME into IN-ADDR.ARPA, and what is found there.
    #[default]
    Cname,
    /// The first way: a local answer, such as `192-0-2-1.nat64.invalid.`
    Local,
}

/// A set of names, each with all names below it but for those that are taken out, with all below them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(HashMap<Name, bool>);

impl Policy {
    /// The prefixes of addresses that no range speaks of. If none is configured at all, it MUST be the Well-Known
    /// Prefix, and otherwise it MUST NOT (RFC 6147 section 5.2).
    pub(crate) fn prefixes(&self) -> &[Pool6] {
        match self.pool6.as_slice() {
            [] if self.ranges.is_empty() => &[Pool6::WELL_KNOWN],
            pool6 => pool6,
        }
    }

    /// The prefixes of an address: those of the longest range that it lies in.
    pub(crate) fn prefixes_of(&self, v4: Ipv4Addr) -> &[Pool6] {
        let ranges = self.ranges.iter().filter(|range| range.v4.contains(&v4));
        match ranges.max_by_key(|range| range.v4.prefix_len()) {
            Some(range) => &range.pool6,
            None => self.prefixes(),
        }
    }

    /// The longest prefix, of this policy, of the site or the Well-Known one, that an address begins with.
    pub(crate) fn covering(&self, v6: Ipv6Addr) -> Option<Pool6> {
        self.containing(v6).max_by_key(|pool6| pool6.len())
    }

    /// All prefixes, of this policy, of the site or the Well-Known one, that an address begins with: one may lie in another,
    /// and translators elsewhere need not have the longest.
    pub(crate) fn containing(&self, v6: Ipv6Addr) -> impl Iterator<Item = Pool6> {
        let ranges = self.ranges.iter().flat_map(|range| &range.pool6);
        let all = self.pool6.iter().chain(ranges).chain(&self.site).chain(&[Pool6::WELL_KNOWN]);
        all.filter(move |pool6| pool6.contains(v6)).copied()
    }

    /// Whether an AAAA record counts (RFC 6147 section 5.1.4).
    pub(crate) fn is_usable(&self, v6: Ipv6Addr) -> bool {
        !self.exclude.iter().any(|net| net.contains(&v6))
    }
}

impl Names {
    /// Puts a name in, or takes it out, with all names below it of which nothing else is said.
    pub fn set(&mut self, mut name: Name, is_in: bool) {
        name.set_fqdn(true);
        self.0.insert(name, is_in);
    }

    /// Whether `name` is one of these, or below one: of the names that something is said of, the longest counts.
    pub fn cover(&self, name: &Name) -> bool {
        if self.0.is_empty() {
            return false;
        }
        // `num_labels` does not count an asterisk.
        let labels = name.iter().count();
        let said = (0..=labels).rev().find_map(|kept| self.0.get(&name.trim_to(kept)));
        said.copied().unwrap_or(false)
    }
}

impl FromIterator<Name> for Names {
    fn from_iter<I: IntoIterator<Item = Name>>(names: I) -> Names {
        let mut all = Names::default();
        names.into_iter().for_each(|name| all.set(name, true));
        all
    }
}

impl Default for Policy {
    /// The Well-Known Prefix, and ::ffff:0:0/96 excluded.
    fn default() -> Policy {
        Policy {
            enabled: true,
            pool6: Vec::new(),
            ranges: Vec::new(),
            exclude: vec![MAPPED],
            exclude_a: Vec::new(),
            exempt: Names::default(),
            rebinding: None,
            reverse: Reverse::default(),
            reverse_domain: Name::from_labels(["nat64", "invalid"]).unwrap_or_default(),
            nat64_names: Vec::new(),
            allow_private: false,
            site: Vec::new(),
        }
    }
}

/// ::ffff:0:0/96, IPv4-mapped addresses: excluded unless told otherwise (RFC 6147 section 5.1.4).
pub const MAPPED: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96);

#[cfg(test)]
mod tests;
