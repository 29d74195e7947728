use super::*;
use crate::Kind;
use crate::tests::{SOA, check, name, policy, query};

/// 2001:db8:64::198.51.100.1.
const NAME: &str = "1.0.4.6.3.3.6.c.0.0.0.0.0.0.0.0.0.0.0.0.4.6.0.0.8.b.d.0.1.0.0.2.ip6.arpa.";
const IN_ADDR: &str = "PTR 1.100.51.198.in-addr.arpa.";

/// The zone of the prefix, and what it says of a name that is not there.
fn zone_soa(ttl: u32) -> String {
    let zone = NAME.split_once("6.c.").unwrap().1;
    format!("! {zone} {ttl} SOA {zone} nobody.invalid. 1 3600 1200 604800 {ttl}")
}

fn ptr() -> String {
    format!("PTR {NAME}")
}

fn arpa(v6: &str) -> String {
    let bits = v6.parse::<Ipv6Addr>().unwrap().to_bits();
    (0..32).map(|i| format!("{:x}.", bits >> (4 * i) & 15)).collect::<String>() + "ip6.arpa."
}

#[test]
fn names_are_those_of_addresses() {
    assert_eq!(arpa("2001:db8:64::198.51.100.1"), NAME);
    let address = |text: &str| address(&name(text)).map(|address| address.to_string());
    assert_eq!(address(NAME).as_deref(), Some("2001:db8:64::c633:6401"));
    assert_eq!(address(&NAME.to_uppercase()).as_deref(), Some("2001:db8:64::c633:6401"));
    for text in [
        &NAME[2..],                   // 31 nibbles
        &format!("0.{NAME}"),         // 33
        &NAME.replacen('1', "g", 1),  // no digit
        &NAME.replacen('1', "11", 1), // not one digit
        &NAME.replace("ip6", "ip7"),
        &NAME.replace("arpa", "arpa.net"),
        ".",
        "1.100.51.198.in-addr.arpa.",
    ] {
        assert_eq!(address(text), None, "{text}");
    }
}

#[test]
fn the_zone_of_a_prefix_exists_from_its_top_down() {
    let apex = NAME.split_once("6.c.").unwrap().1;
    let asked = |what: &str, expected: &str| {
        let response = check(&policy(), what, &[], expected);
        assert_eq!((response.kind, response.lifetime), (Kind::Local, LOCAL_TTL), "{what}");
    };
    asked(&format!("SOA {apex}"), &format!("NOERROR AA\n{}", &zone_soa(600)[2..]));
    for kind in ["NS", "PTR", "TXT"] {
        asked(&format!("{kind} {apex}"), &format!("NOERROR AA\n{}", zone_soa(600)));
    }
    // A name without data of its own, above those of addresses.
    for kind in ["SOA", "PTR"] {
        asked(&format!("{kind} 6.c.{apex}"), &format!("NOERROR AA\n{}", zone_soa(600)));
    }
    // What is above the zone, beside it or below the names of addresses is asked, and so is what belongs to the zone above.
    let above = apex.split_once('.').unwrap().1;
    let others = [
        format!("SOA {above}"),
        format!("SOA 1.{above}"),
        format!("SOA x.{apex}"),
        format!("SOA 0.{NAME}"),
        format!("DS {apex}"),
    ];
    for other in others {
        check(&policy(), &other, &[(&other, "NXDOMAIN")], "NXDOMAIN");
    }
}

#[test]
fn a_cname_leads_to_the_ipv4_name() {
    let response = check(
        &policy(),
        &format!("{} edns", ptr()),
        &[(IN_ADDR, "NOERROR age=10\n1.100.51.198.in-addr.arpa. 300 PTR www.example.net.")],
        &format!(
            "NOERROR ede=29\n{NAME} 290 CNAME 1.100.51.198.in-addr.arpa.\n\
             1.100.51.198.in-addr.arpa. 290 PTR www.example.net."
        ),
    );
    assert_eq!((response.kind, response.lifetime), (Kind::Synthetic, 290));
}

