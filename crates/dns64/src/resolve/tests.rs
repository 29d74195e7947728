//! RFC 6147 sections 5.1, 5.3.2, 5.3.3 and 5.4.

use crate::tests::{SOA, World, check, policy, query};
use crate::{Kind, MAPPED, Policy, Step, begin};

fn nodata() -> String {
    format!("NOERROR\n{SOA}")
}

/// The usual case: a name with A records only.
#[track_caller]
fn v4_only(policy: &Policy, asked: &str, aaaa: &str, a: &str, expected: &str) -> crate::Response {
    let replies = [("AAAA www.example.net.", aaaa), ("A www.example.net.", a)];
    check(policy, asked, &replies, expected)
}

const AAAA_WWW: &str = "AAAA www.example.net.";
const A_198: &str = "NOERROR\nwww.example.net. 300 A 198.51.100.1";

#[test]
fn aaaa_there_is_passed_and_nothing_synthesised() {
    let response = check(
        &policy(),
        AAAA_WWW,
        &[(
            AAAA_WWW,
            "NOERROR\nwww.example.net. 300 AAAA 2001:db8::1\nwww.example.net. 300 AAAA 2001:db8::2\n\
             ! example.net. 300 NS ns.example.net.\n+ ns.example.net. 300 A 198.51.100.53",
        )],
        "NOERROR\nwww.example.net. 300 AAAA 2001:db8::1\nwww.example.net. 300 AAAA 2001:db8::2\n\
         ! example.net. 300 NS ns.example.net.\n+ ns.example.net. 300 A 198.51.100.53",
    );
    assert_eq!(response.kind, Kind::Upstream);
    assert_eq!(response.lifetime, 300);
}

#[test]
fn no_aaaa_is_synthesised_from_a() {
    let response = v4_only(
        &policy(),
        AAAA_WWW,
        &nodata(),
        "NOERROR\nwww.example.net. 30 A 198.51.100.1\nwww.example.net. 30 A 198.51.100.2",
        "NOERROR\nwww.example.net. 30 AAAA 2001:db8:64::c633:6401\n\
         www.example.net. 30 AAAA 2001:db8:64::c633:6402",
    );
    assert_eq!(response.kind, Kind::Synthetic);
    assert_eq!(response.lifetime, 30);
}

#[test]
fn stale_answers_say_so_in_what_is_made_of_them() {
    let asked = &format!("{AAAA_WWW} edns");
    let stale_a = "NOERROR ede=3\nwww.example.net. 30 A 198.51.100.1";
    let synthetic = "\nwww.example.net. 30 AAAA 2001:db8:64::c633:6401";
    v4_only(&policy(), asked, &nodata(), stale_a, &format!("NOERROR ede=29 ede=3{synthetic}"));
    let stale_aaaa = format!("NOERROR ede=3\n{SOA}");
    let a = "NOERROR\nwww.example.net. 30 A 198.51.100.1";
    v4_only(&policy(), asked, &stale_aaaa, a, &format!("NOERROR ede=29 ede=3{synthetic}"));
    // Once is enough.
    v4_only(&policy(), asked, &stale_aaaa, stale_a, &format!("NOERROR ede=29 ede=3{synthetic}"));
    let gone = format!("NXDOMAIN ede=19\n{SOA}");
    check(&policy(), asked, &[(AAAA_WWW, &gone)], &gone);
    v4_only(&policy(), AAAA_WWW, &nodata(), stale_a, &format!("NOERROR{synthetic}"));
}

#[test]
fn name_error_is_passed() {
    let response = check(
        &policy(),
        AAAA_WWW,
        &[(AAAA_WWW, &format!("NXDOMAIN\n{SOA}"))],
        &format!("NXDOMAIN\n{SOA}"),
    );
    assert_eq!(response.lifetime, 60);
}

#[test]
fn other_errors_and_silence_are_like_an_empty_answer() {
    let expected = "NOERROR\nwww.example.net. 300 AAAA 2001:db8:64::c633:6401";
    for aaaa in ["SERVFAIL", "1", "4", "5", "9", "23", "TIMEOUT", "UNREACHABLE", "MALFORMED"] {
        v4_only(&policy(), AAAA_WWW, aaaa, A_198, expected);
    }
}

