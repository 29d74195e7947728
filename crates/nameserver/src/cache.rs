//! Ready answers by what was asked.

use std::rc::Rc;

use foldhash::fast::RandomState;
use quick_cache::unsync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};

use super::query::{MAX_NAME, Query};
use super::ready::Ready;

/// Policy, type, bits.
const FIXED: usize = 4 + 2 + 1;

/// The key of an answer: the client's policy, the name without regard to case, the type, and those bits of a query that
/// change its answer.
#[derive(Clone, Copy)]
pub(super) struct Key {
    octets: [u8; FIXED + MAX_NAME],
    len: usize,
}

impl Key {
    /// The key of a query under a policy.
    pub(super) fn new(policy: usize, query: &Query<'_>) -> Self {
        let mut octets = [0; FIXED + MAX_NAME];
        let bits = u8::from(query.recursion_desired())
            | u8::from(query.authentic_data()) << 1
            | u8::from(query.checking_disabled()) << 2
            | u8::from(query.dnssec_ok()) << 3
            | u8::from(query.edns.is_some()) << 4;
        octets[..4].copy_from_slice(&(policy as u32).to_be_bytes());
        octets[4..6].copy_from_slice(&query.record_type.to_be_bytes());
        octets[6] = bits;
        let name = query.name();
        let len = FIXED + name.len();
        let lower = &mut octets[FIXED..len];
        lower.copy_from_slice(name);
        // Lengths of labels are below 64, so no letter: the name may be taken as text.
        lower.make_ascii_lowercase();
        Key { octets, len }
    }

    /// The name asked for, in lower case.
    pub(super) fn name(&self) -> &[u8] {
        &self.octets[FIXED..self.len]
    }

    fn as_slice(&self) -> &[u8] {
        &self.octets[..self.len]
    }
}

/// The encoded answers of one thread, of one generation of settings, within a bound of memory; frequent ones stay.
pub(super) struct ReadyCache {
    generation: u64,
    entries: Cache<Box<[u8]>, Rc<Ready>, Octets, RandomState>,
}

#[derive(Clone)]
struct Octets;

impl Weighter<Box<[u8]>, Rc<Ready>> for Octets {
    fn weight(&self, key: &Box<[u8]>, ready: &Rc<Ready>) -> u64 {
        // The counts of the Rc, the pointers to both, and the place in table and queue.
        const REST: usize = 96;
        (key.len() + ready.memory() + REST) as u64
    }
}

impl ReadyCache {
    /// An empty cache for so many octets.
    pub(super) fn new(octets: usize) -> Self {
        /// What an answer and its key are expected to take.
        const TYPICAL: usize = 400;
        /// Share of the memory for answers that were used more than once. New ones have the rest: much, since a name is
        /// often asked for again within seconds and then no more.
        const HOT: f64 = 0.6;
        let options = OptionsBuilder::new()
            .estimated_items_capacity(octets / TYPICAL)
            .weight_capacity(octets as u64)
            .hot_allocation(HOT)
            .build()
            .expect("all that has no default is given");
        let entries = Cache::with_options(
            options,
            Octets,
            RandomState::default(),
            DefaultLifecycle::default(),
        );
        ReadyCache { generation: 0, entries }
    }

    /// Forgets everything that was made under another generation of settings.
    pub(super) fn enter(&mut self, generation: u64, octets: usize) {
        if self.generation != generation {
            *self = ReadyCache { generation, ..ReadyCache::new(octets) };
        }
    }

    /// The answer made under `generation`, if there is one and it is fresh.
    pub(super) fn get(&mut self, generation: u64, key: &Key, now: u64) -> Option<&Rc<Ready>> {
        if self.generation != generation {
            return None;
        }
        let is_stale = |ready: &Rc<Ready>| !ready.is_fresh(now);
        if self.entries.peek(key.as_slice()).is_some_and(is_stale) {
            self.entries.remove(key.as_slice());
        }
        self.entries.get(key.as_slice())
    }

    /// Keeps an answer that was made under `generation`.
    pub(super) fn insert(&mut self, generation: u64, key: &Key, ready: Rc<Ready>) {
        if self.generation == generation {
            self.entries.insert(key.as_slice().into(), ready);
        }
    }
}

#[cfg(test)]
mod tests {
    use hickory_proto::op::{Message, MessageType, OpCode};
    use hickory_proto::rr::{Name, RecordType};

    use super::*;
    use crate::query::HEADER;

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

    fn ready(expires: u64) -> Rc<Ready> {
        let message = asked(0).into_response();
        Rc::new(Ready::encode(&message, 1232, 0, expires).unwrap())
    }

    fn cache(octets: usize) -> ReadyCache {
        let mut cache = ReadyCache::new(0);
        cache.enter(1, octets);
        cache
    }

    #[test]
    fn until_it_expires() {
        let mut cache = cache(100_000);
        let key = key(0, &asked(1));
        cache.insert(1, &key, ready(5000));
        assert!(cache.get(1, &key, 4999).is_some());
        assert!(cache.get(1, &key, 5000).is_none());
        assert_eq!(cache.entries.len(), 0, "and its memory is free");
    }

    #[test]
    fn of_one_generation_of_settings() {
        let mut cache = cache(100_000);
        let key = key(0, &asked(1));
        cache.insert(1, &key, ready(5000));
        assert!(cache.get(2, &key, 0).is_none(), "the settings have changed, the thread not yet");
        cache.enter(1, 100_000);
        assert!(cache.get(1, &key, 0).is_some());
        cache.enter(2, 100_000);
        assert!(cache.get(2, &key, 0).is_none());
        cache.insert(1, &key, ready(5000));
        assert!(cache.get(2, &key, 0).is_none(), "an answer that comes late");
    }

    #[test]
    fn within_its_memory() {
        let mut cache = cache(100_000);
        for number in 0..10_000 {
            cache.insert(1, &key(0, &asked(number)), ready(5000));
            assert!(cache.entries.weight() <= 100_000);
        }
        assert!(cache.entries.weight() > 50_000);
        // The last few hundred octets' worth of them are there, however many have come before.
        let found = (9_900..10_000).filter(|n| cache.get(1, &key(0, &asked(*n)), 0).is_some());
        assert!(found.count() > 50);
    }

    #[test]
    fn no_memory_no_cache() {
        let mut cache = cache(0);
        cache.insert(1, &key(0, &asked(1)), ready(5000));
        assert!(cache.get(1, &key(0, &asked(1)), 0).is_none());
    }

    #[test]
    fn what_answers_are_told_apart_by() {
        let plain = asked(1);
        let same =
            |other: &Message, policy| key(policy, other).as_slice() == key(0, &plain).as_slice();
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
}
