//! Answers that are kept, within a bound of octets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use foldhash::quality::RandomState;
use hickory_proto::op::Message;
use hickory_proto::rr::{RData, Record};
use hickory_proto::serialize::binary::BinEncodable;
use quick_cache::sync::{self, EntryAction};
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};

use super::answer::{Answer, Kept, Outcome, is_failure};
use super::error::LookupError;
use super::key::{self, Key};
use super::lifetime;
use super::selection::Selection;
use super::stale;

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

/// Answers by question.
#[derive(Debug)]
pub(super) struct Cache {
    kept: sync::Cache<Key, Entry, Octets, RandomState, Evictions>,
    evictions: Evictions,
    /// How often something was flushed.
    flushes: AtomicU64,
    /// How long answers are of use after they have expired.
    stale: Duration,
}

#[derive(Clone, Debug)]
struct Entry {
    outcome: Outcome,
    expires: Instant,
    /// How many failures there have been in a row, this one included.
    failures: u32,
    /// The answer before a failure, which may be given in its place.
    before: Option<Arc<Answer>>,
    /// Until when servers are not asked again where there is a stale answer, because they have failed or take too long.
    recheck: Option<Instant>,
}

impl Cache {
    /// A cache for so many octets; `stale`: how long answers are of use after they have expired.
    pub(super) fn new(octets: usize, stale: Duration) -> Self {
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
        Self { kept, evictions, flushes: AtomicU64::new(0), stale }
    }

    /// What is known of a question at this moment, and holds for `ahead` still.
    pub(super) fn get(&self, key: &[u8], now: Instant, ahead: Duration) -> Option<Outcome> {
        self.kept.get(key).filter(|entry| now + ahead < entry.expires).map(|entry| entry.outcome)
    }

    /// What a client is told without a question to servers: what [holds](Cache::get), or an answer that has expired if servers
    /// are not to be asked now; with whether it has expired.
    pub(super) fn known(
        &self,
        key: &[u8],
        now: Instant,
        ahead: Duration,
    ) -> Option<(Outcome, bool)> {
        let entry = self.kept.get(key)?;
        let waits = entry.recheck.is_some_and(|recheck| now < recheck);
        if let Some(stale) = self.expired(&entry, now).filter(|_| waits) {
            return Some((Ok(stale::of(stale, now)), true));
        }
        (now + ahead < entry.expires).then_some((entry.outcome, false))
    }

    /// An answer that has expired, if there is one of use.
    pub(super) fn stale(&self, key: &[u8], now: Instant) -> Option<Arc<Answer>> {
        if self.stale.is_zero() {
            return None;
        }
        let entry = self.kept.peek(key)?;
        self.expired(&entry, now).map(|answer| stale::of(answer, now))
    }

    /// The answer of an entry that has expired and is of use.
    fn expired<'e>(&self, entry: &'e Entry, now: Instant) -> Option<&'e Arc<Answer>> {
        let of_use = |it: &&Arc<Answer>| it.expires <= now && now < it.expires + self.stale;
        entry.answer().or(entry.before.as_ref()).filter(of_use)
    }

    /// Servers take too long: until they have answered, or failed for good, the stale answer is given at once.
    pub(super) fn wait_for(&self, key: &Key, now: Instant) {
        // In place: an answer that comes at this moment stays as it is.
        let _result = self.kept.entry(key, None, |_, entry| {
            if self.expired(entry, now).is_some() {
                entry.recheck = Some(now + stale::RECHECK);
            }
            EntryAction::Retain(())
        });
    }

    /// How often something was flushed: an answer that was asked for before must not be kept.
    pub(super) fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::SeqCst)
    }

    /// Removes what is known of some names. How many answers that were.
    pub(super) fn flush(&self, of: &Selection) -> u64 {
        self.flushes.fetch_add(1, Ordering::SeqCst);
        let removed = AtomicU64::new(0);
        self.kept.retain(|key, _| {
            let stays = !of.has(key::name(key));
            removed.fetch_add((!stays).into(), Ordering::Relaxed);
            stays
        });
        removed.into_inner()
    }

    /// What is known of some names.
    pub(super) fn iter<'a>(&'a self, of: &'a Selection) -> impl Iterator<Item = Kept> + 'a {
        let wanted = self.kept.iter().filter(|(key, _)| of.has(key::name(key)));
        wanted.filter_map(|(key, entry)| {
            let question = key::to_question(&key)?;
            Some(Kept { question, outcome: entry.outcome, expires: entry.expires })
        })
    }

    /// Keeps an answer for as long as it says, and a failure for a short while (RFC 9520), unless something was flushed
    /// since `flushes`. An answer that has expired stays beside a failure for as long as it is of use.
    pub(super) fn insert(&self, key: &Key, outcome: &Outcome, now: Instant, flushes: u64) {
        let failed = match outcome {
            Ok(answer) => is_failure(answer),
            Err(LookupError::Busy) => return,
            Err(_) => true,
        };
        let entry = if failed {
            let last = self.kept.peek(&**key);
            // What fails does not displace an answer that holds (RFC 8767 section 4).
            let recheck = Some(now + stale::RECHECK);
            match last {
                Some(last) if last.answer().is_some() && now < last.expires => {
                    Entry { recheck, ..last }
                }
                last => {
                    let before = last.as_ref().and_then(|last| self.expired(last, now)).cloned();
                    let last = last.filter(|entry| now < entry.expires + RECENT);
                    let earlier = last.map_or(0, |entry| entry.failures);
                    Entry {
                        outcome: outcome.clone(),
                        expires: now + lifetime::of_failure(earlier),
                        failures: earlier.saturating_add(1),
                        before: before.filter(|_| stale::may_replace(outcome)),
                        recheck,
                    }
                }
            }
        } else {
            let expires = outcome.as_ref().map_or(now, |answer| answer.expires);
            if expires <= now {
                return;
            }
            Entry { outcome: outcome.clone(), expires, failures: 0, before: None, recheck: None }
        };
        self.kept.insert(Arc::clone(key), entry);
        // A flush that has begun before this may have passed the key's place already.
        if self.flushes() != flushes {
            self.kept.remove(&**key);
        }
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

impl Entry {
    /// The answer, unless it is a failure.
    fn answer(&self) -> Option<&Arc<Answer>> {
        self.outcome.as_ref().ok().filter(|answer| !is_failure(answer))
    }
}

#[derive(Clone, Debug)]
struct Octets;

impl Weighter<Key, Entry> for Octets {
    fn weight(&self, key: &Key, entry: &Entry) -> u64 {
        let answers = entry.outcome.iter().chain(&entry.before);
        let messages: usize = answers.map(|answer| octets(&answer.message)).sum();
        (ENTRY_OCTETS + key.len() + messages) as u64
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
        let cache = Cache::new(4 << 20, Duration::ZERO);
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
        (0..40_000).for_each(|number| cache.insert(&key(number), &outcome, now, 0));
        let held = u32::try_from(cache.len()).unwrap();
        let new = 40_000..40_000 + held / 5;
        new.clone().for_each(|number| cache.insert(&key(number), &outcome, now, 0));
        let found = new
            .clone()
            .filter(|number| cache.get(&key(*number), now, Duration::ZERO).is_some())
            .count();
        assert!(found > new.len() * 9 / 10, "{found} of {} new answers, {held} held", new.len());
        assert!(cache.octets() <= 4 << 20);
    }
}
