//! IPv6 towards the network, and whether IPv4 is native here.

use fordway_daemon::output::joined;
use fordway_net::{SysctlKey, sysctl};

use super::finding::Findings;
use super::view::View;

/// Routing protocol number of routes from router advertisements (`RTPROT_RA`).
const PROTOCOL_RA: u8 = 9;

/// Addresses and default routes.
pub(super) fn check(view: &View, device: Option<&str>, findings: &mut Findings) {
    let uplink = device.or(view.uplink());
    match uplink {
        None => findings.bad(
            "route6",
            "no IPv6 default route",
            "wait for a router advertisement (fordway discover shows what arrives), or set a route: ip -6 \
             route add default via ADDRESS dev DEVICE",
        ),
        Some(name) => check_uplink(view, name, findings),
    }
    check_v4(view, findings);
}

fn check_uplink(view: &View, name: &str, findings: &mut Findings) {
    match view.link(name) {
        Some(link) if !link.up || !link.running => {
            findings.bad("link", format!("{name} is down"), format!("ip link set {name} up"));
        }
        Some(link) if link.mtu < 1280 => findings.bad(
            "link",
            format!("{name} has an MTU of {}; IPv6 needs 1280 (RFC 8200 section 5)", link.mtu),
            format!("ip link set {name} mtu 1280, or more"),
        ),
        Some(link) => findings.good("link", format!("{name}, MTU {}", link.mtu)),
        None => {
            findings.bad("link", format!("there is no device {name}"), "ip -br link shows all");
            return;
        }
    }
    let addresses = view.global_v6(name);
    if addresses.is_empty() {
        findings.bad(
            "ipv6",
            format!("{name} has no global IPv6 address"),
            "the network announces no prefix for hosts, or accept_ra or autoconf is off on the device",
        );
    } else {
        findings.good("ipv6", format!("{} on {name}", joined(&addresses)));
    }
    let routes = view.defaults(true);
    let route = routes.iter().find(|route| route.device.as_deref() == Some(name));
    match route {
        Some(route) => findings.good("route6", route.to_string()),
        None => findings.bad(
            "route6",
            format!("no IPv6 default route through {name}"),
            format!("fordway discover --device {name} shows whether a router advertises there"),
        ),
    }
    // A device that forwards accepts router advertisements only if accept_ra is 2.
    let from_ra = route.is_some_and(|route| route.protocol == PROTOCOL_RA);
    let read = |field: &str| {
        SysctlKey::conf_v6(name, field).and_then(|key| sysctl::read(&key)).unwrap_or_default()
    };
    if from_ra && read("forwarding") != "0" && read("accept_ra") == "1" {
        findings.bad(
            "accept_ra",
            format!("{name} forwards, so the kernel takes no more advertisements there: the route will expire"),
            format!("sysctl -w net.ipv6.conf.{name}.accept_ra=2"),
        );
    }
}

fn check_v4(view: &View, findings: &mut Findings) {
    let routes = view.defaults(false);
    // A route without a gateway into an interface of a translator is no native IPv4.
    let is_translator = |device: Option<&str>| {
        device.and_then(|name| view.link(name)).is_some_and(|link| link.tun.is_some())
    };
    match routes.first() {
        None => findings.good("ipv4", "no IPv4 default route: an IPv6-only network"),
        Some(route) if is_translator(route.device.as_deref()) => {
            findings.good("ipv4", format!("through a translator: {route}"));
        }
        Some(route) => findings.good("ipv4", format!("native: {route}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::*;
    use fordway_net::{Address, Link, Route};

    fn link(name: &str, mtu: u32) -> Link {
        Link {
            index: 2,
            name: name.to_owned(),
            kind: None,
            mtu,
            queue_length: 500,
            group: 0,
            multicast: true,
            up: true,
            running: true,
            hardware_address: vec![2, 0, 0, 0, 0, 1],
            ..Link::default()
        }
    }

    fn states(view: &View) -> Vec<(&'static str, State)> {
        let mut findings = Findings::default();
        check(view, None, &mut findings);
        findings.all().iter().map(|it| (it.check, it.state)).collect()
    }

    #[test]
    fn a_host_with_address_and_route_is_well() {
        let view = View {
            links: vec![link("doc0", 1500)],
            addresses: vec![Address::new("doc0", "2001:db8::2/64".parse().unwrap())],
            routes: vec![Route::new("::/0".parse().unwrap(), "doc0")],
        };
        let good = |check| (check, State::Good);
        assert_eq!(states(&view), ["link", "ipv6", "route6", "ipv4"].map(good));
    }

    #[test]
    fn what_is_missing_is_said() {
        let mut view = View { links: vec![link("doc0", 1200)], addresses: vec![], routes: vec![] };
        assert_eq!(states(&view), [("route6", State::Bad), ("ipv4", State::Good)]);
        view.routes = vec![Route::new("::/0".parse().unwrap(), "doc0")];
        assert_eq!(
            states(&view),
            [
                ("link", State::Bad),
                ("ipv6", State::Bad),
                ("route6", State::Good),
                ("ipv4", State::Good)
            ]
        );
    }
}
