//! Every rule of DNS64 (RFC 6147, RFC 8880), asked of the gateway as it runs, whose upstream is a name server that
//! does what a test wants.

use fordway_testhost::{can_use_tun, poll};
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{DNSClass, RData, RecordType};

use crate::common::dns::{self, NEGATIVE_TTL, Odd, TTL, Zone};
use crate::common::resolver::{PREFIX, SERVER, Site, answers, code, reasons, record_type};

/// 192.0.2.1, 198.51.100.7 and 203.0.113.200 behind [`PREFIX`].
const V6: [&str; 3] = ["2001:db8:64::c000:201", "2001:db8:64::c633:6407", "2001:db8:64::cb00:71c8"];

fn zone() -> Zone {
    let aaaa = Some(RecordType::AAAA);
    let mut zone = Zone::new("example.net")
        .aaaa("native.example.net", "2001:db8:9::1")
        .a("native.example.net", "192.0.2.1")
        .a("v4.example.net", "192.0.2.1")
        .a("two.example.net", "192.0.2.1")
        .a("two.example.net", "198.51.100.7")
        .txt("text.example.net", "neither A nor AAAA")
        .aaaa("mapped.example.net", "::ffff:192.0.2.1")
        .a("mapped.example.net", "192.0.2.1")
        .aaaa("mixed.example.net", "::ffff:192.0.2.1")
        .aaaa("mixed.example.net", "2001:db8:9::2")
        .aaaa("mapped-only.example.net", "::ffff:192.0.2.1")
        .a("excluded.example.net", "203.0.113.7")
        .a("partly.example.net", "203.0.113.7")
        .a("partly.example.net", "203.0.113.200")
        .a("www.exempt.example.net", "192.0.2.1")
        .a("loopback.example.net", "127.0.0.1")
        .cname("alias.example.net", "alias2.example.net")
        .cname("alias2.example.net", "v4.example.net")
        .cname("alias6.example.net", "native.example.net")
        .cname("nowhere.example.net", "gone.example.net")
        .cname("to-text.example.net", "text.example.net")
        .cname("circle.example.net", "circle2.example.net")
        .cname("circle2.example.net", "circle.example.net")
        .dname("old.example.net", "example.net")
        .cname("parts.example.net", "v4.example.net")
        .odd("parts.example.net", None, Odd::FirstAlias)
        .a("nosoa.example.net", "192.0.2.1")
        .odd("nosoa.example.net", aaaa, Odd::NoSoa)
        .a("silent.example.net", "192.0.2.1")
        .odd("silent.example.net", aaaa, Odd::Silence)
        .a("cut.example.net", "192.0.2.1")
        .odd("cut.example.net", aaaa, Odd::Cut)
        .odd("a-fails.example.net", Some(RecordType::A), Odd::Code(ResponseCode::Refused))
        .txt("a-fails.example.net", "is there")
        .aaaa("forged.example.net", "2001:db8:9::3")
        .odd("forged.example.net", None, Odd::WrongId)
        .ptr("1.2.0.192.in-addr.arpa", "v4.example.net")
        .cname("7.100.51.198.in-addr.arpa", "7.0-63.100.51.198.in-addr.arpa")
        .ptr("7.0-63.100.51.198.in-addr.arpa", "two.example.net");
    for (code, name) in [(1, "formerr"), (2, "servfail"), (4, "notimp"), (5, "refused")] {
        let owner = format!("{name}.example.net");
        let odd = Odd::Code(ResponseCode::from(0, code));
        zone = zone.a(&owner, "192.0.2.1").odd(&owner, aaaa, odd);
    }
    zone
}

/// The gateway's `[dns64]` beyond what all tests have.
const POLICY: &str = "exclude_a = [\"203.0.113.0/25\"]\nexempt = [\"exempt.example.net\"]";

