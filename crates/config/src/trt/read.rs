//! Reading `[[trt]]`.

use std::net::Ipv4Addr;
use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use fordway_xlat::addr::Pool6;
use fordway_xlat::{IcmpErrors, TrafficClass};
use ipnet::{IpNet, Ipv4Net};
use toml::Spanned;

use super::{Trt, UrgentData};
use crate::diagnostic::Sink;
use crate::dns64::read::{allow, inner, some, threads};
use crate::name::InterfaceName;
use crate::section::{Problems, Section, Value};
use crate::sections::{Table, set};
use crate::translator::{read_icmp_errors, traffic_class};
use crate::value;

/// An entry as read, with the places that checks point at.
pub(crate) struct Draft {
    trt: Option<Trt>,
    pub(crate) name: Option<Spanned<InterfaceName>>,
    pub(crate) pool6: Vec<Spanned<Pool6>>,
    pub(crate) allow: Vec<Spanned<IpNet>>,
    pub(crate) refuse4: Vec<Spanned<Ipv4Net>>,
    pub(crate) source4: Vec<Spanned<Ipv4Addr>>,
    pub(crate) udp_idle: Option<Range<usize>>,
    pub(crate) span: Range<usize>,
}

impl Draft {
    /// The entry as far as it is complete.
    pub(crate) fn trt(&self) -> Option<&Trt> {
        self.trt.as_ref()
    }

    pub(crate) fn finish(self) -> Option<Trt> {
        self.trt
    }
}

pub(crate) const URGENT: [(&str, UrgentData); 3] = [
    ("carry", UrgentData::Carry),
    ("inline", UrgentData::Inline),
    ("discard", UrgentData::Discard),
];

/// What a name is read as where the file does not say one.
const NAME: &str = "trt0";

/// The mark and the routing table, where the file does not say others: numbers that hardly anybody else has.
const MARK: u32 = 0x7472_7400;
const TABLE: u32 = 747_274;

/// Idle times.
const IDLE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(7 * 86_400);

pub(crate) fn trt((table, span): Table<'_, '_>, sink: &mut Sink) -> Draft {
    let mut section = Section::new("[[trt]]", table, span);
    let name = section.read(sink, "name", value::translator_name);
    let help = "write the prefix that is routed to this host, such as pool6 = [\"64:ff9b::/96\"]";
    let pool6 = section.require(sink, "pool6", help, |v| some(v, help, value::pool6));
    let allow = section.read(sink, "allow", allow);
    let nets = "write a list of IPv4 networks such as [\"198.51.100.0/24\"]";
    let refuse4 = section.read(sink, "refuse4", |v| value::list(v, nets, value::prefix4));
    let addresses = "write IPv4 addresses of this host such as [\"192.0.2.1\"]";
    let source4 = section.read(sink, "source4", |v| value::list(v, addresses, value::host4));
    let udp_idle = section.read(sink, "udp_idle", |v| value::duration(v, IDLE));
    let udp_idle_at = udp_idle.as_ref().map(Spanned::span);
    let mut trt = defaults();
    set(&mut trt.udp_idle, udp_idle);
    read_rest(&mut section, sink, &mut trt);
    let span = section.span();
    section.finish(sink);
    if let Some(name) = &name {
        trt.name = name.get_ref().clone();
    }
    let complete = pool6.as_ref().map(|pool6| {
        trt.pool6 = inner(pool6.get_ref());
        trt.allow = allow.as_ref().and_then(|it| it.get_ref().as_ref()).map(|it| inner(it));
        trt.refuse4 = refuse4.as_ref().map(|it| inner(it.get_ref())).unwrap_or_default();
        trt.source4 = source4.as_ref().map(|it| inner(it.get_ref())).unwrap_or_default();
        trt
    });
    Draft {
        trt: complete,
        name,
        pool6: pool6.map(Spanned::into_inner).unwrap_or_default(),
        allow: allow.and_then(Spanned::into_inner).unwrap_or_default(),
        refuse4: refuse4.map(Spanned::into_inner).unwrap_or_default(),
        source4: source4.map(Spanned::into_inner).unwrap_or_default(),
        udp_idle: udp_idle_at,
        span,
    }
}

