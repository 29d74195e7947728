//! A CLAT that sets itself up, and what else its host has: native IPv4, neighbours, operators, accidents.

use fordway_testhost::{can_use_tun, poll};
use rustix::process::Signal;

use crate::common::advertiser::Content;
use crate::common::connection::Connection;
use crate::common::daemon::Daemon;
use crate::common::host::snapshot;
use crate::common::laptop::{
    Laptop, NET, OTHER_PREF64, PREF64, SERVER_V4, automatic, until, until_state, until_waiting, v6,
};
use crate::common::netns::Netns;
use crate::common::ping::{Change, Ping};

/// Another network, which has IPv4 only.
fn native(net: &Laptop) -> Netns {
    let other = Netns::new("native");
    net.host.link("n0", &other, "n0");
    net.host.ip("addr add 192.0.2.1/24 dev n0");
    other.ip("addr add 192.0.2.2/24 dev n0");
    other
}

const NATIVE: &str = "route add default via 192.0.2.2 metric 100";

#[test]
fn native_ipv4_sends_it_aside_and_its_end_brings_it_back() {
    if !can_use_tun() {
        return;
    }
    let net = Laptop::new();
    let _native = native(&net);
    let _router = net.advertise();
    let daemon = net.start("");
    let first = v6(&until_state(&daemon, "active"));
    net.host.ip(NATIVE);
    let status = until_state(&daemon, "aside");
    assert_eq!(status["reason"], "there is native IPv4 on n0");
    // What the network tells is known all the same.
    assert_eq!(status["prefixes"][0]["prefix"], PREF64);
    assert_eq!(status["pref64"], serde_json::Value::Null);
    assert!(!net.host.ip("link").contains("clat0"));
    assert_eq!(net.host.run("sysctl -n net.ipv6.conf.all.forwarding").trim(), "0");
    assert!(!net.host.ip("route").contains("clat0"));
    net.host.ip("route del default");
    assert_eq!(v6(&until_state(&daemon, "active")), first);
    net.reaches_server();
    // It begins aside, too.
    daemon.stop();
    net.host.ip(NATIVE);
    let daemon = net.start("");
    until_state(&daemon, "aside");
    assert_eq!(daemon.status()["translators"].as_array().unwrap().len(), 0);
    net.host.ip("link set n0 down");
    until_state(&daemon, "active");
    net.reaches_server();
    daemon.stop();
}

#[test]
fn always_means_always_and_a_worse_default_route_is_none() {
    if !can_use_tun() {
        return;
    }
    let net = Laptop::new();
    let _native = native(&net);
    let _router = net.advertise();
    net.host.ip(NATIVE);
    let daemon = net.start("--always");
    until_state(&daemon, "active");
    let ping = net.host.run(&format!("ping -n -c 1 -W 30 -I clat0 {SERVER_V4}"));
    assert!(ping.contains("1 received"), "{ping}");
    // Whoever writes nothing goes the native way.
    assert!(net.host.ip(&format!("route get {SERVER_V4}")).contains("dev n0"));
    daemon.stop();
    net.host.ip("route del default");
    net.host.ip("route add default via 192.0.2.2 metric 20100");
    let daemon = net.start("");
    until_state(&daemon, "active");
    net.reaches_server();
    daemon.stop();
}

#[test]
fn an_address_that_a_neighbour_has_is_given_up_for_the_next() {
    if !can_use_tun() {
        return;
    }
    let net = Laptop::new();
    let _router = net.advertise();
    let daemon = net.start("");
    let first = v6(&until_state(&daemon, "active"));
    daemon.stop();
    net.router.ip(&format!("addr add {first}/64 dev s0 nodad"));
    let daemon = net.start("");
    let status = until(&daemon, "another address", |it| {
        it["v6"].as_str().is_some_and(|v6| v6 != first) && it["duplicates"] == "unique on the link"
    });
    assert!(v6(&status).starts_with("2001:db8:1:"), "{status:#}");
    net.reaches_server();
    let log = daemon.stop();
    assert!(
        log.contains(&format!("on the link has the address {first}, so it is given up")),
        "{log}"
    );
    // A configured one has no next: the CLAT waits for it.
    let daemon = net.start(&format!("--v6 {first}"));
    // Before, it waits for a route and for a prefix.
    until_waiting(&daemon, &format!("another host on the link has the address {first}"));
    assert!(!net.host.ip("link").contains("clat0"));
    daemon.stop();
}

