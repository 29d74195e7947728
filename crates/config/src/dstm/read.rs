//! Reading `[dstm_server]`, `[dstm_tep]` and `[[dstm_client]]`.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::{Ipv4Net, Ipv6Net};
use toml::Spanned;

use super::{
    DSTM_PORT, DstmClient, DstmClientKey, DstmPrefixKey, DstmServer, DstmTep, DstmTepPlace,
};
use crate::diagnostic::Sink;
use crate::engine::ENGINES;
use crate::name::InterfaceName;
use crate::section::{Problem, Problems, Section, Value};
use crate::sections::{Table, set, tables};
use crate::types::Engine;
use crate::value;

type Parsed<T> = Result<T, Problems>;

/// `[dstm_server]` as read, with the places that checks point at.
pub(crate) struct ServerDraft {
    server: Option<DstmServer>,
    pub(crate) span: Range<usize>,
    pub(crate) listen: Vec<Spanned<SocketAddrV6>>,
    pub(crate) pool: Vec<Spanned<Ipv4Net>>,
    pub(crate) tep: Option<Spanned<InterfaceName>>,
    pub(crate) ids: Vec<Spanned<String>>,
    pub(crate) reserved: Vec<Spanned<Ipv4Addr>>,
    pub(crate) prefixes: Vec<Spanned<Ipv6Net>>,
    pub(crate) max_lifetime: Option<Range<usize>>,
}

impl ServerDraft {
    /// The section as far as it is complete.
    pub(crate) fn server(&self) -> Option<&DstmServer> {
        self.server.as_ref()
    }

    pub(crate) fn finish(self) -> Option<DstmServer> {
        self.server
    }
}

/// `[dstm_tep]` as read.
pub(crate) struct TepDraft {
    tep: Option<DstmTep>,
    pub(crate) name: Option<Spanned<InterfaceName>>,
}

impl TepDraft {
    pub(crate) fn finish(self) -> Option<DstmTep> {
        self.tep
    }
}

/// A `[[dstm_client]]` as read.
pub(crate) struct ClientDraft {
    client: Option<DstmClient>,
    pub(crate) name: Option<Spanned<InterfaceName>>,
}

impl ClientDraft {
    pub(crate) fn finish(self) -> Option<DstmClient> {
        self.client
    }
}

/// Where leases are kept unless the file says where.
const STATE: &str = "/var/lib/fordway/dstm.leases";

const HOUR: Duration = Duration::from_secs(3600);
const LIFETIME: RangeInclusive<Duration> =
    Duration::from_secs(10)..=Duration::from_secs(30 * 86_400);
const REST: RangeInclusive<Duration> = Duration::ZERO..=HOUR;
const IDLE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(86_400);

/// Most bindings of a tunnel end point that is told by a server.
const BINDINGS: u32 = 1 << 20;

/// The address of a host at its end of a softwire (RFC 6333 section 5.7).
const B4: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 2);

