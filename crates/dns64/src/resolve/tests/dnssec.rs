//! RFC 6147 section 5.5: what DO and CD ask for, and when AD may be set.

use super::{A_198, AAAA_WWW, nodata, v4_only};
use crate::tests::{SOA, check, policy};

const AAAA: &str =
    "NOERROR secure\nwww.example.net. 300 AAAA 2001:db8::1\nwww.example.net. 300 RRSIG AAAA";
const SHOWN: &str = "www.example.net. 300 AAAA 2001:db8::1";
const SYNTHETIC: &str = "www.example.net. 60 AAAA 2001:db8:64::c633:6401";

fn rrsig(covered: &str) -> String {
    format!("www.example.net. 300 RRSIG {covered}{}", "0d".repeat(30))
}

#[test]
fn without_do_ad_is_never_set() {
    for asked in ["AAAA www.example.net.", "AAAA www.example.net. edns", "AAAA www.example.net. ad"]
    {
        check(&policy(), asked, &[(AAAA_WWW, AAAA)], &format!("NOERROR\n{SHOWN}"));
        let mark = if asked.ends_with("edns") { " ede=29" } else { "" };
        v4_only(
            &policy(),
            asked,
            &format!("NOERROR secure\n{SOA}"),
            &A_198.replace("NOERROR", "NOERROR secure"),
            &format!("NOERROR{mark}\n{SYNTHETIC}"),
        );
    }
}

#[test]
fn with_do_ad_says_that_all_was_validated() {
    let asked = "AAAA www.example.net. do";
    check(
        &policy(),
        asked,
        &[(AAAA_WWW, AAAA)],
        &format!("NOERROR AD\n{SHOWN}\n{}", rrsig("001c")),
    );
    for (first, second, flag) in [
        ("secure", "secure", " AD"),
        ("secure", "insecure", ""),
        ("insecure", "secure", ""),
        ("insecure", "insecure", ""),
    ] {
        v4_only(
            &policy(),
            asked,
            &format!("NOERROR {first}\n{SOA}"),
            &A_198.replace("NOERROR", &format!("NOERROR {second}")),
            &format!("NOERROR{flag} ede=29\n{SYNTHETIC}"),
        );
    }
    // A negative answer, too.
    let negative = format!("NXDOMAIN secure\n{SOA}");
    check(&policy(), asked, &[(AAAA_WWW, &negative)], &format!("NXDOMAIN AD\n{SOA}"));
}

#[test]
fn what_upstream_says_of_itself_is_not_taken_over() {
    // Every reply here has AA and AD set by the server; nobody has validated it.
    let asked = "AAAA www.example.net. do";
    check(
        &policy(),
        asked,
        &[(AAAA_WWW, &AAAA.replace(" secure", ""))],
        &format!("NOERROR\n{SHOWN}\n{}", rrsig("001c")),
    );
    v4_only(&policy(), asked, &nodata(), A_198, &format!("NOERROR ede=29\n{SYNTHETIC}"));
}

#[test]
fn with_do_and_cd_nothing_is_synthesised() {
    let asked = "AAAA www.example.net. do cd";
    check(&policy(), asked, &[(AAAA_WWW, &nodata())], &format!("NOERROR CD\n{SOA}"));
    check(&policy(), asked, &[(AAAA_WWW, "SERVFAIL")], "SERVFAIL CD");
    // All the data, whatever it is.
    let mapped = "www.example.net. 300 AAAA ::ffff:198.51.100.1";
    check(
        &policy(),
        asked,
        &[(AAAA_WWW, &format!("NOERROR\n{mapped}\nwww.example.net. 300 RRSIG AAAA"))],
        &format!("NOERROR CD\n{mapped}\n{}", rrsig("001c")),
    );
    let name = "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.4.6.0.0.8.b.d.0.1.0.0.2.ip6.arpa.";
    let (asked, plain) = (format!("PTR {name} do cd"), format!("PTR {name}"));
    check(&policy(), &asked, &[(&plain, "NXDOMAIN")], "NXDOMAIN CD");
}

#[test]
fn cd_alone_does_not_stop_synthesis() {
    let asked = "AAAA www.example.net. cd edns";
    v4_only(&policy(), asked, &nodata(), A_198, &format!("NOERROR CD ede=29\n{SYNTHETIC}"));
    // Who does not want to be told what is bogus is not told.
    let bogus = AAAA.replace("secure", "bogus");
    check(&policy(), asked, &[(AAAA_WWW, &bogus)], &format!("NOERROR CD\n{SHOWN}"));
}

