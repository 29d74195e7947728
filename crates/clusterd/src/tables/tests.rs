use std::net::Ipv6Addr;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use fordway_cluster::ShardMap;
use fordway_engine::monotonic;
use fordway_testhost::poll;
use fordway_xlat::nat64::{
    Gates, Heap, Memory, OwnGates, Pool, Protocol, Range, Segment, Settings, Sizes, Tuple,
};
use fordway_xlat::{Config, Translator};

use super::*;

const SHARDS: u16 = 4;
const UDP: Replicated = Replicated { udp: true, icmp: false };

fn pool() -> Vec<Range> {
    let (first, last) = ([192, 0, 2, 0].into(), [192, 0, 2, 15].into());
    vec![Range { first, last, low: 1024, high: 65_535 }]
}

fn map() -> ShardMap {
    ShardMap::new(SHARDS, [1, 2], 56, &[pool()]).unwrap()
}

/// The `n`th host of a shard.
fn host(shard: u16, n: usize) -> Ipv6Addr {
    let hosts = (1..).map(|site| Ipv6Addr::new(0x2001, 0xdb8, 1, site << 8, 0, 0, 0, 1));
    hosts.filter(|host| map().of_host(*host) == Shard(shard)).nth(n).unwrap()
}

/// Of programs in the kernel.
static WAITS: AtomicU32 = AtomicU32::new(0);

fn wait() {
    WAITS.fetch_add(1, Relaxed);
}

fn start(nat: &Arc<Nat64>) -> Result<Tables, TablesError> {
    let config = Config { pool6: vec!["64:ff9b::/96".parse().unwrap()], ..Config::default() };
    let translator = Translator::nat64(config, Arc::clone(nat)).unwrap();
    let engine = fordway_engine::Tables::idle(Arc::new(translator).into());
    let mut owners = Owners::unknown(Member(0), SHARDS);
    owners.told = Duration::from_secs(3600);
    let owners = Arc::new(owners);
    let (wake, stats) = Default::default();
    Tables::start(
        engine,
        TablesSettings {
            replicated: UDP,
            wake,
            owners,
            stats,
            ways: BTreeMap::from([(Member(7), 70)]),
            programs: Some(wait),
        },
    )
}

/// Opens a UDP session from a host's port. Whether that was possible.
fn opens(nat: &Nat64, host: Ipv6Addr, port: u16) -> bool {
    let tuple = Tuple {
        protocol: Protocol::Udp,
        near: (host, port),
        remote: ([198, 51, 100, 1].into(), 53),
        segment: Segment::Other,
        pool6: 0,
        mark: 0,
        packets: 1,
        octets: 100,
    };
    nat.from_v6(&tuple, monotonic(), 0).is_ok()
}

struct Gateway {
    nat: Arc<Nat64>,
    tables: Tables,
}

impl Gateway {
    fn with(sizes: Sizes) -> Gateway {
        Gateway::of(Shards::new(map()), sizes, &Arc::new(Heap::new(&sizes, [1, 2])))
    }

    fn of(shards: Shards, sizes: Sizes, heap: &Arc<Heap>) -> Gateway {
        let settings = Settings {
            pools: vec![Pool { ranges: pool(), ..Pool::default() }],
            subscriber_len: 56,
            shards: Some(Arc::new(shards)),
            sizes,
            ..Settings::default()
        };
        let memory = Arc::clone(heap) as Arc<dyn Memory>;
        let nat = Arc::new(Nat64::new(settings, memory).unwrap());
        let tables = start(&nat).unwrap();
        Gateway { nat, tables }
    }

    fn new() -> Gateway {
        Gateway::with(Sizes { bibs: 64, sessions: 64, subscribers: 16 })
    }

    fn opens(&self, host: Ipv6Addr, port: u16) -> bool {
        opens(&self.nat, host, port)
    }

    fn sessions(&self) -> usize {
        self.nat.sessions(monotonic()).count()
    }

    /// What it tells, until that is enough.
    fn told(&mut self, is_enough: impl Fn(&[Change]) -> bool) -> Vec<Change> {
        let mut all = Vec::new();
        poll("changes", || {
            all.extend(self.tables.changes());
            is_enough(&all).then_some(())
        });
        all
    }

    fn apply_all(&mut self, changes: &[Change]) {
        for (shard, records) in changes.iter().filter_map(records_of) {
            self.tables.apply(shard, records);
        }
    }

    fn all_of(&mut self, shard: u16) -> Vec<Record> {
        let (before, records, is_last) = self.tables.read(Shard(shard), None, 100);
        assert!(is_last && before.is_empty());
        records
    }
}

