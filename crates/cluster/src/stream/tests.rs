//! A sender and a receiver with an unreliable way between them.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::sender::Sent;
use super::*;
use crate::record::{Member, Nanos, Octets, RecordKey, Step};
use crate::settings::{Fencing, Settings, Timing};

const OWNER: Member = Member(1);
const STANDBY: Member = Member(2);

fn settings() -> Settings {
    Settings {
        me: STANDBY,
        host: 0,
        process: 0,
        weight: 1,
        shards: 1,
        key: [5, 6],
        config: 0,
        fencing: Fencing::Any,
        timing: Timing::default(),
        queue: 2000,
        moves: 1,
        mutant: None,
    }
}

const STREAM: StreamSettings =
    StreamSettings { batch: 5, resend: 50, idle: 100, queue: 2000, flight: 8 };

fn record(key: u8, value: Option<u8>) -> Record {
    Record { key: [key; 24], value: value.map(|value| [value].into()) }
}

#[derive(Clone, Debug)]
enum Happening {
    Change(u8, Option<u8>),
    Pass(Nanos),
    /// Of the messages on their way, this one arrives, is lost, or comes twice.
    Arrive(usize),
    Lose(usize),
    Twice(usize),
    /// A chunk is read.
    Read,
}

/// In epoch 1, whose owner lives, with times of which the age is 1000.
fn is_ready(pair: &Pair) -> bool {
    let timing = Timing { ttl: 450, renew: 100, memory: 0, ..Timing::default() };
    pair.receiver.is_ready(1, pair.now, pair.now, &timing)
}

/// Both sides with their tables.
struct Pair {
    now: Nanos,
    sender: Sender,
    owner: BTreeMap<RecordKey, Octets>,
    receiver: Receiver,
    standby: BTreeMap<RecordKey, Octets>,
    to_standby: Vec<Sent>,
    to_owner: Vec<(u64, bool)>,
    reads: Vec<Option<RecordKey>>,
    /// What the owner had, after each change.
    states: Vec<(Digest, BTreeMap<RecordKey, Octets>)>,
    /// What the owner had with all that it had sent, by number of the message.
    had: BTreeMap<u64, BTreeMap<RecordKey, Octets>>,
}

fn put(table: &mut BTreeMap<RecordKey, Octets>, record: &Record) {
    match &record.value {
        Some(value) => table.insert(record.key, value.clone()),
        None => table.remove(&record.key),
    };
}

impl Pair {
    fn new() -> Pair {
        let shadow = Shadow::new([5, 6]);
        let mut sender = Sender::new(shadow.clone());
        sender.set_standby(Some((STANDBY, 1)));
        Pair {
            now: 1000,
            sender,
            owner: BTreeMap::new(),
            receiver: Receiver::new(shadow),
            standby: BTreeMap::new(),
            to_standby: Vec::new(),
            to_owner: Vec::new(),
            reads: Vec::new(),
            states: vec![Default::default()],
            had: BTreeMap::new(),
        }
    }

    fn send(&mut self, sent: Vec<Sent>) {
        for sent in sent {
            let digest = sent.digest;
            let meant = || self.states.iter().rfind(|(of, _)| *of == digest).expect("it had that");
            self.had.entry(sent.number).or_insert_with(|| meant().1.clone());
            self.to_standby.push(sent);
        }
    }

    fn tick(&mut self) {
        for action in self.sender.tick(self.now, &STREAM) {
            match action {
                SenderAction::Send(sent) => self.send(vec![sent]),
                SenderAction::Read(after, _) => self.reads.push(after),
            }
        }
    }

    fn change(&mut self, record: Record) {
        put(&mut self.owner, &record);
        self.sender.change(self.now, &STREAM, vec![record]);
        self.states.push((self.sender.shadow.digest(), self.owner.clone()));
    }

    fn read(&mut self) {
        let Some(after) = self.reads.pop() else { return };
        let rest = self.owner.iter().filter(|(key, _)| Some(**key) > after);
        // Small chunks, so that there are several.
        let most = if self.owner.len() < 100 { 3 } else { 100 };
        let all = rest.clone().map(|(key, value)| Record { key: *key, value: Some(value.clone()) });
        let records: Vec<_> = all.take(most).collect();
        let is_last = rest.count() <= most;
        let sent = self.sender.chunk(self.now, after, records, is_last);
        self.send(sent);
    }

    fn arrive(&mut self, place: usize) {
        if !self.to_standby.is_empty() {
            let sent = self.to_standby.remove(place % self.to_standby.len());
            let what = (OWNER, 1, sent.number);
            let changes =
                self.receiver.receive(self.now, &settings(), what, sent.digest, sent.step);
            changes.iter().for_each(|record| put(&mut self.standby, record));
            let (next, ready) = self.receiver.state();
            if ready {
                assert_eq!(Some(&self.standby), self.had.get(&(next - 1)), "ready is equal");
            }
            self.to_owner.push((next, ready));
        }
        if !self.to_owner.is_empty() {
            let (next, ready) = self.to_owner.remove(place % self.to_owner.len());
            self.sender.acknowledge(self.now, next, ready);
        }
    }

