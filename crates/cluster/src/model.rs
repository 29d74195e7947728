//! The protocol among faults: gateways, their data paths and clocks, links and the store, as a model of stateright's.
//!
//! One unit of true time is 1000 ns of a clock with the true rate. Everything that happens is an [`Event`], which a checker
//! chooses: all of them in turn, or some by a seed.

mod choose;
mod events;
mod node;
mod store;
mod tests;

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use stateright::{Model, Property};

use crate::mutant::Mutant;
use crate::record::{Key, Member, Message, RecordKey, Revision, Value};
use crate::settings::{Fencing, Settings, Timing};
use crate::shard::Shard;

pub(crate) use events::Event;
use node::Node;
use store::Store;

/// The cluster's.
const KEY: [u64; 2] = [3, 4];

/// The names of invariants.
pub(crate) const ONE_TRANSLATOR: &str = "one translator";
pub(crate) const EPOCHS_RISE: &str = "epochs rise";
pub(crate) const READY_IS_EQUAL: &str = "ready is equal";
pub(crate) const OWNED_IN_THE_END: &str = "owned in the end";
pub(crate) const MOVES_ARE_SHORT: &str = "moves are short";
const INVARIANTS: [&str; 5] =
    [ONE_TRANSLATOR, EPOCHS_RISE, READY_IS_EQUAL, OWNED_IN_THE_END, MOVES_ARE_SHORT];

/// The store, as an end of links.
const STORE: usize = usize::MAX;

/// Units of true time.
const TTL: u64 = 20;
const RENEW: u64 = 5;
const OUTAGE: u64 = 40;
/// After faults: messages take no longer than this.
const DELAY: u64 = 1;
/// After faults: how long until every shard has an owner. An outage, after which leases may be ended without votes, two
/// leases, and the messages of fence, take-over and planned moves.
const BOUND: u64 = OUTAGE + OUTAGE / 5 + 3 * TTL;
/// How long a planned move without faults leaves a shard without an owner: stop, flush, acknowledgement, write, its
/// acknowledgement and one message more.
const MOVE: u64 = 7 * (DELAY + 1);

/// A world to explore.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) gateways: usize,
    pub(crate) shards: u16,
    pub(crate) fencing: Fencing,
    pub(crate) mutant: Option<Mutant>,
    /// Until when there are faults.
    pub(crate) chaos: u64,
    /// Clocks differ by so many thousandths, alternately.
    pub(crate) drift: u64,
    /// Faults that may happen in all, in an exhaustive search for their places; `None`: any number, by a seed.
    pub(crate) faults: Option<u32>,
    /// How long the world lasts after faults.
    pub(crate) calm: u64,
}

impl Setup {
    pub(crate) fn three() -> Setup {
        Setup {
            gateways: 3,
            shards: 2,
            fencing: Fencing::Majority,
            mutant: None,
            chaos: 120,
            drift: 100,
            faults: None,
            calm: BOUND + 10,
        }
    }

    fn settings(&self, me: usize, process: u64) -> Settings {
        let drift = if self.mutant == Some(Mutant::NoDrift) { 0 } else { self.drift * 1000 };
        Settings {
            me: Member(me as u16),
            host: me as u128,
            process,
            weight: 100,
            shards: self.shards,
            key: KEY,
            config: 7,
            fencing: self.fencing,
            timing: Timing {
                ttl: TTL * 1000,
                renew: RENEW * 1000,
                drift_ppm: drift,
                slack: 0,
                outage: OUTAGE * 1000,
                grace: 2000,
                patience: 2 * TTL * 1000,
                memory: 6 * TTL * 1000,
                turn: 1000,
                handover: 10_000,
                batch: 1000,
                resend: 5000,
            },
            queue: 600,
            moves: 1,
            mutant: self.mutant,
        }
    }
}