/// Whoever wants the CLAT's address for himself hears that it is taken (RFC 4862 section 5.4).
#[test]
fn the_address_is_defended() {
    if !can_use_tun() {
        return;
    }
    let net = Laptop::new();
    let _router = net.advertise();
    let daemon = net.start("");
    let status = until(&daemon, "checked", |it| it["duplicates"] == "unique on the link");
    net.router.sysctl("net.ipv6.conf.s0.accept_dad", "1");
    net.router.ip(&format!("addr add {}/64 dev s0", v6(&status)));
    poll("the kernel has found the duplicate", || {
        net.router.ip("-6 addr show dev s0").contains("dadfailed").then_some(())
    });
    net.router.ip(&format!("addr del {}/64 dev s0", v6(&status)));
    net.reaches_server();
    assert_eq!(v6(&automatic(&daemon)), v6(&status));
    daemon.stop();
}

#[test]
fn connections_outlive_a_daemon_that_is_killed() {
    if !can_use_tun() {
        return;
    }
    let net = Laptop::new();
    let router = net.advertise();
    let before = snapshot(&net.host);
    let daemon = net.start("--engine kernel");
    let first = v6(&until_state(&daemon, "active"));
    let mut connection = Connection::open(&net.host, &net.router, SERVER_V4.parse().unwrap());
    let ping = Ping::start(&net.host, SERVER_V4);
    daemon.kill();
    connection.check();
    let daemon = net.start("--engine kernel");
    // The router may have spoken before anybody can ask whether something is left.
    assert!(
        daemon.log().contains("an earlier run's kernel engine goes on until"),
        "{}",
        daemon.log()
    );
    assert_eq!(v6(&until_state(&daemon, "active")), first);
    assert_eq!(automatic(&daemon)["left"], false);
    connection.check();
    ping.end();
    daemon.kill();
    // The network is another meanwhile.
    router.say(Content::new(NET, &[OTHER_PREF64]).withdraws(PREF64));
    let daemon = net.start("--engine kernel");
    until(&daemon, "the other prefix", |it| it["pref64"] == OTHER_PREF64);
    net.reaches_server();
    // Ctrl-C leaves nothing behind, also of a daemon that was killed.
    daemon.kill();
    router.say(Content::new(NET, &[]).withdraws(OTHER_PREF64));
    let mut daemon = net.start("--engine kernel");
    daemon.signal(Signal::INT);
    assert!(daemon.wait().success());
    net.assert_as_before(&before);
}

#[test]
fn what_a_killed_daemon_has_left_goes_when_the_network_has_gone() {
    if can_use_tun() {
        leftovers_go("kernel");
    }
}

#[test]
fn what_a_killed_daemon_has_left_of_a_user_engine_goes_as_well() {
    if can_use_tun() {
        leftovers_go("user");
    }
}

fn leftovers_go(engine: &str) {
    let net = Laptop::new();
    let before = snapshot(&net.host);
    let router = net.advertise();
    let daemon = net.start(&format!("--engine {engine}"));
    until_state(&daemon, "active");
    daemon.kill();
    router.say(Content { lifetime: 0, ..Content::new(NET, &[]).withdraws(PREF64) });
    poll("the default route has gone", || {
        net.host.ip("-6 route show default").is_empty().then_some(())
    });
    let daemon = net.start(&format!("--engine {engine}"));
    until(&daemon, "nothing is left", |it| it["left"] == false && it["state"] == "waiting");
    assert!(!net.host.ip("link").contains("clat0"));
    net.assert_as_before(&before);
    daemon.stop();
}

#[test]
fn at_the_uplink_it_follows_as_well() {
    if !can_use_tun() {
        return;
    }
    let net = Laptop::new();
    let router = net.advertise();
    let daemon = net.start("--engine kernel --uplink c0");
    until_state(&daemon, "active");
    assert_eq!(daemon.status()["translators"][0]["attach"], "uplink");
    net.reaches_server();
    let requests = net.router.counter("icmpv6 type echo-request");
    let change = Change::begin(Ping::start(&net.host, SERVER_V4));
    router.say(Content::new(NET, &[OTHER_PREF64]).withdraws(PREF64));
    until(&daemon, "the other prefix", |it| it["pref64"] == OTHER_PREF64);
    let sent = change.done().end();
    assert_eq!(requests(), sent as u64, "every request has arrived");
    net.reaches_server();
    net.host.ip("link set c0 down");
    until_state(&daemon, "waiting");
    net.host.ip("link set c0 up");
    until_state(&daemon, "active");
    net.reaches_server();
    daemon.stop();
}

