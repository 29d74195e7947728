//! NAT-PT: the DNS ALG and its policy, and what is known of the addresses.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fordway_config::Translator;
use fordway_control::{NatPtStats, NatPtStatus, OccupancyStats};
use fordway_dns64::alg::{DnsAlg, DnsCounter, DnsPolicy, DnsStreams};
use fordway_xlat::dns::DnsReader;
use fordway_xlat::nat64::{Addresses, BibEntry, BibError, Binding, Nat64, Settings};

/// The settings with the gateway that a configuration wants. It goes on from that of `earlier` settings.
pub fn with_gateway(
    mut settings: Settings,
    config: &Translator,
    earlier: Option<&Settings>,
) -> Settings {
    let Some(dns) = config.nat_pt().and_then(|nat_pt| nat_pt.dns.as_ref()) else { return settings };
    let policy = DnsPolicy {
        clients: dns.clients.clone(),
        ttl: dns.ttl,
        most_addresses: dns.most_addresses,
        most_bindings: dns.most_bindings,
    };
    let gateway = Arc::new(match earlier.and_then(of) {
        Some(earlier) => earlier.with(policy),
        None => DnsAlg::new(policy),
    });
    settings.algs.push(Arc::new(DnsStreams::new(Arc::clone(&gateway))));
    settings.dns = Some(gateway);
    settings
}

fn of(settings: &Settings) -> Option<&DnsAlg> {
    let dns: &dyn DnsReader = &**settings.dns.as_ref()?;
    (dns as &dyn Any).downcast_ref()
}

/// Applies the addresses that the configuration binds to hosts. Gives those that could not be bound.
pub fn bind_fixed(nat64: &Nat64, now: Duration) -> Vec<(Binding, BibError)> {
    let Some(addresses) = &nat64.settings().addresses else { return Vec::new() };
    let own = |entry: &BibEntry| entry.is_static && entry.binding.protocol.is_none();
    for Binding { v4, v6, .. } in nat64.bib(now).filter(own).map(|entry| entry.binding) {
        if !addresses.fixed.contains(&(v4.0, v6.0)) {
            nat64.unbind(v4.0, now);
        }
    }
    nat64.make_fixed_addresses(now)
}

/// What has been counted; `used`: addresses in the BIB, `held`: those that wait for a first session. `None`: the mode is
/// another.
pub(crate) fn stats(settings: &Settings, used: u64, held: u64) -> Option<NatPtStats> {
    let size = number_of(settings.addresses.as_ref()?);
    let addresses = OccupancyStats { used, size };
    Some(NatPtStats { addresses, held, dns: counts(settings) })
}

/// What runs. `None`: the mode is another.
pub(crate) fn status(settings: &Settings) -> Option<NatPtStatus> {
    let addresses = settings.addresses.as_ref()?;
    let text = |nets: &[ipnet::Ipv4Net]| nets.iter().map(ToString::to_string).collect();
    Some(NatPtStatus {
        addresses: text(&addresses.pool),
        fixed: addresses.fixed.len(),
        outgoing: addresses.outgoing,
        initiators: text(&addresses.initiators),
    })
}

/// Addresses that can be bound to hosts. Of networks up to /30, the first and the last are not used.
fn number_of(addresses: &Addresses) -> u64 {
    let of_net = |net: &ipnet::Ipv4Net| match net.prefix_len() {
        31 | 32 => 1 << (32 - net.prefix_len()),
        len => (1_u64 << (32 - len)) - 2,
    };
    let pool: u64 = addresses.pool.iter().map(of_net).sum();
    let beside = |(addr, _): &&(std::net::Ipv4Addr, std::net::Ipv6Addr)| {
        !addresses.pool.iter().any(|net| net.contains(addr))
    };
    pool + addresses.fixed.iter().filter(beside).count() as u64
}

/// What the gateway has done; empty if there is none.
fn counts(settings: &Settings) -> BTreeMap<String, u64> {
    let Some(counters) = of(settings).map(DnsAlg::counters) else { return BTreeMap::new() };
    let count = |it: &DnsCounter| (it.label().to_owned(), counters.get(*it));
    DnsCounter::ALL.iter().map(count).collect()
}
