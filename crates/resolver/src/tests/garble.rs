//! Responses that are not quite right: whatever their octets, they are read, cleaned and kept without a panic.

use std::time::Instant;

use hickory_proto::rr::rdata::{MX, SRV};

use super::super::cache::Cache;
use super::super::clean::clean;
use super::super::key::KeyBuf;
use super::super::lifetime;
use super::super::query::{Match, Query, Style};
use super::fake::respond;
use super::signed::Tree;
use super::*;

/// A generator of numbers that are the same in each run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// Changes a message here and there.
fn garble(octets: &mut Vec<u8>, numbers: &mut Numbers) {
    for _ in 0..=numbers.below(4) {
        let (place, other) = (numbers.below(octets.len()), numbers.below(octets.len()));
        match numbers.below(8) {
            _ if octets.is_empty() => {}
            0 => octets.truncate(place),
            1 => octets[place] ^= 1 << numbers.below(8),
            2 => octets[place] = numbers.next() as u8,
            // A pointer to somewhere.
            3 if place + 1 < octets.len() => {
                octets[place] = 0xc0;
                octets[place + 1] = other as u8;
            }
            4 => octets.insert(place, numbers.next() as u8),
            5 => drop(octets.drain(place.min(other)..place.max(other))),
            6 => octets.extend_from_within(place.min(other)..place.max(other)),
            // A length or a count.
            _ => octets[place] = [0, 1, 0x7f, 0xff][numbers.below(4)],
        }
    }
}

/// What is done with a response to `question`. Whether something was kept of it.
fn take_in(question: &Question, query: &Query, octets: &mut [u8], cache: &Cache) -> bool {
    if !matches!(query.matches(octets), Match::Answers | Match::ErrorWithoutQuestion) {
        return false;
    }
    query.lower_question(octets);
    let Ok(mut message) = Message::from_vec(octets) else { return false };
    clean(&mut message, question);
    let lifetime = lifetime::of_answer(&message, question.record_type);
    assert!(lifetime <= Duration::from_secs(86_400));
    let fetched = Instant::now();
    let security = super::super::Security::Unchecked;
    let answer = Answer { message, fetched, expires: fetched + lifetime, security };
    let later = answer.message_at(fetched + Duration::from_secs(7));
    // Records that can be read but not written are the writer's to report.
    let _ = later.to_vec();
    let key = KeyBuf::new(question, false).unwrap().to_key();
    cache.insert(&key, &Ok(Arc::new(answer)), fetched, 0);
    true
}

fn rounds(count: usize) {
    let tree = Tree::new();
    let services = |message: &mut Message| {
        let owner = message.queries[0].name().clone();
        for data in [
            RData::MX(MX::new(10, name("mail.example.net."))),
            RData::SRV(SRV::new(1, 2, 443, name("mail.example.net."))),
        ] {
            message.answers.push(Record::from_rdata(owner.clone(), 300, data));
        }
        message.additionals.push(address("mail.example.net.", 1));
    };
    let cache = Cache::new(1 << 20, Duration::ZERO);
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let mut subjects = Vec::new();
    for (owner, kind) in [
        ("www.example.net.", RecordType::A),
        ("far.example.net.", RecordType::AAAA),
        ("www.old.example.net.", RecordType::A),
        ("example.net.", RecordType::MX),
        ("example.net.", RecordType::ANY),
    ] {
        let question = Question { dnssec_ok: true, ..key::question(name(owner), kind) };
        let key = KeyBuf::new(&question, false).unwrap();
        let style = Style { mixed_case: true, edns: true, padded: false };
        let query = Query::new(key.as_octets(), style).unwrap();
        let response = match kind {
            RecordType::MX | RecordType::ANY => respond(query.as_octets(), services),
            _ => respond(query.as_octets(), |message| tree.answer(message)),
        };
        assert!(take_in(&question, &query, &mut response.clone(), &cache), "{owner} {kind}");
        subjects.push((question, query, response));
    }
    let mut kept = 0;
    for round in 0..count {
        let (question, query, response) = &subjects[round % subjects.len()];
        let mut octets = response.clone();
        garble(&mut octets, &mut numbers);
        kept += usize::from(take_in(question, query, &mut octets, &cache));
    }
    assert!(kept > count / 100, "{kept} of {count} got far enough to matter");
}

#[test]
fn garbled_responses_do_no_harm() {
    rounds(20_000);
}

#[test]
#[ignore = "takes minutes"]
fn very_many_garbled_responses_do_no_harm() {
    rounds(5_000_000);
}
