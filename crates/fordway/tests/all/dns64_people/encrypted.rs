//! DNS over TLS and over HTTPS, by kdig and curl.

use fordway_testhost::{can_use_tun, certificates, has_programs, poll};

use super::world::say;
use crate::common::dns::Zone;
use crate::common::resolver::{PREFIX, Site};

#[test]
fn kdig_and_curl_ask_by_tls_and_by_https() {
    if !can_use_tun() || !has_programs(&["kdig", "curl", "openssl"]) {
        return;
    }
    let site = Site::new();
    let mut zone = Zone::new("example.net").a("v4.example.net", "192.0.2.1");
    for last in 0..100 {
        zone = zone.a("many.example.net", &format!("192.0.2.{last}"));
    }
    let _upstream = site.upstream(zone);
    let folder = site.run.path();
    let [ca, key] = certificates::write(folder, "dns", &["dns.example"]);
    let ca = ca.display();
    let rest = format!(
        "listen_tls = [\"2001:db8:1::1\"]\nlisten_https = [\"2001:db8:1::1\"]\n\
         certificate = \"{ca}\"\nkey = \"{}\"",
        key.display()
    );
    let daemon = site.start(PREFIX, &rest);
    let v6 = format!("{PREFIX}c000:201");
    let kdig = |how: &str, question: &str| {
        let tls = format!("+tls-ca={ca} +tls-hostname=dns.example");
        say(&site.client, &format!("kdig {how} {tls} @2001:db8:1::1 {question}"))
    };
    for how in ["+tls", "+https", "+https-get"] {
        let answer = kdig(how, "v4.example.net AAAA");
        assert!(answer.contains(&v6), "{how}: {answer}");
        let large = kdig(how, "many.example.net AAAA");
        assert_eq!(large.matches("\tAAAA\t").count(), 100, "{how}: {large}");
        assert!(kdig(how, "gone.example.net A").contains("NXDOMAIN"), "{how}");
    }
    // Padded, as the query was (RFC 8467).
    let padded = kdig("+tls +padding", "v4.example.net AAAA");
    assert!(padded.contains("468 B") && padded.contains("PADDING"), "{padded}");
    // curl resolves a name by HTTPS, with GET or POST, and goes there.
    let alpn = say(
        &site.client,
        &format!(
            "curl -s -o /dev/null -w %{{http_version}} --cacert {ca} --resolve \
                  dns.example:443:2001:db8:1::1 https://dns.example/dns-query?dns=AAABAAABAAAAAAAAAnY0B2V4YW1wbGUDbmV0AAAcAAE"
        ),
    );
    assert_eq!(alpn, "2");
    let doh = format!(
        "curl -sv --max-time 20 --cacert {ca} --resolve dns.example:443:2001:db8:1::1 \
         --doh-url https://dns.example/dns-query --doh-insecure http://v4.example.net:9/"
    );
    let output = site.client.try_run(&doh);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains(&format!("Trying [{v6}]:9")) || said.contains(&format!("Trying {v6}:9")),
        "{said}"
    );

    let stats = &daemon.all_stats()["dns64"];
    assert!(stats["tls_queries"].as_u64().unwrap() >= 4, "{stats}");
    assert!(stats["https_queries"].as_u64().unwrap() >= 7, "{stats}");
    let status = daemon.status();
    assert_eq!(status["dns64"]["listen_tls"][0], "[2001:db8:1::1]:853");
    assert_eq!(status["dns64"]["listen_https"][0], "[2001:db8:1::1]:443");

    // The files change, and nobody says so.
    certificates::write(folder, "dns", &["other.example"]);
    let shown = || {
        let line = "openssl s_client -connect [2001:db8:1::1]:853 -alpn dot";
        String::from_utf8_lossy(&site.client.try_run(line).stdout).into_owned()
    };
    poll("the new certificate is in use", || {
        let other = format!("kdig +tls +tls-ca={ca} +tls-hostname=other.example @2001:db8:1::1");
        let output = site.client.try_run(&format!("{other} v4.example.net AAAA"));
        String::from_utf8_lossy(&output.stdout).contains(&v6).then_some(())
    });
    assert!(shown().contains("ALPN protocol: dot"), "{}", shown());
    assert_eq!(daemon.all_stats()["dns64"]["certificates_reloaded"], 1);
    let log = daemon.stop();
    let both = "by TLS on [2001:db8:1::1]:853, by HTTPS on [2001:db8:1::1]:443 with";
    assert!(log.contains(both), "{log}");
}
