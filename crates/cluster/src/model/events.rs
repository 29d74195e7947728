//! What can happen in a world, and what follows.

use std::sync::Arc;

use crate::cluster::{Action, Command, Input};
use crate::record::Member;
use crate::shard::Shard;

use super::node::Node;
use super::store::Store;
use super::{
    BOUND, DELAY, EPOCHS_RISE, Envelope, MOVE, MOVES_ARE_SHORT, ONE_TRANSLATOR, OWNED_IN_THE_END,
    Packet, READY_IS_EQUAL, STORE, Setup, TTL, World,
};

/// What happens next. Numbers of messages are places in [`World::net`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Event {
    /// A message arrives.
    Deliver(usize),
    /// A process does what its time has come for.
    Wake(usize),
    /// A unit of true time passes.
    Advance,
    /// A packet changes a record: gateway, shard, record, whether it is removed.
    Traffic(usize, usize, u8, bool),
    /// A message is lost.
    Drop(usize),
    /// A message will come twice.
    Duplicate(usize),
    /// A message is late by more than a lease.
    Hold(usize),
    /// A process is killed. Its data path goes on.
    Kill(usize),
    /// A machine loses power.
    SwitchOff(usize),
    /// A process starts, on a machine that is switched on if it was off.
    Start(usize),
    /// A process stands still.
    Pause(usize),
    /// It goes on.
    Resume(usize),
    /// A link loses everything, in one direction.
    Cut(usize, usize),
    /// A gateway can't reach the store, nor the store it.
    Isolate(usize),
    /// A link works again.
    Restore(usize, usize),
    /// All links work.
    Mend,
    /// The store answers nobody.
    StoreDown,
    /// It answers.
    StoreUp,
    /// The operator's commands.
    Command(usize, Command),
}

/// In a world without faults: when it has settled, and commands begin.
const SETTLED: u64 = 40;

/// Messages on their way; more are lost.
const CROWDED: usize = 40;

impl Event {
    /// Which kind of fault it is, or of mending one.
    pub(super) fn fault(self) -> Option<u32> {
        Some(match self {
            Event::Kill(_) => 0,
            Event::SwitchOff(_) => 1,
            Event::Start(_) => 2,
            Event::Pause(_) => 3,
            Event::Resume(_) => 4,
            Event::Cut(..) => 5,
            Event::Isolate(_) => 6,
            Event::Mend => 7,
            Event::StoreDown => 8,
            Event::StoreUp => 9,
            Event::Command(..) => 10,
            Event::Restore(..) => 11,
            _ => return None,
        })
    }

    pub(super) fn is_of_message(self) -> bool {
        matches!(self, Event::Drop(_) | Event::Duplicate(_) | Event::Hold(_))
    }
}

impl World {
    pub(super) fn new(setup: &Setup) -> World {
        // Rates at the bounds, so that each pair of neighbours differs most.
        let rate =
            |n: usize| if n.is_multiple_of(2) { 1000 - setup.drift } else { 1000 + setup.drift };
        let node = |n| Arc::new(Node::new(rate(n), setup.shards));
        let mut world = World {
            time: 1,
            steps: u64::from(setup.faults.is_none()),
            faults: setup.faults.unwrap_or(u32::MAX),
            nodes: (0..setup.gateways).map(node).collect(),
            store: Arc::new(Store::default()),
            net: Vec::new(),
            cut: std::collections::BTreeSet::new(),
            idle_since: vec![Some(1); setup.shards.into()],
            broken: None,
        };
        for n in 0..setup.gateways {
            world.start(setup, n);
        }
        world
    }

    fn is_calm(&self, setup: &Setup) -> bool {
        self.time >= setup.chaos
    }

    fn can_arrive(&self, envelope: &Envelope) -> bool {
        let (from, to) = envelope.packet.ends();
        let is_late = envelope.held_until > self.time;
        let is_cut = self.cut.contains(&(from, to));
        let waits = if to == STORE {
            self.store.is_down
        } else {
            // A dead process's messages arrive, and are lost.
            self.nodes[to].is_on && self.nodes[to].is_paused
        };
        !is_late && !is_cut && !waits
    }

