//! A gateway as its configuration wants it.

use std::net::{IpAddr, Ipv4Addr};

use fordway_config::{Config, Mode, Pool4, Translator};
use fordway_daemon::failure::Failure;
use fordway_daemon::settings::{prefixes, upstream};
use fordway_net::{Netlink, SysctlKey, sysctl};
use fordway_xlat::addr::Pool6;

use super::dns;
use super::finding::Findings;
use super::firewall::{Flow, Wanted};
use super::view::View;
use crate::report::DIRECT;
use fordway_control::{Clash, Status};

/// An address behind the translation prefix, to look routes up with (RFC 5737).
const SOMEBODY: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);

/// Forwarding, routes and ports of all translators of a file.
pub(super) fn check(
    config: &Config,
    view: &View,
    netlink: &mut Netlink,
    findings: &mut Findings,
) -> Result<(), Failure> {
    check_forwarding(config, findings);
    for translator in &config.translators {
        check_translator(translator, view, netlink, findings)?;
    }
    Ok(())
}

fn check_forwarding(config: &Config, findings: &mut Findings) {
    let off = |key: SysctlKey| sysctl::read(&key).is_ok_and(|value| value == "0");
    let dual_stack = !config.dual_stack.is_empty();
    let v4 = config.translators.iter().any(fordway_config::Translator::serves_others)
        || dual_stack
        || !config.nat44.is_empty();
    let v6 = !config.translators.is_empty() || dual_stack;
    let mut missing = Vec::new();
    if v6 && off(SysctlKey::forwarding_v6()) {
        missing.push("net.ipv6.conf.all.forwarding=1");
    }
    if v4 && off(SysctlKey::forwarding_v4()) {
        missing.push("net.ipv4.ip_forward=1");
    }
    if !missing.is_empty() {
        findings.bad(
            "forwarding",
            "this host does not forward between its devices",
            format!(
                "sysctl -w {} (fordway run sets it where manage is true: does it run?)",
                missing.join(" ")
            ),
        );
    } else if v4 || v6 {
        findings.good("forwarding", "on");
    }
}

/// A TUN device that no process has open has no carrier, while the kernel engine goes on without a daemon.
fn check_carrier(name: &str, findings: &mut Findings) {
    let field = "ignore_routes_with_linkdown";
    let keys = [SysctlKey::conf_v4(name, field), SysctlKey::conf_v6(name, field)];
    let on = |key: &SysctlKey| sysctl::read(key).is_ok_and(|value| value != "0");
    let on: Vec<String> =
        keys.into_iter().flatten().filter(on).map(|key| format!("{key}=0")).collect();
    if !on.is_empty() {
        findings.warning(
            "carrier",
            format!("routes into {name} do not count while no daemon runs, though the kernel engine goes on"),
            format!("sysctl -w {} (fordway run sets it where manage is true)", on.join(" ")),
        );
    }
}

fn check_translator(
    translator: &Translator,
    view: &View,
    netlink: &mut Netlink,
    findings: &mut Findings,
) -> Result<(), Failure> {
    let name = translator.name.as_str();
    match view.link(name) {
        Some(link) if link.up => findings.good("interface", format!("{name} is up")),
        Some(_) => {
            findings.bad("interface", format!("{name} is down"), format!("ip link set {name} up"));
        }
        None => {
            findings.bad(
                "interface",
                format!("there is no {name}"),
                "start the daemon: fordway run -c FILE; its log says what is wrong",
            );
            return Ok(());
        }
    }
    check_carrier(name, findings);
    for pool6 in translator.pool6() {
        check_route(netlink, pool6.embed(SOMEBODY).into(), &pool6.to_string(), name, findings)?;
    }
    if let Mode::Softwire(softwire) = &translator.mode {
        super::softwire::check(name, translator, softwire, netlink, findings)?;
    }
    if let Mode::Nat64(nat64) = &translator.mode {
        let nets = nat64.pools.iter().flat_map(|pool| &pool.pool4).flat_map(Pool4::networks);
        let bound = nat64.nat_pt.iter().flat_map(fordway_config::NatPt::networks);
        for net in nets.chain(bound) {
            // The host's own addresses are told by ports, not by routes.
            if !view.v4().any(|(_, address)| net.contains(&address)) {
                check_route(netlink, net.addr().into(), &net.to_string(), name, findings)?;
            }
        }
        check_route4(view, ("gateway", "hosts"), findings);
    }
    Ok(())
}

