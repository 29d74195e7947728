//! A proxy for clients: requests for whole URLs, and tunnels.

use fordway_testhost::{can_use_tun, has_programs};
use rustix::process::Signal;

use super::world::{FORWARD, Network, PROXY, output};
use crate::common::daemon::Daemon;
use crate::common::host::{assert_same, snapshot};

#[test]
fn an_ipv6_only_client_reaches_servers_of_either_family() {
    if !can_use_tun() || !has_programs(&["curl"]) {
        return;
    }
    let network = Network::new();
    let before = snapshot(&network.gateway);
    let log = network.run.path().join("access.log");
    let short = format!(
        "proxy --listen 2001:db8:1::1 --allow 2001:db8:1::/64 --resolver 203.0.113.53 --log {}",
        log.display()
    );
    let mut daemon = Daemon::start(&network.run, &network.gateway, &short);
    // By name and by address; the family that both have is IPv6.
    for (url, seen) in [
        ("http://v4only.example.net/", "you are 203.0.113.1<"),
        ("http://203.0.113.10/", "you are 203.0.113.1<"),
        ("http://dual.example.net/", "you are 2001:db8:5::1<"),
        ("http://[2001:db8:5::20]/", "you are 2001:db8:5::1<"),
    ] {
        let page = network.through(url);
        assert!(page.contains(seen), "{url}: {page}");
    }
    // The server sees an origin-form target, the right Host, and nothing of the proxy's own affairs.
    let page =
        network.through("-H \"Proxy-Authorization: Basic eDp5\" http://v4only.example.net/a?b=c");
    assert!(page.contains("GET /a?b=c HTTP/1.1\r\nHost: v4only.example.net\r\n"), "{page}");
    assert!(page.contains("Via: 1.1 fordway-") && !page.contains("Proxy-"), "{page}");
    assert_eq!(network.through("-0 http://v4only.example.net/size/5"), "xxxxx");
    assert_eq!(network.status_of("-I http://v4only.example.net/"), "200");
    // Content, with its length and in chunks.
    let octets = network.run.file("upload", &"y".repeat(3_000_000));
    for coding in ["", "-H Transfer-Encoding:chunked"] {
        let page = network
            .through(&format!("-T {} {coding} http://v4only.example.net/", octets.display()));
        assert!(page.contains("<p>3000000 octets</p>"), "{page}");
    }
    let sizes =
        network.through("-w %{size_download} -o /dev/null http://dual.example.net/size/20000000");
    assert_eq!(sizes, "20000000");
    // One connection to the proxy for many requests.
    let three = network.through("http://v4only.example.net/size/[1-3]");
    assert_eq!(three, "xxxxxx");

    let lines = network.lines("access.log", 13);
    assert!(lines[0].starts_with("2001:db8:1::5 - - ["), "{lines:#?}");
    assert!(lines[0].contains("] \"GET http://v4only.example.net/ HTTP/1.1\" 200 "), "{lines:#?}");
    assert!(lines[0].contains("\"-\" \"curl/"), "{lines:#?}");
    assert!(lines[5].contains("HTTP/1.0\" 200"), "{lines:#?}");
    let shown = network.fordway("status");
    assert!(shown.contains("HTTP proxy") && shown.contains("[2001:db8:1::1]:3128"), "{shown}");
    let metrics = network.fordway("stats --prometheus");
    assert!(
        metrics.contains("fordway_proxy_requests_total{proxy=\"proxy\",version=\"1\"} 13"),
        "{metrics}"
    );
    daemon.signal(Signal::INT);
    assert!(daemon.wait().success());
    assert_same(&snapshot(&network.gateway), &before);
}

#[test]
fn tls_goes_through_connect_and_in_front_of_the_proxy() {
    if !can_use_tun() || !has_programs(&["curl"]) || !has_programs(&["openssl"]) {
        return;
    }
    let network = Network::new();
    let _tls_server = network.tls_server();
    let daemon = network.start(FORWARD);
    let trusted = network.run.path().join("certificate.pem").display().to_string();
    let page = network.through(&format!("--cacert {trusted} https://v4only.example.net/"));
    assert!(page.contains("TLSv1.3"), "{page}");
    network.until_count(&daemon, "tunnels", 1);
    // Port 80 is none for CONNECT: the default has 443 alone.
    let mut curl = network.client.command("curl");
    curl.args([
        "-sS",
        "--proxy",
        PROXY,
        "--proxytunnel",
        "-o",
        "/dev/null",
        "-w",
        "%{http_connect}",
    ]);
    let refused = curl.arg("http://v4only.example.net/").output().unwrap();
    assert!(!refused.status.success());
    assert_eq!(refused.stdout, b"403");
    daemon.stop();

    // A client may speak TLS to the proxy itself.
    let (certificate, key) = network.certificate(&["v4only.example.net", "proxy.example.net"]);
    let files = format!("certificate = '{}'\nkey = '{}'\n", certificate.display(), key.display());
    let daemon = network.start(&format!("{FORWARD}{files}"));
    let mut curl = network.client.command("curl");
    curl.args(["-sS", "--proxy", "https://proxy.example.net:3128", "--proxy-cacert"])
        .arg(&certificate);
    curl.args(["--connect-to", "proxy.example.net:3128:[2001:db8:1::1]:3128"]);
    curl.env("HTTPS_PROXY", "").args(["--resolve", "proxy.example.net:3128:[2001:db8:1::1]"]);
    let page = output(curl.arg("http://v4only.example.net/"));
    assert!(page.contains("you are 203.0.113.1<"), "{page}");
    daemon.stop();
}
