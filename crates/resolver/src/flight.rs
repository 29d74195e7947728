//! Questions under way: each is asked once for all lookups that wait for its answer, in all threads.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasher;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use foldhash::quality::RandomState;
use tokio::sync::Notify;

use super::answer::Outcome;
use super::key::{self, Key};
use crate::shares::{Place, Shares};
use fordway_serve::Network;

/// Tables that are locked apart.
const SHARDS: usize = 16;

type Shard = HashMap<Key, Arc<Flight>, RandomState>;

/// All questions under way.
#[derive(Debug)]
pub(super) struct Flights {
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
    places: Arc<Shares>,
    most: usize,
}

/// One question under way.
#[derive(Debug, Default)]
pub(super) struct Flight {
    /// `None`: the leading lookup was dropped.
    outcome: OnceLock<Option<Outcome>>,
    ended: Notify,
}

/// What the caller is to do.
pub(super) enum Join<'a> {
    /// Ask, and give the others the outcome.
    Lead(Leader<'a>),
    /// Wait for the lookup that asks.
    Follow(Arc<Flight>),
    /// Nothing: too many questions are under way, in all, of this client, or about this zone.
    Full,
}

impl Flights {
    /// Room for so many questions.
    pub(super) fn new(most: usize) -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            hasher: RandomState::default(),
            places: Arc::default(),
            most,
        }
    }

    /// Joins the question, or takes it over, for a client if there is one.
    pub(super) fn join(&self, key: &Key, client: Option<Network>) -> Join<'_> {
        let mut shard = self.shard(key);
        match shard.entry(Arc::clone(key)) {
            Entry::Occupied(entry) => Join::Follow(Arc::clone(entry.get())),
            Entry::Vacant(place) => {
                let Some(held) = self.places.take(self.most, client, key::name(key)) else {
                    return Join::Full;
                };
                let flight = Arc::clone(place.insert(Arc::default()));
                Join::Lead(Leader { flights: self, key: Arc::clone(key), flight, _place: held })
            }
        }
    }

    /// No later lookup joins the questions under way. Lookups that wait for them already get their answers.
    pub(super) fn close(&self) {
        for shard in &self.shards {
            lock(shard).clear();
        }
    }

    /// How many questions are under way.
    pub(super) fn len(&self) -> usize {
        self.places.count()
    }

    fn shard(&self, key: &Key) -> MutexGuard<'_, Shard> {
        lock(&self.shards[self.hasher.hash_one(key) as usize % SHARDS])
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Flight {
    /// The outcome; `None`: the leading lookup was dropped without one.
    pub(super) async fn wait(&self) -> Option<Outcome> {
        loop {
            let mut ended = pin!(self.ended.notified());
            // From here on no notification is missed, so the look at the outcome may come after.
            ended.as_mut().enable();
            if let Some(outcome) = self.outcome.get() {
                return outcome.clone();
            }
            ended.await;
        }
    }
}

/// The lookup that asks.
#[derive(Debug)]
pub(super) struct Leader<'a> {
    flights: &'a Flights,
    key: Key,
    flight: Arc<Flight>,
    _place: Place,
}

impl Leader<'_> {
    /// Gives the outcome to all lookups that wait.
    pub(super) fn tell(self, outcome: &Outcome) {
        // It is set here alone, so it is not set yet.
        let _ = self.flight.outcome.set(Some(outcome.clone()));
    }
}

impl Drop for Leader<'_> {
    /// Also if the leading lookup was dropped: then one of the waiting lookups asks in its place.
    fn drop(&mut self) {
        let mut shard = self.flights.shard(&self.key);
        // After [`Flights::close`] another lookup may ask the same question.
        if shard.get(&self.key).is_some_and(|flight| Arc::ptr_eq(flight, &self.flight)) {
            shard.remove(&self.key);
        }
        drop(shard);
        let _ = self.flight.outcome.set(None);
        self.flight.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::super::error::LookupError;
    use super::*;

    fn key(text: &str) -> Key {
        Arc::from([&[0; 5][..], &[text.len() as u8], text.as_bytes(), &[0]].concat())
    }

    #[tokio::test]
    async fn whoever_waits_is_told() {
        let flights = Flights::new(10);
        let Join::Lead(leader) = flights.join(&key("a"), None) else { panic!("nobody asks yet") };
        let waiting = [(); 2].map(|()| match flights.join(&key("a"), None) {
            Join::Follow(flight) => flight,
            _ => panic!("somebody asks already"),
        });
        let tell = async { leader.tell(&Err(LookupError::Timeout)) };
        let (first, second, ()) = tokio::join!(waiting[0].wait(), waiting[1].wait(), tell);
        assert_eq!(first.unwrap().unwrap_err(), LookupError::Timeout);
        assert_eq!(second.unwrap().unwrap_err(), LookupError::Timeout);
        assert_eq!(flights.len(), 0);
        assert!(matches!(flights.join(&key("a"), None), Join::Lead(_)));
    }

    #[tokio::test]
    async fn one_who_waits_learns_that_the_leader_is_gone() {
        let flights = Flights::new(10);
        let Join::Lead(leader) = flights.join(&key("a"), None) else { panic!("nobody asks yet") };
        let Join::Follow(flight) = flights.join(&key("a"), None) else { panic!("somebody asks") };
        drop(leader);
        assert!(flight.wait().await.is_none());
        assert!(matches!(flights.join(&key("a"), None), Join::Lead(_)));
    }

    #[tokio::test]
    async fn a_closed_flight_is_joined_by_nobody_and_ends_no_other() {
        let flights = Flights::new(10);
        let Join::Lead(old) = flights.join(&key("a"), None) else { panic!("nobody asks yet") };
        let Join::Follow(waiting) = flights.join(&key("a"), None) else { panic!("somebody asks") };
        flights.close();
        let Join::Lead(new) = flights.join(&key("a"), None) else { panic!("nobody may join") };
        assert_eq!(flights.len(), 2);
        old.tell(&Err(LookupError::Timeout));
        assert_eq!(waiting.wait().await.unwrap().unwrap_err(), LookupError::Timeout);
        assert!(matches!(flights.join(&key("a"), None), Join::Follow(_)), "the new one goes on");
        drop(new);
        assert_eq!(flights.len(), 0);
    }

    #[test]
    fn the_table_is_bounded_but_joining_is_free() {
        let flights = Flights::new(2);
        let asking = ["a", "b"].map(|name| match flights.join(&key(name), None) {
            Join::Lead(leader) => leader,
            _ => panic!("there is room"),
        });
        assert!(matches!(flights.join(&key("c"), None), Join::Full));
        assert!(matches!(flights.join(&key("a"), None), Join::Follow(_)));
        drop(asking);
        assert!(matches!(flights.join(&key("c"), None), Join::Lead(_)));
        assert_eq!(flights.len(), 0);
    }
}
