//! Reading an entry of mode `nat44`.

use std::net::SocketAddrV4;
use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use fordway_xlat::addr::classify;
use ipnet::Ipv4Net;
use toml::Spanned;

use super::{Forward, ForwardProtocol, Inbound, Nat44, Nat44Lifetimes, Nat44Quotas};
use crate::diagnostic::{Diagnostic, Sink};
use crate::name::InterfaceName;
use crate::nat64::Pool4;
use crate::nat64::tables::pool4;
use crate::section::{Problem, Problems, Section, Value};
use crate::sections::{self, Table, set};
use crate::value;

type Parsed<T> = Result<T, Problems>;

/// Networks, devices and forwarded ports of one translator: each makes rules that packets pass one by one.
const MOST: usize = 256;

/// What the kernel keeps a connection for, without regard to what the RFCs allow.
const LIFETIME: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(30 * 24 * 3600);

/// An entry as read, with the places that checks point at.
pub(crate) struct Draft {
    pub(crate) nat44: Option<Nat44>,
    pub(crate) span: Range<usize>,
    pub(crate) name: Option<Spanned<InterfaceName>>,
    pub(crate) clients: Vec<Spanned<Ipv4Net>>,
    pub(crate) devices: Vec<Spanned<InterfaceName>>,
    pub(crate) uplinks: Vec<Spanned<InterfaceName>>,
    pub(crate) pool4: Vec<Spanned<Pool4>>,
    pub(crate) netmap: Vec<Spanned<(Ipv4Net, Ipv4Net)>>,
    pub(crate) forwards: Vec<Spanned<Forward>>,
}

/// Reads an entry.
pub(crate) fn nat44((table, span): Table<'_, '_>, sink: &mut Sink) -> Draft {
    let mut section = Section::new("[[translator]]", table, span);
    // Known already: it is what has led here.
    section.read(sink, "mode", |_| Ok(()));
    let name_help = "write a name such as name = \"nat44\"; the nftables table gets it";
    let name = section.require(sink, "name", name_help, value::translator_name);
    let help = "write the networks of the hosts, such as clients = [\"198.51.100.0/24\"]";
    let clients = several(&mut section, sink, "clients", help, value::prefix4);
    let help = "write the device towards the IPv4 network, such as uplink = \"eth0\"";
    let uplinks = section.require(sink, "uplink", help, |v| one_or_several(v, help));
    let uplinks = uplinks.map(Spanned::into_inner).unwrap_or_default();
    let help = "write a list of interface names such as devices = [\"lan0\"]";
    let devices = list(section.read(sink, "devices", |v| value::list(v, help, value::name)));
    let pool4 = list(section.read(sink, "pool4", pool4));
    let help = "write a list of pairs: [[\"198.51.100.0/28\", \"192.0.2.16/28\"]]";
    let netmap = list(section.read(sink, "netmap", |v| value::list(v, help, pair)));
    let help = "write a list such as [[\"tcp\", \"192.0.2.1:80\", \"198.51.100.10:8080\"]]";
    let forwards = list(section.read(sink, "forward", |v| value::list(v, help, forward)));
    let mut nat44 = Nat44 {
        name: InterfaceName::placeholder(),
        clients: values(&clients),
        devices: values(&devices),
        uplinks: values(&uplinks),
        pool4: values(&pool4),
        assign: true,
        persistent: true,
        random_ports: false,
        netmap: values(&netmap),
        forwards: values(&forwards),
        hairpin: true,
        inbound: Inbound::default(),
        mss_clamp: true,
        lifetimes: Some(Nat44Lifetimes::default()),
        allow_short_lifetimes: false,
        quotas: Nat44Quotas::default(),
        log: false,
    };
    read_switches(&mut section, sink, &mut nat44);
    read_lifetimes(&mut section, sink, &mut nat44);
    if let Some(table) = section.read(sink, "quotas", sections::table) {
        nat44.quotas = quotas(table.into_inner(), sink);
    }
    refuse(&mut section, sink);
    let span = section.span();
    section.finish(sink);
    let nat44 = name.as_ref().map(|name| Nat44 { name: name.get_ref().clone(), ..nat44 });
    Draft { nat44, span, name, clients, devices, uplinks, pool4, netmap, forwards }
}

