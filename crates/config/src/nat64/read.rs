//! Reading what only mode `nat64` has, and the `dynamic4` of mode `siit`.

use std::net::{Ipv4Addr, SocketAddrV4, SocketAddrV6};
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use fordway_xlat::addr::{Pool6, classify};
use fordway_xlat::nat64::{
    Allocation, Filtering, Lifetimes, Protocol, Quotas, Settings, Sizes, StaticBib,
};
use ipnet::{Ipv4Net, Ipv6Net};
use toml::Spanned;

use super::nat_pt::{self, NatPtDraft};
use super::tables::{self, PoolDraft};
use super::{Dynamic4, Nat64, alg, lifetimes};
use crate::diagnostic::{Diagnostic, Sink};
use crate::section::{Problem, Problems, Section, Value};
use crate::sections::{self, set};
use crate::value;

type Parsed<T> = Result<T, Problems>;

/// Folder of what outlives a restart.
const STATE_DIR: &str = "/var/lib/fordway";

/// What is read of a stateful translator, with the places that checks point at.
pub(crate) struct Nat64Draft {
    pub(crate) pools: Vec<PoolDraft>,
    pub(crate) bib: Vec<Spanned<StaticBib>>,
    pub(crate) subscriber_len: u8,
    pub(crate) nat_pt: Option<NatPtDraft>,
}

impl Nat64Draft {
    /// The IPv4 networks that are routed to it: those of its pools, and of its BIB.
    pub(crate) fn networks(&self) -> Vec<(Ipv4Net, Range<usize>)> {
        let pools = self.pools.iter().flat_map(|pool| &pool.pool4).flat_map(|pool4| {
            let nets = pool4.get_ref().networks().into_iter();
            nets.map(|net| (net, pool4.span()))
        });
        let bib = self.bib.iter().map(|bib| (Ipv4Net::from(bib.get_ref().v4.0), bib.span()));
        let bound = self.nat_pt.iter().flat_map(NatPtDraft::networks);
        pools.chain(bib).chain(bound).collect()
    }
}

/// Reads an entry of mode `nat64`, or with `is_nat_pt` of mode `nat-pt`.
pub(crate) fn nat64(
    section: &mut Section<'_, '_>,
    sink: &mut Sink,
    is_nat_pt: bool,
) -> (Nat64, Vec<Spanned<Pool6>>, Nat64Draft) {
    let help = "write a list such as pool6 = [\"64:ff9b::/96\"]";
    let pool6 = section.require(sink, "pool6", help, |v| value::list(v, help, value::pool6));
    if let Some(read) = pool6.as_ref().filter(|read| read.get_ref().is_empty()) {
        sink.push(Diagnostic::error(read.span(), "`pool6`: the list is empty").help(help));
    }
    let pool6 = pool6.map(Spanned::into_inner).unwrap_or_default();
    let (nat_pt, nat_pt_draft) = is_nat_pt.then(|| nat_pt::read(section, sink)).unzip();
    let mut pools = tables::pools(section, sink);
    pools.extend(for_all(section, sink));
    let has_addresses = section.has("addresses") || section.has("address_bindings");
    if is_nat_pt && pools.is_empty() && !section.has("pool4") && !has_addresses {
        let message = "neither `addresses` nor `pool4` is there: no address could be given";
        let help = "write addresses = [\"192.0.2.0/26\"], or pool4 = [\"192.0.2.1\"], or both";
        sink.push(Diagnostic::error(section.span(), message).help(help));
    } else if !is_nat_pt && pools.is_empty() && !section.has("pool") && !section.has("pool4") {
        let message =
            "neither `pool4` nor a [[translator.pool]] is there: no address could be given";
        let help = "write pool4 = [\"192.0.2.1\"], or pool4 = [\"interface:eth0\"]";
        sink.push(Diagnostic::error(section.span(), message).help(help));
    }
    let bib_help = "write a list such as [[\"tcp\", \"192.0.2.1:80\", \"[2001:db8::5]:8080\"]]";
    let bib = section.read(sink, "bib", |v| value::list(v, bib_help, static_bib));
    let bib = bib.map(Spanned::into_inner).unwrap_or_default();
    let default = Settings::default();
    let mut nat64 = Nat64 {
        pool6: pool6.iter().map(|pool6| *pool6.get_ref()).collect(),
        pools: pools.iter().map(PoolDraft::pool).collect(),
        bib: bib.iter().map(|bib| *bib.get_ref()).collect(),
        filtering: default.filtering,
        accept_v4_syn: default.accept_v4_syn,
        refresh_from_v4: default.refresh_from_v4,
        lifetimes: Lifetimes::default(),
        allow_short_lifetimes: false,
        subscriber_len: default.subscriber_len,
        quotas: Quotas::default(),
        gateways: alg::read(section, sink),
        sizes: Sizes::default(),
        logs: Vec::new(),
        nat_pt,
    };
    if is_nat_pt {
        let why = "in mode nat-pt IPv4 hosts begin what they have asked for by name";
        section.refuse(
            sink,
            "filtering",
            why,
            "leave it out; initiators = [...] says which hosts may",
        );
    } else {
        let filtering = section.read(sink, "filtering", |v| value::choice(v, &FILTERINGS));
        set(&mut nat64.filtering, filtering);
    }
    set(&mut nat64.accept_v4_syn, section.read(sink, "accept_v4_syn", value::boolean));
    set(&mut nat64.refresh_from_v4, section.read(sink, "refresh_from_v4", value::boolean));
    let allow_short = section.read(sink, "allow_short_lifetimes", value::boolean);
    set(&mut nat64.allow_short_lifetimes, allow_short);
    if let Some(table) = section.read(sink, "lifetimes", sections::table) {
        let allow_short = nat64.allow_short_lifetimes;
        lifetimes::read(table.into_inner(), allow_short, &mut nat64.lifetimes, sink);
    }
    let len =
        section.read(sink, "subscriber_len", |v| Ok(value::integer(v, 1..=128, "bits")? as u8));
    set(&mut nat64.subscriber_len, len);
    if let Some(table) = section.read(sink, "quotas", sections::table) {
        nat64.quotas = tables::quotas(table.into_inner(), sink);
    }
    sizes(section, sink, &mut nat64.sizes);
    nat64.logs = tables::logs(section, sink);
    let subscriber_len = nat64.subscriber_len;
    let draft = Nat64Draft { pools, bib, subscriber_len, nat_pt: nat_pt_draft };
    (nat64, pool6, draft)
}

