//! Hosts that are set up in unusual ways.

use fordway_testhost::can_use_tun;

use crate::common::daemon::{Daemon, RunDir, dropped};
use crate::common::host::{assert_same, snapshot};
use crate::common::netns::Netns;
use crate::common::process::Process;
use crate::common::topology::{Access, PREF64, SERVER, SERVER_V4};
use crate::common::traffic;

fn clat() -> String {
    format!("clat --pref64 {PREF64}")
}

fn ping(netns: &Netns) {
    let text = netns.run(&format!("ping -n -c 1 -W 30 {SERVER_V4}"));
    assert!(text.contains("1 received"), "{text}");
}

#[test]
fn router_advertisements_are_still_taken() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Access::new(), RunDir::new());
    // A default route as a router advertisement makes it.
    net.client.ip("-6 route add default via fe80::1 dev c0 proto ra");
    let before = snapshot(&net.client);
    let accept_ra = || net.client.run("sysctl -n net.ipv6.conf.c0.accept_ra").trim().to_owned();
    let daemon = Daemon::start(&run, &net.client, &clat());
    assert_eq!(accept_ra(), "2");
    daemon.stop();
    assert_same(&snapshot(&net.client), &before);
    // Also after a kill, which leaves a host that forwards.
    Daemon::start(&run, &net.client, &clat()).kill();
    let daemon = Daemon::start(&run, &net.client, &clat());
    assert_eq!(accept_ra(), "2");
    // And as long as any daemon needs it.
    let socket = run.path().join("second.sock").display().to_string();
    let second = format!("siit --pool6 2001:db8:65::/96 --socket {socket}");
    let second = Daemon::start(&run, &net.client, &second);
    daemon.stop();
    assert_eq!(accept_ra(), "2");
    second.stop();
    assert_same(&snapshot(&net.client), &before);
    // A host that forwards already has decided for itself.
    net.client.sysctl("net.ipv6.conf.all.forwarding", "1");
    let daemon = Daemon::start(&run, &net.client, &clat());
    assert_eq!(accept_ra(), "1");
    ping(&net.client);
    assert_eq!(dropped(&daemon.stats("clat0")), 0);
    daemon.stop();
    assert_eq!(net.client.run("sysctl -n net.ipv6.conf.all.forwarding").trim(), "1");
}

#[test]
fn strict_reverse_path_filtering_stops_nothing() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Access::new(), RunDir::new());
    net.client.sysctl("net.ipv4.conf.all.rp_filter", "1");
    net.client.sysctl("net.ipv4.conf.default.rp_filter", "1");
    // A better default route elsewhere, so that a strict filter would refuse what the CLAT returns.
    let other = Netns::new("other");
    net.client.link("n0", &other, "n0");
    net.client
        .configure(&["addr add 192.0.2.1/24 dev n0", "route add default via 192.0.2.2 metric 100"]);
    let before = snapshot(&net.client);
    let daemon = Daemon::start(&run, &net.client, &clat());
    // Native IPv4 wins where it is.
    let way = net.client.ip(&format!("route get {SERVER_V4}"));
    assert!(way.contains("dev n0"), "{way}");
    let text = net.client.run(&format!("ping -n -c 1 -W 30 -I clat0 {SERVER_V4}"));
    assert!(text.contains("1 received"), "{text}");
    daemon.stop();
    assert_same(&snapshot(&net.client), &before);
}

#[test]
fn a_firewall_with_connection_tracking_is_no_obstacle() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Access::new(), RunDir::new());
    net.client.run("nft add table inet filter");
    net.client.run(
        "nft add chain inet filter forward { type filter hook forward priority 0 ; policy drop ; }",
    );
    net.client.run("nft add rule inet filter forward ct state established,related accept");
    net.client.run("nft add rule inet filter forward iifname clat0 accept");
    let daemon = Daemon::start(&run, &net.client, &clat());
    ping(&net.client);
    traffic::tcp_both_ways(&net.client, &net.server, SERVER.0, 1 << 20);
    // Connection tracking puts fragments together before they are routed.
    traffic::udp_echo(&net.client, &net.server, SERVER, 65_507);
    let stats = daemon.counts_at_least("clat0", "v6_to_v4/packets", 4);
    assert_eq!(dropped(&stats), 0, "{stats}");
    daemon.stop();
}

#[test]
fn a_privileged_process_with_one_capability_is_enough() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Access::new(), RunDir::new());
    let before = snapshot(&net.client);
    let mut command = net.client.command("setpriv");
    command.args([
        "--bounding-set=-all,+net_admin",
        "--no-new-privs",
        crate::common::daemon::FORDWAY,
    ]);
    command.arg("--run-dir").arg(run.path()).args(clat().split_whitespace());
    let log = run.path().join("log");
    let mut daemon = Process::start(command.stderr(std::fs::File::create(&log).unwrap()));
    fordway_testhost::poll("it is ready", || {
        std::fs::read_to_string(&log).unwrap().contains("ready after").then_some(())
    });
    ping(&net.client);
    let pid = rustix::process::Pid::from_child(&daemon.0);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let status = daemon.wait();
    let log = std::fs::read_to_string(&log).unwrap();
    assert!(status.success(), "{log}");
    assert_same(&snapshot(&net.client), &before);
    // Without it, the reason is said.
    let mut command = net.client.command("setpriv");
    command.args(["--bounding-set=-all", "--no-new-privs", crate::common::daemon::FORDWAY]);
    let output =
        command.arg("--run-dir").arg(run.path()).args(clat().split_whitespace()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("the process lacks CAP_NET_ADMIN"), "{error}");
}

#[test]
fn without_ipv6_the_reason_is_said() {
    if !can_use_tun() {
        return;
    }
    let (netns, run) = (Netns::new("old"), RunDir::new());
    netns.sysctl("net.ipv6.conf.all.disable_ipv6", "1");
    let output = run.output(&netns, "siit --pool6 2001:db8:64::/96");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("IPv6 is disabled"), "{error}");
    assert!(error.contains("sysctl -w net.ipv6.conf.all.disable_ipv6=0"), "{error}");
}

#[test]
fn logs_in_json_are_json() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Access::new(), RunDir::new());
    let text = format!(
        "[log]\nformat = 'json'\nlevel = 'debug'\n[[translator]]\nname = 'clat0'\n\
         mode = 'clat'\npref64 = '{PREF64}'\n"
    );
    let file = run.file("json.toml", &text);
    let daemon = Daemon::start(&run, &net.client, &format!("run -c {}", file.display()));
    let log = daemon.stop();
    for line in log.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(line["level"].is_string() && line["message"].is_string(), "{line}");
    }
    assert!(log.contains("DEBUG"), "{log}");
}