#[test]
fn what_does_not_validate_is_a_failure() {
    let asked = "AAAA www.example.net. edns";
    check(&policy(), asked, &[(AAAA_WWW, "BOGUS")], "SERVFAIL ede=7");
    let bogus = AAAA.replace("secure", "bogus");
    check(&policy(), asked, &[(AAAA_WWW, &bogus)], "SERVFAIL ede=6");
    // The denial of AAAA first of all: A is not even asked for.
    check(&policy(), asked, &[(AAAA_WWW, &format!("NOERROR bogus\n{SOA}"))], "SERVFAIL ede=6");
    v4_only(
        &policy(),
        asked,
        &format!("NOERROR secure\n{SOA}"),
        &A_198.replace("NOERROR", "NOERROR bogus"),
        "SERVFAIL ede=6",
    );
}

#[test]
fn an_upstream_validator_is_not_circumvented() {
    let asked = "AAAA www.example.net. edns";
    check(&policy(), asked, &[(AAAA_WWW, "SERVFAIL ede=6")], "SERVFAIL ede=6");
    check(&policy(), asked, &[(AAAA_WWW, "SERVFAIL ede=12")], "SERVFAIL ede=12");
    // Any other failure is like an empty answer.
    let found = "NOERROR ede=29\nwww.example.net. 300 AAAA 2001:db8:64::c633:6401";
    v4_only(&policy(), asked, "SERVFAIL ede=22", A_198, found);
}

#[test]
fn a_signed_zone_has_to_prove_that_there_is_no_aaaa() {
    let asked = "AAAA www.example.net. edns";
    let a = |security: &str| A_198.replace("NOERROR", &format!("NOERROR {security}"));
    for failure in ["TIMEOUT", "SERVFAIL", "5"] {
        v4_only(&policy(), asked, failure, &a("secure"), "SERVFAIL ede=12");
        let found = "NOERROR ede=29\nwww.example.net. 300 AAAA 2001:db8:64::c633:6401";
        v4_only(&policy(), asked, failure, &a("insecure"), found);
    }
}

#[test]
fn dnssec_records_only_for_those_who_ask() {
    let text = "NOERROR\nwww.example.net. 300 A 198.51.100.1\nwww.example.net. 300 RRSIG A\n\
                ! example.net. 300 NSEC z.example.net.\n! example.net. 300 RRSIG NSEC";
    let a = "A www.example.net.";
    check(&policy(), a, &[(a, text)], "NOERROR\nwww.example.net. 300 A 198.51.100.1");
    let response = check(
        &policy(),
        "A www.example.net. do",
        &[(a, text)],
        &format!(
            "NOERROR\nwww.example.net. 300 A 198.51.100.1\n{}\n\
             ! example.net. 300 NSEC 017a076578616d706c65036e657400000140\n\
             ! example.net. 300 RRSIG 002f{}",
            rrsig("0001"),
            "0d".repeat(30)
        ),
    );
    assert!(response.message.edns.unwrap().flags().dnssec_ok, "RFC 3225 section 3");
    // Asked for by name, they are data.
    let text = "NOERROR\nwww.example.net. 300 RRSIG A";
    let shown = format!("NOERROR\n{}", rrsig("0001"));
    check(&policy(), "RRSIG www.example.net.", &[("RRSIG www.example.net.", text)], &shown);
}

#[test]
fn signatures_of_what_was_replaced_are_left_out() {
    v4_only(
        &policy(),
        "AAAA www.example.net. do",
        &format!("NOERROR\nwww.example.net. 300 CNAME web.example.net.\n{SOA}"),
        "NOERROR\nwww.example.net. 300 CNAME web.example.net.\nwww.example.net. 300 RRSIG CNAME\n\
         web.example.net. 300 A 198.51.100.1\nweb.example.net. 300 RRSIG A",
        &format!(
            "NOERROR ede=29\nwww.example.net. 300 CNAME web.example.net.\n{}\n\
             web.example.net. 60 AAAA 2001:db8:64::c633:6401",
            rrsig("0005")
        ),
    );
}
