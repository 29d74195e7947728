//! A gateway in a process of its own: a member of the cluster, with a data path that translates nothing but keeps a ledger.
//!
//! It reads lines of commands from standard input, and answers each with one line of JSON.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use fordway_cluster::{
    Command, Fencing, Member as Number, Nanos, Octets, Phase, Record, RecordKey, Role, Settings,
    Shard, ShardMap, Timing,
};
use fordway_clusterd::{
    Announced, Announcement, Change, ChannelSettings, DataPath, Handle, Login, Member,
    MemberSettings, PeerSettings, StoreSettings,
};
use fordway_serve::boottime;
use fordway_xlat::nat64::Range;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::Notify;

use crate::world::address;

/// Names the settings of the process, as JSON: see [`crate::world`].
pub(crate) const GATEWAY: &str = "FORDWAY_TEST_GATEWAY";
/// Where gateways listen.
pub(crate) const PORT: u16 = 7400;

/// The kernel's table of routes that are announced.
pub(crate) const TABLE: u32 = 6146;

/// What the gateways share.
pub(crate) fn pool() -> Vec<Range> {
    let (first, last) = ([198, 51, 100, 0].into(), [198, 51, 100, 63].into());
    vec![Range { first, last, low: 1024, high: 65535 }]
}

/// A shard's table.
#[derive(Default)]
struct Table {
    is_enabled: bool,
    records: BTreeMap<RecordKey, Octets>,
}

#[derive(Default)]
struct Tables {
    shards: BTreeMap<u16, Table>,
    changes: Vec<Change>,
}

/// Keeps records, and a ledger of what it is allowed.
struct Ledger {
    tables: Arc<Mutex<Tables>>,
    wake: Arc<Notify>,
    file: File,
}

fn now() -> Nanos {
    boottime::now().as_nanos() as Nanos
}

impl Ledger {
    fn note(&mut self, event: &str) {
        // One write: whoever is killed has written a line or none.
        self.file.write_all(format!("{} {event}\n", now()).as_bytes()).unwrap();
    }

    fn with<T>(&self, shard: Shard, f: impl FnOnce(&mut Table) -> T) -> T {
        f(self.tables.lock().unwrap().shards.entry(shard.0).or_default())
    }
}

fn put(table: &mut Table, record: &Record) {
    match &record.value {
        Some(value) => table.records.insert(record.key, value.clone()),
        None => table.records.remove(&record.key),
    };
}

impl DataPath for Ledger {
    fn loaded(&mut self) -> Vec<(Shard, u64, Vec<Record>)> {
        Vec::new()
    }

    fn lease(&mut self, until: Nanos) {
        self.note(&format!("lease {until}"));
    }

    fn translate(&mut self, shard: Shard, epoch: u64, _is_quiet: bool) {
        self.note(&format!("translate {} {epoch}", shard.0));
        self.with(shard, |table| table.is_enabled = true);
    }

    fn owner(&mut self, _shard: Shard, _owner: Number) {}

    fn known(&mut self, _shard: Shard, _owner: Number) {}

    fn changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.tables.lock().unwrap().changes)
    }

    fn stop(&mut self, shard: Shard, ticket: u64) {
        self.with(shard, |table| table.is_enabled = false);
        self.note(&format!("stop {}", shard.0));
        self.tables.lock().unwrap().changes.push(Change::Stopped(shard, ticket));
        self.wake.notify_one();
    }

    fn clear(&mut self, shard: Shard) {
        self.with(shard, |table| table.records.clear());
    }

    fn apply(&mut self, shard: Shard, records: &[Record]) {
        self.with(shard, |table| records.iter().for_each(|record| put(table, record)));
    }

    fn read(
        &mut self,
        shard: Shard,
        after: Option<RecordKey>,
        most: usize,
    ) -> (Vec<Change>, Vec<Record>, bool) {
        let mut tables = self.tables.lock().unwrap();
        let changes = std::mem::take(&mut tables.changes);
        let table = tables.shards.entry(shard.0).or_default();
        let rest = table.records.iter().filter(|(key, _)| Some(**key) > after);
        let mut some: Vec<Record> = rest
            .take(most + 1)
            .map(|(key, value)| Record { key: *key, value: Some(value.clone()) })
            .collect();
        let is_last = some.len() <= most;
        some.truncate(most);
        (changes, some, is_last)
    }
}

