//! The tables below a stateful translator: `port_blocks`, `deterministic`, `quotas`, `[[translator.pool]]`
//! and `[[translator.log]]`.

use std::ops::Range;

use fordway_xlat::nat64::layout::MAX_BLOCKS;
use fordway_xlat::nat64::{Allocation, Quotas};
use ipnet::Ipv6Net;
use toml::Spanned;

use super::log::{LogEvent, LogTarget, LogTargetError, NatLog};
use super::{Pool, Pool4};
use crate::diagnostic::{Diagnostic, Sink};
use crate::section::{Problem, Problems, Section, Value};
use crate::sections::{self, Table, set, tables};
use crate::value;

type Parsed<T> = Result<T, Problems>;

/// Ports of a block. Even numbers only (see [`block_size`]).
const BLOCK_SIZE: std::ops::RangeInclusive<i64> = 8..=32_768;

/// Blocks that a subscriber has at most unless the file says otherwise.
const MOST_BLOCKS: u8 = 4;

/// A pool as read, with the places that checks point at.
pub(crate) struct PoolDraft {
    pub(crate) span: Range<usize>,
    pub(crate) pool4: Vec<Spanned<Pool4>>,
    pub(crate) clients: Vec<Spanned<Ipv6Net>>,
    pub(crate) mark: Option<u32>,
    pub(crate) allocation: Spanned<Allocation>,
}

impl PoolDraft {
    pub(crate) fn pool(&self) -> Pool {
        Pool {
            pool4: self.pool4.iter().map(|pool4| pool4.get_ref().clone()).collect(),
            clients: self.clients.iter().map(|net| *net.get_ref()).collect(),
            mark: self.mark,
            allocation: *self.allocation.get_ref(),
        }
    }
}

const POOL4_HELP: &str = "write a list such as [\"192.0.2.1:1024-65535\"], [\"198.51.100.0/24\"] or \
                          [\"interface:eth0:61000-65535\"]";

/// Reads `pool4`.
pub(crate) fn pool4(v: &Value<'_>) -> Parsed<Vec<Spanned<Pool4>>> {
    value::list(v, POOL4_HELP, |v| value::parsed(v, "an address", POOL4_HELP))
}

/// Reads `port_blocks` or `deterministic` of a translator or of a pool.
pub(crate) fn allocation(section: &mut Section<'_, '_>, sink: &mut Sink) -> Spanned<Allocation> {
    let blocks = section.read(sink, "port_blocks", sections::table);
    let deterministic = section.read(sink, "deterministic", sections::table);
    if let (Some(blocks), Some(deterministic)) = (&blocks, &deterministic) {
        let message = "`deterministic`: the ports of a pool are given in one way";
        sink.push(
            Diagnostic::error(deterministic.span(), message)
                .related(blocks.span(), "the other way")
                .help("leave one of the two out"),
        );
    }
    match (blocks, deterministic) {
        (Some(blocks), _) => {
            let span = blocks.span();
            let mut section = nested("port_blocks", blocks.into_inner());
            let size = read_size(&mut section, sink);
            let mut most = MOST_BLOCKS;
            let range = 1..=MAX_BLOCKS as i64;
            set(
                &mut most,
                section.read(sink, "most", |v| Ok(value::integer(v, range, "blocks")? as u8)),
            );
            section.finish(sink);
            Spanned::new(
                span,
                size.map_or(Allocation::Shared, |size| Allocation::Blocks { size, most }),
            )
        }
        (None, Some(deterministic)) => {
            let span = deterministic.span();
            let mut section = nested("deterministic", deterministic.into_inner());
            let size = read_size(&mut section, sink);
            section.finish(sink);
            let allocation =
                size.map_or(Allocation::Shared, |size| Allocation::Deterministic { size });
            Spanned::new(span, allocation)
        }
        (None, None) => Spanned::new(section.span(), Allocation::Shared),
    }
}

fn nested<'t, 'i>(title: &'static str, (table, span): Table<'t, 'i>) -> Section<'t, 'i> {
    Section::new(title, table, span)
}

fn read_size(section: &mut Section<'_, '_>, sink: &mut Sink) -> Option<u16> {
    let help = "write the number of ports of a block, such as size = 512";
    section.require(sink, "size", help, block_size).map(Spanned::into_inner)
}

/// RFC 4787 REQ-4 (port parity) asks for even and odd ports in equal number.
fn block_size(v: &Value<'_>) -> Parsed<u16> {
    let size = value::integer(v, BLOCK_SIZE, "ports")?;
    if size % 2 == 0 {
        return Ok(size as u16);
    }
    let message = "an odd number of ports: even and odd ones are given in pairs (RFC 4787 REQ-4)";
    Err(Problem::new(v.span(), message, format!("write {}", size + 1)).into())
}

/// Reads `quotas`.
pub(crate) fn quotas(table: Table<'_, '_>, sink: &mut Sink) -> Quotas {
    let mut section = nested("quotas", table);
    let mut quotas = Quotas::default();
    let mut limit = |place: &mut u32, key: &'static str| {
        let read = section.read(sink, key, |v| Ok(value::integer(v, 0..=16_777_215, "")? as u32));
        set(place, read);
    };
    let [tcp, udp, icmp] = &mut quotas.ports;
    limit(tcp, "tcp_ports");
    limit(udp, "udp_ports");
    limit(icmp, "icmp_ids");
    limit(&mut quotas.sessions, "sessions");
    limit(&mut quotas.new_per_second, "new_per_second");
    section.finish(sink);
    quotas
}

