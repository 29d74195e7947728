//! The gateway between clients and servers that know nothing of it.

use std::net::Ipv6Addr;
use std::time::Duration;

use fordway_xlat::Config;
use fordway_xlat::nat64::{Addresses, Heap, Nat64, Settings, Sizes};
use hickory_proto::op::Query;

mod stream;

use super::*;
use crate::tests::{Reply as Upstream, SOA, query, reply, show};

const CLIENT4: (Ipv4Addr, u16) = (Ipv4Addr::new(198, 51, 100, 9), 4000);
const SERVER4: (Ipv4Addr, u16) = (Ipv4Addr::new(198, 51, 100, 53), 53);
const HOST: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 5);

struct Bench {
    nat64: Nat64,
    config: Config,
    gateway: DnsAlg,
    now: Duration,
}

/// Who asks whom: an IPv4 client an IPv6 server, or the other way round.
fn ends(client: Side) -> ((Ipv6Addr, u16), (Ipv4Addr, u16), (Ipv4Addr, u16)) {
    match client {
        Side::V4 => {
            (("2001:db8:1::53".parse().unwrap(), 53), ([203, 0, 113, 53].into(), 53), CLIENT4)
        }
        Side::V6 => ((HOST, 5000), ([203, 0, 113, 1].into(), 2000), SERVER4),
    }
}

impl Bench {
    fn new() -> Bench {
        Bench::with(DnsPolicy::default(), Addresses::default())
    }

    /// With 203.0.113.65 and 203.0.113.66 for hosts.
    fn with(policy: DnsPolicy, addresses: Addresses) -> Bench {
        let addresses = Addresses {
            pool: vec!["203.0.113.64/30".parse().unwrap()],
            hold: Duration::from_secs(60),
            ..addresses
        };
        let sizes = Sizes { bibs: 64, sessions: 64, subscribers: 64 };
        let settings = Settings { addresses: Some(addresses), sizes, ..Settings::default() };
        let nat64 = Nat64::new(settings, Arc::new(Heap::new(&sizes, [1, 2]))).unwrap();
        assert!(nat64.make_fixed_addresses(Duration::ZERO).is_empty());
        let pool6 = vec!["2001:db8:64::/96".parse().unwrap()];
        let config = Config { pool6, ..Config::default() };
        Bench { nat64, config, gateway: DnsAlg::new(policy), now: Duration::from_secs(1000) }
    }

    fn message(&self, client: Side, from: Side, message: &[u8]) -> (DnsAction, Vec<u8>) {
        let (host, local, remote) = ends(client);
        let (config, nat64, now) = (&self.config, &self.nat64, self.now);
        let exchange = Exchange { from, host, local, remote, config, nat64, now, shard: 0 };
        let mut out = Vec::new();
        let action = self.gateway.message(&exchange, message, &mut out);
        assert_eq!(out.is_empty(), action == DnsAction::Pass);
        (action, out)
    }

    /// A client's question; what the server is asked, in order, and says; what the client gets.
    #[track_caller]
    fn check(
        &self,
        client: Side,
        asked: &str,
        replies: &[(&str, &str)],
        expected: &str,
    ) -> Message {
        let question = query(asked);
        let octets = question.to_vec().unwrap();
        let (action, out) = self.message(client, client, &octets);
        let mut sent = if action == DnsAction::Replace { out } else { octets };
        assert_ne!(action, DnsAction::Return);
        let server = match client {
            Side::V4 => Side::V6,
            Side::V6 => Side::V4,
        };
        for (wanted, text) in replies {
            let seen = Message::from_vec(&sent).unwrap();
            let [asked] = seen.queries.as_slice() else { panic!("{seen}") };
            assert_eq!(format!("{} {}", asked.query_type, asked.name), *wanted);
            assert_eq!(seen.metadata.id, question.metadata.id);
            let Upstream::Message { mut message, .. } = reply(text) else { panic!("{text}") };
            message.metadata.id = seen.metadata.id;
            message.queries = seen.queries.clone();
            message.metadata.recursion_available = true;
            let octets = message.to_vec().unwrap();
            let (action, out) = self.message(client, server, &octets);
            sent = if action == DnsAction::Pass { octets } else { out };
            if action != DnsAction::Return {
                let got = Message::from_vec(&sent).unwrap();
                assert_eq!(show(&got), expected, "{asked}");
                assert_eq!(got.metadata.id, question.metadata.id);
                assert_eq!(got.queries, question.queries, "{asked}");
                assert!(got.metadata.recursion_available);
                assert_eq!(got.metadata.message_type, MessageType::Response);
                return got;
            }
        }
        panic!("{asked}: the client got nothing");
    }

