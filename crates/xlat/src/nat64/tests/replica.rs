//! Two gateways, one of which has the other's records.

mod application;
mod losses;
mod model;
mod ownership;
mod records;

use super::races::assert_sound;
use super::*;
use crate::nat64::replica::{Applied, ApplyError, Change, RecordKey, Replica, Replicated};

use alloc::collections::BTreeMap;

/// Hosts are dealt to shards one by one, and so are the addresses of the pool.
#[derive(Debug)]
pub(super) struct Dealt(pub(super) u16);

impl Partition for Dealt {
    fn shards(&self) -> u16 {
        self.0
    }

    fn of_host(&self, host: Ipv6Addr) -> u16 {
        host.segments()[7] % self.0
    }

    fn of_v4(&self, v4: Ipv4Addr, _port: u16) -> Option<u16> {
        (v4.octets()[..3] == POOL.octets()[..3]).then(|| u16::from(v4.octets()[3]) % self.0)
    }

    fn ranges(&self, _pool: usize, shard: u16) -> Vec<Range> {
        let own = (0..16).map(|last| Ipv4Addr::new(192, 0, 2, last));
        let own = own.filter(|v4| self.of_v4(*v4, 0) == Some(shard));
        own.map(|v4| Range { first: v4, last: v4, low: 2000, high: 2063 }).collect()
    }
}

/// Addresses 192.0.2.0 to 192.0.2.15 with 64 ports each.
pub(super) fn dealt(allocation: Allocation) -> Pool {
    let mut dealt = Pool { allocation, ..pool(2000, 2063) };
    dealt.ranges[0].first = Ipv4Addr::new(192, 0, 2, 0);
    dealt.ranges[0].last = Ipv4Addr::new(192, 0, 2, 15);
    dealt
}

const ALL: Replicated = Replicated { udp: true, icmp: true };

/// A record that has changed, owned.
type Owned = (u16, RecordKey, Option<Vec<u8>>);

fn owned(change: Change<'_>) -> Owned {
    (change.shard, change.key, change.value.map(<[u8]>::to_vec))
}

/// A gateway.
struct Gateway {
    nat: Nat64,
    sweeper: Sweeper,
    replica: Replica,
}

impl Gateway {
    fn new(shards: u16, replicated: Replicated, settings: Settings) -> Gateway {
        let shards = Some(Arc::new(Shards::new(Dealt(shards))));
        Gateway::of(nat(Settings { shards, ..settings }), replicated)
    }

    fn of(nat: Nat64, replicated: Replicated) -> Gateway {
        let replica = Replica::new(&nat, replicated).unwrap();
        Gateway { nat, sweeper: Sweeper::new(), replica }
    }

    /// One that owns all shards.
    fn owner(shards: u16, replicated: Replicated, settings: Settings) -> Gateway {
        let mut gateway = Gateway::new(shards, replicated, settings);
        for shard in 0..shards {
            gateway.take_over(shard, at(0));
        }
        gateway
    }

    fn take_over(&mut self, shard: u16, now: Duration) -> Vec<Owned> {
        let mut told = Vec::new();
        let tell = &mut |change: Change<'_>| told.push(owned(change));
        self.replica.take_over(&self.nat, &mut self.sweeper, now, shard, tell);
        told
    }

    fn lose(&mut self, shard: u16, now: Duration) {
        self.replica.lose(&self.nat, &mut self.sweeper, now, shard);
    }

    fn scan(&mut self, now: Duration, most: u32) -> (Vec<Owned>, bool) {
        let mut told = Vec::new();
        let tell = &mut |change: Change<'_>| told.push(owned(change));
        let scanned = self.replica.scan(&self.nat, &mut self.sweeper, now, most, tell);
        (told, scanned.is_complete)
    }

    /// What differs of sessions that are noted as changed, by one round; and whether some of it waits.
    fn changed(&mut self, now: Duration) -> (Vec<Owned>, bool) {
        let mut told = Vec::new();
        let tell = &mut |change: Change<'_>| told.push(owned(change));
        let looked = self.replica.look_at_changed(&self.nat, now, u32::MAX, tell);
        assert!(looked.is_complete);
        (told, looked.waits)
    }

    /// All that differs.
    fn changes(&mut self, now: Duration) -> Vec<Owned> {
        let mut told = Vec::new();
        // The rest of a scan under way, a whole one, and one more for entries that were used anew.
        for _ in 0..3 {
            told.extend(self.scan(now, u32::MAX).0);
        }
        told
    }

