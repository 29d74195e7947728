//! What sessions and mappings of a stateful translator outlive: other configurations, kills, upgrades.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::time::Duration;

use fordway_testhost::{can_use_tun, poll};
use serde_json::Value;

use crate::common::connection::Connection;
use crate::common::daemon::{Daemon, RunDir, count, dropped};
use crate::common::host::{assert_same, snapshot};
use crate::common::netns::Netns;
use crate::common::topology::{Border, V4_HOST_AS_V6};
use crate::common::{can_test_kernel, traffic};

fn server() -> IpAddr {
    V4_HOST_AS_V6.parse().unwrap()
}

/// A file with one translator of mode nat64; `more` are further lines.
fn write(path: &Path, engine: &str, more: &str) {
    let text = format!(
        "[[translator]]\nname = 'nat64'\nmode = 'nat64'\nengine = '{engine}'\n\
         pool6 = ['2001:db8:64::/96']\n{more}"
    );
    std::fs::write(path, text).unwrap();
}

fn says(run: &RunDir, netns: &Netns, arguments: &str) -> (bool, String) {
    let output = run.output(netns, arguments);
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    (output.status.success(), said)
}

#[test]
fn sessions_that_fit_stay_and_others_end() {
    if !can_use_tun() {
        return;
    }
    for engine in ["user", "auto"] {
        let (net, run) = (Border::new(), RunDir::new());
        let file = run.path().join("nat64.toml");
        let both = "pool4 = ['192.0.2.1:1024-65535', '192.0.2.2:1024-65535']\n";
        let service = traffic::listen(&net.v6);
        let service = service.local_addr().unwrap().port();
        let forward = |port: u16| {
            format!("bib = [['tcp', '192.0.2.1:{port}', '[2001:db8:6::2]:{service}']]\n")
        };
        write(&file, engine, &format!("{both}{}", forward(80)));
        let daemon = Daemon::start(&run, &net.gateway, &format!("run -c {}", file.display()));
        let reload = || says(&run, &net.gateway, "reload");
        let to = "192.0.2.1".parse().unwrap();
        traffic::assert_connects(&net.v4, to, 80);
        let mut one = Connection::open(&net.v6, &net.v4, server());

        // A file with a mistake, and one that needs other tables: nothing changes.
        for (wrong, expected) in [
            (format!("{both}filtering = 'none'\n"), "\"none\" is no choice here"),
            (format!("{both}max_sessions = 1000\n"), "max_sessions"),
            (format!("{both}subscriber_len = 64\n"), "subscriber_len"),
            (format!("{both}filtering = 'address-dependent'\n"), "filtering"),
            (
                format!(
                    "{both}[[translator.log]]\nwhat = ['blocks']\nto = 'json:/nonexistent/x'\n"
                ),
                "cannot log to json:/nonexistent/x",
            ),
        ] {
            write(&file, engine, &wrong);
            let (done, said) = reload();
            assert!(!done && said.contains(expected), "{engine}: {said}");
            one.check();
            traffic::assert_connects(&net.v4, to, 80);
        }

        // Another forward, another lifetime: what is there goes on.
        let lifetimes = "lifetimes = { udp = '10m' }\n";
        write(&file, engine, &format!("{both}{}{lifetimes}", forward(81)));
        let (done, said) = reload();
        assert!(done && said.contains("changed: nat64"), "{said}");
        one.check();
        traffic::assert_connects(&net.v4, to, 81);
        let dropped = || dropped(&daemon.stats("nat64"));
        traffic::assert_unanswered(&net.v4, to, 80, dropped);
        // Sessions of the forward that is gone.
        let ended = || count(&daemon.stats("nat64"), "nat64/ended_by_reload");
        let of_forward = ended();
        assert!(of_forward > 0, "{engine}");

        // The address of the connection goes: so does the connection, and new ones get the other.
        let (address, port) = (one.peer.ip(), one.peer.port());
        let other = if address.to_string() == "192.0.2.1" { "192.0.2.2" } else { "192.0.2.1" };
        write(&file, engine, &format!("pool4 = ['{other}']\n"));
        let (done, plan) = says(&run, &net.gateway, "reload --dry-run --json");
        assert!(done, "{plan}");
        let plan: Value = serde_json::from_str(&plan).unwrap();
        let [change] = &plan["changes"].as_array().unwrap()[..] else { panic!("{plan}") };
        assert_eq!((&change["name"], &change["action"]), (&"nat64".into(), &"changed".into()));
        assert!(change["keys"].as_array().unwrap().contains(&"pool4".into()), "{plan}");
        let (all, ending) = (count(change, "sessions"), count(change, "ended"));
        assert!(ending > 0 && all >= ending, "{plan}");
        one.check();
        assert_eq!(ended(), of_forward, "nothing has ended so far");
        let (done, said) = reload();
        assert!(done && said.contains("do not fit any more: "), "{said}");
        assert!(ended() > of_forward, "{engine}");
        let bound = format!("bib --v4 {address}:{port} --count");
        poll("the session's end", || {
            (says(&run, &net.gateway, &bound).1.trim() == "0").then_some(())
        });
        one.assert_cut(dropped);
        let two = Connection::open(&net.v6, &net.v4, server());
        assert_eq!(two.peer.ip().to_string(), other);
        daemon.stop();
    }
}

