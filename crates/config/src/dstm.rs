//! DSTM, as configured: `[dstm_server]`, `[dstm_tep]`, `[[dstm_client]]`.

pub(crate) mod check;
mod place;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::{Ipv4Net, Ipv6Net};
use serde_json::json;

use crate::engine::{ENGINE, Engine};
use crate::keys::common::{HOST4, HOST6, INTERFACE, NAME, PREFIX4, PREFIX6, file};
use crate::keys::form::{
    BOOLEAN, Given, Integer, NUMBER, Plain, Time, integer, list, or, some, text, time,
};
use crate::keys::keys;
use crate::mode::Mode;
use crate::name::InterfaceName;
use crate::problem::{Problem, Problems, Value};
use crate::softwire::{HOP_LIMIT, Softwire, SoftwireClient, SoftwireEnd};
use crate::translator::Translator;
use crate::value;

pub use place::DstmTepPlace;

type Parsed<T> = Result<T, Problems>;

/// The UDP port of DSTM unless another is written.
pub const DSTM_PORT: u16 = 13_653;

const HOUR: Duration = Duration::from_secs(3600);

/// Lifetimes of leases, in milliseconds: 10 seconds to 30 days.
const LIFETIME: Time = time(10_000, 30 * 86_400_000);

/// Bindings of a tunnel end point that is told by a server, and leases of a prefix.
const BINDINGS: Integer<u32> = integer(1..=1 << 20, "");

/// The address of a host at its end of a softwire (RFC 6333 section 5.7).
const B4: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 2);

const LISTEN_HELP: &str = "write addresses of this host such as listen = [\"2001:db8:f::1\"]";
const POOL: &str = "write the addresses to lend such as pool = [\"192.0.2.0/28\"]";
const PREFIX: &str = "write where the clients are, such as prefix = \"2001:db8:5::/64\"";
const REACHED: &str =
    "write the address at which the server reaches this host, such as listen = \"2001:db8:f::2\"";
const TEP: &str = "write the name of a translator with mode = \"softwire\" and role = \"tep\"";
const DEVICE: &str = "write a name for it and its interface, such as name = \"dstm0\"";
const SERVERS: &str = "write addresses of servers such as server = [\"2001:db8:f::1\"]";
const ROUTES: &str = "write what is to go through the tunnel, such as routes4 = [\"0.0.0.0/0\"]";
const ID: &str = "write a name such as \"laptop\": 1 to 64 visible ASCII characters, no space";
const KEY: &str = "write the path of a file with 32 to 128 hexadecimal digits, such as key_file = \
                   \"/etc/fordway/dstm.key\" (openssl rand -hex 32 makes one)";

const LISTEN: Plain<SocketAddrV6> = text(
    listen,
    (
        "IPv6 address, with a port other than 13653 as `[ADDR]:PORT`",
        "IPv6 addresses, with a port other than 13653 as `[ADDR]:PORT`",
        "ADDR",
    ),
);
const KEY_FILE: Plain<PathBuf> = file(|v| value::file(v, "/etc/fordway/dstm.key"));
const CLIENT_ID: Plain<String> = text(id, ("1 to 64 visible ASCII characters", "", "ID"));

/// Ports of a client.
const PORTS: Plain<u32> = Plain {
    read: ports,
    write: |ports| toml::Value::Integer((*ports).into()),
    named: ("power of two from 64 to 32768", "", "PORTS"),
    schema: || json!({"type": "integer", "minimum": 64, "maximum": 32_768}),
};

keys! {
    /// `[dstm_server]`: lends IPv4 addresses.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct DstmServer {
        /// IPv6 addresses of this host that clients ask
        listen: Vec<SocketAddrV6> = some(LISTEN, LISTEN_HELP), needed(Vec::new(), LISTEN_HELP), reload(Restart);
        /// The addresses that are lent, all of each network
        pool: Vec<Ipv4Net> = some(PREFIX4, POOL), needed(Vec::new(), POOL);
        /// Ports of a shared address that each client gets. `off`: each client has a whole address
        ports_per_client: Option<u32> = or("off", PORTS), or(None);
        /// Lifetime of a lease, where the client asks for none
        lifetime: Duration = LIFETIME, or(HOUR);
        /// Longest lifetime that a client gets
        max_lifetime: Duration = LIFETIME, or(lifetime.max(24 * HOUR), "`\"1day\"`, or `lifetime` if that is longer");
        /// How long a returned address is kept from other clients
        rest: Duration = time(0, 3_600_000), or(Duration::from_secs(30));
        /// The tunnel end point
        tep: DstmTepPlace, flat(), reload(Restart);
        /// File that keeps the leases
        state: PathBuf = file(|v| value::file(v, "/var/lib/fordway/dstm.leases")),
            or(PathBuf::from("/var/lib/fordway/dstm.leases")), reload(Restart);
        /// Clients with keys of their own
        clients("client"): Vec<DstmClientKey>, tables("[[dstm_server.client]]");
        /// Prefixes whose clients share a key, and are told apart by their addresses
        prefixes("prefix"): Vec<DstmPrefixKey>, tables("[[dstm_server.prefix]]");
    }
}

keys! {
    /// `[[dstm_server.client]]`: a client with a key of its own.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct DstmClientKey {
        /// Name of the client
        id: String = CLIENT_ID, needed(String::new(), ID);
        /// 32 to 128 hexadecimal digits: `(umask 077; openssl rand -hex 32 > FILE)`
        key_file: PathBuf = KEY_FILE, needed(PathBuf::new(), KEY);
        /// Address that the client always gets, whole. With `ports_per_client` it must not be of the pool
        v4: Option<Ipv4Addr> = Given(HOST4), or(None, "(any of the pool)");
    }
}

