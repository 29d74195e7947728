//! What is kept of a response.

use hickory_proto::rr::DNSClass;
use hickory_proto::rr::rdata::{MX, NS, NULL};
use hickory_proto::serialize::binary::BinEncodable;

use super::super::clean::clean;
use super::*;

fn cleaned(question: &Question, fill: impl FnOnce(&mut Message)) -> Message {
    let mut message = Message::query();
    fill(&mut message);
    clean(&mut message, question);
    message
}

fn owners(records: &[Record]) -> Vec<String> {
    records.iter().map(|record| format!("{} {}", record.name, record.record_type())).collect()
}

pub(super) fn dname(owner: &str, target: &str) -> Record {
    let rdata = NULL::with(name(target).to_bytes().unwrap());
    Record::from_rdata(name(owner), 300, RData::Unknown { code: RecordType::DNAME, rdata })
}

#[test]
fn the_chain_is_kept_in_its_order_and_nothing_else() {
    let message = cleaned(&question("www.example.net."), |message| {
        message.answers = vec![
            address("evil.example.org.", 66),
            address("end.example.net.", 1),
            alias("middle.example.net.", "END.example.net."),
            alias("WWW.example.net.", "middle.example.net."),
            address("end.example.net.", 2),
            address("www.example.net.", 66),
        ];
        message.answers[5].dns_class = DNSClass::CH;
    });
    assert_eq!(
        owners(&message.answers),
        [
            "www.example.net. CNAME",
            "middle.example.net. CNAME",
            "END.example.net. A",
            "END.example.net. A"
        ]
    );
}

#[test]
fn a_chain_that_bites_its_tail_ends() {
    let message = cleaned(&question("a.example.net."), |message| {
        message.answers = vec![
            alias("a.example.net.", "b.example.net."),
            alias("b.example.net.", "a.example.net."),
        ];
    });
    assert_eq!(message.answers.len(), 2);
}

#[test]
fn an_endless_chain_is_cut() {
    let message = cleaned(&question("n0.example.net."), |message| {
        let link =
            |n: u32| alias(&format!("n{n}.example.net."), &format!("n{}.example.net.", n + 1));
        message.answers = (0..100).map(link).collect();
    });
    assert_eq!(message.answers.len(), 17);
}

#[test]
fn a_name_has_one_alias() {
    let message = cleaned(&question("a.example.net."), |message| {
        message.answers = vec![
            alias("a.example.net.", "b.example.net."),
            alias("a.example.net.", "c.example.net."),
        ];
    });
    assert_eq!(message.answers, [alias("a.example.net.", "b.example.net.")]);
}

#[test]
fn an_alias_asked_for_is_not_followed() {
    let question = key::question(name("a.example.net."), RecordType::CNAME);
    let message = cleaned(&question, |message| {
        message.answers =
            vec![alias("a.example.net.", "b.example.net."), address("b.example.net.", 1)];
    });
    assert_eq!(owners(&message.answers), ["a.example.net. CNAME"]);
}

#[test]
fn a_dname_goes_with_its_cname_and_is_given_one_if_it_has_none() {
    let question = question("www.old.example.net.");
    let expected =
        ["old.example.net. DNAME", "www.old.example.net. CNAME", "www.new.example.net. A"];
    let dname = dname("old.example.net.", "new.example.net.");
    let with = cleaned(&question, |message| {
        message.answers = vec![
            dname.clone(),
            alias("www.old.example.net.", "www.new.example.net."),
            address("www.new.example.net.", 1),
        ];
    });
    assert_eq!(owners(&with.answers), expected);
    let without = cleaned(&question, |message| {
        message.answers = vec![address("www.new.example.net.", 1), dname.clone()];
    });
    assert_eq!(owners(&without.answers), expected);
    // Not for its own name, and not for names beside it.
    for other in ["old.example.net.", "www.older.example.net."] {
        let message =
            cleaned(&super::question(other), |message| message.answers = vec![dname.clone()]);
        assert_eq!(owners(&message.answers), [""; 0], "{other}");
    }
}

#[test]
fn a_dname_that_leads_to_names_too_long_ends() {
    let label = "a".repeat(60);
    let owner = format!("{label}.example.net.");
    let target = format!("{label}.{label}.{label}.example.net.");
    let asked = format!("{label}.{owner}");
    let message =
        cleaned(&question(&asked), |message| message.answers = vec![dname(&owner, &target)]);
    assert!(message.answers.len() <= 1);
}

#[test]
fn the_authority_section_keeps_what_belongs_to_the_name() {
    let message = cleaned(&question("www.example.net."), |message| {
        let ns = RData::NS(NS(name("ns.example.net.")));
        message.authorities = vec![
            soa("example.net."),
            soa("example.org."),
            Record::from_rdata(name("example.net."), 300, ns),
        ];
    });
    assert_eq!(owners(&message.authorities), ["example.net. SOA"]);
}

#[test]
fn the_additional_section_keeps_addresses_of_names_in_the_answer() {
    let question = key::question(name("example.net."), RecordType::MX);
    let message = cleaned(&question, |message| {
        let mx = RData::MX(MX::new(10, name("mail.example.net.")));
        message.answers = vec![Record::from_rdata(name("example.net."), 300, mx)];
        message.additionals = vec![
            address("mail.example.net.", 1),
            address("www.example.net.", 66),
            alias("mail.example.net.", "www.example.net."),
        ];
    });
    assert_eq!(owners(&message.additionals), ["mail.example.net. A"]);
}
