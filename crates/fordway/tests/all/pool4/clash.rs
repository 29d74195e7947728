//! What of the host is in the way is found and told.

use std::net::{TcpListener, UdpSocket};

use rustix::process::Signal;

use super::site::{NAT64, OWN, Site, local_ports};
use crate::common::daemon::{Daemon, RunDir};
use fordway_testhost::{can_use_tun, poll};

#[test]
fn ports_that_the_host_uses_are_told_with_what_to_do() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Site::new(), RunDir::new());
    let _tcp = net.gateway.inside(|| TcpListener::bind("0.0.0.0:20001").unwrap());
    let _udp = net.gateway.inside(|| UdpSocket::bind((OWN, 20_002)).unwrap());
    let _elsewhere = net.gateway.inside(|| UdpSocket::bind("127.0.0.1:20003").unwrap());
    let _outside = net.gateway.inside(|| TcpListener::bind("[::]:22").unwrap());
    let config =
        net.gateway.run(&format!("{} {NAT64} --print-config", crate::common::daemon::FORDWAY));
    let file = run.file("nat64.toml", &config);
    let daemon = Daemon::start(&run, &net.gateway, &format!("run -c {}", file.display()));
    let log = daemon.log();
    for sentence in [
        "connections of this host may take ports 30000-30999 of pool4 198.51.100.1",
        "sysctl -w net.ipv4.ip_local_port_range=\"1024 19999\"",
        "a service of this host waits on tcp port 20001 of pool4 198.51.100.1",
        "a service of this host waits on udp port 20002 of pool4 198.51.100.1",
    ] {
        assert!(log.contains(sentence), "{sentence}\n{log}");
    }
    let clashes = || daemon.status()["translators"][0]["nat64"]["clashes"].clone();
    let found = clashes();
    let ports: Vec<u64> =
        found.as_array().unwrap().iter().filter_map(|clash| clash["port"].as_u64()).collect();
    assert_eq!(ports, [20_001, 20_002], "{found}");
    assert_eq!(found[0]["clash"], "ephemeral_ports");
    assert_eq!((&found[0]["first"], &found[0]["last"]), (&30_000.into(), &30_999.into()));

    // What it says helps.
    local_ports(&net.gateway, "1024 19999");
    let smaller = config.replace(":20000-60000", ":20003-60000");
    assert_ne!(smaller, config);
    run.file("nat64.toml", &smaller);
    daemon.signal(Signal::HUP);
    poll("no clash is left", || clashes().as_array().unwrap().is_empty().then_some(()));
    daemon.stop();
}
