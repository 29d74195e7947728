//! What the kernel does by itself: modes nat44 and dual-stack.

use std::fs;

use fordway_config::{Config, InterfaceName, Nat44};

use super::finding::Findings;
use super::firewall::{Rules, Wanted};
use super::gateway::forward;
use super::view::View;

/// Where the kernel tells of connections that it tracks.
const CONNTRACK: &str = "/proc/sys/net/netfilter/nf_conntrack_";

/// Devices, rules, and connection tracking of all entries.
pub(super) fn check(config: &Config, view: &View, rules: &Rules, findings: &mut Findings) {
    for entry in &config.nat44 {
        let name = &entry.name;
        check_table(rules, "nat44", "ip", &format!("fordway-nat44-{name}"), findings);
        check_devices("nat44", entry.uplinks.iter().chain(&entry.devices), view, findings);
        check_uplink(entry, view, findings);
    }
    if !config.nat44.is_empty() {
        check_conntrack(findings);
    }
    for entry in &config.dual_stack {
        check_devices("dual-stack", entry.devices.iter(), view, findings);
    }
}

/// A table of nftables that the daemon makes.
pub(super) fn check_table(
    rules: &Rules,
    check: &'static str,
    family: &str,
    table: &str,
    findings: &mut Findings,
) {
    match rules.has_table(family, table) {
        Some(true) => findings.good(check, format!("nftables has the table {family} {table}")),
        Some(false) => findings.bad(
            check,
            format!("nftables has no table {family} {table}"),
            "start the daemon: fordway run -c FILE; if it runs, another program has flushed the ruleset: fordway reload",
        ),
        None => findings.skipped(check, format!("whether there is a table {family} {table} is not known")),
    }
}

fn check_devices<'a>(
    check: &'static str,
    names: impl Iterator<Item = &'a InterfaceName>,
    view: &View,
    findings: &mut Findings,
) {
    for name in names {
        match view.link(name.as_str()) {
            Some(link) if link.up && link.running => findings.good(check, format!("{name} is up")),
            Some(_) => findings.bad(
                check,
                format!("{name} is down, or has no carrier"),
                format!("ip link set {name} up"),
            ),
            None => findings.bad(
                check,
                format!("there is no device {name}"),
                "ip -br link shows all; the daemon takes it up as soon as it comes",
            ),
        }
    }
}

/// Hosts get its address, and it leads somewhere.
fn check_uplink(entry: &Nat44, view: &View, findings: &mut Findings) {
    let has_v4 = |name: &InterfaceName| view.v4().any(|(device, _)| device == name.as_str());
    if entry.pool4.is_empty() && !entry.uplinks.iter().any(has_v4) {
        let uplink = entry.uplinks.first().map(ToString::to_string).unwrap_or_default();
        findings.bad(
            "nat44",
            format!("{uplink} has no IPv4 address that hosts could get"),
            format!("ip addr add ADDRESS/LENGTH dev {uplink}, or give pool4"),
        );
    }
    let routes = view.defaults(false);
    let device = routes.first().and_then(|route| route.device.as_deref());
    match device {
        Some(device) if entry.uplinks.iter().any(|it| it.as_str() == device) => {
            findings.good("nat44", format!("the default route leads out of {device}"));
        }
        Some(device) => findings.warning(
            "nat44",
            format!("the default route leads out of {device}, which is none of its uplinks"),
            "what leaves there is not translated: name it as uplink, or set another route",
        ),
        None => findings.warning(
            "nat44",
            "this gateway has no IPv4 default route, so only IPv4 hosts nearby can be reached",
            "ip route add default via ADDRESS dev DEVICE",
        ),
    }
}

/// The kernel's table of connections is there, and has room.
fn check_conntrack(findings: &mut Findings) {
    let read = |name: &str| -> Option<u64> {
        fs::read_to_string(format!("{CONNTRACK}{name}")).ok()?.trim().parse().ok()
    };
    match (read("count"), read("max")) {
        // 0 is no limit.
        (Some(count), Some(max)) if max > 0 && count > max / 10 * 9 => findings.warning(
            "conntrack",
            format!("{count} of {max} connections: new ones will be dropped soon"),
            format!("sysctl -w net.netfilter.nf_conntrack_max={}", max * 2),
        ),
        (Some(count), Some(max)) => {
            findings.good("conntrack", format!("{count} of {max} connections"));
        }
        _ => findings.bad(
            "conntrack",
            "the kernel tracks no connections",
            "modprobe nf_conntrack; in a container, its host must have the module",
        ),
    }
}

/// Packets that have to get through the host's own filter.
pub(super) fn wanted(config: &Config) -> Vec<Wanted> {
    let mut all = Vec::new();
    for entry in &config.nat44 {
        let uplink = entry.uplinks.first().map(ToString::to_string);
        let devices: Vec<Option<String>> = match entry.devices.is_empty() {
            true => vec![None],
            false => entry.devices.iter().map(|it| Some(it.to_string())).collect(),
        };
        for device in devices {
            let host = device.clone().unwrap_or_else(|| "the hosts".to_owned());
            let out = uplink.clone().unwrap_or_default();
            // It gets another source; that is what this mode is for.
            let up = forward(false, (device.clone(), uplink.clone()), "new", &host, &out);
            all.push(Wanted { keep_source: false, ..up });
            all.push(forward(false, (uplink.clone(), device), "established", &out, &host));
        }
    }
    for entry in &config.dual_stack {
        for from in &entry.devices {
            for to in entry.devices.iter().filter(|to| *to != from) {
                let ways = || (Some(from.to_string()), Some(to.to_string()));
                all.push(forward(true, ways(), "established", from.as_str(), to.as_str()));
                all.push(forward(false, ways(), "established", from.as_str(), to.as_str()));
            }
        }
    }
    all
}
