//! DNS cookies: dig shows them to the server, and the server to BIND.

use fordway_testhost::{can_use_tun, has_programs};

use super::world::{BIND, bind, dig_whole, say};
use crate::common::dns::Zone;
use crate::common::resolver::{PREFIX, Site};

/// The cookie that dig shows.
fn cookie(text: &str) -> &str {
    let line = text.lines().find_map(|line| line.strip_prefix("; COOKIE: "));
    line.unwrap_or_else(|| panic!("no cookie: {text}"))
}

#[test]
fn dig_and_bind_exchange_cookies_with_the_server() {
    if !can_use_tun() || !has_programs(&["dig", "kdig", "named"]) {
        return;
    }
    let site = Site::new();
    let _upstream = site.upstream(Zone::new("example.net").a("v4.example.net", "192.0.2.1"));
    let zones = [("corp.example", "www A 198.51.100.10\nftp A 198.51.100.11\n")];
    // BIND answers by UDP only who shows its cookie.
    let _bind = bind(&site, &zones, "require-server-cookie yes;");
    let rest = format!("[[dns64.forward]]\ndomain = \"corp.example\"\nupstream = [\"{BIND}\"]\n");
    let daemon = site.start(PREFIX, &rest);

    // dig says whether the server has repeated its cookie: "(good)".
    let first = dig_whole(&site, "+cookie=0123456789abcdef v4.example.net AAAA");
    let (given, good) = cookie(&first).split_once(' ').unwrap();
    assert_eq!((given.len(), &given[..18], good), (48, "0123456789abcdef01", "(good)"));
    let again = dig_whole(&site, &format!("+cookie={given} v4.example.net AAAA"));
    assert_eq!(cookie(&again), format!("{given} (good)"));
    assert!(again.contains(&format!("{PREFIX}c000:201")), "{again}");
    let short = dig_whole(&site, "+nocookie +ednsopt=10:0123 v4.example.net AAAA");
    assert!(short.contains("status: FORMERR"), "{short}");
    let knot =
        say(&site.client, "kdig +cookie=0123456789abcdef @2001:db8:1::1 v4.example.net AAAA");
    assert!(knot.contains(&format!("{PREFIX}c000:201")), "{knot}");

    for (host, end) in [("www", "c633:640a"), ("ftp", "c633:640b")] {
        let answer = dig_whole(&site, &format!("{host}.corp.example AAAA"));
        assert!(answer.contains(&format!("{PREFIX}{end}")), "{answer}");
    }
    let stats = daemon.all_stats();
    let servers = stats["dns64"]["upstream"]["servers"].as_array().unwrap();
    let bind = servers.iter().find(|it| it["server"] == format!("{BIND}:53")).unwrap();
    assert_eq!((&bind["connections"], &bind["mismatches"]), (&0.into(), &0.into()), "{bind}");
    assert!(stats["dns64"]["cookies_valid"].as_u64().unwrap() >= 1);
    assert_eq!(stats["dns64"]["cookies_invalid"], 1);
    daemon.stop();
}
