//! An IPv6-only network end to end: `fordway run examples/ipv6-only-network.toml` on a gateway, a host that
//! knows nothing but what the gateway advertises, and servers of both kinds.
//!
//! ```text
//! host h0 ─── 2001:db8:1::1/64 lan0 gateway wan0 203.0.113.2/24 ─── w0 203.0.113.1/24  isp  198.51.100.1/24 p0 ─── s0 server
//!                                                2001:db8:ffff::2/64   2001:db8:ffff::1/64  2001:db8:5::1/64
//! ```
//!
//! The isp runs the upstream name server; the server has a web site that has IPv4 only (198.51.100.10), and
//! one that has both. `cargo test -p fordway --test all ipv6_only -- --nocapture` tells each step.

mod quic;

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, TcpListener};
use std::process::Command;
use std::thread;

use fordway_testhost::{can_use_tun, has_programs, poll};

use crate::common::daemon::{Daemon, RunDir};
use crate::common::dns::{Upstream, Zone};
use crate::common::netns::Netns;
use crate::common::ping::{Change, Ping};
use crate::common::{host, traffic};

/// The file that the README tells to run.
const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/ipv6-only-network.toml");

/// The script that runs a command on such a network.
const TEST_NETWORK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/ipv6-only-test");

/// The server that has IPv4 only: its name, its address, and that behind the translation prefix.
const V4_ONLY: (&str, &str, &str) =
    ("v4only.example.net", "198.51.100.10", "2001:db8:64::c633:640a");

/// The server that has both.
const DUAL: (&str, &str, &str) = ("dual.example.net", "198.51.100.20", "2001:db8:5::20");

struct Network {
    host: Netns,
    gateway: Netns,
    _isp: Netns,
    server: Netns,
    _upstream: Vec<Upstream>,
}

impl Network {
    fn new() -> Network {
        let [host, gateway, isp, server] = ["host", "gw", "isp", "server"].map(Netns::new);
        gateway.link("lan0", &host, "h0");
        gateway.link("wan0", &isp, "w0");
        isp.link("p0", &server, "s0");
        gateway.configure(&[
            "addr add 2001:db8:1::1/64 dev lan0",
            "addr add 203.0.113.2/24 dev wan0",
            "addr add 2001:db8:ffff::2/64 dev wan0",
            "route add default via 203.0.113.1",
            "route add default via 2001:db8:ffff::1",
        ]);
        for address in
            ["203.0.113.1/24", "203.0.113.53/24", "2001:db8:ffff::1/64", "2001:db8:ffff::53/64"]
        {
            isp.ip(&format!("addr add {address} dev w0"));
        }
        isp.configure(&[
            "addr add 198.51.100.1/24 dev p0",
            "addr add 2001:db8:5::1/64 dev p0",
            "route add 2001:db8:1::/64 via 2001:db8:ffff::2",
        ]);
        isp.sysctl("net.ipv4.ip_forward", "1");
        isp.sysctl("net.ipv6.conf.all.forwarding", "1");
        for address in ["198.51.100.10/24", "198.51.100.20/24", "2001:db8:5::20/64"] {
            server.ip(&format!("addr add {address} dev s0"));
        }
        server.configure(&[
            "route add default via 198.51.100.1",
            "route add default via 2001:db8:5::1",
        ]);
        let zone = Zone::new("example.net")
            .a(V4_ONLY.0, V4_ONLY.1)
            .a(DUAL.0, DUAL.1)
            .aaaa(DUAL.0, DUAL.2)
            .cname("www.example.net", V4_ONLY.0)
            .ptr("10.100.51.198.in-addr.arpa", V4_ONLY.0);
        let upstream = ["203.0.113.53:53", "[2001:db8:ffff::53]:53"]
            .map(|address| Upstream::start(&isp, address, zone.clone()))
            .into();
        Network { host, gateway, _isp: isp, server, _upstream: upstream }
    }
}

/// A web server that tells its visitors their address.
fn serve_http(server: &Netns) {
    let listener = server.inside(|| TcpListener::bind("[::]:80").unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            thread::spawn(move || -> std::io::Result<()> {
                let from = stream.peer_addr()?.ip().to_canonical();
                let mut lines = BufReader::new(stream.try_clone()?).lines();
                while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
                let body = format!("<html><body><p id=\"from\">you are {from}</p></body></html>");
                write!(
                    stream,
                    "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\
                     Connection: close\r\n\r\n{body}",
                    body.len()
                )
            });
        }
    });
}

