//! NAT44 by the kernel: one `masquerade` rule of nftables. Also the second step of a chain whose first
//! gives every IPv6 host an IPv4 address.

use fordway_data::spec::{Kind, MechanismSpec};
use serde_json::Value;

use super::{Availability, Context, Counted, Deployed, Mechanism, Memory, package_version};
use crate::backend::{Backend, Place, must};
use crate::error::{LabError, Result};
use crate::host::memory;
use crate::process::{find_program, run_str};
use crate::topology::Network;

const TABLE: &str = "fordway-lab-nat44";
const COUNTER: &str = "connections";

/// Sessions of UDP and closed TCP sessions live for a second.
const SHORT: [&str; 9] = [
    "net.netfilter.nf_conntrack_udp_timeout=1",
    "net.netfilter.nf_conntrack_udp_timeout_stream=1",
    "net.netfilter.nf_conntrack_tcp_timeout_syn_sent=1",
    "net.netfilter.nf_conntrack_tcp_timeout_syn_recv=1",
    "net.netfilter.nf_conntrack_tcp_timeout_fin_wait=1",
    "net.netfilter.nf_conntrack_tcp_timeout_close_wait=1",
    "net.netfilter.nf_conntrack_tcp_timeout_last_ack=1",
    "net.netfilter.nf_conntrack_tcp_timeout_time_wait=1",
    "net.netfilter.nf_conntrack_tcp_timeout_close=1",
];

/// The `nft` program and the kernel's connection tracking.
pub(super) struct Nftables;

/// The whole ruleset, for what leaves by a device, in place of an earlier one. The chain is asked once per connection, so the counter counts connections.
fn ruleset(device: &str) -> String {
    format!(
        "table ip {TABLE} {{ }}\n\
         delete table ip {TABLE}\n\
         table ip {TABLE} {{\n\
         \x20 counter {COUNTER} {{ }}\n\
         \x20 chain out {{\n\
         \x20   type nat hook postrouting priority srcnat; policy accept;\n\
         \x20   oifname \"{device}\" counter name {COUNTER} masquerade\n\
         \x20 }}\n\
         }}\n"
    )
}

/// Whether this machine has what the rule needs.
pub(super) fn missing() -> Option<String> {
    find_program("nft").is_none().then(|| "apt-get install nftables".into())
}

/// Puts the rule into a place, for what leaves by a device.
pub(super) fn masquerade(
    backend: &dyn Backend,
    place: &Place,
    device: &str,
    name: &str,
) -> Result<String> {
    let rules = ruleset(device);
    let file = backend.deploy(&format!("{name}.nft"), rules.as_bytes())?;
    must(backend, place, &["nft", "-f", &file.display().to_string()])?;
    Ok(rules)
}

/// The command that reads the counter of a place, from outside.
pub(super) fn reader(backend: &dyn Backend, place: &Place) -> Vec<String> {
    let argv = ["nft", "-j", "list", "counter", "ip", TABLE, COUNTER].map(str::to_owned);
    backend.inside(place, &argv)
}

/// Reads the counter.
pub(super) fn counters(deployed: &Deployed) -> Result<Option<Value>> {
    let argv: Vec<&str> = deployed.reader.iter().map(String::as_str).collect();
    let bad = |why: String| LabError::Parse { tool: "nft -j list counter", why };
    let out = run_str(&argv)?.ok()?;
    let counter: Value = serde_json::from_str(&out.stdout).map_err(|e| bad(e.to_string()))?;
    // What is not there could not disagree.
    created(&counter, &counter).ok_or_else(|| bad("no counter".into()))?;
    Ok(Some(counter))
}

/// Connections between two readings.
pub(super) fn created(before: &Value, after: &Value) -> Option<u64> {
    let read = |all: &Value| {
        let entries = all["nftables"].as_array()?.iter();
        entries.filter_map(|entry| entry["counter"]["packets"].as_u64()).next()
    };
    Some(read(after)?.saturating_sub(read(before)?))
}

impl Mechanism for Nftables {
    fn availability(&self, _kind: Kind) -> Availability {
        if let Some(hint) = missing() {
            return Availability::Missing { hint };
        }
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let nft = package_version("nftables").unwrap_or_else(|| "(not from a package)".into());
        Availability::Ready {
            version: format!("Linux {}, nftables {nft}", release.trim()),
            program: find_program("nft"),
        }
    }

    fn deploy(&self, context: Context<'_>) -> Result<Deployed> {
        let host = context.network.host.as_ref().ok_or_else(|| super::no_middle(context.spec))?;
        let config = masquerade(context.backend, host, "to-iperf", context.name)?;
        if context.room.recycles {
            let mut argv = vec!["sysctl", "-qw"];
            argv.extend(SHORT);
            must(context.backend, host, &argv)?;
        }
        let reader = reader(context.backend, host);
        let argv = ["nft", "-f", "-"].map(str::to_owned).into();
        Ok(Deployed { config, argv, reader, ..Deployed::default() })
    }

    fn counters(&self, deployed: &Deployed) -> Result<Option<Value>> {
        counters(deployed)
    }

    fn read(&self, _before: &Value, _after: &Value, _to_v6: bool) -> Option<Counted> {
        // It counts connections, not octets: counting those would cost every packet something.
        None
    }

    fn created(&self, before: &Value, after: &Value) -> Option<u64> {
        created(before, after)
    }

    fn tracks_connections(&self, _kind: Kind) -> bool {
        true
    }

    fn tracks_at<'a>(&self, _spec: &MechanismSpec, network: &'a Network) -> Option<&'a Place> {
        network.host.as_ref()
    }

    fn memory(&self, _deployed: &Deployed) -> Option<Memory> {
        Some(Memory { growing: memory::slab()?, ..Memory::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_the_difference_of_two_readings() {
        let counter = |packets: u64| {
            serde_json::json!({"nftables": [{"metainfo": {"version": "1.0.6"}},
                {"counter": {"name": COUNTER, "packets": packets, "bytes": 1}}]})
        };
        assert_eq!(created(&counter(3), &counter(10)), Some(7));
        assert_eq!(created(&serde_json::json!({}), &counter(10)), None);
    }

    #[test]
    fn only_what_leaves_towards_the_server_is_hidden() {
        assert!(
            ruleset("to-iperf")
                .contains("oifname \"to-iperf\" counter name connections masquerade")
        );
    }
}