#[test]
fn aaaa_questions_by_udp_and_by_tcp_with_edns_and_without() {
    if !can_use_tun() {
        return;
    }
    let site = Site::new();
    let _upstream = site.upstream(zone());
    let daemon = site.start(PREFIX, POLICY);
    let ok = ResponseCode::NoError;
    let v4 = format!("v4.example.net. AAAA {}", V6[0]);
    let own = |name: &str| vec![format!("{name}.example.net. AAAA {}", V6[0])];
    let lines = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
    let cases = [
        // Section 5.1.1, 5.1.2.
        ("native", ok, lines(&["native.example.net. AAAA 2001:db8:9::1"])),
        ("gone", ResponseCode::NXDomain, vec![]),
        // Sections 5.1.6, 5.1.7, 5.2.
        ("v4", ok, own("v4")),
        (
            "two",
            ok,
            vec![
                format!("two.example.net. AAAA {}", V6[0]),
                format!("two.example.net. AAAA {}", V6[1]),
            ],
        ),
        ("text", ok, vec![]),
        ("nosoa", ok, own("nosoa")),
        ("a-fails", ResponseCode::Refused, vec![]),
        // Sections 5.1.2 and 5.1.3.
        ("formerr", ok, own("formerr")),
        ("servfail", ok, own("servfail")),
        ("notimp", ok, own("notimp")),
        ("refused", ok, own("refused")),
        ("silent", ok, own("silent")),
        ("cut", ok, own("cut")),
        // Section 5.1.4.
        ("mapped", ok, own("mapped")),
        ("mixed", ok, lines(&["mixed.example.net. AAAA 2001:db8:9::2"])),
        ("mapped-only", ok, vec![]),
        // Section 5.1.5.
        (
            "alias",
            ok,
            vec![
                "alias.example.net. CNAME alias2.example.net.".to_owned(),
                "alias2.example.net. CNAME v4.example.net.".to_owned(),
                v4.clone(),
            ],
        ),
        (
            "alias6",
            ok,
            lines(&[
                "alias6.example.net. CNAME native.example.net.",
                "native.example.net. AAAA 2001:db8:9::1",
            ]),
        ),
        (
            "nowhere",
            ResponseCode::NXDomain,
            lines(&["nowhere.example.net. CNAME gone.example.net."]),
        ),
        ("to-text", ok, lines(&["to-text.example.net. CNAME text.example.net."])),
        ("circle", ResponseCode::ServFail, vec![]),
        (
            "v4.old",
            ok,
            vec![
                "old.example.net. DNAME 076578616d706c65036e657400".to_owned(),
                "v4.old.example.net. CNAME v4.example.net.".to_owned(),
                v4.clone(),
            ],
        ),
        ("parts", ok, vec!["parts.example.net. CNAME v4.example.net.".to_owned(), v4]),
        // What the operator has excluded, and what no translator forwards.
        ("excluded", ok, vec![]),
        ("partly", ok, vec![format!("partly.example.net. AAAA {}", V6[2])]),
        ("www.exempt", ok, vec![]),
        ("loopback", ok, vec![]),
        // A forged answer comes first.
        ("forged", ok, lines(&["forged.example.net. AAAA 2001:db8:9::3"])),
    ];
    for (name, expected, records) in cases {
        for (tcp, payload) in [(false, Some(1232)), (true, Some(1232)), (false, None), (true, None)]
        {
            let owner = format!("{name}.example.net");
            let response = site.send(&dns::query(&owner, RecordType::AAAA, payload), tcp);
            assert_eq!(code(&response), expected, "{name}: {response}");
            assert_eq!(answers(&response), records, "{name}");
            assert!(!response.metadata.authoritative, "{name}");
            assert!(!response.metadata.authentic_data, "{name}");
        }
    }
    // Letters of the question come back as they were.
    let response = site.ask("AAAA", "V4.eXample.NET");
    assert_eq!(answers(&response), own("v4"));
    daemon.stop();
}

#[test]
fn ttls_reasons_and_sections() {
    if !can_use_tun() {
        return;
    }
    let site = Site::new();
    let upstream = site.upstream(zone());
    let _daemon = site.start(PREFIX, POLICY);
    let ttl = |message: &Message| message.answers[0].ttl;
    // Section 5.1.7: the least of A (300 s) and SOA (300 s, minimum 60 s); without SOA the A record's.
    let response = site.ask("AAAA", "v4.example.net");
    assert!(ttl(&response) <= NEGATIVE_TTL, "{response}");
    assert_eq!(reasons(&response), [29]);
    let response = site.ask("AAAA", "nosoa.example.net");
    assert!((NEGATIVE_TTL + 1..=TTL).contains(&ttl(&response)), "{response}");
    // It falls with time, without a further question upstream.
    let response = poll("a TTL that falls", || {
        let response = site.ask("AAAA", "nosoa.example.net");
        (ttl(&response) < TTL - 1).then_some(response)
    });
    assert_eq!(answers(&response).len(), 1);
    assert_eq!(upstream.count("nosoa.example.net", RecordType::A), 1);
    // Section 5.4: nothing found is told with the SOA of the first answer.
    let response = site.ask("AAAA", "text.example.net");
    assert!(matches!(response.authorities[0].data, RData::SOA(_)), "{response}");
    // RFC 8914: what was excluded, and who did not answer.
    assert_eq!(reasons(&site.ask("AAAA", "excluded.example.net")), [0]);
    upstream.replace(zone().odd("mute.example.net", None, Odd::Silence));
    let response = site.ask("MX", "mute.example.net");
    assert_eq!((code(&response), reasons(&response)), (ResponseCode::ServFail, vec![22]));
    drop(upstream);
    let response = site.ask("AAAA", "nobody.example.net");
    assert_eq!(code(&response), ResponseCode::ServFail);
    assert!(matches!(reasons(&response)[..], [22 | 23]), "{response}");
}

