//! A transport relay with real clients: set up, changed, killed, and taken down.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::thread;

use fordway_testhost::{can_use_tun, has_programs, poll, require};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};

use crate::common::daemon::{Daemon, RunDir};
use crate::common::dns::{Upstream, Zone};
use crate::common::host::{assert_same, snapshot};
use crate::common::netns::Netns;

/// A host with IPv6 alone, a relay, a server with IPv4 alone.
struct Site {
    host: Netns,
    relay: Netns,
    server: Netns,
    run: RunDir,
}

const PREFIX: &str = "2001:db8:64::/96";
const FILE: &str =
    "[[trt]]\nname = 'relay'\npool6 = ['2001:db8:64::/96']\nmax_per_client = 20000\n";

impl Site {
    fn new() -> Site {
        let site = Site {
            host: Netns::new("host"),
            relay: Netns::new("relay"),
            server: Netns::new("server"),
            run: RunDir::new(),
        };
        site.relay.link("lan0", &site.host, "eth0");
        site.relay.link("wan0", &site.server, "eth0");
        site.relay
            .configure(&["addr add 2001:db8:1::1/64 dev lan0", "addr add 203.0.113.1/24 dev wan0"]);
        site.host.configure(&[
            "addr add 2001:db8:1::5/64 dev eth0",
            "route add default via 2001:db8:1::1",
        ]);
        site.server.ip("addr add 203.0.113.53/24 dev eth0");
        site
    }

    fn start(&self, text: &str) -> Daemon<'_> {
        let file = self.run.file("relay.toml", text);
        Daemon::start(&self.run, &self.relay, &format!("run {}", file.display()))
    }

    fn snapshot(&self) -> Vec<String> {
        let mut lines = snapshot(&self.relay);
        lines.extend(self.relay.run("nft list ruleset").lines().map(str::to_owned));
        lines
    }

    fn fordway(&self, arguments: &str) -> String {
        let output = self.run.output(&self.relay, arguments);
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(output.status.success(), "{said}");
        said
    }

    fn listen(&self, port: u16) -> TcpListener {
        self.server.inside(|| TcpListener::bind(("203.0.113.53", port)).unwrap())
    }

    fn connect(&self, port: u16) -> TcpStream {
        self.host.inside(|| TcpStream::connect(("2001:db8:64::cb00:7135", port)).unwrap())
    }

    /// Octets there and back.
    fn exchange(client: &mut TcpStream, server: &mut TcpStream) {
        let mut room = [0; 4];
        client.write_all(b"ping").unwrap();
        server.read_exact(&mut room).unwrap();
        assert_eq!(&room, b"ping");
        server.write_all(b"pong").unwrap();
        client.read_exact(&mut room).unwrap();
        assert_eq!(&room, b"pong");
    }
}

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    said
}

#[test]
fn real_clients_reach_real_servers_and_nothing_is_left() {
    if !can_use_tun() || !has_programs(&["curl"]) || !has_programs(&["dig"]) {
        return;
    }
    let site = Site::new();
    let before = site.snapshot();
    let short = format!("trt --name relay --pool6 {PREFIX}");
    let mut daemon = Daemon::start(&site.run, &site.relay, &short);
    let zone = Zone::new("example.net").a("v4.example.net", "198.51.100.7");
    let _upstream = Upstream::start(&site.server, "203.0.113.53:53", zone);
    for way in ["+notcp", "+tcp"] {
        let mut dig = site.host.command("dig");
        dig.args(["@2001:db8:64::cb00:7135", way, "+short", "+tries=3", "v4.example.net", "A"]);
        let answer = output(&mut dig);
        assert_eq!(answer.trim(), "198.51.100.7", "{way}");
    }
    let listener = site.listen(80);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut room = [0; 4096];
            let _ = stream.read(&mut room);
            let body = "x".repeat(1_000_000);
            let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1000000\r\n\r\n";
            let _ = stream.write_all(format!("{head}{body}").as_bytes());
        }
    });
    let mut curl = site.host.command("curl");
    curl.args([
        "-sS",
        "--max-time",
        "60",
        "-o",
        "/dev/null",
        "-w",
        "%{http_code} %{size_download}",
    ]);
    let answer = output(curl.arg("http://[2001:db8:64::cb00:7135]/"));
    assert_eq!(answer, "200 1000000");

    let status = daemon.status();
    assert_eq!(status["trt"][0]["name"], "relay", "{status}");
    assert_eq!(status["trt"][0]["whole"], true, "{status}");
    let shown = site.fordway("status");
    assert!(shown.contains("transport relay") && shown.contains(PREFIX), "{shown}");
    let shown = site.fordway("stats");
    assert!(shown.contains("established") && shown.contains("UDP sessions"), "{shown}");
    let metrics = site.fordway("stats --prometheus");
    let line = "fordway_trt_connections_total{relay=\"relay\",step=\"established\"} 2";
    assert!(metrics.contains(line), "{metrics}");
    daemon.signal(Signal::INT);
    assert!(daemon.wait().success());
    assert_same(&site.snapshot(), &before);
}

