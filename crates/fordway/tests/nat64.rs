//! Stateful NAT64 end to end.

mod common;

use common::daemon::{Daemon, RunDir, count, dropped};
use common::topology::{Border, V4_HOST_AS_V6};
use common::{can_test, traffic};

/// Options of the gateway for [`Border`].
const NAT64: &str = "nat64 --pool6 2001:db8:64::/96 --pool4 192.0.2.1";

#[test]
fn streams_datagrams_and_pings_pass_with_either_engine() {
    if !can_test() {
        return;
    }
    for engine in ["user", "kernel"] {
        let (net, run) = (Border::new(), RunDir::new());
        let daemon = Daemon::start(&run, &net.gateway, &format!("{NAT64} --engine {engine}"));
        let ping = net.v6.run(&format!("ping -n -c 2 -i 0.2 {V4_HOST_AS_V6}"));
        assert!(ping.contains("2 received"), "{engine}: {ping}");
        let to = V4_HOST_AS_V6.parse().unwrap();
        let peer = traffic::tcp_both_ways(&net.v6, &net.v4, to, 4 << 20);
        assert_eq!(peer.ip(), "192.0.2.1".parse::<std::net::IpAddr>().unwrap());
        assert!(peer.port() >= 1024);
        for len in [1, 1452, 65_507] {
            let own = "198.51.100.2".parse().unwrap();
            let peer = traffic::udp_echo(&net.v6, &net.v4, (to, own), len);
            assert_eq!(peer.ip(), "192.0.2.1".parse::<std::net::IpAddr>().unwrap());
        }
        let stats = daemon.stats("nat64");
        assert_eq!(dropped(&stats), 0, "{engine}: {stats}");
        assert_eq!(count(&stats, "nat64/sessions_created/tcp"), 1, "{engine}: {stats}");
        assert_eq!(count(&stats, "nat64/sessions_created/icmp"), 1, "{engine}: {stats}");
        daemon.stop();
    }
}
