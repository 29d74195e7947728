use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use hickory_proto::op::{MessageType, OpCode, Query as HickoryQuery, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME, NS, SOA, TXT};

use super::*;

fn name(text: &str) -> Name {
    Name::from_str(text).unwrap()
}

fn response(asked: &str, record_type: RecordType) -> Message {
    let mut message = Message::new(0, MessageType::Response, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.metadata.recursion_available = true;
    message.add_query(HickoryQuery::query(name(asked), record_type));
    message
}

fn aaaa(owner: &str, ttl: u32, last: u16) -> Record {
    let address = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last);
    Record::from_rdata(name(owner), ttl, RData::AAAA(AAAA(address)))
}

fn txt(owner: &str, len: usize) -> Record {
    let pieces = (0..len.div_ceil(200)).map(|_| "x".repeat(200)).collect();
    Record::from_rdata(name(owner), 60, RData::TXT(TXT::new(pieces)))
}

fn edns() -> Edns {
    let mut edns = Edns::new();
    edns.set_dnssec_ok(true);
    edns
}

fn ready(message: &Message) -> Ready {
    Ready::encode(message, 1232, 10_000, 70_000).unwrap()
}

fn written(ready: &Ready, form: Form, now: u64) -> (Message, Vec<u8>, bool) {
    let mut out = b"before".to_vec();
    let cut = ready.write(
        &Asked { id: 0x4242, question: &[], extras: Extras::default() },
        form,
        now,
        &mut out,
    );
    let octets = out.split_off(6);
    assert_eq!(out, b"before", "what was there is left alone");
    let message = Message::from_vec(&octets).unwrap_or_else(|e| panic!("{e}: {octets:02x?}"));
    (message, octets, cut)
}

/// A response with a bit of everything.
fn varied() -> Message {
    let mut message = response("www.example.com.", RecordType::AAAA);
    let soa = SOA::new(name("ns.example.com."), name("root.example.com."), 1, 2, 3, 4, 5);
    let target = RData::CNAME(CNAME(name("web.example.net.")));
    message.add_answer(Record::from_rdata(name("www.example.com."), 300, target));
    message.add_answer(aaaa("web.example.net.", 200, 1));
    message.add_answer(aaaa("web.example.net.", 200, 2));
    message.add_authority(Record::from_rdata(name("example.com."), 900, RData::SOA(soa)));
    let server = RData::NS(NS(name("ns.example.com.")));
    message.add_authority(Record::from_rdata(name("example.com."), 900, server));
    let address = RData::A(A(Ipv4Addr::new(192, 0, 2, 1)));
    message.add_additional(Record::from_rdata(name("ns.example.com."), 100, address));
    message.set_edns(edns());
    message
}

#[test]
fn it_says_what_the_message_says() {
    let message = varied();
    let (read, octets, cut) = written(&ready(&message), Form::Datagram(1232), 10_000);
    assert!(!cut);
    assert_eq!(read.metadata.id, 0x4242);
    assert_eq!(read.metadata.message_type, MessageType::Response);
    assert!(read.metadata.recursion_available && read.metadata.recursion_desired);
    assert!(!read.metadata.truncation && !read.metadata.authentic_data);
    assert_eq!(read.queries, message.queries);
    assert_eq!(read.answers, message.answers);
    assert_eq!(read.authorities, message.authorities);
    assert_eq!(read.additionals, message.additionals);
    assert_eq!(read.edns.as_ref().unwrap().max_payload(), 1232);
    assert!(read.edns.unwrap().flags().dnssec_ok);
    assert!(octets.len() <= message.to_vec().unwrap().len(), "compressed as well as can be");
}

#[test]
fn flags_and_code() {
    let mut message = response("example.com.", RecordType::A);
    message.metadata.response_code = ResponseCode::BADVERS;
    message.metadata.authentic_data = true;
    message.metadata.checking_disabled = true;
    message.metadata.authoritative = true;
    message.set_edns(edns());
    assert_eq!(ready(&message).rcode(), 16);
    let (read, ..) = written(&ready(&message), Form::Stream(None), 10_000);
    assert_eq!(u16::from(read.metadata.response_code), 16, "BADVERS");
    assert!(read.metadata.authentic_data && read.metadata.checking_disabled);
    assert!(read.metadata.authoritative);
}

#[test]
fn ttls_go_down_with_time_and_it_ends() {
    let ready = ready(&varied());
    for (now, age) in [(10_000, 0), (10_999, 0), (11_000, 1), (69_999, 59)] {
        assert!(ready.is_fresh(now));
        let (read, ..) = written(&ready, Form::Datagram(1232), now);
        let ttls: Vec<u32> = read.all_sections().map(|record| record.ttl).collect();
        assert_eq!(ttls, [300, 200, 200, 900, 900, 100].map(|ttl| ttl - age));
        assert!(read.edns.unwrap().flags().dnssec_ok, "the TTL of OPT is none");
    }
    assert!(!ready.is_fresh(70_000));
}

#[test]
fn the_question_is_in_the_clients_case() {
    let ready = ready(&varied());
    let question = b"\x03wWw\x07eXAMple\x03com\0\0\x1c\0\x01";
    let mut out = Vec::new();
    ready.write(
        &Asked { id: 1, question, extras: Extras::default() },
        Form::Datagram(1232),
        10_000,
        &mut out,
    );
    assert_eq!(&out[12..12 + question.len()], question);
    let read = Message::from_vec(&out).unwrap();
    assert_eq!(read.queries[0].name().to_string(), "wWw.eXAMple.com.");
    assert_eq!(read.answers[0].name.to_string(), "wWw.eXAMple.com.", "its owner, too");
}

