//! What the host should look like is kept so.

use fordway_testhost::{can_use_tun, poll};

use crate::common::daemon::{Daemon, RunDir};
use crate::common::host::{assert_same, snapshot};
use crate::common::topology::{Access, PREF64, SERVER_V4};

#[test]
fn what_somebody_takes_away_is_put_back() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Access::new(), RunDir::new());
    let clat = format!("clat --pref64 {PREF64} --engine user");
    let before = snapshot(&net.client);
    let daemon = Daemon::start(&run, &net.client, &clat);
    let during = snapshot(&net.client);
    for line in [
        "ip addr flush dev clat0",
        "ip route del default",
        "ip -6 route flush dev clat0",
        "sysctl -q -w net.ipv6.conf.all.forwarding=0",
        "ip -6 neigh flush proxy all nud all",
        "ip link set clat0 mtu 1300",
        "ip link set clat0 down",
    ] {
        let puts = || daemon.log().matches("; put back: ").count();
        let earlier = puts();
        net.client.run(line);
        let is_whole = || (snapshot(&net.client) == during).then_some(());
        // What changes nothing is not put back.
        poll(line, || is_whole().filter(|()| puts() > earlier));
    }
    let ping = net.client.run(&format!("ping -n -c 1 -W 30 {SERVER_V4}"));
    assert!(ping.contains("1 received"), "{ping}");
    let log = daemon.stop();
    assert!(!log.contains("WARN"), "{log}");
    assert_same(&snapshot(&net.client), &before);
}
