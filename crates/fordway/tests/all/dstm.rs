//! DSTM: clients of an IPv6-only network borrow IPv4 addresses of a server, and packets go through its tunnel end point.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use fordway_testhost::{can_use_tun, has_programs, poll};
use serde_json::Value;

use crate::common::daemon::{Daemon, RunDir};
use crate::common::netns::Netns;
use crate::common::ping::Request;
use crate::common::process::Process;
use crate::common::traffic;

/// ```text
/// client c0 2001:db8:1::2/64 ── 2001:db8:1::1 r1 router r2 2001:db8:2::1 ── 2001:db8:2::2 t6 tep
/// other  o0 2001:db8:3::2/64 ── 2001:db8:3::1 r3 router
/// tep t4 198.51.100.1/24 ── 198.51.100.2 h4 server; the tunnel end point 2001:db8:f::1 is routed to the tep
/// ```
pub(crate) struct Net {
    pub(crate) client: Netns,
    pub(crate) other: Netns,
    router: Netns,
    pub(crate) tep: Netns,
    server: Netns,
    /// Keys and leases.
    files: RunDir,
}

const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 2));
const LEN: usize = 1 << 20;

impl Net {
    pub(crate) fn new() -> Net {
        let net = Net {
            client: Netns::new("client"),
            other: Netns::new("other"),
            router: Netns::new("router"),
            tep: Netns::new("tep"),
            server: Netns::new("server"),
            files: RunDir::new(),
        };
        let Net { client, other, router, tep, server, files } = &net;
        router.sysctl("net.ipv6.conf.all.forwarding", "1");
        client.link("c0", router, "r1");
        other.link("o0", router, "r3");
        tep.link("t6", router, "r2");
        tep.link("t4", server, "h4");
        router.configure(&[
            "addr add 2001:db8:1::1/64 dev r1 nodad",
            "addr add 2001:db8:3::1/64 dev r3 nodad",
            "addr add 2001:db8:2::1/64 dev r2 nodad",
            "route add 2001:db8:f::/64 via 2001:db8:2::2",
        ]);
        for (netns, device, address, gateway) in [
            (client, "c0", "2001:db8:1::2/64", "2001:db8:1::1"),
            (other, "o0", "2001:db8:3::2/64", "2001:db8:3::1"),
            (tep, "t6", "2001:db8:2::2/64", "2001:db8:2::1"),
        ] {
            netns.configure(&[
                &format!("addr add {address} dev {device} nodad"),
                &format!("route add default via {gateway}"),
            ]);
        }
        tep.ip("addr add 198.51.100.1/24 dev t4");
        server
            .configure(&["addr add 198.51.100.2/24 dev h4", "route add default via 198.51.100.1"]);
        files.file("one.key", &"11".repeat(32));
        files.file("two.key", &"22".repeat(32));
        files.file("wrong.key", &"33".repeat(32));
        net
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// Options of a server that lends `pool`.
    pub(crate) fn lender(&self, pool: &str, more: &str) -> String {
        format!(
            "dstm-server --engine user --listen 2001:db8:2::2 --local 2001:db8:f::1 --pool {pool} --client one={} \
             --client two={} --state {} --set rest=0s {more}",
            self.path("one.key").display(),
            self.path("two.key").display(),
            self.path("leases").display(),
        )
    }

    /// Options of a client.
    pub(crate) fn borrower(&self, id: &str, more: &str) -> String {
        let key = self.path(&format!("{id}.key"));
        format!(
            "dstm-client --engine user --server 2001:db8:2::2 --id {id} --key-file {} {more}",
            key.display()
        )
    }
}

/// What of a host a daemon changes.
fn host(netns: &Netns) -> String {
    let all = [
        netns.ip_batch("-4", &["rule", "route show table all"]),
        netns.ip_batch("-6", &["rule", "route show table all", "neigh show proxy"]),
        netns.ip_batch("", &["addr show"]),
        netns.run("nft list ruleset"),
        netns.settings(&["ipv4.ip_forward", "ipv6.conf.all.forwarding"]),
    ]
    .concat();
    // Lifetimes and caches move by themselves.
    let lines = all.lines().filter(|line| !line.contains("valid_lft") && !line.contains("cache"));
    lines.map(|line| format!("{}\n", line.trim())).collect()
}

/// One echo request alone, for which nothing is ready.
pub(crate) fn ping_once(netns: &Netns, to: &str) -> String {
    let output = netns.try_run(&format!("ping -n -c 1 -W 30 {to}"));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What the client's daemon says of it.
fn client(daemon: &Daemon) -> Value {
    daemon.status()["dstm_clients"][0].clone()
}

pub(crate) fn leases(net: &Net, dir: &RunDir) -> Vec<Value> {
    let output = dir.output(&net.tep, "leases --json");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

pub(crate) fn server_count(daemon: &Daemon, key: &str) -> u64 {
    daemon.all_stats()["dstm_server"][key].as_u64().unwrap()
}

#[test]
fn the_first_packet_gets_an_address_and_nothing_stays() {
    for engine in ["user", "kernel"] {
        first_packet(engine);
    }
}

fn first_packet(engine: &str) {
    if !can_use_tun() {
        return;
    }
    let net = Net::new();
    let with = |line: String| line.replace("engine user", &format!("engine {engine}"));
    let before = (host(&net.tep), host(&net.client));
    let (tep_dir, client_dir) = (RunDir::new(), RunDir::new());
    let tep = Daemon::start(&tep_dir, &net.tep, &with(net.lender("192.0.2.0/28", "")));
    let borrower = Daemon::start(&client_dir, &net.client, &with(net.borrower("one", "")));
    assert_eq!(client(&borrower)["state"], "idle");
    assert!(leases(&net, &tep_dir).is_empty());
    let ping = ping_once(&net.client, "198.51.100.2");
    assert!(ping.contains("1 received"), "{engine}: {ping}\n{}", borrower.log());
    let state = client(&borrower);
    assert_eq!(
        (&state["state"], &state["waited"], &state["sent"]),
        (&"bound".into(), &1.into(), &1.into())
    );
    let v4: IpAddr = state["v4"].as_str().unwrap().parse().unwrap();
    let lent = leases(&net, &tep_dir);
    assert_eq!((&lent[0]["client"], &lent[0]["v4"]), (&"one".into(), &v4.to_string().into()));
    // The route follows when the packet has gone.
    let source = format!("src {v4}");
    let follows = || net.client.run("ip -4 route show default dev dstm0").contains(&source);
    poll("the route's source", || follows().then_some(()));
    // Both ways, with the address unchanged, and in from IPv4.
    let seen = traffic::tcp_both_ways(&net.client, &net.server, SERVER, LEN);
    assert_eq!(seen.ip(), v4);
    let seen = traffic::tcp_both_ways(&net.server, &net.client, v4, LEN);
    assert_eq!(seen.ip(), SERVER);
    for len in [100, 5_000] {
        traffic::udp_echo(&net.client, &net.server, (SERVER, SERVER), len);
        traffic::udp_echo(&net.server, &net.client, (v4, v4), len);
    }
    // Given back by the operator of the client, as by Ctrl-C.
    borrower.signal(rustix::process::Signal::INT);
    let mut borrower = borrower;
    assert!(borrower.wait().success(), "{}", borrower.log());
    assert!(leases(&net, &tep_dir).is_empty());
    assert_eq!(server_count(&tep, "released"), 1);
    tep.stop();
    assert_eq!((host(&net.tep), host(&net.client)), before);
}

/// The client opens its socket at the start, with the address that it has then.
#[test]
fn a_client_that_has_another_address_by_now_asks_from_that() {
    if !can_use_tun() {
        return;
    }
    let net = Net::new();
    let (tep_dir, client_dir) = (RunDir::new(), RunDir::new());
    let _tep = Daemon::start(&tep_dir, &net.tep, &net.lender("192.0.2.0/28", ""));
    let borrower = Daemon::start(&client_dir, &net.client, &net.borrower("one", ""));
    net.client.ip("addr add 2001:db8:1::9/64 dev c0 nodad");
    net.client.ip("addr del 2001:db8:1::2/64 dev c0");
    assert!(ping_once(&net.client, "198.51.100.2").contains("1 received"), "{}", borrower.log());
}

/// The packet does not wait for that: it follows as the way to the server was.
#[test]
fn the_way_to_the_tunnel_end_point_may_be_another_than_to_the_server() {
    if !can_use_tun() {
        return;
    }
    let net = Net::new();
    net.client.ip("route add 2001:db8:f::/64 via 2001:db8:1::1 mtu 1400");
    let (tep_dir, client_dir) = (RunDir::new(), RunDir::new());
    let _tep = Daemon::start(&tep_dir, &net.tep, &net.lender("192.0.2.0/28", ""));
    let borrower = Daemon::start(&client_dir, &net.client, &net.borrower("one", ""));
    let mtu = || borrower.status()["translators"][0]["mtu"].clone();
    assert_eq!(mtu(), 1500);
    assert!(ping_once(&net.client, "198.51.100.2").contains("1 received"), "{}", borrower.log());
    poll("the path MTU", || (mtu() == 1400).then_some(()));
}

#[test]
fn curl_fetches_a_file_through_the_tunnel() {
    if !can_use_tun() || !has_programs(&["curl"]) || !has_programs(&["python3"]) {
        return;
    }
    let net = Net::new();
    let (tep_dir, client_dir) = (RunDir::new(), RunDir::new());
    let _tep = Daemon::start(&tep_dir, &net.tep, &net.lender("192.0.2.0/28", ""));
    let _borrower = Daemon::start(&client_dir, &net.client, &net.borrower("one", ""));
    let site = RunDir::new();
    std::fs::write(site.path().join("file"), vec![b'x'; 3 << 20]).unwrap();
    let mut python = net.server.command("python3");
    python.args(["-m", "http.server", "8080", "--directory"]).arg(site.path());
    let _python = Process::start(python.stderr(std::process::Stdio::null()));
    poll("the site is there", || {
        net.server
            .try_run("curl -s -o /dev/null http://198.51.100.2:8080/")
            .status
            .success()
            .then_some(())
    });
    // The very first packet is its SYN.
    let got = net.client.run(
        "curl -sS --max-time 60 -o /dev/null -w %{size_download} http://198.51.100.2:8080/file",
    );
    assert_eq!(got, (3 << 20).to_string());
}

#[test]
fn two_clients_share_an_address_by_its_ports() {
    if !can_use_tun() {
        return;
    }
    let net = Net::new();
    let dirs = [RunDir::new(), RunDir::new(), RunDir::new()];
    let tep = net.lender("192.0.2.1/32", "--ports-per-client 16384");
    let _tep = Daemon::start(&dirs[0], &net.tep, &tep);
    let one = Daemon::start(&dirs[1], &net.client, &net.borrower("one", ""));
    let two = Daemon::start(&dirs[2], &net.other, &net.borrower("two", ""));
    let mut ranges = Vec::new();
    for (netns, daemon) in [(&net.client, &one), (&net.other, &two)] {
        let ping = ping_once(netns, "198.51.100.2");
        assert!(ping.contains("1 received"), "{ping}\n{}", daemon.log());
        let state = client(daemon);
        assert_eq!(state["v4"], "192.0.2.1");
        let port = |at: usize| state["ports"][at].as_u64().unwrap() as u16;
        ranges.push((port(0), port(1)));
    }
    assert_ne!(ranges[0], ranges[1]);
    // Whatever ports applications choose, those of the lease are on the wire.
    for (netns, range) in [(&net.client, ranges[0]), (&net.other, ranges[1])] {
        for _ in 0..3 {
            let seen = traffic::tcp_both_ways(netns, &net.server, SERVER, 1 << 16);
            assert_eq!(seen.ip().to_string(), "192.0.2.1");
            assert!((range.0..=range.1).contains(&seen.port()), "{seen} {range:?}");
        }
        let seen = traffic::udp_echo(netns, &net.server, (SERVER, SERVER), 3_000);
        assert!((range.0..=range.1).contains(&seen.port()), "{seen} {range:?}");
    }
}

#[test]
fn an_exhausted_pool_and_a_wrong_key_are_told() {
    if !can_use_tun() {
        return;
    }
    let net = Net::new();
    let dirs = [RunDir::new(), RunDir::new(), RunDir::new()];
    let tep = Daemon::start(&dirs[0], &net.tep, &net.lender("192.0.2.1/32", ""));
    let one = Daemon::start(&dirs[1], &net.client, &net.borrower("one", ""));
    assert!(ping_once(&net.client, "198.51.100.2").contains("1 received"), "{}", one.log());
    let two = Daemon::start(&dirs[2], &net.other, &net.borrower("two", ""));
    let request = Request::send(&net.other, "198.51.100.2");
    poll("it is refused", || (client(&two)["state"] == "refused").then_some(()));
    assert_eq!(server_count(&tep, "exhausted"), 1);
    assert_eq!(client(&two)["refused"], "all addresses of the pool are lent");
    assert!(two.log().contains("no address: all addresses of the pool are lent"), "{}", two.log());
    assert!(!request.is_answered());
    two.stop();
    // Somebody with a key of his own making gets no answer.
    let wrong = net.borrower("two", "").replace("two.key", "wrong.key");
    let two = Daemon::start(&dirs[2], &net.other, &wrong);
    let request = Request::send(&net.other, "198.51.100.2");
    poll("it is counted", || (server_count(&tep, "forged") > 0).then_some(()));
    assert_eq!(client(&two)["state"], "asking");
    assert!(!request.is_answered());
    // The operator takes the address from the one and so gives it to the other.
    let output = dirs[0].output(&net.tep, "leases --release one");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(leases(&net, &dirs[0]).is_empty());
    let output = dirs[0].output(&net.tep, "leases --release one");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("one has no lease"), "{said}");
}

#[test]
fn an_idle_address_goes_back_and_another_packet_gets_one_again() {
    if !can_use_tun() {
        return;
    }
    let net = Net::new();
    let (tep_dir, client_dir) = (RunDir::new(), RunDir::new());
    let tep = Daemon::start(&tep_dir, &net.tep, &net.lender("192.0.2.0/28", "--lifetime 10s"));
    // Longer than half of the lifetime: the lease is renewed first, which is no use of it.
    let borrower = Daemon::start(&client_dir, &net.client, &net.borrower("one", "--idle 6s"));
    let ping = ping_once(&net.client, "198.51.100.2");
    assert!(ping.contains("1 received"), "{ping}\n{}", borrower.log());
    poll("it is given back", || leases(&net, &tep_dir).is_empty().then_some(()));
    assert!(server_count(&tep, "renewed") >= 1);
    poll("it is gone", || (client(&borrower)["state"] == "idle").then_some(()));
    assert!(!net.client.ip("addr show dev dstm0").contains("192.0.2."));
    assert_eq!(server_count(&tep, "released"), 1);
    let ping = ping_once(&net.client, "198.51.100.2");
    assert!(ping.contains("1 received"), "{ping}\n{}", borrower.log());
    assert_eq!(client(&borrower)["state"], "bound");
    borrower.stop();
    assert!(leases(&net, &tep_dir).is_empty());
    assert_eq!(server_count(&tep, "released"), 2);
}

#[test]
fn killed_and_started_again_each_goes_on() {
    if !can_use_tun() {
        return;
    }
    let net = Net::new();
    let before = (host(&net.tep), host(&net.client));
    let (tep_dir, client_dir) = (RunDir::new(), RunDir::new());
    let lender = net.lender("192.0.2.0/28", "");
    let tep = Daemon::start(&tep_dir, &net.tep, &lender);
    let borrower = Daemon::start(&client_dir, &net.client, &net.borrower("one", ""));
    assert!(ping_once(&net.client, "198.51.100.2").contains("1 received"), "{}", borrower.log());
    let address = client(&borrower)["v4"].clone();
    // Another server, the same leases: the client notices nothing.
    tep.kill();
    let tep = Daemon::start(&tep_dir, &net.tep, &lender);
    assert_eq!(leases(&net, &tep_dir)[0]["v4"], address);
    assert!(ping_once(&net.client, "198.51.100.2").contains("1 received"), "{}", tep.log());
    // Another client, which gets the same address when it needs one.
    borrower.kill();
    let borrower = Daemon::start(&client_dir, &net.client, &net.borrower("one", ""));
    assert_eq!(client(&borrower)["state"], "idle");
    assert!(ping_once(&net.client, "198.51.100.2").contains("1 received"), "{}", borrower.log());
    assert_eq!(client(&borrower)["v4"], address);
    borrower.stop();
    tep.stop();
    assert_eq!((host(&net.tep), host(&net.client)), before);
}

#[test]
fn a_server_on_another_host_and_a_reload() {
    if !can_use_tun() {
        return;
    }
    let net = Net::new();
    let (tep_dir, server_dir, client_dir) = (RunDir::new(), RunDir::new(), RunDir::new());
    let tep = |more: &str| {
        format!(
            "[[translator]]\nname = \"tep0\"\nmode = \"softwire\"\nrole = \"tep\"\nengine = \"user\"\n\
             local = \"2001:db8:f::1\"\nroutes4 = [\"192.0.2.0/28\"{more}]\n\
             bindings = [{{ v4 = \"203.0.113.1\", remote = \"2001:db8:3::46\" }}]\n\
             [dstm_tep]\nlisten = \"2001:db8:2::2\"\ntep = \"tep0\"\nkey_file = \"{}\"\n",
            net.path("two.key").display()
        )
    };
    let file = tep_dir.file("tep.toml", &tep(""));
    let tep_daemon = Daemon::start(&tep_dir, &net.tep, &format!("run -c {}", file.display()));
    let server = format!(
        "[dstm_server]\nlisten = [\"2001:db8:3::2\"]\npool = [\"192.0.2.0/28\"]\n\
         tep_address = \"2001:db8:f::1\"\ntep_control = \"2001:db8:2::2\"\ntep_key_file = \"{}\"\nstate = \"{}\"\n\
         [[dstm_server.prefix]]\nprefix = \"2001:db8:1::/64\"\nkey_file = \"{}\"\n",
        net.path("two.key").display(),
        net.path("leases").display(),
        net.path("one.key").display()
    );
    let file = server_dir.file("server.toml", &server);
    let server = Daemon::start(&server_dir, &net.other, &format!("run -c {}", file.display()));
    poll("the tunnel end point is told", || {
        (server.status()["dstm_server"]["tep_up"] == true).then_some(())
    });
    let key = net.path("one.key");
    let line =
        format!("dstm-client --engine user --server 2001:db8:3::2 --key-file {}", key.display());
    let borrower = Daemon::start(&client_dir, &net.client, &line);
    assert!(ping_once(&net.client, "198.51.100.2").contains("1 received"), "{}", borrower.log());
    assert_eq!(tep_daemon.status()["dstm_tep"]["bindings"], 1);
    // Another configuration of the tunnel end point: what is lent stays.
    tep_dir.file("tep.toml", &tep(", \"192.0.2.16/28\""));
    let output = tep_dir.output(&net.tep, "reload");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(tep_daemon.status()["translators"][0]["softwire"]["bindings"], 2);
    let mut connection =
        crate::common::connection::Connection::open(&net.client, &net.server, SERVER);
    connection.check();
    // The end point starts again, and is told again.
    tep_daemon.kill();
    let file = tep_dir.path().join("tep.toml");
    let tep_daemon = Daemon::start(&tep_dir, &net.tep, &format!("run -c {}", file.display()));
    poll("it is told again", || (tep_daemon.status()["dstm_tep"]["bindings"] == 1).then_some(()));
    connection.check();
}
