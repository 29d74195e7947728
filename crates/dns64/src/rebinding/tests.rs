use super::*;
use crate::policies::Policies;
use crate::policy::Names;
use crate::tests::{SOA, check, name, policy};

const AAAA: &str = "AAAA www.example.net.";
const A: &str = "A www.example.net.";

fn guarded() -> Policy {
    let private = Rebinding::USUAL.iter().map(|net| net.parse().unwrap()).collect();
    let mut exempt = Names::default();
    exempt.set(name("lan.example.net."), true);
    exempt.set(name("guest.lan.example.net."), false);
    Policy { rebinding: Some(Rebinding { private, exempt }), ..policy() }
}

#[test]
fn nothing_is_synthesised_from_private_addresses() {
    let nodata = format!("NOERROR\n{SOA}");
    let of = |a: &str| format!("NOERROR\nwww.example.net. 300 A {a}");
    for a in [
        "10.1.2.3",
        "127.0.0.1",
        "0.0.0.0",
        "169.254.169.254",
        "172.31.0.1",
        "192.168.1.1",
        "100.64.0.1",
    ] {
        let replies = [(AAAA, &*nodata), (A, &*of(a))];
        let response =
            check(&guarded(), &format!("{AAAA} edns"), &replies, &format!("NOERROR ede=15\n{SOA}"));
        assert!(response.blocked, "{a}");
    }
    // Public ones stay, also beside private ones.
    let both = "NOERROR\nwww.example.net. 300 A 10.1.2.3\nwww.example.net. 300 A 198.51.100.1";
    let expected = "NOERROR ede=29 ede=15\nwww.example.net. 60 AAAA 2001:db8:64::c633:6401";
    check(&guarded(), &format!("{AAAA} edns"), &[(AAAA, &nodata), (A, both)], expected);
    let public = of("198.51.100.1");
    let replies = [(AAAA, &*nodata), (A, &*public)];
    let expected = "NOERROR\nwww.example.net. 60 AAAA 2001:db8:64::c633:6401";
    assert!(!check(&guarded(), AAAA, &replies, expected).blocked);
}

#[test]
fn private_records_of_every_kind_are_taken_out() {
    for a in ["10.1.2.3", "192.168.1.1"] {
        let private =
            format!("NOERROR secure\nwww.example.net. 300 A {a}\nwww.example.net. 300 RRSIG A");
        let response = check(&guarded(), &format!("{A} do"), &[(A, &private)], "NOERROR ede=15");
        assert_eq!((response.lifetime, response.blocked), (0, true));
    }
    // AAAA records: of private networks, mapped, and in a translation prefix. Then A records count.
    let a = "NOERROR\nwww.example.net. 300 A 198.51.100.1";
    for v6 in [
        "::1",
        "::",
        "fd00::1",
        "fe80::1",
        "::ffff:10.0.0.1",
        "::10.0.0.1",
        "2002:a00:1::1",
        "2002:c0a8:101::1",
        "2001:0:c633:6401:0:1234:f5ff:fffe",
        "64:ff9b::a00:1",
        "2001:db8:64::7f00:1",
    ] {
        let aaaa = format!("NOERROR\nwww.example.net. 300 AAAA {v6}");
        let expected = "NOERROR ede=29 ede=15\nwww.example.net. 300 AAAA 2001:db8:64::c633:6401";
        check(&guarded(), &format!("{AAAA} edns"), &[(AAAA, &aaaa), (A, a)], expected);
    }
    for v6 in [
        "64:ff9b::c633:6401",
        "2002:c633:6401::a00:1",
        "2001:0:a00:1::39cc:9bfe",
        "2001:db8::a00:1",
    ] {
        let aaaa = format!("NOERROR\nwww.example.net. 300 AAAA {v6}");
        check(&guarded(), AAAA, &[(AAAA, &aaaa)], &aaaa);
    }
    let mx = "NOERROR\nwww.example.net. 300 MX 1 a.example.net.\n+ a.example.net. 300 A 10.0.0.1\n\
              + a.example.net. 300 A 198.51.100.1";
    let expected = "NOERROR ede=15\nwww.example.net. 300 MX 1 a.example.net.\n+ a.example.net. 300 A 198.51.100.1";
    check(&guarded(), "MX www.example.net. edns", &[("MX www.example.net.", mx)], expected);
    let https = "HTTPS www.example.net.";
    let hints = |hint: &str| format!("NOERROR\nwww.example.net. 300 HTTPS 1 . {hint}");
    for hint in
        ["ipv4hint=10.0.0.1", "ipv6hint=2001:db8::1,fd00::1", "alpn=h2 ipv6hint=64:ff9b::a00:1"]
    {
        check(&guarded(), &format!("{https} edns"), &[(https, &hints(hint))], "NOERROR ede=15");
    }
    let good = hints("alpn=h2 ipv4hint=198.51.100.1");
    assert!(!guarded_response(https, &good).blocked);
}

fn guarded_response(asked: &str, reply: &str) -> crate::Response {
    let world = crate::tests::World::new(&[(asked, reply)]);
    world.resolve(&guarded(), &crate::tests::query(asked))
}

#[test]
fn the_name_asked_for_decides() {
    let own = "A host.lan.example.net.";
    let reply = "NOERROR\nhost.lan.example.net. 300 A 192.168.1.1";
    check(&guarded(), own, &[(own, reply)], reply);
    let guest = "A a.guest.lan.example.net.";
    let reply = "NOERROR\na.guest.lan.example.net. 300 A 192.168.1.1";
    check(&guarded(), guest, &[(guest, reply)], "NOERROR");
    // A stranger's alias to such a name is what rebinding is made of.
    let alias = "NOERROR\nwww.example.net. 300 CNAME host.lan.example.net.\nhost.lan.example.net. 300 A 192.168.1.1";
    let expected = "NOERROR\nwww.example.net. 300 CNAME host.lan.example.net.";
    assert!(check(&guarded(), A, &[(A, alias)], expected).blocked);
    // Without protection all stays.
    check(&policy(), A, &[(A, alias)], alias);
}

#[test]
fn prefixes_of_all_policies_count_for_every_client() {
    let pool6 = |text: &str| vec![text.parse().unwrap()];
    // The last lies in the first, and its addresses are private there: 10.0.1.x.
    let policies = ["2001:db8::/32", "2001:db8:64::/96", "2001:db8:a00:1::/96"];
    let site = || policies.map(|it| it.parse().unwrap()).to_vec();
    for own in policies {
        let policies = Policies::new(
            Policy { pool6: pool6("2001:db8::/32"), site: site(), ..guarded() },
            vec![(
                vec!["2001:db8:1::/48".parse().unwrap()],
                Policy { pool6: pool6(own), ..guarded() },
            )],
        )
        .unwrap();
        let (index, policy) = policies.of("2001:db8:1::1".parse().unwrap());
        assert_eq!(index, 1);
        for v6 in ["2001:db8:64::a00:1", "64:ff9b::a00:1", "2001:db8:a00:1::c633:6401"] {
            let aaaa = format!("NOERROR\nwww.example.net. 300 AAAA {v6}");
            let a = "NOERROR";
            let asked = format!("{AAAA} edns");
            let response = check(policy, &asked, &[(AAAA, &aaaa), (A, a)], "NOERROR ede=15");
            assert!(response.blocked, "{own} {v6}");
        }
    }
}