#[test]
fn other_types_come_through_octet_for_octet() {
    if !can_use_tun() {
        return;
    }
    let site = Site::new();
    // Each as its RFC draws it; the last ones have no meaning at all.
    let name: &[u8] = b"\x01a\x07example\x03net\0";
    let signature = |covered: u8| {
        [
            &[0, covered, 13, 3, 0, 0, 1, 44, 0x6b, 0, 0, 0, 0x6a, 0, 0, 0, 0x12, 0x34],
            name,
            &[7; 64],
        ]
        .concat()
    };
    let types: Vec<(u16, Vec<u8>)> = vec![
        (1, vec![192, 0, 2, 1]),
        (2, name.to_vec()),
        (12, name.to_vec()),
        (13, b"\x03AMD\x05Linux".to_vec()),
        (15, [&[0, 10], name].concat()),
        (16, b"\x05first\0\x06second".to_vec()),
        (17, [name, name].concat()),
        (29, vec![0, 0x12, 0x16, 0x13, 0x8b, 0, 0, 0, 0x70, 0, 0, 0, 0, 0x98, 0x96, 0x80]),
        (33, [&[0, 1, 0, 2, 0, 80], name].concat()),
        (35, [&[0, 1, 0, 2, 1, b'u', 3, b'S', b'I', b'P', 0], name].concat()),
        (39, name.to_vec()),
        (42, vec![0, 1, 24, 3, 192, 0, 2]),
        (43, [&[0x12, 0x34, 13, 2][..], &[9; 32]].concat()),
        (44, [&[4, 2][..], &[9; 32]].concat()),
        (46, signature(1)),
        (47, [name, &[0, 6, 0x40, 0x01, 0, 0, 0, 3]].concat()),
        (48, [&[1, 1, 3, 13][..], &[5; 64]].concat()),
        (50, [&[1, 0, 0, 0, 0, 20][..], &[3; 20], &[0, 1, 0x40]].concat()),
        (52, [&[3, 1, 1][..], &[9; 32]].concat()),
        (64, [&[0, 1], name, &[0, 4, 0, 4, 192, 0, 2, 1]].concat()),
        (
            65,
            [
                &[0, 1, 0, 0, 1, 0, 3, 2, b'h', b'2', 0, 4, 0, 4, 192, 0, 2, 1][..],
                &[0, 6, 0, 16],
                &[1; 16],
            ]
            .concat(),
        ),
        (99, b"\x0bv=spf1 -all".to_vec()),
        (256, [&[0, 10, 0, 1][..], b"https://example.net/"].concat()),
        (257, b"\0\x05issueca.example.net".to_vec()),
        (65280, vec![0, 255, 1, 2, 3]),
        (65533, vec![0xc0, 12]),
    ];
    let mut zone = Zone::new("example.net");
    for (code, octets) in &types {
        zone = zone.unknown(&format!("t{code}.example.net"), *code, octets);
    }
    let _upstream = site.upstream(zone);
    let _daemon = site.start(PREFIX, "");
    for (code, octets) in types {
        let mut query = dns::query(
            &format!("t{code}.example.net"),
            record_type(&format!("TYPE{code}")),
            Some(1232),
        );
        query.edns.as_mut().unwrap().set_dnssec_ok(true);
        // The second time from memory.
        for _ in 0..2 {
            let answer = dns::ask_udp(&site.client, None, SERVER.parse().unwrap(), &query);
            assert_eq!(answer[3] & 15, 0, "type {code}: {answer:02x?}");
            let data = first_data(&answer).unwrap_or_else(|| panic!("type {code}: {answer:02x?}"));
            if matches!(code, 2 | 12 | 15) {
                // RFC 1035 types, whose names may be compressed.
                assert_eq!(Message::from_vec(&answer).unwrap().answers.len(), 1);
            } else {
                assert_eq!(data, octets, "type {code}");
            }
        }
    }
}

