use std::sync::Barrier;

use hickory_proto::op::{Message, MessageType, OpCode};
use hickory_proto::rr::{Name, RecordType};

use super::super::extras::Extras;
use super::super::query::HEADER;
use super::super::ready::{Asked, Form};
use super::*;

fn asked(number: usize) -> Message {
    let mut message = Message::new(1, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    let name = Name::from_ascii(format!("Host{number}.example.net.")).unwrap();
    message.add_query(hickory_proto::op::Query::query(name, RecordType::AAAA));
    message
}

fn key(policy: usize, message: &Message) -> Key {
    let octets = message.to_vec().unwrap();
    Key::new(policy, &Query::read(&octets).unwrap())
}

fn ready(number: usize, expires: u64) -> Ready {
    Ready::encode(&asked(number).into_response(), 1232, 0, expires).unwrap()
}

fn has(cache: &ReadyCache, number: usize, now: u64) -> bool {
    cache.read(&key(0, &asked(number)), now, |_| ()).is_some()
}

fn keep(cache: &ReadyCache, number: usize, expires: u64, now: u64) {
    cache.insert(&key(0, &asked(number)), ready(number, expires), now, 0);
}

/// What the queues have, and what they say that it takes.
fn contents(cache: &ReadyCache) -> (usize, usize) {
    let queues = cache.shards.iter().map(|shard| shard.0.lock().unwrap());
    queues.fold((0, 0), |(keys, octets), it| (keys + it.keys.len(), octets + it.octets))
}

/// Keys, octets and answers agree.
fn check(cache: &ReadyCache) {
    let (keys, octets) = contents(cache);
    let guard = cache.entries.guard();
    let kept = cache.entries.iter(&guard).map(|(key, kept)| weight(key, &kept.ready));
    assert_eq!(octets, kept.sum::<usize>());
    assert_eq!(keys, cache.entries.len());
    for shard in &cache.shards {
        assert!(shard.0.lock().unwrap().octets <= cache.share);
    }
}

#[test]
fn until_it_expires() {
    let cache = ReadyCache::new(0);
    keep(&cache, 1, 5000, 0);
    assert!(has(&cache, 1, 4999));
    assert!(!has(&cache, 1, 5000));
    // Another one takes its place.
    keep(&cache, 1, 9000, 5000);
    assert!(has(&cache, 1, 5000));
    assert_eq!(contents(&cache).0, 1);
    check(&cache);
}

#[test]
fn what_is_flushed_is_gone_and_what_was_begun_before_does_not_come() {
    let cache = ReadyCache::new(0);
    (0..20).for_each(|number| keep(&cache, number, 100, 0));
    let name = |text: &str| Name::from_ascii(text).unwrap();
    let one = Selection::new(&name("HOST3.example.net."), false);
    assert_eq!(cache.flush(&one), 1);
    check(&cache);
    assert!(!has(&cache, 3, 0) && has(&cache, 4, 0));
    // Begun before the flush, and ready only now.
    keep(&cache, 3, 100, 0);
    assert!(!has(&cache, 3, 0));
    cache.insert(&key(0, &asked(3)), ready(3, 100), 0, cache.flushes());
    assert!(has(&cache, 3, 0));
    assert_eq!(cache.flush(&Selection::new(&name("other.net."), true)), 0);
    assert_eq!(cache.flush(&Selection::new(&name("net."), true)), 20);
    check(&cache);
    assert_eq!(contents(&cache), (0, 0));
}

#[test]
fn one_is_told_to_make_a_used_answer_anew_in_its_last_tenth() {
    let cache = ReadyCache::new(0);
    let due = |number: usize, now| cache.read(&key(0, &asked(number)), now, |_| ()).unwrap();
    keep(&cache, 1, 100_000, 0);
    assert_eq!(due(1, 95_000), None, "it is used for the first time");
    assert_eq!(due(1, 89_999), None);
    assert_eq!(due(1, 90_000), Some(100_000));
    assert_eq!(due(1, 95_000), None, "somebody else was told so");
    keep(&cache, 1, 200_000, 0);
    assert_eq!([due(1, 185_000), due(1, 185_000)], [None, Some(200_000)]);
    // Not what lives for less than ten seconds.
    keep(&cache, 2, 9_999, 0);
    assert_eq!([due(2, 9_998), due(2, 9_998)], [None, None]);
}

#[test]
fn within_its_memory() {
    let cache = ReadyCache::new(0);
    for number in 0..10_000 {
        keep(&cache, number, 5000, 0);
        assert!(contents(&cache).1 <= LEAST);
    }
    check(&cache);
    assert!(contents(&cache).1 > LEAST / 10 * 9);
    // What came last is there, however many have come before.
    assert!((9_000..10_000).all(|number| has(&cache, number, 0)));
    assert!(!(0..1_000).any(|number| has(&cache, number, 0)));
}

#[test]
fn what_is_used_stays() {
    let cache = ReadyCache::new(0);
    (0..200).for_each(|number| keep(&cache, number, u64::MAX, 0));
    for number in 1_000..12_000 {
        keep(&cache, number, u64::MAX, 0);
        assert!(has(&cache, number % 200, 0), "{number}");
    }
    check(&cache);
}

#[test]
fn what_has_expired_goes_though_it_was_used() {
    let cache = ReadyCache::new(0);
    for number in 0..500 {
        keep(&cache, number, 5000, 0);
        assert!(has(&cache, number, 0));
    }
    (1_000..9_000).for_each(|number| keep(&cache, number, u64::MAX, 5000));
    let guard = cache.entries.guard();
    let left =
        (0..500).filter(|it| cache.entries.contains_key(key(0, &asked(*it)).as_slice(), &guard));
    assert_eq!(left.count(), 0);
    drop(guard);
    check(&cache);
}

#[test]
fn an_answer_longer_than_a_shard_is_not_kept_and_evicts_nothing() {
    let cache = ReadyCache::new(0);
    assert!(cache.share > super::super::query::MAX_MESSAGE);
    let small = ReadyCache { share: 100, ..ReadyCache::new(0) };
    keep(&small, 1, 5000, 0);
    assert_eq!(contents(&small).0, 0);
}

#[test]
fn shards_by_size() {
    for (octets, shards) in [(0, 4), (1 << 20, 4), (8 << 20, 32), (32 << 20, 64), (1 << 30, 64)] {
        let cache = ReadyCache::new(octets);
        assert_eq!(cache.shards.len(), shards, "{octets}");
        assert_eq!(cache.share * shards, octets.max(LEAST));
    }
}

#[test]
fn threads_share_it() {
    const THREADS: usize = 4;
    const NAMES: usize = 6_000;
    let cache = ReadyCache::new(0);
    let begin = Barrier::new(THREADS);
    let hits: usize = std::thread::scope(|scope| {
        let run = |thread: usize| {
            let (cache, begin) = (&cache, &begin);
            move || {
                begin.wait();
                let (mut at, mut hits) = (thread as u64 + 1, 0);
                for _ in 0..5_000 {
                    // xorshift64, with a seed for each thread.
                    at ^= at << 13;
                    at ^= at >> 7;
                    at ^= at << 17;
                    let number = at as usize % NAMES;
                    let asked = asked(number);
                    let key = key(0, &asked);
                    let mut out = Vec::new();
                    let write = |ready: &Ready| {
                        let query = Asked { id: 1, question: &[], extras: Extras::default() };
                        ready.write(&query, Form::Stream(None), 0, &mut out);
                    };
                    match cache.read(&key, 0, write) {
                        Some(_) => {
                            hits += 1;
                            let answer = Message::from_vec(&out).unwrap();
                            assert_eq!(answer.queries, asked.queries, "the answer of its key");
                        }
                        None => cache.insert(&key, ready(number, u64::MAX), 0, 0),
                    }
                }
                hits
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(run(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(hits > 0);
    check(&cache);
}

#[test]
fn what_answers_are_told_apart_by() {
    let plain = asked(1);
    let same = |other: &Message, policy| key(policy, other).as_slice() == key(0, &plain).as_slice();
    assert!(same(&plain, 0));
    assert!(!same(&plain, 1));
    assert!(!same(&asked(2), 0));
    let mut upper = plain.clone();
    upper.queries[0].name = Name::from_ascii("HOST1.EXAMPLE.NET.").unwrap();
    assert!(same(&upper, 0), "case is none of it");
    for change in 0..5 {
        let mut other = plain.clone();
        match change {
            0 => other.metadata.recursion_desired = false,
            1 => other.metadata.authentic_data = true,
            2 => other.metadata.checking_disabled = true,
            3 => other.edns = Some(hickory_proto::op::Edns::new()),
            _ => other.queries[0].query_type = RecordType::A,
        }
        assert!(!same(&other, 0), "{change}");
    }
    let mut edns = plain.clone();
    edns.edns = Some(hickory_proto::op::Edns::new());
    let mut dnssec = edns.clone();
    dnssec.edns.as_mut().unwrap().set_dnssec_ok(true);
    assert_ne!(key(0, &edns).as_slice(), key(0, &dnssec).as_slice());
}

#[test]
fn the_name_is_in_lower_case() {
    let octets = asked(1).to_vec().unwrap();
    let name = &octets[HEADER..octets.len() - 4];
    assert_eq!(key(0, &asked(1)).name(), name.to_ascii_lowercase());
}
