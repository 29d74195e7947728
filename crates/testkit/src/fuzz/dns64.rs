//! DNS64: a client's octets, and what the servers upstream say to each question that follows.
//!
//! ```text
//! control (4)  policy, reserved (3)
//! query        length (2), octets
//! reply *      kind, RCODE, age, ANCOUNT, NSCOUNT, ARCOUNT, length (2), octets of the records
//! ```
//!
//! The kind is a failure (0 to 4), or an answer that is not validated (5), secure (6), insecure (7), bogus (8), or
//! whole messages as they are (9 and above). The header and the question of an answer are put in front of
//! its records, so that a pointer to the name that was asked for is `c00c`.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::LazyLock;

use fordway_dns64::{
    Answer, Failure, Kind, Outcome, Policies, Policy, Question, Range, Rejected, Response, Reverse,
    Security, Step, begin, parse,
};
use fordway_xlat::addr::Pool6;
use hickory_proto::op::{Message, MessageType, Query};
use hickory_proto::rr::{DNSClass, Name, RData, RecordType};
use hickory_proto::serialize::binary::BinEncodable;

/// More questions than any query may cause: two chains with all their parts.
const MOST_QUESTIONS: usize = 24;

/// Octets as policy, query and replies: see the module.
pub fn dns64(data: &[u8]) {
    let Some((control, rest)) = data.split_at_checked(4) else { return };
    let Some((octets, replies)) = block(rest) else { return };
    let query = match parse(octets) {
        Ok(query) => query,
        Err(Rejected::Ignore) => return,
        Err(Rejected::Answer(answer)) => return check_rejection(octets, &answer),
    };
    let nth = usize::from(control[0]) % POLICIES.iter().count();
    let Some(policy) = POLICIES.iter().nth(nth) else { return };
    let (response, seen) = resolve(policy, &query, replies);
    check(policy, &query, &response, &seen);

    let similar = similar(&query);
    let (other, _) = resolve(policy, &similar, replies);
    check_alike(&response, &other);
}

/// A length of two octets, and as many.
fn block(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = data.split_first_chunk()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))
}

static POLICIES: LazyLock<Policies> = LazyLock::new(policies);

fn policies() -> Policies {
    let pool6 = |texts: &[&str]| -> Vec<Pool6> {
        texts.iter().map(|text| text.parse().expect("a prefix")).collect()
    };
    let own = Policy { pool6: pool6(&["2001:db8:64::/96"]), ..Policy::default() };
    let several = Policy {
        pool6: pool6(&["64:ff9b::/96", "2001:db8:122::/48", "2001:db8:7::/64"]),
        allow_private: true,
        reverse: Reverse::Local,
        ..Policy::default()
    };
    let ranges = Policy {
        ranges: vec![Range {
            v4: "198.51.100.0/24".parse().expect("a network"),
            pool6: pool6(&["2001:db8:a::/96"]),
        }],
        exclude_a: vec!["192.0.2.0/24".parse().expect("a network")],
        ..own.clone()
    };
    let exempt = Policy {
        exempt: [Name::from_ascii("example.org.").expect("a name")].into_iter().collect(),
        ..own.clone()
    };
    let off = Policy { enabled: false, ..own.clone() };
    let others = [own, several, ranges, exempt, off];
    let clients = others.into_iter().enumerate().map(|(index, policy)| {
        let client = IpAddr::from([0x2001, 0xdb8, index as u16, 0, 0, 0, 0, 1]);
        (vec![client.into()], policy)
    });
    Policies::new(Policy::default(), clients.collect()).expect("networks differ")
}

/// What came of the questions on the way.
#[derive(Default)]
struct Seen {
    answers: Vec<(Question, Message, u32)>,
    all_secure: bool,
}

