use std::num::NonZeroUsize;

use super::super::rules::{Ports, Rules};
use super::super::settings::{Backend, Eyeballs, Forward, Limits, Reverse, SendProxy};
use super::*;
use fordway_serve::Acl;

fn settings(mode: Mode) -> Settings {
    Settings {
        name: "test".to_owned(),
        listen: Vec::new(),
        threads: NonZeroUsize::MIN,
        mode,
        allow: Acl::default(),
        resolver: None,
        pref64: Vec::new(),
        translated: Vec::new(),
        eyeballs: Eyeballs::default(),
        tls: Vec::new(),
        accept_proxy: Acl::default(),
        http2: true,
        via: None,
        forwarded: Forwarded::Off,
        upgrade: vec!["websocket".to_owned()],
        limits: Limits::default(),
        log: None,
    }
}

fn forward() -> Settings {
    let all = || Ports(vec![1..=u16::MAX]);
    settings(Mode::Forward(Forward { connect_ports: all(), ports: all(), rules: Rules::default() }))
}

fn reverse(host: Option<&str>) -> Settings {
    let upstream = vec![Authority::parse("192.0.2.10:80", None).unwrap()];
    let host = host.map(str::to_owned);
    let pause = std::time::Duration::from_secs(1);
    let backend = Backend { balance: false, pause, send_proxy: SendProxy::Off, check: None };
    let mode = Mode::Reverse(Reverse { upstream, host, backend });
    Settings { forwarded: Forwarded::Replace, ..settings(mode) }
}

fn read(settings: &Settings, octets: &str) -> Result<Request, Reason> {
    let client = "2001:db8::c".parse().unwrap();
    let context = RequestContext { settings, own: "me", client, tls: false };
    super::super::head::request(octets.as_bytes(), context, &mut None)
}

fn sent(settings: &Settings, octets: &str) -> String {
    String::from_utf8(read(settings, octets).unwrap().head.to_vec()).unwrap()
}

#[test]
fn absolute_form_becomes_origin_form_and_host_is_the_targets() {
    assert_eq!(
        sent(
            &forward(),
            "GET http://Example.NET:8080/a?b HTTP/1.1\r\nHost: other.example\r\nAccept: */*\r\n\r\n"
        ),
        "GET /a?b HTTP/1.1\r\nHost: example.net:8080\r\nAccept: */*\r\nVia: 1.1 me\r\n\r\n"
    );
    assert!(sent(&forward(), "GET http://a HTTP/1.1\r\nHost: a\r\n\r\n").starts_with("GET / HTTP"));
    assert!(
        sent(&forward(), "GET http://a?b HTTP/1.1\r\nHost: a\r\n\r\n").starts_with("GET /?b H")
    );
    assert!(
        sent(&forward(), "OPTIONS http://a HTTP/1.1\r\nHost: a\r\n\r\n").starts_with("OPTIONS * ")
    );
}

#[test]
fn targets_and_hosts_that_are_refused() {
    for (octets, reason) in [
        ("GET http://a/ HTTP/1.1\r\n\r\n", Reason::Host),
        ("GET http://a/ HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", Reason::Host),
        ("GET http://a/ HTTP/1.1\r\nHost: a b\r\n\r\n", Reason::Host),
        ("GET http://a@b/ HTTP/1.1\r\nHost: b\r\n\r\n", Reason::Host),
        ("GET http:/// HTTP/1.1\r\nHost:\r\n\r\n", Reason::Host),
        ("GET http://127.1/ HTTP/1.1\r\nHost: a\r\n\r\n", Reason::Host),
        ("GET https://a/ HTTP/1.1\r\nHost: a\r\n\r\n", Reason::Scheme),
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", Reason::Malformed),
        ("GET * HTTP/1.1\r\nHost: a\r\n\r\n", Reason::Malformed),
        ("GET http://a/#b HTTP/1.1\r\nHost: a\r\n\r\n", Reason::Malformed),
        ("GET http://a/\u{e9} HTTP/1.1\r\nHost: a\r\n\r\n", Reason::Malformed),
        ("GET http://a/ HTTP/2.0\r\nHost: a\r\n\r\n", Reason::Version),
        ("GET http://a/ HTTP/1.1\r\nHost : a\r\n\r\n", Reason::Malformed),
        ("GET http://a/ HTTP/1.1\r\nHost: a\r\n X: folded\r\n\r\n", Reason::Malformed),
        ("GET http://a/ HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n", Reason::Malformed),
        ("GET http://a/ HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", Reason::Malformed),
        ("GET  http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", Reason::Malformed),
        ("TRACE http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", Reason::Method),
        ("CONNECT a HTTP/1.1\r\nHost: a\r\n\r\n", Reason::Host),
        ("CONNECT a:443 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n", Reason::Framing),
        ("GET http://a/ HTTP/1.1\r\nHost: a\r\nVia: 1.1 me\r\n\r\n", Reason::Loop),
        ("POST http://a/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", Reason::Framing),
    ] {
        assert_eq!(read(&forward(), octets).map(|_| ()), Err(reason), "{octets}");
    }
}

