//! Mode dual-stack: forwarding of both families, and nothing else.

use fordway_testhost::{can_use_tun, poll};

use crate::common::daemon::{Daemon, RunDir};
use crate::common::host::{assert_same, snapshot};
use crate::common::netns::Netns;

#[test]
fn both_families_are_forwarded_and_the_host_is_as_it_was_afterwards() {
    if !can_use_tun() {
        return;
    }
    let (client, gateway, server) = (Netns::new("c"), Netns::new("gw"), Netns::new("s"));
    gateway.link("lan0", &client, "c0");
    gateway.link("wan0", &server, "s0");
    gateway.configure(&["addr add 203.0.113.1/24 dev wan0", "addr add 2001:db8:2::1/64 dev wan0"]);
    client.configure(&[
        "addr add 198.51.100.2/24 dev c0",
        "addr add 2001:db8:1::2/64 dev c0",
        "route add default via 198.51.100.1",
        "route add default via 2001:db8:1::1",
    ]);
    server.configure(&[
        "addr add 203.0.113.2/24 dev s0",
        "addr add 2001:db8:2::2/64 dev s0",
        "route add 198.51.100.0/24 via 203.0.113.1",
        "route add 2001:db8:1::/64 via 2001:db8:2::1",
    ]);
    let before = snapshot(&gateway);
    let run = RunDir::new();
    let file = run.file(
        "fordway.toml",
        "[[translator]]\nname = 'dual'\nmode = 'dual-stack'\ndevices = ['lan0', 'wan0', 'late0']\n\
         addresses = [['lan0', '198.51.100.1/24'], ['lan0', '2001:db8:1::1/64']]\n\
         [[advertise]]\ndevice = 'lan0'\n",
    );
    let mut daemon = Daemon::start(&run, &gateway, &format!("run {}", file.display()));
    assert!(daemon.log().contains("there is no interface late0"), "{}", daemon.log());
    // Nobody translates. The host has made an IPv6 address of what it was told.
    let seen =
        [server.counter("ip saddr 198.51.100.2"), server.counter("ip6 saddr 2001:db8:1::/64")];
    client.run("ping -n -c 1 -W 30 203.0.113.2");
    client.run("ping -n -c 1 -W 30 2001:db8:2::2");
    assert!(seen.iter().all(|seen| seen() >= 1));
    let status = daemon.status();
    assert_eq!(status["dual_stack"][0]["absent"][0], "late0");
    assert_eq!(status["advertise"][0]["device"], "lan0");
    let stats = daemon.all_stats();
    assert!(stats["dual_stack"][0]["v4"].as_u64().unwrap() >= 2, "{stats}");
    assert!(stats["dual_stack"][0]["v6"].as_u64().unwrap() >= 2, "{stats}");

    let other = Netns::new("late");
    gateway.link("late0", &other, "l0");
    poll("the late device takes part", || {
        let absent = daemon.status()["dual_stack"][0]["absent"].clone();
        absent.as_array().is_some_and(Vec::is_empty).then_some(())
    });
    assert_eq!(gateway.run("sysctl -n net.ipv4.conf.late0.forwarding").trim(), "1");
    drop(other);
    daemon.signal(rustix::process::Signal::INT);
    assert!(daemon.wait().success(), "{}", daemon.log());
    let before: Vec<String> = before.into_iter().filter(|line| !line.contains("late0")).collect();
    let now: Vec<String> = snapshot(&gateway);
    let now: Vec<String> = now.into_iter().filter(|line| !line.contains("late0")).collect();
    assert_same(&now, &before);
}
