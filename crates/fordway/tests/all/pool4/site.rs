//! The network of these tests.

use std::net::IpAddr;

use crate::common::daemon::RunDir;
use crate::common::netns::Netns;

/// An IPv6-only client, a gateway with one IPv4 address, and a server behind a router.
///
/// ```text
/// client 2001:db8:6::2/64 ── 2001:db8:6::1/64 g6 gateway g4 198.51.100.1/24
///    ── 198.51.100.254/24 r4 router r5 203.0.113.1/24 ── 203.0.113.2/24 server
/// ```
pub(crate) struct Site {
    pub(crate) client: Netns,
    pub(crate) gateway: Netns,
    pub(crate) router: Netns,
    pub(crate) server: Netns,
}

/// The gateway's address, and the hosts behind it see it so.
pub(crate) const OWN: &str = "198.51.100.1";
pub(crate) const OWN_AS_V6: &str = "2001:db8:64::c633:6401";

/// The router as hosts behind the gateway see it.
pub(crate) const ROUTER_AS_V6: &str = "2001:db8:64::c633:64fe";

/// The server's address, and the hosts behind the gateway see it so.
pub(crate) const SERVER: &str = "203.0.113.2";
pub(crate) const SERVER_AS_V6: &str = "2001:db8:64::cb00:7102";

/// The client.
pub(crate) const CLIENT: &str = "2001:db8:6::2";

/// The translator without its pool.
pub(crate) const WITHOUT_POOL: &str = "nat64 --pool6 2001:db8:64::/96";

/// The translator.
pub(crate) const NAT64: &str = "nat64 --pool6 2001:db8:64::/96 --pool4 198.51.100.1:20000-60000";

/// The engines, and where the kernel engine may be attached.
pub(crate) const ENGINES: [&str; 4] = ["user", "kernel", INGRESS, XDP];
pub(crate) const INGRESS: &str = "kernel --attach ingress --device g4 --device g6";
pub(crate) const XDP: &str = "kernel --attach xdp --device g4 --device g6";

/// The ports of the pool.
pub(crate) const PORTS: std::ops::RangeInclusive<u16> = 20_000..=60_000;

impl Site {
    pub(crate) fn new() -> Site {
        let (client, gateway) = (Netns::new("client"), Netns::new("gw"));
        let (router, server) = (Netns::new("router"), Netns::new("server"));
        gateway.link("g6", &client, "c6");
        gateway.link("g4", &router, "r4");
        router.link("r5", &server, "h5");
        client.configure(&[
            "addr add 2001:db8:6::2/64 dev c6",
            "route add default via 2001:db8:6::1",
        ]);
        gateway.configure(&[
            "addr add 2001:db8:6::1/64 dev g6",
            "addr add 198.51.100.1/24 dev g4",
            "route add default via 198.51.100.254",
        ]);
        // The gateway's own connections take ports of the pool, unless a test says otherwise.
        local_ports(&gateway, "30000 30999");
        router.configure(&["addr add 198.51.100.254/24 dev r4", "addr add 203.0.113.1/24 dev r5"]);
        router.sysctl("net.ipv4.ip_forward", "1");
        server.configure(&["addr add 203.0.113.2/24 dev h5", "route add default via 203.0.113.1"]);
        Site { client, gateway, router, server }
    }

    /// The client's ping to the server is answered.
    #[track_caller]
    pub(crate) fn assert_pings(&self) {
        let said = self.client.run(&format!("ping -n -c 1 -W 30 {SERVER_AS_V6}"));
        assert!(said.contains("1 received"), "{said}");
    }

    /// Whether the client's ping to the server is answered at once, which may yet come.
    pub(crate) fn pings(&self) -> bool {
        let ping = self.client.try_run(&format!("ping -n -c 1 -W 1 {SERVER_AS_V6}"));
        ping.status.success()
    }

    /// What of the gateway the translator may change for its pool, as lines; also all that others might
    /// have there.
    pub(crate) fn of_pool4(&self) -> Vec<String> {
        let words = ["accept_local", "rp_filter", "src_valid_mark", "ip_forward", "_port"];
        let text = [
            self.gateway.ip_batch("-4 -details", &["rule", "route show table all", "addr"]),
            self.gateway.run("nft list ruleset"),
            self.gateway.settings(&words),
        ]
        .concat();
        text.lines().map(|line| line.trim().to_owned()).collect()
    }
}

/// Sets the ports that the host's own connections take.
pub(crate) fn local_ports(netns: &Netns, range: &str) {
    netns.sysctl("net.ipv4.ip_local_port_range", range);
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// What a command says, which must end well.
pub(crate) fn says(run: &RunDir, netns: &Netns, arguments: &str) -> String {
    let output = run.output(netns, arguments);
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{arguments}: {said}");
    said
}
