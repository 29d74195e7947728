//! What the host's network looks like now.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fordway_daemon::failure::Failure;
use fordway_net::{Address, Link, Netlink, Route, RouteFilter, RouteKind, table};
use fordway_xlat::addr::classify::illegal_v6;

/// Links, addresses and routes at one moment.
pub(super) struct View {
    pub(super) links: Vec<Link>,
    pub(super) addresses: Vec<Address>,
    pub(super) routes: Vec<Route>,
}

impl View {
    /// Asks the kernel.
    pub(super) fn read(netlink: &mut Netlink) -> Result<View, Failure> {
        Ok(View {
            links: netlink.links()?,
            addresses: netlink.addresses(None)?,
            routes: netlink
                .routes(RouteFilter { table: Some(table::MAIN), ..RouteFilter::default() })?,
        })
    }

    /// Default routes of one IP version, the best first.
    pub(super) fn defaults(&self, v6: bool) -> Vec<&Route> {
        let of_version = |route: &&Route| {
            route.destination.prefix_len() == 0
                && matches!(route.destination.addr(), IpAddr::V6(_)) == v6
                && route.kind == RouteKind::Unicast
        };
        let mut routes: Vec<&Route> = self.routes.iter().filter(of_version).collect();
        routes.sort_by_key(|route| route.effective_metric());
        routes
    }

    /// The device of the best IPv6 default route.
    pub(super) fn uplink(&self) -> Option<&str> {
        self.defaults(true).into_iter().find_map(|route| route.device.as_deref())
    }

    /// Global IPv6 addresses of a device that are preferred.
    pub(super) fn global_v6(&self, device: &str) -> Vec<Ipv6Addr> {
        let of_device = self.addresses.iter().filter(|it| it.device == device && !it.deprecated);
        of_device
            .filter_map(|it| match it.address.addr() {
                IpAddr::V6(address) if illegal_v6(address).is_none() => Some(address),
                _ => None,
            })
            .collect()
    }

    /// IPv4 addresses of all devices.
    pub(super) fn v4(&self) -> impl Iterator<Item = (&str, Ipv4Addr)> {
        self.addresses.iter().filter_map(|it| match it.address.addr() {
            IpAddr::V4(address) => Some((it.device.as_str(), address)),
            IpAddr::V6(_) => None,
        })
    }

    pub(super) fn link(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|link| link.name == name)
    }
}