pub(crate) fn server((table, span): Table<'_, '_>, sink: &mut Sink) -> ServerDraft {
    let mut section = Section::new("[dstm_server]", table, span.clone());
    let help = "write addresses of this host such as listen = [\"2001:db8:f::1\"]";
    let listen = section.require(sink, "listen", help, |v| some(v, help, listen));
    let help = "write the addresses to lend such as pool = [\"192.0.2.0/28\"]";
    let pool = section.require(sink, "pool", help, |v| some(v, help, value::prefix4));
    let ports = section.read(sink, "ports_per_client", ports);
    let mut lifetime = HOUR;
    set(&mut lifetime, section.read(sink, "lifetime", |v| value::duration(v, LIFETIME)));
    let max = section.read(sink, "max_lifetime", |v| value::duration(v, LIFETIME));
    let at_max = max.as_ref().map(Spanned::span);
    let mut max_lifetime = lifetime.max(24 * HOUR);
    set(&mut max_lifetime, max);
    let mut rest = Duration::from_secs(30);
    set(&mut rest, section.read(sink, "rest", |v| value::duration(v, REST)));
    let mut state = PathBuf::from(STATE);
    set(&mut state, section.read(sink, "state", |v| value::file(v, STATE)));
    let (tep, place) = tep_place(&mut section, sink);
    let client_tables = keys(&mut section, sink, "client", "[[dstm_server.client]]");
    let prefix_tables = keys(&mut section, sink, "prefix", "[[dstm_server.prefix]]");
    let mut draft = ServerDraft {
        server: None,
        span,
        listen: list(listen),
        pool: list(pool),
        tep,
        ids: Vec::new(),
        reserved: Vec::new(),
        prefixes: Vec::new(),
        max_lifetime: at_max,
    };
    let (mut clients, mut prefixes) = (Vec::new(), Vec::new());
    let mut whole = true;
    for table in client_tables {
        match client_key(table, sink) {
            Some((client, id, v4)) => {
                draft.ids.push(id);
                draft.reserved.extend(v4);
                clients.push(client);
            }
            None => whole = false,
        }
    }
    for table in prefix_tables {
        match prefix_key(table, sink) {
            Some((prefix, at)) => {
                draft.prefixes.push(at);
                prefixes.push(prefix);
            }
            None => whole = false,
        }
    }
    section.finish(sink);
    let complete = whole && !draft.listen.is_empty() && !draft.pool.is_empty();
    draft.server = place.filter(|_| complete).map(|tep| DstmServer {
        listen: inner(&draft.listen),
        pool: inner(&draft.pool),
        ports_per_client: ports.and_then(Spanned::into_inner),
        lifetime,
        max_lifetime,
        rest,
        tep,
        state,
        clients,
        prefixes,
    });
    draft
}

/// The tables of a list in the section.
fn keys<'t, 'i>(
    section: &mut Section<'t, 'i>,
    sink: &mut Sink,
    key: &'static str,
    title: &str,
) -> Vec<Table<'t, 'i>> {
    let read = section.read(sink, key, |v| tables(v, title));
    read.map(Spanned::into_inner).unwrap_or_default()
}

/// The name of a translator here, or three keys for another host's.
fn tep_place(
    section: &mut Section<'_, '_>,
    sink: &mut Sink,
) -> (Option<Spanned<InterfaceName>>, Option<DstmTepPlace>) {
    let help = "write the name of a translator with mode = \"softwire\" and role = \"tep\", such as tep = \
                \"tep0\"; or, of another host's, tep_address, tep_control and tep_key_file";
    if section.has("tep_address") || section.has("tep_control") || section.has("tep_key_file") {
        section.refuse(sink, "tep", "the tunnel end point can't be here and elsewhere", help);
        let address = section.require(sink, "tep_address", help, value::host6);
        let control = section.require(sink, "tep_control", help, listen);
        let key_file = section.require(sink, "tep_key_file", help, key_file);
        let place = address.zip(control).zip(key_file).map(|((address, control), key_file)| {
            DstmTepPlace::There {
                address: address.into_inner(),
                control: control.into_inner(),
                key_file: key_file.into_inner(),
            }
        });
        return (None, place);
    }
    let tep = section.require(sink, "tep", help, value::name);
    for key in ["tep_address", "tep_control", "tep_key_file"] {
        let _absent = section.read(sink, key, |_| Ok(()));
    }
    let place = tep.as_ref().map(|tep| DstmTepPlace::Here(tep.get_ref().clone()));
    (tep, place)
}

type ReadClient = (DstmClientKey, Spanned<String>, Option<Spanned<Ipv4Addr>>);

fn client_key((table, span): Table<'_, '_>, sink: &mut Sink) -> Option<ReadClient> {
    let mut section = Section::new("[[dstm_server.client]]", table, span);
    let id = section.require(sink, "id", ID_HELP, id);
    let key_file = section.require(sink, "key_file", KEY_HELP, key_file);
    let v4 = section.read(sink, "v4", value::host4);
    section.finish(sink);
    let (id, key_file) = (id?, key_file?.into_inner());
    let reserved = v4.as_ref().map(|v4| *v4.get_ref());
    Some((DstmClientKey { id: id.get_ref().clone(), key_file, v4: reserved }, id, v4))
}

