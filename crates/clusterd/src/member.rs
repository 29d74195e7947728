//! Gives the protocol what has happened, and does what it wants.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fordway_cluster::{
    Action, Cluster, Command, GatewayStatus, Input, Key, Message, Nanos, Phase, RecordKey,
    Settings, Shard, ShardStatus, WrongTiming,
};
use fordway_counters::cluster::{ChannelStats, ShardCounters, ShardStats, StoreStats};
use fordway_serve::boottime::{self, Alarm};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::channel::{Channel, ChannelError, ChannelSettings};
use crate::data_path::{Change, DataPath};
use crate::store::{Store, StoreError, StoreSettings};

/// Inputs of the store that wait.
const QUEUE: usize = 4096;
/// Messages that wait, of up to hundreds of records each.
const MESSAGES: usize = 64;
/// Inputs are taken for so long before it is looked at the time and the store again: whatever comes, the lease is renewed.
const BURST: Duration = Duration::from_millis(1);

/// What a member is told.
#[derive(Clone, Debug)]
pub struct MemberSettings {
    /// Itself, and the protocol.
    pub protocol: Settings,
    /// The store.
    pub store: StoreSettings,
    /// The other gateways.
    pub channel: ChannelSettings,
}

/// Why a member can't begin, or go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store's settings are wrong.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The channel's settings are wrong.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// Times don't work together.
    #[error(transparent)]
    Timing(#[from] WrongTiming),
    /// The kernel gives no alarm.
    #[error("no alarm: {0}")]
    Alarm(#[from] std::io::Error),
}

/// Why a member has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It has left, as the operator wanted; nothing is translated.
    Left,
    /// Another process of this host has taken its place, and its data path, which this one has not touched since. It has to end.
    Replaced,
    /// Nobody holds its [`Handle`] any more; nothing is translated. Others take its shards when its lease has ended.
    Released,
}

/// What can be shown of a member.
#[derive(Clone, Debug)]
pub struct Overview {
    /// The time, of CLOCK_BOOTTIME in ns.
    pub now: Nanos,
    /// Where it stands.
    pub phase: Phase,
    /// Until when the data path may translate; 0: not at all.
    pub until: Nanos,
    /// The store's acknowledgements are missing.
    pub is_silent: bool,
    /// Gateways that can vote to end its lease, or promise to respect it.
    pub peers: usize,
    /// A server of the store is connected, and the bucket open.
    pub is_store_open: bool,
    /// Why not, if that is known.
    pub store_error: Option<String>,
    /// The gateways that the store has a record of, this one among them.
    pub gateways: Vec<GatewayStatus>,
    /// The shards.
    pub shards: Vec<ShardStatus>,
    /// What has happened to shards.
    pub moves: ShardStats,
    /// What has happened at the store.
    pub store: StoreStats,
    /// What has happened to messages between gateways.
    pub channel: ChannelStats,
}

enum Request {
    Command(Command),
    Overview(oneshot::Sender<Overview>),
}

/// For those who want something of a member.
#[derive(Clone)]
pub struct Handle(mpsc::Sender<Request>);

impl Handle {
    /// Gives it a command of the operator's. `false`: it has ended.
    pub async fn command(&self, command: Command) -> bool {
        self.0.send(Request::Command(command)).await.is_ok()
    }

    /// How it stands; `None`: it has ended.
    pub async fn overview(&self) -> Option<Overview> {
        let (answer, overview) = oneshot::channel();
        self.0.send(Request::Overview(answer)).await.ok()?;
        overview.await.ok()
    }
}

/// A gateway in its cluster.
pub struct Member<D> {
    cluster: Cluster,
    store: Store,
    channel: Channel,
    data: D,
    from_store: mpsc::Receiver<Input>,
    from_others: mpsc::Receiver<Input>,
    /// Records that are to be read: shard, after which key, how many at most.
    reads: VecDeque<(Shard, Option<RecordKey>, usize)>,
    requests: mpsc::Receiver<Request>,
    wake: Arc<Notify>,
    alarm: Alarm,
    said: Option<Phase>,
    moves: ShardCounters,
}

fn now() -> Nanos {
    boottime::now().as_nanos() as Nanos
}

/// What a data path has told.
fn told(changes: Vec<Change>) -> impl Iterator<Item = Input> {
    changes.into_iter().map(|change| match change {
        Change::Records(shard, records) => Input::Changed { shard, records },
        Change::Stopped(shard, ticket) => Input::Stopped { shard, ticket },
    })
}

impl<D: DataPath> Member<D> {
    /// A member whose data path translates nothing yet. `wake` is notified by the data path. Within a tokio runtime.
    pub async fn new(
        settings: MemberSettings,
        mut data: D,
        wake: Arc<Notify>,
    ) -> Result<(Self, Handle), Error> {
        data.lease(0);
        let mut cluster = Cluster::new(settings.protocol.clone())?;
        for (shard, epoch, records) in data.loaded() {
            cluster.handle(now(), Input::Loaded { shard, epoch, records }, &mut Vec::new());
        }
        let (to_me, from_store) = mpsc::channel(QUEUE);
        let (others, from_others) = mpsc::channel(MESSAGES);
        let name = format!("fordway-{}", settings.protocol.me.0);
        let channel = Channel::open(&settings.channel, others)?;
        let store = Store::open(&settings.store, &name, to_me).await?;
        let (handle, requests) = mpsc::channel(1);
        let alarm = Alarm::new()?;
        let member = Self {
            cluster,
            store,
            channel,
            data,
            from_store,
            from_others,
            reads: VecDeque::new(),
            requests,
            wake,
            alarm,
            said: None,
            moves: ShardCounters::default(),
        };
        Ok((member, Handle(handle)))
    }

