//! The networks of the tests.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::netns::Netns;

/// A host with a CLAT on an IPv6-only link, and a server that an IPv4 address stands for.
///
/// ```text
/// client c0 2001:db8:1::2/64 ──── 2001:db8:1::1/64 s0 server, 2001:db8:64::198.51.100.1
/// ```
pub(crate) struct Access {
    pub(crate) client: Netns,
    pub(crate) server: Netns,
}

/// The server's address as the client's applications write it.
pub(crate) const SERVER_V4: &str = "198.51.100.1";

/// The server's address as it is.
pub(crate) const SERVER_V6: &str = "2001:db8:64::c633:6401";

/// The PLAT's prefix.
pub(crate) const PREF64: &str = "2001:db8:64::/96";

impl Access {
    pub(crate) fn new() -> Access {
        let (client, server) = (Netns::new("client"), Netns::new("server"));
        client.link("c0", &server, "s0");
        client.configure(&[
            "addr add 2001:db8:1::2/64 dev c0",
            &format!("route add {PREF64} via 2001:db8:1::1"),
        ]);
        server.configure(&[
            "addr add 2001:db8:1::1/64 dev s0",
            &format!("addr add {SERVER_V6}/128 dev s0"),
        ]);
        Access { client, server }
    }

    /// Switches offloads of both ends of the link.
    pub(crate) fn offloads(&self, state: &str) {
        let features = ["tx", "sg", "tso", "gso", "gro"].map(|name| format!("{name} {state}"));
        let features = features.join(" ");
        self.client.run(&format!("ethtool -K c0 {features}"));
        self.server.run(&format!("ethtool -K s0 {features}"));
    }
}

/// The server as the client's applications address it, and as it is.
pub(crate) const SERVER: (IpAddr, IpAddr) = (
    IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0x64, 0, 0, 0, 0xc633, 0x6401)),
);

/// An IPv4 host and an IPv6 host with a gateway between them.
///
/// ```text
/// v4 198.51.100.2/24 ── 198.51.100.1/24 gateway 2001:db8:6::1/64 ── 2001:db8:6::2/64 v6
/// ```
pub(crate) struct Border {
    pub(crate) v4: Netns,
    pub(crate) gateway: Netns,
    pub(crate) v6: Netns,
}

/// The IPv6 host as the IPv4 host sees it.
pub(crate) const V6_HOST_AS_V4: &str = "192.0.2.2";

/// The IPv4 host as the IPv6 host sees it.
pub(crate) const V4_HOST_AS_V6: &str = "2001:db8:64::c633:6402";

/// Options of the gateway for this network.
pub(crate) const BORDER: &str = "siit --pool6 2001:db8:64::/96 --eam 192.0.2.2=2001:db8:6::2";

impl Border {
    pub(crate) fn new() -> Border {
        let (v4, gateway, v6) = (Netns::new("v4"), Netns::new("gw"), Netns::new("v6"));
        gateway.link("g4", &v4, "h4");
        gateway.link("g6", &v6, "h6");
        gateway.configure(&["addr add 198.51.100.1/24 dev g4", "addr add 2001:db8:6::1/64 dev g6"]);
        v4.configure(&["addr add 198.51.100.2/24 dev h4", "route add default via 198.51.100.1"]);
        v6.configure(&["addr add 2001:db8:6::2/64 dev h6", "route add default via 2001:db8:6::1"]);
        Border { v4, gateway, v6 }
    }
}