fn prefix_key(
    (table, span): Table<'_, '_>,
    sink: &mut Sink,
) -> Option<(DstmPrefixKey, Spanned<Ipv6Net>)> {
    let mut section = Section::new("[[dstm_server.prefix]]", table, span);
    let help = "write where the clients are, such as prefix = \"2001:db8:5::/64\"";
    let prefix = section.require(sink, "prefix", help, value::prefix6);
    let key_file = section.require(sink, "key_file", KEY_HELP, key_file);
    let most = section.read(sink, "max_leases", |v| count(v, BINDINGS));
    section.finish(sink);
    let (prefix, key_file) = (prefix?, key_file?.into_inner());
    let max_leases = most.map_or(64, Spanned::into_inner);
    Some((DstmPrefixKey { prefix: *prefix.get_ref(), key_file, max_leases }, prefix))
}

pub(crate) fn tep((table, span): Table<'_, '_>, sink: &mut Sink) -> TepDraft {
    let mut section = Section::new("[dstm_tep]", table, span);
    let help = "write the address at which the server reaches this host, such as listen = \
                \"2001:db8:f::2\"";
    let listen = section.require(sink, "listen", help, listen);
    let help = "write the name of a translator with mode = \"softwire\" and role = \"tep\"";
    let name = section.require(sink, "tep", help, value::name);
    let key_file = section.require(sink, "key_file", KEY_HELP, key_file);
    let most = section.read(sink, "max_bindings", |v| count(v, BINDINGS));
    section.finish(sink);
    let whole = listen.zip(name.as_ref()).zip(key_file);
    let tep = whole.map(|((listen, name), key_file)| DstmTep {
        listen: listen.into_inner(),
        tep: name.get_ref().clone(),
        key_file: key_file.into_inner(),
        max_bindings: most.map_or(65_536, Spanned::into_inner),
    });
    TepDraft { tep, name }
}

pub(crate) fn client((table, span): Table<'_, '_>, sink: &mut Sink) -> ClientDraft {
    let mut section = Section::new("[[dstm_client]]", table, span);
    let help = "write a name for it and its interface, such as name = \"dstm0\"";
    let name = section.require(sink, "name", help, value::translator_name);
    let help = "write addresses of servers such as server = [\"2001:db8:f::1\"]";
    let servers = section.require(sink, "server", help, |v| some(v, help, listen));
    let id = section.read(sink, "id", id);
    let key_file = section.require(sink, "key_file", KEY_HELP, key_file);
    let mut v4 = B4;
    set(&mut v4, section.read(sink, "v4", value::host4));
    let v6 = section.read(sink, "v6", |v| value::auto_or(v, value::host6));
    let local = section.read(sink, "local", |v| value::auto_or(v, value::host6));
    let uplink = section.read(sink, "uplink", |v| value::auto_or(v, value::name));
    let mut engine = Engine::default();
    set(&mut engine, section.read(sink, "engine", |v| value::choice(v, &ENGINES)));
    let mut sharing = true;
    set(&mut sharing, section.read(sink, "sharing", value::boolean));
    let wish = |v: &Value<'_>| value::auto_or(v, |v| value::duration(v, LIFETIME));
    let lifetime = section.read(sink, "lifetime", wish);
    let mut idle = Some(Duration::from_secs(600));
    set(&mut idle, section.read(sink, "idle", off_or_idle));
    let help = "write what is to go through the tunnel, such as routes4 = [\"0.0.0.0/0\"]";
    let routes4 = section.read(sink, "routes4", |v| value::list(v, help, value::prefix4));
    let mut metric = crate::DEFAULT_METRIC;
    // The range lies within u32.
    let number = |v: &Value<'_>| Ok(value::integer(v, 1..=i64::from(u32::MAX), "")? as u32);
    set(&mut metric, section.read(sink, "metric", number));
    section.finish(sink);
    let everything = || vec![Ipv4Net::default()];
    let whole = name.as_ref().zip(servers.as_ref()).zip(key_file);
    let client = whole.map(|((name, servers), key_file)| DstmClient {
        name: name.get_ref().clone(),
        servers: inner(servers.get_ref()),
        id: id.map(Spanned::into_inner),
        key_file: key_file.into_inner(),
        v4,
        v6: v6.and_then(Spanned::into_inner),
        local: local.and_then(Spanned::into_inner),
        uplink: uplink.and_then(Spanned::into_inner),
        engine,
        sharing,
        lifetime: lifetime.and_then(Spanned::into_inner),
        idle,
        routes4: routes4.map_or_else(everything, |routes4| inner(routes4.get_ref())),
        metric,
    });
    ClientDraft { client, name }
}