pub(crate) const FILTERINGS: [(&str, Filtering); 2] = [
    ("endpoint-independent", Filtering::EndpointIndependent),
    ("address-dependent", Filtering::AddressDependent),
];

/// The pool of the keys `pool4`, `port_blocks` and `deterministic`: for every host.
fn for_all(section: &mut Section<'_, '_>, sink: &mut Sink) -> Option<PoolDraft> {
    let read = section.read(sink, "pool4", tables::pool4);
    let allocation = tables::allocation(section, sink);
    let pool4 = match read {
        Some(read) if read.get_ref().is_empty() => {
            let help = "write pool4 = [\"192.0.2.1\"], or leave it out where there are pools";
            sink.push(Diagnostic::error(read.span(), "`pool4`: the list is empty").help(help));
            return None;
        }
        Some(read) => read,
        None => {
            if *allocation.get_ref() != Allocation::Shared && !section.has("pool4") {
                let message = "how ports are given belongs to `pool4`, which is not there";
                let help = "write it in the [[translator.pool]] that is meant";
                sink.push(Diagnostic::error(allocation.span(), message).help(help));
            }
            return None;
        }
    };
    let (clients, mark) = (Vec::new(), None);
    Some(PoolDraft { span: pool4.span(), pool4: pool4.into_inner(), clients, mark, allocation })
}

fn sizes(section: &mut Section<'_, '_>, sink: &mut Sink, sizes: &mut Sizes) {
    let entries = |v: &Value<'_>| {
        // The range lies within u32.
        Ok(value::integer(v, 1..=i64::from(Sizes::MAX), "entries")? as u32)
    };
    let sessions = section.read(sink, "max_sessions", entries);
    if let Some(sessions) = &sessions {
        // A BIB entry has one session or more.
        sizes.bibs = *sessions.get_ref();
    }
    set(&mut sizes.sessions, sessions);
    set(&mut sizes.bibs, section.read(sink, "max_bib", entries));
    set(&mut sizes.subscribers, section.read(sink, "max_subscribers", entries));
}

