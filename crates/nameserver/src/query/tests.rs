use hickory_proto::op::{Edns as HickoryEdns, Message, MessageType, OpCode, Query as HickoryQuery};
use hickory_proto::rr::{Name, RecordType};

use super::*;

fn message(name: &str, record_type: RecordType) -> Message {
    let mut message = Message::new(0x1234, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(HickoryQuery::query(Name::from_ascii(name).unwrap(), record_type));
    message
}

fn with_edns(size: u16) -> Message {
    let mut message = message("Www.Example.COM.", RecordType::AAAA);
    let mut edns = HickoryEdns::new();
    edns.set_max_payload(size).set_dnssec_ok(true);
    message.set_edns(edns);
    message
}

fn query(octets: &[u8]) -> Query<'_> {
    Query::read(octets).expect("a plain query")
}

#[test]
fn a_query_of_a_stub_resolver() {
    let octets = message("Www.Example.COM.", RecordType::AAAA).to_vec().unwrap();
    let query = query(&octets);
    assert_eq!((query.id, query.record_type), (0x1234, 28));
    assert_eq!(query.name(), b"\x03Www\x07Example\x03COM\0", "in the client's case");
    assert_eq!(query.question, &octets[12..]);
    assert!(query.recursion_desired() && !query.authentic_data() && !query.checking_disabled());
    assert_eq!(query.edns, None);
}

#[test]
fn edns_says_size_and_do() {
    let octets = with_edns(1400).to_vec().unwrap();
    assert_eq!(
        query(&octets).edns,
        Some(Edns { size: 1400, dnssec_ok: true, keepalive: false, padded: false, cookie: None })
    );
}

#[test]
fn a_size_below_512_is_512() {
    let mut octets = with_edns(1400).to_vec().unwrap();
    let class = octets.len() - 8;
    octets[class..class + 2].copy_from_slice(&100u16.to_be_bytes());
    assert_eq!(query(&octets).edns.unwrap().size, 512);
}

#[test]
fn options_are_walked() {
    let mut octets = with_edns(1232).to_vec().unwrap();
    let len = octets.len() - 2;
    octets[len..].copy_from_slice(&12u16.to_be_bytes());
    octets.extend([0, 10, 0, 4, 1, 2, 3, 4, 0, 11, 0, 0]);
    assert!(query(&octets).edns.unwrap().keepalive);
    octets[len + 1] = 11;
    octets.pop();
    assert_eq!(Query::read(&octets), None, "an option that ends too early");
}

#[test]
fn not_a_query() {
    assert_eq!(Query::read(&[]), None);
    assert_eq!(Query::read(&[0; 11]), None);
    let mut octets = message("example.com.", RecordType::A).to_vec().unwrap();
    octets[2] |= 0x80;
    assert_eq!(Query::read(&octets), None, "a response");
}

#[test]
fn other_operations() {
    for opcode in 1..16u8 {
        let mut octets = message("example.com.", RecordType::A).to_vec().unwrap();
        octets[2] = opcode << 3;
        assert_eq!(Query::read(&octets), None, "opcode {opcode}");
    }
}

#[test]
fn counts_that_a_query_does_not_have() {
    let octets = message("example.com.", RecordType::A).to_vec().unwrap();
    for (at, count) in [(5, 0), (5, 2), (4, 1), (7, 1), (9, 1), (11, 1), (10, 255)] {
        let mut octets = octets.clone();
        octets[at] = count;
        assert_eq!(Query::read(&octets), None, "count {count} at {at}");
    }
}

#[test]
fn octets_after_the_end() {
    let mut octets = message("example.com.", RecordType::A).to_vec().unwrap();
    octets.push(0);
    assert_eq!(Query::read(&octets), None);
}

#[test]
fn two_opt_records() {
    let mut octets = with_edns(1232).to_vec().unwrap();
    let opt = octets[octets.len() - 11..].to_vec();
    octets.extend(opt);
    octets[11] = 2;
    assert_eq!(Query::read(&octets), None);
}

