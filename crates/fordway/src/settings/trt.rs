//! From `[[trt]]` to what transport relays are told.

use std::collections::{BTreeMap, HashSet};
use std::net::Ipv4Addr;

use fordway_config::{Config, Trt, UrgentData};
use fordway_net::IpNet;
use fordway_relay::{Class, IcmpRate, Limits, Settings, Urgent};
use fordway_serve::Acl;
use fordway_xlat::{IcmpErrors, TrafficClass};

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
        class: match trt.traffic_class {
            TrafficClass::Copy => Class::Copy,
            TrafficClass::Set(octet) => Class::Set(octet),
        },
        urgent: match trt.urgent {
            UrgentData::Carry => Urgent::Carry,
            UrgentData::Inline => Urgent::Inline,
            UrgentData::Discard => Urgent::Discard,
        },
        keepalive: trt.keepalive,
        icmp: match trt.icmp_errors {
            IcmpErrors::Off => None,
            IcmpErrors::Unlimited => Some(IcmpRate { per_second: u32::MAX, burst: u32::MAX }),
            IcmpErrors::Limited { per_second, burst } => Some(IcmpRate { per_second, burst }),
        },
        limits: Limits {
            connections: trt.max_connections as usize,
            sessions: trt.max_sessions as usize,
            per_client: trt.max_per_client as usize,
            client_len: trt.client_len,
            connect: trt.connect_timeout,
            idle: trt.tcp_idle,
            half_closed: trt.half_closed_idle,
            udp_idle: trt.udp_idle,
        },
    }
}
