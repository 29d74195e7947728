use hickory_proto::op::{Message, ResponseCode};

use crate::tests::{SOA, World, check, policy, query, record, show};
use crate::{Ede, Kind};

use super::refuse;

fn life(asked: &str, text: &str) -> u32 {
    let world = World::new(&[(asked, text)]);
    world.resolve(&policy(), &query(asked)).lifetime
}

#[test]
fn refusals_say_why_to_those_who_understand() {
    let why = Ede::new(Ede::PROHIBITED, "");
    let response = refuse(&query("A www.example.net. edns"), ResponseCode::Refused, Some(&why));
    assert_eq!(show(&response.message), "5 ede=18");
    assert_eq!((response.kind, response.lifetime), (Kind::Error, 0));
    let response = refuse(&query("A www.example.net."), ResponseCode::Refused, Some(&why));
    assert_eq!(show(&response.message), "5");
    assert!(
        response.message.edns.is_none(),
        "RFC 6891 section 7: only for those who have sent one"
    );
}

#[test]
fn lifetime_is_that_of_the_shortest_record() {
    let a = "A www.example.net.";
    assert_eq!(life(a, "NOERROR\nwww.example.net. 300 A 192.0.2.1"), 300);
    assert_eq!(life(a, "NOERROR age=20\nwww.example.net. 300 A 192.0.2.1"), 280);
    assert_eq!(life(a, "NOERROR age=400\nwww.example.net. 300 A 192.0.2.1"), 0);
    let extras = "! example.net. 30 NS ns.example.net.\n+ ns.example.net. 20 A 192.0.2.1";
    assert_eq!(life(a, &format!("NOERROR\nwww.example.net. 300 A 192.0.2.1\n{extras}")), 20);
}

#[test]
fn lifetime_of_a_negative_answer_is_that_of_its_soa() {
    let a = "A www.example.net.";
    assert_eq!(life(a, &format!("NXDOMAIN\n{SOA}")), 60);
    assert_eq!(life(a, &format!("NOERROR age=290\n{SOA}")), 10);
    let alias = "www.example.net. 30 CNAME web.example.net.";
    assert_eq!(life(a, &format!("NOERROR\n{alias}\n{SOA}")), 30);
    // RFC 2308 section 5: without SOA it is not kept.
    assert_eq!(life(a, "NXDOMAIN\n! example.net. 30 NS ns.example.net."), 0);
    assert_eq!(life(a, "NOERROR"), 0);
    assert_eq!(life(a, &format!("NOERROR\n{alias}")), 0);
}

#[test]
fn errors_are_not_kept() {
    for code in ["SERVFAIL", "1", "4", "5"] {
        let text = format!("{code}\nwww.example.net. 300 A 192.0.2.1\n{SOA}");
        assert_eq!(life("A www.example.net.", &text), 0);
    }
}

#[test]
fn an_rcode_above_15_needs_edns() {
    let text = [("A www.example.net.", "23")];
    check(&policy(), "A www.example.net. edns", &text, "23");
    check(&policy(), "A www.example.net.", &text, "SERVFAIL");
}

#[test]
fn the_reasons_of_a_server_are_passed_on() {
    let text = [("A www.example.net.", "SERVFAIL ede=22")];
    let response = check(&policy(), "A www.example.net. edns", &text, "SERVFAIL ede=22");
    assert_eq!(Ede::of(&response.message), [Ede::new(22, "why")]);
    check(&policy(), "A www.example.net.", &text, "SERVFAIL");
}

#[test]
fn what_belongs_to_a_message_is_not_passed_on() {
    let mut message = Message::response(1, hickory_proto::op::OpCode::Query);
    message.additionals.push(record(". 0 TYPE250 00"));
    message.additionals.push(record(". 0 TYPE24 00"));
    message.additionals.push(record("ns.example.net. 9 A 192.0.2.1"));
    let answer = crate::Answer { message: &message, age: 0, security: crate::Security::Unchecked };
    let response = super::pass(&query("A www.example.net. do"), &answer);
    assert_eq!(show(&response.message), "NOERROR\n+ ns.example.net. 9 A 192.0.2.1");
}

#[test]
fn unknown_records_survive_octet_for_octet() {
    for (code, data) in
        [(65280, "00ff10"), (39, "0361626300"), (42, "00010800"), (99, "0474657374"), (10, "c00c")]
    {
        let mut message = Message::response(1, hickory_proto::op::OpCode::Query);
        message.answers.push(record(&format!("www.example.net. 300 TYPE{code} {data}")));
        let answer =
            crate::Answer { message: &message, age: 0, security: crate::Security::Unchecked };
        let asked = query(&format!("TYPE{code} www.example.net."));
        let octets = super::pass(&asked, &answer).message.to_vec().unwrap();
        let data = crate::tests::hex(data);
        let rdata = [&(data.len() as u16).to_be_bytes()[..], &data].concat();
        assert!(octets.ends_with(&rdata), "{code}");
        assert_eq!(Message::from_vec(&octets).unwrap().to_vec().unwrap(), octets);
    }
}
