//! Leases and owners of shards in a key-value bucket of NATS JetStream.
//!
//! A write names the revision that it replaces, to the servers (`Nats-Expected-Last-Subject-Sequence`) and, since they can't be relied
//! upon, to everybody who reads it: `log` says what counts. What has become of a write is told by the watch alone, in the order of the
//! stream. While no server is connected, writes and reads are dropped rather than queued.

mod log;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use async_nats::connection::State;
use async_nats::jetstream::context::KeyValueErrorKind;
use async_nats::jetstream::kv::{self, Operation, UpdateErrorKind};
use async_nats::jetstream::stream::{self, DiscardPolicy, LastRawMessageErrorKind, StorageType};
use async_nats::jetstream::{self, Context};
use async_nats::{Client, ConnectOptions, Event};
use fordway_cluster::{Input, Key, Member, Revision, Shard, Value, decode, encode};
use fordway_counters::cluster::{StoreCounters, StoreStats};
use futures_util::StreamExt;
use tokio::sync::mpsc::Sender;
use tokio::time::Instant;

use log::{Broken, HISTORY, Log, Stored, Told};

/// How long an answer of the server is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two attempts to open the bucket, or to watch it.
const PAUSE: Duration = Duration::from_millis(200);
/// How long a watch may not have told of a write that the server has acknowledged, until it is begun anew.
const LATE: Duration = Duration::from_secs(1);
/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// How a gateway shows who it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Login {
    /// It doesn't, or by its certificate alone.
    #[default]
    None,
    /// A file of NATS credentials: JWT and seed.
    Credentials(PathBuf),
    /// A file with an NKey seed.
    Nkey(PathBuf),
    /// A user, and a file with the password.
    Password(String, PathBuf),
}

/// Where the store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSettings {
    /// URLs: `nats://HOST:PORT`, or `tls://HOST:PORT`. With `ca` or `certificate`, TLS is required of both.
    pub servers: Vec<String>,
    /// The bucket's name.
    pub bucket: String,
    /// Servers that each value is kept by: 3, or 1 without any redundancy.
    pub replicas: usize,
    /// How a gateway shows who it is.
    pub login: Login,
    /// Certificates of the authorities that servers' are checked by; none: those of the system.
    pub ca: Option<PathBuf>,
    /// The gateway's own certificate, and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

/// Why there is no store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file can't be read.
    #[error("{0}: {1}")]
    File(PathBuf, std::io::Error),
    /// A setting is wrong.
    #[error("the store's servers: {0}")]
    Connect(#[from] async_nats::ConnectError),
}

/// The bucket, once it is open.
#[derive(Clone)]
pub(crate) struct Store {
    client: Client,
    bucket: Arc<ArcSwapOption<kv::Store>>,
    counters: Arc<StoreCounters>,
    /// The highest revision that a server has acknowledged.
    acknowledged: Arc<AtomicU64>,
    /// Why the bucket is not watched.
    trouble: Arc<ArcSwapOption<String>>,
    /// What the client has complained of last.
    complaint: Arc<ArcSwapOption<String>>,
    log: Arc<Mutex<Log>>,
    inputs: Sender<Input>,
}

impl Store {
    /// Connects, and tells `inputs` what the bucket has and gets, for as long as somebody listens. A server need not be there yet.
    /// Within a tokio runtime.
    pub(crate) async fn open(
        settings: &StoreSettings,
        name: &str,
        inputs: Sender<Input>,
    ) -> Result<Self, StoreError> {
        let complaint = Arc::new(ArcSwapOption::empty());
        let options = options(settings, name)?.event_callback({
            let complaint = Arc::clone(&complaint);
            move |event| {
                let complaint = Arc::clone(&complaint);
                async move {
                    match event {
                        Event::Connected => {
                            tracing::info!("cluster: connected to the store");
                            complaint.store(None);
                        }
                        Event::Disconnected => {
                            tracing::warn!("cluster: no connection to the store");
                        }
                        Event::ClientError(_) | Event::ServerError(_) => {
                            complaint.store(Some(Arc::new(event.to_string())));
                        }
                        _ => {}
                    }
                }
            }
        });
        let client = options.connect(&settings.servers).await?;
        let bucket = Arc::new(ArcSwapOption::empty());
        let trouble = Arc::new(ArcSwapOption::empty());
        let (counters, acknowledged, log) = (Arc::default(), Arc::default(), Arc::default());
        let store =
            Self { client, bucket, counters, acknowledged, trouble, complaint, log, inputs };
        tokio::spawn(store.clone().follow(settings.clone()));
        Ok(store)
    }