fn resolve(policy: &Policy, query: &Message, mut replies: &[u8]) -> (Response, Seen) {
    let mut seen = Seen { all_secure: true, ..Seen::default() };
    let mut step = begin(policy, query);
    for _ in 0..MOST_QUESTIONS {
        let pending = match step {
            Step::Done(response) => return (response, seen),
            Step::Ask(pending) => pending,
        };
        let question = pending.question().clone();
        let (reply, rest) = reply(&question, replies);
        replies = rest;
        step = match reply {
            Err(failure) => {
                seen.all_secure = false;
                pending.resume(Outcome::Failed(failure))
            }
            Ok((message, age, security)) => {
                seen.all_secure &= security == Security::Secure;
                let answer = Answer { message: &message, age, security };
                let next = pending.resume(Outcome::Answer(answer));
                seen.answers.push((question, message, age));
                next
            }
        };
    }
    panic!("a query asks without end: {query}");
}

type Reply = Result<(Message, u32, Security), Failure>;

/// The next reply; without any, nobody answers.
fn reply<'a>(question: &Question, data: &'a [u8]) -> (Reply, &'a [u8]) {
    let Some(([kind, code, age, answers, authorities, additionals], rest)) =
        data.split_first_chunk()
    else {
        return (Err(Failure::Timeout), &[]);
    };
    let (octets, rest) = block(rest).unwrap_or((rest, &[]));
    let failure = match kind {
        0 => Some(Failure::Timeout),
        1 => Some(Failure::Unreachable),
        2 => Some(Failure::Malformed),
        3 => Some(Failure::Bogus(u16::from(*code))),
        4 => Some(Failure::Overload),
        _ => None,
    };
    if let Some(failure) = failure {
        return (Err(failure), rest);
    }
    let message = if *kind >= 9 {
        Message::from_vec(octets)
    } else {
        let mut whole = vec![0, 1, 0x81, 0x80 | code & 15, 0, 1];
        for count in [answers, authorities, additionals] {
            whole.extend([0, *count]);
        }
        let mut asked = Query::query(question.name.clone(), question.record_type);
        asked.set_query_class(question.class);
        whole.extend(asked.to_bytes().expect("a question that was read can be written"));
        whole.extend(octets);
        Message::from_vec(&whole)
    };
    let security = match kind {
        6 => Security::Secure,
        7 => Security::Insecure,
        8 => Security::Bogus,
        _ => Security::Unchecked,
    };
    let reply = message.map(|message| (message, u32::from(*age), security));
    (reply.map_err(|_| Failure::Malformed), rest)
}

fn check_rejection(octets: &[u8], answer: &Message) {
    let sent = answer.to_vec().expect("a rejection can be written");
    let read = Message::from_vec(&sent).expect("and read");
    assert_eq!(read.metadata.message_type, MessageType::Response);
    assert_eq!(sent[..2], octets[..2], "the id");
    assert_ne!(u16::from(read.metadata.response_code), 0);
    assert!(read.answers.is_empty() && read.authorities.is_empty());
    assert!(sent.len() <= 512, "{}", sent.len());
}

fn check(policy: &Policy, query: &Message, response: &Response, seen: &Seen) {
    let message = &response.message;
    let (meta, asked) = (&message.metadata, &query.metadata);
    let question = &query.queries[0];
    let dnssec_ok = query.edns.as_ref().is_some_and(|edns| edns.flags().dnssec_ok);

    let sent = message.to_vec().expect("a response can be written");
    Message::from_vec(&sent).expect("and read");
    assert_eq!(meta.message_type, MessageType::Response);
    assert_eq!((meta.id, meta.op_code), (asked.id, asked.op_code));
    assert_eq!(meta.recursion_desired, asked.recursion_desired);
    assert_eq!(meta.checking_disabled, asked.checking_disabled);
    assert_eq!(message.queries, query.queries);
    assert!(message.queries[0].name.eq_case(&question.name));
    assert_eq!(message.edns.is_some(), query.edns.is_some());
    assert!(!meta.authoritative || response.kind == Kind::Local);
    // RFC 6147 section 5.5.
    let may_be_authentic = dnssec_ok && !asked.checking_disabled && seen.all_secure;
    assert!(!meta.authentic_data || may_be_authentic && !seen.answers.is_empty());

    let shortest = message.all_sections().map(|record| record.ttl).min().unwrap_or(0);
    assert!(response.lifetime <= shortest, "{} s of {shortest} s", response.lifetime);

    let synthesises = policy.enabled
        && question.query_class == DNSClass::IN
        && !(dnssec_ok && asked.checking_disabled);
    assert!(response.kind != Kind::Synthetic || synthesises);
    if synthesises && question.query_type == RecordType::AAAA && response.kind != Kind::Local {
        check_aaaa(policy, query, response, seen);
    }
}

