//! A CLAT that sets itself up in a network whose prefix only DNS tells (RFC 7050).

use fordway_testhost::{can_use_tun, poll};
use hickory_proto::rr::RecordType;

use crate::common::advertiser::{Advertiser, Content};
use crate::common::dns::Zone;
use crate::common::laptop::{
    Laptop, NET, OTHER_PREF64, PREF64, RESOLVER, dns64, until, until_state, v6,
};

#[test]
fn a_prefix_that_only_dns_tells_is_enough() {
    if !can_use_tun() {
        return;
    }
    let net = Laptop::new();
    let resolver = net.resolver(dns64(PREF64));
    let daemon = net.start("");
    let content = Content { rdnss: vec![RESOLVER.parse().unwrap()], ..Content::new(NET, &[]) };
    let router = Advertiser::start(&net.router, "s0", content.clone());
    let status = until_state(&daemon, "active");
    assert_eq!(status["pref64"], PREF64);
    let found = &status["prefixes"][0];
    assert_eq!(found["source"], "dns", "{status:#}");
    assert!(found["from"].as_str().unwrap().contains(RESOLVER), "{status:#}");
    // The records' own time to live (RFC 7050 section 3).
    let valid = found["valid_seconds"].as_u64().unwrap();
    assert!((1..=300).contains(&valid), "{valid}");
    net.reaches_server();
    assert!(resolver.count("ipv4only.arpa", RecordType::AAAA) >= 1);
    // An advertisement is better than DNS.
    router.say(Content { rdnss: content.rdnss.clone(), ..Content::new(NET, &[OTHER_PREF64]) });
    let status = until(&daemon, "the advertised prefix", |it| it["pref64"] == OTHER_PREF64);
    let first = v6(&status);
    net.reaches_server();
    // It is withdrawn, and DNS is asked again.
    router.say(Content {
        rdnss: content.rdnss.clone(),
        ..Content::new(NET, &[]).withdraws(OTHER_PREF64)
    });
    let status = until(&daemon, "the prefix of DNS again", |it| it["pref64"] == PREF64);
    assert_eq!(v6(&status), first);
    net.reaches_server();
    // In a network without NAT64 the resolver knows the name's IPv4 addresses only.
    resolver.replace(Zone::new("ipv4only.arpa").a("ipv4only.arpa", "192.0.0.170"));
    net.host.ip("link set c0 down");
    until_state(&daemon, "waiting");
    let before = resolver.count("ipv4only.arpa", RecordType::AAAA);
    net.host.ip("link set c0 up");
    poll("DNS is asked again", || {
        (resolver.count("ipv4only.arpa", RecordType::AAAA) > before).then_some(())
    });
    let none = |reason: &str| reason.starts_with("no prefix found on c0");
    until(&daemon, "no prefix", |it| it["reason"].as_str().is_some_and(none));
    daemon.stop();
}
