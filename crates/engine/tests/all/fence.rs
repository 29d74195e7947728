//! The engine of a gateway in a cluster: whose shards, until when, and what is another gateway's.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use fordway_engine::{Engine, HandOver, Options, boottime, monotonic};
use fordway_testhost::PATIENCE;
use fordway_testkit::tap::Tap;
use fordway_tun::VnetHeader;
use fordway_xlat::nat64::replica::{Replica, Replicated};
use fordway_xlat::nat64::{Nat64, Partition, Range, Settings, Shards, Sweeper};
use fordway_xlat::{ChecksumState, Direction, DropReason, Gso, GsoKind, Offload, Translator};

use crate::engine::{config, in_namespace, settings, start_with, sum, tables, v4, wait_until};

/// Two shards: even hosts and even ports are in shard 0. Once it is armed, the second question for a host's shard, which
/// comes while its packet is being translated, ends the lease.
#[derive(Debug, Default)]
struct Halves {
    shards: OnceLock<Arc<Shards>>,
    asked: AtomicBool,
    armed: AtomicBool,
}

#[derive(Clone, Debug, Default)]
struct Trap(Arc<Halves>);

impl Partition for Trap {
    fn shards(&self) -> u16 {
        2
    }

    fn of_host(&self, host: Ipv6Addr) -> u16 {
        let Trap(trap) = self;
        if trap.armed.load(Ordering::SeqCst) && trap.asked.swap(true, Ordering::SeqCst) {
            trap.shards.get().unwrap().lease(Duration::ZERO);
        }
        host.segments()[7] % 2
    }

    fn of_v4(&self, _v4: Ipv4Addr, port: u16) -> Option<u16> {
        (port >= 1024).then_some(u16::from(port >= 2048))
    }

    fn ranges(&self, _pool: usize, shard: u16) -> Vec<Range> {
        let address = Ipv4Addr::new(192, 0, 2, 1);
        let (low, high) = if shard == 0 { (1024, 2047) } else { (2048, 65_535) };
        vec![Range { first: address, last: address, low, high }]
    }
}

/// What was handed over: shard, header, packet.
type Handed = (u16, VnetHeader, Vec<u8>);

/// Takes packets, but none of less than 40 octets.
#[derive(Debug)]
struct Peers {
    sender: Sender<Handed>,
    /// The shard that this gateway owns.
    own: AtomicU16,
    /// Milliseconds.
    patience: AtomicU64,
    /// When the engine has called so often, shard 0 is enabled; without shards, another gateway gets it.
    moves: Mutex<Option<(usize, Option<Arc<Shards>>)>>,
}

impl Peers {
    fn called(&self) {
        let mut moves = self.moves.lock().unwrap();
        match moves.take() {
            Some((0, Some(shards))) => shards.enable(0, None),
            Some((0, None)) => self.own.store(NONE, Ordering::SeqCst),
            later => *moves = later.map(|(calls, to)| (calls - 1, to)),
        }
    }
}

impl HandOver for Peers {
    fn hand_over(&self, _queue: usize, shard: u16, header: &VnetHeader, packet: &[u8]) -> bool {
        self.called();
        packet.len() >= 40 && self.sender.send((shard, *header, packet.to_vec())).is_ok()
    }

    fn is_own(&self, shard: u16) -> bool {
        self.called();
        self.own.load(Ordering::SeqCst) == shard
    }

    fn patience(&self) -> Duration {
        Duration::from_millis(self.patience.load(Ordering::SeqCst))
    }
}

const NONE: u16 = u16::MAX;

/// Moves of a shard while packets come.
const ROUNDS: u64 = 50;

struct Gateway {
    engine: Engine,
    tap: Tap,
    trap: Trap,
    shards: Arc<Shards>,
    handed: Receiver<Handed>,
    peers: Arc<Peers>,
}

impl Gateway {
    /// Owns and translates shard 0, by one thread.
    fn start(run_dir: &std::path::Path) -> Gateway {
        let trap = Trap::default();
        let shards = Arc::new(Shards::new(trap.clone()));
        trap.0.shards.set(Arc::clone(&shards)).unwrap();
        let nat64: Arc<Nat64> =
            tables(Settings { shards: Some(Arc::clone(&shards)), ..settings() });
        let mut replica = Replica::new(&nat64, Replicated::default()).unwrap();
        replica.take_over(&nat64, &mut Sweeper::new(), monotonic(), 0, &mut |_| {});
        shards.enable(0, None);
        shards.lease(Duration::MAX);
        let translator = Translator::nat64(config(), nat64).unwrap();
        let (sender, handed) = channel();
        let peers = Arc::new(Peers {
            sender,
            own: AtomicU16::new(0),
            patience: AtomicU64::new(3_600_000),
            moves: Mutex::default(),
        });
        let options = Options { hand_over: Some(Arc::clone(&peers) as _), ..Options::default() };
        let (engine, tap) = start_with(run_dir, 1, translator, options);
        Gateway { engine, tap, trap, shards, handed, peers }
    }