#[test]
fn excluded_aaaa_are_like_an_empty_answer() {
    let mapped = "NOERROR\nwww.example.net. 300 AAAA ::ffff:198.51.100.1";
    v4_only(
        &policy(),
        AAAA_WWW,
        mapped,
        A_198,
        "NOERROR\nwww.example.net. 300 AAAA 2001:db8:64::c633:6401",
    );
    // And if there is no A either, they are not returned.
    v4_only(&policy(), AAAA_WWW, mapped, &nodata(), &nodata());
    // Without the exclusion they count.
    let policy = Policy { exclude: Vec::new(), ..policy() };
    check(&policy, AAAA_WWW, &[(AAAA_WWW, mapped)], mapped);
}

#[test]
fn excluded_ranges_can_be_configured() {
    let ranges = vec![MAPPED, "2001:db8:bad::/48".parse().unwrap()];
    let policy = Policy { exclude: ranges, ..policy() };
    v4_only(
        &policy,
        AAAA_WWW,
        "NOERROR\nwww.example.net. 300 AAAA 2001:db8:bad::1\nwww.example.net. 300 AAAA ::ffff:192.0.2.1",
        A_198,
        "NOERROR\nwww.example.net. 300 AAAA 2001:db8:64::c633:6401",
    );
}

#[test]
fn some_excluded_are_left_out() {
    let text = "NOERROR secure\nwww.example.net. 300 AAAA ::ffff:198.51.100.1\n\
                www.example.net. 300 AAAA 2001:db8::1\nwww.example.net. 300 RRSIG AAAA";
    check(
        &policy(),
        "AAAA www.example.net. edns",
        &[(AAAA_WWW, text)],
        "NOERROR\nwww.example.net. 300 AAAA 2001:db8::1",
    );
    // The signature does not fit what is left; nothing says that it is authentic.
    check(
        &policy(),
        "AAAA www.example.net. do",
        &[(AAAA_WWW, text)],
        "NOERROR\nwww.example.net. 300 AAAA 2001:db8::1",
    );
}

#[test]
fn aliases_come_with_the_synthetic_records() {
    let links =
        "www.example.net. 300 CNAME web.example.org.\nweb.example.org. 200 CNAME srv.example.org.";
    v4_only(
        &policy(),
        AAAA_WWW,
        &format!("NOERROR\n{links}\n{SOA}"),
        &format!("NOERROR\n{links}\nsrv.example.org. 100 A 198.51.100.1"),
        &format!("NOERROR\n{links}\nsrv.example.org. 60 AAAA 2001:db8:64::c633:6401"),
    );
}

#[test]
fn dnames_come_with_the_synthetic_records() {
    let links = "example.net. 300 DNAME example.org.\nwww.example.net. 300 CNAME www.example.org.";
    let shown = "example.net. 300 DNAME 076578616d706c65036f726700\n\
                 www.example.net. 300 CNAME www.example.org.";
    let expected = format!("NOERROR\n{shown}\nwww.example.org. 60 AAAA 2001:db8:64::c633:6401");
    let aaaa = format!("NOERROR\n{links}\n{SOA}");
    let a = format!("NOERROR\n{links}\nwww.example.org. 300 A 198.51.100.1");
    v4_only(&policy(), AAAA_WWW, &aaaa, &a, &expected);
    // A server that leaves the CNAME to the resolver.
    let links = "example.net. 300 DNAME example.org.";
    let aaaa = format!("NOERROR\n{links}\n{SOA}");
    let a = format!("NOERROR\n{links}\nwww.example.org. 300 A 198.51.100.1");
    v4_only(&policy(), AAAA_WWW, &aaaa, &a, &expected);
}

#[test]
fn aliases_of_aaaa_are_passed() {
    let text = "NOERROR\nwww.example.net. 300 CNAME web.example.org.\nweb.example.org. 300 AAAA 2001:db8::1";
    check(&policy(), AAAA_WWW, &[(AAAA_WWW, text)], text);
}

#[test]
fn aliases_of_nothing_are_passed() {
    let text = format!("NOERROR\nwww.example.net. 300 CNAME web.example.org.\n{SOA}");
    v4_only(&policy(), AAAA_WWW, &text, &text, &text);
    let text = format!("NXDOMAIN\nwww.example.net. 300 CNAME web.example.org.\n{SOA}");
    check(&policy(), AAAA_WWW, &[(AAAA_WWW, &text)], &text);
}

