//! A router and a client, each in a network namespace of its own, with a pair of devices between them.

use std::net::Ipv6Addr;

use fordway_testhost::namespace::Namespace;

/// The router's side of the pair.
pub(crate) const LAN: &str = "lan0";
/// The client's.
pub(crate) const UP: &str = "up0";

pub(crate) struct World {
    pub(crate) router: Namespace,
    pub(crate) client: Namespace,
}

impl World {
    /// Both ends up, the router forwards and has 2001:db8:1::1/64.
    pub(crate) fn new() -> World {
        let world = World { router: Namespace::create(), client: Namespace::create() };
        world.router.sysctl("ipv6/conf/all/forwarding", "1");
        world.router.sysctl("ipv6/conf/default/forwarding", "1");
        world.connect();
        world.router.add_address("2001:db8:1::1/64", LAN);
        world
    }

    /// Makes the pair.
    pub(crate) fn connect(&self) {
        self.router.ip(&format!(
            "link add {LAN} address 02:00:00:00:00:01 type veth \
             peer name {UP} address 02:00:00:00:00:02 netns {}",
            self.client.path
        ));
        self.router.ip(&format!("link set {LAN} up"));
        self.client.ip(&format!("link set {UP} up"));
        self.client.link_local(UP);
    }

    /// The router's link-local address.
    pub(crate) fn link_local(&self) -> Ipv6Addr {
        self.router.link_local(LAN)
    }
}
