//! Rows of NAT64 tables for clients: read on a thread of its own, part by part, while translators change the tables.

pub(crate) mod cache;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

use fordway_engine::monotonic;
use fordway_xlat::nat64::{
    Allocation, BibEntry, BibError, Binding, Nat64, PortBlock, Protocol, SessionEntry, Settings,
    StaticBib, SubscriberEntry,
};
use ipnet::Ipv6Net;

use fordway_control::{
    BibRow, BlockRow, DeterministicRow, Entries, EntryFilter, ReverseReport, SessionRow,
    SubscriberRow, Table,
};

/// Rows of a part.
const PART: usize = 256;

/// A translator's tables, to be read without the daemon.
#[derive(Clone)]
pub(crate) struct Reader {
    pub(crate) name: String,
    pub(crate) nat64: Arc<Nat64>,
}

/// What to read.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    pub(crate) table: Table,
    pub(crate) filter: EntryFilter,
    /// How many rows at most.
    pub(crate) limit: Option<u64>,
    /// Only how many there are.
    pub(crate) count: bool,
}

/// What has been read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Read {
    /// Rows that were wanted, with those beyond the limit if they were looked at.
    pub(crate) matched: u64,
    /// There may be more than the limit.
    pub(crate) more: bool,
}

impl Reader {
    /// Gives the wanted rows to `take`, part by part, until it says no.
    pub(crate) fn read(
        &self,
        wanted: &Filter,
        read: &mut Read,
        take: &mut dyn FnMut(Entries) -> bool,
    ) -> bool {
        let (now, filter) = (monotonic(), &wanted.filter);
        match wanted.table {
            Table::Bib => {
                let rows = self.nat64.bib(now).filter(|entry| matches_bib(filter, entry));
                let rows = rows.map(|entry| bib_row(&self.name, &entry));
                parts(rows, wanted, read, Entries::Bib, take)
            }
            Table::Sessions => {
                let rows = self.nat64.sessions(now).filter(|entry| matches_session(filter, entry));
                let rows = rows.map(|entry| session_row(&self.name, &entry));
                parts(rows, wanted, read, Entries::Sessions, take)
            }
            Table::Subscribers => {
                let len = self.nat64.settings().subscriber_len;
                let rows = self.nat64.subscribers(now);
                let rows = rows.filter(|entry| matches_subscriber(filter, entry, len));
                let rows = rows.filter_map(|entry| subscriber_row(&self.name, &entry, len));
                parts(rows, wanted, read, Entries::Subscribers, take)
            }
            // No table of a translator.
            Table::Dns64Cache => true,
        }
    }

    /// Adds what is known of a transport address.
    pub(crate) fn reverse(&self, v4: SocketAddrV4, report: &mut ReverseReport) {
        let settings = self.nat64.settings();
        report.deterministic.extend(deterministic(&self.name, settings, v4));
        let now = monotonic();
        let at = (*v4.ip(), v4.port());
        let holds = |entry: &SubscriberEntry| entry.blocks.iter().any(|block| holds(block, at));
        let rows = self.nat64.subscribers(now).filter(holds);
        let len = settings.subscriber_len;
        report.subscribers.extend(rows.filter_map(|entry| subscriber_row(&self.name, &entry, len)));
        let bound = self.nat64.bib(now).filter(|entry| match entry.binding.protocol {
            None => entry.binding.v4.0 == at.0,
            Some(_) => entry.binding.v4 == at && !entry.in_hold_down,
        });
        report.bib.extend(bound.map(|entry| bib_row(&self.name, &entry)));
    }
}

/// Whose a transport address is in the deterministic pools of some settings.
pub fn deterministic(name: &str, settings: &Settings, v4: SocketAddrV4) -> Vec<DeterministicRow> {
    let pools = settings.pools.iter().filter_map(|pool| {
        let Allocation::Deterministic { size } = pool.allocation else { return None };
        let subscriber = pool.subscriber_of(*v4.ip(), v4.port(), settings.subscriber_len)?;
        let range = pool.ranges.iter().find(|range| {
            range.contains(*v4.ip()) && (range.low..=range.high).contains(&v4.port())
        })?;
        let low = v4.port() - (v4.port() - range.low) % size;
        let block = BlockRow { v4: *v4.ip(), low, high: low + (size - 1) };
        Some(DeterministicRow { translator: name.to_owned(), subscriber, block })
    });
    pools.collect()
}

fn holds(block: &PortBlock, (address, port): (Ipv4Addr, u16)) -> bool {
    block.v4 == address && (block.low..=block.high).contains(&port)
}

/// Cuts rows into parts. `false`: the client wants no more.
fn parts<T>(
    mut rows: impl Iterator<Item = T>,
    wanted: &Filter,
    read: &mut Read,
    wrap: fn(Vec<T>) -> Entries,
    take: &mut dyn FnMut(Entries) -> bool,
) -> bool {
    if wanted.count {
        read.matched += rows.count() as u64;
        return true;
    }
    loop {
        let room = wanted.limit.map_or(u64::MAX, |limit| limit.saturating_sub(read.matched));
        let room = usize::try_from(room).unwrap_or(usize::MAX).min(PART);
        let part: Vec<T> = rows.by_ref().take(room).collect();
        if part.is_empty() {
            read.more |= room == 0 && rows.next().is_some();
            return true;
        }
        read.matched += part.len() as u64;
        if !take(wrap(part)) {
            return false;
        }
    }
}