    /// What can happen.
    pub(super) fn events(&self, setup: &Setup, events: &mut Vec<Event>) {
        let calm = self.is_calm(setup);
        let is_simulated = setup.faults.is_none();
        let mut hurry = false;
        for (n, envelope) in self.net.iter().enumerate() {
            if self.can_arrive(envelope) {
                events.push(Event::Deliver(n));
                hurry |= self.time >= envelope.since + DELAY;
            }
        }
        for n in 0..self.nodes.len() {
            if self.nodes[n].is_due(self.time) {
                events.push(Event::Wake(n));
                hurry = true;
            }
        }
        if !hurry || !calm && is_simulated {
            events.push(Event::Advance);
        }
        if !is_simulated {
            // Without faults, one thing happens after another, and time passes when there is nothing to do.
            events.truncate(1);
        }
        if is_simulated {
            for (n, node) in self.nodes.iter().enumerate() {
                for shard in 0..usize::from(setup.shards) {
                    if node.translates(self.time, shard) {
                        let key = (self.steps % 4) as u8;
                        events.push(Event::Traffic(n, shard, key, self.steps % 8 > 5));
                    }
                }
            }
        }
        if !calm && self.faults > 0 {
            self.fault_events(setup, events);
        } else if setup.chaos == 0 && self.time > SETTLED {
            self.commands(setup, events);
        }
    }

    fn fault_events(&self, setup: &Setup, events: &mut Vec<Event>) {
        let is_simulated = setup.faults.is_none();
        for (n, envelope) in self.net.iter().enumerate() {
            if envelope.packet.is_unsafe() {
                events.push(Event::Drop(n));
                if is_simulated {
                    events.push(Event::Duplicate(n));
                }
            }
            if envelope.held_until <= self.time {
                events.push(Event::Hold(n));
            }
        }
        for (n, node) in self.nodes.iter().enumerate() {
            if node.cluster.is_none() {
                events.push(Event::Start(n));
                continue;
            }
            events.extend([Event::Kill(n), Event::SwitchOff(n)]);
            events.push(if node.is_paused { Event::Resume(n) } else { Event::Pause(n) });
            events.push(Event::Isolate(n));
            if is_simulated {
                for to in (0..self.nodes.len()).chain([STORE]).filter(|to| *to != n) {
                    events.extend([Event::Cut(n, to), Event::Cut(to, n)]);
                }
            }
        }
        if is_simulated {
            events.push(Event::Mend);
            events.extend(self.cut.iter().map(|(from, to)| Event::Restore(*from, *to)));
            self.commands(setup, events);
        }
        events.push(if self.store.is_down { Event::StoreUp } else { Event::StoreDown });
    }

    fn commands(&self, setup: &Setup, events: &mut Vec<Event>) {
        for (n, _) in self.nodes.iter().enumerate().filter(|(_, node)| node.runs()) {
            events.push(Event::Command(n, Command::Join));
            events.push(Event::Command(n, Command::Drain));
            if setup.chaos != 0 {
                events.push(Event::Command(n, Command::Leave));
            }
            let shard = Shard((self.steps % u64::from(setup.shards)) as u16);
            let to = Member((self.steps / 2 % self.nodes.len() as u64) as u16);
            events.push(Event::Command(n, Command::Wish(shard, Some(to))));
        }
    }