    fn apply(&mut self, now: Duration, (shard, key, value): &Owned) -> Result<Applied, ApplyError> {
        let change = Change { shard: *shard, key: *key, value: value.as_deref() };
        let applied = self.replica.apply(&self.nat, &mut self.sweeper, now, change);
        self.sweeper.release(&self.nat);
        applied
    }

    fn apply_all(&mut self, now: Duration, changes: &[Owned]) {
        for change in changes {
            self.apply(now, change).unwrap();
        }
    }

    fn sweep(&mut self, now: Duration) -> (Swept, Vec<Event>) {
        sweep(&self.nat, &mut self.sweeper, now)
    }

    fn clear(&mut self, shard: u16) -> bool {
        let done = self.replica.clear(&self.nat, &mut self.sweeper, shard);
        self.sweeper.release(&self.nat);
        done
    }

    /// All records of a shard, read in chunks.
    fn records(&self, shard: u16, most: usize) -> BTreeMap<RecordKey, Vec<u8>> {
        let (mut all, mut after) = (BTreeMap::new(), None);
        loop {
            let mut chunk = Vec::new();
            let tell = &mut |change: Change<'_>| chunk.push(owned(change));
            let is_last = self.replica.chunk(shard, after.as_ref(), most, tell);
            assert!(chunk.len() <= most && (is_last || chunk.len() == most));
            for (of, key, value) in chunk {
                assert!(of == shard && after.is_none_or(|after| after < key), "in order");
                after = Some(key);
                all.insert(key, value.unwrap());
            }
            if is_last {
                assert_eq!(all.len(), self.replica.records(shard));
                return all;
            }
        }
    }

    /// Nothing is counted wrong, lost, or in two places; blocks are assigned to those that have them.
    fn assert_sound(&self) {
        assert_sound(&self.nat);
        assert_eq!(self.nat.adopt(&|| {}), Adopted::default());
        let mut blocks = HashSet::new();
        for subscriber in self.nat.memory().regions().subscribers {
            if subscriber.state() == state::LIVE {
                let own = subscriber.blocks().filter(|own| self.nat.is_assigned(*own).is_some());
                for block in own {
                    assert_eq!(self.nat.is_assigned(block), Some(true));
                    assert!(blocks.insert(block), "{block:?} is two subscribers'");
                }
            }
        }
    }

    /// Empty tables, as if they had never been used.
    fn assert_empty(&mut self) {
        self.assert_sound();
        assert_eq!(self.nat.occupancy().map(|it| it.used), [0; 3]);
        assert!(self.nat.blocks().iter().all(|it| it.used == 0));
        let regions = self.nat.memory().regions();
        let heads = regions.heads.iter().flat_map(|heads| heads.iter());
        assert!(heads.map(|head| head.load(Ordering::Relaxed) as u32).all(|index| index == 0));
        assert_eq!(self.sweeper.waiting(), 0);
    }

    fn opened(&self, number: u16, port: u16, now: Duration) -> (Ipv4Addr, u16) {
        let syn = from_v6(Protocol::Tcp, (host(number), port), Segment::Syn);
        let local = self.nat.from_v6(&syn, now, 0).unwrap();
        self.nat.from_v4(&answer(&syn, local, Segment::SynAck), now, 0).unwrap();
        local
    }

    fn segment(&self, number: u16, port: u16, segment: Segment, now: Duration) {
        let tuple = from_v6(Protocol::Tcp, (host(number), port), segment);
        self.nat.from_v6(&tuple, now, 0).unwrap();
    }
}

fn single(replicated: Replicated) -> Gateway {
    Gateway::owner(1, replicated, settings(dealt(Allocation::Shared)))
}

fn blocks(size: u16) -> Settings {
    settings(dealt(Allocation::Blocks { size, most: 2 }))
}

/// An owner of one shard, and its standby.
fn pair(settings: &Settings) -> (Gateway, Gateway) {
    (Gateway::owner(1, ALL, settings.clone()), Gateway::new(1, ALL, settings.clone()))
}

fn kinds(changes: &[Owned]) -> Vec<(u8, bool)> {
    changes.iter().map(|(_, key, value)| (key[0], value.is_some())).collect()
}
