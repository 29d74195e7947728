//! The control socket and the exporter of metrics: what they answer, and whom they refuse.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

use fordway_testhost::{PATIENCE, can_use_tun, poll};

use crate::common::daemon::{Daemon, RunDir, count};
use crate::common::process::Process;
use crate::common::topology::{Access, Border, PREF64, V4_HOST_AS_V6};
use crate::common::traffic;
use crate::daemon::clat;

#[test]
fn malformed_requests_are_answered_and_do_no_harm() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Access::new(), RunDir::new());
    let daemon = Daemon::start(&run, &net.client, &clat());
    let socket = run.path().join("control.sock");
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let ask = |request: &[u8]| {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // The daemon may have closed before all of it was sent.
        let _ = stream.write_all(request);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut reply = Vec::new();
        let _ = stream.read_to_end(&mut reply);
        String::from_utf8_lossy(&reply).into_owned()
    };
    let long = [&[b' '; 5000][..], b"\n"].concat();
    for (request, reply) in [
        (&b"\n"[..], "not understood"),
        (b"{}\n", "not understood"),
        (b"{\"command\":\"relaod\"}\n", "not understood"),
        (b"{\"command\":\"down\"}\n", "not understood"),
        (b"{\"command\":\"trace\",\"name\":\"clat0\",\"filter\":\"x\"}\n", "is not understood"),
        (b"{\"command\":\"status\",\"more\":1}\n", "not understood"),
        (
            b"{\"protocol_version\":2,\"command\":\"status\"}\n",
            "protocol 2 is not known here, only protocol 1",
        ),
        (b"\xff\xfe\x00\n", "not understood"),
        (b"{\"command\":\"status\"}", "does not end with a newline"),
        (&long, "at most 4096 octets"),
        (b"", ""),
        (
            b"{\"command\":\"status\"}\n{\"command\":\"stats\"}\n",
            "{\"protocol_version\":1,\"stats\":{",
        ),
    ] {
        let got = ask(request);
        assert!(got.contains(reply), "{request:?}: {got}");
    }
    // Whoever says nothing does not keep others waiting.
    let _silent: Vec<UnixStream> = (0..40).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    assert_eq!(daemon.status()["translators"][0]["name"], "clat0");
    daemon.stop();
}

#[test]
fn a_client_that_says_nothing_is_shown_out() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Access::new(), RunDir::new());
    let translator =
        format!("[[translator]]\nname = 'clat0'\nmode = 'clat'\npref64 = '{PREF64}'\n");
    let file = run.file("fast.toml", &format!("[control]\ntimeout = '100ms'\n{translator}"));
    let daemon = Daemon::start(&run, &net.client, &format!("run -c {}", file.display()));
    let connect = || UnixStream::connect(run.path().join("control.sock")).unwrap();
    let silent: Vec<UnixStream> = (0..40).map(|_| connect()).collect();
    for mut stream in silent {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        assert!(reply.contains("no request came in time"), "{reply}");
    }
    daemon.stop();
}

#[test]
fn counters_are_told_in_every_form() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let file = run.file(
        "metrics.toml",
        "[metrics]\nlisten = ['[::1]:9464']\n[[translator]]\nname = 'siit0'\nmode = 'siit'\n\
         pool6 = ['2001:db8:64::/96']\neam = [['192.0.2.2', '2001:db8:6::2']]\n",
    );
    let daemon = Daemon::start(&run, &net.gateway, &format!("run -c {}", file.display()));
    net.v6.run(&format!("ping -n -c 3 -i 0.2 {V4_HOST_AS_V6}"));
    let answered = traffic::udp_echo(
        &net.v6,
        &net.v4,
        (V4_HOST_AS_V6.parse().unwrap(), "198.51.100.2".parse().unwrap()),
        10,
    );
    assert_eq!(answered.ip().to_string(), "192.0.2.2");
    let stats = daemon.counts("siit0", "v6_to_v4/packets", 4);
    let queues = stats["queues"].as_array().unwrap();
    let parts = queues.iter().chain(stats.get("kernel"));
    let sum: u64 = parts.map(|part| count(part, "v6_to_v4/packets")).sum();
    assert_eq!(sum, 4);

    // The commands show what the control socket tells.
    let json = |arguments: &str| -> serde_json::Value {
        serde_json::from_slice(&run.output(&net.gateway, arguments).stdout).unwrap()
    };
    assert_eq!(json("stats --json --per-queue"), daemon.all_stats());
    let (mut shown, mut told) = (json("status --json"), daemon.status());
    // A second may have begun in between.
    for status in [&mut shown, &mut told] {
        assert!(status["uptime_seconds"].take().is_u64());
        assert!(status["translators"][0]["uptime_seconds"].take().is_u64());
    }
    assert_eq!(shown, told);
    let text = run.output(&net.gateway, "stats");
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("siit0 (siit)") && text.contains("v6 to v4"), "{text}");

    // Rates are shown until nobody reads them.
    let mut watch = run.command(&net.gateway, "stats --watch");
    let mut watch = Process::start(watch.stdout(std::process::Stdio::piped()));
    let mut first = [0; 16];
    watch.0.stdout.take().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(&first[..5], b"siit0");
    assert!(watch.wait().success());

    let prometheus = run.output(&net.gateway, "stats --prometheus");
    let prometheus = String::from_utf8_lossy(&prometheus.stdout).into_owned();
    let served = net.gateway.inside(|| {
        let mut stream = TcpStream::connect("[::1]:9464").unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    });
    let (head, body) = served.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    assert!(head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
    assert_eq!(body, prometheus);
    let carried: u64 = body
        .lines()
        .filter(|line| line.starts_with("fordway_packets_total") && line.contains("v6_to_v4"))
        .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
        .sum();
    assert_eq!(carried, 4);

    for (request, status, end) in [
        ("GET /else HTTP/1.1", "404", ""),
        ("POST /metrics HTTP/1.1", "405", ""),
        ("GET /healthz HTTP/1.1", "200", "alive\n"),
        ("GET /readyz HTTP/1.1", "200", "ready\n"),
        ("nonsense", "400", ""),
    ] {
        let reply = net.gateway.inside(|| {
            let mut stream = TcpStream::connect("[::1]:9464").unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let text = format!("{request}\r\nHost: test\r\nConnection: close\r\n\r\n");
            stream.write_all(text.as_bytes()).unwrap();
            let mut reply = String::new();
            stream.read_to_string(&mut reply).unwrap();
            reply
        });
        assert!(reply.starts_with(&format!("HTTP/1.1 {status}")), "{request}: {reply}");
        assert!(reply.ends_with(end), "{request}: {reply}");
    }
    daemon.stop();
}

#[test]
fn a_daemon_that_is_not_there_is_said_to_be_not_there() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Access::new(), RunDir::new());
    for stale in [false, true] {
        if stale {
            Daemon::start(&run, &net.client, &clat()).kill();
            assert!(run.path().join("control.sock").exists());
        }
        let output = run.output(&net.client, "status");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains("no daemon listens on the control socket"), "{error}");
    }
    // The stale socket is in nobody's way.
    let daemon = Daemon::start(&run, &net.client, &clat());
    poll("it answers", || (daemon.status()["pid"] == daemon.pid()).then_some(()));
    daemon.stop();
}
