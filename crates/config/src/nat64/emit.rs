//! What stateful translators add to a written-out configuration.

use fordway_xlat::nat64::{Allocation, StaticBib};
use serde::Serialize;

use super::alg::{GATEWAYS, Gateway};
use super::read::FILTERINGS;
use super::tables::event_word;
use super::{Dynamic4, Nat64, NatLog, Pool};
use crate::emit::{strings, word};

/// Keys that are values.
#[derive(Default, Serialize)]
pub(crate) struct Keys {
    #[serde(skip_serializing_if = "Option::is_none")]
    pool4: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bib: Option<Vec<[String; 3]>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    filtering: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    accept_v4_syn: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refresh_from_v4: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    alg: Option<Vec<&'static str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ftp_ports: Option<Vec<u16>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subscriber_len: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_sessions: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_bib: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_subscribers: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    allow_short_lifetimes: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dynamic4: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dynamic4_clients: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dynamic4_idle: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dynamic4_file: Option<String>,
}

/// Keys that are tables; they stand behind all others.
#[derive(Default, Serialize)]
pub(crate) struct Tables {
    #[serde(flatten)]
    allocation: AllocationTables,
    #[serde(skip_serializing_if = "Option::is_none")]
    lifetimes: Option<LifetimesTable>,
    #[serde(skip_serializing_if = "Option::is_none")]
    quotas: Option<QuotasTable>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pool: Vec<PoolTable>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    log: Vec<LogTable>,
}

#[derive(Default, Serialize)]
struct AllocationTables {
    #[serde(skip_serializing_if = "Option::is_none")]
    port_blocks: Option<PortBlocksTable>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deterministic: Option<DeterministicTable>,
}

#[derive(Serialize)]
struct PortBlocksTable {
    size: u16,
    most: u8,
}

#[derive(Serialize)]
struct DeterministicTable {
    size: u16,
}

#[derive(Serialize)]
struct LifetimesTable {
    udp: String,
    icmp: String,
    tcp_est: String,
    tcp_trans: String,
    tcp_incoming_syn: String,
    port_rest: String,
    subscriber: String,
}

#[derive(Serialize)]
struct QuotasTable {
    tcp_ports: u32,
    udp_ports: u32,
    icmp_ids: u32,
    sessions: u32,
    new_per_second: u32,
}

#[derive(Serialize)]
struct PoolTable {
    pool4: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    clients: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mark: Option<u32>,
    #[serde(flatten)]
    allocation: AllocationTables,
}

#[derive(Serialize)]
struct LogTable {
    what: Vec<&'static str>,
    to: String,
    destinations: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    domain: Option<u32>,
}

impl Keys {
    pub(crate) fn of(nat64: Option<&Nat64>, dynamic4: Option<&Dynamic4>) -> Keys {
        let mut keys = nat64.map(Keys::of_nat64).unwrap_or_default();
        if let Some(dynamic4) = dynamic4 {
            keys.dynamic4 = Some(strings(&dynamic4.pool));
            keys.dynamic4_clients =
                Some(strings(&dynamic4.clients)).filter(|clients| !clients.is_empty());
            keys.dynamic4_idle = Some(duration(dynamic4.idle));
            let file = dynamic4.file.as_ref().map(|file| file.to_string_lossy().into_owned());
            keys.dynamic4_file = Some(file.unwrap_or_else(|| "off".to_owned()));
        }
        keys
    }

    fn of_nat64(nat64: &Nat64) -> Keys {
        let gateways = &nat64.gateways;
        Keys {
            pool4: for_all(nat64).map(|pool| strings(&pool.pool4)),
            bib: Some(nat64.bib.iter().map(bib).collect()),
            filtering: nat64.nat_pt.is_none().then(|| word(&FILTERINGS, nat64.filtering)),
            accept_v4_syn: Some(nat64.accept_v4_syn),
            refresh_from_v4: Some(nat64.refresh_from_v4),
            alg: Some(gateways.on.iter().map(|on| word(&GATEWAYS, *on)).collect()),
            ftp_ports: gateways.on.contains(&Gateway::Ftp).then(|| gateways.ftp_ports.clone()),
            subscriber_len: Some(nat64.subscriber_len),
            max_sessions: Some(nat64.sizes.sessions),
            max_bib: Some(nat64.sizes.bibs),
            max_subscribers: Some(nat64.sizes.subscribers),
            allow_short_lifetimes: Some(nat64.allow_short_lifetimes),
            ..Keys::default()
        }
    }
}

impl Tables {
    pub(crate) fn of(nat64: Option<&Nat64>) -> Tables {
        let Some(nat64) = nat64 else { return Tables::default() };
        let (lifetimes, quotas) = (&nat64.lifetimes, &nat64.quotas);
        let of_all = for_all(nat64).map(|pool| AllocationTables::of(pool.allocation));
        Tables {
            allocation: of_all.unwrap_or_default(),
            lifetimes: Some(LifetimesTable {
                udp: duration(lifetimes.udp),
                icmp: duration(lifetimes.icmp),
                tcp_est: duration(lifetimes.tcp_est),
                tcp_trans: duration(lifetimes.tcp_trans),
                tcp_incoming_syn: duration(lifetimes.tcp_incoming_syn),
                port_rest: duration(lifetimes.port_rest),
                subscriber: duration(lifetimes.subscriber),
            }),
            quotas: Some(QuotasTable {
                tcp_ports: quotas.ports[0],
                udp_ports: quotas.ports[1],
                icmp_ids: quotas.ports[2],
                sessions: quotas.sessions,
                new_per_second: quotas.new_per_second,
            }),
            pool: nat64.pools.iter().filter(|pool| !pool.is_for_all()).map(PoolTable::of).collect(),
            log: nat64.logs.iter().map(LogTable::of).collect(),
        }
    }
}

impl AllocationTables {
    fn of(allocation: Allocation) -> AllocationTables {
        let (mut port_blocks, mut deterministic) = (None, None);
        match allocation {
            Allocation::Shared => {}
            Allocation::Blocks { size, most } => port_blocks = Some(PortBlocksTable { size, most }),
            Allocation::Deterministic { size } => deterministic = Some(DeterministicTable { size }),
        }
        AllocationTables { port_blocks, deterministic }
    }
}

impl PoolTable {
    fn of(pool: &Pool) -> PoolTable {
        PoolTable {
            pool4: strings(&pool.pool4),
            clients: strings(&pool.clients),
            mark: pool.mark,
            allocation: AllocationTables::of(pool.allocation),
        }
    }
}

impl LogTable {
    fn of(log: &NatLog) -> LogTable {
        LogTable {
            what: log.what.iter().map(|event| event_word(*event)).collect(),
            to: log.to.to_string(),
            destinations: log.destinations,
            domain: matches!(log.to, super::LogTarget::Ipfix(_)).then_some(log.domain),
        }
    }
}

/// The pool of the key `pool4`.
fn for_all(nat64: &Nat64) -> Option<&Pool> {
    nat64.pools.iter().find(|pool| pool.is_for_all())
}

fn bib(bib: &StaticBib) -> [String; 3] {
    let ((v4, v4_port), (v6, v6_port)) = (bib.v4, bib.v6);
    [bib.protocol.label().to_owned(), format!("{v4}:{v4_port}"), format!("[{v6}]:{v6_port}")]
}

fn duration(duration: std::time::Duration) -> String {
    humantime::format_duration(duration).to_string()
}