/// What is refused after the translators have taken it up changes nothing either.
#[test]
fn a_refused_reload_cuts_no_forwarded_connection() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let file = run.path().join("nat64.toml");
    let service = net.v6.inside(|| TcpListener::bind("[::]:0").unwrap());
    let port = service.local_addr().unwrap().port();
    let pool = "pool4 = ['192.0.2.1']\nallow_short_lifetimes = true\nlifetimes = { udp = '1s' }\n";
    let forward = format!("bib = [['tcp', '192.0.2.1:80', '[2001:db8:6::2]:{port}']]\n");
    let log = |name: &str| {
        let path = run.path().join(name);
        format!("[[translator.log]]\nwhat = ['sessions']\nto = 'json:{}'\n", path.display())
    };
    write(&file, "user", &format!("{pool}{forward}{}", log("one.json")));
    let daemon = Daemon::start(&run, &net.gateway, &format!("run -c {}", file.display()));
    let to: SocketAddr = "192.0.2.1:80".parse().unwrap();
    let mut client = net.v4.inside(|| TcpStream::connect(to).unwrap());
    let (mut server, _) = service.accept().unwrap();
    let mut check = || {
        let mut buffer = [0; 4];
        for stream in [&client, &server] {
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        }
        client.write_all(b"ping").unwrap();
        server.read_exact(&mut buffer).unwrap();
    };
    check();
    let proxy = "[[proxy]]\nname = 'p'\nlisten = ['::1']\ncertificate = '/nonexistent'\nkey = '/nonexistent'\n";
    write(&file, "user", &format!("{pool}{}{proxy}", log("other.json")));
    let (done, said) = says(&run, &net.gateway, "reload");
    assert!(!done && said.contains("/nonexistent"), "{said}");
    let stats = daemon.stats("nat64");
    assert_eq!(count(&stats, "nat64/ended_by_reload"), 0);
    let to = stats["nat64"]["logs"][0]["to"].as_str().unwrap_or_default();
    assert!(to.ends_with("/one.json"), "{stats}");
    // The sweeper would end what has lost its entry: it has passed when a younger session is gone.
    let number = |of: &str| says(&run, &net.gateway, &format!("sessions --protocol {of} --count"));
    let datagram = || net.v6.inside(|| UdpSocket::bind("[::]:0").unwrap());
    datagram().send_to(b"x", (V4_HOST_AS_V6, 9)).unwrap();
    poll("the sweeper has passed", || (number("udp").1.trim() == "0").then_some(()));
    let sessions = says(&run, &net.gateway, "sessions --protocol tcp --state established --count");
    assert_eq!(sessions.1.trim(), "1");
    check();
    write(&file, "user", pool);
    assert!(says(&run, &net.gateway, "reload").0);
    assert_eq!(says(&run, &net.gateway, "bib --static --count").1.trim(), "0");
    daemon.stop();
}