    fn send(&self, packet: &[u8]) {
        self.tap.send(packet, &Offload::default()).unwrap();
    }

    fn all(&self, count: impl Fn(&fordway_xlat::Counters) -> u64) -> u64 {
        self.engine.counters().iter().map(|queue| count(&queue.core)).sum()
    }

    fn wait_for_drop(&self, reason: DropReason) {
        wait_until("a drop", || self.all(|core| core.dropped(reason)) == 1);
    }

    fn wait_for_packets(&self, number: u64) {
        let count = || self.all(|core| core.direction(Direction::V6ToV4).packets);
        wait_until("a packet", || count() == number);
    }

    /// The ports of the packets that have come out until now, whose order is that of the queue's thread.
    fn sent(&self) -> Vec<u16> {
        let all = self.tap.receive_all().unwrap();
        let to_server = |packet: &&(Vec<u8>, _)| packet.0[0] >> 4 == 4;
        all.iter().filter(to_server).map(|(it, _)| u16::from_be_bytes([it[22], it[23]])).collect()
    }
}

/// A datagram of a host to a port of 198.51.100.1; its payload has `len` octets.
fn v6(host: u8, port: u16, len: usize) -> Vec<u8> {
    let udp = (8 + len) as u16;
    let mut packet = vec![0x60, 0, 0, 0, (udp >> 8) as u8, udp as u8, 17, 64];
    packet.extend([0x20, 1, 0xd, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
    packet.extend([0x20, 1, 0xd, 0xb8, 0, 0x64, 0, 0, 0, 0, 0, 0, 198, 51, 100, 1]);
    for word in [4000, port, udp, 0x1234] {
        packet.extend(u16::to_be_bytes(word));
    }
    packet.resize(48 + len, 0x5a);
    packet
}

/// A segment with `flags` of a host to port 80 of 198.51.100.1, behind `before` octets.
fn tcp(host: u8, flags: u8, before: u32, len: usize) -> Vec<u8> {
    let mut packet = v6(host, 80, 12 + len);
    packet[6] = 6;
    packet[44..48].copy_from_slice(&before.to_be_bytes());
    packet[48..60].copy_from_slice(&[0, 0, 0, 1, 0x50, flags, 1, 0, 0, 0, 0, 0]);
    let pseudo = [&packet[8..40], &[0, 6], &packet[4..6], &packet[40..]].concat();
    let checksum = !sum(&pseudo);
    packet[56..58].copy_from_slice(&checksum.to_be_bytes());
    packet
}

/// The fragment of such a datagram from `offset` on.
fn fragment(whole: &[u8], offset: usize, len: usize) -> Vec<u8> {
    let end = (40 + offset + len).min(whole.len());
    let piece = &whole[40 + offset..end];
    let mut packet = whole[..40].to_vec();
    packet[4..6].copy_from_slice(&(8 + piece.len() as u16).to_be_bytes());
    packet[6] = 44;
    let more = u16::from(end < whole.len());
    packet.extend([17, 0]);
    packet.extend((offset as u16 | more).to_be_bytes());
    packet.extend([0, 0, 0, 7]);
    packet.extend(piece);
    packet
}

/// The lease ends when the packet has been admitted, and before it is sent.
#[test]
fn a_lease_that_ends_during_translation_holds_the_packet_back() {
    in_namespace(|run_dir| {
        let gateway = Gateway::start(run_dir);
        gateway.send(&v6(2, 1, 8));
        gateway.wait_for_packets(1);
        gateway.trap.0.armed.store(true, Ordering::SeqCst);
        gateway.send(&v6(4, 2, 8));
        gateway.wait_for_drop(DropReason::LeaseEnded);
        gateway.trap.0.armed.store(false, Ordering::SeqCst);
        let sessions = gateway.engine.core().tables().unwrap().occupancy()[1].used;
        assert_eq!(sessions, 2, "it was translated");
        // What comes later leaves later: the held back one would be before it.
        gateway.shards.lease(boottime() + Duration::from_secs(3600));
        gateway.send(&v6(2, 3, 8));
        gateway.wait_for_packets(2);
        assert_eq!(gateway.sent(), [1, 3]);
        gateway.engine.stop().unwrap();
    });
}

#[test]
fn a_lease_is_over_by_the_clock() {
    in_namespace(|run_dir| {
        let gateway = Gateway::start(run_dir);
        gateway.shards.lease(boottime());
        gateway.send(&v6(2, 1, 8));
        gateway.wait_for_drop(DropReason::LeaseEnded);
        assert_eq!(gateway.engine.core().tables().unwrap().occupancy()[1].used, 0);
        gateway.engine.stop().unwrap();
    });
}

#[test]
fn packets_of_other_shards_are_handed_over_as_they_came() {
    in_namespace(|run_dir| {
        let gateway = Gateway::start(run_dir);
        let mut octets = 0;
        let mut expect = |packet: &[u8], offload: &Offload, handed: &[u8]| {
            gateway.tap.send(packet, offload).unwrap();
            let (shard, header, octets_handed) = gateway.handed.recv_timeout(PATIENCE).unwrap();
            assert_eq!((shard, octets_handed.as_slice()), (1, handed));
            octets += handed.len() as u64;
            header
        };
        let plain = Offload::default();
        let whole = v6(1, 53, 100);
        assert_eq!(expect(&whole, &plain, &whole), VnetHeader::default());
        let to_pool = v4(17, &[&[0, 53, 8, 1, 0, 20, 1, 1], &[0x5a; 12][..]].concat());
        expect(&to_pool, &plain, &to_pool);
        // Fragments from IPv6 are not reassembled here.
        let long = v6(1, 53, 1200);
        for offset in [0, 800] {
            let piece = fragment(&long, offset, 800);
            expect(&piece, &plain, &piece);
        }
        // A super-packet is one packet.
        let mut gso = v6(1, 53, 12 + 2400);
        let len = (gso.len() - 40) as u16;
        (gso[6], gso[52], gso[53]) = (6, 0x50, 0x10);
        gso[4..6].copy_from_slice(&len.to_be_bytes());
        let pseudo = sum(&[&gso[8..40], &len.to_be_bytes(), &[0, 6]].concat());
        gso[56..60].copy_from_slice(&[&pseudo.to_be_bytes()[..], &[0, 0]].concat());
        let offload = Offload {
            checksum: ChecksumState::Partial { start: 40, offset: 16 },
            gso: Gso { kind: GsoKind::TcpV6, ecn: false, size: 1200, header_len: 60 },
        };
        let header = expect(&gso, &offload, &gso);
        assert_eq!((header.gso_size, header.csum_start, header.csum_offset), (1200, 40, 16));
        // What nobody takes is dropped.
        let short = v4(17, &[0, 53, 8, 1, 0, 8, 1, 1]);
        gateway.send(&short);
        gateway.wait_for_drop(DropReason::OtherShard);
        wait_until("counters", || gateway.all(|core| core.handed_over().packets) == 5);
        assert_eq!(gateway.all(|core| core.handed_over().octets), octets);
        assert!(gateway.sent().is_empty());
        assert_eq!(gateway.engine.core().tables().unwrap().occupancy().map(|it| it.used), [0; 3]);
        gateway.engine.stop().unwrap();
    });
}

/// Each packet leaves by what its own translation was allowed, so that none waits for others.
#[test]
fn segments_leave_one_by_one() {
    in_namespace(|run_dir| {
        let gateway = Gateway::start(run_dir);
        gateway.send(&tcp(2, 0x02, 0, 0));
        gateway.wait_for_packets(1);
        gateway.shards.disable(0);
        (0..3).for_each(|number| gateway.send(&tcp(2, 0x10, 1 + 100 * number, 100)));
        // What another shard's packet overtakes, waits; then all leave in one burst.
        gateway.send(&v6(1, 9, 8));
        gateway.handed.recv_timeout(PATIENCE).unwrap();
        gateway.shards.enable(0, None);
        gateway.wait_for_packets(4);
        assert_eq!(gateway.sent(), [80; 4]);
        gateway.engine.stop().unwrap();
    });
}

/// Only the whole datagram says its port.
#[test]
fn an_ipv4_datagram_is_handed_over_whole() {
    in_namespace(|run_dir| {
        let gateway = Gateway::start(run_dir);
        let payload = [&[0, 53, 8, 1, 0, 40, 1, 1], &[0x5a; 32][..]].concat();
        for (at, len, flags) in [(0, 24, 0x2000_u16), (24, 16, 3)] {
            let mut piece = v4(17, &payload[at..at + len]);
            piece[4..8].copy_from_slice(&[0, 9, (flags >> 8) as u8, flags as u8]);
            piece[10..12].fill(0);
            let checksum = !sum(&piece[..20]);
            piece[10..12].copy_from_slice(&checksum.to_be_bytes());
            gateway.send(&piece);
        }
        let (shard, _, packet) = gateway.handed.recv_timeout(PATIENCE).unwrap();
        assert_eq!((shard, &packet[20..]), (1, payload.as_slice()));
        assert_eq!(packet[4..8], [0, 9, 0, 0], "neither DF nor an offset");
        gateway.engine.stop().unwrap();
    });
}

/// When a grace period that began after a shard was disabled is over, its packets have left.
#[test]
fn threads_tell_when_a_shard_has_stopped() {
    in_namespace(|run_dir| {
        let gateway = Gateway::start(run_dir);
        gateway.send(&v6(2, 1, 8));
        gateway.wait_for_packets(1);
        gateway.peers.own.store(NONE, Ordering::SeqCst);
        gateway.shards.disable(0);
        let mut grace = gateway.engine.tables().grace();
        wait_until("the end of the burst", || grace.is_over());
        gateway.send(&v6(2, 2, 8));
        let (shard, _, packet) = gateway.handed.recv_timeout(PATIENCE).unwrap();
        assert_eq!((shard, packet), (0, v6(2, 2, 8)));
        gateway.engine.stop().unwrap();
    });
}

/// Between two owners of a shard, its packets wait: for the next owner, whoever that is, but not for ever.
#[test]
fn packets_of_a_shard_between_two_owners_wait() {
    in_namespace(|run_dir| {
        let gateway = Gateway::start(run_dir);
        // What another shard's packet overtakes, waits.
        let sent_and_waits = |packets: &[Vec<u8>]| {
            packets.iter().for_each(|it| gateway.send(it));
            gateway.send(&v6(1, 9, 8));
            let (_, _, packet) = gateway.handed.recv_timeout(PATIENCE).unwrap();
            assert_eq!(packet, v6(1, 9, 8));
        };
        gateway.shards.disable(0);
        sent_and_waits(&[v6(2, 1, 8), v6(2, 2, 8)]);
        gateway.shards.enable(0, None);
        gateway.wait_for_packets(2);
        assert_eq!(gateway.sent(), [1, 2]);
        // Whenever the next owner has it, no packet overtakes one that came before.
        for round in 0..ROUNDS {
            gateway.shards.disable(0);
            let shards = Some(Arc::clone(&gateway.shards));
            *gateway.peers.moves.lock().unwrap() = Some((round as usize % 5, shards));
            sent_and_waits(&[v6(2, 1, 8), v6(2, 2, 8)]);
            gateway.wait_for_packets(4 + 2 * round);
            assert_eq!(gateway.sent(), [1, 2]);
        }
        gateway.shards.disable(0);
        for round in 0..ROUNDS {
            *gateway.peers.moves.lock().unwrap() = Some((round as usize % 5, None));
            [v6(2, 1, 8), v6(2, 2, 8)].iter().for_each(|it| gateway.send(it));
            let handed = [(); 2].map(|()| gateway.handed.recv_timeout(PATIENCE).unwrap().2);
            assert_eq!(handed, [v6(2, 1, 8), v6(2, 2, 8)]);
            gateway.peers.own.store(0, Ordering::SeqCst);
        }
        // Another gateway gets it.
        let long = v6(2, 53, 1200);
        let pieces = [0, 800].map(|offset| fragment(&long, offset, 800));
        sent_and_waits(&pieces);
        gateway.peers.own.store(NONE, Ordering::SeqCst);
        for piece in pieces {
            let (shard, header, packet) = gateway.handed.recv_timeout(PATIENCE).unwrap();
            assert_eq!((shard, header, packet), (0, VnetHeader::default(), piece));
        }
        // Nobody gets it.
        gateway.peers.own.store(0, Ordering::SeqCst);
        gateway.peers.patience.store(1, Ordering::SeqCst);
        gateway.send(&v6(2, 3, 8));
        gateway.wait_for_drop(DropReason::OtherShard);
        assert_eq!(gateway.all(|core| core.handed_over().packets), 4 + 3 * ROUNDS);
        assert!(gateway.sent().is_empty());
        gateway.engine.stop().unwrap();
    });
}