/// The data of the first record: behind the header, the question, and an owner that is a pointer or spelled out.
fn first_data(message: &[u8]) -> Option<&[u8]> {
    let name_end = |mut at: usize| -> Option<usize> {
        loop {
            match *message.get(at)? {
                0 => return Some(at + 1),
                len if len >= 0xc0 => return Some(at + 2),
                len => at += 1 + usize::from(len),
            }
        }
    };
    let record = name_end(name_end(12)? + 4)?;
    let len = message.get(record + 8..record + 10)?;
    message.get(record + 10..record + 10 + usize::from(u16::from_be_bytes([len[0], len[1]])))
}

#[test]
fn any_and_other_classes() {
    if !can_use_tun() {
        return;
    }
    let site = Site::new();
    let _upstream = site.upstream(zone());
    let _daemon = site.start(PREFIX, "");
    // Section 5.3.3: unchanged; over UDP there is an invitation to TCP (RFC 8482).
    let any = dns::query("mapped.example.net", RecordType::ANY, Some(1232));
    let mut found = answers(&site.send(&any, true));
    found.sort();
    assert_eq!(
        found,
        ["mapped.example.net. A 192.0.2.1", "mapped.example.net. AAAA ::ffff:192.0.2.1"]
    );
    let response = site.send(&any, false);
    assert!(response.metadata.truncation && response.answers.is_empty(), "{response}");
    // Section 5.1: nothing but IN is anything to DNS64.
    let mut chaos = dns::query("v4.example.net", RecordType::AAAA, None);
    chaos.queries[0].set_query_class(DNSClass::CH);
    assert_eq!(answers(&site.send(&chaos, false)), Vec::<String>::new());
}

#[test]
fn do_and_cd() {
    if !can_use_tun() {
        return;
    }
    let site = Site::new();
    let rrsig =
        [&[0, 1, 13, 3, 0, 0, 1, 44, 0x6b, 0, 0, 0, 0x6a, 0, 0, 0, 0, 7, 0][..], &[7; 64]].concat();
    let zone =
        zone().unknown("signed.example.net", 46, &rrsig).a("signed.example.net", "192.0.2.1");
    let upstream = site.upstream(zone);
    let _daemon = site.start(PREFIX, "");
    let ask = |owner: &str, dnssec_ok: bool, checking_disabled: bool| {
        let mut query = dns::query(owner, RecordType::AAAA, Some(1232));
        query.edns.as_mut().unwrap().set_dnssec_ok(dnssec_ok);
        query.metadata.checking_disabled = checking_disabled;
        let response = site.send(&query, false);
        assert_eq!(response.edns.as_ref().unwrap().flags().dnssec_ok, dnssec_ok);
        assert_eq!(response.metadata.checking_disabled, checking_disabled);
        assert!(!response.metadata.authentic_data, "nobody validates here");
        response
    };
    // Section 5.5 item 3: who checks itself synthesises itself.
    let response = ask("v4.example.net", true, true);
    assert_eq!((code(&response), answers(&response)), (ResponseCode::NoError, vec![]));
    assert_eq!(upstream.count("v4.example.net", RecordType::A), 0);
    for (dnssec_ok, checking_disabled) in [(true, false), (false, true), (false, false)] {
        let response = ask("v4.example.net", dnssec_ok, checking_disabled);
        assert_eq!(answers(&response), [format!("v4.example.net. AAAA {}", V6[0])]);
    }
    let response = ask("mapped.example.net", true, true);
    assert_eq!(answers(&response), ["mapped.example.net. AAAA ::ffff:192.0.2.1"], "all the data");
}

#[test]
fn ipv4only_arpa_is_answered_here() {
    if !can_use_tun() {
        return;
    }
    let site = Site::new();
    let upstream = site.upstream(zone());
    let _daemon = site.start(PREFIX, POLICY);
    let a = ["ipv4only.arpa. A 192.0.0.170", "ipv4only.arpa. A 192.0.0.171"];
    let aaaa =
        ["ipv4only.arpa. AAAA 2001:db8:64::c000:aa", "ipv4only.arpa. AAAA 2001:db8:64::c000:ab"];
    for (kind, owner, expected, records) in [
        ("A", "ipv4only.arpa", ResponseCode::NoError, &a[..]),
        ("AAAA", "ipv4only.arpa", ResponseCode::NoError, &aaaa[..]),
        ("MX", "ipv4only.arpa", ResponseCode::NoError, &[]),
        ("NS", "ipv4only.arpa", ResponseCode::NoError, &[]),
        ("SOA", "ipv4only.arpa", ResponseCode::NoError, &[]),
        ("AAAA", "www.ipv4only.arpa", ResponseCode::NXDomain, &[]),
        ("TXT", "a.b.ipv4only.arpa", ResponseCode::NXDomain, &[]),
    ] {
        for tcp in [false, true] {
            let response = site.send(&dns::query(owner, record_type(kind), Some(1232)), tcp);
            assert_eq!(code(&response), expected, "{kind} {owner}");
            assert_eq!(answers(&response), records, "{kind} {owner}");
            assert!(response.metadata.authoritative);
            assert_eq!(response.authorities.len(), usize::from(records.is_empty()));
        }
    }
    assert_eq!(upstream.asked(), [], "RFC 8880 section 7.1: nobody is asked");
    site.ask("DS", "ipv4only.arpa");
    assert_eq!(upstream.count("ipv4only.arpa", RecordType::DS), 1, "except for DS");
}

