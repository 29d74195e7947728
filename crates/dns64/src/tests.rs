//! What the tests of this crate share: queries, and a world upstream, written as text.
//!
//! A reply is a line with the RCODE and what is special about it, then a record a line: answers as they are,
//! `!` in front of authority, `+` in front of additional records.
//!
//! ```text
//! NOERROR secure age=10
//! www.example.net. 300 CNAME web.example.net.
//! ! example.net. 300 SOA ns.example.net. admin.example.net. 1 3600 600 86400 60
//! ```

use std::cell::RefCell;
use std::str::FromStr;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::NULL;
use hickory_proto::rr::{Name, RData, Record, RecordType};
use hickory_proto::serialize::binary::BinEncodable;

use crate::{Answer, Ede, Failure, Outcome, Policy, Response, Security, Step, begin};

/// The SOA record that most negative answers here have: TTL 300, minimum 60.
pub(crate) const SOA: &str =
    "! example.net. 300 SOA ns.example.net. admin.example.net. 1 3600 600 86400 60";

pub(crate) fn name(text: &str) -> Name {
    // `from_str` would give lower case.
    Name::from_ascii(text).unwrap()
}

/// `OWNER TTL TYPE DATA`; types that hickory does not know as `TYPE65280 HEX`, DNAME by its target.
pub(crate) fn record(line: &str) -> Record {
    let mut words = line.splitn(4, ' ');
    let mut word = || words.next().unwrap_or_else(|| panic!("{line}"));
    let (owner, ttl, kind, data) = (word(), word(), word(), word());
    let unknown = |code, octets| RData::Unknown { code, rdata: NULL::with(octets) };
    let data = match kind {
        "DNAME" => unknown(RecordType::DNAME, name(data).to_bytes().unwrap()),
        "RRSIG" => {
            let covered = u16::from(RecordType::from_str(data).unwrap()).to_be_bytes();
            unknown(RecordType::RRSIG, [&covered[..], &[13; 30]].concat())
        }
        "NSEC" => {
            unknown(RecordType::NSEC, [&name(data).to_bytes().unwrap()[..], &[0, 1, 64]].concat())
        }
        kind => match kind.strip_prefix("TYPE") {
            Some(code) => unknown(RecordType::from(code.parse::<u16>().unwrap()), hex(data)),
            None => RData::try_from_str(RecordType::from_str(kind).unwrap(), data).unwrap(),
        },
    };
    Record::from_rdata(name(owner), ttl.parse().unwrap(), data)
}

fn kind(record_type: RecordType) -> String {
    match record_type {
        RecordType::Unknown(code) => format!("TYPE{code}"),
        known => known.to_string(),
    }
}

pub(crate) fn hex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect()
}

/// `TYPE NAME [do] [cd] [ad] [edns] [nord] [ch]`.
pub(crate) fn query(text: &str) -> Message {
    let words: Vec<&str> = text.split(' ').collect();
    let mut message = Message::new(0x1234, MessageType::Query, OpCode::Query);
    let record_type = match words[0].strip_prefix("TYPE") {
        Some(code) => RecordType::from(code.parse::<u16>().unwrap()),
        None => RecordType::from_str(words[0]).unwrap(),
    };
    let mut question = Query::query(name(words[1]), record_type);
    message.metadata.recursion_desired = true;
    for word in &words[2..] {
        match *word {
            "do" | "edns" => {
                let mut edns = Edns::new();
                edns.set_dnssec_ok(*word == "do");
                message.set_edns(edns);
            }
            "cd" => message.metadata.checking_disabled = true,
            "ad" => message.metadata.authentic_data = true,
            "nord" => message.metadata.recursion_desired = false,
            "ch" => question.query_class = hickory_proto::rr::DNSClass::CH,
            other => panic!("{other}"),
        }
    }
    message.add_query(question);
    message
}

/// A reply of a server upstream.
pub(crate) enum Reply {
    Message { message: Box<Message>, age: u32, security: Security },
    Failed(Failure),
}

pub(crate) fn reply(text: &str) -> Reply {
    let mut lines = text.lines();
    let mut words = lines.next().unwrap_or_default().split(' ');
    let code = match words.next().unwrap_or_default() {
        "TIMEOUT" => return Reply::Failed(Failure::Timeout),
        "UNREACHABLE" => return Reply::Failed(Failure::Unreachable),
        "MALFORMED" => return Reply::Failed(Failure::Malformed),
        "OVERLOAD" => return Reply::Failed(Failure::Overload),
        "BOGUS" => return Reply::Failed(Failure::Bogus(7)),
        "NOERROR" => ResponseCode::NoError,
        "NXDOMAIN" => ResponseCode::NXDomain,
        "SERVFAIL" => ResponseCode::ServFail,
        code => {
            let code: u8 = code.parse().unwrap_or_else(|_| panic!("{code}"));
            ResponseCode::from(code >> 4, code & 15)
        }
    };
    let mut message = Message::response(0x4321, OpCode::Query);
    message.metadata.response_code = code;
    // What a server upstream says of itself must not be taken over.
    message.metadata.authoritative = true;
    message.metadata.authentic_data = true;
    let (mut age, mut security) = (0, Security::Unchecked);
    for word in words {
        match word.split_once('=') {
            Some(("age", value)) => age = value.parse().unwrap(),
            Some(("ede", value)) => {
                let mut edns = Edns::new();
                Ede::new(value.parse().unwrap(), "why").insert(&mut edns);
                message.set_edns(edns);
            }
            None if word == "secure" => security = Security::Secure,
            None if word == "insecure" => security = Security::Insecure,
            None if word == "bogus" => security = Security::Bogus,
            None if word == "tc" => message.metadata.truncation = true,
            _ => panic!("{word}"),
        }
    }
    for line in lines {
        let (section, line) = match line.split_once(' ') {
            Some(("!", line)) => (&mut message.authorities, line),
            Some(("+", line)) => (&mut message.additionals, line),
            _ => (&mut message.answers, line),
        };
        section.push(record(line));
    }
    Reply::Message { message: Box::new(message), age, security }
}

