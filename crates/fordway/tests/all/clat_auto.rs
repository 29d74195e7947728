//! A CLAT that sets itself up: networks that come, change and go.

use fordway_testhost::{can_use_tun, poll};

use crate::common::advertiser::{Advertiser, Content};
use crate::common::daemon::{Daemon, dropped};
use crate::common::host::{assert_same, snapshot};
use crate::common::laptop::{
    Laptop, NET, OTHER_NET, OTHER_PREF64, PREF64, SERVER_V4, automatic, until, until_state,
    until_waiting, v6,
};
use crate::common::ping::{Change, Ping};

#[test]
fn it_starts_before_the_network_and_follows_it_to_the_end() {
    if !can_use_tun() {
        return;
    }
    let net = Laptop::new();
    let before = snapshot(&net.host);
    let daemon = net.start("");
    let status = until(&daemon, "it has looked", |it| it["reason"] == "no IPv6 default route");
    assert_eq!(status["state"], "waiting");
    assert_eq!(daemon.status()["translators"].as_array().unwrap().len(), 0);
    // Nothing is set up, and nothing promised to applications.
    assert_same(&snapshot(&net.host), &before);
    let router = net.advertise();
    let status = until_state(&daemon, "active");
    assert_eq!(status["pref64"], PREF64);
    assert_eq!(status["uplink"], "c0");
    assert_eq!(status["prefixes"][0]["source"], "router advertisement");
    assert!(v6(&status).starts_with("2001:db8:1:"), "{status:#}");
    net.reaches_server();
    let translator = &daemon.status()["translators"][0];
    assert_eq!((&translator["mode"], &translator["mtu"]), (&"clat".into(), &1500.into()));
    // Advertisements are still taken, although the host forwards.
    assert_eq!(net.host.run("sysctl -n net.ipv6.conf.c0.accept_ra").trim(), "2");
    assert_eq!(dropped(&daemon.stats("clat0")), 0);
    let unique =
        until(&daemon, "the address is checked", |it| it["duplicates"] == "unique on the link");
    assert_eq!(v6(&unique), v6(&status));
    // The router goes, with everything it has said.
    router.say(Content { lifetime: 0, ..Content::new(NET, &[]).withdraws(PREF64) });
    until_waiting(&daemon, "no IPv6 default route");
    assert!(!net.host.ip("link").contains("clat0"));
    // And comes back.
    router.say(Content::new(NET, &[PREF64]));
    assert_eq!(v6(&until_state(&daemon, "active")), v6(&unique));
    net.reaches_server();
    drop(router);
    daemon.stop();
    net.assert_as_before(&before);
}

#[test]
fn another_prefix_is_taken_up_under_way() {
    if !can_use_tun() {
        return;
    }
    let net = Laptop::new();
    let router = net.advertise();
    let daemon = net.start("");
    until_state(&daemon, "active");
    net.reaches_server();
    let requests = net.router.counter("icmpv6 type echo-request");
    let ping = Ping::start(&net.host, SERVER_V4);
    let count = net.router.counter("ip6 daddr 2001:db8:65::/96 icmpv6 type echo-request");
    let change = Change::begin(ping);
    router.say(Content::new(NET, &[OTHER_PREF64]).withdraws(PREF64));
    until(&daemon, "the other prefix", |it| it["pref64"] == OTHER_PREF64);
    let change = change.done();
    poll("packets have the other prefix", || (count() > 20).then_some(()));
    let sent = change.end();
    assert_eq!(requests(), sent as u64, "every request has arrived");
    assert_eq!(daemon.status()["translators"][0]["clat"]["pref64"], OTHER_PREF64);
    daemon.stop();
}

#[test]
fn a_withdrawn_prefix_leaves_nothing_behind() {
    if !can_use_tun() {
        return;
    }
    let net = Laptop::new();
    let router = net.advertise();
    let daemon = net.start("");
    until_state(&daemon, "active");
    router.say(Content::new(NET, &[]).withdraws(PREF64));
    let none = "no prefix found on c0: neither a router's advertisement (RFC 8781) nor DNS (RFC 7050) tells one";
    until_waiting(&daemon, none);
    assert_eq!(net.host.ip("-4 route"), "");
    assert_eq!(net.host.run("sysctl -n net.ipv6.conf.all.forwarding").trim(), "0");
    // The host is in its network as before.
    assert!(net.host.ip("-6 route show default").contains("proto ra"));
    daemon.stop();
}