/// Names a variable whose presence means the times of real gateways, to measure with on a quiet machine.
const REAL: &str = "FORDWAY_CLUSTER_REAL_TIMES";

/// Eight times the real ones: a machine that is busy with other tests lets nobody renew a lease every 100 ms.
pub(crate) fn timing() -> Timing {
    let real = Timing::default();
    if std::env::var_os(REAL).is_some() {
        return real;
    }
    let Timing { ttl, renew, grace, turn, handover, batch, resend, .. } = real;
    let [ttl, renew, grace, turn, handover, batch, resend] =
        [ttl, renew, grace, turn, handover, batch, resend].map(|time| 8 * time);
    Timing { ttl, renew, grace, turn, handover, batch, resend, ..real }
}

fn settings(given: &Value) -> MemberSettings {
    let number = |key: &str| given[key].as_u64().unwrap();
    let path = |key: &str| PathBuf::from(given[key].as_str().unwrap());
    let me = number("me") as u16;
    let address = |number: u16| (address(number), PORT).into();
    let peers = (0..number("gateways") as u16).filter(|other| *other != me);
    let peers = peers.map(|other| PeerSettings {
        member: Number(other),
        name: format!("gw{other}.example"),
        address: address(other),
    });
    let servers =
        given["servers"].as_array().unwrap().iter().map(|url| url.as_str().unwrap().into());
    MemberSettings {
        protocol: Settings {
            me: Number(me),
            host: u128::from(me) + 1,
            process: u64::from(std::process::id()),
            weight: 100,
            shards: number("shards") as u16,
            key: [1, 2],
            config: number("config"),
            fencing: Fencing::Majority,
            timing: timing(),
            queue: 10_000,
            moves: 4,
        },
        store: StoreSettings {
            servers: servers.collect(),
            bucket: "fordway".into(),
            replicas: given["servers"].as_array().unwrap().len(),
            login: match given["store"]["password"].as_str() {
                Some(file) => Login::Password("gateway".into(), file.into()),
                None => Login::None,
            },
            ca: given["store"]["tls"].as_bool().map(|_| path("ca")),
            certificate: given["store"]["tls"]
                .as_bool()
                .map(|_| (path("certificate"), path("key"))),
        },
        channel: ChannelSettings {
            name: format!("gw{me}.example"),
            listen: address(me),
            peers: peers.collect(),
            ca: path("ca"),
            certificate: path("certificate"),
            key: path("key"),
        },
    }
}

/// Owned shards get so many records each, or, with a remainder, each shard whose number divided by 2 has it loses its own.
fn traffic(tables: &Mutex<Tables>, wake: &Notify, number: u64, generation: &mut u64) {
    let mut tables = tables.lock().unwrap();
    let Tables { shards, changes } = &mut *tables;
    for (shard, table) in shards.iter_mut().filter(|(_, table)| table.is_enabled) {
        let records = (0..number).map(|n| {
            *generation += 1;
            let mut key = [0; 24];
            key[..8].copy_from_slice(&n.to_be_bytes());
            Record { key, value: Some(generation.to_be_bytes().into()) }
        });
        let records: Vec<Record> = records.collect();
        records.iter().for_each(|record| put(table, record));
        changes.push(Change::Records(Shard(*shard), records));
    }
    drop(tables);
    wake.notify_one();
}

