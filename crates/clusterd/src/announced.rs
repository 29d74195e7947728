//! Routes that FRR or BIRD redistribute: who wants to reach a shard's IPv4 addresses comes to its owner, and where the owner's
//! routes are not known, to any gateway, which hands packets over.
//!
//! They stand in a routing table of their own, where no packet looks, and are of type blackhole. A route's metric falls with the
//! epoch of its shard, so that routers that compare it (as MED, for instance) prefer the later owner while the routes of one that
//! was killed are still there. Routes of a shard that moves away stay for a moment, until the next owner's are known.

mod routes;

use std::collections::BTreeMap;
use std::time::Duration;

use fordway_cluster::{Member, Nanos, Record, RecordKey, Shard, ShardMap};
use fordway_serve::boottime;
use ipnet::{IpNet, Ipv6Net};

use crate::data_path::{Change, DataPath};
use routes::Routes;

/// The metric of addresses that several shards have, with other ports each: all their owners are as good.
const METRIC_SHARED: u32 = 1 << 31;
/// The metric of the whole pools at every gateway: any route to an owner is better.
const METRIC_ANY: u32 = u32::MAX;
/// How long the routes of a shard stay that was stopped, and all of them beyond the lease.
const HOLD: Duration = Duration::from_secs(2);

/// What is announced.
#[derive(Clone, Debug)]
pub struct Announcement {
    /// The kernel's routing table for it; nothing else may be in it.
    pub table: u32,
    /// Whose addresses are announced.
    pub shards: ShardMap,
    /// Prefixes in which all gateways translate; announced while this one holds its lease.
    pub pool6: Vec<Ipv6Net>,
}

/// What a route is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    /// This gateway holds its lease.
    Lease,
    /// It owns a shard.
    Shard(Shard),
    /// An earlier process has made it.
    Earlier,
}

/// A route that is wanted, or goes at a time.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    metric: u32,
    until: Option<Duration>,
}

/// A data path whose shards are announced.
pub struct Announced<D> {
    inner: D,
    announcement: Announcement,
    routes: Routes,
    wanted: BTreeMap<(IpNet, Cause), Wanted>,
    /// When to look at what is wanted next.
    next: Option<Duration>,
    until: Nanos,
}

impl<D: DataPath> Announced<D> {
    /// Takes over what an earlier process has left in the table; it goes in a moment, unless it is wanted again. Routes are made
    /// by a thread of its own, which has the privileges of this one.
    pub fn new(inner: D, announcement: Announcement) -> fordway_net::Result<Self> {
        let (routes, has) = Routes::take_over(announcement.table)?;
        let gone = Some(boottime::now() + HOLD);
        let left = has
            .into_iter()
            .map(|(to, metric)| ((to, Cause::Earlier), Wanted { metric, until: gone }));
        let wanted = left.collect();
        Ok(Self { inner, announcement, routes, wanted, next: gone, until: 0 })
    }

    /// Routes are made with the next look at the table, of which there is one before anything else happens.
    fn want(&mut self, to: IpNet, cause: Cause, metric: u32) {
        self.wanted.insert((to, cause), Wanted { metric, until: None });
        self.next = Some(Duration::ZERO);
    }

    /// Everything of these causes goes in a moment.
    fn let_go(&mut self, is: impl Fn(Cause) -> bool) {
        let at = boottime::now() + HOLD;
        for ((_, cause), wanted) in &mut self.wanted {
            if is(*cause) && wanted.until.is_none() {
                wanted.until = Some(at);
                self.next = Some(self.next.map_or(at, |next| next.min(at)));
            }
        }
    }

    /// When the routes go if the lease is not extended.
    fn end(&self) -> Option<Duration> {
        (self.until != 0).then(|| Duration::from_nanos(self.until) + HOLD)
    }

    /// Says what is wanted: of several causes, the least metric counts. Without a lease that lasts, nothing is.
    fn settle(&mut self) {
        let now = boottime::now();
        self.wanted.retain(|_, wanted| wanted.until.is_none_or(|until| now < until));
        let end = self.end().filter(|end| now < *end);
        self.next = self.wanted.values().filter_map(|wanted| wanted.until).chain(end).min();
        let mut best: BTreeMap<IpNet, u32> = BTreeMap::new();
        if self.until == 0 || end.is_some() {
            for ((to, _), Wanted { metric, .. }) in &self.wanted {
                best.entry(*to).and_modify(|m| *m = (*m).min(*metric)).or_insert(*metric);
            }
        }
        self.routes.want(best);
    }
}

impl<D: DataPath> DataPath for Announced<D> {
    fn loaded(&mut self) -> Vec<(Shard, u64, Vec<Record>)> {
        self.inner.loaded()
    }

    fn lease(&mut self, until: Nanos) {
        self.inner.lease(until);
        let was_over = self.end().is_none_or(|end| end <= boottime::now());
        let before = std::mem::replace(&mut self.until, until);
        if until == 0 {
            return self.let_go(|_| true);
        }
        if before == 0 {
            for prefix in self.announcement.pool6.clone() {
                self.want(prefix.into(), Cause::Lease, METRIC_SHARED);
            }
            for prefix in self.announcement.shards.all_prefixes() {
                self.want(prefix.into(), Cause::Lease, METRIC_ANY);
            }
        }
        if was_over {
            self.next = Some(Duration::ZERO);
        }
    }

    fn translate(&mut self, shard: Shard, epoch: u64, is_quiet: bool) {
        self.inner.translate(shard, epoch, is_quiet);
        let newest = u32::MAX - u32::try_from(epoch).unwrap_or(u32::MAX).min(METRIC_SHARED - 1);
        for (prefix, is_shared) in self.announcement.shards.prefixes(shard) {
            let metric = if is_shared { METRIC_SHARED } else { newest };
            self.want(prefix.into(), Cause::Shard(shard), metric);
        }
    }

    fn owner(&mut self, shard: Shard, owner: Member) {
        self.inner.owner(shard, owner);
    }

    fn known(&mut self, shard: Shard, owner: Member) {
        self.inner.known(shard, owner);
    }

    fn changes(&mut self) -> Vec<Change> {
        if self.next.is_some_and(|next| next <= boottime::now()) {
            self.settle();
        }
        self.inner.changes()
    }

    fn stop(&mut self, shard: Shard, ticket: u64) {
        self.inner.stop(shard, ticket);
        self.let_go(|cause| cause == Cause::Shard(shard));
    }

    fn clear(&mut self, shard: Shard) {
        self.inner.clear(shard);
    }

    fn apply(&mut self, shard: Shard, records: &[Record]) {
        self.inner.apply(shard, records);
    }

    fn read(
        &mut self,
        shard: Shard,
        after: Option<RecordKey>,
        most: usize,
    ) -> (Vec<Change>, Vec<Record>, bool) {
        self.inner.read(shard, after, most)
    }
}

impl<D> Drop for Announced<D> {
    fn drop(&mut self) {
        // Those of a process that was replaced are its successor's. Nobody has them after a panic.
        if self.until == 0 || std::thread::panicking() {
            self.routes.want(BTreeMap::new());
        }
    }
}
