//! Stateful NAT64 end to end: traffic, and the commands that show and change its tables.

use std::net::IpAddr;

use fordway_testhost::{can_use_tun, poll};
use serde_json::Value;

use crate::common::connection::Connection;
use crate::common::daemon::{Daemon, RunDir, count, dropped};
use crate::common::host::{assert_same, snapshot};
use crate::common::netns::Netns;
use crate::common::ping::Request;
use crate::common::topology::{Border, V4_HOST_AS_V6};
use crate::common::{can_test_kernel, traffic};

/// Options of the gateway for [`Border`].
const NAT64: &str = "nat64 --pool6 2001:db8:64::/96 --pool4 192.0.2.1";

/// The IPv4 host as the IPv6 host addresses it, and as it is.
fn server() -> (IpAddr, IpAddr) {
    (V4_HOST_AS_V6.parse().unwrap(), "198.51.100.2".parse().unwrap())
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// What a command says, which must end well.
fn says(run: &RunDir, netns: &Netns, arguments: &str) -> String {
    let output = run.output(netns, arguments);
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{arguments}: {said}");
    said
}

/// The same as JSON.
fn json(run: &RunDir, netns: &Netns, arguments: &str) -> Value {
    let said = says(run, netns, &format!("{arguments} --json"));
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// What a command says that must be refused.
fn refused(run: &RunDir, netns: &Netns, arguments: &str) -> String {
    let output = run.output(netns, arguments);
    assert!(!output.status.success(), "{arguments}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn streams_datagrams_and_pings_pass_with_either_engine() {
    if !can_use_tun() {
        return;
    }
    let engines = [
        "user",
        "kernel",
        "kernel --attach ingress --device g4 --device g6",
        "kernel --attach xdp --device g4 --device g6",
    ];
    for engine in engines {
        let (net, run) = (Border::new(), RunDir::new());
        let before = snapshot(&net.gateway);
        let daemon = Daemon::start(&run, &net.gateway, &format!("{NAT64} --engine {engine}"));
        let is_kernel = engine.starts_with("kernel");
        let ping = net.v6.run(&format!("ping -n -c 2 -i 0.2 {V4_HOST_AS_V6}"));
        assert!(ping.contains("2 received"), "{engine}: {ping}");
        let peer = traffic::tcp_both_ways(&net.v6, &net.v4, server().0, 4 << 20);
        assert!(peer.ip() == ip("192.0.2.1") && peer.port() >= 1024, "{peer}");
        for len in [1, 1452, 65_507] {
            let peer = traffic::udp_echo(&net.v6, &net.v4, server(), len);
            assert_eq!(peer.ip(), ip("192.0.2.1"));
        }
        for (protocol, sessions) in [("tcp", 1), ("udp", 3), ("icmp", 1)] {
            daemon.counts("nat64", &format!("nat64/sessions_created/{protocol}"), sessions);
        }
        let stats = daemon.stats("nat64");
        assert_eq!(dropped(&stats), 0, "{engine}: {stats}");
        let status = daemon.status()["translators"][0].clone();
        assert_eq!(status["mode"], "nat64");
        assert_eq!(status["nat64"]["pools"][0], "192.0.2.1:1024-65535");
        assert_eq!(status["nat64"]["survives"], is_kernel);
        daemon.stop();
        assert_same(&snapshot(&net.gateway), &before);
    }
}

#[test]
fn tables_are_shown_and_filtered() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let daemon = Daemon::start(
        &run,
        &net.gateway,
        &format!("{NAT64} --port-blocks 512 --bib udp:192.0.2.1:53=[2001:db8:6::2]:53"),
    );
    let connection = Connection::open(&net.v6, &net.v4, server().0);
    let port = connection.peer.port();
    let show = |arguments: &str| json(&run, &net.gateway, arguments);

    let sessions = show("sessions");
    assert_eq!(sessions.as_array().unwrap().len(), 1, "{sessions}");
    let session = &sessions[0];
    for (key, value) in [
        ("translator", Value::from("nat64")),
        ("protocol", "tcp".into()),
        ("v6", "2001:db8:6::2".into()),
        ("v4", "192.0.2.1".into()),
        ("v4_port", port.into()),
        ("remote", "198.51.100.2".into()),
        ("state", "established".into()),
    ] {
        assert_eq!(session[key], value, "{session}");
    }
    assert!(session["remaining_seconds"].as_u64().unwrap() > 7000, "{session}");
    assert!(session["packets_from_v6"].as_u64().unwrap() >= 2, "{session}");

    let number = |arguments: &str| show(arguments).as_array().unwrap().len();
    for (arguments, expected) in [
        ("sessions --protocol udp", 0),
        ("sessions --state established --remote 198.51.100.0/24", 1),
        ("sessions --state trans", 0),
        ("sessions --remote 198.51.100.2:1", 0),
        ("bib", 2),
        ("bib --static", 1),
        ("bib --v4 192.0.2.1:53", 1),
        ("bib --v6 2001:db8:6::/64 --protocol tcp", 1),
        ("bib --v6 2001:db8:7::/64", 0),
        ("bib --limit 1", 1),
        ("subscribers", 1),
        ("subscribers --v6 2001:db8:6::2", 1),
        ("subscribers --v6 2001:db8:6::3", 0),
    ] {
        assert_eq!(number(arguments), expected, "{arguments}");
    }
    assert_eq!(says(&run, &net.gateway, "sessions --count"), "1\n");
    assert_eq!(show("bib --static --count")["count"], 1);
    let text = says(&run, &net.gateway, "bib --limit 1");
    assert!(text.contains("there are more than these 1"), "{text}");

    let subscriber = show("subscribers")[0].clone();
    assert_eq!(subscriber["subscriber"], "2001:db8:6::2/128");
    assert_eq!(subscriber["tcp_ports"], 1);
    let block = &subscriber["blocks"][0];
    let (low, high) = (block["low"].as_u64().unwrap(), block["high"].as_u64().unwrap());
    assert!(low.is_multiple_of(512) && high == low + 511, "{block}");
    assert!((low..=high).contains(&port.into()), "{block}");

    let reverse =
        |port: u64| json(&run, &net.gateway, &format!("subscribers --reverse 192.0.2.1:{port}"));
    let of_port = reverse(port.into());
    assert_eq!(of_port["bib"][0]["v6"], "2001:db8:6::2", "{of_port}");
    assert_eq!(of_port["subscribers"][0]["subscriber"], "2001:db8:6::2/128", "{of_port}");
    // Another port of its block is bound to nothing, and is the subscriber's all the same.
    let unused = if u64::from(port) == low { high } else { low };
    let of_unused = reverse(unused);
    assert_eq!(of_unused["subscribers"].as_array().unwrap().len(), 1, "{of_unused}");
    assert!(of_unused["bib"].as_array().unwrap().is_empty(), "{of_unused}");
    let text = says(&run, &net.gateway, "subscribers --reverse 192.0.2.1:1");
    assert!(text.contains("has no known host"), "{text}");

    let said = refused(&run, &net.gateway, "sessions --translator siit0");
    assert!(said.contains("no translator is called siit0"), "{said}");
    drop(connection);
    daemon.stop();
}

#[test]
fn ports_are_forwarded_by_hand() {
    if !can_use_tun() {
        return;
    }
    for engine in ["user", "kernel"] {
        let (net, run) = (Border::new(), RunDir::new());
        let daemon = Daemon::start(&run, &net.gateway, &format!("{NAT64} --engine {engine}"));
        let to: IpAddr = ip("192.0.2.1");
        let service = traffic::listen(&net.v6);
        let service_port = service.local_addr().unwrap().port();
        let bib = |change: &str| says(&run, &net.gateway, &format!("bib {change}"));
        // Nobody is behind the port yet, and it is none of the pool's.
        let dropped = || dropped(&daemon.stats("nat64"));
        traffic::assert_unanswered(&net.v4, to, 80, dropped);
        let done = bib(&format!("add tcp 192.0.2.1:80 [2001:db8:6::2]:{service_port}"));
        assert!(done.contains("is bound"), "{done}");
        traffic::assert_connects(&net.v4, to, 80);
        let taken = refused(&run, &net.gateway, "bib add tcp 192.0.2.1:80 [2001:db8:6::9]:80");
        assert!(taken.contains("bound already"), "{taken}");
        let foreign = refused(&run, &net.gateway, "bib add tcp 203.0.113.1:80 [2001:db8:6::9]:80");
        assert!(foreign.contains("no address of pool4"), "{foreign}");
        bib("del tcp 192.0.2.1:80");
        traffic::assert_unanswered(&net.v4, to, 80, dropped);
        let missing = refused(&run, &net.gateway, "bib del tcp 192.0.2.1:80");
        assert!(missing.contains("no such entry"), "{missing}");
        daemon.stop();
    }
}

#[test]
fn what_is_given_is_logged() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let log = run.path().join("nat64.json");
    let file = run.file(
        "nat64.toml",
        &format!(
            "[[translator]]\nname = 'nat64'\nmode = 'nat64'\npool6 = ['2001:db8:64::/96']\n\
             pool4 = ['192.0.2.1']\nport_blocks = {{ size = 512 }}\nsubscriber_len = 64\n\
             [[translator.log]]\nwhat = ['blocks', 'bindings', 'sessions']\nto = 'json:{}'\n",
            log.display()
        ),
    );
    let daemon = Daemon::start(&run, &net.gateway, &format!("run -c {}", file.display()));
    let connection = Connection::open(&net.v6, &net.v4, server().0);
    let lines = || -> Vec<Value> {
        let text = std::fs::read_to_string(&log).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let find = |event: &str| lines().into_iter().find(|line| line["event"] == event);
    let block = poll("a block in the log", || find("block_assigned"));
    assert_eq!(block["subscriber"], "2001:db8:6::/64", "{block}");
    let bound = find("bib_created").unwrap();
    assert_eq!(bound["v4_port"], connection.peer.port(), "{bound}");
    let session = find("session_created").unwrap();
    assert!(session.get("remote").is_none(), "{session}");
    drop(connection);
    let port = bound["v4_port"].as_u64().unwrap();
    says(&run, &net.gateway, &format!("bib del tcp 192.0.2.1:{port}"));
    let ended = poll("the end of the session in the log", || find("session_removed"));
    assert!(ended["packets_from_v6"].as_u64().unwrap() >= 3, "{ended}");
    poll("the end of the binding in the log", || find("bib_removed"));
    let stats = daemon.counts("nat64", "nat64/logs/0/written", lines().len() as u64);
    assert_eq!(count(&stats, "nat64/logs/0/lost"), 0);
    daemon.stop();
}

#[test]
fn marked_packets_get_a_pool_of_their_own() {
    if !can_test_kernel() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let file = run.file(
        "nat64.toml",
        "[[translator]]\nname = 'nat64'\nmode = 'nat64'\nengine = 'kernel'\n\
         pool6 = ['2001:db8:64::/96']\npool4 = ['192.0.2.1']\n\
         [[translator.pool]]\npool4 = ['192.0.2.9']\nmark = 7\n",
    );
    let daemon = Daemon::start(&run, &net.gateway, &format!("run -c {}", file.display()));
    let seen = || traffic::udp_echo(&net.v6, &net.v4, server(), 100).ip();
    assert_eq!(seen(), ip("192.0.2.1"));
    net.gateway.run("nft add table ip6 marks");
    net.gateway.run("nft add chain ip6 marks forward { type filter hook forward priority 0 ; }");
    net.gateway.run("nft add rule ip6 marks forward oifname nat64 meta mark set 7");
    assert_eq!(seen(), ip("192.0.2.9"));
    daemon.stop();
}

#[test]
fn a_translator_that_drains_makes_no_new_sessions() {
    if !can_use_tun() {
        return;
    }
    for engine in ["user", "kernel"] {
        let (net, run) = (Border::new(), RunDir::new());
        let daemon = Daemon::start(&run, &net.gateway, &format!("{NAT64} --engine {engine}"));
        let mut connection = Connection::open(&net.v6, &net.v4, server().0);
        let said = refused(&run, &net.gateway, "drain nat64 --timeout 1ms");
        assert!(said.contains("1 sessions were left"), "{said}");
        connection.check();
        let request = Request::send(&net.v6, V4_HOST_AS_V6);
        let stats = daemon.counts_at_least("nat64", "drops/draining", 1);
        assert!(!request.is_answered(), "{engine}: a new session");
        assert_eq!(stats["nat64"]["draining"], true);
        says(&run, &net.gateway, "drain nat64 --undo");
        net.v6.run(&format!("ping -n -c 1 -W 30 {V4_HOST_AS_V6}"));
        // Without sessions it ends at once.
        let port = connection.peer.port();
        drop(connection);
        says(&run, &net.gateway, &format!("bib del tcp 192.0.2.1:{port}"));
        let icmp = json(&run, &net.gateway, "bib --protocol icmp");
        for bound in icmp.as_array().unwrap() {
            says(&run, &net.gateway, &format!("bib del icmp 192.0.2.1:{}", bound["v4_port"]));
        }
        let said = says(&run, &net.gateway, "drain nat64 --down");
        assert!(said.contains("no session is left"), "{said}");
        assert!(daemon.status()["translators"].as_array().unwrap().is_empty());
        daemon.stop();
    }
}
