//! From `[[proxy]]` to what proxies are told.

use std::collections::BTreeMap;

use fordway_config::{
    Config, Proxy, ProxyBackend, ProxyCheckKind, ProxyMode, ProxyRoute, ProxyRule,
};
use fordway_net::IpNet;
use fordway_proxy::{
    Backend, Check, CheckKind, Eyeballs, Files, Forward, Log, Mode, Passthrough, Ports, Reverse,
    Route, Rule, Rules, Settings,
};
use fordway_resolver as upstream;
use fordway_serve::Acl;
use fordway_xlat::addr::Pool6;
use ipnet::{Ipv4Net, Ipv6Net};

/// Octets of answers that a proxy's own resolver keeps.
const CACHE: usize = 4 << 20;

/// What the proxies are told, by name. `local`: the networks of this host.
pub fn proxies(config: &Config, local: &[IpNet]) -> BTreeMap<String, Settings> {
    let translated: Vec<Pool6> =
        config.translators.iter().flat_map(fordway_config::Translator::pool6).copied().collect();
    let one = |proxy: &Proxy| (proxy.name.to_string(), one(proxy, &translated, local));
    config.proxies.iter().map(one).collect()
}

/// `translated`: the prefixes of the translators beside it, through which it may be made to reach IPv4.
fn one(proxy: &Proxy, translated: &[Pool6], local: &[IpNet]) -> Settings {
    let everybody: [IpNet; 2] = [Ipv4Net::default().into(), Ipv6Net::default().into()];
    let (mode, default) = match &proxy.mode {
        ProxyMode::Forward(forward) => {
            let rules = forward.rules.iter().map(rule).collect();
            let forward = Forward {
                connect_ports: Ports(forward.connect_ports.clone()),
                ports: Ports(forward.ports.clone()),
                rules: Rules { rules, default: forward.default },
            };
            (Mode::Forward(forward), local)
        }
        ProxyMode::Reverse(reverse) => {
            let reverse = Reverse {
                upstream: reverse.upstream.clone(),
                host: reverse.host.clone(),
                backend: backend(&reverse.backend),
            };
            (Mode::Reverse(reverse), &everybody[..])
        }
        ProxyMode::Passthrough(it) => {
            let route =
                |it: &ProxyRoute| Route { names: it.names.clone(), upstream: it.upstream.clone() };
            let routes = it.routes.iter().map(route).collect();
            let passthrough = Passthrough { routes, backend: backend(&it.backend) };
            (Mode::Passthrough(passthrough), &everybody[..])
        }
    };
    Settings {
        name: proxy.name.to_string(),
        listen: proxy.listen.clone(),
        threads: super::threads(proxy.threads),
        mode,
        allow: Acl::new(proxy.allow().map_or(default, |allow| allow).iter().copied()),
        resolver: (!proxy.resolver.is_empty()).then(|| upstream::Settings {
            ca: proxy.ca.clone(),
            cache_octets: CACHE,
            ..upstream::Settings::new(proxy.resolver.clone())
        }),
        pref64: proxy.pref64.clone(),
        translated: [&proxy.pref64, translated].concat(),
        eyeballs: Eyeballs { attempt: proxy.attempt_delay, resolution: proxy.resolution_delay },
        tls: proxy
            .certificates()
            .map(|(certificate, key)| Files { certificate: certificate.clone(), key: key.clone() })
            .collect(),
        accept_proxy: Acl::new(proxy.accept_proxy.iter().copied()),
        http2: proxy.http2,
        via: proxy.via.clone(),
        forwarded: proxy.forwarded,
        upgrade: proxy.upgrade.clone(),
        limits: proxy.limits.clone(),
        log: proxy.log.clone().map(|target| Log { target, format: proxy.log_format }),
    }
}

fn backend(backend: &ProxyBackend) -> Backend {
    let check = &backend.check;
    let kind = match check.kind {
        ProxyCheckKind::Off => None,
        ProxyCheckKind::Tcp => Some(CheckKind::Tcp),
        ProxyCheckKind::Tls => Some(CheckKind::Tls { name: check.host.clone() }),
        ProxyCheckKind::Http => Some(CheckKind::Http {
            path: check.path.clone(),
            host: check.host.clone(),
            status: check.status.clone(),
        }),
    };
    let check = kind.map(|kind| Check {
        kind,
        interval: check.interval,
        timeout: check.timeout,
        rise: check.rise,
        fall: check.fall,
    });
    Backend {
        balance: backend.balance,
        pause: backend.pause,
        send_proxy: backend.send_proxy,
        check,
    }
}

fn rule(rule: &ProxyRule) -> Rule {
    Rule {
        clients: rule.clients.as_ref().map(|clients| Acl::new(clients.iter().copied())),
        to: rule.to.clone().unwrap_or_default(),
        ports: rule.ports.clone().map(Ports),
        allow: rule.allow,
    }
}
