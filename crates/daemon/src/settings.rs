//! From the configuration to what the servers are told.

#[cfg(feature = "nat-pt")]
pub mod nat_pt;
#[cfg(not(feature = "nat-pt"))]
#[path = "settings/nat_pt/without.rs"]
pub mod nat_pt;
mod proxy;
mod trt;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use fordway_config::{Advertise, Config, Dns64};
use fordway_dns64::{Names, Policies, Policy, Range, Rebinding};
use fordway_nameserver as dns64;
use fordway_nameserver::{Cookies, Rate};
use fordway_net::{Address, IpNet};
use fordway_resolver as upstream;
use fordway_router::{self as router, Device, Prefixes, Rdnss, Resolver, Route};
use fordway_serve::Acl;
use fordway_xlat::addr::Pool6;
use ipnet::{Ipv4Net, Ipv6Net};

use crate::failure::Failure;
pub use proxy::proxies;
pub(crate) use trt::relays;

/// Threads at most where the file does not say how many: as many as a file may have.
const MAX_THREADS: NonZeroUsize = NonZeroUsize::new(64).unwrap();

/// Of the octets for the cache, those for ready answers: one part of four.
const READY: u64 = 4;

/// What the DNS64 server is told. `local`: the networks of this host.
pub(crate) fn dns64(config: &Config, local: &[IpNet]) -> Result<Option<dns64::Settings>, Failure> {
    let Some(dns64) = &config.dns64 else { return Ok(None) };
    let allow = dns64.allow.as_deref().unwrap_or(local);
    // 0 is no rate in the file.
    let positive = |number: u32| NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN);
    let rate =
        dns64.rate.map(|rate| Rate { per_second: positive(rate), burst: positive(dns64.burst) });
    Ok(Some(dns64::Settings {
        listen: dns64.listen.clone(),
        listen_tls: dns64.listen_tls.clone(),
        listen_https: dns64.listen_https.clone(),
        tls: dns64.tls().map(|(certificate, key)| dns64::Files {
            certificate: certificate.clone(),
            key: key.clone(),
        }),
        threads: threads(dns64.threads),
        upstream: upstream(dns64),
        policies: policies(config, dns64)?,
        allow: Acl::new(allow.iter().copied()),
        rate,
        cache_octets: octets(dns64.cache / READY),
        cookies: match (dns64.cookies, &dns64.cookie_secret) {
            (false, _) => Cookies::Off,
            (true, None) => Cookies::Drawn,
            (true, Some(file)) => Cookies::File(file.clone()),
        },
        prefetch: dns64.prefetch,
        udp_size: dns64.udp_size,
        limits: dns64.limits.clone(),
    }))
}

fn threads(configured: Option<usize>) -> NonZeroUsize {
    let available = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    configured.and_then(NonZeroUsize::new).unwrap_or_else(|| available().min(MAX_THREADS))
}