/// Reads all `[[translator.pool]]`.
pub(crate) fn pools(section: &mut Section<'_, '_>, sink: &mut Sink) -> Vec<PoolDraft> {
    let tables = section.read(sink, "pool", |v| tables(v, "[[translator.pool]]"));
    let tables = tables.map(Spanned::into_inner).unwrap_or_default();
    tables.into_iter().map(|table| pool(table, sink)).collect()
}

fn pool((table, span): Table<'_, '_>, sink: &mut Sink) -> PoolDraft {
    let mut section = Section::new("[[translator.pool]]", table, span);
    let read = section.require(sink, "pool4", POOL4_HELP, pool4);
    let clients = section.read(sink, "clients", clients).map(Spanned::into_inner);
    let mark = section.read(sink, "mark", |v| {
        // The range lies within u32.
        Ok(value::integer(v, 0..=i64::from(u32::MAX), "")? as u32)
    });
    if !section.has("clients") && !section.has("mark") {
        let message = "this pool has neither `clients` nor `mark`, so it would be for every host";
        let help = "say whose it is, or write its addresses as the translator's pool4";
        sink.push(Diagnostic::error(section.span(), message).help(help));
    }
    let allocation = allocation(&mut section, sink);
    let span = section.span();
    section.finish(sink);
    PoolDraft {
        span,
        pool4: read.map(Spanned::into_inner).unwrap_or_default(),
        clients: clients.unwrap_or_default(),
        mark: mark.map(Spanned::into_inner),
        allocation,
    }
}

/// Reads a list of IPv6 prefixes, which may not be empty: that would mean everybody.
pub(crate) fn clients(v: &Value<'_>) -> Parsed<Vec<Spanned<Ipv6Net>>> {
    let help = "write a list of IPv6 prefixes such as [\"2001:db8:1::/48\"]";
    let clients = value::list(v, help, value::prefix6)?;
    match clients.is_empty() {
        true => Err(Problem::new(v.span(), "the list is empty", help).into()),
        false => Ok(clients),
    }
}

const EVENTS: [(&str, LogEvent); 3] = [
    ("blocks", LogEvent::Blocks),
    ("bindings", LogEvent::Bindings),
    ("sessions", LogEvent::Sessions),
];

/// The word for an event.
pub(crate) fn event_word(event: LogEvent) -> &'static str {
    EVENTS.iter().find(|(_, known)| *known == event).map_or("", |(word, _)| word)
}

/// Reads all `[[translator.log]]`.
pub(crate) fn logs(section: &mut Section<'_, '_>, sink: &mut Sink) -> Vec<NatLog> {
    let tables = section.read(sink, "log", |v| tables(v, "[[translator.log]]"));
    let tables = tables.map(Spanned::into_inner).unwrap_or_default();
    tables.into_iter().filter_map(|table| log(table, sink)).collect()
}

fn log((table, span): Table<'_, '_>, sink: &mut Sink) -> Option<NatLog> {
    let mut section = Section::new("[[translator.log]]", table, span);
    let what_help = "write a list such as what = [\"blocks\", \"bindings\", \"sessions\"]";
    let what = section.require(sink, "what", what_help, |v| events(v, what_help));
    let to_help = "write to = \"json:/var/log/fordway/nat64.json\", \"syslog:udp:192.0.2.9:514\", \
                   \"syslog:unix:/dev/log\" or \"ipfix:udp:192.0.2.9:4739\"";
    let to = section.require(sink, "to", to_help, |v| {
        value::parsed::<LogTarget, LogTargetError>(v, "a place", to_help)
    });
    let destinations = section.read(sink, "destinations", value::boolean);
    let sessions = what.as_ref().is_some_and(|what| what.get_ref().contains(&LogEvent::Sessions));
    if let Some(destinations) = &destinations
        && *destinations.get_ref()
        && !sessions
    {
        let message = "`destinations` has no effect: only records of sessions have any";
        sink.push(Diagnostic::warning(destinations.span(), message).help("leave it out"));
    }
    let domain = section.read(sink, "domain", |v| {
        // The range lies within u32.
        Ok(value::integer(v, 1..=i64::from(u32::MAX), "")? as u32)
    });
    let is_ipfix = to.as_ref().is_none_or(|to| matches!(to.get_ref(), LogTarget::Ipfix(_)));
    if let Some(domain) = &domain
        && !is_ipfix
    {
        let message = "`domain` has no effect: only IPFIX has observation domains";
        sink.push(Diagnostic::warning(domain.span(), message).help("leave it out"));
    }
    section.finish(sink);
    Some(NatLog {
        what: what?.into_inner(),
        to: to?.into_inner(),
        destinations: destinations.is_some_and(Spanned::into_inner) && sessions,
        domain: domain.filter(|_| is_ipfix).map_or(1, Spanned::into_inner),
    })
}

fn events(v: &Value<'_>, help: &str) -> Parsed<Vec<LogEvent>> {
    let read = value::list(v, help, |v| value::choice(v, &EVENTS))?;
    if read.is_empty() {
        return Err(Problem::new(v.span(), "the list is empty", help).into());
    }
    let mut events: Vec<LogEvent> = read.into_iter().map(Spanned::into_inner).collect();
    events.sort_unstable();
    events.dedup();
    Ok(events)
}