#[test]
fn a_killed_relay_leaves_what_the_next_start_takes_over_or_back() {
    if !can_use_tun() {
        return;
    }
    let site = Site::new();
    let before = site.snapshot();
    site.start(FILE).kill();
    assert!(site.snapshot().iter().any(|line| line.contains("fordway-trt-relay")));
    let listener = site.listen(80);
    let daemon = site.start(FILE);
    let mut client = site.connect(80);
    let (mut server, _) = listener.accept().unwrap();
    Site::exchange(&mut client, &mut server);
    daemon.kill();
    // Another one, which has no relay of this name.
    let other = FILE.replace("'relay'", "'other'").replace("db8:64:", "db8:65:");
    let daemon = site.start(&other);
    assert!(!site.snapshot().iter().any(|line| line.contains("fordway-trt-relay")));
    daemon.stop();
    assert_same(&site.snapshot(), &before);
}

#[test]
fn a_reload_keeps_connections() {
    if !can_use_tun() {
        return;
    }
    let site = Site::new();
    let before = site.snapshot();
    let daemon = site.start(FILE);
    let listener = site.listen(80);
    let mut client = site.connect(80);
    let (mut server, _) = listener.accept().unwrap();
    Site::exchange(&mut client, &mut server);
    let more = FILE.replace("96']", "96', '2001:db8:66::/96']");
    site.run.file("relay.toml", &format!("{more}refuse4 = ['203.0.113.53/32']\n"));
    let said = site.fordway("reload");
    assert!(said.contains("changed: relay"), "{said}");
    Site::exchange(&mut client, &mut server);
    let mut refused = site.connect(80);
    assert!(refused.read(&mut [0; 1]).is_err());
    assert!(site.snapshot().iter().any(|line| line.contains("2001:db8:66::/96")));
    // Others come and go.
    site.run.file("relay.toml", &FILE.replace("'relay'", "'second'").replace("db8:64:", "db8:67:"));
    let said = site.fordway("reload");
    assert!(said.contains("new: second") && said.contains("gone: relay"), "{said}");
    assert!(!site.snapshot().iter().any(|line| line.contains("2001:db8:66::/96")));
    site.run.file("relay.toml", "[[trt]]\npool6 = 'x'\n");
    assert!(!site.run.output(&site.relay, "reload").status.success());
    daemon.stop();
    assert_same(&site.snapshot(), &before);
}

#[test]
fn ten_thousand_connections() {
    if !can_use_tun() {
        return;
    }
    let many = most_connections(10_000);
    if !require(many >= 5_000, "a process may have too few descriptors") {
        return;
    }
    let site = Site::new();
    // With SYN cookies a listener whose queue is full loses connections that its client takes for open.
    for netns in [&site.relay, &site.server] {
        netns.sysctl("net.ipv4.tcp_syncookies", "0");
    }
    let daemon = site.start(FILE);
    let listener = site.listen(80);
    // As many at once as wait at the listener: beyond that, a connection that the relay takes for open is lost there.
    const AT_ONCE: usize = 64;
    let (mut clients, mut servers) = (Vec::new(), Vec::new());
    while clients.len() < many {
        let more = AT_ONCE.min(many - clients.len());
        clients.extend((0..more).map(|_| site.connect(80)));
        servers.extend(listener.incoming().take(more).map(Result::unwrap));
    }
    poll("all are open", || {
        let open = daemon.status()["trt"][0]["connections"].as_u64();
        (open == Some(many as u64)).then_some(())
    });
    for (number, client) in (0u32..).zip(&mut clients) {
        client.write_all(&number.to_be_bytes()).unwrap();
    }
    let mut heard: Vec<u32> = Vec::new();
    for server in &mut servers {
        let mut number = [0; 4];
        server.read_exact(&mut number).unwrap();
        heard.push(u32::from_be_bytes(number));
    }
    heard.sort_unstable();
    assert!(heard.into_iter().eq(0..many as u32), "each arrives once");
    drop((clients, servers));
    poll("all are gone", || {
        (daemon.status()["trt"][0]["connections"].as_u64() == Some(0)).then_some(())
    });
    daemon.stop();
}

/// How many connections can be tried: so many, unless a process may have too few descriptors. Both ends of each are
/// here, and the relay has two as well, and pipes.
fn most_connections(wanted: u64) -> usize {
    let others = 4_000;
    let needed = 2 * wanted + others;
    let raised = Rlimit { current: Some(needed), maximum: Some(needed) };
    if setrlimit(Resource::Nofile, raised).is_ok() {
        return wanted as usize;
    }
    let limit = getrlimit(Resource::Nofile).maximum.unwrap_or(needed);
    setrlimit(Resource::Nofile, Rlimit { current: Some(limit), maximum: Some(limit) }).unwrap();
    let fewer = wanted.min(limit.saturating_sub(others) / 2);
    eprintln!("{fewer} connections: a process may have {limit} descriptors");
    fewer as usize
}