fn records_of(change: &Change) -> Option<(Shard, &[Record])> {
    match change {
        Change::Records(shard, records) => Some((*shard, records)),
        Change::Stopped(..) => None,
    }
}

/// How many records were told.
fn number(changes: &[Change]) -> usize {
    changes.iter().filter_map(records_of).map(|(_, records)| records.len()).sum()
}

#[test]
fn sessions_go_to_the_standby_and_on_with_it() {
    let (mut owner, mut standby) = (Gateway::new(), Gateway::new());
    owner.tables.translate(Shard(1), 1, false);
    assert!(owner.opens(host(1, 0), 4000) && owner.opens(host(1, 1), 4000));
    assert!(!owner.opens(host(2, 0), 4000), "another's shard");
    // Each is a subscriber, a BIB entry and a session.
    let told = owner.told(|all| number(all) == 6);
    assert!(told.iter().filter_map(records_of).all(|(shard, _)| shard == Shard(1)));
    standby.apply_all(&told);
    assert_eq!(standby.sessions(), 2);
    assert!(!standby.opens(host(1, 2), 4000), "before it owns the shard");
    standby.tables.translate(Shard(1), 2, true);
    assert!(standby.opens(host(1, 2), 4000));
    assert_eq!(number(&standby.told(|all| number(all) == 3)), 3);
    assert_eq!((standby.all_of(1).len(), standby.all_of(2).len()), (9, 0));
}

#[test]
fn a_stop_is_done_when_the_last_change_is_told() {
    let mut owner = Gateway::new();
    owner.tables.translate(Shard(1), 1, false);
    owner.tables.translate(Shard(2), 1, false);
    assert!((0..5).all(|n| owner.opens(host(1, n), 4000)));
    owner.tables.stop(Shard(1), 7);
    let told = owner.told(|all| all.contains(&Change::Stopped(Shard(1), 7)));
    assert_eq!((number(&told), told.last()), (15, Some(&Change::Stopped(Shard(1), 7))));
    assert!(!owner.opens(host(1, 9), 4000) && owner.opens(host(2, 0), 4000));
    assert_eq!(owner.all_of(1).len(), 15);
}

#[test]
fn a_move_that_is_given_up_goes_on_as_before() {
    let mut owner = Gateway::new();
    owner.tables.translate(Shard(1), 1, false);
    for port in 1..30 {
        owner.tables.stop(Shard(1), port.into());
        owner.tables.translate(Shard(1), 1, false);
        assert!(owner.opens(host(1, 0), port));
    }
    // A subscriber, and two for each port.
    owner.told(|all| number(all) == 59);
    assert_eq!(owner.sessions(), 29);
}

#[test]
fn records_of_another_owner_end_a_stop() {
    let (mut first, mut second) = (Gateway::new(), Gateway::new());
    first.tables.translate(Shard(1), 1, false);
    second.tables.translate(Shard(1), 2, false);
    assert!(first.opens(host(1, 0), 4000) && second.opens(host(1, 1), 4000));
    first.told(|all| number(all) == 3);
    let told = second.told(|all| number(all) == 3);
    first.tables.stop(Shard(1), 8);
    first.tables.clear(Shard(1));
    first.apply_all(&told);
    assert!(first.tables.changes().contains(&Change::Stopped(Shard(1), 8)));
    assert_eq!((first.all_of(1), first.sessions()), (second.all_of(1), 1));
}

#[test]
fn what_is_read_has_the_changes_that_come_with_it_and_no_others() {
    let mut owner = Gateway::new();
    owner.tables.translate(Shard(1), 1, false);
    let mut told = std::collections::BTreeMap::new();
    for port in 1..40 {
        assert!(owner.opens(host(1, 0), port));
        let (before, records, is_last) = owner.tables.read(Shard(1), None, 200);
        for record in before.iter().filter_map(records_of).flat_map(|(_, records)| records) {
            told.insert(record.key, record.value.clone());
        }
        let read = records.into_iter().map(|it| (it.key, it.value));
        assert!(is_last && read.eq(told.clone()), "port {port}");
    }
}

#[test]
fn what_has_no_room_is_told_as_removed_at_the_take_over() {
    let sizes = Sizes { bibs: 64, sessions: 1, subscribers: 16 };
    let (mut owner, mut standby) = (Gateway::new(), Gateway::with(sizes));
    owner.tables.translate(Shard(1), 1, false);
    assert!(owner.opens(host(1, 0), 1) && owner.opens(host(1, 0), 2));
    standby.apply_all(&owner.told(|all| number(all) == 5));
    assert_eq!(standby.all_of(1).len(), 4);
    let stats = Arc::clone(&standby.tables.shared.settings.stats);
    let found = || Some(stats.get()).filter(|it| it.unplaced == 1);
    assert_eq!(poll("a scan", found).refused, 1);
    standby.tables.translate(Shard(1), 2, true);
    let told = standby.tables.changes();
    let [Change::Records(Shard(1), records)] = &told[..] else { panic!("{told:?}") };
    assert!(records.len() == 1 && records[0].value.is_none());
}

