use hickory_proto::op::{MessageType, OpCode};
use hickory_proto::rr::rdata::{AAAA, CNAME, SOA};

use super::*;

fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

fn aaaa(owner: &str, ttl: u32, address: &str) -> Record {
    Record::from_rdata(name(owner), ttl, RData::AAAA(AAAA(address.parse().unwrap())))
}

fn cname(owner: &str, ttl: u32, target: &str) -> Record {
    Record::from_rdata(name(owner), ttl, RData::CNAME(CNAME(name(target))))
}

fn message(code: ResponseCode, answers: Vec<Record>) -> Message {
    let mut message = Message::new(7, MessageType::Response, OpCode::Query);
    message.metadata.response_code = code;
    message.add_answers(answers);
    message
}

fn read(message: &Message) -> Outcome {
    Outcome::read(message, &name("ipv4only.arpa."), RecordType::AAAA)
}

fn ttl(outcome: &Outcome) -> Option<u64> {
    match outcome {
        Outcome::Records { ttl, .. } => Some(ttl.as_secs()),
        Outcome::None { ttl, .. } => ttl.map(|ttl| ttl.as_secs()),
        Outcome::Failed(_) => None,
    }
}

#[test]
fn records_keep_their_order_and_the_shortest_time_to_live() {
    let answers = vec![
        aaaa("ipv4only.arpa.", 300, "64:ff9b::c000:ab"),
        aaaa("other.example.", 1, "2001:db8::1"),
        aaaa("IPv4only.ARPA.", 200, "64:ff9b::c000:aa"),
    ];
    let outcome = read(&message(ResponseCode::NoError, answers));
    let expected: [Ipv6Addr; 2] =
        ["64:ff9b::c000:ab".parse().unwrap(), "64:ff9b::c000:aa".parse().unwrap()];
    assert_eq!(outcome.addresses(), expected);
    assert_eq!(ttl(&outcome), Some(200));
    assert_eq!(outcome.names(), []);
}

#[test]
fn aliases_are_followed_and_loops_end() {
    let answers = vec![
        cname("ipv4only.arpa.", 60, "b.example."),
        aaaa("c.example.", 300, "64:ff9b::c000:aa"),
        cname("b.example.", 90, "c.example."),
    ];
    let outcome = read(&message(ResponseCode::NoError, answers));
    assert_eq!((outcome.addresses().len(), ttl(&outcome)), (1, Some(60)));
    let answers =
        vec![cname("ipv4only.arpa.", 60, "b.example."), cname("b.example.", 60, "ipv4only.arpa.")];
    let outcome = read(&message(ResponseCode::NoError, answers));
    assert_eq!(outcome, Outcome::None { name_exists: true, ttl: None });
}

#[test]
fn nothing_is_believed_as_long_as_the_message_says() {
    for (code, name_exists) in [(ResponseCode::NoError, true), (ResponseCode::NXDomain, false)] {
        let mut message = message(code, vec![]);
        assert_eq!(read(&message), Outcome::None { name_exists, ttl: None });
        let soa = |minimum| SOA::new(name("ns.example."), name("a.example."), 1, 2, 3, 4, minimum);
        for (own, minimum) in [(900, 3600), (3600, 900)] {
            let record = Record::from_rdata(name("arpa."), own, RData::SOA(soa(minimum)));
            message.authorities = vec![record];
            let expected = Some(Duration::from_secs(900));
            assert_eq!(read(&message), Outcome::None { name_exists, ttl: expected });
        }
    }
}

#[test]
fn errors_are_no_answer() {
    for code in [ResponseCode::ServFail, ResponseCode::Refused, ResponseCode::NotImp] {
        let message = message(code, vec![aaaa("ipv4only.arpa.", 60, "64:ff9b::c000:aa")]);
        assert_eq!(read(&message), Outcome::Failed(Failure::Refused(code)));
    }
}

#[test]
fn times_to_live_are_bounded() {
    let record = aaaa("ipv4only.arpa.", u32::MAX, "64:ff9b::c000:aa");
    assert_eq!(ttl(&read(&message(ResponseCode::NoError, vec![record]))), Some(7 * 24 * 3600));
}