/// RFC 6147 sections 5.1.4, 5.1.6 and 5.1.7.
fn check_aaaa(policy: &Policy, query: &Message, response: &Response, seen: &Seen) {
    let addresses = |message: &Message| -> Vec<(IpAddr, u32)> {
        let records = message.answers.iter();
        records.filter_map(|record| Some((record.data.ip_addr()?, record.ttl))).collect()
    };
    let returned = addresses(&response.message);
    if response.kind != Kind::Synthetic {
        let exempt = |name: &Name| policy.exempt.cover(name);
        let end_is_exempt = response.message.answers.iter().any(|record| match &record.data {
            RData::CNAME(target) => exempt(&target.0),
            RData::AAAA(_) => exempt(&record.name),
            _ => false,
        });
        if !exempt(&query.queries[0].name) && !end_is_exempt {
            for (address, _) in returned {
                let IpAddr::V6(v6) = address else { continue };
                assert!(!policy.exclude.iter().any(|net| net.contains(&v6)), "{v6} is excluded");
            }
        }
        return;
    }
    let Some((_, last, age)) = seen.answers.last() else {
        panic!("synthesised from nothing");
    };
    let from: Vec<(IpAddr, u32)> = addresses(last);
    let prefixes: HashSet<Pool6> = policy
        .pool6
        .iter()
        .chain(policy.ranges.iter().flat_map(|range| &range.pool6))
        .copied()
        .chain([Pool6::WELL_KNOWN])
        .collect();
    assert!(returned.len() <= from.len() * prefixes.len());
    assert!(!returned.is_empty());
    for (address, ttl) in returned {
        let IpAddr::V6(v6) = address else { panic!("{address} beside synthetic records") };
        let original = prefixes
            .iter()
            .filter(|pool6| pool6.contains(v6))
            .filter_map(|pool6| pool6.extract(v6))
            .find_map(|v4| from.iter().find(|(found, _)| *found == IpAddr::V4(v4)));
        let Some((v4, _)) = original else { panic!("{v6} comes from nowhere") };
        let longest = from.iter().filter(|(found, _)| found == v4).map(|(_, ttl)| *ttl).max();
        assert!(ttl <= longest.unwrap_or(0).saturating_sub(*age), "{v6}: {ttl} s");
        let IpAddr::V4(v4) = v4 else { continue };
        assert!(!policy.exclude_a.iter().any(|net| net.contains(v4)), "{v4} is excluded");
    }
}

/// The query as somebody else would ask it who has to get the same answer from a cache.
fn similar(query: &Message) -> Message {
    let mut similar = query.clone();
    similar.metadata.id ^= 0x55aa;
    similar.metadata.authentic_data ^= true;
    let labels = query.queries[0].name.iter().map(|label| {
        let swapped = |octet: &u8| match octet {
            b'a'..=b'z' => octet.to_ascii_uppercase(),
            octet => octet.to_ascii_lowercase(),
        };
        label.iter().map(swapped).collect::<Vec<u8>>()
    });
    if let Ok(name) = Name::from_labels(labels.collect::<Vec<_>>().iter().map(Vec::as_slice)) {
        similar.queries[0].name = name;
    }
    if let Some(edns) = &mut similar.edns {
        edns.set_max_payload(4096);
        edns.options_mut().options.clear();
    }
    similar
}

/// Names are equal whatever their case.
fn check_alike(one: &Response, other: &Response) {
    let (a, b) = (&one.message, &other.message);
    assert_eq!((one.kind, one.lifetime), (other.kind, other.lifetime));
    assert_eq!(a.metadata.flags().to_string(), b.metadata.flags().to_string());
    assert_eq!(a.metadata.response_code, b.metadata.response_code);
    assert_eq!(a.answers, b.answers);
    assert_eq!(a.authorities, b.authorities);
    assert_eq!(a.additionals, b.additionals);
    assert_eq!(a.edns, b.edns);
}
