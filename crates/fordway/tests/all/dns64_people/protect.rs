//! Stale answers, and private addresses of public names.

use fordway_testhost::{can_use_tun, has_programs, poll};

use super::world::{UNBOUND, dig, dig_whole, unbound};
use crate::common::dns::Zone;
use crate::common::resolver::{PREFIX, Site};

#[test]
fn what_has_expired_is_given_when_unbound_is_gone() {
    if !can_use_tun() || !has_programs(&["dig", "unbound"]) {
        return;
    }
    let site = Site::new();
    let _upstream = site.upstream(Zone::new("example.net").a("v4.example.net", "192.0.2.1"));
    let data = ["www.corp.example. 1 A 198.51.100.10"];
    let server = unbound(&site, "unbound.conf", "corp.example.", &data);
    let rest = format!(
        "serve_stale = \"1h\"\n\
         [[dns64.forward]]\ndomain = \"corp.example\"\nupstream = [\"{UNBOUND}\"]\n"
    );
    let daemon = site.start(PREFIX, &rest);
    let v6 = format!("{PREFIX}c633:640a");
    assert_eq!(dig(&site, "www.corp.example AAAA"), std::slice::from_ref(&v6));
    drop(server);
    poll("the answer is stale", || {
        let answer = dig_whole(&site, "www.corp.example AAAA");
        assert!(answer.contains(&v6), "{answer}");
        (answer.contains("EDE: 3 (Stale Answer)") && answer.contains("\t30\tIN\tAAAA"))
            .then_some(())
    });
    let _server =
        unbound(&site, "again.conf", "corp.example.", &["www.corp.example. A 203.0.113.10"]);
    // Somebody who does not wait for the next try.
    let output = site.run.output(&site.gateway, "dns64-cache flush");
    assert!(output.status.success());
    assert_eq!(dig(&site, "www.corp.example AAAA"), [format!("{PREFIX}cb00:710a")]);
    assert!(daemon.all_stats()["dns64"]["upstream"]["stale"].as_u64().unwrap() > 0);
    daemon.stop();
}

#[test]
fn private_addresses_are_for_names_that_may_have_them() {
    if !can_use_tun() || !has_programs(&["dig", "unbound"]) {
        return;
    }
    let site = Site::new();
    let zone = Zone::new("example.net")
        .a("evil.example.net", "10.1.2.3")
        .a("half.example.net", "10.1.2.3")
        .a("half.example.net", "192.0.2.1")
        .aaaa("mapped.example.net", "64:ff9b::7f00:1")
        .cname("alias.example.net", "www.corp.example")
        .a("router.lan.example.net", "192.168.1.1");
    let _upstream = site.upstream(zone);
    let data = ["www.corp.example. A 10.0.0.10"];
    let _server = unbound(&site, "unbound.conf", "corp.example.", &data);
    let rest = format!(
        "rebind_protection = true\nrebind_exempt = [\"lan.example.net\"]\n\
         [[dns64.forward]]\ndomain = \"corp.example\"\nupstream = [\"{UNBOUND}\"]\n"
    );
    let daemon = site.start(PREFIX, &rest);
    for question in ["evil.example.net A", "evil.example.net AAAA", "mapped.example.net AAAA"] {
        let answer = dig_whole(&site, question);
        assert!(answer.contains("EDE: 15 (Blocked): (private address)"), "{answer}");
        assert!(answer.contains("ANSWER: 0") && answer.contains("NOERROR"), "{answer}");
    }
    assert_eq!(dig(&site, "half.example.net A"), ["192.0.2.1"]);
    assert_eq!(dig(&site, "half.example.net AAAA"), [format!("{PREFIX}c000:201")]);
    assert_eq!(dig(&site, "router.lan.example.net A"), ["192.168.1.1"]);
    // The servers of a domain may say what they like of it, but not of what leads there.
    assert_eq!(dig(&site, "www.corp.example A"), ["10.0.0.10"]);
    assert_eq!(dig(&site, "www.corp.example AAAA"), [format!("{PREFIX}a00:a")]);
    assert_eq!(dig(&site, "alias.example.net A"), ["www.corp.example."]);
    assert!(daemon.all_stats()["dns64"]["blocked"].as_u64().unwrap() >= 5);
    daemon.stop();
}
