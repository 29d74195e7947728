//! Drawn policies, queries and worlds, against RFC 6147 section 5.1 read aloud.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::RData;

use crate::tests::{World, name, query};
use crate::{Names, Policy};

/// A sequence of numbers that is the same each time.
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as u32) % limit
    }

    fn one_in(&mut self, many: u32) -> bool {
        self.below(many) == 0
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u32) as usize]
    }

    fn some<T: Copy>(&mut self, choices: &[T]) -> Vec<T> {
        let chosen: Vec<T> = choices.iter().copied().filter(|_| self.below(3) == 0).collect();
        if chosen.is_empty() { vec![self.of(choices)] } else { chosen }
    }
}

const V4: [&str; 6] =
    ["198.51.100.1", "198.51.100.200", "192.0.2.1", "192.0.0.9", "127.0.0.1", "203.0.113.255"];
const V6: [&str; 4] = ["2001:db8::1", "2001:db8:bad::1", "::ffff:192.0.2.1", "64:ff9b::192.0.0.9"];
const PREFIXES: [&str; 4] =
    ["64:ff9b::/96", "2001:db8:64::/96", "2001:db8:122::/48", "2001:db8:7::/64"];

/// What a server says to one question.
#[derive(Clone, Debug)]
enum Says {
    /// These addresses, with a TTL.
    Found(Vec<&'static str>, u32),
    /// None; TTL and minimum of the SOA.
    Empty(Option<(u32, u32)>),
    Code(u8),
    Silence,
}

impl Says {
    fn draw(draw: &mut Draw, addresses: &[&'static str]) -> Says {
        match draw.below(10) {
            0..5 => Says::Found(draw.some(addresses), draw.of(&[0, 5, 300, 100_000])),
            5..7 => Says::Empty(Some((draw.of(&[0, 7, 900]), draw.of(&[3, 60, 9000])))),
            7 => Says::Empty(None),
            8 => Says::Code(draw.of(&[1, 2, 3, 4, 5, 9])),
            _ => Says::Silence,
        }
    }

    fn text(&self, kind: &str) -> String {
        match self {
            Says::Found(addresses, ttl) => {
                let lines =
                    addresses.iter().map(|it| format!("\nw.example.net. {ttl} {kind} {it}"));
                "NOERROR".to_owned() + &lines.collect::<String>()
            }
            Says::Empty(None) => "NOERROR".to_owned(),
            Says::Empty(Some((ttl, minimum))) => {
                format!("NOERROR\n! example.net. {ttl} SOA a.net. b.net. 1 2 3 4 {minimum}")
            }
            Says::Code(3) => "NXDOMAIN".to_owned(),
            Says::Code(code) => code.to_string(),
            Says::Silence => "TIMEOUT".to_owned(),
        }
    }

    fn code(&self) -> u16 {
        match self {
            Says::Code(code) => u16::from(*code),
            Says::Silence => 2,
            _ => 0,
        }
    }
}

type Found = (u16, BTreeSet<(Ipv6Addr, u32)>);

fn nothing(code: u16) -> Found {
    (code, BTreeSet::new())
}

/// RFC 6147 section 5.1, step by step and without any cleverness.
fn model(policy: &Policy, synthesise: bool, aaaa: &Says, a: &Says) -> Found {
    let parse = |it: &&str| it.parse::<Ipv6Addr>().unwrap();
    if !synthesise {
        return match aaaa {
            Says::Found(list, ttl) => (0, list.iter().map(|it| (parse(it), *ttl)).collect()),
            other => nothing(other.code()),
        };
    }
    // 5.1.2
    if let Says::Code(3) = aaaa {
        return nothing(3);
    }
    // 5.1.1, 5.1.4
    if let Says::Found(list, ttl) = aaaa {
        let usable: BTreeSet<(Ipv6Addr, u32)> = (list.iter().map(parse))
            .filter(|v6| policy.exclude.iter().all(|net| !net.contains(v6)))
            .map(|v6| (v6, *ttl))
            .collect();
        if !usable.is_empty() {
            return (0, usable);
        }
    }
    // 5.4: the answer to the original query, unless it must not be returned.
    let without = match aaaa {
        Says::Found(..) => nothing(0),
        other => nothing(other.code()),
    };
    // 5.1.6
    let Says::Found(list, ttl) = a else {
        return if matches!(a, Says::Empty(_)) { without } else { nothing(a.code()) };
    };
    // 5.1.7
    let limit = match aaaa {
        Says::Empty(Some((ttl, minimum))) => *ttl.min(minimum),
        _ => 600,
    };
    let mut pool6 = policy.pool6.clone();
    if pool6.is_empty() {
        pool6.push(PREFIXES[0].parse().unwrap());
    }
    let mut found = BTreeSet::new();
    for v4 in list.iter().map(|it| it.parse::<Ipv4Addr>().unwrap()) {
        let excluded = policy.exclude_a.iter().any(|net| net.contains(&v4));
        for prefix in &pool6 {
            // RFC 6052 section 3.1; 192.0.0.9 is the only one here that is global.
            let global = v4 == Ipv4Addr::new(192, 0, 0, 9);
            let allowed = !prefix.is_well_known() || global || policy.allow_private;
            if !excluded && allowed && !v4.is_loopback() {
                found.insert((prefix.embed(v4), *ttl.min(&limit)));
            }
        }
    }
    if found.is_empty() { without } else { (0, found) }
}

fn addresses(message: &Message) -> Found {
    let records = message.answers.iter();
    let found = records.map(|record| match record.data {
        RData::AAAA(v6) => (v6.0, record.ttl),
        ref other => panic!("{other}"),
    });
    (ResponseCode::into(message.metadata.response_code), found.collect())
}

#[test]
fn agrees_with_the_rfc_read_aloud() {
    let mut draw = Draw(1);
    let mut synthetic = 0;
    for round in 0..30_000 {
        let mut policy = Policy { enabled: !draw.one_in(10), ..Policy::default() };
        if !draw.one_in(4) {
            policy.pool6 = draw.some(&PREFIXES).iter().map(|it| it.parse().unwrap()).collect();
        }
        if draw.one_in(3) {
            policy.exclude.push("2001:db8:bad::/48".parse().unwrap());
        }
        if draw.one_in(5) {
            policy.exclude.clear();
        }
        if draw.one_in(3) {
            policy.exclude_a.push("198.51.100.0/25".parse().unwrap());
        }
        if draw.one_in(10) {
            policy.exempt = Names::from_iter([name("example.net.")]);
        }
        policy.allow_private = draw.one_in(2);
        let words = draw.of(&["", " edns", " do", " cd", " do cd"]);
        let (aaaa, a) = (Says::draw(&mut draw, &V6), Says::draw(&mut draw, &V4));

        let replies =
            [("AAAA w.example.net.", &*aaaa.text("AAAA")), ("A w.example.net.", &*a.text("A"))];
        let asked = query(&format!("AAAA w.example.net.{words}"));
        let response = World::new(&replies).resolve(&policy, &asked);
        let exempt = policy.exempt.cover(&name("example.net."));
        let synthesise = policy.enabled && words != " do cd" && !exempt;
        let expected = model(&policy, synthesise, &aaaa, &a);
        assert_eq!(
            addresses(&response.message),
            expected,
            "round {round}: {words} {aaaa:?} {a:?} {policy:?}"
        );
        let shortest = response.message.answers.iter().map(|record| record.ttl).min();
        assert!(response.lifetime <= shortest.unwrap_or(u32::MAX), "round {round}");
        synthetic += u32::from(response.kind == crate::Kind::Synthetic);
    }
    assert!(synthetic > 3000, "{synthetic}: what matters was hardly drawn");
}
