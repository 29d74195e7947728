//! A gateway: a machine with its clock and data path, and the process on it.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::cluster::{Action, Cluster, Input};
use crate::record::{Digest, Message, Nanos, Octets, Record, RecordKey};
use crate::shard::Shard;
use crate::stream::Shadow;

use super::{KEY, Setup};

/// A shard in the data path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Table {
    pub(super) is_enabled: bool,
    /// A stop that is asked for: packets that began before may be in translation, until the deadline that they saw.
    stopping: Option<(u64, Nanos)>,
    epoch: u64,
    records: BTreeMap<RecordKey, Octets>,
    /// The records as the process was told.
    told: BTreeMap<RecordKey, Octets>,
    /// What the process was told since what its last message was about: digests and hashes, the present one excluded.
    history: Vec<(Digest, u64)>,
    /// Changes that the process was not told yet.
    changes: Vec<Record>,
    /// Hashes of what the process had with all that it had sent when it sent a message, by epoch and number; the last ones.
    sent: VecDeque<(u64, u64, u64)>,
}

impl Table {
    /// The process knows of a change.
    fn tell(&mut self, record: &Record) {
        self.history.push(self.state());
        put(&mut self.told, record);
    }

    /// What the process was told.
    fn state(&self) -> (Digest, u64) {
        let mut shadow = Shadow::new(KEY);
        for told in &self.told {
            shadow.apply(&record(told));
        }
        (shadow.digest(), fingerprint(&self.told))
    }

    /// The hash of what a message's digest is of; nothing's, if it is none of what the process was told since the last one.
    fn meant(&mut self, digest: Digest) -> u64 {
        self.history.push(self.state());
        let Some(at) = self.history.iter().rposition(|(of, _)| *of == digest) else { return 0 };
        self.history.drain(..at);
        self.history[0].1
    }

    /// The process knows what there is.
    fn forget(&mut self) {
        self.history.clear();
        self.changes.clear();
    }
}

/// Messages of a shard that are remembered.
const REMEMBERED: usize = 40;

fn fingerprint(records: &BTreeMap<RecordKey, Octets>) -> u64 {
    let mut hasher = DefaultHasher::new();
    records.hash(&mut hasher);
    hasher.finish()
}

fn record((key, value): (&RecordKey, &Octets)) -> Record {
    Record { key: *key, value: Some(value.clone()) }
}

fn put(records: &mut BTreeMap<RecordKey, Octets>, record: &Record) {
    match &record.value {
        Some(value) => records.insert(record.key, value.clone()),
        None => records.remove(&record.key),
    };
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub(super) is_on: bool,
    pub(super) is_paused: bool,
    /// The process, if it runs, and how many there were.
    pub(super) cluster: Option<Cluster>,
    pub(super) process: u64,
    offset: i64,
    rate: u64,
    pub(super) until: Nanos,
    pub(super) tables: Vec<Table>,
    /// Different values for records.
    counter: u8,
}

/// What a process did, for the world.
pub(super) struct Done {
    pub(super) actions: Vec<Action>,
    /// Shards whose translation began, and in which epoch.
    pub(super) began: Vec<(Shard, u64)>,
}

impl Node {
    /// A machine that is off, with a clock of this many thousandths of the true rate.
    pub(super) fn new(rate: u64, shards: u16) -> Node {
        let tables = vec![Table::default(); shards.into()];
        Node {
            is_on: false,
            is_paused: false,
            cluster: None,
            process: 0,
            offset: 0,
            rate,
            until: 0,
            tables,
            counter: 0,
        }
    }

    pub(super) fn clock(&self, time: u64) -> Nanos {
        (time as i64 * self.rate as i64 + self.offset).max(1) as Nanos
    }

    pub(super) fn translates(&self, time: u64, shard: usize) -> bool {
        let (table, now) = (&self.tables[shard], self.clock(time));
        let until = if table.is_enabled { self.until } else { 0 };
        let begun = table.stopping.map_or(0, |(_, until)| until);
        self.is_on && now < until.max(begun)
    }

    pub(super) fn runs(&self) -> bool {
        self.is_on && !self.is_paused && self.cluster.is_some()
    }

    pub(super) fn is_due(&self, time: u64) -> bool {
        let wakes = |cluster: &Cluster| cluster.wakeup() <= self.clock(time);
        self.runs() && self.cluster.as_ref().is_some_and(wakes)
    }

    /// Starts a process, on a machine that is switched on if it was off.
    pub(super) fn start(&mut self, setup: &Setup, me: usize, time: u64) {
        if !self.is_on {
            // The clock begins anew, near the time of the process before.
            self.offset = 1000 * (1 + me as i64) - time as i64 * self.rate as i64;
            self.is_on = true;
        }
        self.process += 1;
        self.until = 0;
        let process = (me as u64) << 32 | self.process;
        let mut cluster = Cluster::new(setup.settings(me, process)).expect("times");
        let now = self.clock(time);
        for (number, table) in (0..).zip(&mut self.tables) {
            (table.is_enabled, table.stopping) = (false, None);
            table.forget();
            table.told.clone_from(&table.records);
            let shard = Shard(number);
            let records = table.records.iter().map(record).collect();
            cluster.handle(
                now,
                Input::Loaded { shard, epoch: table.epoch, records },
                &mut Vec::new(),
            );
        }
        self.cluster = Some(cluster);
    }