fn octets(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Whom DNS64 asks, and how.
pub fn upstream(dns64: &Dns64) -> upstream::Settings {
    let anchors = || match &dns64.trust_anchor {
        Some(file) => upstream::TrustAnchors::File(file.clone()),
        None => upstream::TrustAnchors::BuiltIn,
    };
    let domains = dns64.forwards.iter().map(|it| upstream::Domain {
        names: it.domains.clone(),
        servers: it.upstream.clone(),
        validate: it.validate,
    });
    upstream::Settings {
        domains: domains.collect(),
        ca: dns64.ca.clone(),
        timeout: dns64.timeout,
        attempts: dns64.attempts.into(),
        deadline: dns64.deadline,
        cache_octets: octets(dns64.cache - dns64.cache / READY),
        cookies: dns64.cookies,
        stale: dns64.serve_stale.unwrap_or_default(),
        stale_after: dns64.stale_after,
        validate: dns64.validate.then(anchors),
        ..upstream::Settings::new(dns64.upstream.clone())
    }
}

/// The prefixes that addresses are made of where no policy says otherwise: `[dns64]`'s own, or those of the
/// translators.
pub fn prefixes(config: &Config) -> Vec<Pool6> {
    let written = config.dns64.as_ref().and_then(|dns64| dns64.pool6.clone());
    written.unwrap_or_else(|| config.pool6())
}

fn policies(config: &Config, dns64: &Dns64) -> Result<Policies, Failure> {
    let pool6 = prefixes(config);
    let gateways = config.translators.iter().filter(|it| it.clat().is_none());
    let translators_do = gateways.clone().any(|translator| translator.allow_private);
    let default = Policy {
        // A translator that is taken down leaves no prefix to make addresses of.
        enabled: !pool6.is_empty(),
        ranges: ranges(&dns64.ranges),
        exclude: dns64.exclude.clone(),
        exclude_a: dns64.exclude_a.clone(),
        exempt: exempt(dns64, &dns64.exempt),
        rebinding: rebinding(dns64),
        reverse: dns64.reverse,
        nat64_names: dns64.nat64_names.clone(),
        allow_private: dns64.allow_private.unwrap_or(translators_do),
        site: config.pool6().into_iter().filter(|it| !pool6.contains(it)).collect(),
        pool6,
        ..Policy::default()
    };
    let default = match &dns64.reverse_domain {
        Some(domain) => Policy { reverse_domain: domain.clone(), ..default },
        None => default,
    };
    let by_client = dns64.policies.iter().map(|it| {
        let pool6 = it.pool6.clone().unwrap_or_else(|| default.pool6.clone());
        let own = it.exempt.as_deref().map(|names| exempt(dns64, names));
        let policy = Policy {
            enabled: it.enable && !pool6.is_empty(),
            pool6,
            ranges: it.ranges.as_deref().map_or_else(|| default.ranges.clone(), ranges),
            exclude: it.exclude.clone().unwrap_or_else(|| default.exclude.clone()),
            exclude_a: it.exclude_a.clone().unwrap_or_else(|| default.exclude_a.clone()),
            exempt: own.unwrap_or_else(|| default.exempt.clone()),
            ..default.clone()
        };
        (it.clients.clone(), policy)
    });
    let by_client = by_client.collect();
    Policies::new(default, by_client).map_err(|error| Failure::failed(format!("[dns64]: {error}")))
}

/// Which names may not have private addresses.
fn rebinding(dns64: &Dns64) -> Option<Rebinding> {
    let mut exempt: Names = dns64.rebind_exempt.iter().cloned().collect();
    for forward in &dns64.forwards {
        for name in &forward.domains {
            exempt.set(name.clone(), !forward.rebind_protection);
        }
    }
    let private = dns64.rebind_private.clone();
    dns64.rebind_protection.then_some(Rebinding { private, exempt })
}

/// Names for which nothing is synthesised: those that are written, and what names with servers of their own say.
fn exempt(dns64: &Dns64, written: &[fordway_config::Name]) -> Names {
    let mut names: Names = written.iter().cloned().collect();
    for forward in &dns64.forwards {
        if let Some(synthesise) = forward.synthesise {
            forward.domains.iter().for_each(|name| names.set(name.clone(), !synthesise));
        }
    }
    names
}

/// Pairs of a network and a prefix as networks with all their prefixes.
fn ranges(pairs: &[(Ipv4Net, Pool6)]) -> Vec<Range> {
    let mut by_net: BTreeMap<Ipv4Net, Vec<Pool6>> = BTreeMap::new();
    for (v4, pool6) in pairs {
        by_net.entry(*v4).or_default().push(*pool6);
    }
    by_net.into_iter().map(|(v4, pool6)| Range { v4, pool6 }).collect()
}

/// What is advertised; `None`: nothing.
pub fn router(config: &Config) -> Option<router::Settings> {
    let devices = config.advertise.iter().map(|advertise| device(config, advertise));
    let devices: Vec<Device> = devices.collect();
    (!devices.is_empty()).then_some(router::Settings { devices })
}

fn device(config: &Config, advertise: &Advertise) -> Device {
    let pref64 = advertise.pref64.clone().unwrap_or_else(|| prefixes(config));
    let route = |route: &fordway_config::AdvertisedRoute| Route {
        prefix: route.prefix,
        preference: route.preference,
        lifetime: route.lifetime.map(seconds),
    };
    let resolver = |it: &fordway_config::AdvertisedResolver| Resolver {
        name: it.name.clone(),
        priority: it.priority,
        addresses: it.addresses.clone(),
        alpn: it.alpn.iter().map(|it| (*it).to_owned()).collect(),
        port: it.port,
        dohpath: Some(it.dohpath.clone()),
        lifetime: it.lifetime.map(seconds),
    };
    Device {
        device: advertise.device.to_string(),
        prefixes: match &advertise.prefixes {
            Some(prefixes) => Prefixes::Listed(prefixes.clone()),
            None => Prefixes::OfDevice,
        },
        on_link: advertise.on_link,
        autonomous: advertise.autonomous,
        valid: seconds(advertise.valid),
        preferred: seconds(advertise.preferred),
        rdnss: match &advertise.rdnss {
            Some(rdnss) => Rdnss::Listed(rdnss.clone()),
            None => Rdnss::Serving(serving(config)),
        },
        rdnss_lifetime: advertise.dns_lifetime.map(seconds),
        dnssl: advertise.dnssl.clone(),
        pref64: pref64.into_iter().map(Pool6::net).collect(),
        pref64_lifetime: advertise.pref64_lifetime.map(seconds),
        dnr: advertise.dnr.iter().map(resolver).collect(),
        captive_portal: advertise.captive_portal.clone(),
        routes: advertise.routes.iter().map(route).collect(),
        mtu: advertise.mtu,
        // The file has at most 65535.
        lifetime: advertise.lifetime.map(|it| u16::try_from(it.as_secs()).unwrap_or(u16::MAX)),
        interval: advertise.interval,
        min_interval: advertise.min_interval,
        managed: advertise.managed,
        other: advertise.other(),
        preference: advertise.preference,
        hop_limit: advertise.hop_limit,
        reachable: millis(advertise.reachable),
        retrans: millis(advertise.retrans),
        source_link_layer: advertise.source_link_layer,
        dhcpv6: advertise.dhcpv6,
    }
}

/// The IPv6 addresses at which hosts may ask our DNS64 server: those on the port of DNS, for neither RFC 8106
/// nor DHCPv6 can tell another.
fn serving(config: &Config) -> Vec<Ipv6Addr> {
    let listen = config.dns64.iter().flat_map(|dns64| &dns64.listen);
    let usual = listen.filter(|address| address.port() == 53);
    let v6 = usual.filter_map(|address| match address.ip() {
        IpAddr::V6(address) if !address.is_loopback() => Some(address),
        _ => None,
    });
    v6.collect()
}

fn seconds(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX)
}

fn millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

/// The networks whose hosts are this host's neighbours, and the host itself: who may ask where the file says
/// nothing.
pub(crate) fn local(addresses: &[Address]) -> Vec<IpNet> {
    let link_local = Ipv6Net::new_assert(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10);
    let loopback4 = Ipv4Net::new_assert([127, 0, 0, 0].into(), 8);
    let always =
        [link_local.into(), loopback4.into(), IpNet::from(IpAddr::from(Ipv6Addr::LOCALHOST))];
    // A network of length 0 is a mistake, which must not make an open resolver.
    let own = addresses.iter().map(|it| it.address.trunc()).filter(|net| net.prefix_len() > 0);
    IpNet::aggregate(&own.chain(always).collect())
}

#[cfg(test)]
mod tests;