/// What is on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Packet {
    Peer(usize, usize, Message),
    Write(usize, Key, Revision, Value),
    Read(usize, Key),
    /// A process wants everything that the store has.
    Sync(usize),
    /// From the store to a process.
    Entry(usize, u64, Key, Revision, Option<Value>),
    Refused(usize, u64, Key),
    Synced(usize, u64, Vec<(Key, Revision, Value)>),
    /// From the data path to a process.
    Stopped(usize, u64, Shard, u64),
    /// A process wants records of its data path's.
    Chunk(usize, u64, Shard, Option<RecordKey>, usize),
}

impl Packet {
    /// From where, and where to.
    fn ends(&self) -> (usize, usize) {
        match self {
            Packet::Peer(from, to, _) => (*from, *to),
            Packet::Write(from, ..) | Packet::Read(from, _) | Packet::Sync(from) => (*from, STORE),
            Packet::Entry(to, ..) | Packet::Refused(to, ..) | Packet::Synced(to, ..) => {
                (STORE, *to)
            }
            Packet::Stopped(at, ..) | Packet::Chunk(at, ..) => (*at, *at),
        }
    }

    /// Whether it can get lost, or come twice.
    fn is_unsafe(&self) -> bool {
        !matches!(
            self,
            Packet::Sync(_) | Packet::Synced(..) | Packet::Stopped(..) | Packet::Chunk(..)
        )
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Envelope {
    packet: Arc<Packet>,
    since: u64,
    held_until: u64,
}

/// A state of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct World {
    time: u64,
    /// Events so far; 0 in an exhaustive search, whose states are compared by what is in them.
    steps: u64,
    faults: u32,
    nodes: Vec<Arc<Node>>,
    store: Arc<Store>,
    net: Vec<Envelope>,
    /// Directed links that lose everything, from and to.
    cut: BTreeSet<(usize, usize)>,
    /// For each shard: since when nobody has translated it.
    idle_since: Vec<Option<u64>>,
    /// What is wrong.
    broken: Option<&'static str>,
}

impl Hash for World {
    fn hash<H: Hasher>(&self, state: &mut H) {
        if self.steps != 0 {
            return self.steps.hash(state);
        }
        (self.time, self.faults, &self.nodes, &self.store, &self.net).hash(state);
        (&self.cut, &self.idle_since, self.broken).hash(state);
    }
}

impl Model for Setup {
    type State = World;
    type Action = Event;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self)]
    }

    fn actions(&self, world: &World, events: &mut Vec<Event>) {
        // Nothing follows what is wrong. The boundary would hide it from the invariants.
        if world.broken.is_none() {
            world.events(self, events);
        }
    }

    fn next_state(&self, world: &World, event: Event) -> Option<World> {
        let mut next = world.clone();
        next.happen(self, event);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Setup>> {
        fn holds(name: &'static str) -> Property<Setup> {
            // A property is a plain function, so that each name has its own.
            let condition = match name {
                ONE_TRANSLATOR => |_: &Setup, world: &World| world.broken != Some(ONE_TRANSLATOR),
                EPOCHS_RISE => |_: &Setup, world: &World| world.broken != Some(EPOCHS_RISE),
                READY_IS_EQUAL => |_: &Setup, world: &World| world.broken != Some(READY_IS_EQUAL),
                MOVES_ARE_SHORT => |_: &Setup, world: &World| world.broken != Some(MOVES_ARE_SHORT),
                _ => |_: &Setup, world: &World| world.broken != Some(OWNED_IN_THE_END),
            };
            Property::always(name, condition)
        }
        INVARIANTS.map(holds).into()
    }

    fn within_boundary(&self, world: &World) -> bool {
        world.time <= self.chaos + self.calm
    }
}

/// What a take-over without a new epoch would write.
fn same_epoch(value: Value) -> Value {
    match value {
        Value::Shard(record) if record.epoch > 1 => {
            Value::Shard(crate::record::ShardRecord { epoch: record.epoch - 1, ..record })
        }
        value => value,
    }
}
