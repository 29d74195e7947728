//! The content of a device's advertisements, from its settings and from its state.

use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use fordway_dns64::ndp::{
    Advertisement, INFINITY, Pref64, PrefixInformation, RouteInformation, ScaledLifetime,
};
use fordway_net::AddressV6;
use hickory_proto::rr::Name;
use ipnet::Ipv6Net;

use super::resolver::Resolver;
use super::settings::{Device, Prefixes, Rdnss};

/// A lifetime that is shorter than the last advertised one by more than this is advertised at once.
const NOTABLE: Duration = Duration::from_secs(5);

/// The state of a device, as the host has it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Facts {
    /// Index of the interface.
    pub(super) index: u32,
    /// Whether it can pass packets.
    pub(super) running: bool,
    /// MTU, in octets.
    pub(super) mtu: u32,
    /// Link-layer address; empty where there is none.
    pub(super) hardware_address: Vec<u8>,
    /// Whether what comes in here is forwarded.
    pub(super) forwarding: bool,
    /// The device's addresses.
    pub(super) addresses: Vec<AddressV6>,
    /// Global addresses of other devices.
    pub(super) elsewhere: Vec<Ipv6Addr>,
    /// When all this was so; lifetimes of addresses run from here.
    pub(super) at: Instant,
}

/// One prefix of the link. An end of `None` is a lifetime that stays the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Prefix {
    pub(super) prefix: Ipv6Net,
    /// When the last address of the device with this prefix ends to be valid.
    valid_until: Option<Instant>,
    /// When it ends to be preferred.
    preferred_until: Option<Instant>,
}

/// What is advertised, without what is withdrawn.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Content {
    pub(super) fields: Advertisement,
    pub(super) link_layer: Vec<u8>,
    pub(super) mtu: Option<u32>,
    pub(super) prefixes: Vec<Prefix>,
    pub(super) routes: Vec<RouteInformation>,
    pub(super) rdnss: Vec<Ipv6Addr>,
    pub(super) dnssl: Vec<Name>,
    pub(super) dns_lifetime: u32,
    pub(super) pref64: Vec<Pref64>,
    /// Each with its lifetime.
    pub(super) dnr: Vec<(Resolver, u32)>,
    pub(super) captive_portal: Option<String>,
    on_link: bool,
    autonomous: bool,
    valid: u32,
    preferred: u32,
}

impl Content {
    /// What is advertised on `device` in the state `facts`.
    pub(super) fn new(device: &Device, facts: &Facts) -> Content {
        // RFC 4861 section 6.2.5: a host that does not forward is no default router.
        let router_lifetime = if facts.forwarding { device.router_lifetime() } else { 0 };
        let pref64 = ScaledLifetime::from_seconds(device.option_lifetime(device.pref64_lifetime));
        Content {
            fields: Advertisement {
                cur_hop_limit: device.hop_limit,
                managed: device.managed,
                other: device.other || device.dhcpv6,
                preference: device.preference,
                router_lifetime,
                reachable_time: device.reachable,
                retrans_timer: device.retrans,
            },
            link_layer: if device.source_link_layer {
                facts.hardware_address.clone()
            } else {
                Vec::new()
            },
            mtu: device.mtu,
            prefixes: prefixes(&device.prefixes, facts),
            routes: device
                .routes
                .iter()
                .map(|route| RouteInformation {
                    prefix: route.prefix.trunc().addr(),
                    prefix_len: route.prefix.prefix_len(),
                    preference: route.preference,
                    lifetime: device.option_lifetime(route.lifetime),
                })
                .collect(),
            rdnss: rdnss(&device.rdnss, facts),
            dnssl: distinct(device.dnssl.iter().map(Name::to_lowercase)),
            dns_lifetime: device.option_lifetime(device.rdnss_lifetime),
            pref64: distinct(
                device
                    .pref64
                    .iter()
                    .filter_map(|it| Pref64::new(it.addr(), it.prefix_len(), pref64)),
            ),
            dnr: device
                .dnr
                .iter()
                .map(|it| (it.clone(), device.option_lifetime(it.lifetime)))
                .collect(),
            captive_portal: device.captive_portal.clone(),
            on_link: device.on_link,
            autonomous: device.autonomous,
            valid: device.valid,
            preferred: device.preferred,
        }
    }

    /// The option for a prefix at `now`.
    pub(super) fn information(&self, prefix: &Prefix, now: Instant) -> PrefixInformation {
        let valid_lifetime = shorter(self.valid, prefix.valid_until, now);
        let preferred = shorter(self.preferred, prefix.preferred_until, now);
        PrefixInformation {
            prefix: prefix.prefix.addr(),
            prefix_len: prefix.prefix.prefix_len(),
            on_link: self.on_link,
            autonomous: self.autonomous,
            valid_lifetime,
            preferred_lifetime: preferred.min(valid_lifetime),
        }
    }

