//! What a proxy does not do for anybody: strangers, and places that are not for strangers.

use std::io::ErrorKind;
use std::net::TcpListener;

use fordway_testhost::{can_use_tun, has_programs};

use super::world::{FORWARD, Network};

#[test]
fn strangers_and_places_inside_are_refused() {
    if !can_use_tun() || !has_programs(&["curl"]) {
        return;
    }
    let network = Network::new();
    // Services of the gateway's own, which nobody may reach by way of its proxy.
    let own: Vec<TcpListener> = network.gateway.inside(|| {
        ["0.0.0.0:80", "[::]:80", "0.0.0.0:443"]
            .iter()
            .filter_map(|it| TcpListener::bind(it).ok())
            .collect()
    });
    assert!(!own.is_empty());
    own.iter().for_each(|listener| listener.set_nonblocking(true).unwrap());
    // Somebody translates here, so that what is behind 64:ff9b::/96 could come back.
    network.gateway.ip("-6 route add 64:ff9b::/96 dev lo");
    let log = network.run.path().join("access.log");
    let keys = format!("log = '{}'\nlog_format = 'json'\n", log.display());
    let rules = "[[proxy.rule]]\nto = ['*.ads.example']\naction = 'deny'\n";
    let one = FORWARD.replace("2001:db8:1::/64", "2001:db8:1::5/128");
    let daemon = network.start(&format!("{one}{keys}{rules}"));

    let from = |address: &str| {
        network.status_of(&format!("--interface {address} http://v4only.example.net/"))
    };
    assert_eq!(from("2001:db8:1::5"), "200");
    assert_eq!(from("2001:db8:1::6"), "403");

    let hosts = [
        "127.0.0.1",
        "[::1]",
        "localhost",
        "0.0.0.0",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[fe80::1]",
        "169.254.169.254",
        "203.0.113.1",
        "[2001:db8:1::1]",
        "[2001:db8:5::1]",
        "[64:ff9b::127.0.0.1]",
        "[64:ff9b::169.254.169.254]",
        "[64:ff9b::203.0.113.1]",
        "[2002:7f00:1::1]",
        "loopback.example.net",
        "loopback6.example.net",
        "mapped.example.net",
        "translated.example.net",
        "own-translated.example.net",
        "own.example.net",
        "own6.example.net",
        "cloud.example.net",
        "link.example.net",
        "x.ads.example",
    ];
    for host in hosts {
        assert_eq!(network.status_of(&format!("http://{host}/")), "403", "{host}");
        let tunnel = network
            .client
            .command("curl")
            .args(["-sS", "--proxy", super::world::PROXY])
            .args([
                "--proxytunnel",
                "-o",
                "/dev/null",
                "-w",
                "%{http_connect}",
                &format!("http://{host}:443/"),
            ])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&tunnel.stdout), "403", "CONNECT {host}");
    }
    // These are no hosts, however the resolver of another program would read them.
    for host in ["127.1", "2130706433", "0x7f000001", "0177.0.0.1"] {
        let said = network.through(&format!(
            "-o /dev/null -w %{{http_code}} --request-target http://{host}/ http://v4only.example.net/"
        ));
        assert!(["400", "502"].contains(&said.as_str()), "{host}: {said}");
    }
    for listener in &own {
        let got = listener.accept().map(|(_, peer)| peer);
        assert_eq!(got.map_err(|error| error.kind()), Err(ErrorKind::WouldBlock));
    }
    let lines = network.lines("access.log", 2 + 2 * hosts.len() + 4);
    assert!(
        lines[1].contains("\"reason\":\"client_denied\"")
            && lines[1].contains("\"client\":\"2001:db8:1::6\""),
        "{}",
        lines[1]
    );
    let denied =
        lines.iter().filter(|line| line.contains("\"reason\":\"destination_denied\"")).count();
    assert_eq!(denied, 2 * hosts.len());
    network.until_count(&daemon, "refused/destination_denied", 2 * hosts.len() as u64);

    // Who means it writes a prefix.
    let rules = "[[proxy.rule]]\nto = ['203.0.113.1/32']\naction = 'allow'\n";
    network.reload(&format!("{FORWARD}{rules}"));
    assert_eq!(network.status_of("--connect-timeout 5 http://203.0.113.1:8080/"), "502");
    daemon.stop();
}
