use std::time::Duration;

use hickory_proto::rr::RData;
use hickory_proto::rr::rdata::{AAAA, PTR};

use super::*;
use crate::discovery::heuristic::prefixes;

fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

fn candidate(prefix: &str) -> Candidate {
    let text = prefix.split('/').next().unwrap();
    let addresses = ["192.0.0.170", "192.0.0.171"].map(|v4| format!("{text}{v4}").parse().unwrap());
    let mut found = prefixes(&addresses);
    assert_eq!(found.len(), 1);
    found.remove(0)
}

fn records(records: Vec<RData>, authenticated: bool) -> Outcome {
    Outcome::Records { records, ttl: Duration::from_secs(60), authenticated }
}

fn names(texts: &[&str]) -> Outcome {
    records(texts.iter().map(|text| RData::PTR(PTR(name(text)))).collect(), false)
}

fn addresses(texts: &[&str], authenticated: bool) -> Outcome {
    let data = texts.iter().map(|text| RData::AAAA(AAAA(text.parse().unwrap())));
    records(data.collect(), authenticated)
}

const NOTHING: Outcome = Outcome::None { name_exists: false, ttl: None };

fn validator() -> Validator {
    Validator::new(candidate("2001:db8:42::/96"), &[name("example.com.")])
}

fn ask(step: Step) -> (String, RecordType) {
    match step {
        Step::Ask { name, record_type } => (name.to_ascii(), record_type),
        Step::Done(validation) => panic!("done: {validation:?}"),
    }
}

fn failed(validator: &Validator) -> Unproved {
    match validator.step() {
        Step::Done(Validation::Failed(why)) => why,
        step => panic!("{step:?}"),
    }
}

/// The figure of RFC 7050 section 3.4, with the records of its appendix A.
#[test]
fn a_name_in_a_trusted_domain_with_the_address_proves_the_prefix() {
    let mut validator = validator();
    let reverse = "a.a.0.0.0.0.0.c.0.0.0.0.0.0.0.0.0.0.0.0.2.4.0.0.8.b.d.0.1.0.0.2.ip6.arpa.";
    assert_eq!(ask(validator.step()), (reverse.to_owned(), RecordType::PTR));
    validator.answer(&names(&["nat64_1.example.com."]), true);
    assert_eq!(ask(validator.step()), ("nat64_1.example.com.".to_owned(), RecordType::AAAA));
    validator.answer(&addresses(&["2001:db8::1", "2001:db8:42::c000:aa"], true), true);
    let name = name("nat64_1.example.com.");
    assert_eq!(validator.step(), Step::Done(Validation::Dnssec { name }));
}

#[test]
fn nothing_more_is_asked_without_a_trusted_domain() {
    let mut untrusted = validator();
    untrusted.answer(&names(&["nat64.example.net.", "example.com.example.org."]), true);
    // The other address may have another name.
    assert_eq!(ask(untrusted.step()).1, RecordType::PTR);
    untrusted.answer(&NOTHING, true);
    assert_eq!(failed(&untrusted), Unproved::Untrusted(name("nat64.example.net.")));

    let mut nameless = validator();
    nameless.answer(&NOTHING, true);
    nameless.answer(&NOTHING, true);
    assert_eq!(failed(&nameless), Unproved::NoName);
}

#[test]
fn no_trusted_domain_or_the_well_known_prefix_ask_nothing() {
    let without = Validator::new(candidate("2001:db8:42::/96"), &[]);
    assert_eq!(without.step(), Step::Done(Validation::NotTried));
    let well_known = Validator::new(candidate("64:ff9b::/96"), &[name("example.com.")]);
    assert_eq!(failed(&well_known), Unproved::WellKnownPrefix);
}

#[test]
fn the_second_address_and_the_second_name_are_tried() {
    let mut validator = validator();
    validator.answer(&NOTHING, true);
    validator.answer(&names(&["a.example.com.", "b.example.com."]), true);
    assert_eq!(ask(validator.step()).0, "a.example.com.");
    validator.answer(&addresses(&["2001:db8:43::c000:aa"], true), true);
    assert_eq!(ask(validator.step()).0, "b.example.com.");
    validator.answer(&addresses(&["2001:db8:42::c000:ab"], true), true);
    let name = name("b.example.com.");
    assert_eq!(validator.step(), Step::Done(Validation::Dnssec { name }));
}

#[test]
fn other_addresses_and_unproved_ones_do_not_prove_it() {
    for (texts, authenticated, secure, why) in [
        (&["2001:db8:43::c000:aa"], true, true, Unproved::OtherAddresses(name("n.example.com."))),
        (&["2001:db8:42::c000:aa"], false, true, Unproved::Insecure(name("n.example.com."))),
        // AD over a way on which anybody could have set it.
        (&["2001:db8:42::c000:aa"], true, false, Unproved::Insecure(name("n.example.com."))),
    ] {
        let mut validator = validator();
        validator.answer(&names(&["n.example.com."]), true);
        validator.answer(&addresses(texts, authenticated), secure);
        assert_eq!(failed(&validator), why);
        assert!(!Validation::Failed(why).is_proved());
    }
}

#[test]
fn what_comes_after_the_end_changes_nothing() {
    let mut validator = validator();
    for _ in 0..10 {
        validator.answer(&names(&["n.example.com."]), true);
        validator.answer(&NOTHING, true);
    }
    assert_eq!(failed(&validator), Unproved::OtherAddresses(name("n.example.com.")));
}