    fn step(&mut self, step: &Happening) {
        match *step {
            Happening::Change(key, value) => self.change(record(key, value)),
            Happening::Pass(time) => self.now += time,
            Happening::Arrive(place) => self.arrive(place),
            Happening::Lose(place) if !self.to_standby.is_empty() => {
                self.to_standby.remove(place % self.to_standby.len());
            }
            Happening::Twice(place) if !self.to_standby.is_empty() => {
                let copy = self.to_standby[place % self.to_standby.len()].clone();
                self.to_standby.push(copy);
            }
            Happening::Lose(_) | Happening::Twice(_) => {}
            Happening::Read => self.read(),
        }
        self.tick();
    }

    /// Nothing is lost any more.
    fn settle(&mut self) {
        for _ in 0..400 {
            self.now += 10;
            self.tick();
            while !self.to_standby.is_empty() || !self.to_owner.is_empty() {
                self.arrive(0);
            }
            self.read();
        }
    }
}

fn step() -> impl Strategy<Value = Happening> {
    prop_oneof![
        3 => (0_u8..9, proptest::option::of(any::<u8>())).prop_map(|(key, value)| Happening::Change(key, value)),
        2 => (1_u64..60).prop_map(Happening::Pass),
        4 => (0_usize..4).prop_map(Happening::Arrive),
        1 => (0_usize..4).prop_map(Happening::Lose),
        1 => (0_usize..4).prop_map(Happening::Twice),
        1 => Just(Happening::Read),
    ]
}

proptest! {
    /// At every number, a standby that is ready is equal; in the end it is ready and has everything.
    #[test]
    fn the_standby_catches_up_whatever_was_lost(steps in proptest::collection::vec(step(), 0..200)) {
        let mut pair = Pair::new();
        steps.iter().for_each(|step| pair.step(step));
        pair.settle();
        prop_assert_eq!(&pair.owner, &pair.standby);
        prop_assert!(is_ready(&pair));
    }
}

#[test]
fn an_equal_standby_needs_no_snapshot() {
    let mut pair = Pair::new();
    pair.change(record(1, Some(1)));
    pair.receiver.shadow.apply(&record(1, Some(1)));
    pair.standby = pair.owner.clone();
    pair.tick();
    pair.arrive(0);
    assert!(pair.sender.is_caught_up() && pair.reads.is_empty());
    assert_eq!(pair.had.len(), 1, "Begin was enough");
}

#[test]
fn what_the_snapshot_lacks_is_removed() {
    let mut pair = Pair::new();
    pair.change(record(1, Some(1)));
    for key in [2, 3] {
        pair.receiver.shadow.apply(&record(key, Some(1)));
        put(&mut pair.standby, &record(key, Some(1)));
    }
    pair.settle();
    assert_eq!(pair.standby, pair.owner);
}

#[test]
fn a_full_queue_drops_the_stream_and_begins_anew() {
    let mut pair = Pair::new();
    pair.settle();
    for n in 0..=STREAM.queue {
        let key = [(n >> 8) as u8, n as u8].repeat(12).try_into().expect("24 octets");
        pair.change(Record { key, value: Some([0].into()) });
    }
    assert_eq!(pair.sender.dropped, STREAM.queue as u64 + 1);
    assert!(!pair.sender.is_caught_up());
    pair.settle();
    assert_eq!(pair.standby.len(), pair.owner.len());
    assert!(pair.sender.is_caught_up());
}

/// A standby that takes long for each message is not given more of them, nor the same ones again and again.
#[test]
fn a_slow_standby_gets_few_messages() {
    let mut pair = Pair::new();
    for n in 0..1500_u16 {
        let key = n.to_be_bytes().repeat(12).try_into().expect("24 octets");
        pair.change(Record { key, value: Some([0].into()) });
    }
    let mut given = 0;
    while !pair.sender.is_caught_up() {
        pair.now += STREAM.resend - 1;
        let before = pair.to_standby.len();
        pair.tick();
        pair.read();
        pair.tick();
        given += pair.to_standby.len() - before;
        assert!(pair.to_standby.len() <= STREAM.flight, "{}", pair.to_standby.len());
        pair.arrive(0);
    }
    assert_eq!((pair.standby.len(), given), (1500, pair.had.len()), "each message once");
    // Of one that does not answer, more and more seldom.
    pair.settle();
    pair.change(record(1, Some(1)));
    let mut ticks = |count: u64| {
        (0..count)
            .map(|_| {
                pair.now += STREAM.resend / 10;
                pair.tick();
                pair.to_standby.drain(..).count()
            })
            .sum::<usize>()
    };
    assert_eq!([ticks(16), ticks(20), ticks(400)], [2, 1, 5]);
}