/// Shards with their records, as text: number, and all octets in hex folded into one number.
fn contents(tables: &Mutex<Tables>) -> Value {
    let tables = tables.lock().unwrap();
    let fold = |sum: u64, octet: &u8| sum.wrapping_mul(31).wrapping_add(u64::from(*octet));
    let of = |table: &Table| {
        let octets = table.records.iter().flat_map(|(key, value)| key.iter().chain(value.iter()));
        json!([table.records.len(), octets.fold(7, fold)])
    };
    tables.shards.iter().map(|(shard, table)| (shard.to_string(), of(table))).collect()
}

async fn answer(handle: &Handle, tables: &Mutex<Tables>) -> Value {
    let Some(overview) = handle.overview().await else { return json!({ "phase": "ended" }) };
    let of = |role: Role| {
        let own = overview.shards.iter().filter(move |shard| shard.role == role);
        own.map(|shard| shard.shard.0).collect::<Vec<u16>>()
    };
    let covered = overview.shards.iter().filter(|shard| shard.is_covered);
    json!({
        "phase": format!("{:?}", overview.phase),
        "is_member": overview.phase == Phase::Member,
        "left_ms": overview.until.saturating_sub(overview.now) / 1_000_000,
        "is_silent": overview.is_silent,
        "wall_s": SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        "peers": overview.peers,
        "is_store_open": overview.is_store_open,
        "owned": of(Role::Owner),
        "ready": of(Role::Ready),
        "moving": of(Role::Moving),
        "covered": covered.map(|shard| shard.shard.0).collect::<Vec<u16>>(),
        "store_error": overview.store_error,
        "standbys": overview.shards.iter().filter_map(|shard| Some(format!("{}:{:?}{}:{:?}", shard.shard.0, shard.standby?.0, if shard.is_covered { "" } else { "!" }, shard.lag))).collect::<Vec<_>>(),
        "lag": overview.shards.iter().map(|shard| shard.lag.0).sum::<usize>(),
        "contents": contents(tables),
        "written": overview.store.written,
        "overruled": overview.store.overruled,
        "refused": overview.channel.refused,
        "malformed": overview.channel.malformed,
        "received": overview.channel.received,
    })
}

/// Is a gateway until it is killed, or nobody listens any more.
pub(crate) fn be(given: &str) {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let given: Value = serde_json::from_str(given).unwrap();
    let path = given["ledger"].as_str().unwrap();
    let file = File::options().create(true).append(true).open(path).unwrap();
    let (tables, wake) = (Arc::<Mutex<Tables>>::default(), Arc::new(Notify::new()));
    let mut ledger = Ledger { tables: Arc::clone(&tables), wake: Arc::clone(&wake), file };
    ledger.note("begin");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let announcement = Announcement {
            table: TABLE,
            shards: ShardMap::new(given["shards"].as_u64().unwrap() as u16, [1, 2], 56, &[pool()])
                .unwrap(),
            pool6: vec!["64:ff9b::/96".parse().unwrap()],
        };
        let data = Announced::new(ledger, announcement).unwrap();
        let (member, handle) =
            Member::new(settings(&given), data, Arc::clone(&wake)).await.unwrap();
        let running = tokio::spawn(member.run());
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        let mut generation = u64::from(std::process::id()) << 32;
        while let Ok(Some(line)) = lines.next_line().await {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| words[at].parse::<u16>().unwrap();
            let command = match words[0] {
                "join" => Some(Command::Join),
                "drain" => Some(Command::Drain),
                "leave" => Some(Command::Leave),
                "declare" => Some(Command::Declare(Number(number(1)))),
                "move" => Some(Command::Wish(Shard(number(1)), Some(Number(number(2))))),
                "traffic" => {
                    traffic(&tables, &wake, number(1).into(), &mut generation);
                    None
                }
                _ => None,
            };
            if let Some(command) = command {
                handle.command(command).await;
            }
            println!("{}", answer(&handle, &tables).await);
        }
        drop(handle);
        running.await.unwrap().unwrap();
    });
}
