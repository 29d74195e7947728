//! What other routers of a link advertise, and whether it agrees (RFC 4861 section 6.2.7, RFC 8781 section 5.2, RFC 8910 section 3).

use std::collections::BTreeSet;
use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use fordway_dns64::ndp::{Advertisement, INFINITY, NdOption, Options, PrefixInformation};
use hickory_proto::rr::Name;
use ipnet::Ipv6Net;

use super::content::Content;
use super::ledger::Item;

/// Lifetimes that run down may differ by so much, in seconds: two clocks, and the time on the way.
const SKEW: u32 = 5;
/// Most items of others that are remembered; a host could invent any number.
const HEARD: usize = 256;
/// Most contradictions that are remembered as reported.
const REPORTED: usize = 64;

/// What others advertise on one link.
#[derive(Debug, Default)]
pub(super) struct Others {
    heard: Vec<(Ipv6Addr, Item, Instant)>,
    reported: BTreeSet<(Ipv6Addr, Contradiction)>,
}

/// What another router advertises differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub(super) enum Contradiction {
    #[error("hop limit")]
    HopLimit,
    #[error("flag M (addresses by DHCPv6)")]
    Managed,
    #[error("flag O (other configuration by DHCPv6)")]
    Other,
    #[error("reachable time")]
    ReachableTime,
    #[error("retransmission timer")]
    RetransTimer,
    #[error("MTU")]
    Mtu,
    #[error("preferred lifetime of prefix {0}")]
    PreferredLifetime(Ipv6Net),
    #[error("valid lifetime of prefix {0}")]
    ValidLifetime(Ipv6Net),
    #[error("NAT64 prefixes")]
    Pref64,
    #[error("captive portal")]
    CaptivePortal,
}

impl Others {
    /// Takes a valid advertisement of another router; `ours` is what this one advertises.
    pub(super) fn receive(
        &mut self,
        router: Ipv6Addr,
        fields: &Advertisement,
        options: &Options<'_>,
        ours: &Content,
        now: Instant,
    ) -> Vec<Contradiction> {
        self.heard.retain(|(_, _, until)| *until > now);
        for (item, lifetime) in options.clone().flat_map(|it| items(it, fields)) {
            self.heard.retain(|(from, it, _)| *from != router || *it != item);
            if lifetime > 0 && self.heard.len() < HEARD {
                let until = now + Duration::from_secs(lifetime.into());
                self.heard.push((router, item, until));
            }
        }
        contradictions(fields, options, ours, now)
    }

    /// Whether another router still advertises this.
    pub(super) fn advertise(&self, item: &Item, now: Instant) -> bool {
        self.heard.iter().any(|(_, it, until)| it == item && *until > now)
    }

    /// Whether a contradiction is new, and so is to be logged.
    pub(super) fn first(&mut self, router: Ipv6Addr, what: Contradiction) -> bool {
        self.reported.len() < REPORTED && self.reported.insert((router, what))
    }
}

/// The items of an option of an advertisement with these `fields`, each with its lifetime.
fn items(option: NdOption<'_>, fields: &Advertisement) -> Vec<(Item, u32)> {
    let one = |prefix, len, item: fn(Ipv6Net) -> Item, lifetime| {
        Ipv6Net::new(prefix, len).map(|net| (item(net), lifetime)).into_iter().collect()
    };
    match option {
        NdOption::Prefix(it) => one(it.prefix, it.prefix_len, Item::Prefix, it.preferred_lifetime),
        NdOption::Route(it) => one(it.prefix, it.prefix_len, Item::Route, it.lifetime),
        NdOption::Pref64(it) => {
            one(it.prefix(), it.prefix_len(), Item::Pref64, it.lifetime().seconds())
        }
        NdOption::Rdnss(it) => {
            it.addresses().map(|server| (Item::Rdnss(server), it.lifetime)).collect()
        }
        NdOption::Dnssl(it) => {
            let name = |labels| Name::from_labels(labels).ok().map(|name| name.to_lowercase());
            it.names()
                .filter_map(|it| name(it.labels()))
                .map(|name| (Item::Dnssl(name), it.lifetime))
                .collect()
        }
        NdOption::EncryptedDns(it) => {
            let name = Name::from_labels(it.name.labels()).ok();
            name.map(|name| (Item::Dnr(name.to_lowercase()), it.lifetime)).into_iter().collect()
        }
        // It has the router's lifetime.
        NdOption::CaptivePortal(_) => vec![(Item::CaptivePortal, fields.router_lifetime.into())],
        _ => Vec::new(),
    }
}