#[test]
fn no_cname_to_nothing() {
    // RFC 6147 section 5.3.1 item 2; the SOA is that of a zone in which the name lies.
    for code in ["NXDOMAIN", "NOERROR"] {
        let response = check(
            &policy(),
            &ptr(),
            &[(IN_ADDR, &format!("{code} age=20\n{SOA}"))],
            &format!("{code}\n{}", zone_soa(40)),
        );
        assert_eq!(response.lifetime, 40);
    }
    let response = check(&policy(), &ptr(), &[(IN_ADDR, "NXDOMAIN")], "NXDOMAIN");
    assert_eq!(response.lifetime, 0, "RFC 2308 section 5: without SOA nobody keeps it");
}

#[test]
fn no_chain_is_made_longer() {
    // RFC 2317: the name in IN-ADDR.ARPA is an alias itself.
    check(
        &policy(),
        &ptr(),
        &[(
            IN_ADDR,
            "NOERROR\n1.100.51.198.in-addr.arpa. 300 CNAME 1.0-63.100.51.198.in-addr.arpa.\n\
             1.0-63.100.51.198.in-addr.arpa. 200 PTR www.example.net.",
        )],
        &format!(
            "NOERROR\n{NAME} 200 CNAME 1.0-63.100.51.198.in-addr.arpa.\n\
             1.0-63.100.51.198.in-addr.arpa. 200 PTR www.example.net."
        ),
    );
}

#[test]
fn failures_are_passed() {
    check(&policy(), &ptr(), &[(IN_ADDR, "5")], "5");
    check(&policy(), &format!("{} edns", ptr()), &[(IN_ADDR, "TIMEOUT")], "SERVFAIL ede=22");
    check(&policy(), &format!("{} edns", ptr()), &[(IN_ADDR, "NOERROR bogus")], "SERVFAIL ede=6");
}

#[test]
fn answers_of_our_own() {
    let policy = Policy { reverse: Reverse::Local, ..policy() };
    let response = check(
        &policy,
        &ptr(),
        &[],
        &format!("NOERROR AA\n{NAME} 600 PTR 198-51-100-1.nat64.invalid."),
    );
    assert_eq!((response.kind, response.lifetime), (Kind::Local, 600));
    let policy = Policy { reverse_domain: name("nat64.example.net."), ..policy };
    check(
        &policy,
        &format!("{} nord", ptr()),
        &[],
        &format!("NOERROR AA\n{NAME} 600 PTR 198-51-100-1.nat64.example.net."),
    );
    // A domain of 255 octets leaves no room.
    let long = ["a".repeat(61), "b".repeat(63), "c".repeat(63), "d".repeat(63)].join(".") + ".";
    let policy = Policy { reverse_domain: name(&long), ..policy };
    check(&policy, &ptr(), &[], &format!("NOERROR AA\n{NAME} 600 PTR {long}"));
}

#[test]
fn the_well_known_addresses_have_the_well_known_name() {
    for reverse in [Reverse::Cname, Reverse::Local] {
        for address in ["2001:db8:64::192.0.0.170", "64:ff9b::192.0.0.171"] {
            let policy = Policy { reverse, ..policy() };
            let owner = arpa(address);
            let asked = format!("PTR {owner}");
            check(&policy, &asked, &[], &format!("NOERROR AA\n{owner} 600 PTR ipv4only.arpa."));
            // RFC 7050 section 3.1.1: an operator whose hosts validate gives the translator's name.
            let names = ["a.example.net.", "b.example.net."].map(name).to_vec();
            let policy = Policy { nat64_names: names, ..policy };
            let expected = format!(
                "NOERROR AA\n{owner} 600 PTR a.example.net.\n{owner} 600 PTR b.example.net."
            );
            check(&policy, &asked, &[], &expected);
        }
    }
}

#[test]
fn other_prefixes_of_the_site_are_ours_too() {
    let other = Policy { pool6: vec!["2001:db8:77::/96".parse().unwrap()], ..Policy::default() };
    let policies =
        crate::Policies::new(policy(), vec![(vec!["2001:db8:5::/48".parse().unwrap()], other)])
            .unwrap();
    let (_, policy) = policies.of("2001:db8:1::2".parse().unwrap());
    let policy = Policy { reverse: Reverse::Local, ..policy.clone() };
    for prefix in ["2001:db8:64::", "2001:db8:77::"] {
        let owner = arpa(&format!("{prefix}198.51.100.1"));
        let expected = format!("NOERROR AA\n{owner} 600 PTR 198-51-100-1.nat64.invalid.");
        check(&policy, &format!("PTR {owner}"), &[], &expected);
    }
}

