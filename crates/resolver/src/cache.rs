//! Answers that are kept, within a bound of octets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use foldhash::quality::RandomState;
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{RData, Record};
use hickory_proto::serialize::binary::BinEncodable;
use quick_cache::sync;
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};

use super::answer::Answer;
use super::error::LookupError;
use super::key::Key;
use super::lifetime;

/// A failure so soon after another makes a row of them.
const RECENT: Duration = Duration::from_secs(30);
/// The share of the cache for answers that were asked for more than once; what is new has the rest before it has to go.
/// Names are asked for in bursts, so what is new needs much more room than the library gives it by itself.
const HOT: f64 = 0.5;
/// What a kept answer takes at least: the tables of the cache, the key, the message without records.
const ENTRY_OCTETS: usize = 512;
/// What an answer takes as a rule; the cache prepares its tables for as many as fit.
const USUAL_OCTETS: usize = 1200;
/// What a record takes beside its own size, for names and data on the heap.
const RECORD_HEAP: usize = 64;

/// What became of a question.
pub(super) type Outcome = Result<Arc<Answer>, LookupError>;

/// Answers by question.
#[derive(Debug)]
pub(super) struct Cache {
    kept: sync::Cache<Key, Entry, Octets, RandomState, Evictions>,
    evictions: Evictions,
}

#[derive(Clone, Debug)]
struct Entry {
    outcome: Outcome,
    expires: Instant,
    /// How many failures there have been in a row, this one included.
    failures: u32,
}

impl Cache {
    /// A cache for so many octets.
    pub(super) fn new(octets: usize) -> Self {
        let evictions = Evictions::default();
        let items = (octets / USUAL_OCTETS).max(1);
        let octets = octets as u64;
        let options = OptionsBuilder::new()
            .estimated_items_capacity(items)
            .weight_capacity(octets)
            .hot_allocation(HOT)
            .build()
            // The two that have no default are given, and the share is one.
            .unwrap_or_else(|error| unreachable!("{error:?}"));
        let state = RandomState::default();
        let kept = sync::Cache::with_options(options, Octets, state, evictions.clone());
        Self { kept, evictions }
    }

    /// What is known of a question at this moment.
    pub(super) fn get(&self, key: &[u8], now: Instant) -> Option<Outcome> {
        self.kept.get(key).filter(|entry| now < entry.expires).map(|entry| entry.outcome)
    }

    /// Keeps an answer for as long as it says, and a failure for a short while (RFC 9520).
    pub(super) fn insert(&self, key: Key, outcome: &Outcome, now: Instant) {
        let failed = match outcome {
            Ok(answer) => is_failure(answer),
            Err(LookupError::Busy) => return,
            Err(_) => true,
        };
        let entry = if failed {
            let last = self.kept.peek(&*key).filter(|entry| now < entry.expires + RECENT);
            let earlier = last.map_or(0, |entry| entry.failures);
            let expires = now + lifetime::of_failure(earlier);
            Entry { outcome: outcome.clone(), expires, failures: earlier.saturating_add(1) }
        } else {
            let expires = outcome.as_ref().map_or(now, |answer| answer.expires);
            if expires <= now {
                return;
            }
            Entry { outcome: outcome.clone(), expires, failures: 0 }
        };
        self.kept.insert(key, entry);
    }

    /// How many answers there are.
    pub(super) fn len(&self) -> u64 {
        self.kept.len() as u64
    }

    /// What they take.
    pub(super) fn octets(&self) -> u64 {
        self.kept.weight()
    }

    /// How many had to go to make room.
    pub(super) fn evictions(&self) -> u64 {
        self.evictions.0.load(Ordering::Relaxed)
    }
}

/// Whether an answer is one that may be another in a moment.
fn is_failure(answer: &Answer) -> bool {
    use fordway_dns64::Security;
    let code = answer.message.response_code;
    ![ResponseCode::NoError, ResponseCode::NXDomain, ResponseCode::YXDomain].contains(&code)
        || answer.security == Security::Bogus
}

#[derive(Clone, Debug)]
struct Octets;

impl Weighter<Key, Entry> for Octets {
    fn weight(&self, key: &Key, entry: &Entry) -> u64 {
        let message = entry.outcome.as_ref().map_or(0, |answer| octets(&answer.message));
        (ENTRY_OCTETS + key.len() + message) as u64
    }
}

/// About what a message takes in memory.
fn octets(message: &Message) -> usize {
    let sections = [&message.answers, &message.authorities, &message.additionals];
    let records: usize = sections.into_iter().flatten().map(record_octets).sum();
    let options = message.edns.as_ref().map_or(0, |edns| {
        edns.options().as_ref().iter().map(|(_, option)| 64 + usize::from(option.len())).sum()
    });
    records + options
}

fn record_octets(record: &Record) -> usize {
    let data = match &record.data {
        // These lie in the record itself.
        RData::A(_) | RData::AAAA(_) => 0,
        RData::CNAME(alias) => alias.0.len(),
        // Twice its length on the wire: vectors of vectors, spare capacity.
        data => 2 * data.to_bytes().map_or(0, |octets| octets.len()),
    };
    size_of::<Record>() + RECORD_HEAP + data
}

/// Counts what had to go.
#[derive(Clone, Debug, Default)]
struct Evictions(Arc<AtomicU64>);

impl Lifecycle<Key, Entry> for Evictions {
    type RequestState = ();

    fn on_evict(&self, _state: &mut (), _key: Key, _entry: Entry) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use fordway_dns64::Security;
    use hickory_proto::rr::{Name, RecordType};

    use super::super::key::{KeyBuf, question};
    use super::*;

    #[test]
    fn new_answers_find_room_in_a_full_cache() {
        let cache = Cache::new(4 << 20);
        let now = Instant::now();
        let key = |number: u32| {
            let name = Name::from_ascii(format!("n{number}.example.net.")).unwrap();
            KeyBuf::new(&question(name, RecordType::A), false).unwrap().to_key()
        };
        let outcome = Ok(Arc::new(Answer {
            message: Message::query(),
            fetched: now,
            expires: now + Duration::from_secs(300),
            security: Security::Unchecked,
        }));
        // Names that are asked for once fill it several times over; then a fifth of what it holds is new.
        (0..40_000).for_each(|number| cache.insert(key(number), &outcome, now));
        let held = u32::try_from(cache.len()).unwrap();
        let new = 40_000..40_000 + held / 5;
        new.clone().for_each(|number| cache.insert(key(number), &outcome, now));
        let found = new.clone().filter(|number| cache.get(&key(*number), now).is_some()).count();
        assert!(found > new.len() * 9 / 10, "{found} of {} new answers, {held} held", new.len());
        assert!(cache.octets() <= 4 << 20);
    }
}
