//! What is known of a stateful translator that runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use fordway_engine::{LATENCY_US, QueueCounters, monotonic};
use fordway_xlat::alg::{AlgCounters, Event};
use fordway_xlat::nat64::{
    Allocation, Ended, Nat64, Occupancy, Pool, PoolUse, Protocol, Range, Settings, TcpState,
};

use crate::apply::running::Running;
use crate::settings::nat_pt;
use fordway_control::{LatencyStats, Nat64Stats, Nat64Status, OccupancyStats, PoolStats};

impl Running {
    /// Counters and occupancy; `None`: it is stateless.
    pub(super) fn nat64_stats(&self) -> Option<Nat64Stats> {
        let translator = self.engine.core();
        let (nat64, swept) = (translator.tables()?, self.engine.swept());
        let event_log = &self.stateful.as_ref()?.events;
        let kernel = self.kernel.as_ref().and_then(|kernel| kernel.totals().ok());
        let created = nat64.created();
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let made = |user: &[AtomicU64; 3], in_kernel: Option<[u64; 3]>| {
            by_protocol(|protocol| {
                let kernel = in_kernel.map_or(0, |made| made[protocol.index()]);
                load(&user[protocol.index()]) + kernel
            })
        };
        let mut bib = by_protocol(|protocol| swept.bibs[protocol.index()]);
        bib.insert("all".to_owned(), swept.bibs[3]);
        let states = TcpState::ALL.iter().zip(swept.tcp_states);
        let names = ["bib", "sessions", "subscribers"].map(str::to_owned);
        Some(Nat64Stats {
            draining: nat64.is_draining(),
            tables: names.into_iter().zip(nat64.occupancy().map(occupancy)).collect(),
            bib,
            sessions: by_protocol(|protocol| swept.sessions[protocol.index()]),
            tcp_states: states.map(|(state, count)| (state.label().to_owned(), count)).collect(),
            resting: swept.hold_down,
            pools: pools(nat64, &swept.pools),
            bib_created: made(&created.bibs_created, kernel.as_ref().map(|it| it.bibs_created)),
            sessions_created: made(
                &created.sessions_created,
                kernel.as_ref().map(|it| it.sessions_created),
            ),
            sessions_ended: ended(nat64.ended()),
            ended_by_reload: event_log.unfit(),
            creation: creation(self.counters()),
            alg_connections: nat64.watched() as u64,
            algs: nat64
                .algs()
                .map(|(alg, counters)| (alg.label().to_owned(), events(counters)))
                .collect(),
            nat_pt: nat_pt::stats(nat64.settings(), swept.bibs[3], swept.held),
            logs: event_log.log_stats(),
        })
    }

    /// What runs; `None`: it is stateless.
    pub(super) fn nat64_status(&self) -> Option<Nat64Status> {
        let translator = self.engine.core();
        let nat64 = translator.tables()?;
        let (settings, stateful) = (nat64.settings(), self.stateful.as_ref()?);
        Some(Nat64Status {
            pools: written_pools(settings),
            static_bib: nat64.bib(monotonic()).filter(|entry| entry.is_static).count(),
            table_octets: nat64.memory().regions().octets(),
            algs: nat64
                .algs()
                .map(|(alg, _)| (alg.label().to_owned(), alg.ports().to_vec()))
                .collect(),
            survives: stateful.maps.is_some() && self.kernel.is_some(),
            draining: nat64.is_draining(),
            clashes: stateful.clashes.clone(),
            nat_pt: nat_pt::status(nat64.settings()),
            file: self
                .config
                .dynamic4()
                .and_then(|dynamic4| dynamic4.file.as_ref())
                .map(|file| file.display().to_string()),
        })
    }
}

fn by_protocol(count: impl Fn(Protocol) -> u64) -> BTreeMap<String, u64> {
    Protocol::ALL.iter().map(|it| (it.label().to_owned(), count(*it))).collect()
}