    pub(crate) fn stats(&self) -> StoreStats {
        let mut stats = StoreStats { overruled: self.log().overruled, ..StoreStats::default() };
        self.counters.add_to(&mut stats);
        stats
    }

    /// Whether a server is connected and the bucket open.
    pub(crate) fn is_open(&self) -> bool {
        self.client.connection_state() == State::Connected && self.bucket.load().is_some()
    }

    /// Why it is not open; nothing while it is, or nobody knows.
    pub(crate) fn trouble(&self) -> Option<String> {
        if self.client.connection_state() != State::Connected {
            let why = self.complaint.load_full();
            return Some(why.map_or_else(
                || "no server is connected".into(),
                |why| format!("no server is connected: {why}"),
            ));
        }
        self.trouble.load_full().map(|why| why.to_string())
    }

    fn usable(&self) -> Option<Arc<kv::Store>> {
        let bucket = self.bucket.load_full().filter(|_| self.is_open());
        if bucket.is_none() {
            self.counters.dropped.count();
        }
        bucket
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a value, if the revision that counts is the expected one. If it counts then, the watch tells it.
    pub(crate) fn write(&self, key: Key, expected: Revision, value: Value) {
        let Some(bucket) = self.usable() else { return };
        let Some(last) = self.log().expected(key, expected) else {
            // What counts is on its way to who has asked.
            self.counters.refused.count();
            return;
        };
        let store = self.clone();
        tokio::spawn(async move {
            let octets = encode(&Stored { replaces: expected, value }).into();
            match bucket.update(name(key), octets, last).await {
                Ok(revision) => {
                    store.counters.written.count();
                    store.acknowledged.fetch_max(revision, Ordering::Relaxed);
                }
                Err(error) if error.kind() == UpdateErrorKind::WrongLastRevision => {
                    store.counters.refused.count();
                    let _ = store.inputs.send(Input::Refused { key }).await;
                }
                Err(error) => {
                    store.counters.unknown.count();
                    tracing::debug!("writing {}: {error}", name(key));
                }
            }
        });
    }

    /// Looks whether the watch has told what the servers' leader has of a key; if not, and it does not soon, it is begun anew.
    pub(crate) fn read(&self, key: Key) {
        let Some(bucket) = self.usable() else { return };
        let store = self.clone();
        tokio::spawn(async move {
            // A direct request could be answered by a server whose order is another one.
            let subject = format!("{}{}", bucket.prefix, name(key));
            let revision = match bucket.stream.get_last_raw_message_by_subject(&subject).await {
                Ok(message) => message.sequence,
                Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => 0,
                Err(error) => return tracing::debug!("reading {}: {error}", name(key)),
            };
            store.acknowledged.fetch_max(revision, Ordering::Relaxed);
            store.log().compare(key, revision, Instant::now().into_std(), LATE);
        });
    }

    /// Takes what the watch tells, and tells what counts.
    async fn take(&self, entry: &kv::Entry) -> Result<(), Broken> {
        let Some(key) = parse(&entry.key) else {
            tracing::warn!("the store has a key that is none of a cluster's: {}", entry.key);
            return self.log().pass(entry.revision);
        };
        let told = match (entry.operation, decode::<Stored>(&entry.value)) {
            (Operation::Put, Ok(stored)) => Told::Stored(stored),
            (Operation::Put, Err(error)) => {
                self.counters.malformed.count();
                let why = format!("the store's value of {} is {error}", entry.key);
                tracing::error!("{why}");
                self.trouble.store(Some(Arc::new(why)));
                Told::Unknown
            }
            (Operation::Delete | Operation::Purge, _) => Told::Removed,
        };
        let counts = self.log().put(key, entry.revision, told)?;
        if let Some((revision, value)) = counts {
            let input = Input::Entry { key, revision, value: Some(value) };
            let _ = self.inputs.send(input).await;
        }
        Ok(())
    }

    /// The list of keys is complete.
    async fn listed(&self, is_synced: &mut bool) {
        let all = self.log().listed();
        for (key, revision, value) in all {
            let input = Input::Entry { key, revision, value: Some(value) };
            let _ = self.inputs.send(input).await;
        }
        if !std::mem::replace(is_synced, true) {
            let _ = self.inputs.send(Input::Synced).await;
        }
    }

    /// Opens the bucket and watches it, for ever; every key that it has is told each time anew.
    async fn follow(self, settings: StoreSettings) {
        let mut context = jetstream::new(self.client.clone());
        context.set_timeout(PATIENCE);
        let mut is_synced = false;
        while !self.inputs.is_closed() {
            let why = match self.watch(&context, &settings, &mut is_synced).await {
                Ok(()) => "a watch was late, or ended".to_owned(),
                Err(error) => {
                    let broken = error.downcast_ref::<Broken>();
                    if broken.is_some() {
                        // With what it knows, nobody may write.
                        self.log().begin();
                    }
                    if broken == Some(&Broken::Order) {
                        is_synced = false;
                        let _ = self.inputs.send(Input::Forget).await;
                    }
                    error.to_string()
                }
            };
            let before = self.trouble.swap(Some(Arc::new(why.clone())));
            if before.is_none_or(|before| *before != why) {
                tracing::warn!("the store: {why}; trying again");
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn watch(
        &self,
        context: &Context,
        settings: &StoreSettings,
        is_synced: &mut bool,
    ) -> Result<(), async_nats::Error> {
        let bucket = match open(context, settings).await {
            Ok(bucket) => bucket,
            Err(error) => {
                self.bucket.store(None);
                return Err(error);
            }
        };
        // Before the watch: what comes between both is told by it.
        let status = bucket.status().await?;
        let mut is_listed = status.values() == 0;
        // The number of values that are still to come, which says it as well, is never 0 at times (servers of 2.9).
        let until = status.info.state.last_sequence;
        self.log().begin();
        let mut watch = bucket.watch_all_from_revision(1).await?;
        self.bucket.store(Some(Arc::new(bucket)));
        self.trouble.store(None);
        self.counters.watches.count();
        if is_listed {
            self.listed(is_synced).await;
        }
        let mut ticks = tokio::time::interval(LOOK);
        let mut last = 0;
        // A revision that was acknowledged and not told yet, and since when.
        let mut owed: Option<(Revision, Instant)> = None;
        loop {
            tokio::select! {
                entry = watch.next() => {
                    let Some(entry) = entry.transpose()? else { return Ok(()) };
                    self.take(&entry).await?;
                    last = last.max(entry.revision);
                    if (entry.seen_current || entry.revision >= until) && !is_listed {
                        is_listed = true;
                        self.listed(is_synced).await;
                    }
                }
                _ = ticks.tick() => {
                    // One's own writes come by the watch as well.
                    owed = match owed {
                        Some((revision, since)) if last < revision => {
                            if since.elapsed() > LATE {
                                return Ok(());
                            }
                            owed
                        }
                        _ => {
                            let revision = self.acknowledged.load(Ordering::Relaxed);
                            (is_listed && last < revision).then(|| (revision, Instant::now()))
                        }
                    };
                    self.log().check()?;
                    if self.inputs.is_closed() {
                        return Ok(());
                    }
                }
            }
        }
    }
}

/// The bucket, made if it is missing.
async fn open(context: &Context, settings: &StoreSettings) -> Result<kv::Store, async_nats::Error> {
    let bucket = match context.get_key_value(&settings.bucket).await {
        Ok(bucket) => bucket,
        Err(error) if error.kind() == KeyValueErrorKind::GetBucket => {
            // Another gateway may be faster, which is no error if it makes the same.
            let made = context.create_stream(stream(settings)).await;
            match context.get_key_value(&settings.bucket).await {
                Ok(bucket) => bucket,
                Err(error) => return Err(made.err().map_or_else(|| error.into(), Into::into)),
            }
        }
        Err(error) => return Err(error.into()),
    };
    let has = bucket.status().await?.info.config;
    let wrong = |what: &str| format!("the bucket {} has {what}", settings.bucket);
    if has.num_replicas != settings.replicas {
        let (has, wanted) = (has.num_replicas, settings.replicas);
        return Err(wrong(&format!("{has} replicas, not {wanted}")).into());
    }
    // Without a limit it has -1.
    if (1..HISTORY as i64).contains(&has.max_messages_per_subject) {
        return Err(wrong(&format!("a history of less than {HISTORY} values")).into());
    }
    if has.discard == DiscardPolicy::Old && (has.max_bytes > 0 || has.max_messages > 0) {
        return Err(wrong("a limit beyond which it loses its oldest values").into());
    }
    if has.storage != StorageType::File {
        return Err(wrong("its values in memory: a restart of its servers would lose them").into());
    }
    if !has.max_age.is_zero() {
        return Err(wrong("a time after which values vanish").into());
    }
    Ok(bucket)
}

/// The stream of a bucket, as NATS's clients agree to make it (ADR-8), with some values of each key.
///
/// Not by the client's own call, which asks for the account's limits first and does not understand the answer of servers before 2.10.
fn stream(settings: &StoreSettings) -> stream::Config {
    stream::Config {
        name: format!("KV_{}", settings.bucket),
        description: Some("Leases and owners of Fordway's shards".into()),
        subjects: vec![format!("$KV.{}.>", settings.bucket)],
        max_messages: -1,
        max_messages_per_subject: HISTORY as i64,
        max_bytes: -1,
        max_message_size: -1,
        storage: StorageType::File,
        num_replicas: settings.replicas,
        discard: DiscardPolicy::New,
        duplicate_window: Duration::from_secs(120),
        allow_rollup: true,
        deny_delete: true,
        allow_direct: true,
        ..stream::Config::default()
    }
}

fn options(settings: &StoreSettings, name: &str) -> Result<ConnectOptions, StoreError> {
    let text = |path: &PathBuf| {
        std::fs::read_to_string(path).map_err(|error| StoreError::File(path.clone(), error))
    };
    let mut options = ConnectOptions::new()
        .name(name)
        .retry_on_initial_connect()
        .connection_timeout(PATIENCE)
        .request_timeout(Some(PATIENCE))
        .ping_interval(PATIENCE)
        .require_tls(settings.ca.is_some() || settings.certificate.is_some())
        .reconnect_delay_callback(|_| PAUSE);
    options = match &settings.login {
        Login::None => options,
        Login::Credentials(path) => options
            .credentials(&text(path)?)
            .map_err(|error| StoreError::File(path.clone(), error))?,
        Login::Nkey(path) => options.nkey(text(path)?.trim().to_owned()),
        Login::Password(user, path) => {
            options.user_and_password(user.clone(), text(path)?.trim().to_owned())
        }
    };
    if let Some(ca) = &settings.ca {
        options = options.add_root_certificates(ca.clone());
    }
    if let Some((certificate, key)) = &settings.certificate {
        options = options.add_client_certificate(certificate.clone(), key.clone());
    }
    Ok(options)
}

/// A key's name in the bucket.
fn name(key: Key) -> String {
    match key {
        Key::Config => "config".into(),
        Key::Lease(Member(number)) => format!("lease.{number}"),
        Key::Shard(Shard(number)) => format!("shard.{number}"),
    }
}

fn parse(name: &str) -> Option<Key> {
    match name.split_once('.') {
        None => (name == "config").then_some(Key::Config),
        Some(("lease", number)) => number.parse().ok().map(|number| Key::Lease(Member(number))),
        Some(("shard", number)) => number.parse().ok().map(|number| Key::Shard(Shard(number))),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_names_of_their_own() {
        let keys = [Key::Config, Key::Lease(Member(7)), Key::Shard(Shard(1023))];
        assert_eq!(keys.map(name), ["config", "lease.7", "shard.1023"]);
        assert_eq!(keys.map(|key| parse(&name(key))), keys.map(Some));
        for other in ["", "lease", "lease.x", "shard.70000", "configs", "a.1"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