#[test]
fn connections_outlive_a_killed_daemon_and_an_upgrade() {
    if !can_test_kernel() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let before = snapshot(&net.gateway);
    let arguments = "nat64 --pool6 2001:db8:64::/96 --pool4 192.0.2.1 --engine kernel";
    let daemon = Daemon::start(&run, &net.gateway, arguments);
    let mut connections: Vec<Connection> =
        (0..20).map(|_| Connection::open(&net.v6, &net.v4, server())).collect();
    for (entry, why) in [
        ("udp 192.0.2.1:53 [2001:db8:6::2]:0", "port 0 can't be used"),
        ("udp 192.0.2.1:53 [2001:db8:64::c633:6401]:53", "lies in pool6"),
        ("udp 203.0.113.1:53 [2001:db8:6::2]:53", "is no address of pool4"),
    ] {
        let (added, said) = says(&run, &net.gateway, &format!("bib add {entry}"));
        assert!(!added && said.contains(why), "{said}");
    }
    let added = says(&run, &net.gateway, "bib add udp 192.0.2.1:53 [2001:db8:6::2]:53");
    assert!(added.0, "{}", added.1);
    let (added, said) = says(&run, &net.gateway, "bib add udp 192.0.2.1:53 [2001:db8:6::3]:53");
    assert!(!added && said.contains("fordway bib del udp 192.0.2.1:53"), "{said}");
    daemon.kill();
    // Without a daemon they go on, and so does the next one.
    connections.iter_mut().for_each(Connection::check);
    let daemon = Daemon::start(&run, &net.gateway, arguments);
    assert!(daemon.log().contains("sessions of an earlier run go on"), "{}", daemon.log());
    connections.iter_mut().for_each(Connection::check);
    connections.push(Connection::open(&net.v6, &net.v4, server()));
    let sessions = says(&run, &net.gateway, "sessions --protocol tcp --state established --count");
    assert_eq!(sessions.1.trim(), "21");
    // Swept more than once, they are still there.
    daemon.counts("nat64", "nat64/sessions/tcp", 21);
    let kept = says(&run, &net.gateway, "bib --static --count");
    assert_eq!(kept.1.trim(), "1", "what was made by hand stays");
    let (left, said) = says(&run, &net.gateway, "leave");
    assert!(left, "{said}");
    let mut daemon = daemon;
    assert!(daemon.wait().success());
    connections.iter_mut().for_each(Connection::check);
    drop(daemon);
    let daemon = Daemon::start(&run, &net.gateway, arguments);
    connections.iter_mut().for_each(Connection::check);
    // Tables of another size are not thrown away behind the operator's back.
    let (left, said) = says(&run, &net.gateway, "leave");
    assert!(left, "{said}");
    drop(daemon);
    let mut other = Daemon::spawn(&run, &net.gateway, &format!("{arguments} --max-sessions 1000"));
    assert_eq!(other.wait().code(), Some(1));
    assert!(other.log().contains("fordway down nat64 ends them"), "{}", other.log());
    connections.iter_mut().for_each(Connection::check);
    drop(other);
    // Sessions know their prefix by its number: others may stand behind it, not before it.
    let two = |first: &str, second: &str| {
        arguments.replace("2001:db8:64::/96", &format!("{first} --pool6 {second}"))
    };
    let swapped = two("2001:db8:65::/96", "2001:db8:64::/96");
    let mut other = Daemon::spawn(&run, &net.gateway, &swapped);
    assert_eq!(other.wait().code(), Some(1));
    assert!(other.log().contains("pool6 and subscriber_len stay"), "{}", other.log());
    connections.iter_mut().for_each(Connection::check);
    drop(other);
    let more = two("2001:db8:64::/96", "2001:db8:65::/96");
    let daemon = Daemon::start(&run, &net.gateway, &more);
    connections.iter_mut().for_each(Connection::check);
    let (left, said) = says(&run, &net.gateway, "leave");
    assert!(left, "{said}");
    drop(daemon);
    let mut other = Daemon::spawn(&run, &net.gateway, arguments);
    assert_eq!(other.wait().code(), Some(1), "one prefix fewer");
    drop(other);
    let (down, said) = says(&run, &net.gateway, "down nat64");
    assert!(down, "{said}");
    assert_same(&snapshot(&net.gateway), &before);
}

#[test]
fn one_to_one_mappings_are_kept() {
    if !can_use_tun() {
        return;
    }
    for engine in ["user", "kernel"] {
        let (net, run) = (Border::new(), RunDir::new());
        net.v6.ip("addr add 2001:db8:6::3/64 dev h6");
        let kept = run.path().join("siit0.dynamic4");
        let text = format!(
            "[[translator]]\nname = 'siit0'\nmode = 'siit'\nqueues = 1\nengine = '{engine}'\n\
             pool6 = ['2001:db8:64::/96']\ndynamic4 = ['192.0.2.0/24']\n\
             dynamic4_file = '{}'\n",
            kept.display()
        );
        let file = run.file("siit.toml", &text);
        let arguments = format!("run -c {}", file.display());
        let daemon = Daemon::start(&run, &net.gateway, &arguments);
        let mapped = |host: &str| {
            let ping = format!("ping -n -c 1 -W 30 -I {host} {V4_HOST_AS_V6}");
            let said = net.v6.run(&ping);
            assert!(said.contains("1 received"), "{engine}: {said}");
            let (_, said) = says(&run, &net.gateway, &format!("bib --v6 {host} --json"));
            let rows: serde_json::Value = serde_json::from_str(&said).unwrap();
            assert_eq!(rows[0]["protocol"], "all", "{said}");
            rows[0]["v4"].as_str().unwrap().to_owned()
        };
        let (one, two) = (mapped("2001:db8:6::2"), mapped("2001:db8:6::3"));
        assert_ne!(one, two);
        // An address of its own: from IPv4, every port is the host's.
        net.v4.run(&format!("ping -n -c 1 -W 30 {one}"));
        let peer = traffic::tcp_both_ways(&net.v6, &net.v4, server(), 1 << 20);
        assert!([&one, &two].contains(&&peer.ip().to_string()), "{peer}");
        if engine == "kernel" {
            // All but the first packet of each host.
            let stats = daemon.counts("siit0", "queues/0/v6_to_v4/packets", 2);
            assert_eq!(count(&stats, "queues/0/v4_to_v6/packets"), 0, "{stats}");
            assert!(count(&stats, "kernel/v6_to_v4/packets") > 10, "{stats}");
            assert!(count(&stats, "kernel/v4_to_v6/packets") > 10, "{stats}");
        }
        let status = daemon.status()["translators"][0].clone();
        assert_eq!(status["nat64"]["file"], kept.display().to_string(), "{status}");
        daemon.stop();
        assert_eq!(std::fs::read_to_string(&kept).unwrap().lines().count(), 3);
        let daemon = Daemon::start(&run, &net.gateway, &arguments);
        // Reached from IPv4 before it has sent anything.
        net.v4.run(&format!("ping -n -c 1 -W 30 {two}"));
        assert_eq!(mapped("2001:db8:6::2"), one);
        daemon.stop();
    }
}

