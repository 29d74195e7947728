//! One change of each kind, and what they do to the host.

use std::path::{Path, PathBuf};

use fordway_net::{
    Address, Change, IpNet, NamespaceId, NeighbourProxy, Route, RouteKind, Rule, SysctlKey, sysctl,
};
use fordway_testhost::poll;

use super::{ip, ip_output};

pub(crate) fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

pub(crate) fn read(key: &str) -> String {
    sysctl::read(&key.parse().unwrap()).unwrap()
}

pub(crate) fn write(key: &str, value: &str) {
    sysctl::write(&key.parse().unwrap(), value).unwrap();
}

pub(crate) fn ledger(run: &Path) -> PathBuf {
    let namespace = NamespaceId::current().unwrap().to_string();
    run.join("net").join(namespace).join("ledger.json")
}

/// One of each kind, for an interface veth0.
pub(crate) fn changes() -> Vec<Change> {
    let unreachable = Route {
        kind: RouteKind::Unreachable,
        device: None,
        ..Route::new(net("2001:db8:dead::/48"), "")
    };
    let mut rule = Rule::new(false, 100, 4_646);
    rule.mark = Some((0x46, 0xff));
    let mut early = Rule::new(false, 0, 4_647);
    early.mark = Some((0x47, u32::MAX));
    vec![
        Change::sysctl(SysctlKey::forwarding_v4(), "1"),
        Change::sysctl(SysctlKey::forwarding_v6(), "1"),
        Change::sysctl(SysctlKey::conf_v4("veth0", "rp_filter").unwrap(), "2"),
        Change::Mtu { device: "veth0".to_owned(), mtu: 1480 },
        Change::QueueLength { device: "veth0".to_owned(), length: 4096 },
        Change::Up { device: "veth0".to_owned() },
        Change::Address(Address::new("veth0", net("192.0.2.1/24"))),
        Change::Address(Address { no_dad: true, ..Address::new("veth0", net("2001:db8::1/64")) }),
        Change::Route(Route {
            gateway: Some("2001:db8::2".parse().unwrap()),
            mtu: Some(1400),
            ..Route::new(net("64:ff9b::/96"), "veth0")
        }),
        Change::Route(unreachable),
        Change::Rule(rule),
        Change::EarlyRule(early),
        Change::NeighbourProxy(NeighbourProxy::new("veth0", "2001:db8::46".parse().unwrap())),
    ]
}

/// What of the host the changes touch, as text.
pub(crate) fn snapshot() -> String {
    // The kernel makes the route of an address of its own somewhat later than it shows the address.
    let routes = || ip_output("-6 route show table local dev veth0");
    poll("the routes of addresses", || {
        let addresses = ip_output("-6 -o address show dev veth0 scope global");
        let mut hosts = addresses.split_whitespace().filter_map(|word| word.strip_suffix("/64"));
        let routes = routes();
        hosts.all(|host| routes.contains(&format!("local {host} "))).then_some(())
    });
    let mut text = String::new();
    for line in [
        "link show veth0",
        "address show veth0",
        "route show table all",
        "-6 route show table all",
        "-details rule show",
        "-details -6 rule show",
        "neigh show proxy",
    ] {
        // What the kernel adds by itself comes and goes in its own time.
        let own = |line: &&str| line.contains("fe80") || line.starts_with("multicast ff00");
        for line in ip_output(line).lines().filter(|line| !own(line)) {
            text.push_str(line.trim_end());
            text.push('\n');
        }
    }
    let nftables = std::process::Command::new("nft").args(["list", "ruleset"]).output();
    text.push_str(&String::from_utf8(nftables.expect("nft").stdout).unwrap());
    for key in [
        "net.ipv4.ip_forward",
        "net.ipv6.conf.all.forwarding",
        "net.ipv6.conf.veth0.forwarding",
        "net.ipv6.conf.veth1.forwarding",
        "net.ipv4.conf.veth0.forwarding",
        "net.ipv4.conf.veth1.forwarding",
        "net.ipv4.conf.veth0.rp_filter",
        "net.ipv4.conf.all.accept_redirects",
    ] {
        text.push_str(&format!("{key} = {}\n", read(key)));
    }
    text
}

pub(crate) fn prepared_host() {
    ip("link add veth0 type veth peer name veth1");
    // The first time up also sets a queueing discipline.
    ip("link set veth0 up");
    ip("link set veth0 down");
    // Without these the kernel's own addresses and multicast routes, which
    // come late and by themselves, would make snapshots differ.
    write("net.ipv6.conf.veth0.addr_gen_mode", "1");
    write("net.ipv6.conf.veth1.addr_gen_mode", "1");
    write("net.ipv4.ip_forward", "0");
    write("net.ipv4.conf.all.accept_redirects", "0");
    write("net.ipv6.conf.veth1.forwarding", "1");
    write("net.ipv4.conf.veth1.forwarding", "1");
}
