//! A host and its router, each in a network namespace of its own, with a pair of devices between them.

use super::advertiser::{Advertiser, Listener};
use fordway_testhost::namespace::Namespace;

/// What tests do at the devices of a namespace.
pub(crate) trait Links {
    /// Who speaks on a device from an address of it, the link-local one if none is given.
    fn advertiser(&self, device: &str, source: Option<&str>) -> Advertiser;

    /// Who hears the solicitations on a device, from now on.
    fn listener(&self, device: &str) -> Listener;

    /// A pair of devices, `near` here and `far` there, both up; their networks are 2001:db8:`net`::/64,
    /// where this one is ::1.
    fn connect(&self, near: &str, other: &Namespace, far: &str, net: u16);
}

impl Links for Namespace {
    fn advertiser(&self, device: &str, source: Option<&str>) -> Advertiser {
        let source = match source {
            Some(source) => source.parse().expect("an address"),
            None => self.link_local(device),
        };
        let index = self.index(device);
        self.run(move || Advertiser::open(index, source))
    }

    fn listener(&self, device: &str) -> Listener {
        let index = self.index(device);
        self.run(move || Listener::open(index))
    }

    fn connect(&self, near: &str, other: &Namespace, far: &str, net: u16) {
        self.ip(&format!("link add {near} type veth peer name {far} netns {}", other.path));
        self.ip(&format!("link set {near} up"));
        other.ip(&format!("link set {far} up"));
        self.add_address(&format!("2001:db8:{net:x}::1/64"), near);
        other.add_address(&format!("2001:db8:{net:x}::2/64"), far);
        self.link_local(near);
        other.link_local(far);
    }
}

/// The router's side of the pair.
pub(crate) const LAN: &str = "lan0";
/// The host's.
pub(crate) const UP: &str = "up0";

pub(crate) struct World {
    pub(crate) router: Namespace,
    pub(crate) host: Namespace,
}

impl World {
    /// A host that takes default routes from advertisements, but whose kernel does not solicit.
    pub(crate) fn new() -> World {
        let world = World { router: Namespace::create(), host: Namespace::create() };
        world.host.sysctl("ipv6/conf/default/router_solicitations", "0");
        world.router.connect(LAN, &world.host, UP, 1);
        world
    }
}