#[test]
fn operators_reload_it_and_take_it_down() {
    if !can_use_tun() {
        return;
    }
    let net = Laptop::new();
    let _router = net.advertise();
    let entry = |more: &str| {
        format!("[[translator]]\nname = 'clat0'\nmode = 'clat'\npref64 = 'auto'\n{more}\n")
    };
    let other = "[[translator]]\nname = 'siit0'\nmode = 'siit'\npool6 = ['2001:db8:46::/96']\n";
    let file = net.run.file("auto.toml", &entry(""));
    let daemon = Daemon::start(&net.run, &net.host, &format!("run -c {}", file.display()));
    until_state(&daemon, "active");
    let reload = |text: &str| {
        net.run.file("auto.toml", text);
        let output = net.run.output(&net.host, "reload");
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stdout).into_owned()
                + &String::from_utf8_lossy(&output.stderr),
        )
    };
    // Another metric, under way.
    let mut connection = Connection::open(&net.host, &net.router, SERVER_V4.parse().unwrap());
    let (done, said) = reload(&entry("metric = 3000"));
    assert!(done && said.contains("changed: clat0"), "{said}");
    assert!(net.host.ip("route show default").contains("metric 3000"));
    connection.check();
    let (done, said) = reload(&entry("metric = 3000"));
    assert!(done && said.contains("unchanged: 1"), "{said}");
    // What can't be done under way is refused.
    let fixed = entry("").replace("auto", "2001:db8:64::/96");
    let (done, said) = reload(&fixed);
    assert!(!done && said.contains("pref64 (from a prefix to auto, or back)"), "{said}");
    connection.check();
    let (done, said) = reload(other);
    assert!(done && said.contains("gone: clat0"), "{said}");
    assert!(!net.host.ip("link").contains("clat0"));
    assert_eq!(daemon.status()["automatic"], serde_json::Value::Null);
    let (done, said) = reload(&(entry("") + other));
    assert!(done && said.contains("new: clat0"), "{said}");
    until_state(&daemon, "active");
    net.reaches_server();
    let down = net.run.output(&net.host, "down clat0");
    assert!(down.status.success());
    assert_eq!(daemon.status()["automatic"], serde_json::Value::Null);
    assert!(!net.host.ip("link").contains("clat0"));
    let text = net.run.output(&net.host, "status");
    assert!(String::from_utf8_lossy(&text.stdout).contains("siit0"));
    daemon.stop();
}

#[test]
fn an_interface_that_somebody_deletes_is_made_again() {
    if !can_use_tun() {
        return;
    }
    let net = Laptop::new();
    let _router = net.advertise();
    for engine in ["kernel", "user"] {
        let daemon = net.start(&format!("--engine {engine}"));
        until_state(&daemon, "active");
        net.host.ip("link del clat0");
        net.reaches_server();
        let log = daemon.stop();
        assert!(log.contains("it is set up again"), "{log}");
    }
}

#[test]
fn what_somebody_takes_away_is_put_back() {
    if !can_use_tun() {
        return;
    }
    let net = Laptop::new();
    let router = net.advertise();
    // Programs need no rules.
    let daemon = net.start("--engine user");
    until_state(&daemon, "active");
    // As systemd-networkd does with rules that are not its own, when it starts.
    let rules = net.host.ip("rule");
    assert!(rules.contains("iif clat0"), "{rules}");
    net.host.ip("rule del priority 32764");
    net.host.ip("route del default");
    poll("rule and route are back", || {
        let back =
            net.host.ip("rule") == rules && net.host.ip("route").contains("default dev clat0");
        back.then_some(())
    });
    net.reaches_server();
    // A link that takes shorter packets from now on.
    router.say(Content { mtu: Some(1400), ..Content::new(NET, &[PREF64]) });
    poll("the other MTU", || (daemon.status()["translators"][0]["mtu"] == 1400).then_some(()));
    assert!(net.host.ip("route show default").contains("mtu 1400 advmss 1340"));
    daemon.stop();
}

#[test]
fn it_keeps_few_privileges_and_tells_people_what_it_does() {
    if !can_use_tun() {
        return;
    }
    let net = Laptop::new();
    let _router = net.advertise();
    let daemon = net.start("--engine user");
    until_state(&daemon, "active");
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap().trim();
    // CAP_NET_ADMIN, CAP_NET_RAW and CAP_SYS_NICE, nothing else.
    let expected = 1 << 12 | 1 << 13 | 1 << 23;
    assert_eq!(u64::from_str_radix(effective, 16).unwrap(), expected, "{effective}");
    let text = net.run.output(&net.host, "status");
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    for part in [
        "clat0 automatic, active for",
        "found",
        "2001:db8:64::/96 from router fe80::",
        "by way of c0",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let metrics = net.run.output(&net.host, "stats --prometheus");
    let metrics = String::from_utf8_lossy(&metrics.stdout).into_owned();
    let line = "fordway_clat_state{translator=\"clat0\",state=\"active\"} 1";
    assert!(metrics.lines().any(|it| it == line), "{metrics}");
    daemon.stop();
}