#[test]
fn a_chain_that_comes_in_parts_is_followed() {
    check(
        &policy(),
        AAAA_WWW,
        &[
            (AAAA_WWW, "NOERROR\nwww.example.net. 300 CNAME web.example.org."),
            ("AAAA web.example.org.", "NOERROR\nweb.example.org. 200 CNAME srv.example.org."),
            ("AAAA srv.example.org.", &nodata()),
            ("A srv.example.org.", "NOERROR\nsrv.example.org. 100 A 198.51.100.1"),
        ],
        "NOERROR\nwww.example.net. 300 CNAME web.example.org.\nweb.example.org. 200 CNAME srv.example.org.\n\
         srv.example.org. 60 AAAA 2001:db8:64::c633:6401",
    );
    check(
        &policy(),
        AAAA_WWW,
        &[
            (AAAA_WWW, "NOERROR\nwww.example.net. 300 CNAME web.example.org."),
            ("AAAA web.example.org.", "NOERROR\nweb.example.org. 100 AAAA 2001:db8::1"),
        ],
        "NOERROR\nwww.example.net. 300 CNAME web.example.org.\nweb.example.org. 100 AAAA 2001:db8::1",
    );
    // Nothing at its end, and only the A answer stops half-way.
    let part = "NOERROR\nwww.example.net. 300 CNAME web.example.org.";
    check(
        &policy(),
        AAAA_WWW,
        &[
            (AAAA_WWW, "SERVFAIL"),
            ("A www.example.net.", part),
            ("A web.example.org.", "NOERROR\nweb.example.org. 100 A 198.51.100.1"),
        ],
        "NOERROR\nwww.example.net. 300 CNAME web.example.org.\nweb.example.org. 100 AAAA 2001:db8:64::c633:6401",
    );
}

#[test]
fn a_chain_without_end_is_an_error() {
    let circle = "NOERROR\nwww.example.net. 300 CNAME web.example.net.\nweb.example.net. 300 CNAME www.example.net.";
    check(&policy(), "AAAA www.example.net. edns", &[(AAAA_WWW, circle)], "SERVFAIL ede=24");
    // In parts: it stops after a while.
    let parts = [
        (AAAA_WWW, "NOERROR\nwww.example.net. 300 CNAME web.example.net."),
        ("AAAA web.example.net.", "NOERROR\nweb.example.net. 300 CNAME www.example.net."),
        ("A web.example.net.", "NOERROR\nweb.example.net. 300 CNAME www.example.net."),
        ("A www.example.net.", "NOERROR\nwww.example.net. 300 CNAME web.example.net."),
    ];
    let world = World::new(&parts);
    world.resolve(&policy(), &query(AAAA_WWW));
    assert!(world.asked().len() < 20, "{:?}", world.asked());
}

#[test]
fn no_a_either_gives_the_first_answer() {
    let first = format!("NOERROR age=10\n{SOA}\n+ ns.example.net. 300 A 198.51.100.53");
    let second = "NOERROR\n! example.net. 9 SOA other.example.net. admin.example.net. 1 2 3 4 5";
    let response = v4_only(
        &policy(),
        AAAA_WWW,
        &first,
        second,
        "NOERROR\n! example.net. 290 SOA ns.example.net. admin.example.net. 1 3600 600 86400 60\n\
         + ns.example.net. 290 A 198.51.100.53",
    );
    assert_eq!(response.lifetime, 60);
    // An error of the first question stays one, so that nobody keeps "no address" for long.
    v4_only(&policy(), "AAAA www.example.net. edns", "TIMEOUT", &nodata(), "SERVFAIL ede=22");
    v4_only(&policy(), AAAA_WWW, "5", &nodata(), "5");
}

#[test]
fn an_error_of_the_a_question_is_the_answer() {
    v4_only(&policy(), AAAA_WWW, &nodata(), "5", "5");
    let nxdomain = format!("NXDOMAIN\n{SOA}");
    v4_only(&policy(), AAAA_WWW, "SERVFAIL", &nxdomain, &nxdomain);
    for (failure, code) in
        [("TIMEOUT", 22), ("UNREACHABLE", 23), ("MALFORMED", 24), ("OVERLOAD", 0)]
    {
        let response = v4_only(
            &policy(),
            "AAAA www.example.net. edns",
            &nodata(),
            failure,
            &format!("SERVFAIL ede={code}"),
        );
        assert_eq!((response.kind, response.lifetime), (Kind::Error, 0));
    }
}

#[test]
fn too_much_to_do_is_no_empty_answer() {
    // Nobody upstream has said anything: another question would only add to it.
    check(&policy(), "AAAA www.example.net. edns", &[(AAAA_WWW, "OVERLOAD")], "SERVFAIL ede=0");
}

