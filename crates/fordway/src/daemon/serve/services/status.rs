//! What is known of the servers that run.

use fordway_config::Config;
use fordway_nameserver as dns64;
use fordway_proxy as proxy;
use fordway_router as router;

use super::Services;
use fordway_control::{
    AdvertiseStatus, Dns64Status, ProxyStatus, TrtStats, TrtStatus, UpstreamStatus,
};

impl Services {
    /// The DNS64 server, if one runs.
    pub(crate) fn dns64_status(&self, config: &Config) -> Option<Dns64Status> {
        let (settings, stats) = (self.dns64.settings()?, self.dns64_stats()?);
        let policies = config.dns64.as_ref().map_or(0, |dns64| dns64.policies.len());
        let allow = config.dns64.as_ref().and_then(|dns64| dns64.allow.clone());
        let default = settings.policies.iter().next();
        let pool6 = default.filter(|policy| policy.enabled).map(|policy| policy.pool6.as_slice());
        let upstream = stats.upstream.servers.into_iter().map(|server| UpstreamStatus {
            server: server.server,
            alive: server.alive,
            // 0 is no time.
            rtt_us: Some(server.rtt_us).filter(|rtt| *rtt > 0),
        });
        Some(Dns64Status {
            listen: settings.listen.clone(),
            threads: settings.threads.get(),
            pool6: pool6.unwrap_or_default().iter().map(ToString::to_string).collect(),
            policies,
            allow: allow.unwrap_or_else(|| self.seen.local.clone()),
            validate: settings.upstream.validate.is_some(),
            upstream: upstream.collect(),
        })
    }

    /// The devices with router advertisements.
    pub(crate) fn advertise_status(&self) -> Vec<AdvertiseStatus> {
        let devices = self.router_stats().map(|stats| stats.devices).unwrap_or_default();
        devices.iter().map(AdvertiseStatus::from).collect()
    }

    /// The transport relays.
    pub(crate) fn trt_status(&self, config: &Config) -> Vec<TrtStatus> {
        let relays = self.relays.iter().map(|(server, settings)| {
            let entry = config.trt.iter().find(|trt| trt.name.as_str() == settings.name);
            let allow = entry.and_then(|trt| trt.allow.clone());
            let stats = server.stats();
            TrtStatus {
                name: settings.name.clone(),
                pool6: settings.pool6.iter().map(ToString::to_string).collect(),
                threads: settings.threads.get(),
                whole: server.is_whole(),
                tcp: settings.tcp,
                udp: settings.udp,
                allow: allow.unwrap_or_else(|| self.seen.local.clone()),
                source4: settings.source4.clone(),
                connections: stats.connections,
                max_connections: settings.limits.connections as u64,
                sessions: stats.sessions,
                max_sessions: settings.limits.sessions as u64,
            }
        });
        relays.collect()
    }

    /// What the transport relays have counted.
    pub(crate) fn trt_stats(&self) -> Vec<TrtStats> {
        let relays = self.relays.iter();
        let stats = relays.map(|(server, settings)| TrtStats {
            name: settings.name.clone(),
            counters: server.stats(),
        });
        stats.collect()
    }

    /// The proxies.
    pub(crate) fn proxy_status(&self) -> Vec<ProxyStatus> {
        let all = self.proxies.iter();
        all.map(|(server, settings)| proxy_status(settings, &server.stats())).collect()
    }

    /// What the proxies have counted.
    pub(crate) fn proxy_stats(&self) -> Vec<proxy::Stats> {
        self.proxies.iter().map(|(server, _)| server.stats()).collect()
    }

    /// What the DNS64 server has counted.
    pub(crate) fn dns64_stats(&self) -> Option<dns64::Stats> {
        self.dns64.server().map(dns64::Server::stats)
    }

    /// What the router advertisements have counted.
    pub(crate) fn router_stats(&self) -> Option<router::Stats> {
        self.router.server().map(router::Server::stats)
    }
}

/// What runs of a proxy.
fn proxy_status(settings: &proxy::Settings, stats: &proxy::Stats) -> ProxyStatus {
    ProxyStatus {
        name: settings.name.clone(),
        mode: match settings.mode {
            proxy::Mode::Forward(_) => "forward",
            proxy::Mode::Reverse(_) => "reverse",
        }
        .to_owned(),
        listen: settings.listen.clone(),
        threads: settings.threads.get(),
        tls: settings.tls.is_some(),
        connections: stats.connections,
        tunnels: stats.tunnels_open,
        servers: stats.servers.clone(),
    }
}