#[test]
fn renumbering_is_followed() {
    if !can_use_tun() {
        return;
    }
    let net = Laptop::new();
    let router = net.advertise();
    let daemon = net.start("");
    let first = v6(&until_state(&daemon, "active"));
    net.reaches_server();
    let requests = net.router.counter("icmpv6 type echo-request");
    let change = Change::begin(Ping::start(&net.host, SERVER_V4));
    // The old network is deprecated (RFC 4862 section 5.5.4), the new one is there.
    let mut content = Content::new(OTHER_NET, &[PREF64]);
    content.prefixes.push((NET.parse().unwrap(), 7200, 0));
    router.say(content);
    let second = until(&daemon, "the other network", |it| v6(it).starts_with("2001:db8:2:"));
    let second = v6(&second);
    let sent = change.done().end();
    assert_eq!(requests(), sent as u64, "every request has arrived");
    net.reaches_server();
    // Neighbours are answered for the new address, and for the old one no more.
    let proxies = net.host.ip("-6 neigh show proxy");
    assert!(proxies.contains(&second) && !proxies.contains(&first), "{proxies}");
    daemon.stop();
    assert_eq!(net.host.ip("-6 neigh show proxy"), "");
}

#[test]
fn a_link_that_goes_down_and_comes_back_is_followed() {
    if !can_use_tun() {
        return;
    }
    let net = Laptop::new();
    let _router = net.advertise();
    let daemon = net.start("");
    let first = v6(&until_state(&daemon, "active"));
    net.host.ip("link set c0 down");
    until_state(&daemon, "waiting");
    net.host.ip("link set c0 up");
    assert_eq!(v6(&until_state(&daemon, "active")), first);
    net.reaches_server();
    daemon.stop();
}

#[test]
fn another_device_takes_over() {
    if !can_use_tun() {
        return;
    }
    let net = Laptop::new();
    let wired = net.advertise();
    let daemon = net.start("");
    until_state(&daemon, "active");
    // A device that appears while the host forwards still takes what is advertised there.
    net.host.link("c1", &net.router, "s1");
    net.router.ip("addr add 2001:db8:3::1/64 dev s1");
    let content = Content::new("2001:db8:3::/64", &[OTHER_PREF64]);
    let _wireless = Advertiser::start(&net.router, "s1", content);
    poll("the other network is there", || {
        net.host.ip("-6 addr show dev c1").contains("2001:db8:3:").then_some(())
    });
    // The first one stays as long as its router does.
    wired.say(Content { lifetime: 0, ..Content::new(NET, &[PREF64]) });
    let status = until(&daemon, "the other device", |it| it["uplink"] == "c1");
    assert_eq!(status["pref64"], OTHER_PREF64);
    assert!(v6(&status).starts_with("2001:db8:3:"), "{status:#}");
    net.reaches_server();
    // The device itself goes: what it had goes too.
    wired.say(Content::new(NET, &[PREF64]));
    net.host.ip("link del c1");
    let status = until(&daemon, "back again", |it| it["uplink"] == "c0");
    assert_eq!(status["pref64"], PREF64);
    net.reaches_server();
    daemon.stop();
}

#[test]
fn a_configured_uplink_is_waited_for_and_may_come_and_go() {
    if !can_use_tun() {
        return;
    }
    let net = Laptop::new();
    let _router = net.advertise();
    let daemon = net.start("--uplink c1");
    let status = until(&daemon, "it has looked", |it| it["reason"] == "there is no device c1");
    assert_eq!(status["state"], "waiting");
    for round in ["first", "second"] {
        net.host.link("c1", &net.router, "s1");
        net.router.ip("addr add 2001:db8:3::1/64 dev s1");
        let content = Content::new("2001:db8:3::/64", &[OTHER_PREF64]);
        let wireless = Advertiser::start(&net.router, "s1", content);
        // The other router's default route is as good as this one's.
        poll("its route", || {
            let _ = net.host.try_run("ip -6 route del default dev c0");
            (automatic(&daemon)["state"] == "active").then_some(())
        });
        assert_eq!(automatic(&daemon)["uplink"], "c1", "{round}");
        net.reaches_server();
        drop(wireless);
        net.host.ip("link del c1");
        until_waiting(&daemon, "there is no device c1");
    }
    daemon.stop();
}

#[test]
fn it_stands_beside_other_translators_and_says_when_it_can_hear_nothing() {
    if !can_use_tun() {
        return;
    }
    let net = Laptop::new();
    let text = "[[translator]]\nname = 'clat0'\nmode = 'clat'\npref64 = 'auto'\n\
                [[translator]]\nname = 'siit0'\nmode = 'siit'\npool6 = ['2001:db8:46::/96']\n";
    let file = net.run.file("two.toml", text);
    let daemon = Daemon::start(&net.run, &net.host, &format!("run -c {}", file.display()));
    assert_eq!(daemon.status()["translators"][0]["name"], "siit0");
    // A gateway is a router, and routers take no default route from others (RFC 4861 section 6.2.7).
    let deaf = "c0 forwards, so it takes none from routers unless net.ipv6.conf.c0.accept_ra is 2";
    until(&daemon, "a reason", |it| it["reason"].as_str().is_some_and(|it| it.ends_with(deaf)));
    net.host.sysctl("net.ipv6.conf.c0.accept_ra", "2");
    let _router = net.advertise();
    until_state(&daemon, "active");
    let names: Vec<_> = daemon.status()["translators"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names, ["clat0", "siit0"]);
    net.reaches_server();
    daemon.stop();
}