#[test]
fn nothing_is_translated_at_first_nor_without_shards() {
    let gateway = Gateway::new();
    assert!(!gateway.opens(host(0, 0), 1));
    let settings = Settings::default();
    let heap = Heap::new(&settings.sizes, [1, 2]);
    let nat = Arc::new(Nat64::new(settings, Arc::new(heap)).unwrap());
    assert!(matches!(start(&nat).err(), Some(TablesError::NoShards)));
}

#[test]
fn owners_are_known_when_they_were_told() {
    let mut gateway = Gateway::new();
    let owners = Arc::clone(&gateway.tables.shared.settings.owners);
    gateway.tables.owner(Shard(2), Member(7));
    gateway.tables.owner(Shard(SHARDS), Member(1));
    assert_eq!([1, 2, SHARDS].map(|n| owners.of(n)), [None, Some(Member(7)), None]);
}

/// Packets may be handed over as soon as the next owner has said so.
#[test]
fn an_owner_that_knows_gets_its_packets_at_once() {
    let gates = Arc::new(OwnGates::new(SHARDS));
    let sizes = Sizes { bibs: 64, sessions: 64, subscribers: 16 };
    let shards = Shards::with(map(), Arc::clone(&gates));
    let mut gateway = Gateway::of(shards, sizes, &Arc::new(Heap::new(&sizes, [1, 2])));
    let owners = Arc::clone(&gateway.tables.shared.settings.owners);
    let is_open = || (owners.is_own(2), gates.words()[1 + 3 * 2 + 2].load(Relaxed));
    gateway.tables.owner(Shard(2), Member(0));
    gateway.tables.owner(Shard(2), Member(7));
    assert_eq!(is_open(), (true, 0));
    gateway.tables.known(Shard(2), Member(6));
    assert_eq!(is_open(), (true, 0));
    gateway.tables.known(Shard(2), Member(7));
    assert_eq!(is_open(), (false, 70));
    assert!(gateway.tables.shared.lock().ways.is_empty());
}

/// Packets make entries during a scan.
#[test]
fn every_entry_is_told_that_packets_make_meanwhile() {
    const PORTS: u16 = 20_000;
    let mut owner = Gateway::with(Sizes { bibs: 1 << 16, sessions: 1 << 16, subscribers: 1 << 10 });
    owner.tables.translate(Shard(1), 1, false);
    let hosts: Vec<_> = (0..8).map(|n| host(1, n)).collect();
    let nat = Arc::clone(&owner.nat);
    let packets =
        thread::spawn(move || (0..PORTS).all(|n| opens(&nat, hosts[usize::from(n % 8)], 1 + n)));
    owner.told(|all| number(all) == 8 + 2 * usize::from(PORTS));
    assert!(packets.join().unwrap());
    assert_eq!(owner.sessions(), usize::from(PORTS));
}

/// It would take them all at once, and could not renew its lease meanwhile.
#[test]
fn a_member_that_takes_nothing_is_not_buried_under_changes() {
    const PORTS: u16 = 4000;
    let mut owner = Gateway::with(Sizes { bibs: 1 << 14, sessions: 1 << 14, subscribers: 1 << 10 });
    owner.tables.translate(Shard(1), 1, false);
    let all = (1..=PORTS).all(|port| owner.opens(host(1, 0), port));
    assert!(all);
    let shared = Arc::clone(&owner.tables.shared);
    (0..100).for_each(|_| {
        let _pause = shared.stretch(&mut shared.lock());
    });
    // As many as wait at most, and what one look finds beyond them.
    let most = changes::FULL + 2 * CHUNK as usize;
    let first = number(&owner.tables.changes());
    assert!((changes::FULL..=most).contains(&first), "{first}");
    owner.tables.stop(Shard(1), 7);
    let told = owner.told(|all| all.contains(&Change::Stopped(Shard(1), 7)));
    assert_eq!(first + number(&told), 1 + 2 * usize::from(PORTS));
}

/// Of tables that are large, a scan takes longer than a gateway may stand still.
#[test]
fn neither_records_nor_a_stop_wait_for_a_scan() {
    let mut owner = Gateway::new();
    owner.tables.translate(Shard(1), 1, false);
    owner.tables.shared.lock().scans_at = Instant::now() + Duration::from_secs(3600);
    assert!(owner.opens(host(1, 0), 4000));
    owner.told(|all| number(all) == 3);
    assert!(owner.opens(host(1, 1), 4000));
    owner.tables.stop(Shard(1), 7);
    let told = owner.told(|all| all.contains(&Change::Stopped(Shard(1), 7)));
    assert_eq!(number(&told), 3);
}

