//! The fence of a cluster in programs: whose a packet is, and whether it may be translated. Needs root.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fordway_bpf::{
    Action, Loaded, Outcome, PassReason, Program, ShardGates, StateMaps, Stateful, TestOptions,
};
use fordway_cluster::ShardMap;
use fordway_engine::{boottime, monotonic};
use fordway_testhost::is_root;
use fordway_xlat::nat64::replica::{Replica, Replicated};
use fordway_xlat::nat64::{
    Gates, Nat64, Partition, Pool, Protocol, Range, Segment, Settings, Shards, Sizes, Sweeper,
    Tuple,
};
use fordway_xlat::{Config, DropReason};

use crate::alike::frame;

const SHARDS: u16 = 37;

/// A gateway's programs, and the shards whose packets they may translate: none at first.
struct Gateway {
    program: Loaded,
    map: ShardMap,
    shards: Arc<Shards>,
    gates: Arc<ShardGates>,
    /// The core on the same tables.
    nat: Nat64,
}

impl Gateway {
    /// Two pools; in one, shards have parts of addresses.
    fn new() -> Gateway {
        let range = |number, last, low| Range {
            first: Ipv4Addr::new(198, 18, number, 0),
            last: Ipv4Addr::new(198, 18, number, last),
            low,
            high: 60_000,
        };
        let pools = [vec![range(100, 200, 1024), range(101, 3, 2000)], vec![range(102, 1, 1)]];
        let map = ShardMap::new(SHARDS, [0x0123_4567_89ab_cdef, 77], 56, &pools).unwrap();
        let gates = Arc::new(ShardGates::new().unwrap());
        let shards = Arc::new(Shards::with(map.clone(), Arc::clone(&gates)));
        let sizes = Sizes { bibs: 100, sessions: 100, subscribers: 100 };
        let pools = pools.map(|ranges| Pool { ranges, ..Pool::default() });
        let settings = Settings {
            pools: pools.to_vec(),
            subscriber_len: 56,
            shards: Some(Arc::clone(&shards)),
            sizes,
            ..Settings::default()
        };
        let pool6 = ["2001:db8:64::/96", "2001:db8:65::/96"].map(|it| it.parse().unwrap()).to_vec();
        let config = Config { pool6, ..Config::default() };
        let maps = Arc::new(StateMaps::make(&sizes, [3, 5]).unwrap());
        let nat = Nat64::new(settings.clone(), Arc::clone(&maps) as Arc<_>).unwrap();
        let stateful = Some(Stateful { settings, maps, gates: Some(Arc::clone(&gates)) });
        let options = TestOptions { stateful, ..TestOptions::default() };
        let program = Loaded::load(&config, &[Program::Interface], &options).unwrap();
        Gateway { program, map, shards, gates, nat }
    }

    fn run(&mut self, packet: &[u8]) -> Outcome {
        let run = self.program.run(Program::Interface, &frame(packet), 0, 1).unwrap();
        run.outcome.expect("an outcome")
    }

    /// Entries of sessions that are noted as changed, which is forgotten.
    fn noted(&self) -> Vec<usize> {
        let words = self.gates.changed().iter().enumerate();
        let bits = words.map(|(place, word)| (place, word.swap(0, Ordering::Relaxed)));
        bits.flat_map(|(place, word)| {
            (0..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| 64 * place + bit)
        })
        .collect()
    }
}

/// A datagram of a host; the programs know no subscriber.
fn from_host(host: Ipv6Addr) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 8, 17, 64];
    packet.extend(host.octets());
    let server: Ipv6Addr = "2001:db8:64::203.0.113.1".parse().unwrap();
    packet.extend(server.octets());
    packet.extend([15, 160, 0, 53, 0, 8, 0x12, 0x34]);
    packet
}

/// A datagram from IPv4, or an echo reply, to which there is no BIB entry.
fn from_server(to: Ipv4Addr, port: u16, is_query: bool) -> Vec<u8> {
    let protocol = if is_query { 1 } else { 17 };
    let mut packet = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, protocol, 0, 0, 203, 0, 113, 1];
    packet.extend(to.octets());
    let checksum = fordway_testkit::checksum::checksum(&packet);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    let [high, low] = port.to_be_bytes();
    let transport = [0, 53, high, low, 0, 8, 0x12, 0x34];
    let mut query = [0, 0, 0, 0, high, low, 0, 1];
    let sum = fordway_testkit::checksum::checksum(&query);
    query[2..4].copy_from_slice(&sum.to_be_bytes());
    packet.extend(if is_query { query } else { transport });
    packet
}

const ELSEWHERE: Outcome = Outcome::PassedOn(PassReason::Shard);