    fn count(&self, counter: DnsCounter) -> u64 {
        self.gateway.counters().get(counter)
    }

    fn bound(&self) -> usize {
        self.nat64.bib(self.now).filter(|it| it.binding.protocol.is_none()).count()
    }
}

/// What a server says of a name that has AAAA records alone.
const NO_A: &str =
    "NOERROR\n! example.net. 300 SOA ns.example.net. admin.example.net. 1 3600 600 86400 60";

#[test]
fn an_ipv4_client_gets_an_address_that_is_bound_for_it() {
    let bench = Bench::new();
    let replies = [
        ("A www.example.net.", NO_A),
        ("AAAA www.example.net.", "NOERROR\nwww.example.net. 300 AAAA 2001:db8:1::5"),
    ];
    let asked = "A www.example.net.";
    let question = query(asked);
    let got = {
        let (_, _) = bench.message(Side::V4, Side::V4, &question.to_vec().unwrap());
        let addr = bench.nat64.bind_by_name(HOST, bench.now, 0).unwrap().addr;
        let expected = format!("NOERROR\nwww.example.net. 0 A {addr}");
        bench.check(Side::V4, asked, &replies, &expected)
    };
    // RFC 2766 section 4.1: the TTL is 0. No server vouches for it.
    assert!(!got.metadata.authoritative && !got.metadata.authentic_data && got.edns.is_none());
    assert_eq!((bench.bound(), bench.count(DnsCounter::ToA)), (1, 1));
    // The same host, the same address: no other is taken.
    let again = bench.check(Side::V4, asked, &replies, &show(&got));
    assert_eq!((again.answers == got.answers, bench.bound()), (true, 1));
}

#[test]
fn records_of_the_clients_own_family_pass_as_they_are() {
    let bench = Bench::new();
    let a = "NOERROR\nwww.example.net. 300 A 192.0.2.80";
    bench.check(Side::V4, "A www.example.net.", &[("A www.example.net.", a)], &with_flags(a));
    let aaaa = "NOERROR\nwww.example.net. 300 AAAA 2001:db8:9::1";
    bench.check(
        Side::V6,
        "AAAA www.example.net.",
        &[("AAAA www.example.net.", aaaa)],
        &with_flags(aaaa),
    );
    // What the other family's records are is the client's own affair (RFC 4966 section 4.3).
    bench.check(Side::V6, "A www.example.net.", &[("A www.example.net.", a)], &with_flags(a));
    bench.check(
        Side::V4,
        "AAAA www.example.net.",
        &[("AAAA www.example.net.", aaaa)],
        &with_flags(aaaa),
    );
    for other in ["MX", "TXT", "NS", "SOA", "TYPE65"] {
        let asked = format!("{other} example.net.");
        let said = format!("NOERROR\n{SOA}");
        let seen = if other == "TYPE65" { "HTTPS example.net.".to_owned() } else { asked.clone() };
        bench.check(Side::V4, &asked, &[(&seen, &said)], &with_flags(&said));
    }
    assert_eq!(bench.bound(), 0);
}

/// The test server says AA and AD of itself; what passes keeps them.
fn with_flags(reply: &str) -> String {
    let (code, rest) = reply.split_once('\n').map_or((reply, ""), |(code, rest)| (code, rest));
    let rest = if rest.is_empty() { String::new() } else { format!("\n{rest}") };
    format!("{code} AA AD{rest}")
}