#[test]
fn ttl_is_the_least_of_a_and_soa() {
    let soa = |ttl, minimum| {
        format!(
            "NOERROR\n! example.net. {ttl} SOA ns.example.net. admin.example.net. 1 2 3 4 {minimum}"
        )
    };
    let a = |ttl| format!("NOERROR\nwww.example.net. {ttl} A 198.51.100.1");
    let aaaa = |ttl| format!("NOERROR\nwww.example.net. {ttl} AAAA 2001:db8:64::c633:6401");
    v4_only(&policy(), AAAA_WWW, &soa(900, 900), &a(50), &aaaa(50));
    v4_only(&policy(), AAAA_WWW, &soa(40, 900), &a(5000), &aaaa(40));
    v4_only(&policy(), AAAA_WWW, &soa(900, 30), &a(5000), &aaaa(30));
    v4_only(&policy(), AAAA_WWW, &soa(900, 900), &a(5000), &aaaa(900));
    // Each A record with its own.
    v4_only(
        &policy(),
        AAAA_WWW,
        &soa(900, 900),
        "NOERROR\nwww.example.net. 10 A 198.51.100.1\nwww.example.net. 20 A 198.51.100.2",
        "NOERROR\nwww.example.net. 10 AAAA 2001:db8:64::c633:6401\n\
         www.example.net. 20 AAAA 2001:db8:64::c633:6402",
    );
}

#[test]
fn ttl_without_soa_is_600_at_most() {
    let a = |ttl| format!("NOERROR\nwww.example.net. {ttl} A 198.51.100.1");
    let aaaa = |ttl| format!("NOERROR\nwww.example.net. {ttl} AAAA 2001:db8:64::c633:6401");
    let excluded = "NOERROR\nwww.example.net. 86400 AAAA ::ffff:198.51.100.1";
    for first in ["NOERROR", "SERVFAIL", "TIMEOUT", excluded] {
        v4_only(&policy(), AAAA_WWW, first, &a(86400), &aaaa(600));
        v4_only(&policy(), AAAA_WWW, first, &a(599), &aaaa(599));
    }
}

#[test]
fn ttl_grows_old_with_the_answers() {
    let a = "NOERROR age=7\nwww.example.net. 300 CNAME web.example.net.\nweb.example.net. 100 A 198.51.100.1";
    v4_only(
        &policy(),
        AAAA_WWW,
        &format!("NOERROR age=10\n{SOA}"),
        a,
        "NOERROR\nwww.example.net. 293 CNAME web.example.net.\nweb.example.net. 50 AAAA 2001:db8:64::c633:6401",
    );
    v4_only(
        &policy(),
        AAAA_WWW,
        &format!("NOERROR age=500\n{SOA}"),
        a,
        "NOERROR\nwww.example.net. 293 CNAME web.example.net.\nweb.example.net. 0 AAAA 2001:db8:64::c633:6401",
    );
    // RFC 2181 section 8: a TTL with the highest bit set is none.
    v4_only(
        &policy(),
        AAAA_WWW,
        &nodata(),
        "NOERROR\nwww.example.net. 4294967295 A 198.51.100.1",
        "NOERROR\nwww.example.net. 0 AAAA 2001:db8:64::c633:6401",
    );
}

#[test]
fn authority_and_additional_come_from_the_a_answer() {
    let extras = "! example.net. 300 NS ns.example.net.\n+ ns.example.net. 300 A 198.51.100.53\n\
                  + ns.example.net. 300 AAAA ::ffff:198.51.100.53";
    v4_only(
        &policy(),
        AAAA_WWW,
        &nodata(),
        &format!("{A_198}\n{extras}"),
        &format!("NOERROR\nwww.example.net. 60 AAAA 2001:db8:64::c633:6401\n{extras}"),
    );
}

#[test]
fn other_types_are_passed_unchanged() {
    for (asked, data) in [
        ("A www.example.net.", "www.example.net. 300 A 198.51.100.1"),
        ("MX www.example.net.", "www.example.net. 300 MX 10 mail.example.net."),
        ("HTTPS www.example.net.", "www.example.net. 300 HTTPS 1 . ipv4hint=198.51.100.1"),
        ("TYPE65280 www.example.net.", "www.example.net. 300 TYPE65280 00ff80"),
        ("TYPE99 www.example.net.", "www.example.net. 300 TYPE99 0474657374"),
    ] {
        let text = format!("NOERROR\n{data}\n+ www.example.net. 300 A 198.51.100.1");
        let response = check(
            &policy(),
            asked,
            &[(asked, &text)],
            &text.replace("ipv4hint=198.51.100.1", "ipv4hint=198.51.100.1,"),
        );
        assert_eq!(response.kind, Kind::Upstream);
    }
    // Errors, too; and what nobody answered is said.
    check(&policy(), "MX www.example.net.", &[("MX www.example.net.", "5")], "5");
    check(
        &policy(),
        "MX www.example.net. edns",
        &[("MX www.example.net.", "TIMEOUT")],
        "SERVFAIL ede=22",
    );
}