#[test]
fn a_stop_waits_for_programs() {
    let mut gateway = Gateway::new();
    gateway.tables.translate(Shard(1), 1, false);
    let before = WAITS.load(Relaxed);
    gateway.tables.stop(Shard(1), 5);
    gateway.told(|all| all.contains(&Change::Stopped(Shard(1), 5)));
    assert!(WAITS.load(Relaxed) > before);
}

/// Where tables and words outlive a process, as with programs in the kernel, the next one has what was its own.
#[test]
fn the_next_process_knows_what_this_one_has_owned() {
    let sizes = Sizes { bibs: 64, sessions: 64, subscribers: 16 };
    let heap = Arc::new(Heap::new(&sizes, [1, 2]));
    let gates = Arc::new(OwnGates::new(SHARDS));
    let process = || Gateway::of(Shards::with(map(), Arc::clone(&gates)), sizes, &heap);
    let mut first = process();
    assert_eq!(first.tables.loaded(), []);
    first.tables.lease(Nanos::MAX);
    for (shard, epoch) in [(1, 7), (2, 8), (3, 9)] {
        first.tables.translate(Shard(shard), epoch, false);
        assert!(first.opens(host(shard, 0), 4000));
    }
    let is_told =
        |all: &[Change]| all.iter().filter_map(records_of).map(|it| it.1.len()).sum::<usize>() == 9;
    first.told(is_told);
    let records = [1, 2, 3].map(|shard| first.all_of(shard));
    // Another gateway's changes: it is not as this one has owned it.
    first.tables.apply(Shard(3), &[]);
    drop(first);

    let mut second = process();
    let shards = Arc::clone(second.nat.settings().shards.as_ref().unwrap());
    let anybody = (0..SHARDS).any(|it| shards.enter(it, Duration::ZERO, u64::MAX).is_ok());
    assert!(!anybody, "the lease is taken back");
    let loaded = second.tables.loaded();
    let known = loaded.iter().map(|(shard, epoch, records)| (shard.0, *epoch, records.len()));
    assert_eq!(known.collect::<Vec<_>>(), [(1, 7, 3), (2, 8, 3), (3, 0, 3)]);
    for ((_, _, loaded), mut records) in loaded.into_iter().zip(records) {
        let mut loaded = loaded;
        loaded.sort_by_key(|record| record.key);
        records.sort_by_key(|record| record.key);
        assert_eq!(loaded, records);
    }
    // It goes on with one of them.
    second.tables.translate(Shard(1), 8, true);
    assert_eq!(second.sessions(), 3);
    assert!(second.opens(host(1, 0), 4001));
    assert!(!second.opens(host(2, 0), 4001));
}

/// With 400,000 sessions.
#[test]
#[ignore = "prints figures, which hold for a quiet machine and a release build"]
fn large_tables_are_measured() {
    const PORTS: u16 = 5000;
    const HOSTS: usize = 20;
    let mut owner = Gateway::with(Sizes { bibs: 1 << 20, sessions: 1 << 20, subscribers: 1 << 10 });
    for shard in 0..SHARDS {
        owner.tables.translate(Shard(shard), 1, false);
        for host in (0..HOSTS).map(|n| host(shard, n)) {
            assert!((1..=PORTS).all(|port| owner.opens(host, port)));
        }
    }
    let all = usize::from(SHARDS) * HOSTS * (1 + 2 * usize::from(PORTS));
    owner.told(|told| number(told) >= all);
    let until = |owner: &mut Gateway, is_enough: &dyn Fn(&Change) -> bool| {
        let began = Instant::now();
        while !owner.tables.changes().iter().any(is_enough) {
            thread::sleep(Duration::from_micros(100));
        }
        began.elapsed().as_millis()
    };
    let (mut told, mut stopped) = (Vec::new(), Vec::new());
    for n in 0..HOSTS {
        thread::sleep(Duration::from_millis(300));
        assert!(owner.opens(host(1, n), PORTS + 1));
        told.push(until(&mut owner, &|change| records_of(change).is_some()));
        owner.tables.stop(Shard(1), 7);
        stopped.push(until(&mut owner, &|change| matches!(change, Change::Stopped(..))));
        owner.tables.translate(Shard(1), 2, false);
    }
    println!("a new session is told after {told:?} ms, a stop is done after {stopped:?} ms");
}
