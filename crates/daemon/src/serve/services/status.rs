//! What is known of the servers that run.

use fordway_config::Config;
use fordway_control::{
    Dns64Status, ForwardStatus, ProxyStatus, Stats, Status, TrtStats, TrtStatus, UpstreamStatus,
};
use fordway_nameserver::Caches;
use fordway_proxy as proxy;
use fordway_serve::Service;

use super::{Services, forwarding, nat44};

impl Services {
    /// What runs; the translators are left out.
    pub(in super::super) fn status(&self, config: &Config) -> Status {
        let devices = self.router.one().map(|(server, _)| server.stats().devices);
        let mut status = Status {
            dns64: self.dns64_status(config),
            advertise: devices.iter().flatten().map(Into::into).collect(),
            nat44: self.hosts.iter().filter_map(nat44::status).collect(),
            dual_stack: self.hosts.iter().filter_map(forwarding::dual_stack_status).collect(),
            trt: self.trt_status(config),
            proxies: self.proxies.iter().map(|(it, told)| proxy_status(told, it.stats())).collect(),
            ..Status::default()
        };
        self.dstm.add_status(&mut status);
        status
    }

    /// What has been counted; the translators are left out.
    pub(in super::super) fn stats(&self) -> Stats {
        let trt = self.relays.iter().map(|(server, settings)| TrtStats {
            name: settings.name.clone(),
            counters: server.stats(),
        });
        let mut stats = Stats {
            dns64: self.dns64.one().map(|(server, _)| server.stats()),
            router: self.router.one().map(|(server, _)| server.stats()),
            nat44: self.hosts.iter().filter_map(nat44::stats).collect(),
            dual_stack: self.hosts.iter().filter_map(forwarding::dual_stack_stats).collect(),
            trt: trt.collect(),
            proxies: self.proxies.iter().map(|(server, _)| server.stats()).collect(),
            ..Stats::default()
        };
        self.dstm.add_stats(&mut stats);
        stats
    }

    /// The caches of the DNS64 server, if there is one.
    pub(in super::super) fn caches(&self) -> Option<Caches> {
        self.dns64.one().map(|(server, _)| server.caches())
    }

    fn dns64_status(&self, config: &Config) -> Option<Dns64Status> {
        let (server, settings) = self.dns64.one()?;
        let policies = config.dns64.as_ref().map_or(0, |dns64| dns64.policies.len());
        let allow = config.dns64.as_ref().and_then(|dns64| dns64.allow.clone());
        let default = settings.policies.iter().next();
        let pool6 = default.filter(|policy| policy.enabled).map(|policy| policy.pool6.as_slice());
        let upstream = server.stats().upstream.servers.into_iter().map(|server| UpstreamStatus {
            server: server.server,
            alive: server.alive,
            // 0 is no time.
            rtt_us: Some(server.rtt_us).filter(|rtt| *rtt > 0),
        });
        Some(Dns64Status {
            listen: settings.listen.clone(),
            listen_tls: settings.listen_tls.clone(),
            listen_https: settings.listen_https.clone(),
            threads: settings.threads.get(),
            pool6: pool6.unwrap_or_default().iter().map(ToString::to_string).collect(),
            policies,
            allow: allow.unwrap_or_else(|| self.seen.local.clone()),
            validate: settings.upstream.validate.is_some(),
            upstream: upstream.collect(),
            forward: forwards(config),
        })
    }

    fn trt_status(&self, config: &Config) -> Vec<TrtStatus> {
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
}

/// Names that have servers of their own.
fn forwards(config: &Config) -> Vec<ForwardStatus> {
    let Some(dns64) = &config.dns64 else { return Vec::new() };
    let forwards = dns64.forwards.iter().map(|forward| ForwardStatus {
        domains: forward.domains.iter().map(ToString::to_string).collect(),
        upstream: forward.upstream.iter().map(ToString::to_string).collect(),
        synthesise: forward.synthesise,
        validate: dns64.validate && forward.validate,
    });
    forwards.collect()
}

fn proxy_status(settings: &proxy::Settings, stats: proxy::Stats) -> ProxyStatus {
    ProxyStatus {
        name: settings.name.clone(),
        mode: match settings.mode {
            proxy::Mode::Forward(_) => "forward",
            proxy::Mode::Reverse(_) => "reverse",
            proxy::Mode::Passthrough(_) => "passthrough",
        }
        .to_owned(),
        listen: settings.listen.clone(),
        threads: settings.threads.get(),
        tls: !settings.tls.is_empty(),
        connections: stats.connections,
        tunnels: stats.tunnels_open,
        servers: stats.servers,
    }
}
