//! A browser that is told of the proxy.

use fordway_testhost::{can_use_tun, has_programs};

use super::world::{FORWARD, Network, PROXY, output};

impl Network {
    /// The page as Chromium has it.
    fn browse(&self, proxy: &str, url: &str) -> String {
        let profile = tempfile::tempdir().unwrap();
        let mut command = self.client.command("timeout");
        command.args([
            "60",
            "chromium",
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
        ]);
        command.args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ]);
        // Else it asks for http:// pages by https:// first.
        command.args([
            "--disable-features=HttpsUpgrades",
            "--ignore-certificate-errors",
            "--dump-dom",
        ]);
        command.arg(format!("--user-data-dir={}", profile.path().display()));
        output(command.arg(format!("--proxy-server={proxy}")).arg(url))
    }
}

#[test]
fn chromium_loads_pages_of_ipv4_only_servers() {
    if !can_use_tun() || !has_programs(&["chromium"]) || !has_programs(&["openssl"]) {
        return;
    }
    let network = Network::new();
    let _tls_server = network.tls_server();
    let daemon = network.start(FORWARD);
    // The client has no name server: the proxy looks names up.
    let page = network.browse(PROXY, "http://v4only.example.net/");
    assert!(page.contains("you are 203.0.113.1<"), "{page}");
    let page = network.browse(PROXY, "https://v4only.example.net/");
    assert!(page.contains("TLSv1.3"), "{page}");
    assert!(network.count(&daemon, "tunnels") >= 1);
    daemon.stop();
    // TLS to the proxy: browsers then speak HTTP/2 to it.
    let (certificate, key) = network.certificate(&["v4only.example.net"]);
    let files = format!("certificate = '{}'\nkey = '{}'\n", certificate.display(), key.display());
    let daemon = network.start(&format!("{FORWARD}{files}"));
    let proxy = PROXY.replace("http:", "https:");
    for (url, seen) in [
        ("http://v4only.example.net/", "you are 203.0.113.1<"),
        ("https://v4only.example.net/", "TLSv1.3"),
    ] {
        let page = network.browse(&proxy, url);
        assert!(page.contains(seen), "{page}");
    }
    assert!(network.count(&daemon, "requests_http2") >= 2);
    daemon.stop();
}