/// Sessions that have ended, by cause.
fn ended(ended: &Ended) -> BTreeMap<String, BTreeMap<String, u64>> {
    let causes = [("expired", &ended.expired), ("withdrawn", &ended.withdrawn)];
    let counts = |counts: &[AtomicU64; 3]| {
        by_protocol(|protocol| counts[protocol.index()].load(Ordering::Relaxed))
    };
    causes.map(|(cause, it)| (cause.to_owned(), counts(it))).into()
}

/// What a gateway has done.
fn events(counters: &AlgCounters) -> BTreeMap<String, u64> {
    Event::ALL.iter().map(|event| (event.label().to_owned(), counters.get(*event))).collect()
}

fn occupancy(it: Occupancy) -> OccupancyStats {
    OccupancyStats { used: it.used, size: it.size }
}

fn creation(queues: &[std::sync::Arc<QueueCounters>]) -> LatencyStats {
    let mut stats = LatencyStats {
        bounds_us: LATENCY_US.to_vec(),
        counts: vec![0; LATENCY_US.len() + 1],
        sum_ns: 0,
    };
    for queue in queues {
        let (counts, sum_ns) = queue.creation.totals();
        for (sum, count) in stats.counts.iter_mut().zip(counts) {
            *sum += count;
        }
        stats.sum_ns += sum_ns;
    }
    stats
}

/// Counters of pools, without reading a table: scrapes of metrics must stay cheap.
fn pools(nat64: &Nat64, swept: &[PoolUse]) -> Vec<PoolStats> {
    let (settings, blocks) = (nat64.settings(), nat64.blocks());
    let mut pools: Vec<PoolStats> = settings.pools.iter().enumerate().map(pool).collect();
    for ((pool, stats), blocks) in settings.pools.iter().zip(&mut pools).zip(blocks) {
        stats.blocks =
            matches!(pool.allocation, Allocation::Blocks { .. }).then_some(occupancy(blocks));
    }
    for (stats, swept) in pools.iter_mut().zip(swept) {
        stats.subscribers = swept.subscribers;
        stats.bib = by_protocol(|protocol| swept.ports[protocol.index()]);
    }
    pools
}

fn pool((number, pool): (usize, &Pool)) -> PoolStats {
    PoolStats {
        number,
        pool4: pool.ranges.iter().map(written_range).collect(),
        ports: pool
            .ranges
            .iter()
            .map(|range| u64::from(range.addresses()) * u64::from(range.ports()))
            .sum(),
        subscribers: 0,
        bib: by_protocol(|_| 0),
        blocks: None,
    }
}

fn written_range(range: &Range) -> String {
    let addresses = match range.first == range.last {
        true => range.first.to_string(),
        false => format!("{}-{}", range.first, range.last),
    };
    format!("{addresses}:{}-{}", range.low, range.high)
}

/// Each pool with whose it is and how ports are given.
fn written_pools(settings: &Settings) -> Vec<String> {
    if let Some(dynamic4) = &settings.dynamic4 {
        return dynamic4
            .pool
            .iter()
            .map(|net| format!("{net}, an address for each host"))
            .collect();
    }
    let pool = |pool: &Pool| {
        let ranges: BTreeSet<String> = pool.ranges.iter().map(written_range).collect();
        let mut text = match ranges.is_empty() {
            true => "no address".to_owned(),
            false => ranges.into_iter().collect::<Vec<_>>().join(" "),
        };
        match pool.allocation {
            Allocation::Shared => {}
            Allocation::Blocks { size, most } => {
                text.push_str(&format!(", up to {most} blocks of {size} ports"));
            }
            Allocation::Deterministic { size } => {
                text.push_str(&format!(", computed blocks of {size} ports"));
            }
        }
        let clients: Vec<String> = pool.clients.iter().map(ToString::to_string).collect();
        if !clients.is_empty() {
            text.push_str(&format!(", for {}", clients.join(" ")));
        }
        if let Some(mark) = pool.mark {
            text.push_str(&format!(", for mark {mark}"));
        }
        text
    };
    settings.pools.iter().map(pool).collect()
}