/// Whether there is an IPv4 default route; `who` needs it to reach `whom`.
pub(super) fn check_route4(view: &View, (who, whom): (&str, &str), findings: &mut Findings) {
    match view.defaults(false).first() {
        Some(route) => findings.good("route4", route.to_string()),
        None => findings.warning(
            "route4",
            format!(
                "this {who} has no IPv4 default route, so only IPv4 {whom} nearby can be reached"
            ),
            "ip route add default via ADDRESS dev DEVICE",
        ),
    }
}

pub(super) fn check_route(
    netlink: &mut Netlink,
    to: IpAddr,
    net: &str,
    name: &str,
    findings: &mut Findings,
) -> Result<(), Failure> {
    match netlink.next_hop(to)? {
        Some(hop) if hop.device == name => {
            findings.good("route", format!("{net} goes into {name}"));
        }
        Some(hop) => findings.bad(
            "route",
            format!("{net} goes to {}, not into {name}", hop.device),
            format!("another route or rule is better: ip route get {to}"),
        ),
        None => findings.bad(
            "route",
            format!("there is no route to {net}"),
            format!("ip route add {net} dev {name} (fordway run sets it where manage is true)"),
        ),
    }
    Ok(())
}

/// What the daemon itself says.
pub(super) fn check_daemon(status: Result<&Status, &Failure>, findings: &mut Findings) {
    let status = match status {
        Ok(status) => status,
        Err(failure) => {
            return findings.bad(
                "daemon",
                failure.line(),
                "start it: systemctl start fordway, or fordway run -c FILE",
            );
        }
    };
    let translators =
        status.translators.iter().map(|it| format!("{} ({} engine)", it.name, it.engine));
    let by_kernel = status.nat44.iter().map(|it| format!("{} (nat44)", it.name));
    let forwards = status.dual_stack.iter().map(|it| format!("{} (dual-stack)", it.name));
    let relays = status.trt.iter().map(|it| format!("{} (transport relay)", it.name));
    let proxies = status.proxies.iter().map(|it| format!("{} (HTTP proxy)", it.name));
    let all = translators.chain(by_kernel).chain(forwards).chain(relays).chain(proxies);
    let all = all.collect::<Vec<_>>().join(", ");
    findings.good("daemon", format!("process {} runs: {all}", status.pid));
    for relay in status.trt.iter().filter(|it| !it.whole) {
        findings.bad(
            "relay",
            format!("{}: a thread has failed", relay.name),
            "its log says why; systemctl restart fordway",
        );
    }
    for it in &status.translators {
        if it.engine == "user" && it.engine_reason.starts_with("engine = \"auto\"") {
            let text =
                format!("{}: the kernel engine does not run ({})", it.name, it.engine_reason);
            findings.warning("engine", text, "translation works, and costs more processor time");
        }
        if it.receive_queue_full > 0 {
            let length = it.queue_length;
            let longer = match it.managed {
                true => format!("a greater queue_length (it is {length})"),
                false => format!("ip link set {} txqueuelen {}", it.name, 2 * length.max(2048)),
            };
            findings.warning(
                "queues",
                format!(
                    "{}: {} packets were lost because a queue was full",
                    it.name, it.receive_queue_full
                ),
                format!("{longer}, more queues, or a processor with less to do"),
            );
        }
        for warning in it.kernel.iter().flat_map(|kernel| &kernel.warnings) {
            let text = format!("{}: {}", it.name, warning.text);
            findings.warning("attach", text, warning.advice.clone());
        }
        if it.forward.as_deref() == Some("direct") {
            findings.good("forwarding", format!("{}: {DIRECT}", it.name));
        }
        if let Some(reason) = &it.attach_reason {
            let text = format!("{}: programs are attached elsewhere: {reason}", it.name);
            findings.warning("attach", text, "translation works, and costs more processor time");
        }
    }
    let clashes = status.translators.iter().filter_map(|it| it.nat64.as_ref());
    for sentence in clashes.flat_map(|nat64| Clash::sentences(&nat64.clashes)) {
        findings.warning("ports", sentence, "fordway status shows it with what to do");
    }
}