#[test]
fn programs_and_cluster_divide_alike() {
    if !is_root() {
        return;
    }
    let mut gateway = Gateway::new();
    gateway.shards.lease(Duration::MAX);
    (0..SHARDS)
        .filter(|shard| shard.is_multiple_of(3))
        .for_each(|it| gateway.shards.enable(it, None));
    let mut counts = [0; 2];
    for number in 0..600_u128 {
        // The first bits alone count.
        let host = Ipv6Addr::from_bits((0x2001_0db8 << 96) | ((number * 0x9e37) << 72) | number);
        let is_own = gateway.map.of_host(host).0.is_multiple_of(3);
        let expected = if is_own { Outcome::PassedOn(PassReason::Subscriber) } else { ELSEWHERE };
        assert_eq!(gateway.run(&from_host(host)), expected, "{host}");
        counts[usize::from(is_own)] += 1;
    }
    for number in 0..1500_u32 {
        let net = 100 + (number % 3) as u8;
        let to = Ipv4Addr::new(198, 18, net, (number / 3 * 7 % 256) as u8);
        let (port, is_query) = ((number * 7919 % 65_536) as u16, number % 5 == 0);
        let shard = gateway.map.of_v4(to, port).map(|shard| shard.0);
        let is_pool = (100..=102).any(|it| {
            let last = [200, 3, 1][usize::from(it - 100_u8)];
            net == it && to.octets()[3] <= last
        });
        let expected = match shard {
            Some(shard) if shard % 3 != 0 => ELSEWHERE,
            Some(_) => Outcome::Dropped(DropReason::NoBib),
            // The core says what becomes of it.
            None if is_pool => Outcome::PassedOn(PassReason::Session),
            None => Outcome::Dropped(DropReason::NoMappingDestination),
        };
        assert_eq!(gateway.run(&from_server(to, port, is_query)), expected, "{to} {port}");
        counts[usize::from(shard.is_some_and(|shard| shard.is_multiple_of(3)))] += 1;
    }
    assert!(counts.iter().all(|count| *count > 300), "{counts:?}");
}

#[test]
fn programs_keep_to_the_lease_and_to_the_quiet_time() {
    if !is_root() {
        return;
    }
    let mut gateway = Gateway::new();
    let host = "2001:db8:1::1".parse().unwrap();
    let packet = from_host(host);
    let own = Outcome::PassedOn(PassReason::Subscriber);
    let shard = Partition::of_host(&gateway.map, host);
    let far = Duration::from_secs(3600);
    assert_eq!(gateway.run(&packet), ELSEWHERE, "nothing is enabled");
    gateway.shards.enable(shard, None);
    assert_eq!(gateway.run(&packet), ELSEWHERE, "there is no lease");
    gateway.shards.lease(boottime());
    assert_eq!(gateway.run(&packet), ELSEWHERE, "the lease is over");
    gateway.shards.lease(boottime() + far);
    assert_eq!(gateway.run(&packet), own);
    // While it is quiet, the core takes all.
    gateway.shards.enable(shard, Some(boottime() + far));
    assert_eq!(gateway.run(&packet), ELSEWHERE);
    gateway.shards.enable(shard, Some(boottime()));
    assert_eq!(gateway.run(&packet), own);
    gateway.shards.disable(shard);
    assert_eq!(gateway.run(&packet), ELSEWHERE);
    // Another gateway has it, and there is a way to that one.
    gateway.shards.set_way(shard, 1);
    let run = gateway.program.run(Program::Interface, &frame(&packet), 0, 1).unwrap();
    assert_eq!((run.action, run.outcome), (Action::Redirect, Some(Outcome::HandedOver)));
    assert_eq!(run.frame, frame(&packet), "it is as it came");
}

/// What the standby has to be told of.
#[test]
fn programs_note_new_sessions_and_other_states() {
    if !is_root() {
        return;
    }
    let mut gateway = Gateway::new();
    let host: Ipv6Addr = "2001:db8:1::1".parse().unwrap();
    let shard = Partition::of_host(&gateway.map, host);
    let mut replica = Replica::new(&gateway.nat, Replicated::default()).unwrap();
    replica.take_over(&gateway.nat, &mut Sweeper::new(), monotonic(), shard, &mut |_| {});
    gateway.shards.lease(Duration::MAX);
    gateway.shards.enable(shard, None);
    let remote = (Ipv4Addr::new(203, 0, 113, 1), 80);
    let tuple = Tuple {
        protocol: Protocol::Tcp,
        near: (host, 4000),
        remote,
        segment: Segment::Syn,
        pool6: 0,
        mark: 0,
        packets: 1,
        octets: 60,
    };
    let (local, port) = gateway.nat.from_v6(&tuple, monotonic(), 0).unwrap();
    let noted = gateway.noted();
    assert_eq!(noted.len(), 1, "by the core: {noted:?}");
    assert_eq!(gateway.run(&segment(local, port, 0x12)), Outcome::Translated);
    assert_eq!(gateway.noted(), noted);
    assert_eq!(gateway.run(&segment(local, port, 0x10)), Outcome::Translated);
    assert_eq!(gateway.noted(), [0_usize; 0]);
    assert_eq!(gateway.run(&segment(local, port, 0x11)), Outcome::Translated);
    assert_eq!(gateway.noted(), noted);
    // A datagram, for which the program makes binding and session.
    assert_eq!(gateway.run(&from_host(host)), Outcome::Translated);
    let noted = gateway.noted();
    assert!(noted.len() == 1 && gateway.nat.sessions(monotonic()).count() == 2);
    assert_eq!(gateway.run(&from_host(host)), Outcome::Translated);
    assert_eq!(gateway.noted(), [0_usize; 0]);
    // The same session, by the other prefix.
    let mut other = from_host(host);
    other[29] = 0x65;
    assert_eq!(gateway.run(&other), Outcome::Translated);
    assert_eq!(gateway.noted(), noted);
}

/// A segment of 203.0.113.1, port 80, with these flags.
fn segment(to: Ipv4Addr, port: u16, flags: u8) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0, 203, 0, 113, 1];
    packet.extend(to.octets());
    let checksum = fordway_testkit::checksum::checksum(&packet);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    let [high, low] = port.to_be_bytes();
    packet.extend([0, 80, high, low, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 1, 0, 0, 0, 0, 0]);
    packet
}