#[test]
fn an_ipv6_client_gets_the_prefix_in_front() {
    let bench = Bench::new();
    let replies = [
        ("AAAA www.example.net.", NO_A),
        (
            "A www.example.net.",
            "NOERROR\nwww.example.net. 60 CNAME web.example.net.\n\
             web.example.net. 300 A 198.51.100.80\nweb.example.net. 200 A 198.51.100.81",
        ),
    ];
    // RFC 2766 section 4.2: those may be remembered as long as the prefix stays.
    let expected = "NOERROR\nwww.example.net. 60 CNAME web.example.net.\n\
                    web.example.net. 300 AAAA 2001:db8:64::c633:6450\n\
                    web.example.net. 200 AAAA 2001:db8:64::c633:6451";
    bench.check(Side::V6, "AAAA www.example.net.", &replies, expected);
    assert_eq!((bench.count(DnsCounter::ToAaaa), bench.bound()), (1, 0));
}

#[test]
fn aliases_keep_their_chain_and_nobody_remembers_it() {
    let bench = Bench::with(
        DnsPolicy { ttl: 1, ..DnsPolicy::default() },
        Addresses { fixed: vec![([203, 0, 113, 65].into(), HOST)], ..Addresses::default() },
    );
    let with = |host: &str| {
        format!("NOERROR\nwww.example.net. 60 CNAME a.example.org.\na.example.org. 300 AAAA {host}")
    };
    let ask = |host: &str, expected: &str| {
        let said = with(host);
        let replies = [("A www.example.net.", NO_A), ("AAAA www.example.net.", said.as_str())];
        bench.check(Side::V4, "A www.example.net.", &replies, expected);
    };
    // Bound for ever: as the server said. Bound for a while: as configured.
    ask(
        "2001:db8:1::5",
        "NOERROR\nwww.example.net. 60 CNAME a.example.org.\na.example.org. 300 A 203.0.113.65",
    );
    ask(
        "2001:db8:1::6",
        "NOERROR\nwww.example.net. 1 CNAME a.example.org.\na.example.org. 1 A 203.0.113.66",
    );
}

#[test]
fn names_that_do_not_exist_stay_so() {
    let bench = Bench::new();
    let nothing = format!("NXDOMAIN\n{SOA}");
    let replies = [("A nobody.example.net.", nothing.as_str())];
    bench.check(Side::V4, "A nobody.example.net.", &replies, &with_flags(&nothing));
    // One that has neither: the answer to the second question.
    let replies = [("A mail.example.net.", NO_A), ("AAAA mail.example.net.", NO_A)];
    bench.check(Side::V4, "A mail.example.net.", &replies, "NOERROR");
    // A server that fails for the one type may know the other (RFC 6147 section 5.1.2).
    let replies = [
        ("AAAA old.example.net.", "SERVFAIL"),
        ("A old.example.net.", "NOERROR\nold.example.net. 9 A 198.51.100.80"),
    ];
    let expected = "NOERROR\nold.example.net. 9 AAAA 2001:db8:64::c633:6450";
    bench.check(Side::V6, "AAAA old.example.net.", &replies, expected);
    let replies = [("AAAA bad.example.net.", "SERVFAIL"), ("A bad.example.net.", "SERVFAIL")];
    bench.check(Side::V6, "AAAA bad.example.net.", &replies, "SERVFAIL");
}

#[test]
fn when_all_addresses_are_taken_the_client_hears_servfail() {
    let bench = Bench::new();
    for number in [6, 7] {
        let host = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, number);
        bench.nat64.bind_by_name(host, bench.now, 0).unwrap();
    }
    let replies = [
        ("A www.example.net.", NO_A),
        ("AAAA www.example.net.", "NOERROR\nwww.example.net. 300 AAAA 2001:db8:1::5"),
    ];
    bench.check(Side::V4, "A www.example.net.", &replies, "SERVFAIL");
    assert_eq!((bench.count(DnsCounter::Exhausted), bench.count(DnsCounter::ToA)), (1, 0));
}