#[test]
fn the_well_known_prefix_is_ours_but_only_for_global_addresses() {
    let owner = arpa("64:ff9b::192.0.0.9");
    let text = "NOERROR\n9.0.0.192.in-addr.arpa. 300 PTR www.example.net.";
    check(
        &policy(),
        &format!("PTR {owner}"),
        &[("PTR 9.0.0.192.in-addr.arpa.", text)],
        &format!(
            "NOERROR\n{owner} 300 CNAME 9.0.0.192.in-addr.arpa.\n9.0.0.192.in-addr.arpa. 300 PTR www.example.net."
        ),
    );
    let owner = arpa("64:ff9b::198.51.100.1");
    let zone = arpa("64:ff9b::").split_off(16);
    let expected =
        format!("NXDOMAIN AA\n! {zone} 600 SOA {zone} nobody.invalid. 1 3600 1200 604800 600");
    check(&policy(), &format!("PTR {owner}"), &[], &expected);
    let policy = Policy { allow_private: true, reverse: Reverse::Local, ..policy() };
    let expected = format!("NOERROR AA\n{owner} 600 PTR 198-51-100-1.nat64.invalid.");
    check(&policy, &format!("PTR {owner}"), &[], &expected);
}

#[test]
fn each_prefix_length_is_undone() {
    for prefix in [
        "2001:db8::/32",
        "2001:db8:100::/40",
        "2001:db8:122::/48",
        "2001:db8:122:300::/56",
        "2001:db8:122:344::/64",
        "2001:db8:122:344::/96",
    ] {
        let pool6: fordway_xlat::addr::Pool6 = prefix.parse().unwrap();
        let policy = Policy { pool6: vec![pool6], reverse: Reverse::Local, ..Policy::default() };
        let owner = arpa(&pool6.embed(Ipv4Addr::new(192, 0, 2, 33)).to_string());
        let expected = format!("NOERROR AA\n{owner} 600 PTR 192-0-2-33.nat64.invalid.");
        check(&policy, &format!("PTR {owner}"), &[], &expected);
    }
}

#[test]
fn everything_else_is_asked_upstream() {
    let nxdomain = format!("NXDOMAIN\n{SOA}");
    let pass =
        |policy: &Policy, asked: &str| check(policy, asked, &[(asked, &nxdomain)], &nxdomain);
    let local = Policy { reverse: Reverse::Local, ..policy() };
    // Another prefix, another type, octet u that is not zero, DNS64 switched off.
    pass(&local, &format!("PTR {}", arpa("2001:db8:65::198.51.100.1")));
    pass(&local, &format!("TXT {NAME}"));
    let wide = Policy { pool6: vec!["2001:db8:122::/48".parse().unwrap()], ..local.clone() };
    pass(&wide, &format!("PTR {}", arpa("2001:db8:122:c000:ff02:2100::")));
    pass(&Policy { enabled: false, ..local }, &ptr());
    let asked = query(&format!("{} ch", ptr()));
    assert!(lookup(&policy(), &asked, &asked.queries[0]).is_none());
}

#[test]
fn signatures_are_for_those_who_ask() {
    let text = "NOERROR\n1.100.51.198.in-addr.arpa. 300 PTR www.example.net.\n\
                1.100.51.198.in-addr.arpa. 300 RRSIG PTR";
    let found = format!(
        "NOERROR\n{NAME} 300 CNAME 1.100.51.198.in-addr.arpa.\n\
         1.100.51.198.in-addr.arpa. 300 PTR www.example.net."
    );
    check(&policy(), &ptr(), &[(IN_ADDR, text)], &found);
    check(
        &policy(),
        &format!("{} do", ptr()),
        &[(IN_ADDR, text)],
        &format!(
            "{}\n1.100.51.198.in-addr.arpa. 300 RRSIG 000c{}",
            found.replace("NOERROR", "NOERROR ede=29"),
            "0d".repeat(30)
        ),
    );
}
