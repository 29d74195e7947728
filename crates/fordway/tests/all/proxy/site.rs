//! A proxy in front of a site that has IPv4 alone.

use fordway_testhost::{can_use_tun, has_programs};

use super::world::Network;

#[test]
fn an_ipv4_only_site_is_on_ipv6() {
    if !can_use_tun() || !has_programs(&["curl"]) {
        return;
    }
    let network = Network::new();
    let (certificate, key) = network.certificate(&["www.example.net"]);
    let log = network.run.path().join("site.log");
    let (certificate, key) = (certificate.display(), key.display());
    let text = format!(
        "[[proxy]]\nname = 'plain'\nmode = 'reverse'\nlisten = ['2001:db8:1::1']\n\
         upstream = ['203.0.113.10']\n\
         [[proxy]]\nname = 'site'\nmode = 'reverse'\nlisten = ['2001:db8:1::1']\n\
         upstream = ['203.0.113.9', '203.0.113.10:80']\nconnect_time = '300ms'\nbalance = 'turns'\n\
         certificate = '{certificate}'\nkey = '{key}'\nlog = '{}'\nlog_format = 'json'\n",
        log.display()
    );
    let daemon = network.start(&text);
    let to = "--connect-to ::[2001:db8:1::1]:";
    let page = network.curl(&format!("{to} http://www.example.net/a"));
    assert!(page.contains("you are 203.0.113.1<"), "{page}");
    assert!(page.contains("GET /a HTTP/1.1\r\nHost: www.example.net\r\n"), "{page}");
    assert!(
        page.contains("Forwarded: for=\"[2001:db8:1::5]\";proto=http;host=\"www.example.net\""),
        "{page}"
    );
    // HTTP/2 with prior knowledge, and as TLS agrees on it; with TLS a server of the site is out of order.
    let told = "-o /dev/null -w \"%{http_version} %{http_code} %{size_download}\"";
    let plain = network
        .curl(&format!("{to} --http2-prior-knowledge {told} http://www.example.net/size/70000"));
    assert_eq!(plain, "2 200 70000");
    for (version, seen) in [("--http2", "2"), ("--http1.1", "1.1")] {
        let said = network.curl(&format!(
            "{to} --cacert {certificate} {version} {told} https://www.example.net/size/3000000"
        ));
        assert_eq!(said, format!("{seen} 200 3000000"));
    }
    let page = network.curl(&format!("{to} --cacert {certificate} https://www.example.net/"));
    assert!(page.contains("Via: 2 fordway-") && page.contains("proto=https"), "{page}");
    let upload = network.run.file("upload", &"y".repeat(3_000_000));
    for version in ["--http2", "--http1.1"] {
        let page = network.curl(&format!(
            "{to} --cacert {certificate} {version} -T {} https://www.example.net/",
            upload.display()
        ));
        assert!(page.contains("<p>3000000 octets</p>"), "{page}");
    }
    let lines = network.lines("site.log", 5);
    let line: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!((&line["version"], &line["status"]), (&"HTTP/2".into(), &200.into()), "{line}");
    assert_eq!(line["server"], "203.0.113.10:80", "{line}");
    let shown = network.fordway("status");
    assert!(shown.contains("203.0.113.9:80") && shown.contains("can't be reached"), "{shown}");
    daemon.stop();
}
