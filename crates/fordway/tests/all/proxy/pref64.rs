//! A proxy on a host that has no IPv4 itself, behind NAT64.
//!
//! ```text
//! client c0 2001:db8:1::5 ─── 2001:db8:1::1 lan0 proxy p0 2001:db8:2::2 ─── 2001:db8:2::1 g6 gateway g4 203.0.113.1 ─── s0 server
//! ```

use fordway_testhost::can_use_tun;
use fordway_testhost::has_programs;

use super::world::{Network, PROXY, output};
use crate::common::daemon::{Daemon, RunDir};
use crate::common::netns::Netns;

#[test]
fn a_host_without_ipv4_asks_through_nat64() {
    if !can_use_tun() || !has_programs(&["curl"]) {
        return;
    }
    let network = Network::new();
    let (client, proxy) = (Netns::new("client"), Netns::new("proxy"));
    proxy.link("lan0", &client, "c0");
    network.gateway.link("g6", &proxy, "p0");
    client.ip("addr add 2001:db8:1::5/64 dev c0");
    proxy.configure(&[
        "addr add 2001:db8:1::1/64 dev lan0",
        "addr add 2001:db8:2::2/64 dev p0",
        "route add default via 2001:db8:2::1",
    ]);
    network.gateway.ip("addr add 2001:db8:2::1/64 dev g6");
    let nat64 = "nat64 --pool6 2001:db8:64::/96 --pool4 203.0.113.1:20000-40000 --engine user";
    let nat64 = Daemon::start(&network.run, &network.gateway, nat64);
    let run = RunDir::new();
    // Names are asked through NAT64, too.
    let short = "proxy --listen 2001:db8:1::1 --allow 2001:db8:1::/64 --pref64 2001:db8:64::/96 \
                 --resolver 2001:db8:64::cb00:7135";
    let daemon = Daemon::start(&run, &proxy, short);
    let curl = |url: &str| {
        let mut curl = client.command("curl");
        output(curl.args(["-sS", "--max-time", "60", "--proxy", PROXY, url]))
    };
    for url in ["http://v4only.example.net/", "http://203.0.113.10/"] {
        let page = curl(url);
        assert!(page.contains("you are 203.0.113.1<"), "{url}: {page}");
    }
    // IPv4 addresses behind the prefix are looked through.
    for url in
        ["http://127.0.0.1/", "http://[2001:db8:64::7f00:1]/", "http://translated.example.net/"]
    {
        let page = curl(url);
        assert!(page.contains("403"), "{url}: {page}");
    }
    daemon.stop();
    nat64.stop();
}