keys! {
    /// `[[dstm_server.prefix]]`: a prefix whose clients share a key.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct DstmPrefixKey {
        /// Prefix of the clients' addresses. Of several that match, the longest counts
        prefix: Ipv6Net = PREFIX6, needed(Ipv6Net::default(), PREFIX);
        /// File of their key
        key_file: PathBuf = KEY_FILE, needed(PathBuf::new(), KEY);
        /// Leases of all clients of the prefix together
        max_leases: u32 = BINDINGS, or(64);
    }
}

keys! {
    /// `[dstm_tep]`: a tunnel end point that a server on another host tells its bindings.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct DstmTep, reload(Restart) {
        /// Address that the server reaches the end point at
        listen: SocketAddrV6 = LISTEN, needed(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, 0), REACHED);
        /// A translator of this file, with mode softwire and role tep. Its `routes4` needs the server's pool
        tep: InterfaceName = INTERFACE, needed(InterfaceName::placeholder(), TEP);
        /// File of the key that it shares with the server
        key_file: PathBuf = KEY_FILE, needed(PathBuf::new(), KEY);
        /// Bindings that the end point takes
        max_bindings: u32 = BINDINGS, or(65_536);
    }
}

keys! {
    /// `[[dstm_client]]`: borrows an IPv4 address when it needs one.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct DstmClient, reload(Down) {
        /// Name of the client and its interface
        name: InterfaceName = NAME, needed(InterfaceName::placeholder(), DEVICE);
        /// Servers, the preferred one first
        servers("server"): Vec<SocketAddrV6> = some(LISTEN, SERVERS), needed(Vec::new(), SERVERS);
        /// Name of this client, if the key is its own
        id: Option<String> = Given(CLIENT_ID), or(None, "(its address)");
        /// File of the key
        key_file: PathBuf = KEY_FILE, needed(PathBuf::new(), KEY);
        /// What this host's packets have as their source as long as there is no address, and where it is shared
        v4: Ipv4Addr = HOST4, or(B4);
        /// IPv6 address that the client asks from. `auto`: that of the route to the server
        v6: Option<Ipv6Addr> = or("auto", HOST6), or(None);
        /// IPv6 address of this end of the tunnel, in the /64 that the client asks from, on no device. `auto`: made from the
        /// uplink's /64
        local: Option<Ipv6Addr> = or("auto", HOST6), or(None);
        /// Device towards the IPv6 network. `auto`: that of the route to the server
        uplink: Option<InterfaceName> = or("auto", INTERFACE), or(None);
        /// Which engine carries the packets, as in `[[translator]]`
        engine: Engine = ENGINE, or(Engine::Auto);
        /// Accept ports of a shared address
        sharing: bool = BOOLEAN, or(true);
        /// Lifetime to ask for. `auto`: the server's
        lifetime: Option<Duration> = or("auto", LIFETIME), or(None);
        /// Time without a packet after which the address is given back. `off`: it is kept
        idle: Option<Duration> = or("off", time(1_000, 86_400_000)), or(Some(Duration::from_secs(600)));
        /// IPv4 networks to route into the interface
        routes4: Vec<Ipv4Net> = list(PREFIX4, ROUTES), or(vec![Ipv4Net::default()]);
        /// Metric of these routes
        metric: u32 = NUMBER, or(crate::DEFAULT_METRIC);
    }
}

impl DstmClient {
    /// The softwire that it borrows addresses for, as it is as long as there is none.
    #[must_use]
    pub fn translator(&self) -> Translator {
        let client = SoftwireClient {
            v4: None,
            ports: None,
            local: self.local,
            // Only a lease says which tunnel end point. The way to the server is most likely the way to it.
            remote: self.servers.first().map_or(Ipv6Addr::UNSPECIFIED, |server| *server.ip()),
            uplink: self.uplink.clone(),
            early: Some(self.v4),
        };
        let softwire = Softwire { end: SoftwireEnd::Client(client), hop_limit: HOP_LIMIT };
        Translator {
            name: self.name.clone(),
            mode: Mode::Softwire(Box::new(softwire)),
            engine: self.engine,
            routes4: self.routes4.clone(),
            metric: self.metric,
            mss_clamp: true,
            ..Translator::usual()
        }
    }
}

fn id(v: &Value<'_>) -> Parsed<String> {
    let text = value::string(v, "a name", ID)?;
    match (1..=64).contains(&text.len()) && text.bytes().all(|it| it.is_ascii_graphic()) {
        true => Ok(text.to_owned()),
        false => Err(Problem::new(v.span(), format!("{text:?} is no client's name"), ID).into()),
    }
}

/// An IPv6 address to listen on.
fn listen(v: &Value<'_>) -> Parsed<SocketAddrV6> {
    match value::listen(v, DSTM_PORT)? {
        SocketAddr::V6(address) => Ok(address),
        SocketAddr::V4(address) => {
            let message = format!("DSTM speaks IPv6, and {} is an IPv4 address", address.ip());
            Err(Problem::new(v.span(), message, "write an IPv6 address").into())
        }
    }
}

fn ports(v: &Value<'_>) -> Parsed<u32> {
    let number = value::integer(v, 64..=32_768, "ports")? as u32;
    if number.is_power_of_two() {
        return Ok(number);
    }
    let next = number.next_power_of_two();
    let message = format!("{number} is no power of two");
    Err(Problem::new(v.span(), message, format!("write {} or {next}", next / 2)).into())
}

/// The unspecified address stands for all of the host's.
pub(crate) fn same_place(one: &SocketAddrV6, other: &SocketAddrV6) -> bool {
    let any = |it: &SocketAddrV6| *it.ip() == Ipv6Addr::UNSPECIFIED;
    one.port() == other.port() && (one.ip() == other.ip() || any(one) || any(other))
}