const ID_HELP: &str = "write a name such as \"laptop\": 1 to 64 visible ASCII characters, no space";
const KEY_HELP: &str = "write the path of a file with 32 to 128 hexadecimal digits, such as key_file = \
                        \"/etc/fordway/dstm.key\" (openssl rand -hex 32 makes one)";

fn id(v: &Value<'_>) -> Parsed<String> {
    let text = value::string(v, "a name", ID_HELP)?;
    match (1..=64).contains(&text.len()) && text.bytes().all(|it| it.is_ascii_graphic()) {
        true => Ok(text.to_owned()),
        false => {
            Err(Problem::new(v.span(), format!("{text:?} is no client's name"), ID_HELP).into())
        }
    }
}

fn key_file(v: &Value<'_>) -> Parsed<PathBuf> {
    value::file(v, "/etc/fordway/dstm.key")
}

fn listen(v: &Value<'_>) -> Parsed<SocketAddrV6> {
    match value::listen(v, DSTM_PORT)? {
        SocketAddr::V6(address) => Ok(address),
        SocketAddr::V4(address) => {
            let message = format!("DSTM speaks IPv6, and {} is an IPv4 address", address.ip());
            Err(Problem::new(v.span(), message, "write an IPv6 address").into())
        }
    }
}

fn ports(v: &Value<'_>) -> Parsed<Option<u32>> {
    if v.get_ref().as_str() == Some("off") {
        return Ok(None);
    }
    let number = value::integer(v, 64..=32_768, "ports")? as u32;
    if number.is_power_of_two() {
        return Ok(Some(number));
    }
    let next = number.next_power_of_two();
    let message = format!("{number} is no power of two");
    Err(Problem::new(v.span(), message, format!("write {} or {next}", next / 2)).into())
}

fn off_or_idle(v: &Value<'_>) -> Parsed<Option<Duration>> {
    match v.get_ref().as_str() {
        Some("off") => Ok(None),
        _ => value::duration(v, IDLE).map(Some),
    }
}

fn count(v: &Value<'_>, most: u32) -> Parsed<u32> {
    // The range lies within u32.
    Ok(value::integer(v, 1..=i64::from(most), "")? as u32)
}

/// A list with something in it.
fn some<'t, 'i, T>(
    v: &'t Value<'i>,
    help: &str,
    item: impl Fn(&'t Value<'i>) -> Parsed<T>,
) -> Parsed<Vec<Spanned<T>>> {
    let items = value::list(v, help, item)?;
    match items.is_empty() {
        true => Err(Problem::new(v.span(), "the list is empty", help).into()),
        false => Ok(items),
    }
}

fn list<T>(read: Option<Spanned<Vec<T>>>) -> Vec<T> {
    read.map(Spanned::into_inner).unwrap_or_default()
}

fn inner<T: Clone>(items: &[Spanned<T>]) -> Vec<T> {
    items.iter().map(|item| item.get_ref().clone()).collect()
}

/// The unspecified address stands for all of the host's.
pub(crate) fn same_place(one: &SocketAddrV6, other: &SocketAddrV6) -> bool {
    let any = |it: &SocketAddrV6| *it.ip() == Ipv6Addr::UNSPECIFIED;
    one.port() == other.port() && (one.ip() == other.ip() || any(one) || any(other))
}