#[test]
fn one_client_takes_only_its_part() {
    let policy = DnsPolicy { most_bindings: 1, ..DnsPolicy::default() };
    let mut bench = Bench::with(policy, Addresses::default());
    let ask = |bench: &Bench, host: &str| {
        let said = format!("NOERROR\nwww.example.net. 300 AAAA {host}");
        let replies = [("A www.example.net.", NO_A), ("AAAA www.example.net.", said.as_str())];
        let host = host.parse().unwrap();
        let before = bench.nat64.is_bound(host, bench.now);
        let (action, _) =
            bench.message(Side::V4, Side::V4, &query("A www.example.net.").to_vec().unwrap());
        assert_eq!(action, DnsAction::Pass);
        let refused = !before && bench.bound() == 1 && bench.now < Duration::from_secs(1060);
        if refused {
            bench.check(Side::V4, "A www.example.net.", &replies, "SERVFAIL");
        }
        refused
    };
    bench.nat64.bind_by_name(HOST, bench.now, 0).unwrap();
    assert!(bench.gateway.lock().may_bind(CLIENT4.0, 1, bench.now));
    assert!(ask(&bench, "2001:db8:1::6"), "the second in a minute");
    assert_eq!(bench.count(DnsCounter::ClientLimit), 1);
    bench.now += DnsPolicy::WINDOW;
    assert!(bench.gateway.lock().may_bind(CLIENT4.0, 1, bench.now));
}

#[test]
fn only_hosts_are_bound() {
    let clients = vec!["2001:db8:1::/48".parse().unwrap()];
    let addresses = Addresses { clients, ..Addresses::default() };
    let policy = DnsPolicy { most_addresses: 2, ..DnsPolicy::default() };
    let bench = Bench::with(policy, addresses);
    // RFC 4966 section 2.8, and what is not behind the translator; of the rest, two.
    let said = "NOERROR\nwww.example.net. 300 AAAA ff02::1\nwww.example.net. 300 AAAA ::1\n\
                www.example.net. 300 AAAA 2001:db8:64::c633:6450\n\
                www.example.net. 300 AAAA 2001:db8:2::1\nwww.example.net. 300 AAAA fe80::1";
    let replies = [("A www.example.net.", NO_A), ("AAAA www.example.net.", said)];
    bench.check(Side::V4, "A www.example.net.", &replies, "NOERROR");
    assert_eq!(bench.bound(), 0);
    let said = "NOERROR\nwww.example.net. 300 AAAA ff02::1\nwww.example.net. 300 AAAA 2001:db8:1::5\n\
                www.example.net. 300 AAAA 2001:db8:1::6\nwww.example.net. 300 AAAA 2001:db8:1::7";
    let (host, other) = (HOST, Ipv6Addr::from_bits(HOST.to_bits() + 1));
    let first = bench.nat64.bind_by_name(host, bench.now, 0).unwrap().addr;
    let second = bench.nat64.bind_by_name(other, bench.now, 0).unwrap().addr;
    let expected = format!("NOERROR\nwww.example.net. 0 A {first}\nwww.example.net. 0 A {second}");
    let replies = [("A www.example.net.", NO_A), ("AAAA www.example.net.", said)];
    bench.check(Side::V4, "A www.example.net.", &replies, &expected);
}