    /// Lets something happen.
    pub(super) fn happen(&mut self, setup: &Setup, event: Event) {
        if setup.faults.is_none() {
            self.steps += 1;
        } else if event.fault().is_some() || event.is_of_message() {
            self.faults -= 1;
        }
        match event {
            Event::Deliver(n) => {
                let envelope = self.net.remove(n);
                self.arrive(setup, &envelope.packet);
            }
            Event::Wake(n) => self.feed(n, Input::Tick),
            Event::Advance => {
                self.time += 1;
                if self.time == setup.chaos {
                    self.mend(setup);
                }
            }
            Event::Traffic(n, shard, key, removes) => {
                let node = Arc::make_mut(&mut self.nodes[n]);
                node.translate(shard, key, removes);
                if node.runs() {
                    self.feed(n, Input::Tick);
                }
            }
            Event::Drop(n) => {
                self.net.remove(n);
            }
            Event::Duplicate(n) => {
                let copy = self.net[n].clone();
                self.net.push(copy);
            }
            Event::Hold(n) => {
                self.net[n].held_until = self.time + TTL + self.steps % (2 * TTL);
            }
            Event::Kill(n) => Arc::make_mut(&mut self.nodes[n]).kill(),
            Event::SwitchOff(n) => Arc::make_mut(&mut self.nodes[n]).switch_off(),
            Event::Start(n) => self.start(setup, n),
            Event::Pause(n) => Arc::make_mut(&mut self.nodes[n]).is_paused = true,
            Event::Resume(n) => Arc::make_mut(&mut self.nodes[n]).is_paused = false,
            Event::Cut(from, to) => {
                self.cut.insert((from, to));
            }
            Event::Isolate(n) => self.cut.extend([(n, STORE), (STORE, n)]),
            Event::Restore(from, to) => {
                self.cut.remove(&(from, to));
            }
            Event::Mend => self.cut.clear(),
            Event::StoreDown => Arc::make_mut(&mut self.store).is_down = true,
            Event::StoreUp => Arc::make_mut(&mut self.store).is_down = false,
            Event::Command(n, command) => self.feed(n, Input::Command(command)),
        }
        self.check(setup);
    }

    fn start(&mut self, setup: &Setup, n: usize) {
        Arc::make_mut(&mut self.nodes[n]).start(setup, n, self.time);
        self.send(Packet::Sync(n));
    }

    /// Faults end. Perhaps one machine stays off.
    fn mend(&mut self, setup: &Setup) {
        self.cut.clear();
        Arc::make_mut(&mut self.store).is_down = false;
        for envelope in &mut self.net {
            (envelope.held_until, envelope.since) = (0, self.time);
        }
        let mut spared = !self.steps.is_multiple_of(3);
        for n in 0..self.nodes.len() {
            Arc::make_mut(&mut self.nodes[n]).is_paused = false;
            if !self.nodes[n].is_on && !spared {
                spared = true;
            } else if self.nodes[n].cluster.is_none() {
                self.start(setup, n);
            } else {
                // A watch that has lost something begins anew.
                self.send(Packet::Sync(n));
            }
            if self.nodes[n].cluster.is_some() {
                self.feed(n, Input::Command(Command::Join));
            }
        }
    }

    fn send(&mut self, packet: Packet) {
        if self.steps != 0 && packet.is_unsafe() && self.net.len() > CROWDED {
            return;
        }
        let envelope = Envelope { packet: Arc::new(packet), since: self.time, held_until: 0 };
        self.net.push(envelope);
    }

