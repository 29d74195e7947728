//! Servers of a gateway that stand between clients and servers: transport relays and HTTP proxies.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use fordway_config::{Config, Proxy, ProxyMode, Trt};
use fordway_daemon::failure::Failure;
use fordway_daemon::settings::proxies;
use fordway_net::{IpNet, Netlink, RouteFilter, RouteKind};
use fordway_proxy::{Authority, Host};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use super::dns;
use super::finding::Findings;
use super::firewall::{Flow, Rules, Wanted};
use super::forwarding::check_table;
use super::gateway::check_route4;
use super::view::View;

/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the host does for relays: rules of nftables, routes, and the policy rule.
pub(super) fn check_relays(
    config: &Config,
    view: &View,
    netlink: &mut Netlink,
    rules: &Rules,
    findings: &mut Findings,
) -> Result<(), Failure> {
    for trt in &config.trt {
        check_table(rules, "relay", "ip6", &format!("fordway-trt-{}", trt.name), findings);
        check_delivery(trt, netlink, findings)?;
        check_sources(trt, view, findings);
    }
    Ok(())
}

/// Marked packets are looked up in the relay's table, which delivers them here.
fn check_delivery(
    trt: &Trt,
    netlink: &mut Netlink,
    findings: &mut Findings,
) -> Result<(), Failure> {
    let routes =
        netlink.routes(RouteFilter { table: Some(trt.table), ..RouteFilter::default() })?;
    let has_rule = netlink
        .rules()?
        .iter()
        .any(|rule| rule.v6 && rule.table == trt.table && rule.mark == Some((trt.mark, u32::MAX)));
    for pool6 in &trt.pool6 {
        let net = IpNet::V6(pool6.net());
        let is_local =
            routes.iter().any(|route| route.destination == net && route.kind == RouteKind::Local);
        let missing = match (is_local, has_rule) {
            (true, true) => {
                findings.good("relay", format!("{pool6} is delivered here, for {}", trt.name));
                continue;
            }
            (false, _) => format!("a local route for {pool6} in table {}", trt.table),
            (true, false) => {
                format!("a policy rule that looks mark {:#x} up in table {}", trt.mark, trt.table)
            }
        };
        findings.bad(
            "relay",
            format!("{}: there is not {missing}", trt.name),
            "start the daemon: fordway run -c FILE; if it runs, another program has removed it: fordway reload",
        );
    }
    Ok(())
}

/// Connections to servers need addresses and a way.
fn check_sources(trt: &Trt, view: &View, findings: &mut Findings) {
    for source in &trt.source4 {
        if !view.v4().any(|(_, own)| own == *source) {
            findings.bad(
                "relay",
                format!("{}: {source} of source4 is no address of this host", trt.name),
                format!("ip addr add {source}/32 dev DEVICE"),
            );
        }
    }
    check_route4(view, ("host", "servers"), findings);
}

/// Whether proxies listen, and reach those that they ask.
pub(super) async fn check_proxies(config: &Config, view: &View, findings: &mut Findings) {
    let settings = proxies(config, &[]);
    for proxy in &config.proxies {
        check_listening(proxy, findings).await;
        match &proxy.mode {
            ProxyMode::Reverse(reverse) => check_site(proxy, &reverse.upstream, findings).await,
            ProxyMode::Passthrough(it) => {
                for route in &it.routes {
                    check_site(proxy, &route.upstream, findings).await;
                }
            }
            ProxyMode::Forward(_) => check_ways(proxy, view, findings),
        }
        let resolver = settings.get(proxy.name.as_str()).and_then(|it| it.resolver.as_ref());
        if let Some(resolver) = resolver {
            dns::check_upstream(resolver, findings).await;
        }
    }
}

async fn check_listening(proxy: &Proxy, findings: &mut Findings) {
    for listen in &proxy.listen {
        let to = SocketAddr::new(dns::nearest(listen.ip()), listen.port());
        match connect(to).await {
            Ok(()) => findings.good("proxy", format!("{} listens on {listen}", proxy.name)),
            Err(why) => findings.bad(
                "proxy",
                format!("{}: {listen}: {why}", proxy.name),
                "start the daemon: fordway run -c FILE; is the address one of this host (ip addr)?",
            ),
        }
    }
}

