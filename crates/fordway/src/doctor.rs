//! `fordway doctor`: checks whether IPv4 works from this host, end to end, and advises where it does not.
//!
//! Each check reports what it found; none changes anything. The order is that of a packet's path: the host, its network,
//! the prefix, DNS64, conflicts, the firewall, the path through the translator.

mod conflict;
mod dns;
mod finding;
mod firewall;
mod forwarding;
mod gateway;
mod host;
mod network;
mod offload;
mod path;
mod prefix;
mod probe;
mod servers;
mod softwire;
mod view;

use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use fordway_config::Config;
use fordway_control::Client;
use fordway_net::Netlink;
use fordway_xlat::addr::Pool6;

pub(crate) use finding::{Finding, Findings, State};

use fordway_daemon::failure::Failure;
use fordway_daemon::runtime::{event_loop, open_watcher};
use probe::Prober;
use view::View;

/// Ethernet's, where nothing tells another.
const DEFAULT_MTU: u32 = 1500;

/// What to look at.
pub(crate) struct Question {
    /// A gateway's configuration; none: this host as a client.
    pub(crate) config: Option<Config>,
    /// Where the gateway's daemon listens.
    pub(crate) socket: PathBuf,
    /// The device towards the network.
    pub(crate) device: Option<String>,
    /// An IPv4 host that answers, by address or name.
    pub(crate) target: Option<String>,
    /// How long to look for the prefix.
    pub(crate) timeout: Duration,
}

/// Looks at everything.
pub(crate) fn examine(question: &Question) -> Result<Findings, Failure> {
    let mut findings = Findings::default();
    let translates = question.config.as_ref().is_none_or(|config| !config.translators.is_empty());
    host::check(translates, &mut findings);
    let mut netlink = Netlink::open()?;
    let view = View::read(&mut netlink)?;
    let runtime = event_loop()?;
    let local = tokio::task::LocalSet::new();
    let rules = firewall::Rules::read();
    let mut prober = Prober::open();
    let mut wanted = Vec::new();
    let prefixes = match &question.config {
        Some(config) => {
            let status = Client::new(&question.socket).status().map_err(Failure::from);
            gateway::check_daemon(status.as_ref(), &mut findings);
            gateway::check(config, &view, &mut netlink, &mut findings)?;
            forwarding::check(config, &view, &rules, &mut findings);
            servers::check_relays(config, &view, &mut netlink, &rules, &mut findings)?;
            wanted.extend(gateway::wanted(config, &view));
            wanted.extend(forwarding::wanted(config));
            wanted.extend(servers::wanted(config));
            lower()?;
            local.block_on(&runtime, async {
                servers::check_proxies(config, &view, &mut findings).await;
                gateway::check_dns(config, &mut findings).await
            })
        }
        None => {
            let device = question.device.as_deref();
            network::check(&view, device, &mut findings);
            let watcher = open_watcher(device, Vec::new());
            lower()?;
            local.block_on(&runtime, prefix::check(watcher, question.timeout, &mut findings))
        }
    };
    conflict::check(&view, &mut findings);
    if translates {
        offload::check(&view, &mut findings);
    }
    if let (Some(clat), Some(uplink)) = (conflict::clat(&view), view.uplink()) {
        wanted.extend(gateway::wanted_clat(clat, uplink));
    }
    firewall::check(&rules, &wanted, &mut findings);
    check_way(question, &view, &mut netlink, (&prefixes, &mut prober), &mut findings)?;
    Ok(findings)
}

/// Drops all privileges, before answers from the network are parsed.
fn lower() -> Result<(), Failure> {
    Ok(fordway_net::privilege::drop_all_but(&[])?)
}

/// Through the translator and back.
fn check_way(
    question: &Question,
    view: &View,
    netlink: &mut Netlink,
    (prefixes, prober): (&[Pool6], &mut std::io::Result<Prober>),
    findings: &mut Findings,
) -> Result<(), Failure> {
    let Some(prefix) = prefixes.first() else {
        // A gateway that has none translates nothing, or between hosts that only it knows.
        if question.config.is_none() {
            findings.skipped("nat64", "without a prefix there is nothing to send to");
        }
        return Ok(());
    };
    let target = match &question.target {
        Some(target) => match resolve(target, prefixes) {
            Ok((address, how)) => {
                findings.good("target", how);
                address
            }
            Err(why) => {
                let advice = "give the address of an IPv4 host that answers pings";
                findings.bad("target", why, advice);
                return Ok(());
            }
        },
        // The gateway's own next router is an IPv4 host that answers, as a rule.
        None => match neighbour(question, view) {
            Some(address) => address,
            None => {
                findings.skipped(
                    "nat64",
                    "give an IPv4 host that answers pings: fordway doctor --target ADDR",
                );
                return Ok(());
            }
        },
    };
    let prober = match prober {
        Ok(prober) => prober,
        Err(error) => {
            findings.skipped("nat64", format!("no raw socket for pings: {error}"));
            return Ok(());
        }
    };
    let mtu = match netlink.next_hop(IpAddr::V6(prefix.embed(target)))? {
        Some(hop) => hop.mtu.clamp(1280, 65_535),
        None => DEFAULT_MTU,
    };
    path::check(prober, *prefix, target, mtu, findings);
    Ok(())
}

/// The IPv4 router behind a gateway.
fn neighbour(question: &Question, view: &View) -> Option<Ipv4Addr> {
    question.config.as_ref()?;
    view.defaults(false).into_iter().find_map(|route| match route.gateway {
        Some(IpAddr::V4(address)) => Some(address),
        _ => None,
    })
}

/// The IPv4 address of a target, and how it was found. A name's comes out of its synthesised address, so that
/// DNS64 shows that it works.
fn resolve(target: &str, prefixes: &[Pool6]) -> Result<(Ipv4Addr, String), String> {
    if let Ok(address) = target.parse() {
        return Ok((address, format!("{address}")));
    }
    let found = (target, 0).to_socket_addrs().map_err(|error| format!("{target}: {error}"))?;
    let all: Vec<IpAddr> = found.map(|address| address.ip()).collect();
    for address in &all {
        let IpAddr::V6(address) = address else { continue };
        if let Some(v4) = prefixes.iter().find_map(|prefix| prefix.extract(*address)) {
            return Ok((v4, format!("{target} has {address} by DNS64")));
        }
    }
    let v4 = all.iter().find_map(|address| match address {
        IpAddr::V4(address) => Some(*address),
        IpAddr::V6(_) => None,
    });
    match v4 {
        Some(address) if all.iter().any(IpAddr::is_ipv6) => Err(format!(
            "{target} has IPv6 addresses of its own, so nothing is translated; its IPv4 address is {address}"
        )),
        Some(address) => Ok((address, format!("{target} has {address}, and nothing by DNS64"))),
        None => Err(format!("{target} has no IPv4 address, and none from the translator's prefix")),
    }
}