#[test]
fn addresses_of_a_device_are_followed() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    net.gateway.ip("link add pool type veth peer name loop");
    let pools = "nat64 --pool6 2001:db8:64::/96 --pool4 interface:pool --engine user";
    let daemon = Daemon::start(&run, &net.gateway, pools);
    let pool = || daemon.status()["translators"][0]["nat64"]["pools"][0].clone();
    assert_eq!(pool(), "no address");
    net.gateway.ip("addr add 192.0.2.77/32 dev pool");
    let expected = "192.0.2.77:61000-65535";
    poll("the address is a pool", || (pool() == expected).then_some(()));
    net.gateway.configure(&["addr add 192.0.2.78/32 dev pool", "addr del 192.0.2.77/32 dev pool"]);
    let expected = "192.0.2.78:61000-65535";
    poll("the other address is a pool", || (pool() == expected).then_some(()));
    daemon.stop();
}

#[test]
fn ports_that_the_host_uses_itself_are_named() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let socket = traffic::listen(&net.gateway);
    let port = socket.local_addr().unwrap().port();
    let pool = "nat64 --pool6 2001:db8:64::/96 --pool4 198.51.100.1:1024-65535 --engine user";
    let daemon = Daemon::start(&run, &net.gateway, pool);
    let clashes = daemon.status()["translators"][0]["nat64"]["clashes"].clone();
    let kinds: Vec<&str> =
        clashes.as_array().unwrap().iter().map(|clash| clash["clash"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["ephemeral_ports", "socket"], "{clashes}");
    assert_eq!(clashes[1]["port"], port, "{clashes}");
    let log = daemon.log();
    let waits = format!("waits on tcp port {port} of pool4 198.51.100.1");
    for part in ["net.ipv4.ip_local_port_range", waits.as_str()] {
        assert!(log.contains(part), "{part}: {log}");
    }
    // What the sentence asks for, and another start: all is well but the service.
    daemon.stop();
    net.gateway.run("sysctl -w net.ipv4.ip_local_reserved_ports=1024-65535");
    drop(socket);
    let daemon = Daemon::start(&run, &net.gateway, pool);
    let clashes = daemon.status()["translators"][0]["nat64"]["clashes"].clone();
    assert!(clashes.as_array().unwrap().is_empty(), "{clashes}");
    daemon.stop();
}

#[test]
fn one_that_fails_ends_nobody_elses_connections() {
    if !can_test_kernel() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let before = snapshot(&net.gateway);
    let file = run.path().join("both.toml");
    let other = "[[translator]]\nname = 'siit0'\nmode = 'siit'\nengine = 'kernel'\n\
                 pool6 = ['2001:db8:46::/96']\neam = [['203.0.113.9', '2001:db8:6::9']]\n";
    write(&file, "kernel", &format!("pool4 = ['192.0.2.1:1024-65535']\n{other}"));
    let arguments = format!("run -c {}", file.display());
    let mut first = Daemon::start(&run, &net.gateway, &arguments);
    let mut connection = Connection::open(&net.v6, &net.v4, server());
    net.gateway.ip("link del siit0");
    assert_eq!(first.wait().code(), Some(1));
    assert!(first.log().contains("interface siit0 was deleted"), "{}", first.log());
    connection.check();
    let second = Daemon::start(&run, &net.gateway, &arguments);
    connection.check();
    drop(connection);
    second.stop();
    assert_same(&snapshot(&net.gateway), &before);
}