#[test]
fn what_is_not_sent_yet_is_no_divergence() {
    let mut pair = Pair::new();
    pair.settle();
    // More than a message has room for.
    for n in 0..600_u16 {
        let key = n.to_be_bytes().repeat(12).try_into().expect("24 octets");
        pair.change(Record { key, value: Some([0].into()) });
    }
    pair.now += STREAM.batch;
    pair.tick();
    assert_eq!(pair.to_standby.len(), 3);
    (0..3).for_each(|_| pair.arrive(0));
    assert!(pair.sender.is_caught_up(), "nothing else was sent");
    // At the time at which something is always sent, and not yet that at which this would be.
    pair.now = pair.now / STREAM.idle * STREAM.idle + STREAM.idle;
    pair.change(record(200, Some(1)));
    pair.tick();
    assert_eq!(pair.to_standby.len(), 1);
    pair.arrive(0);
    assert!(is_ready(&pair) && !pair.standby.contains_key(&[200; 24]));
    pair.now += STREAM.batch;
    pair.tick();
    pair.arrive(0);
    assert!(pair.sender.is_caught_up() && pair.owner == pair.standby);
}

/// One whose processor is full, say.
#[test]
fn a_standby_that_answers_late_is_told_again_later() {
    let mut pair = Pair::new();
    pair.settle();
    let mut again_after = |delay| {
        pair.change(record(1, Some(pair.now as u8)));
        pair.now += STREAM.batch;
        pair.tick();
        pair.now += delay;
        pair.arrive(0);
        pair.change(record(2, Some(pair.now as u8)));
        pair.now += STREAM.batch;
        pair.tick();
        let waits = (1..1000).find(|_| {
            pair.now += 1;
            pair.tick();
            pair.to_standby.len() > 1
        });
        pair.settle();
        waits
    };
    let after = [0, 20, 30, 45, 199, 5000].map(&mut again_after);
    assert_eq!(after, [50, 50, 60, 90, 398, 400].map(Some));
    // It wears off, message by message.
    assert_eq!(again_after(0), Some(50));
}

#[test]
fn lag_is_what_is_not_acknowledged() {
    let mut pair = Pair::new();
    pair.settle();
    assert_eq!(pair.sender.lag(pair.now), (0, 0));
    pair.change(record(1, Some(1)));
    pair.now += 30;
    pair.tick();
    assert_eq!(pair.sender.lag(pair.now + 12), (1, 12));
    pair.arrive(0);
    assert_eq!(pair.sender.lag(pair.now), (0, 0));
}

#[test]
fn a_stream_of_an_older_epoch_is_not_heard() {
    let shadow = Shadow::new([5, 6]);
    let (digest, mut receiver) = (shadow.digest(), Receiver::new(shadow));
    receiver.receive(1, &settings(), (OWNER, 2, 1), digest, Step::Begin);
    let changes = Step::Records(vec![record(1, Some(1))]);
    for number in [1, 2] {
        let old = (Member(3), 1, number);
        assert!(receiver.receive(2, &settings(), old, digest, changes.clone()).is_empty());
        receiver.receive(2, &settings(), old, digest, Step::Begin);
    }
    assert_eq!((receiver.from(), receiver.epoch(), receiver.state()), (OWNER, 2, (2, true)));
}

#[test]
fn a_standby_that_has_diverged_is_not_ready() {
    let mut pair = Pair::new();
    pair.change(record(1, Some(1)));
    pair.settle();
    assert!(is_ready(&pair));
    pair.receiver.shadow.apply(&record(9, Some(9)));
    put(&mut pair.standby, &record(9, Some(9)));
    pair.change(record(2, Some(2)));
    pair.now += 5;
    pair.tick();
    while !pair.to_standby.is_empty() {
        pair.arrive(0);
    }
    assert!(!is_ready(&pair));
    pair.settle();
    assert_eq!(pair.standby, pair.owner);
}

#[test]
fn who_is_released_by_his_owner_is_not_ready() {
    let mut pair = Pair::new();
    pair.settle();
    let release = |pair: &mut Pair, from: Member, epoch: u64| {
        let what = (from, epoch, 0);
        pair.receiver.receive(pair.now, &settings(), what, Digest::default(), Step::Release);
        is_ready(pair)
    };
    assert!(release(&mut pair, Member(9), 1) && release(&mut pair, OWNER, 2), "another's word");
    assert!(!release(&mut pair, OWNER, 1));
    // Until it is the standby again, from the beginning.
    pair.change(record(1, Some(1)));
    pair.now += 5;
    pair.tick();
    while !pair.to_standby.is_empty() {
        pair.arrive(0);
    }
    assert!(!is_ready(&pair));
}