    /// Whether `new` is to be sent soon to hosts that have received `self`. Lifetimes that run down, or that were made
    /// longer, can wait.
    pub(super) fn differs(&self, new: &Content) -> bool {
        let sooner = |old: Option<Instant>, new: Option<Instant>| match (old, new) {
            (None, Some(_)) => true,
            (Some(old), Some(new)) => new + NOTABLE < old,
            (_, None) => false,
        };
        let notable = |(a, b): (&Prefix, &Prefix)| {
            a.prefix != b.prefix
                || sooner(a.valid_until, b.valid_until)
                || sooner(a.preferred_until, b.preferred_until)
        };
        let without_prefixes = |it: &Content| Content { prefixes: Vec::new(), ..it.clone() };
        self.prefixes.len() != new.prefixes.len()
            || self.prefixes.iter().zip(&new.prefixes).any(notable)
            || without_prefixes(self) != without_prefixes(new)
    }
}

/// The shorter of a lifetime and of the time left until `end`.
fn shorter(lifetime: u32, end: Option<Instant>, now: Instant) -> u32 {
    let left = |end: Instant| {
        u32::try_from(end.saturating_duration_since(now).as_secs()).unwrap_or(INFINITY - 1)
    };
    end.map_or(lifetime, |end| lifetime.min(left(end)))
}

fn prefixes(wanted: &Prefixes, facts: &Facts) -> Vec<Prefix> {
    let listed = match wanted {
        Prefixes::Listed(listed) => listed,
        Prefixes::OfDevice => return of_device(facts),
    };
    distinct(listed.iter().map(|prefix| Prefix {
        prefix: prefix.trunc(),
        valid_until: None,
        preferred_until: None,
    }))
}

/// The global /64s of the device, in order; each lives as long as the longest-lived address of it.
fn of_device(facts: &Facts) -> Vec<Prefix> {
    let until = |seconds: Option<u32>| seconds.map(|it| facts.at + Duration::from_secs(it.into()));
    // No end outlasts all.
    let later = |a: Option<Instant>, b: Option<Instant>| a.zip(b).map(|(a, b)| a.max(b));
    let mut found: Vec<Prefix> = Vec::new();
    for address in facts.addresses.iter().filter(|it| it.address.prefix_len() == 64) {
        if !is_global(address.address.addr()) || address.duplicate {
            continue;
        }
        let prefix = address.address.trunc();
        let (valid, preferred) = (until(address.valid), until(address.preferred));
        match found.iter_mut().find(|it| it.prefix == prefix) {
            Some(it) => {
                it.valid_until = later(it.valid_until, valid);
                it.preferred_until = later(it.preferred_until, preferred);
            }
            None => found.push(Prefix { prefix, valid_until: valid, preferred_until: preferred }),
        }
    }
    found.sort_by_key(|it| it.prefix);
    found
}

fn rdnss(wanted: &Rdnss, facts: &Facts) -> Vec<Ipv6Addr> {
    let serving = match wanted {
        Rdnss::Listed(listed) => return distinct(listed.iter().copied()),
        Rdnss::Serving(serving) => serving,
    };
    let has = |address: &Ipv6Addr| {
        facts.addresses.iter().any(|it| it.address.addr() == *address && !it.duplicate)
    };
    let mut found: Vec<Ipv6Addr> = serving.iter().copied().filter(has).collect();
    if serving.contains(&Ipv6Addr::UNSPECIFIED) {
        found.extend(own_address(facts));
    }
    if found.is_empty() {
        // The host's addresses are reached through it wherever they are.
        found.extend(serving.iter().filter(|it| facts.elsewhere.contains(it)));
    }
    distinct(found)
}

/// An address of the device that hosts can rely on: global rather than link-local, one that lives long
/// and is not temporary.
fn own_address(facts: &Facts) -> Option<Ipv6Addr> {
    let rank = |it: &&AddressV6| {
        (
            !is_global(it.address.addr()),
            it.deprecated(),
            it.temporary,
            std::cmp::Reverse(it.valid.unwrap_or(u32::MAX)),
            it.address.addr(),
        )
    };
    facts.addresses.iter().filter(|it| it.usable()).min_by_key(rank).map(|it| it.address.addr())
}

/// Whether an address is reachable beyond its link: global, or unique local (RFC 4193).
pub(super) fn is_global(address: Ipv6Addr) -> bool {
    !address.is_unicast_link_local()
        && !address.is_multicast()
        && !address.is_loopback()
        && !address.is_unspecified()
}

/// Without what came before, in the order given.
fn distinct<T: PartialEq>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for item in items {
        if !found.contains(&item) {
            found.push(item);
        }
    }
    found
}

#[cfg(test)]
pub(crate) mod tests;
