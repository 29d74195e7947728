//! From `[[trt]]` to what transport relays are told.

use std::collections::{BTreeMap, HashSet};
use std::net::Ipv4Addr;

use fordway_config::{Config, Trt};
use fordway_net::IpNet;
use fordway_relay::Settings;
use fordway_serve::Acl;

/// What relays are told. `local`: the networks of this host; `own4`: its IPv4 addresses.
pub(crate) fn relays(
    config: &Config,
    local: &[IpNet],
    own4: &HashSet<Ipv4Addr>,
) -> BTreeMap<String, Settings> {
    config.trt.iter().map(|trt| (trt.name.to_string(), one(trt, local, own4))).collect()
}

fn one(trt: &Trt, local: &[IpNet], own4: &HashSet<Ipv4Addr>) -> Settings {
    let allow = trt.allow.as_deref().unwrap_or(local);
    Settings {
        name: trt.name.to_string(),
        pool6: trt.pool6.clone(),
        threads: super::threads(trt.threads),
        tcp: trt.tcp,
        udp: trt.udp,
        allow: Acl::new(allow.iter().copied()),
        refuse4: Acl::new(trt.refuse4.iter().copied().map(IpNet::V4)),
        allow_private: trt.allow_private,
        allow_own: trt.allow_own,
        own4: own4.clone(),
        source4: trt.source4.clone(),
        class: trt.traffic_class,
        urgent: trt.urgent,
        keepalive: trt.keepalive,
        icmp: trt.icmp_errors,
        limits: trt.limits,
    }
}