    fn arrive(&mut self, setup: &Setup, packet: &Packet) {
        match packet.clone() {
            Packet::Peer(from, to, message) => {
                if self.nodes[to].runs() {
                    self.feed(to, Input::Received { from: Member(from as u16), message });
                }
            }
            Packet::Write(from, key, expected, value) => {
                let same = setup.mutant == Some(crate::mutant::Mutant::SameEpoch);
                let value = if same { super::same_epoch(value) } else { value };
                let store = Arc::make_mut(&mut self.store);
                match store.write(key, expected, &value) {
                    Some((revision, rises)) => {
                        if !rises {
                            self.broken = Some(EPOCHS_RISE);
                        }
                        for n in 0..self.nodes.len() {
                            if self.nodes[n].cluster.is_some() {
                                let process = self.nodes[n].process;
                                let value = Some(value.clone());
                                self.send(Packet::Entry(n, process, key, revision, value));
                            }
                        }
                    }
                    None => self.send(Packet::Refused(from, self.nodes[from].process, key)),
                }
            }
            Packet::Read(from, key) => {
                let (revision, value) = self.store.get(key);
                self.send(Packet::Entry(from, self.nodes[from].process, key, revision, value));
            }
            Packet::Sync(from) => {
                let of = |(key, (revision, value)): (&_, &(_, crate::record::Value))| {
                    (*key, *revision, value.clone())
                };
                let all = self.store.keys.iter().map(of).collect();
                self.send(Packet::Synced(from, self.nodes[from].process, all));
            }
            Packet::Entry(to, process, key, revision, value) => {
                if self.is_process(to, process) {
                    self.feed(to, Input::Entry { key, revision, value });
                }
            }
            Packet::Refused(to, process, key) => {
                if self.is_process(to, process) {
                    self.feed(to, Input::Refused { key });
                }
            }
            Packet::Synced(to, process, all) => {
                if self.is_process(to, process) {
                    for (key, revision, value) in all {
                        self.feed(to, Input::Entry { key, revision, value: Some(value) });
                    }
                    self.feed(to, Input::Synced);
                }
            }
            Packet::Stopped(at, process, shard, ticket) => {
                if self.is_process(at, process)
                    && let Some(input) = Arc::make_mut(&mut self.nodes[at]).stop(shard, ticket)
                {
                    self.feed(at, input);
                }
            }
            Packet::Chunk(at, process, shard, after, most) => {
                if self.is_process(at, process) {
                    let input = self.nodes[at].chunk(shard, after, most);
                    self.feed(at, input);
                }
            }
        }
    }

    fn is_process(&self, n: usize, process: u64) -> bool {
        self.nodes[n].runs() && self.nodes[n].process == process
    }

    /// Gives an input to a process, and sends what it says.
    fn feed(&mut self, n: usize, input: Input) {
        let done = Arc::make_mut(&mut self.nodes[n]).feed(self.time, input);
        for (shard, epoch) in done.began {
            let owners = &mut Arc::make_mut(&mut self.store).owners;
            if *owners.entry((shard, epoch)).or_insert(n) != n {
                self.broken = Some(EPOCHS_RISE);
            }
        }
        let process = self.nodes[n].process;
        for action in done.actions {
            let packet = match action {
                Action::Write { key, expected, value } => Packet::Write(n, key, expected, value),
                Action::Read { key } => Packet::Read(n, key),
                Action::Send { to, message } => Packet::Peer(n, to.0.into(), message),
                Action::Stop { shard, ticket } => Packet::Stopped(n, process, shard, ticket),
                Action::ReadRecords { shard, after, most } => {
                    Packet::Chunk(n, process, shard, after, most)
                }
                _ => continue,
            };
            self.send(packet);
        }
        self.check_standby(n);
    }

    /// What a standby that is ready has, its owner had when it sent the last message that the standby has applied.
    fn check_standby(&mut self, n: usize) {
        let Some(cluster) = &self.nodes[n].cluster else { return };
        for shard in 0..self.idle_since.len() {
            let Some((epoch, number)) = cluster.verified(shard) else { continue };
            let had = self.nodes.iter().find_map(|node| node.had(shard, epoch, number));
            let is_made_up = || self.nodes.iter().any(|node| node.is_before(shard, epoch, number));
            if had.map_or_else(is_made_up, |had| had != self.nodes[n].has(shard)) {
                self.broken = Some(READY_IS_EQUAL);
            }
        }
    }

    fn check(&mut self, setup: &Setup) {
        let time = self.time;
        for (shard, idle) in self.idle_since.iter_mut().enumerate() {
            match self.nodes.iter().filter(|node| node.translates(time, shard)).count() {
                0 => {
                    let since = *idle.get_or_insert(time);
                    let is_long = time > since + MOVE;
                    if is_long && setup.chaos != 0 && time >= setup.chaos + BOUND {
                        self.broken = Some(OWNED_IN_THE_END);
                    } else if is_long && setup.chaos == 0 && time > SETTLED {
                        self.broken = Some(MOVES_ARE_SHORT);
                    }
                }
                1 => *idle = None,
                _ => self.broken = Some(ONE_TRANSLATOR),
            }
        }
    }
}