fn defaults() -> Trt {
    Trt {
        name: InterfaceName::fixed(NAME),
        pool6: Vec::new(),
        threads: None,
        tcp: true,
        udp: true,
        own_traffic: true,
        allow: None,
        refuse4: Vec::new(),
        allow_private: false,
        allow_own: false,
        source4: Vec::new(),
        traffic_class: TrafficClass::Copy,
        urgent: UrgentData::default(),
        keepalive: Some(Duration::from_secs(600)),
        icmp_errors: IcmpErrors::default(),
        max_connections: 65_536,
        max_sessions: 65_536,
        max_per_client: 4_096,
        client_len: 64,
        connect_timeout: Duration::from_secs(30),
        // RFC 5382 REQ-5.
        tcp_idle: Duration::from_secs(7_440),
        half_closed_idle: Duration::from_secs(240),
        // RFC 4787 REQ-5.
        udp_idle: Duration::from_secs(300),
        mark: MARK,
        table: TABLE,
    }
}

fn read_rest(section: &mut Section<'_, '_>, sink: &mut Sink, t: &mut Trt) {
    // All ranges lie within the types.
    let count = |v: &Value<'_>| Ok(value::integer(v, 1..=4_000_000, "")? as u32);
    let number = |v: &Value<'_>| Ok(value::integer(v, 1..=i64::from(u32::MAX), "")? as u32);
    let connect = Duration::from_secs(1)..=Duration::from_secs(120);
    set(&mut t.threads, section.read(sink, "threads", threads));
    set(&mut t.tcp, section.read(sink, "tcp", value::boolean));
    set(&mut t.udp, section.read(sink, "udp", value::boolean));
    set(&mut t.own_traffic, section.read(sink, "own_traffic", value::boolean));
    set(&mut t.allow_private, section.read(sink, "allow_private", value::boolean));
    set(&mut t.allow_own, section.read(sink, "allow_own", value::boolean));
    set(&mut t.traffic_class, section.read(sink, "traffic_class", traffic_class));
    set(&mut t.urgent, section.read(sink, "urgent", |v| value::choice(v, &URGENT)));
    set(&mut t.keepalive, section.read(sink, "keepalive", keepalive));
    read_icmp_errors(section, sink, &mut t.icmp_errors);
    set(&mut t.max_connections, section.read(sink, "max_connections", count));
    set(&mut t.max_sessions, section.read(sink, "max_sessions", count));
    set(&mut t.max_per_client, section.read(sink, "max_per_client", count));
    set(&mut t.client_len, section.read(sink, "client_len", value::client_len));
    let time = |v: &Value<'_>| value::duration(v, IDLE);
    let read = section.read(sink, "connect_timeout", |v| value::duration(v, connect));
    set(&mut t.connect_timeout, read);
    set(&mut t.tcp_idle, section.read(sink, "tcp_idle", time));
    set(&mut t.half_closed_idle, section.read(sink, "half_closed_idle", time));
    set(&mut t.mark, section.read(sink, "mark", number));
    set(&mut t.table, section.read(sink, "table", table_number));
}

/// `off`, or a time.
fn keepalive(v: &Value<'_>) -> Result<Option<Duration>, Problems> {
    match v.get_ref().as_str() {
        Some("off") => Ok(None),
        // The kernel has no longer one.
        _ => value::duration(v, Duration::from_secs(1)..=Duration::from_secs(32_767)).map(Some),
    }
}

/// A routing table that is none of the kernel's own.
fn table_number(v: &Value<'_>) -> Result<u32, Problems> {
    let number = value::integer(v, 1..=i64::from(u32::MAX), "")?;
    match number {
        253..=255 => {
            let message = format!("{number} is a table of the kernel's own");
            let help = "write another number, or leave it out";
            Err(crate::section::Problem::new(v.span(), message, help).into())
        }
        // The range lies within the type.
        _ => Ok(number as u32),
    }
}