fn read_switches(section: &mut Section<'_, '_>, sink: &mut Sink, nat44: &mut Nat44) {
    set(&mut nat44.assign, section.read(sink, "assign", value::boolean));
    set(&mut nat44.persistent, section.read(sink, "persistent", value::boolean));
    set(&mut nat44.random_ports, section.read(sink, "random_ports", value::boolean));
    set(&mut nat44.hairpin, section.read(sink, "hairpin", value::boolean));
    set(&mut nat44.inbound, section.read(sink, "inbound", |v| value::choice(v, &INBOUNDS)));
    set(&mut nat44.mss_clamp, section.read(sink, "mss_clamp", value::boolean));
    set(&mut nat44.log, section.read(sink, "log", value::boolean));
}

pub(crate) const INBOUNDS: [(&str, Inbound); 2] =
    [("drop", Inbound::Drop), ("route", Inbound::Route)];

/// Keys of translators with an interface of their own.
fn refuse(section: &mut Section<'_, '_>, sink: &mut Sink) {
    let why = "mode nat44 has no interface and no engine: the kernel translates by itself";
    for key in ["engine", "attach", "queues", "mtu", "pool6", "eam", "routes4", "manage"] {
        section.refuse(sink, key, why, "leave it out");
    }
    let help = "write forward = [[\"tcp\", \"192.0.2.1:80\", \"198.51.100.10:8080\"]]";
    section.refuse(sink, "bib", "in mode nat44 ports are forwarded by `forward`", help);
}

/// A list that must be there and hold something.
fn several<'t, 'i, T>(
    section: &mut Section<'t, 'i>,
    sink: &mut Sink,
    key: &'static str,
    help: &str,
    item: impl Fn(&'t Value<'i>) -> Parsed<T>,
) -> Vec<Spanned<T>> {
    let Some(read) = section.require(sink, key, help, |v| value::list(v, help, item)) else {
        return Vec::new();
    };
    if read.get_ref().is_empty() {
        let message = format!("`{key}`: the list is empty");
        sink.push(Diagnostic::error(read.span(), message).help(help));
    }
    if read.get_ref().len() > MOST {
        let message = format!("`{key}`: {} entries; {MOST} are possible", read.get_ref().len());
        let help = "write larger networks, or make a second translator";
        sink.push(Diagnostic::error(read.span(), message).help(help));
    }
    read.into_inner()
}

/// A device, or a list of devices.
pub(super) fn one_or_several(v: &Value<'_>, help: &str) -> Parsed<Vec<Spanned<InterfaceName>>> {
    if v.get_ref().as_array().is_none() {
        return Ok(vec![Spanned::new(v.span(), value::name(v)?)]);
    }
    let devices = value::list(v, help, value::name)?;
    match devices.len() {
        1..=MOST => Ok(devices),
        number => {
            Err(Problem::new(v.span(), format!("{number} devices can't be meant"), help).into())
        }
    }
}

/// Two networks of one size.
fn pair(v: &Value<'_>) -> Parsed<(Ipv4Net, Ipv4Net)> {
    let help = "write [\"198.51.100.0/28\", \"192.0.2.16/28\"]: inside, then outside";
    let Some([inside, outside]) = v.get_ref().as_array().map(|items| &items[..]) else {
        return Err(Problem::new(v.span(), "this is no pair of networks", help).into());
    };
    let (inside, outside) = (value::prefix4(inside)?, value::prefix4(outside)?);
    if inside.prefix_len() != outside.prefix_len() {
        let message = format!("{inside} and {outside} have not as many addresses");
        return Err(Problem::new(v.span(), message, help).into());
    }
    Ok((inside, outside))
}

/// One forwarded port: protocol, outer transport address or port, host and port.
fn forward(v: &Value<'_>) -> Parsed<Forward> {
    let help = "write [\"tcp\", \"192.0.2.1:80\", \"198.51.100.10:8080\"]: tcp or udp, then the outer \
                address and port (or the port alone, for the addresses of the uplink), then the host";
    let wrong =
        |v: &Value<'_>, message: String| Problems::from(Problem::new(v.span(), message, help));
    let Some(items) = v.get_ref().as_array() else {
        return Err(wrong(v, "this is no list of three".to_owned()));
    };
    let [protocol, outside, inside] = &items[..] else {
        return Err(wrong(v, format!("a forwarded port has 3 parts, not {}", items.len())));
    };
    let protocol = value::choice(protocol, &PROTOCOLS)?;
    let (address, port) = match outside.get_ref().as_str().map(str::parse::<u16>) {
        Some(Ok(port)) => (None, port),
        _ => {
            let at: SocketAddrV4 = value::address(outside, "an IPv4 address with a port", help)?;
            (Some(*at.ip()), at.port())
        }
    };
    let to: SocketAddrV4 = value::address(inside, "an IPv4 address with a port", help)?;
    for (v, address) in [(outside, address), (inside, Some(*to.ip()))] {
        if let Some(address) = address.filter(|it| classify::illegal_v4(*it).is_some()) {
            return Err(wrong(v, format!("{address} can't be a host's address on a wire")));
        }
    }
    for (v, port) in [(outside, port), (inside, to.port())] {
        if port == 0 {
            return Err(wrong(v, "port 0 is nobody's".to_owned()));
        }
    }
    Ok(Forward { protocol, address, port, to: (*to.ip(), to.port()) })
}

