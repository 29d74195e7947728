//! The state of the network and the host that an automatic CLAT decides by.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use fordway_dns64::discovery::{Found, Source};
use fordway_net::{
    IpNet, Link, Netlink, NextHop, PROTOCOL, Route, RouteFilter, RouteKind, SysctlKey, sysctl,
    table,
};

use super::decide::{Address, Device, Hop, Native, Prefix, Settings, View};
use crate::plan::resolve::PROBE_V4;

/// An address that nothing but a default route leads to: the first of the global ones.
const PROBE_V6: Ipv6Addr = Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0);

/// Kinds of interfaces that carry IPv4 in something else, which needs a way of its own: a default route into
/// one of them is no native IPv4, for the tunnel may go through the CLAT.
const TUNNELS: [&str; 12] = [
    "erspan",
    "gre",
    "gretap",
    "ip6gre",
    "ip6tnl",
    "ipip",
    "sit",
    "tun",
    "vti",
    "vti6",
    "wireguard",
    "xfrm",
];

/// Reads what the decision depends on.
pub(super) fn read(
    netlink: &mut Netlink,
    settings: &Settings,
    found: &Found,
) -> fordway_net::Result<View> {
    let links: HashMap<u32, Link> =
        netlink.links()?.into_iter().map(|link| (link.index, link)).collect();
    let own = settings.name.as_str();
    let mut hop = |to: Ipv6Addr| -> fordway_net::Result<Option<Hop>> {
        let next = netlink.next_hop(to.into())?.filter(|next| next.device != own);
        Ok(next.and_then(|next| into_hop(&next, &links)))
    };
    let default = hop(PROBE_V6)?;
    let mut prefixes = Vec::with_capacity(found.prefixes.len());
    for prefix in &found.prefixes {
        prefixes.push(Prefix {
            pool6: prefix.pool6,
            // What DNS says is asked where the default route leads, and asked again when that changes.
            device: match prefix.source {
                Source::RouterAdvertisement { .. } => {
                    prefix.device.as_ref().map(|device| device.name.clone())
                }
                _ => None,
            },
            rank: rank(&prefix.source),
            hop: hop(prefix.pool6.embed(PROBE_V4))?,
        });
    }
    let uplink = settings.uplink.as_ref();
    let uplink = uplink.and_then(|name| links.values().find(|link| link.name == *name));
    let addresses = netlink.addresses_v6()?.into_iter().filter_map(|address| {
        Some(Address {
            device: links.get(&address.index)?.name.clone(),
            net: address.address,
            deprecated: address.deprecated() || address.duplicate,
        })
    });
    let addresses = addresses.collect();
    let main = RouteFilter { table: Some(table::MAIN), ..RouteFilter::default() };
    let native = native(&netlink.routes(main)?, &links);
    let lost = default.is_none() && prefixes.iter().all(|prefix| prefix.hop.is_none());
    let deaf = if lost { deaf(&links, own) } else { None };
    Ok(View { prefixes, default, uplink: uplink.map(device), addresses, native, deaf })
}

/// A device that would take a default route from a router's advertisement, if it were not one itself.
fn deaf(links: &HashMap<u32, Link>, own: &str) -> Option<String> {
    let is = |name: &str, field: &str, value: &str| {
        let key = SysctlKey::conf_v6(name, field);
        key.and_then(|key| sysctl::read(&key)).is_ok_and(|found| found == value)
    };
    let candidates = links.values().filter(|link| {
        let neighbours = !link.hardware_address.is_empty() && !link.loopback;
        link.up && link.running && neighbours && link.name != own
    });
    let mut names: Vec<&str> = candidates.map(|link| link.name.as_str()).collect();
    names.sort_unstable();
    let found =
        names.into_iter().find(|name| is(name, "accept_ra", "1") && is(name, "forwarding", "1"));
    found.map(str::to_owned)
}

/// The better, the lower: RFC 8781 section 4.1 prefers advertisements to DNS.
fn rank(source: &Source) -> u8 {
    match source {
        Source::Configured => 0,
        Source::RouterAdvertisement { .. } => 1,
        Source::Dns { .. } => 2,
    }
}