#[test]
fn max_forwards_counts_down() {
    let octets = "OPTIONS http://a/ HTTP/1.1\r\nHost: a\r\nMax-Forwards: 2\r\n\r\n";
    assert!(sent(&forward(), octets).contains("\r\nMax-Forwards: 1\r\n"));
    let last = octets.replace('2', "0");
    assert!(read(&forward(), &last).unwrap().for_us);
    assert!(read(&forward(), "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n").unwrap().for_us);
    let get = "GET http://a/ HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0\r\n\r\n";
    assert!(sent(&forward(), get).contains("Max-Forwards: 0"), "it is for TRACE and OPTIONS");
}

#[test]
fn a_site_keeps_host_or_sets_it_and_is_told_the_client() {
    let octets = "GET /a HTTP/1.1\r\nHost: www.example\r\nX-Forwarded-For: 192.0.2.9\r\nForwarded: for=x\r\n\r\n";
    assert_eq!(
        sent(&reverse(None), octets),
        "GET /a HTTP/1.1\r\nHost: www.example\r\nVia: 1.1 me\r\n\
         Forwarded: for=\"[2001:db8::c]\";proto=http;host=\"www.example\"\r\n\
         X-Forwarded-For: 2001:db8::c\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: www.example\r\n\r\n"
    );
    assert!(sent(&reverse(Some("v4.example")), octets).contains("\r\nHost: v4.example\r\n"));
    let absolute = "GET http://other.example/a HTTP/1.1\r\nHost: www.example\r\n\r\n";
    assert!(
        sent(&reverse(None), absolute).starts_with("GET /a HTTP/1.1\r\nHost: other.example\r\n")
    );
    let append = Settings { forwarded: Forwarded::Append, ..reverse(None) };
    assert!(sent(&append, octets).contains("X-Forwarded-For: 192.0.2.9\r\n"));
    let connect = "CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(read(&reverse(None), connect).map(|_| ()), Err(Reason::Method));
}

#[test]
fn persistence_by_version() {
    let keeps = |settings: &Settings, octets: &str| read(settings, octets).unwrap().keep_alive;
    assert!(keeps(&forward(), "GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert!(!keeps(&forward(), "GET http://a/ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
    assert!(!keeps(&forward(), "GET http://a/ HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
    assert!(keeps(&reverse(None), "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
    assert!(!keeps(&reverse(None), "GET / HTTP/1.0\r\n\r\n"));
}

#[test]
fn upgrades_that_are_allowed() {
    let octets = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\r\n";
    let request = read(&reverse(None), octets).unwrap();
    assert!(request.upgrades);
    let text = String::from_utf8(request.head.to_vec()).unwrap();
    assert!(text.contains("Connection: upgrade\r\nUpgrade: websocket\r\n"), "{text}");
    let request = read(&reverse(None), &octets.replace("WebSocket", "h2c")).unwrap();
    assert!(!request.upgrades);
    assert!(!request.head.windows(7).any(|it| it.eq_ignore_ascii_case(b"upgrade")));
}