/// One BIB entry: protocol, IPv4 transport address, IPv6 transport address.
fn static_bib(v: &Value<'_>) -> Parsed<StaticBib> {
    let help = "write [\"tcp\", \"192.0.2.1:80\", \"[2001:db8::5]:8080\"]: tcp, udp or icmp, then the \
                IPv4 side, then the IPv6 host; identifiers stand in the place of icmp's ports";
    let wrong =
        |v: &Value<'_>, message: String| Problems::from(Problem::new(v.span(), message, help));
    let Some(items) = v.get_ref().as_array() else {
        return Err(wrong(v, "this is no list of three".to_owned()));
    };
    let [protocol, v4, v6] = &items[..] else {
        return Err(wrong(v, format!("a BIB entry has 3 parts, not {}", items.len())));
    };
    let protocol = value::choice(protocol, &PROTOCOLS)?;
    let v4_at: SocketAddrV4 = value::address(v4, "an IPv4 address with a port", help)?;
    let v6_at: SocketAddrV6 = value::address(v6, "an IPv6 address with a port", help)?;
    let illegal = |v: &Value<'_>, it: &dyn std::fmt::Display| {
        wrong(v, format!("{it} can't be a host's address on a wire"))
    };
    if classify::illegal_v4(*v4_at.ip()).is_some() {
        return Err(illegal(v4, v4_at.ip()));
    }
    if classify::illegal_v6(*v6_at.ip()).is_some() || v6_at.scope_id() != 0 {
        return Err(illegal(v6, v6_at.ip()));
    }
    if protocol != Protocol::Icmp {
        for (v, port) in [(v4, v4_at.port()), (v6, v6_at.port())] {
            if port == 0 {
                return Err(wrong(v, "port 0 is nobody's".to_owned()));
            }
        }
    }
    Ok(StaticBib { protocol, v4: (*v4_at.ip(), v4_at.port()), v6: (*v6_at.ip(), v6_at.port()) })
}

const PROTOCOLS: [(&str, Protocol); 3] =
    [("tcp", Protocol::Tcp), ("udp", Protocol::Udp), ("icmp", Protocol::Icmp)];

/// `dynamic4` as read, with the places that checks point at.
pub(crate) struct Dynamic4Draft {
    pub(crate) span: Range<usize>,
    pub(crate) pool: Vec<Spanned<Ipv4Net>>,
}

/// Reads `dynamic4` of an entry of mode `siit`, and the keys that belong to it.
pub(crate) fn dynamic4(
    section: &mut Section<'_, '_>,
    sink: &mut Sink,
    name: &str,
) -> Option<(Dynamic4, Dynamic4Draft)> {
    let help = "write a list of IPv4 networks such as [\"192.0.2.0/24\"]";
    if !section.has("dynamic4") {
        let why = "this key belongs to `dynamic4`, which is not there";
        for key in ["dynamic4_clients", "dynamic4_idle", "dynamic4_file"] {
            section.refuse(sink, key, why, "leave it out, or write dynamic4 = [...]");
        }
        return None;
    }
    let read = section.read(sink, "dynamic4", |v| value::list(v, help, value::prefix4));
    let clients = section.read(sink, "dynamic4_clients", tables::clients);
    let clients: Vec<Spanned<Ipv6Net>> = clients.map(Spanned::into_inner).unwrap_or_default();
    let mut idle = Lifetimes::default().dynamic4;
    let range = Duration::from_secs(60)..=Duration::from_secs(30 * 24 * 3600);
    set(&mut idle, section.read(sink, "dynamic4_idle", |v| value::duration(v, range)));
    let mut file = Some(PathBuf::from(format!("{STATE_DIR}/{name}.dynamic4")));
    let file_read = section.read(sink, "dynamic4_file", |v| match v.get_ref().as_str() {
        Some("off") => Ok(None),
        _ => value::file(v, "/var/lib/fordway/siit0.dynamic4").map(Some),
    });
    set(&mut file, file_read);
    let read = read?;
    let span = read.span();
    if read.get_ref().is_empty() {
        sink.push(Diagnostic::error(span.clone(), "`dynamic4`: the list is empty").help(help));
    }
    let pool = read.into_inner();
    let addresses: u64 = pool.iter().map(|net| 1 << (32 - net.get_ref().prefix_len())).sum();
    if addresses > u64::from(Sizes::MAX) {
        let message = format!("`dynamic4`: {addresses} addresses are more than a table holds");
        let help = format!("write networks of at most {} addresses together", Sizes::MAX);
        sink.push(Diagnostic::error(span.clone(), message).help(help));
    }
    for net in &pool {
        let net_of = net.get_ref();
        let illegal =
            [net_of.network(), net_of.broadcast()].into_iter().find_map(|address: Ipv4Addr| {
                classify::illegal_v4(address).map(|reason| (address, reason))
            });
        if let Some((address, reason)) = illegal {
            let message = format!("`dynamic4`: {address} can't be a host's address on a wire");
            sink.push(Diagnostic::error(net.span(), message).help(reason.text()));
        }
    }
    let dynamic4 = Dynamic4 {
        pool: pool.iter().map(|net| *net.get_ref()).collect(),
        clients: clients.iter().map(|net| *net.get_ref()).collect(),
        idle,
        file,
    };
    Some((dynamic4, Dynamic4Draft { span, pool }))
}