/// What the servers upstream say, by question (`TYPE NAME`), and what they were asked.
pub(crate) struct World {
    replies: Vec<(String, Reply)>,
    asked: RefCell<Vec<String>>,
}

impl World {
    pub(crate) fn new(replies: &[(&str, &str)]) -> World {
        let replies = replies.iter().map(|(question, text)| ((*question).to_owned(), reply(text)));
        World { replies: replies.collect(), asked: RefCell::default() }
    }

    /// The response to a query. A question that the world does not expect is a mistake.
    pub(crate) fn resolve(&self, policy: &Policy, query: &Message) -> Response {
        let mut step = begin(policy, query);
        loop {
            let pending = match step {
                Step::Done(response) => return response,
                Step::Ask(pending) => pending,
            };
            let question = pending.question();
            assert_eq!(question.dnssec_ok, crate::response::dnssec_ok(query));
            assert_eq!(question.checking_disabled, query.metadata.checking_disabled);
            let text = format!("{} {}", kind(question.record_type), question.name);
            self.asked.borrow_mut().push(text.clone());
            let found = self.replies.iter().find(|(asked, _)| *asked == text);
            let (_, reply) = found.unwrap_or_else(|| panic!("nobody was to ask {text}"));
            step = pending.resume(match reply {
                Reply::Failed(failure) => Outcome::Failed(*failure),
                Reply::Message { message, age, security } => {
                    Outcome::Answer(Answer { message, age: *age, security: *security })
                }
            });
        }
    }

    /// What was asked, in order.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.borrow().clone()
    }
}

/// A response as text, in the form of a reply: RCODE, flags in capitals (those that a query for recursion always
/// gets, QR, RD and RA, are left out), extended errors, records.
pub(crate) fn show(message: &Message) -> String {
    let meta = &message.metadata;
    let mut text = match meta.response_code {
        ResponseCode::NoError => "NOERROR".to_owned(),
        ResponseCode::NXDomain => "NXDOMAIN".to_owned(),
        ResponseCode::ServFail => "SERVFAIL".to_owned(),
        code => u16::from(code).to_string(),
    };
    for (set, flag) in [
        (meta.authoritative, " AA"),
        (meta.truncation, " TC"),
        (meta.authentic_data, " AD"),
        (meta.checking_disabled, " CD"),
    ] {
        if set {
            text += flag;
        }
    }
    for ede in Ede::of(message) {
        text += &format!(" ede={}", ede.code);
    }
    let sections =
        [("", &message.answers), ("! ", &message.authorities), ("+ ", &message.additionals)];
    for (sign, section) in sections {
        for record in section {
            let data = match &record.data {
                RData::Unknown { rdata, .. } => {
                    rdata.anything.iter().map(|octet| format!("{octet:02x}")).collect()
                }
                data => data.to_string(),
            };
            let kind = kind(record.record_type());
            text += &format!("\n{sign}{} {} {kind} {data}", record.name, record.ttl);
        }
    }
    text
}

/// A policy with one prefix of the site's own.
pub(crate) fn policy() -> Policy {
    Policy { pool6: vec!["2001:db8:64::/96".parse().unwrap()], ..Policy::default() }
}

/// Resolves, and compares the response and what was asked.
#[track_caller]
pub(crate) fn check(
    policy: &Policy,
    asked: &str,
    replies: &[(&str, &str)],
    expected: &str,
) -> Response {
    let world = World::new(replies);
    let query = query(asked);
    let response = world.resolve(policy, &query);
    assert_eq!(show(&response.message), expected, "{asked}");
    let questions: Vec<&str> = replies.iter().map(|(question, _)| *question).collect();
    assert_eq!(world.asked(), questions, "{asked}");
    // What holds for every response.
    let (meta, of_query) = (&response.message.metadata, &query.metadata);
    assert_eq!(meta.id, of_query.id);
    assert_eq!(meta.message_type, MessageType::Response);
    assert_eq!(meta.recursion_desired, of_query.recursion_desired);
    assert!(meta.recursion_available);
    assert_eq!(response.message.queries, query.queries);
    assert_eq!(response.message.edns.is_some(), query.edns.is_some());
    response
}