/// Packets that have to get through the host's filter for the translators of a file.
pub(super) fn wanted(config: &Config, view: &View) -> Vec<Wanted> {
    let wan = view.defaults(false).first().and_then(|route| route.device.clone());
    let mut all = Vec::new();
    for translator in config.translators.iter().filter(|it| it.clat().is_none()) {
        let name = translator.name.to_string();
        let hosts: Vec<Option<String>> = match config.advertise.is_empty() {
            true => vec![None],
            false => config.advertise.iter().map(|it| Some(it.device.to_string())).collect(),
        };
        for host in hosts {
            let from = host.as_deref().unwrap_or("the IPv6 hosts").to_owned();
            all.push(forward(true, (host, Some(name.clone())), "new", &from, &name));
        }
        let (into, out) = ((wan.clone(), Some(name.clone())), (Some(name.clone()), wan.clone()));
        all.push(forward(false, out, "new", &name, "the IPv4 network"));
        all.push(forward(false, into, "established", "the IPv4 network", &name));
    }
    all
}

/// What a CLAT's interface needs: its host's own IPv4, and IPv6 forwarded to and from the uplink.
pub(super) fn wanted_clat(clat: &str, uplink: &str) -> Vec<Wanted> {
    let (name, uplink) = (Some(clat.to_owned()), Some(uplink.to_owned()));
    let local = |hook, iif: Option<String>, oif: Option<String>, state, what: &str| Wanted {
        what: what.to_owned(),
        hook,
        flow: Flow { v6: false, iif, oif, l4: "tcp", state, ..Flow::default() },
        keep_source: false,
    };
    let from = uplink.clone().unwrap_or_default();
    vec![
        local("output", None, name.clone(), "new", "IPv4 of this host"),
        local("input", name.clone(), None, "established", "answers by IPv4"),
        forward(true, (name.clone(), uplink.clone()), "new", clat, &from),
        forward(true, (uplink, name), "established", &from, clat),
    ]
}

pub(super) fn forward(
    v6: bool,
    (iif, oif): (Option<String>, Option<String>),
    state: &'static str,
    from: &str,
    to: &str,
) -> Wanted {
    let version = if v6 { "IPv6" } else { "IPv4" };
    let keep_source = !v6 && state == "new";
    Wanted {
        what: format!("{version} from {from} to {to}"),
        hook: "forward",
        flow: Flow { v6, iif, oif, l4: "tcp", state, ..Flow::default() },
        keep_source,
    }
}

/// The file's DNS64 server, and those that it asks. Gives the prefixes that hosts are told, as far as packets are
/// translated there: a relay answers no pings.
pub(super) async fn check_dns(config: &Config, findings: &mut Findings) -> Vec<Pool6> {
    let mut prefixes = prefixes(config);
    if let Some(dns64) = &config.dns64 {
        dns::check_own(&dns64.listen, &prefixes, findings).await;
        dns::check_upstream(&upstream(dns64), findings).await;
    }
    prefixes.retain(|prefix| !config.trt.iter().any(|trt| trt.pool6.contains(prefix)));
    prefixes
}