    /// The process dies; the data path goes on.
    pub(super) fn kill(&mut self) {
        (self.is_paused, self.cluster) = (false, None);
    }

    pub(super) fn switch_off(&mut self) {
        (self.is_on, self.is_paused, self.cluster, self.until) = (false, false, None, 0);
        let shards = self.tables.len();
        self.tables = vec![Table::default(); shards];
    }

    /// A packet changes the data path's records.
    pub(super) fn translate(&mut self, shard: usize, key: u8, removes: bool) {
        self.counter = self.counter.wrapping_add(1);
        let value = (!removes).then(|| [self.counter].into());
        let record = Record { key: [key; 24], value };
        let table = &mut self.tables[shard];
        put(&mut table.records, &record);
        if self.cluster.is_some() {
            table.changes.push(record);
        }
    }

    /// Gives the process an input, after what the data path has to tell, and does what it wants in the data path.
    pub(super) fn feed(&mut self, time: u64, input: Input) -> Done {
        let now = self.clock(time);
        let mut inputs = Vec::new();
        for number in 0..self.tables.len() {
            inputs.extend(self.changes(number));
        }
        inputs.push(input);
        let mut done = Done { actions: Vec::new(), began: Vec::new() };
        for input in inputs {
            let mut actions = Vec::new();
            if let Some(cluster) = &mut self.cluster {
                cluster.handle(now, input, &mut actions);
            }
            for action in actions {
                self.act(action, &mut done);
            }
        }
        done
    }

    fn changes(&mut self, number: usize) -> Option<Input> {
        let table = &mut self.tables[number];
        let records = std::mem::take(&mut table.changes);
        records.iter().for_each(|record| table.tell(record));
        let shard = Shard(number as u16);
        (!records.is_empty()).then_some(Input::Changed { shard, records })
    }

    fn act(&mut self, action: Action, done: &mut Done) {
        match action {
            Action::Lease { until } => self.until = until,
            Action::Translate { shard, epoch, .. } => {
                let table = &mut self.tables[usize::from(shard.0)];
                (table.is_enabled, table.stopping, table.epoch) = (true, None, epoch);
                done.began.push((shard, epoch));
            }
            Action::Clear { shard } => {
                let table = &mut self.tables[usize::from(shard.0)];
                table.epoch = 0;
                table.records.clear();
                table.told.clear();
                table.forget();
            }
            Action::Apply { shard, records } => {
                let table = &mut self.tables[usize::from(shard.0)];
                table.epoch = 0;
                for record in &records {
                    put(&mut table.records, record);
                    put(&mut table.told, record);
                }
                table.history.clear();
            }
            other => {
                match &other {
                    Action::Stop { shard, ticket } => {
                        let table = &mut self.tables[usize::from(shard.0)];
                        let until = if table.is_enabled { self.until } else { 0 };
                        (table.is_enabled, table.stopping) = (false, Some((*ticket, until)));
                    }
                    Action::Send {
                        message: Message::Replicate { shard, epoch, number, digest, .. },
                        ..
                    } => {
                        let table = &mut self.tables[usize::from(shard.0)];
                        let is_new = table
                            .sent
                            .back()
                            .is_none_or(|last| (last.0, last.1) < (*epoch, *number));
                        if is_new {
                            let meant = table.meant(*digest);
                            table.sent.push_back((*epoch, *number, meant));
                            if table.sent.len() > REMEMBERED {
                                table.sent.pop_front();
                            }
                        }
                    }
                    _ => {}
                }
                done.actions.push(other);
            }
        }
    }

    /// Records of a shard.
    pub(super) fn chunk(&self, shard: Shard, after: Option<RecordKey>, most: usize) -> Input {
        let table = &self.tables[usize::from(shard.0)];
        // Small chunks, so that there are several.
        let most = most.min(2);
        let rest = table.records.iter().filter(|(key, _)| Some(**key) > after);
        let records: Vec<_> = rest.clone().take(most).map(record).collect();
        let is_last = rest.count() <= most;
        Input::Chunk { shard, after, records, is_last }
    }

    /// The data path has stopped with a shard. `None`: it was told to go on.
    pub(super) fn stop(&mut self, shard: Shard, ticket: u64) -> Option<Input> {
        let table = &mut self.tables[usize::from(shard.0)];
        table.stopping.take_if(|(last, _)| *last == ticket)?;
        Some(Input::Stopped { shard, ticket })
    }

    /// What the owner had with all that it had sent when it sent a message.
    pub(super) fn had(&self, shard: usize, epoch: u64, number: u64) -> Option<u64> {
        let of = |sent: &&(u64, u64, u64)| (sent.0, sent.1) == (epoch, number);
        self.tables[shard].sent.iter().find(of).map(|sent| sent.2)
    }

    /// Whether an owner has sent something in an epoch, but nothing as late as this number.
    pub(super) fn is_before(&self, shard: usize, epoch: u64, number: u64) -> bool {
        self.tables[shard].sent.back().is_some_and(|last| last.0 == epoch && last.1 < number)
    }

    /// What a standby has.
    pub(super) fn has(&self, shard: usize) -> u64 {
        fingerprint(&self.tables[shard].records)
    }
}