fn label(binding: &Binding) -> &'static str {
    binding.protocol.map_or("all", Protocol::label)
}

fn matches_binding(filter: &EntryFilter, binding: &Binding) -> bool {
    filter.protocol.as_ref().is_none_or(|wanted| wanted == label(binding))
        && filter.v6.is_none_or(|net| net.contains(&binding.v6.0))
        && filter.v4.is_none_or(|wanted| wanted.matches(binding.v4))
}

fn matches_bib(filter: &EntryFilter, entry: &BibEntry) -> bool {
    (entry.is_static || !filter.only_static) && matches_binding(filter, &entry.binding)
}

fn matches_session(filter: &EntryFilter, entry: &SessionEntry) -> bool {
    filter.remote.is_none_or(|wanted| wanted.matches(entry.remote))
        && filter
            .state
            .as_ref()
            .is_none_or(|wanted| entry.tcp.is_some_and(|state| state.label() == wanted))
        && matches_binding(filter, &entry.binding)
}

fn matches_subscriber(filter: &EntryFilter, entry: &SubscriberEntry, len: u8) -> bool {
    let wanted_v6 = filter.v6.is_none_or(|net| {
        // A host's subscriber, or the subscribers of a network.
        let subscriber = Ipv6Net::new(entry.prefix, len).ok();
        subscriber.is_some_and(|it| it.contains(&net.addr()) || net.contains(&it.addr()))
    });
    let wanted_v4 = |block: &PortBlock| match filter.v4 {
        None => true,
        Some(wanted) => {
            wanted.net.contains(&block.v4)
                && wanted.port.is_none_or(|port| (block.low..=block.high).contains(&port))
        }
    };
    wanted_v6 && (filter.v4.is_none() || entry.blocks.iter().any(wanted_v4))
}

fn bib_row(name: &str, entry: &BibEntry) -> BibRow {
    let Binding { v6: (v6, v6_port), v4: (v4, v4_port), protocol } = entry.binding;
    BibRow {
        translator: name.to_owned(),
        protocol: label(&entry.binding).to_owned(),
        v6,
        v6_port,
        v4,
        v4_port,
        is_static: entry.is_static,
        resting: entry.in_hold_down,
        held: entry.is_held,
        sessions: entry.sessions,
        age_seconds: entry.age.as_secs(),
        idle_seconds: protocol.is_none().then_some(entry.idle.as_secs()),
    }
}

fn session_row(name: &str, entry: &SessionEntry) -> SessionRow {
    let Binding { v6: (v6, v6_port), v4: (v4, v4_port), .. } = entry.binding;
    let [from_v4, from_v6] = entry.counts;
    SessionRow {
        translator: name.to_owned(),
        protocol: label(&entry.binding).to_owned(),
        v6,
        v6_port,
        v4,
        v4_port,
        remote: entry.remote.0,
        remote_port: entry.remote.1,
        state: entry.tcp.map(|state| state.label().to_owned()),
        remaining_seconds: entry.remaining.as_secs(),
        packets_from_v4: from_v4.0,
        octets_from_v4: from_v4.1,
        packets_from_v6: from_v6.0,
        octets_from_v6: from_v6.1,
    }
}

fn subscriber_row(name: &str, entry: &SubscriberEntry, len: u8) -> Option<SubscriberRow> {
    let block = |block: &PortBlock| BlockRow { v4: block.v4, low: block.low, high: block.high };
    Some(SubscriberRow {
        translator: name.to_owned(),
        subscriber: Ipv6Net::new(entry.prefix, len).ok()?,
        mark: entry.mark,
        pool: entry.pool,
        blocks: entry.blocks.iter().map(block).collect(),
        tcp_ports: entry.ports[0],
        udp_ports: entry.ports[1],
        icmp_ids: entry.ports[2],
        sessions: entry.sessions,
        idle_seconds: entry.idle.as_secs(),
    })
}

/// A BIB entry as people write it.
pub(crate) fn written(entry: &StaticBib) -> String {
    let ((v4, v4_port), (v6, v6_port)) = (entry.v4, entry.v6);
    format!("{} {v4}:{v4_port} [{v6}]:{v6_port}", entry.protocol.label())
}

/// Why a BIB entry was not made.
pub(crate) fn bib_error(error: BibError) -> String {
    let bound = |binding: Binding| {
        let protocol = binding.protocol.unwrap_or(Protocol::Tcp);
        let entry = StaticBib { protocol, v6: binding.v6, v4: binding.v4 };
        written(&entry)
    };
    match error {
        BibError::Taken(binding) => format!("the IPv4 side is bound already: {}", bound(binding)),
        BibError::Bound(binding) => format!("the IPv6 side is bound already: {}", bound(binding)),
        BibError::Full => "the table is full".to_owned(),
        BibError::Missing => "there is no such entry".to_owned(),
    }
}

/// What to do about it.
pub(crate) fn bib_hint(error: BibError) -> String {
    match error {
        BibError::Taken(binding) | BibError::Bound(binding) => {
            let protocol = binding.protocol.map_or("all", Protocol::label);
            let (v4, port) = binding.v4;
            format!(
                "first take that one away, which ends its sessions: fordway bib del {protocol} {v4}:{port}"
            )
        }
        BibError::Full => "a greater max_bib needs a start with new tables".to_owned(),
        BibError::Missing => "fordway bib shows what there is".to_owned(),
    }
}