#[test]
fn any_is_passed_unchanged() {
    let text = "NOERROR\nwww.example.net. 300 A 198.51.100.1\nwww.example.net. 300 AAAA ::ffff:192.0.2.1\n\
                www.example.net. 300 RRSIG A";
    let response = World::new(&[("ANY www.example.net.", text)])
        .resolve(&policy(), &query("ANY www.example.net."));
    assert_eq!(response.message.answers.len(), 3);
    assert_eq!(response.lifetime, 300);
}

#[test]
fn other_classes_are_as_if_there_were_no_dns64() {
    check(&policy(), "AAAA www.example.net. ch", &[(AAAA_WWW, &nodata())], &nodata());
    check(&policy(), "AAAA ipv4only.arpa. ch", &[("AAAA ipv4only.arpa.", &nodata())], &nodata());
}

#[test]
fn the_a_question_may_be_asked_at_once() {
    let (policy, aaaa, mx) = (policy(), query(AAAA_WWW), query("MX www.example.net."));
    let Step::Ask(pending) = begin(&policy, &aaaa) else { panic!() };
    let ahead = pending.ahead().unwrap();
    assert_eq!(ahead.record_type, hickory_proto::rr::RecordType::A);
    assert_eq!(ahead.name, pending.question().name);
    let Step::Ask(pending) = begin(&policy, &mx) else { panic!() };
    assert_eq!(pending.ahead(), None);
}

#[test]
fn who_asks_for_no_recursion_gets_only_what_is_here() {
    check(&policy(), "AAAA www.example.net. nord edns", &[], "5 ede=20");
    let response = World::new(&[]).resolve(&policy(), &query("A ipv4only.arpa. nord"));
    assert_eq!(response.message.answers.len(), 2);
}

#[test]
fn the_question_comes_back_letter_for_letter() {
    let asked = query("AAAA wWw.ExAmPlE.nEt.");
    let replies = [("AAAA wWw.ExAmPlE.nEt.", &*nodata()), ("A wWw.ExAmPlE.nEt.", A_198)];
    let response = World::new(&replies).resolve(&policy(), &asked);
    assert!(response.message.queries[0].name.eq_case(&asked.queries[0].name));
    assert_eq!(response.message.answers.len(), 1, "names are equal whatever their case");
}

#[test]
fn what_a_server_says_of_other_names_is_not_used() {
    v4_only(
        &policy(),
        AAAA_WWW,
        &format!("NOERROR\nother.example.net. 300 AAAA 2001:db8::1\n{SOA}"),
        "NOERROR\nother.example.net. 300 A 192.0.2.1\nwww.example.net. 9 A 198.51.100.1",
        "NOERROR\nwww.example.net. 9 AAAA 2001:db8:64::c633:6401",
    );
}

#[test]
fn an_answer_is_a_response_to_a_query() {
    use crate::{Answer, Outcome, Security};
    use hickory_proto::op::{Message, MessageType, OpCode};
    let (policy, asked) = (policy(), query("MX www.example.net. edns"));
    let mut not_a_response = Message::response(1, OpCode::Query);
    not_a_response.metadata.message_type = MessageType::Query;
    for message in [Message::response(1, OpCode::Update), not_a_response] {
        let Step::Ask(pending) = begin(&policy, &asked) else { panic!() };
        let answer = Answer { message: &message, age: 0, security: Security::Unchecked };
        let Step::Done(response) = pending.resume(Outcome::Answer(answer)) else { panic!() };
        assert_eq!(crate::tests::show(&response.message), "SERVFAIL ede=24");
    }
}

#[test]
fn a_truncated_answer_stays_one_and_is_not_kept() {
    let text = "NOERROR tc\nwww.example.net. 300 AAAA 2001:db8::1";
    let expected = "NOERROR TC\nwww.example.net. 300 AAAA 2001:db8::1";
    assert_eq!(check(&policy(), AAAA_WWW, &[(AAAA_WWW, text)], expected).lifetime, 0);
}

mod dnssec;
mod model;
mod policy;