#[test]
fn names_of_addresses_are_found_on_the_other_side() {
    let fixed = vec![([203, 0, 113, 65].into(), HOST)];
    let bench = Bench::with(DnsPolicy::default(), Addresses { fixed, ..Addresses::default() });
    let other = "5.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.1.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa.";
    let said = format!("NOERROR\n{other} 300 PTR www.example.net.");
    let expected = "NOERROR\n65.113.0.203.in-addr.arpa. 300 PTR www.example.net.";
    let asked = "PTR 65.113.0.203.in-addr.arpa.";
    bench.check(Side::V4, asked, &[(&format!("PTR {other}"), &said)], expected);
    // Nobody has this one, and this is none of the translator's.
    for asked in
        ["PTR 66.113.0.203.in-addr.arpa.", "PTR 1.2.0.192.in-addr.arpa.", "PTR x.in-addr.arpa."]
    {
        bench.check(Side::V4, asked, &[(asked, "NXDOMAIN")], "NXDOMAIN AA AD");
    }
    // The other way: an address behind the prefix.
    let asked = "PTR 0.5.4.6.3.3.6.c.0.0.0.0.0.0.0.0.0.0.0.0.4.6.0.0.8.b.d.0.1.0.0.2.ip6.arpa.";
    let said = "NOERROR\n80.100.51.198.in-addr.arpa. 300 PTR old.example.net.";
    let expected = format!("NOERROR\n{} 300 PTR old.example.net.", &asked[4..]);
    bench.check(Side::V6, asked, &[("PTR 80.100.51.198.in-addr.arpa.", said)], &expected);
    assert_eq!(bench.count(DnsCounter::Pointers), 2);
}

#[test]
fn names_keep_their_case() {
    let bench = Bench::new();
    let replies = [
        ("AAAA wWw.ExAmPlE.nEt.", NO_A),
        ("A wWw.ExAmPlE.nEt.", "NOERROR\nwww.example.net. 60 A 198.51.100.80"),
    ];
    let expected = "NOERROR\nwww.example.net. 60 AAAA 2001:db8:64::c633:6450";
    let got = bench.check(Side::V6, "AAAA wWw.ExAmPlE.nEt.", &replies, expected);
    assert_eq!(got.queries[0].name.to_ascii(), "wWw.ExAmPlE.nEt.");
}

#[test]
fn who_validates_by_himself_sees_what_is_there() {
    let bench = Bench::new();
    let asked = "AAAA www.example.net. do cd";
    bench.check(Side::V6, asked, &[("AAAA www.example.net.", NO_A)], &with_flags(NO_A));
    assert_eq!(bench.count(DnsCounter::Dnssec), 1);
    // With DO alone it is translated, without signatures, and AD is clear.
    let replies = [
        ("AAAA www.example.net.", NO_A),
        (
            "A www.example.net.",
            "NOERROR\nwww.example.net. 60 A 198.51.100.80\n\
             www.example.net. 60 TYPE46 00010f030000003c0000000000000000000100aabbccdd",
        ),
    ];
    let expected = "NOERROR\nwww.example.net. 60 AAAA 2001:db8:64::c633:6450";
    let got = bench.check(Side::V6, "AAAA www.example.net. do", &replies, expected);
    assert!(got.edns.is_some_and(|edns| edns.flags().dnssec_ok));
}

#[test]
fn what_does_not_fit_is_asked_for_by_tcp() {
    let bench = Bench::new();
    let mut said = "NOERROR".to_owned();
    for number in 0..40 {
        said += &format!("\nwww.example.net. 60 A 198.51.100.{number}");
    }
    // 40 A records fit into 1232 octets, 40 AAAA records do not.
    let replies = [("AAAA www.example.net.", NO_A), ("A www.example.net.", said.as_str())];
    bench.check(Side::V6, "AAAA www.example.net. edns", &replies, "NOERROR TC");
    let cut = [("AAAA www.example.net.", "NOERROR tc")];
    bench.check(Side::V6, "AAAA www.example.net.", &cut, "NOERROR AA TC AD");
    let cut = [("AAAA www.example.net.", NO_A), ("A www.example.net.", "NOERROR tc")];
    bench.check(Side::V6, "AAAA www.example.net.", &cut, "NOERROR TC");
}