/// What a host's programs see as /etc/resolv.conf: `ip netns exec` puts it in place.
struct ResolvConf(std::path::PathBuf);

impl ResolvConf {
    fn write(host: &Netns, servers: &[String]) -> ResolvConf {
        let folder = std::path::Path::new("/etc/netns").join(host.name());
        std::fs::create_dir_all(&folder).unwrap();
        let lines: String = servers.iter().map(|server| format!("nameserver {server}\n")).collect();
        std::fs::write(folder.join("resolv.conf"), lines).unwrap();
        ResolvConf(folder)
    }
}

impl Drop for ResolvConf {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a program of the host with its own resolv.conf; it must succeed.
fn on_host(host: &Netns, line: &str) -> String {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", host.name()]).args(line.split_whitespace()).env("LC_ALL", "C");
    let output = command.stdin(std::process::Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}\n{text}{errors}");
    text
}

fn told(step: &str, seen: &str) {
    println!("ok  {step:<44} {}", seen.trim().replace('\n', " | "));
}

/// Address, route, and name servers of the advertisement.
fn take_advertisement(host: &Netns) -> Vec<String> {
    let address = poll("an address from the advertisement", || {
        let text = host.ip("-6 -o addr show dev h0 scope global");
        let text = text.split_whitespace().find(|word| word.starts_with("2001:db8:1:"))?;
        Some(text.to_owned())
    });
    told("address from the advertisement", &address);
    let route = poll("a default route", || {
        let text = host.ip("-6 route show default");
        (!text.is_empty()).then_some(text)
    });
    assert!(route.contains("proto ra"), "{route}");
    told("default route from the advertisement", &route);
    assert_eq!(host.ip("-4 route"), "", "the host has no IPv4");
    let text = poll("an advertisement on request", || {
        let output = host.try_run("rdisc6 -1 h0");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    });
    let after = |line: &str| line.split_once(" : ").map(|(_, value)| value.trim().to_owned());
    let lines = text.lines().filter(|line| line.contains("Recursive DNS server"));
    let servers: Vec<String> = lines.filter_map(after).collect();
    assert_eq!(servers, ["2001:db8:1::1"], "{text}");
    told("name server from the advertisement", &servers.join(" "));
    servers
}

#[test]
fn everything_works_on_an_ipv6_only_network() {
    if !can_use_tun() || !has_programs(&["rdisc6", "curl", "dig", "traceroute", "chromium"]) {
        return;
    }
    let network = Network::new();
    let Network { host, gateway, server, .. } = &network;
    serve_http(server);
    let before = [host::snapshot(gateway), host::snapshot(host)];
    let (gateway_dir, host_dir) = (RunDir::new(), RunDir::new());
    let file = gateway_dir.file("network.toml", &std::fs::read_to_string(EXAMPLE).unwrap());
    let gateway_daemon = Daemon::start(&gateway_dir, gateway, &format!("run {}", file.display()));
    let servers = take_advertisement(host);
    let resolv_conf = ResolvConf::write(host, &servers);

    names(host);
    native_programs(host, server);
    let found = on_host(host, &format!("{} discover --timeout 1m", crate::common::daemon::FORDWAY));
    assert!(found.contains("2001:db8:64::/96"), "{found}");
    told("fordway discover", &found);

    let clat = Daemon::start(&host_dir, host, "clat --pref64 auto");
    poll("IPv4 through the CLAT", || {
        host.try_run(&format!("ping -n -c 1 -W 1 {}", V4_ONLY.1)).status.success().then_some(())
    });
    literals(host, server);
    doctor(&host_dir, host, &gateway_dir, gateway);
    change_of_prefix(&network, &gateway_dir, &file);

    clat.stop();
    gateway_daemon.stop();
    drop(resolv_conf);
    poll("the host has lost its router", || {
        host.ip("-6 route show default").is_empty().then_some(())
    });
    host::assert_same(&host::snapshot(gateway), &before[0]);
    told("the gateway is as it was found", "");
}

#[test]
fn a_command_runs_on_an_ipv6_only_network_in_one_line() {
    if !can_use_tun() || !has_programs(&["curl", "ip"]) {
        return;
    }
    let network = Network::new();
    serve_http(&network.server);
    let gateway = &network.gateway;
    let before = host::snapshot(gateway);
    let run = |options: &str, script: &str| {
        let mut command = gateway.command(TEST_NETWORK);
        command.args(options.split_whitespace()).args(["sh", "-c", script]);
        command.env("FORDWAY", crate::common::daemon::FORDWAY).env("LC_ALL", "C");
        let output = command.stdin(std::process::Stdio::null()).output().unwrap();
        let [text, errors] = [&output.stdout, &output.stderr]
            .map(|octets| String::from_utf8_lossy(octets).into_owned());
        (output.status.code(), format!("{text}{errors}"))
    };
    // Names lead through NAT64, also those of servers that have IPv6; literals lead nowhere; the status is the command's.
    let names = "ip -4 route show; curl -sS http://v4only.example.net/ && \
                 curl -sS http://dual.example.net/ && ! curl -s http://198.51.100.10/ && exit 7";
    let (status, text) = run("--dns 203.0.113.53", names);
    assert_eq!((status, text.matches("you are 203.0.113.2<").count()), (Some(7), 2), "{text}");
    let (status, text) = run("--clat --dns 203.0.113.53", "curl -sS http://198.51.100.10/");
    assert_eq!((status, text.matches("you are 203.0.113.2<").count()), (Some(0), 1), "{text}");
    for (options, told) in [
        ("--device absent", "no device absent with an IPv4 address"),
        ("--colour", "there is no option --colour"),
        ("--ports 9-1", "the gateway did not start"),
    ] {
        let (status, text) = run(&format!("--dns 203.0.113.53 {options}"), "true");
        assert!(status == Some(125) && text.contains(told), "{options}: {status:?} {text}");
    }
    host::assert_same(&host::snapshot(gateway), &before);
}

/// What DNS64 has to say about each kind of name.
fn names(host: &Netns) {
    let dig = |what: &str| on_host(host, &format!("dig +time=15 +tries=4 {what}"));
    let short = |what: &str| dig(&format!("+short {what}"));
    let expect = |what: &str, wanted: &[&str]| {
        let text = short(what);
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, wanted, "dig {what}");
        told(&format!("dig {what}"), &text);
    };
    expect(&format!("{} AAAA", V4_ONLY.0), &[V4_ONLY.2]);
    expect(&format!("{} A", V4_ONLY.0), &[V4_ONLY.1]);
    expect(&format!("{} AAAA", DUAL.0), &[DUAL.2]);
    expect("www.example.net AAAA", &[V4_ONLY.2, "v4only.example.net."]);
    expect("ipv4only.arpa AAAA", &["2001:db8:64::c000:aa", "2001:db8:64::c000:ab"]);
    expect("+tcp ipv4only.arpa A", &["192.0.0.170", "192.0.0.171"]);
    let missing = dig("missing.example.net AAAA");
    assert!(missing.contains("status: NXDOMAIN"), "{missing}");
    told("dig missing.example.net AAAA", "NXDOMAIN");
    let reverse = dig(&format!("-x {}", V4_ONLY.2));
    assert!(reverse.contains("10.100.51.198.in-addr.arpa."), "{reverse}");
    told("dig -x of a synthesised address", "CNAME 10.100.51.198.in-addr.arpa");
}

