//! From `[[proxy]]` to what proxies are told.

use std::collections::BTreeMap;

use fordway_config::{
    Config, Proxy, ProxyDestination, ProxyForwarded, ProxyLog, ProxyLogFormat, ProxyMode,
    ProxyPorts, ProxyRule, ProxyServer,
};
use fordway_net::IpNet;
use fordway_proxy::{
    Authority, Destination, Eyeballs, Forward, Forwarded, Host, Limits, Log, LogFormat, LogTarget,
    Mode, Ports, Reverse, Rule, Rules, Settings, Tls,
};
use fordway_resolver as upstream;
use fordway_serve::{Acl, ClientLen};
use fordway_xlat::addr::Pool6;
use ipnet::{Ipv4Net, Ipv6Net};

/// Octets of answers that a proxy's own resolver keeps.
const CACHE: usize = 4 << 20;

/// What the proxies are told, by name. `local`: the networks of this host.
pub(crate) fn proxies(config: &Config, local: &[IpNet]) -> BTreeMap<String, Settings> {
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
                connect_ports: ports(&forward.connect_ports),
                ports: ports(&forward.ports),
                rules: Rules { rules, default: forward.default },
            };
            (Mode::Forward(forward), local)
        }
        ProxyMode::Reverse(reverse) => {
            let reverse = Reverse {
                upstream: reverse.upstream.iter().map(server).collect(),
                balance: reverse.balance,
                host: reverse.host.clone(),
                pause: reverse.pause,
            };
            (Mode::Reverse(reverse), &everybody[..])
        }
    };
    let limits = &proxy.limits;
    Settings {
        name: proxy.name.to_string(),
        listen: proxy.listen.clone(),
        threads: super::threads(proxy.threads),
        mode,
        allow: Acl::new(proxy.allow().map_or(default, |allow| allow).iter().copied()),
        resolver: (!proxy.resolver.is_empty()).then(|| upstream::Settings {
            ca: proxy.ca.clone(),
            cache_octets: CACHE,
            ..upstream::Settings::new(proxy.resolver.iter().map(super::server).collect())
        }),
        pref64: proxy.pref64.clone(),
        translated: [&proxy.pref64, translated].concat(),
        eyeballs: Eyeballs { attempt: proxy.attempt_delay, resolution: proxy.resolution_delay },
        tls: proxy
            .tls()
            .map(|(certificate, key)| Tls { certificate: certificate.clone(), key: key.clone() }),
        http2: proxy.http2,
        via: proxy.via.clone(),
        forwarded: match proxy.forwarded {
            ProxyForwarded::Off => Forwarded::Off,
            ProxyForwarded::Replace => Forwarded::Replace,
            ProxyForwarded::Append => Forwarded::Append,
        },
        upgrade: proxy.upgrade.clone(),
        limits: Limits {
            header: limits.header as usize,
            target: limits.target as usize,
            fields: limits.fields as usize,
            body: limits.body,
            header_time: limits.header_time,
            connect_time: limits.connect_time,
            response_time: limits.response_time,
            idle_time: limits.idle_time,
            keep_alive: limits.keep_alive,
            requests: limits.requests.into(),
            connections: limits.connections as usize,
            connections_per_client: limits.connections_per_client as usize,
            client_len: ClientLen { v6: limits.client_len, v4: limits.client_len4 },
            streams: limits.streams,
            server_connections: limits.server_connections as usize,
            pool: limits.pool as usize,
            pool_time: limits.pool_time,
            drain: limits.drain,
        },
        log: proxy.log.as_ref().map(|log| Log {
            target: match log {
                ProxyLog::Stdout => LogTarget::Stdout,
                ProxyLog::File(file) => LogTarget::File(file.clone()),
            },
            format: match proxy.log_format {
                ProxyLogFormat::Common => LogFormat::Common,
                ProxyLogFormat::Combined => LogFormat::Combined,
                ProxyLogFormat::Json => LogFormat::Json,
            },
        }),
    }
}

fn ports(ports: &[ProxyPorts]) -> Ports {
    Ports(ports.iter().map(|it| it.0.clone()).collect())
}

fn rule(rule: &ProxyRule) -> Rule {
    let to = rule.to.iter().flatten().map(|to| match to {
        ProxyDestination::Name(name) => Destination::Name(name.clone()),
        ProxyDestination::Below(name) => Destination::Below(name.clone()),
        ProxyDestination::Net(net) => Destination::Net(*net),
    });
    Rule {
        clients: rule.clients.as_ref().map(|clients| Acl::new(clients.iter().copied())),
        to: to.collect(),
        ports: rule.ports.as_deref().map(ports),
        allow: rule.allow,
    }
}

fn server(server: &ProxyServer) -> Authority {
    match server {
        ProxyServer::Address(address) => Authority::from(*address),
        ProxyServer::Name(name, port) => Authority { host: Host::Name(name.clone()), port: *port },
    }
}
