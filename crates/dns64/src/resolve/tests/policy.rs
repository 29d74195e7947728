//! RFC 6147 section 5.2, and what a policy changes.

use super::{A_198, AAAA_WWW, nodata, v4_only};
use crate::policy::Range;
use crate::tests::{SOA, World, check, policy, query, show};
use crate::{Names, Policy};

#[test]
fn switched_off_everything_is_passed() {
    let off = Policy { enabled: false, ..policy() };
    let mapped = "NOERROR\nwww.example.net. 300 AAAA ::ffff:198.51.100.1";
    check(&off, AAAA_WWW, &[(AAAA_WWW, &nodata())], &nodata());
    check(&off, AAAA_WWW, &[(AAAA_WWW, mapped)], mapped);
    check(&off, "AAAA ipv4only.arpa.", &[("AAAA ipv4only.arpa.", &nodata())], &nodata());
}

#[test]
fn exempt_names_and_all_below_are_passed() {
    let exempt = ["EXAMPLE.net.", "a.example.org."].map(crate::tests::name);
    let policy = Policy { exempt: Names::from_iter(exempt), ..policy() };
    let mapped = "NOERROR\nwww.example.net. 300 AAAA ::ffff:198.51.100.1";
    check(&policy, AAAA_WWW, &[(AAAA_WWW, &nodata())], &nodata());
    check(&policy, AAAA_WWW, &[(AAAA_WWW, mapped)], mapped);
    check(
        &policy,
        "AAAA www.example.org.",
        &[
            ("AAAA www.example.org.", &nodata()),
            ("A www.example.org.", "NOERROR\nwww.example.org. 9 A 198.51.100.1"),
        ],
        "NOERROR\nwww.example.org. 9 AAAA 2001:db8:64::c633:6401",
    );
    // An alias into what is exempt.
    let text = format!("NOERROR\nwww.example.org. 9 CNAME www.example.net.\n{SOA}");
    check(&policy, "AAAA www.example.org.", &[("AAAA www.example.org.", &text)], &text);
}

#[test]
fn each_prefix_has_its_records_in_order() {
    let pool6 = ["2001:db8:1::/96", "2001:db8:122:344::/64"];
    let policy = Policy { pool6: pool6.map(|it| it.parse().unwrap()).into(), ..Policy::default() };
    v4_only(
        &policy,
        AAAA_WWW,
        &nodata(),
        "NOERROR\nwww.example.net. 9 A 192.0.2.33\nwww.example.net. 9 A 192.0.2.34",
        "NOERROR\nwww.example.net. 9 AAAA 2001:db8:1::c000:221\nwww.example.net. 9 AAAA 2001:db8:1::c000:222\n\
         www.example.net. 9 AAAA 2001:db8:122:344:c0:2:2100:0\n\
         www.example.net. 9 AAAA 2001:db8:122:344:c0:2:2200:0",
    );
}

#[test]
fn ranges_have_prefixes_of_their_own() {
    let range = |v4: &str, pool6: &[&str]| Range {
        v4: v4.parse().unwrap(),
        pool6: pool6.iter().map(|it| it.parse().unwrap()).collect(),
    };
    let policy = Policy {
        ranges: vec![
            range("198.51.100.0/24", &["2001:db8:a::/96", "2001:db8:b::/96"]),
            range("198.51.100.128/25", &["2001:db8:c::/96"]),
            range("198.51.100.7/32", &[]),
        ],
        ..policy()
    };
    v4_only(
        &policy,
        AAAA_WWW,
        &nodata(),
        "NOERROR\nwww.example.net. 9 A 192.0.2.1\nwww.example.net. 9 A 198.51.100.1\n\
         www.example.net. 9 A 198.51.100.129\nwww.example.net. 9 A 198.51.100.7",
        "NOERROR\nwww.example.net. 9 AAAA 2001:db8:64::c000:201\nwww.example.net. 9 AAAA 2001:db8:a::c633:6401\n\
         www.example.net. 9 AAAA 2001:db8:c::c633:6481\nwww.example.net. 9 AAAA 2001:db8:b::c633:6401",
    );
    // Ranges alone: the Well-Known Prefix is not used for the rest.
    let policy = Policy { pool6: Vec::new(), ..policy };
    v4_only(
        &policy,
        AAAA_WWW,
        &nodata(),
        "NOERROR\nwww.example.net. 9 A 192.0.0.9\nwww.example.net. 9 A 198.51.100.129",
        "NOERROR\nwww.example.net. 9 AAAA 2001:db8:c::c633:6481",
    );
}

