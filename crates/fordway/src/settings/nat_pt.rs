//! The DNS ALG messages of a NAT-PT: which policy it has, and what it has done.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use fordway_config::Translator;
use fordway_dns64::alg::{DnsAlg, DnsCounter, DnsPolicy, DnsStreams};
use fordway_xlat::dns::DnsReader;
use fordway_xlat::nat64::Settings;

/// The settings with the gateway that a configuration wants. It goes on from that of `earlier` settings.
pub(crate) fn with_gateway(
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

/// What the gateway has done; empty if there is none.
pub(crate) fn counts(settings: &Settings) -> BTreeMap<String, u64> {
    let Some(counters) = of(settings).map(DnsAlg::counters) else { return BTreeMap::new() };
    let count = |it: &DnsCounter| (it.label().to_owned(), counters.get(*it));
    DnsCounter::ALL.iter().map(count).collect()
}