fn into_hop(next: &NextHop, links: &HashMap<u32, Link>) -> Option<Hop> {
    let source = match next.source {
        Some(IpAddr::V6(source)) => Some(source),
        _ => None,
    };
    let link = links.get(&next.index).filter(|_| next.kind == RouteKind::Unicast)?;
    Some(Hop { device: device(link), source })
}

fn device(link: &Link) -> Device {
    Device {
        name: link.name.clone(),
        index: link.index,
        hardware_address: link.hardware_address.clone(),
        up: link.up && link.running,
    }
}

/// The best native IPv4 default route.
fn native(routes: &[Route], links: &HashMap<u32, Link>) -> Option<Native> {
    let leads_out = |route: &&Route| {
        let is_default = matches!(route.destination, IpNet::V4(net) if net.prefix_len() == 0);
        is_default && route.kind == RouteKind::Unicast && route.protocol != PROTOCOL
    };
    let alive = |route: &&Route| match &route.device {
        // Several ways at once: one of them will do.
        None => true,
        Some(name) => links.values().any(|link| {
            link.name == *name && link.up && link.running && !link.loopback && !is_tunnel(link)
        }),
    };
    let best = routes.iter().filter(leads_out).filter(alive).min_by_key(|route| route.metric)?;
    let device = best.device.clone().unwrap_or_else(|| "several devices".to_owned());
    Some(Native { device, metric: best.metric })
}

fn is_tunnel(link: &Link) -> bool {
    // A TAP device has a link layer: it is as good as an Ethernet.
    let tap = link.tun.is_some_and(|tun| tun.tap);
    !tap && link.kind.as_deref().is_some_and(|kind| TUNNELS.contains(&kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32, name: &str, kind: Option<&str>) -> (u32, Link) {
        let link = Link {
            index,
            name: name.to_owned(),
            kind: kind.map(str::to_owned),
            mtu: 1500,
            queue_length: 500,
            group: 0,
            multicast: true,
            up: true,
            running: true,
            ..Link::default()
        };
        (index, link)
    }

    fn route(net: &str, device: &str, metric: u32) -> Route {
        let mut route = Route::new(net.parse().unwrap(), device);
        (route.metric, route.protocol) = (metric, 16);
        route
    }

    #[test]
    fn native_ipv4_is_a_default_route_of_somebody_else_out_of_a_device_that_works() {
        let mut links = HashMap::from([
            link(2, "eth0", None),
            link(3, "wlan0", None),
            link(4, "wg0", Some("wireguard")),
            link(5, "ppp0", Some("ppp")),
        ]);
        let said = |routes: &[Route], links: &HashMap<u32, Link>| {
            native(routes, links).map(|native| (native.device, native.metric))
        };
        let told = |device: &str, metric| Some((device.to_owned(), metric));
        assert_eq!(said(&[], &links), None);
        let eth0 = route("0.0.0.0/0", "eth0", 100);
        assert_eq!(
            said(&[route("0.0.0.0/0", "wlan0", 600), eth0.clone()], &links),
            told("eth0", 100)
        );
        assert_eq!(said(&[route("0.0.0.0/0", "ppp0", 0)], &links), told("ppp0", 0));
        let ours = Route { protocol: PROTOCOL, ..eth0.clone() };
        let refused = Route { kind: RouteKind::Unreachable, device: None, ..eth0.clone() };
        let others = [
            ours,
            refused,
            route("::/0", "eth0", 100),
            route("0.0.0.0/1", "eth0", 100),
            route("192.0.2.0/24", "eth0", 100),
            route("0.0.0.0/0", "wg0", 50),
            route("0.0.0.0/0", "eth9", 50),
        ];
        assert_eq!(said(&others, &links), None);
        let several = Route { device: None, ..eth0.clone() };
        assert_eq!(said(&[several], &links), told("several devices", 100));
        // Without a carrier it leads nowhere.
        links.get_mut(&2).unwrap().running = false;
        assert_eq!(said(&[eth0], &links), None);
    }
}