/// Programs that use names, or addresses of IPv6.
fn native_programs(host: &Netns, server: &Netns) {
    let page = |url: &str| on_host(host, &format!("curl -sS --max-time 60 {url}"));
    let seen = page(&format!("http://{}/", V4_ONLY.0));
    assert!(seen.contains("you are 203.0.113.2"), "{seen}");
    told("curl, IPv4-only server by name", &seen);
    let seen = page(&format!("http://{}/", DUAL.0));
    assert!(seen.contains("you are 2001:db8:1:"), "{seen}");
    told("curl, dual-stack server by name", &seen);
    let ping = on_host(host, &format!("ping -6 -c 3 -i 0.2 {}", V4_ONLY.0));
    assert!(ping.contains(" 0% packet loss"), "{ping}");
    told("ping by name", ping.lines().rev().nth(1).unwrap_or_default());
    let way = on_host(host, &format!("traceroute -6 -n -q 1 -w 30 {}", V4_ONLY.0));
    // Router in IPv4 behind the translator, then the server.
    assert!(way.contains("2001:db8:64::cb00:7101") && way.contains(V4_ONLY.2), "{way}");
    told("traceroute by name", &way);
    let to: IpAddr = V4_ONLY.2.parse().unwrap();
    let peer = quic::transfer(host, server, to, 3_000_000);
    assert_eq!(peer.ip().to_string(), "203.0.113.2");
    told("QUIC, 3 MB up and down", &format!("seen as {peer}"));
    let dom = chromium(host, &format!("http://{}/", V4_ONLY.0));
    assert!(dom.contains("you are 203.0.113.2"), "{dom}");
    told("Chromium, IPv4-only server by name", &dom);
}