#[test]
fn an_opt_record_with_a_name() {
    let mut octets = message("example.com.", RecordType::A).to_vec().unwrap();
    octets[11] = 1;
    octets.extend([0xc0, 12, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
    assert_eq!(Query::read(&octets), None);
}

#[test]
fn another_version_of_edns() {
    let mut octets = with_edns(1232).to_vec().unwrap();
    let version = octets.len() - 5;
    octets[version] = 1;
    assert_eq!(Query::read(&octets), None);
}

#[test]
fn names_in_the_question() {
    let mut long = Vec::new();
    for _ in 0..3 {
        long.extend([63; 64]);
    }
    // 3 * 64 + 1 + 61 + 1 = 255 octets, then one more.
    for (last, fits) in [(61u8, true), (62, false)] {
        let mut octets = vec![0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        octets.extend(&long);
        octets.push(last);
        octets.extend(vec![b'a'; last.into()]);
        octets.extend([0, 0, 28, 0, 1]);
        assert_eq!(Query::read(&octets).is_some(), fits, "{last}");
    }
    for start in [0x40, 0x80, 0xc0, 0xff] {
        let octets = [0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, start, 12, 0, 28, 0, 1];
        assert_eq!(Query::read(&octets), None, "pointer or unknown label {start:#x}");
    }
}

#[test]
fn types_and_classes_that_are_not_served() {
    for (record_type, class, plain) in [
        (28u16, 1u16, true),
        (255, 1, true),
        (65_280, 1, true),
        (252, 1, false),
        (251, 1, false),
        (16, 3, false),
        (28, 255, false),
        (28, 254, false),
        (41, 1, false),
        (250, 1, false),
        (0, 1, false),
    ] {
        let mut octets = message("example.com.", RecordType::A).to_vec().unwrap();
        let end = octets.len();
        octets[end - 4..end - 2].copy_from_slice(&record_type.to_be_bytes());
        octets[end - 2..].copy_from_slice(&class.to_be_bytes());
        assert_eq!(Query::read(&octets).is_some(), plain, "type {record_type} class {class}");
    }
}

#[test]
fn whatever_comes_is_read_without_a_panic_and_as_the_library_reads_it() {
    let seeds = [
        message("example.com.", RecordType::A).to_vec().unwrap(),
        with_edns(4096).to_vec().unwrap(),
        message(".", RecordType::NS).to_vec().unwrap(),
    ];
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random as usize
    };
    let mut accepted = 0;
    for round in 0..60_000 {
        let mut octets = seeds[round % seeds.len()].clone();
        for _ in 0..next() % 4 {
            let at = next() % octets.len();
            octets[at] = next() as u8;
        }
        octets.truncate(octets.len() - (next() % 8).saturating_sub(5));
        if let Some(query) = Query::read(&octets) {
            accepted += 1;
            let theirs =
                Message::from_vec(&octets).unwrap_or_else(|error| panic!("{error}: {octets:02x?}"));
            assert_eq!(theirs.metadata.id, query.id);
            assert_eq!(u16::from(theirs.queries[0].query_type()), query.record_type);
            assert_eq!(theirs.edns.is_some(), query.edns.is_some());
            assert_eq!(
                theirs.edns.as_ref().is_some_and(|edns| edns.flags().dnssec_ok),
                query.dnssec_ok()
            );
        }
    }
    assert!(accepted > 10_000, "{accepted}");
}

#[test]
fn the_first_cookie_counts() {
    let mut octets = vec![0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 1];
    octets.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 24]);
    octets.extend([0, 10, 0, 8, 1, 1, 1, 1, 1, 1, 1, 1]);
    octets.extend([0, 10, 0, 8, 2, 2, 2, 2, 2, 2, 2, 2]);
    let edns = Query::read(&octets).unwrap().edns.unwrap();
    assert_eq!(edns.cookie, Some(&[1; 8][..]));
    // Without a question it asks for a cookie; without a cookie for nothing.
    let bare = [&octets[..4], &[0; 7], &[1], &octets[17..]].concat();
    assert_eq!(Query::read(&bare), None);
    let read = Query::read_bare(&bare).unwrap();
    assert_eq!((read.question, read.edns.unwrap().cookie), (&[][..], Some(&[1; 8][..])));
    let mut none = bare.clone();
    none.truncate(12 + 11);
    none[21..23].copy_from_slice(&[0, 0]);
    assert_eq!(Query::read_bare(&none), None);
    assert_eq!(Query::read_bare(&octets), None);
    for len in 0..bare.len() {
        assert_eq!(Query::read_bare(&bare[..len]), None, "{len}");
    }
}

#[test]
fn an_answer_is_as_fresh_as_its_least_ttl() {
    let header = |answers: u8, authorities: u8| {
        let mut octets = vec![0, 1, 0x81, 0x80, 0, 1, 0, answers, 0, authorities, 0, 0];
        octets.extend([1, b'a', 0, 0, 1, 0, 1]);
        octets
    };
    let record =
        |ttl: u8| [&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, ttl, 0, 4][..], &[192, 0, 2, 1]].concat();
    let soa = |ttl: u8, minimum: u8| {
        let data = [&[0, 0][..], &[0; 16], &[0, 0, 0, minimum]].concat();
        [&[0, 0, 6, 0, 1, 0, 0, 0, ttl, 0, data.len() as u8][..], &data].concat()
    };
    let of = |parts: &[Vec<u8>]| least_ttl(&parts.concat());
    assert_eq!(of(&[header(2, 0), record(60), record(30)]), Some(30));
    assert_eq!(of(&[header(0, 1), soa(60, 20)]), Some(20));
    assert_eq!(of(&[header(1, 1), record(10), soa(5, 20)]), Some(5));
    assert_eq!(of(&[header(0, 0)]), None);
    // Cut short.
    let whole = [header(1, 1), record(10), soa(5, 20)].concat();
    for len in 0..whole.len() {
        assert_eq!(least_ttl(&whole[..len]), None, "{len}");
    }
}