/// The servers of a site.
async fn check_site(proxy: &Proxy, upstream: &[Authority], findings: &mut Findings) {
    let (mut reached, mut failed) = (Vec::new(), Vec::new());
    for server in upstream {
        let outcome = match &server.host {
            Host::Address(address) => connect(SocketAddr::new(*address, server.port)).await,
            Host::Name(name) => connect_by_name(name, server.port).await,
        };
        match outcome {
            Ok(()) => reached.push(server.to_string()),
            Err(why) => failed.push(format!("{server} ({why})")),
        }
    }
    let name = &proxy.name;
    if !reached.is_empty() {
        findings.good("proxy", format!("{name} reaches {}", reached.join(", ")));
    }
    if failed.is_empty() {
        return;
    }
    let seen = format!("{name} does not reach {}", failed.join(", "));
    let advice = "does the server run there, and is there a route and no filter on the way?";
    if reached.is_empty() {
        findings.bad("proxy", seen, advice);
    } else {
        findings.warning("proxy", seen, advice);
    }
}

/// The families by which clients' servers can be reached.
fn check_ways(proxy: &Proxy, view: &View, findings: &mut Findings) {
    let name = &proxy.name;
    let [v6, v4] = [true, false].map(|v6| !view.defaults(v6).is_empty());
    let (seen, advice) = match (v6, v4, proxy.pref64.first()) {
        (true, true, None) => {
            return findings.good("proxy", format!("{name} has routes of both families"));
        }
        (true, _, Some(prefix)) => {
            return findings.good("proxy", format!("{name} reaches IPv4 servers through {prefix}"));
        }
        (false, _, Some(prefix)) => {
            return findings.bad(
                "proxy",
                format!("{name}: there is no IPv6 default route, so none to {prefix}"),
                "ip -6 route add default via ADDRESS dev DEVICE, or leave pref64 out",
            );
        }
        (false, false, None) => (
            "this host has no default route, so only servers nearby can be reached",
            "ip route add default via ADDRESS dev DEVICE",
        ),
        (true, false, None) => (
            "there is no IPv4 default route, so IPv4-only servers can't be reached",
            "set one, or give pref64 with the prefix of the network's NAT64",
        ),
        (false, true, None) => (
            "there is no IPv6 default route, so IPv6-only servers can't be reached",
            "ip -6 route add default via ADDRESS dev DEVICE",
        ),
    };
    findings.warning("proxy", format!("{name}: {seen}"), advice);
}

async fn connect_by_name(name: &str, port: u16) -> Result<(), String> {
    let found = timeout(PATIENCE, lookup_host((name, port))).await;
    let found = found.map_err(|_| "the resolver does not answer".to_owned())?;
    let mut last = "no address".to_owned();
    for address in found.map_err(|error| error.to_string())? {
        match connect(address).await {
            Ok(()) => return Ok(()),
            Err(why) => last = why,
        }
    }
    Err(last)
}

async fn connect(to: SocketAddr) -> Result<(), String> {
    match timeout(PATIENCE, TcpStream::connect(to)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("no answer".to_owned()),
    }
}

/// Packets that have to get through the host's own filter.
pub(super) fn wanted(config: &Config) -> Vec<Wanted> {
    let input = |what: String, to: IpAddr, port: Option<u16>| Wanted {
        what,
        hook: "input",
        flow: Flow {
            v6: to.is_ipv6(),
            l4: "tcp",
            state: "new",
            destination: (!to.is_unspecified()).then_some(to),
            port,
            ..Flow::default()
        },
        keep_source: false,
    };
    let relays = config.trt.iter().flat_map(|trt| &trt.pool6).map(|pool6| {
        input(format!("TCP from clients to {pool6}"), pool6.net().network().into(), None)
    });
    let listening = config.proxies.iter().flat_map(|proxy| &proxy.listen);
    let listening = listening
        .filter(|listen| !listen.ip().is_loopback())
        .map(|it| input(format!("TCP from clients to {it}"), it.ip(), Some(it.port())));
    relays.chain(listening).collect()
}