fn chromium(host: &Netns, url: &str) -> String {
    let profile = tempfile::tempdir().unwrap();
    on_host(
        host,
        &format!(
            "timeout 60 chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
             --disable-background-networking --disable-component-update --disable-sync \
             --user-data-dir={} --dump-dom {url}",
            profile.path().display()
        ),
    )
}

/// Programs that know nothing but IPv4.
fn literals(host: &Netns, server: &Netns) {
    let seen = on_host(host, &format!("curl -sS --max-time 60 http://{}/", V4_ONLY.1));
    assert!(seen.contains("you are 203.0.113.2"), "{seen}");
    told("curl, IPv4 literal", &seen);
    let ping = on_host(host, &format!("ping -4 -n -c 3 -i 0.2 {}", V4_ONLY.1));
    assert!(ping.contains(" 0% packet loss"), "{ping}");
    told("ping, IPv4 literal", ping.lines().rev().nth(1).unwrap_or_default());
    let way = on_host(host, &format!("traceroute -4 -n -q 1 -w 30 {}", V4_ONLY.1));
    assert!(way.contains("203.0.113.1") && way.matches(V4_ONLY.1).count() >= 2, "{way}");
    told("traceroute, IPv4 literal", &way);
    let to: IpAddr = V4_ONLY.1.parse().unwrap();
    let peer = quic::transfer(host, server, to, 1_000_000);
    told("QUIC, IPv4 literal", &format!("seen as {peer}"));
    traffic::tcp_both_ways(host, server, to, 3_000_000);
    told("TCP, IPv4 literal, 3 MB up and down", "");
}

/// Nothing is wrong, as far as the doctor can tell.
fn doctor(host_dir: &RunDir, host: &Netns, gateway_dir: &RunDir, gateway: &Netns) {
    let run = |dir: &RunDir, netns: &Netns, arguments: &str| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", netns.name(), crate::common::daemon::FORDWAY, "--run-dir"]);
        command.arg(dir.path()).args(arguments.split_whitespace()).env("NO_COLOR", "1");
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments}\n{text}{errors}");
        text
    };
    let seen = run(host_dir, host, &format!("doctor --target {}", V4_ONLY.0));
    assert!(seen.contains("answers as 2001:db8:64::c633:640a"), "{seen}");
    println!("{seen}");
    let file = gateway_dir.path().join("network.toml");
    let seen =
        run(gateway_dir, gateway, &format!("doctor -c {} --target {}", file.display(), V4_ONLY.1));
    println!("{seen}");
}

/// The network gets another prefix while the host is at work.
fn change_of_prefix(network: &Network, gateway_dir: &RunDir, file: &std::path::Path) {
    let Network { host, gateway, .. } = network;
    let text = std::fs::read_to_string(file).unwrap();
    let old = "pool6 = [\"2001:db8:64::/96\"]";
    assert!(text.contains(old), "{text}");
    let text = text.replace(old, "pool6 = [\"2001:db8:64::/96\", \"2001:db8:65::/96\"]");
    let text = text.replace("[dns64]\n", "[dns64]\npool6 = [\"2001:db8:65::/96\"]\n");
    let text = text.replace("[[advertise]]\n", "[[advertise]]\npref64 = [\"2001:db8:65::/96\"]\n");
    std::fs::write(file, text).unwrap();
    let change = Change::begin(Ping::start(host, V4_ONLY.1));
    let reload = gateway_dir.output(gateway, "reload");
    assert!(reload.status.success(), "{}", String::from_utf8_lossy(&reload.stderr));
    // At once: the servers share the prefixes.
    let seen = on_host(host, &format!("dig +short {} AAAA", V4_ONLY.0));
    assert_eq!(seen.trim(), "2001:db8:65::c633:640a");
    told("another prefix, DNS64 at once", &seen);
    let arrives = gateway.counter("ip6 daddr 2001:db8:65::/96");
    poll("the CLAT has moved", || (arrives() > 5).then_some(()));
    let sent = change.done().end();
    told("another prefix under a ping", &format!("{sent} requests"));
}