/// 192.0.2.1, 198.51.100.7, 192.0.2.99 and 192.0.0.170 behind [`PREFIX`], in IP6.ARPA.
const REVERSE: [&str; 4] = [
    "1.0.2.0.0.0.0.c.0.0.0.0.0.0.0.0.0.0.0.0.4.6.0.0.8.b.d.0.1.0.0.2.ip6.arpa",
    "7.0.4.6.3.3.6.c.0.0.0.0.0.0.0.0.0.0.0.0.4.6.0.0.8.b.d.0.1.0.0.2.ip6.arpa",
    "3.6.2.0.0.0.0.c.0.0.0.0.0.0.0.0.0.0.0.0.4.6.0.0.8.b.d.0.1.0.0.2.ip6.arpa",
    "a.a.0.0.0.0.0.c.0.0.0.0.0.0.0.0.0.0.0.0.4.6.0.0.8.b.d.0.1.0.0.2.ip6.arpa",
];

#[test]
fn names_of_synthetic_addresses_by_cname() {
    if !can_use_tun() {
        return;
    }
    let site = Site::new();
    let upstream = site.upstream(zone());
    let _daemon = site.start(PREFIX, "");
    let ask = |owner: &str| {
        let response = site.ask("PTR", owner);
        (code(&response), answers(&response))
    };
    let ok = ResponseCode::NoError;
    let expected = vec![
        format!("{}. CNAME 1.2.0.192.in-addr.arpa.", REVERSE[0]),
        "1.2.0.192.in-addr.arpa. PTR v4.example.net.".to_owned(),
    ];
    assert_eq!(ask(REVERSE[0]), (ok, expected));
    // The alias that is there already (RFC 2317) is not made longer.
    let expected = vec![
        format!("{}. CNAME 7.0-63.100.51.198.in-addr.arpa.", REVERSE[1]),
        "7.0-63.100.51.198.in-addr.arpa. PTR two.example.net.".to_owned(),
    ];
    assert_eq!(ask(REVERSE[1]), (ok, expected));
    assert_eq!(ask(REVERSE[2]), (ResponseCode::NXDomain, vec![]), "no CNAME to nothing");
    assert_eq!(ask(REVERSE[3]), (ok, vec![format!("{}. PTR ipv4only.arpa.", REVERSE[3])]));
    assert_eq!(upstream.count("170.0.0.192.in-addr.arpa", RecordType::PTR), 0);
    // Any other address is an ordinary question.
    let other = REVERSE[0].replace("4.6.0.0.8", "5.6.0.0.8");
    assert_eq!(ask(&other).0, ResponseCode::NXDomain);
    assert_eq!(upstream.count(&other, RecordType::PTR), 1);
    assert_eq!(upstream.count(REVERSE[0], RecordType::PTR), 0);
}

#[test]
fn names_of_synthetic_addresses_made_here() {
    if !can_use_tun() {
        return;
    }
    let site = Site::new();
    let upstream = site.upstream(zone());
    let rest = "reverse = \"local\"\nreverse_domain = \"nat64.example.net\"\nnat64_names = [\"gw.example.net\"]";
    let _daemon = site.start(PREFIX, rest);
    for (owner, target) in [
        (REVERSE[0], "192-0-2-1.nat64.example.net."),
        (REVERSE[2], "192-0-2-99.nat64.example.net."),
        (REVERSE[3], "gw.example.net."),
    ] {
        let response = site.ask("PTR", owner);
        assert_eq!(answers(&response), [format!("{owner}. PTR {target}")]);
        assert!(response.metadata.authoritative);
    }
    assert_eq!(upstream.asked(), []);
}