#[test]
fn without_a_prefix_it_is_the_well_known_one() {
    // 192.0.0.9 is global (RFC 7723), in the middle of what is not.
    v4_only(
        &Policy::default(),
        AAAA_WWW,
        &nodata(),
        "NOERROR\nwww.example.net. 9 A 192.0.0.9",
        "NOERROR\nwww.example.net. 9 AAAA 64:ff9b::c000:9",
    );
}

#[test]
fn the_well_known_prefix_carries_global_addresses_only() {
    let asked = "AAAA www.example.net. edns";
    let soa = format!("NOERROR ede=0\n{SOA}");
    v4_only(&Policy::default(), asked, &nodata(), A_198, &soa);
    let some = format!("{A_198}\nwww.example.net. 9 A 192.0.0.10");
    let found = "NOERROR ede=29\nwww.example.net. 9 AAAA 64:ff9b::c000:a";
    v4_only(&Policy::default(), asked, &nodata(), &some, found);
    let policy = Policy { allow_private: true, ..Policy::default() };
    let found = "NOERROR ede=29\nwww.example.net. 60 AAAA 64:ff9b::c633:6401";
    v4_only(&policy, asked, &nodata(), A_198, found);
    // Beside a prefix of the site's own, only that one carries it.
    let pool6 = ["64:ff9b::/96", "2001:db8:64::/96"].map(|it| it.parse().unwrap());
    let policy = Policy { pool6: pool6.into(), ..Policy::default() };
    let found = "NOERROR ede=29\nwww.example.net. 60 AAAA 2001:db8:64::c633:6401";
    v4_only(&policy, asked, &nodata(), A_198, found);
}

#[test]
fn excluded_a_have_no_synthetic_record() {
    let policy = Policy { exclude_a: vec!["198.51.100.0/25".parse().unwrap()], ..policy() };
    let a = |rest: &str| format!("{A_198}{rest}");
    v4_only(
        &policy,
        AAAA_WWW,
        &nodata(),
        &a("\nwww.example.net. 9 A 198.51.100.128"),
        "NOERROR\nwww.example.net. 9 AAAA 2001:db8:64::c633:6480",
    );
    let asked = "AAAA www.example.net. edns";
    v4_only(&policy, asked, &nodata(), &a(""), &format!("NOERROR ede=0\n{SOA}"));
    // Nor are the A records themselves an answer to who asks for AAAA.
    let mapped = "NOERROR\nwww.example.net. 300 AAAA ::ffff:198.51.100.1";
    v4_only(&policy, asked, mapped, &a(""), "NOERROR ede=0");
}

#[test]
fn addresses_that_no_translator_forwards_have_no_synthetic_record() {
    for address in
        ["127.0.0.1", "0.0.0.0", "169.254.1.1", "224.0.0.1", "255.255.255.255", "240.0.0.1"]
    {
        let a = format!("NOERROR\nwww.example.net. 9 A {address}");
        v4_only(&policy(), AAAA_WWW, &nodata(), &a, &nodata());
    }
}

#[test]
fn as_many_as_one_message_can_hold() {
    let long = ["a".repeat(63), "b".repeat(63), "c".repeat(63), "d".repeat(50)].join(".") + ".net.";
    for (name, most) in [("a.net.", 1454), (long.as_str(), 175)] {
        let lines: String =
            (0..2000).map(|i| format!("\n{name} 9 A 198.18.{}.{}", i / 250, i % 250)).collect();
        let (aaaa, a) = (format!("AAAA {name}"), format!("A {name}"));
        let world = World::new(&[(&aaaa, &nodata()), (&a, &format!("NOERROR{lines}"))]);
        let response = world.resolve(&policy(), &query(&aaaa));
        assert_eq!(response.message.answers.len(), most);
        let octets = response.message.to_vec().unwrap();
        let read = hickory_proto::op::Message::from_vec(&octets).unwrap();
        assert_eq!(show(&read), show(&response.message));
    }
}