    /// Takes part until it ends.
    pub async fn run(mut self) -> Result<Ended, Error> {
        loop {
            self.feed(Input::Tick);
            if let Some(ended) = self.look() {
                return Ok(ended);
            }
            self.burst(Self::read_next);
            // What connects to the store and to others has its turn.
            tokio::task::yield_now().await;
            let at = self.cluster.wakeup();
            self.alarm.set((at != Nanos::MAX).then(|| Duration::from_nanos(at)))?;
            tokio::select! {
                biased;
                Some(input) = self.from_store.recv() => {
                    self.feed(input);
                    self.burst(|me| me.from_store.try_recv().map(|input| me.feed(input)).is_ok());
                }
                request = self.requests.recv() => match request {
                    Some(Request::Command(command)) => self.feed(Input::Command(command)),
                    // Who has asked may have gone.
                    Some(Request::Overview(answer)) => drop(answer.send(self.overview())),
                    None => {
                        self.data.lease(0);
                        return Ok(Ended::Released);
                    }
                },
                () = self.wake.notified() => {}
                Some(input) = self.from_others.recv() => {
                    self.feed(input);
                    self.burst(|me| me.from_others.try_recv().map(|input| me.feed(input)).is_ok());
                }
                () = std::future::ready(()), if !self.reads.is_empty() => {}
                // The last one: it is looked at the time in any case.
                done = self.alarm.wait() => done?,
            }
        }
    }

    /// Does what waits already, for a while. `step` gives whether there was something.
    fn burst(&mut self, step: impl Fn(&mut Self) -> bool) {
        let began = Instant::now();
        while began.elapsed() < BURST && step(self) {}
    }

    /// Gives the protocol the records that it has asked for first, after all changes that they show.
    fn read_next(&mut self) -> bool {
        let Some((shard, after, most)) = self.reads.pop_front() else { return false };
        let (before, records, is_last) = self.data.read(shard, after, most);
        let chunk = Input::Chunk { shard, after, records, is_last };
        told(before).chain([chunk]).for_each(|input| self.give(input));
        true
    }

    /// Gives the protocol an input, after what the data path has to tell, and does what it wants.
    fn feed(&mut self, input: Input) {
        let before = self.data.changes();
        told(before).chain([input]).for_each(|input| self.give(input));
    }

    /// The same, of an input that is the data path's last.
    fn give(&mut self, input: Input) {
        let of_shard = match &input {
            Input::Entry { key: Key::Shard(shard), .. }
            | Input::Received { message: Message::Written { shard, .. }, .. } => Some(*shard),
            _ => None,
        };
        let mut actions = Vec::new();
        self.cluster.handle(now(), input, &mut actions);
        if self.cluster.phase() == Phase::Replaced {
            // The data path is another process's.
            return;
        }
        if let Some(shard) = of_shard
            && let Some(owner) = self.cluster.owner(shard)
        {
            self.data.owner(shard, owner);
        }
        actions.into_iter().for_each(|action| self.act(action));
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Write { key, expected, value } => self.store.write(key, expected, value),
            Action::Read { key } => self.store.read(key),
            Action::Send { to, message } => self.channel.send(to, &message),
            Action::Lease { until } => self.data.lease(until),
            Action::Translate { shard, epoch, is_quiet } => {
                // Of the first epoch, nobody had it before.
                let is_taken = is_quiet && epoch > 1;
                if is_taken { &self.moves.taken_over } else { &self.moves.begun }.add(1);
                self.data.translate(shard, epoch, is_quiet);
            }
            Action::Stop { shard, ticket } => {
                self.moves.stopped.add(1);
                self.data.stop(shard, ticket);
            }
            Action::Known { shard, owner } => self.data.known(shard, owner),
            Action::Clear { shard } => {
                self.moves.emptied.add(1);
                self.data.clear(shard);
            }
            Action::Apply { shard, records } => self.data.apply(shard, &records),
            Action::ReadRecords { shard, after, most } => {
                self.reads.push_back((shard, after, most));
            }
        }
    }

    /// Says a new phase in the log; whether it is the last one.
    fn look(&mut self) -> Option<Ended> {
        let phase = self.cluster.phase();
        if self.said.replace(phase) != Some(phase) {
            match phase {
                Phase::Joining => tracing::info!("cluster: joining"),
                Phase::Member => tracing::info!("cluster: this gateway holds its lease"),
                Phase::Left => tracing::info!("cluster: this gateway has left"),
                Phase::WrongConfig => tracing::error!(
                    "cluster: the other gateways have another configuration; nothing is translated"
                ),
                Phase::NameInUse => tracing::error!(
                    "cluster: another host holds the lease of gateway {}; nothing is translated",
                    self.cluster.settings().me.0
                ),
                Phase::Replaced => {
                    tracing::error!("cluster: another process of this host is in this one's place");
                }
            }
        }
        match phase {
            Phase::Replaced => Some(Ended::Replaced),
            Phase::Left => Some(Ended::Left),
            _ => None,
        }
    }

    fn overview(&self) -> Overview {
        let now = now();
        let (until, is_silent) = self.cluster.lease(now);
        let mut moves = ShardStats::default();
        self.moves.add_to(&mut moves);
        Overview {
            now,
            phase: self.cluster.phase(),
            until,
            is_silent,
            peers: self.cluster.peers(),
            is_store_open: self.store.is_open(),
            store_error: self.store.trouble(),
            gateways: self.cluster.gateways(now).collect(),
            shards: self.cluster.shards(now).collect(),
            moves,
            store: self.store.stats(),
            channel: self.channel.stats(),
        }
    }
}
