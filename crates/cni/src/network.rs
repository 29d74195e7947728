//! What the plugin before this one has made: the previous result.

use std::net::{IpAddr, Ipv6Addr};

use fordway_net::{IpNet, Ipv6Net};
use serde::Deserialize;
use serde_json::Value;

use crate::{Code, Failure, Result};

/// The part of a result that matters here; the same in all supported versions.
#[derive(Deserialize)]
struct Written {
    #[serde(default)]
    interfaces: Vec<Interface>,
    #[serde(default)]
    ips: Vec<Ip>,
}

#[derive(Deserialize)]
struct Interface {
    name: String,
    #[serde(default)]
    sandbox: String,
}

#[derive(Deserialize)]
struct Ip {
    address: IpNet,
    interface: Option<usize>,
}

/// The addresses that a pod has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PodNetwork {
    /// The pod has IPv4 and needs no CLAT.
    HasIpv4,
    /// Its first global IPv6 address, with the length of its network.
    Ipv6Only(Ipv6Net),
}

impl PodNetwork {
    /// Of the pod's interface `name` in a previous result.
    pub(crate) fn of(previous: &Value, name: &str) -> Result<PodNetwork> {
        let written: Written = serde_json::from_value(previous.clone()).map_err(|error| {
            Failure::new(Code::Decoding, "prevResult can't be read").details(error.to_string())
        })?;
        let is_pods = |index: usize| {
            let interface = written.interfaces.get(index);
            interface.is_some_and(|it| it.name == name && !it.sandbox.is_empty())
        };
        let ours = written.ips.iter().filter(|ip| ip.interface.is_none_or(is_pods));
        let mut v6 = None;
        for ip in ours {
            match ip.address {
                IpNet::V4(_) => return Ok(PodNetwork::HasIpv4),
                IpNet::V6(net) if is_global(net.addr()) => v6 = v6.or(Some(net)),
                IpNet::V6(_) => {}
            }
        }
        v6.map(PodNetwork::Ipv6Only).ok_or_else(|| {
            Failure::new(
                Code::PreviousResult,
                format!("prevResult has no IPv6 address for the pod's interface {name}"),
            )
            .details("fordway-cni has to come after the plugin that gives pods their addresses")
        })
    }
}

fn is_global(address: Ipv6Addr) -> bool {
    !address.is_unicast_link_local()
        && fordway_xlat::addr::classify::illegal_v6(address).is_none()
        && !IpAddr::V6(address).is_unspecified()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(ips: &Value) -> Result<PodNetwork> {
        let interfaces = json!([
            { "name": "cni0" }, { "name": "veth1" }, { "name": "eth0", "sandbox": "/run/netns/a" },
        ]);
        PodNetwork::of(&json!({ "interfaces": interfaces, "ips": ips }), "eth0")
    }

    #[test]
    fn the_first_global_address_of_the_pods_interface() {
        let found = of(&json!([
            { "address": "2001:db8::9/64", "interface": 0 },
            { "address": "fe80::1/64", "interface": 2 },
            { "address": "2001:db8::7/64", "interface": 2, "gateway": "2001:db8::1" },
            { "address": "2001:db8::8/64", "interface": 2 },
        ]));
        assert_eq!(found, Ok(PodNetwork::Ipv6Only("2001:db8::7/64".parse().unwrap())));
        let found = of(&json!([{ "address": "2001:db8::7/128" }]));
        assert_eq!(found, Ok(PodNetwork::Ipv6Only("2001:db8::7/128".parse().unwrap())));
    }

    #[test]
    fn with_ipv4_there_is_nothing_to_do() {
        let found = of(&json!([
            { "version": "6", "address": "2001:db8::7/64", "interface": 2 },
            { "version": "4", "address": "192.0.2.7/24", "interface": 2 },
        ]));
        assert_eq!(found, Ok(PodNetwork::HasIpv4));
    }

    #[test]
    fn without_an_address_there_is_an_error() {
        for ips in [json!([]), json!([{ "address": "2001:db8::9/64", "interface": 0 }])] {
            assert_eq!(of(&ips).unwrap_err().code, Code::PreviousResult);
        }
        assert_eq!(of(&json!([{ "address": "nonsense" }])).unwrap_err().code, Code::Decoding);
    }
}