#[test]
fn what_does_not_fit_is_cut_between_rrsets() {
    let mut message = response("example.com.", RecordType::AAAA);
    for last in 0..30 {
        message.add_answer(aaaa("example.com.", 60, last));
    }
    message.add_authority(txt("example.com.", 200));
    message.set_edns(edns());
    let ready = ready(&message);

    // 12 + 17 + 30 * 28 + 11 octets.
    let (read, octets, cut) = written(&ready, Form::Datagram(880), 12_000);
    assert!(cut && read.metadata.truncation);
    assert_eq!((octets.len(), read.answers.len(), read.authorities.len()), (880, 30, 0));
    assert_eq!(read.answers[0].ttl, 58);
    assert_eq!(read.edns.unwrap().max_payload(), 1232, "an OPT record stays whole");

    let (read, octets, cut) = written(&ready, Form::Datagram(879), 12_000);
    assert!(cut && read.metadata.truncation);
    assert_eq!((octets.len(), read.answers.len()), (40, 0), "no part of an RRset");
    assert_eq!(read.queries, message.queries);
    assert!(read.edns.is_some());

    let (read, _, cut) = written(&ready, Form::Stream(None), 12_000);
    assert!(!cut && !read.metadata.truncation);
    assert_eq!((read.answers.len(), read.authorities.len()), (30, 1));
}

#[test]
fn additional_records_are_left_out_without_a_word() {
    let mut message = response("example.com.", RecordType::AAAA);
    message.add_answer(aaaa("example.com.", 60, 1));
    message.add_additional(txt("one.example.com.", 400));
    message.add_additional(txt("two.example.com.", 400));
    let (read, octets, cut) = written(&ready(&message), Form::Datagram(512), 10_000);
    assert!(!cut && !read.metadata.truncation);
    assert_eq!((read.answers.len(), read.additionals.len()), (1, 1));
    assert!(octets.len() <= 512);
}

#[test]
fn whatever_the_size_it_is_kept_and_the_message_is_whole() {
    let mut message = varied();
    for number in 0..12 {
        message.add_answer(txt(&format!("name{number}.example.org."), 200));
        message.add_additional(aaaa("ns.example.com.", 60, number));
    }
    let ready = ready(&message);
    for size in 512..=ready.octets().len() + 1 {
        let (read, octets, cut) = written(&ready, Form::Datagram(size), 11_000);
        assert!(octets.len() <= size);
        assert_eq!(cut, read.metadata.truncation);
        let whole = read.answers.len() == message.answers.len()
            && read.authorities.len() == message.authorities.len();
        assert_eq!(cut, !whole);
        assert!(read.edns.is_some());
    }
}

#[test]
fn a_signature_stays_with_what_it_signs() {
    let unknown = |record_type: RecordType| RData::Unknown {
        code: record_type,
        rdata: hickory_proto::rr::rdata::NULL::with(vec![0; 300]),
    };
    let mut message = response("example.com.", RecordType::AAAA);
    message.add_answer(aaaa("example.com.", 60, 1));
    message.add_answer(Record::from_rdata(name("example.com."), 60, unknown(RecordType::RRSIG)));
    message.add_authority(Record::from_rdata(name("example.com."), 60, unknown(RecordType::NSEC)));
    let ready = ready(&message);
    assert_eq!(ready.cuts.len(), 2);
    assert_eq!(ready.cuts[0].counts, [2, 0, 0]);
}

#[test]
fn longer_than_any_message() {
    let mut message = response("example.com.", RecordType::TXT);
    for number in 0..100 {
        message.add_answer(txt(&format!("name{number}.example.org."), 1000));
    }
    message.set_edns(edns());
    let (read, octets, _) = written(&ready(&message), Form::Stream(Some(100)), 10_000);
    assert!(read.metadata.truncation);
    assert!(read.answers.len() > 50 && octets.len() <= MAX_MESSAGE);
}

#[test]
fn keepalive_is_told_by_tcp() {
    let ready = ready(&varied());
    let (read, ..) = written(&ready, Form::Stream(Some(100)), 10_000);
    let options = &read.edns.unwrap().options().options.clone();
    let (code, option) = &options[0];
    assert_eq!(u16::from(*code), 11);
    assert_eq!(option.len(), 2);
    let (read, ..) = written(&ready, Form::Stream(None), 10_000);
    assert!(read.edns.unwrap().options().options.is_empty());

    let mut without = varied();
    without.edns = None;
    let ready = super::Ready::encode(&without, 1232, 10_000, 70_000).unwrap();
    let (read, ..) = written(&ready, Form::Stream(Some(100)), 10_000);
    assert!(read.edns.is_none(), "no option without EDNS");
}

#[test]
fn the_root() {
    let mut message = response(".", RecordType::NS);
    let server = RData::NS(NS(name("a.root.example.")));
    message.add_answer(Record::from_rdata(Name::root(), 60, server));
    let (read, ..) = written(&ready(&message), Form::Datagram(512), 10_000);
    assert_eq!(read.answers, message.answers);
}

#[test]
fn a_large_rrset_stays_small() {
    let mut message = response("a.example.com.", RecordType::AAAA);
    let target = RData::CNAME(CNAME(name("a-rather-long-name.example.net.")));
    message.add_answer(Record::from_rdata(name("a.example.com."), 300, target));
    for last in 0..2000 {
        message.add_answer(aaaa("a-rather-long-name.example.net.", 200, last));
    }
    let (read, octets, _) = written(&ready(&message), Form::Stream(None), 10_000);
    assert_eq!(read.answers, message.answers);
    assert!(octets.len() < 100 + 2000 * 28, "{}", octets.len());
}