#[test]
fn answers_that_nobody_asked_for_bind_nothing() {
    let bench = Bench::new();
    let answer = |id: u16, name: &str| {
        let Upstream::Message { mut message, .. } =
            reply("NOERROR\nwww.example.net. 300 AAAA 2001:db8:1::5")
        else {
            panic!()
        };
        message.metadata.id = id;
        let name = crate::tests::name(name);
        message.queries = vec![Query::query(name, RecordType::AAAA)];
        message.to_vec().unwrap()
    };
    let pass = |message: &[u8]| {
        assert_eq!(bench.message(Side::V4, Side::V6, message).0, DnsAction::Pass);
    };
    pass(&answer(0x1234, "www.example.net."));
    let asked = query("A www.example.net.");
    assert_eq!(bench.message(Side::V4, Side::V4, &asked.to_vec().unwrap()).0, DnsAction::Pass);
    // To the client's own question there is no AAAA answer; another number, another name.
    pass(&answer(0x1234, "www.example.net."));
    pass(&answer(0x1235, "www.example.net."));
    pass(&answer(0x1234, "evil.example.net."));
    assert_eq!(bench.bound(), 0);
}

#[test]
fn what_is_no_question_passes() {
    let bench = Bench::new();
    let mut two = query("A www.example.net.");
    two.queries.push(two.queries[0].clone());
    let mut update = query("SOA example.net.");
    update.metadata.op_code = OpCode::Update;
    let good = query("A www.example.net.").to_vec().unwrap();
    let mut messages = vec![two.to_vec().unwrap(), update.to_vec().unwrap(), Vec::new()];
    messages.extend((1..good.len()).map(|len| good[..len].to_vec()));
    // A name that points at itself.
    let mut looped = good.clone();
    looped[12..14].copy_from_slice(&[0xc0, 12]);
    messages.push(looped);
    messages.push(query("A www.example.net. ch").to_vec().unwrap());
    for message in &messages {
        for from in [Side::V4, Side::V6] {
            assert_eq!(bench.message(Side::V4, from, message).0, DnsAction::Pass, "{message:02x?}");
        }
    }
    assert!(bench.count(DnsCounter::Malformed) > 0);
    assert_eq!(bench.gateway.lock().len(), 0);
}

#[test]
fn only_those_on_the_list_are_answered_so() {
    let policy =
        DnsPolicy { clients: vec!["192.0.2.0/24".parse().unwrap()], ..DnsPolicy::default() };
    let bench = Bench::with(policy, Addresses::default());
    bench.check(Side::V4, "A www.example.net.", &[("A www.example.net.", NO_A)], &with_flags(NO_A));
    assert_eq!(bench.count(DnsCounter::NotAllowed), 1);
    // IPv6 clients are not concerned.
    let replies = [
        ("AAAA www.example.net.", NO_A),
        ("A www.example.net.", "NOERROR\nwww.example.net. 60 A 198.51.100.80"),
    ];
    let expected = "NOERROR\nwww.example.net. 60 AAAA 2001:db8:64::c633:6450";
    bench.check(Side::V6, "AAAA www.example.net.", &replies, expected);
}

#[test]
fn what_is_kept_in_mind_is_bounded() {
    let mut bench = Bench::new();
    let mut question = query("A www.example.net.");
    for id in 0..2000 {
        question.metadata.id = id;
        let (action, _) = bench.message(Side::V4, Side::V4, &question.to_vec().unwrap());
        assert_eq!(action, DnsAction::Pass);
    }
    let kept = bench.gateway.lock().len();
    assert!(kept < 2000, "{kept} questions of one client");
    assert_eq!(bench.count(DnsCounter::TooMany), 2000 - kept as u64);
    // After a while there is room again.
    bench.now += Duration::from_secs(60);
    question.metadata.id = 3000;
    bench.message(Side::V4, Side::V4, &question.to_vec().unwrap());
    assert_eq!(bench.gateway.lock().len(), 1);
}

#[test]
fn another_policy_forgets_nothing() {
    let bench = Bench::new();
    bench.message(Side::V4, Side::V4, &query("A www.example.net.").to_vec().unwrap());
    let other = bench.gateway.with(DnsPolicy { ttl: 1, ..DnsPolicy::default() });
    assert_eq!(other.counters().get(DnsCounter::Queries), 1);
    assert_eq!((other.lock().len(), other.policy().ttl), (1, 1));
}
