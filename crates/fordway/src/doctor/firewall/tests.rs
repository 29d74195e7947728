use super::ruleset::{Fate, Flow, Ruleset};

/// As nftables 1.0.6 lists it.
const RULESET: &[u8] = include_bytes!("tests/ruleset.json");

fn flow(iif: &str, oif: &str) -> Flow {
    let some = |name: &str| (!name.is_empty()).then(|| name.to_owned());
    Flow { v6: true, iif: some(iif), oif: some(oif), l4: "tcp", state: "new", ..Flow::default() }
}

fn fate(kind: &str, hook: &str, flow: &Flow) -> Fate {
    Ruleset::parse(RULESET).unwrap().fate(kind, hook, flow)
}

fn dropped(by: &str) -> Fate {
    Fate::Drop(by.to_owned())
}

#[test]
fn the_first_rule_that_applies_decides() {
    let forward = |flow: &Flow| fate("filter", "forward", flow);
    assert_eq!(forward(&flow("lan0", "nat64")), Fate::Pass, "iifname @ifs");
    assert_eq!(forward(&flow("wan0", "nat64")), dropped("the policy of chain inet filter forward"));
    assert_eq!(forward(&Flow { state: "established", ..flow("wan0", "nat64") }), Fate::Pass);
    assert_eq!(forward(&flow("a", "nat64")), dropped("rule 7 of chain inet filter other"));
    let ping = Flow { l4: "ipv6-icmp", ..flow("wan0", "nat64") };
    assert_eq!(forward(&ping), dropped("rule 12 of chain inet filter forward"));
    let to = |address: &str| Flow { destination: address.parse().ok(), ..flow("wan0", "nat64") };
    assert_eq!(forward(&to("64:ff9b::1")), dropped("rule 5 of chain inet filter other"));
}

#[test]
fn what_is_not_known_is_not_claimed() {
    assert_eq!(fate("filter", "forward", &flow("", "nat64")), Fate::Unclear);
    // The source may be one that is accepted.
    let dns = Flow { port: Some(5353), l4: "udp", ..flow("lan0", "") };
    assert_eq!(fate("filter", "input", &dns), Fate::Unclear);
    let from = |address: &str| Flow { source: address.parse().ok(), ..dns.clone() };
    assert_eq!(fate("filter", "input", &from("2001:db8::7")), Fate::Pass);
    let policy = dropped("the policy of chain inet filter input");
    assert_eq!(fate("filter", "input", &from("2001:2::7")), policy);
}

#[test]
fn ports_in_sets_and_alone() {
    for (l4, port) in [("udp", 53), ("tcp", 53), ("tcp", 22)] {
        let flow = Flow { port: Some(port), l4, ..flow("lan0", "") };
        assert_eq!(fate("filter", "input", &flow), Fate::Pass, "{l4} {port}");
    }
}

#[test]
fn translation_of_addresses_is_seen() {
    let v4 = |oif: &str, source: &str| Flow {
        v6: false,
        source: source.parse().ok(),
        ..flow("nat64", oif)
    };
    let rewritten = |by: &str| Fate::Rewrite(by.to_owned());
    let post = |flow: Flow| fate("nat", "postrouting", &flow);
    assert_eq!(post(v4("wan0", "198.51.100.9")), rewritten("rule 2 of chain ip nat post"));
    assert_eq!(post(v4("wan1", "192.0.2.7")), rewritten("rule 3 of chain ip nat post"));
    assert_eq!(post(v4("wan1", "198.51.100.9")), Fate::Pass);
    assert_eq!(post(flow("nat64", "wan0")), Fate::Pass, "chain of the other IP version");
}

#[test]
fn no_ruleset_and_strange_ones() {
    assert!(Ruleset::parse(b"").is_none());
    assert!(Ruleset::parse(b"{\"nftables\": 3}").is_none());
    let loops = br#"{"nftables": [
        {"chain": {"family": "inet", "table": "t", "name": "c", "type": "filter", "hook": "forward", "policy": "accept"}},
        {"rule": {"family": "inet", "table": "t", "chain": "c", "expr": [{"jump": {"target": "c"}}]}}]}"#;
    let ruleset = Ruleset::parse(loops).unwrap();
    assert_eq!(ruleset.fate("filter", "forward", &flow("a", "b")), Fate::Unclear);
}