fn contradictions(
    theirs: &Advertisement,
    options: &Options<'_>,
    ours: &Content,
    now: Instant,
) -> Vec<Contradiction> {
    let fields = &ours.fields;
    // Zero is unspecified.
    let differ = |a: u32, b: u32| a != 0 && b != 0 && a != b;
    let hops = differ(theirs.cur_hop_limit.into(), fields.cur_hop_limit.into());
    let simple = [
        (hops, Contradiction::HopLimit),
        (theirs.managed != fields.managed, Contradiction::Managed),
        (theirs.other != fields.other, Contradiction::Other),
        (differ(theirs.reachable_time, fields.reachable_time), Contradiction::ReachableTime),
        (differ(theirs.retrans_timer, fields.retrans_timer), Contradiction::RetransTimer),
    ];
    let mut found: Vec<Contradiction> =
        simple.into_iter().filter(|(differ, _)| *differ).map(|(_, what)| what).collect();
    let (mut valid, mut withdrawn) = (Vec::new(), Vec::new());
    for option in options.clone() {
        match option {
            NdOption::Mtu(mtu) if ours.mtu.is_some_and(|our| our != mtu) => {
                found.push(Contradiction::Mtu);
            }
            NdOption::CaptivePortal(uri)
                if ours.captive_portal.as_ref().is_some_and(|our| our != uri) =>
            {
                found.push(Contradiction::CaptivePortal);
            }
            NdOption::Prefix(theirs) => found.extend(lifetimes(&theirs, ours, now)),
            NdOption::Pref64(it) => {
                let list = if it.lifetime().seconds() > 0 { &mut valid } else { &mut withdrawn };
                list.push((it.prefix(), it.prefix_len()));
            }
            _ => {}
        }
    }
    if pref64(&valid, &withdrawn, ours) {
        found.push(Contradiction::Pref64);
    }
    found
}

/// The lifetimes of a prefix that both advertise.
fn lifetimes<'a>(
    theirs: &'a PrefixInformation,
    ours: &'a Content,
    now: Instant,
) -> impl Iterator<Item = Contradiction> + 'a {
    let same = ours.prefixes.iter().find(|it| {
        (it.prefix.addr(), it.prefix.prefix_len()) == (theirs.prefix, theirs.prefix_len)
    });
    same.into_iter().flat_map(move |it| {
        let info = ours.information(it, now);
        let differ = |a: u32, b: u32| (a == INFINITY) != (b == INFINITY) || a.abs_diff(b) > SKEW;
        let valid = differ(theirs.valid_lifetime, info.valid_lifetime)
            .then_some(Contradiction::ValidLifetime(it.prefix));
        let preferred = differ(theirs.preferred_lifetime, info.preferred_lifetime)
            .then_some(Contradiction::PreferredLifetime(it.prefix));
        valid.into_iter().chain(preferred)
    })
}

/// Whether the sets of NAT64 prefixes differ. A router that advertises none does not change what hosts use.
fn pref64(valid: &[(Ipv6Addr, u8)], withdrawn: &[(Ipv6Addr, u8)], ours: &Content) -> bool {
    let our: Vec<(Ipv6Addr, u8)> =
        ours.pref64.iter().map(|it| (it.prefix(), it.prefix_len())).collect();
    let differ = !valid.is_empty()
        && (our.iter().any(|it| !valid.contains(it)) || valid.iter().any(|it| !our.contains(it)));
    differ || withdrawn.iter().any(|it| our.contains(it))
}

#[cfg(test)]
mod tests;