pub(crate) const PROTOCOLS: [(&str, ForwardProtocol); 2] =
    [("tcp", ForwardProtocol::Tcp), ("udp", ForwardProtocol::Udp)];

/// A lifetime, the least that the RFC allows, and which one.
type Key = (&'static str, fn(&mut Nat44Lifetimes) -> &mut Duration, u64, &'static str);

const KEYS: [Key; 4] = [
    ("udp", |it| &mut it.udp, 120, "RFC 4787 REQ-5"),
    ("icmp", |it| &mut it.icmp, 60, "RFC 5508 REQ-2"),
    ("tcp_est", |it| &mut it.tcp_est, 7200, "RFC 5382 REQ-5"),
    ("tcp_trans", |it| &mut it.tcp_trans, 240, "RFC 5382 REQ-5"),
];

/// `lifetimes`: a table, or "host" where conntrack's are to stay as they are.
fn read_lifetimes(section: &mut Section<'_, '_>, sink: &mut Sink, nat44: &mut Nat44) {
    let allow_short = section.read(sink, "allow_short_lifetimes", value::boolean);
    set(&mut nat44.allow_short_lifetimes, allow_short);
    let read = section.read(sink, "lifetimes", |v| match v.get_ref().as_str() {
        Some("host") => Ok(None),
        Some(_) => {
            let help = "write lifetimes = \"host\", or a table such as { udp = \"5m\" }";
            Err(Problem::new(v.span(), "this is no table of lifetimes", help).into())
        }
        None => sections::table(v).map(Some),
    });
    let Some(read) = read else { return };
    let Some((table, span)) = read.into_inner() else {
        nat44.lifetimes = None;
        return;
    };
    let mut section = Section::new("lifetimes", table, span);
    let mut lifetimes = Nat44Lifetimes::default();
    for (key, place, least, source) in KEYS {
        let Some(read) = section.read(sink, key, |v| value::duration(v, LIFETIME)) else {
            continue;
        };
        // The kernel counts whole seconds.
        let given = Duration::from_secs(read.get_ref().as_secs().max(1));
        let show = humantime::format_duration;
        if given < Duration::from_secs(least) {
            let least = show(Duration::from_secs(least));
            let message = format!("`{key}`: {} is less than {least} ({source})", show(given));
            sink.push(if nat44.allow_short_lifetimes {
                let lost = "sessions of hosts that rely on the RFC will be lost";
                Diagnostic::warning(read.span(), message).help(lost)
            } else {
                Diagnostic::error(read.span(), message).help(format!(
                    "write \"{least}\" or more, or add allow_short_lifetimes = true to the translator"
                ))
            });
        }
        *place(&mut lifetimes) = given;
    }
    section.finish(sink);
    nat44.lifetimes = Some(lifetimes);
}

fn quotas((table, span): Table<'_, '_>, sink: &mut Sink) -> Nat44Quotas {
    let mut section = Section::new("quotas", table, span);
    let mut quotas = Nat44Quotas::default();
    let mut limit = |place: &mut u32, key: &'static str| {
        let read = section.read(sink, key, |v| Ok(value::integer(v, 0..=1_000_000, "")? as u32));
        set(place, read);
    };
    limit(&mut quotas.sessions, "sessions");
    limit(&mut quotas.new_per_second, "new_per_second");
    section.finish(sink);
    quotas
}

pub(super) fn list<T>(read: Option<Spanned<Vec<T>>>) -> Vec<T> {
    read.map(Spanned::into_inner).unwrap_or_default()
}

pub(super) fn values<T: Clone>(items: &[Spanned<T>]) -> Vec<T> {
    items.iter().map(|item| item.get_ref().clone()).collect()
}
