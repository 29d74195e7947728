//! `[cluster]`: gateways that share one translator of mode `nat64`.

mod agreement;
pub(crate) mod check;
mod store;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use fordway_cluster::{Fencing, MAX_SHARDS, Nanos, ShardMap, Timing, WrongShards};
use fordway_xlat::nat64::replica::Replicated;
use serde_json::json;

use crate::keys::common::{HOST4, HOST6, TABLE, file, listen};
use crate::keys::form::{Choice, Form, Given, Plain, Time, integer, list, text, time};
use crate::keys::{keys, usual};
use crate::nat64::Nat64;
use crate::problem::{Problem, Problems, Value};
use crate::value;

pub use store::{ClusterLogin, ClusterStore};

type Parsed<T> = Result<T, Problems>;

/// The TCP port of gateways of a cluster unless another is written.
pub const CLUSTER_PORT: u16 = 6146;

const HOST_NAME: &str = "write a name such as \"gw1.example\"";
const NUMBER_HELP: &str = "write a number that no other gateway has, such as number = 1";
const NAME_HELP: &str =
    "write the name that the gateway's certificate has, such as name = \"gw1.example\"";
const ADDRESS_HELP: &str =
    "write where other gateways reach this one, such as address = \"2001:db8::1\"";
const KEY_FILE_HELP: &str = "write the path of a file with 32 hexadecimal digits, such as key_file = \
                             \"/etc/fordway/cluster.key\" (openssl rand -hex 16 makes one)";
const CERTIFICATE_HELP: &str = "write certificate = \"/etc/fordway/cluster.pem\"";
const KEY_HELP: &str = "write key = \"/etc/fordway/cluster-certificate.key\"";
const AUTHORITY_HELP: &str = "write authority = \"/etc/fordway/cluster-authority.pem\"";
const REPLICATE_HELP: &str = "write [\"tcp\"], or \"udp\" and \"icmp\" behind it";

const FENCING: Choice<Fencing> = Choice(&[("majority", Fencing::Majority), ("any", Fencing::Any)]);

/// In milliseconds. Leases that are shorter than the least leave no time for three renewals.
const TTL: Time = time(100, 60_000);
const OUTAGE: Time = time(1_000, 86_400_000);

/// A host's name as certificates have it.
const SERVER_NAME: Plain<String> = text(server_name, ("name", "names", "NAME"));

const ADDRESS: Plain<SocketAddr> = listen(address);

const REPLICATE: Plain<Replicated> = Plain {
    read: replicate,
    write: |replicated| {
        let words = [("tcp", true), ("udp", replicated.udp), ("icmp", replicated.icmp)];
        words.into_iter().filter(|(_, on)| *on).map(|(word, _)| word).collect::<Vec<_>>().into()
    },
    named: ("list of `\"tcp\"`, `\"udp\"`, `\"icmp\"`; the first is needed", "", "PROTOCOL"),
    schema: || json!({"type": "array", "items": {"enum": ["tcp", "udp", "icmp"]}, "contains": {"const": "tcp"}}),
};

keys! {
    /// `[cluster]`: gateways that share one translator of mode `nat64`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Cluster, reload(Restart) {
        /// Which of the gateways this host is
        name: Option<String> = Given(SERVER_NAME), or(None, "(that of the host)");
        /// How many votes end a lease: [without the store](cluster.md#without-the-store). `majority`: of more than half of a
        /// gateway's peers. `any`: one
        fencing: Fencing = FENCING, or(Fencing::Majority);
        /// Parts into which `pool4` and the subscribers are divided
        shards: u16 = integer(1..=i64::from(MAX_SHARDS), ""), or(64);
        /// File of the key that all gateways have: 32 hexadecimal digits, `(umask 077; openssl rand -hex 16 > FILE)`
        key_file: PathBuf = file(|v| value::file(v, "/etc/fordway/cluster.key")),
            needed(PathBuf::new(), KEY_FILE_HELP);
        /// This gateway's certificate for connections to other gateways, for its name in `gateway`, and those between it and the
        /// authority, in PEM. This file and the next two are read again for each connection
        certificate: PathBuf = file(|v| value::file(v, "/etc/fordway/cluster.pem")),
            needed(PathBuf::new(), CERTIFICATE_HELP);
        /// Its key, in PEM
        key: PathBuf = file(|v| value::file(v, "/etc/fordway/cluster-certificate.key")),
            needed(PathBuf::new(), KEY_HELP);
        /// Certificates of the authority that has signed those of all gateways, in PEM
        authority: PathBuf = file(|v| value::file(v, "/etc/fordway/cluster-authority.pem")),
            needed(PathBuf::new(), AUTHORITY_HELP);
        /// The kernel's routing table for [routes that a routing daemon announces](cluster.md#routes). Nothing else may be in
        /// it, nor in those behind it, one for the [way to each gateway](cluster.md#packets)
        route_table: u32 = TABLE, or(u32::from(CLUSTER_PORT));
        /// Whose sessions standbys have: TCP connections that are established, and those of UDP and of ICMP queries
        replicate: Replicated = REPLICATE, or(Replicated::default());
        /// How long a gateway that is not heard keeps its shards. It renews its lease five times in this time, and the
        /// protocol's other times are in proportion
        ttl: Duration = TTL, or(Duration::from_millis(500));
        /// How long gateways go on translating without the store
        outage: Duration = OUTAGE, or(Duration::from_secs(900));
        /// The store
        store: ClusterStore, table("[cluster.store]", usual());
        /// All gateways, this one among them
        gateways("gateway"): Vec<ClusterGateway>, tables("[[cluster.gateway]]");
    }
}

keys! {
    /// `[[cluster.gateway]]`: one of the gateways.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ClusterGateway, reload(Restart) {
        /// Its number, which it keeps
        number: u16 = integer(0..=63, ""), needed(0, NUMBER_HELP);
        /// DNS name in its certificate. No other gateway's certificate has it
        name: String = SERVER_NAME, needed(String::new(), NAME_HELP);
        /// Where it listens for the others, by TCP; port 6146 unless written
        address: SocketAddr = ADDRESS,
            needed(SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0), ADDRESS_HELP);
        /// Its IPv6 address on the segment that all gateways have in common: next hop of IPv6 packets that another gateway hands
        /// over to it
        next_hop: Option<Ipv6Addr> = Given(HOST6), or(None, "`address`, if it is IPv6");
        /// Its IPv4 address on that segment, for IPv4 packets
        next_hop4: Option<Ipv4Addr> = Given(HOST4), or(None, "`address`, if it is IPv4");
        /// Its part of the shards, in comparison with the others'
        weight: u32 = integer(1..=10_000, ""), or(100);
    }
}

impl Cluster {
    /// This gateway; `host` is the name of the host, with its domain or without, which counts if there is no `name`. `None`:
    /// none of the gateways is called so.
    #[must_use]
    pub fn this(&self, host: &str) -> Option<&ClusterGateway> {
        let host = self.name.as_deref().unwrap_or(host);
        let is = |it: &&ClusterGateway| it.name.eq_ignore_ascii_case(host);
        let mut short = self.gateways.iter().filter(|it| {
            let first = it.name.split('.').next();
            self.name.is_none() && first.is_some_and(|first| first.eq_ignore_ascii_case(host))
        });
        let whole = self.gateways.iter().find(is);
        // Two gateways of one short name are told apart by `name` alone.
        whole.or_else(|| short.next().filter(|_| short.next().is_none()))
    }

    /// The kernel's routing table that leads to a gateway what is handed over to it: by its number behind `route_table`.
    #[must_use]
    pub fn table_of(&self, gateway: &ClusterGateway) -> u32 {
        self.route_table.saturating_add(1).saturating_add(gateway.number.into())
    }

    /// The times of the protocol: those of `ttl` 500 ms, in proportion; `slack` and `drift_ppm` are what hosts and clocks
    /// are like.
    #[must_use]
    pub fn timing(&self) -> Timing {
        let nanos = |time: Duration| Nanos::try_from(time.as_nanos()).unwrap_or(Nanos::MAX);
        let ttl = nanos(self.ttl);
        Timing {
            ttl,
            renew: ttl / 5,
            grace: ttl,
            turn: ttl / 10,
            handover: ttl / 10,
            batch: ttl / 100,
            resend: ttl / 10,
            outage: nanos(self.outage),
            ..Timing::default()
        }
    }

    /// Whose a packet is. `key`: the cluster's.
    ///
    /// # Errors
    ///
    /// [`WrongShards`], of which [`parse`](crate::parse) has found none.
    pub fn shard_map(&self, nat64: &Nat64, key: [u64; 2]) -> Result<ShardMap, WrongShards> {
        let pools = nat64.settings(|_| Vec::new()).pools.into_iter().map(|pool| pool.ranges);
        ShardMap::new(self.shards, key, nat64.subscriber_len, &pools.collect::<Vec<_>>())
    }
}

impl ClusterGateway {
    /// Where IPv6 packets are handed over to it.
    #[must_use]
    pub fn next_hop6(&self) -> Option<Ipv6Addr> {
        match (self.next_hop, self.address.ip()) {
            (None, IpAddr::V6(address)) => Some(address),
            (written, _) => written,
        }
    }

    /// Where IPv4 packets are handed over to it.
    #[must_use]
    pub fn next_hop4(&self) -> Option<Ipv4Addr> {
        match (self.next_hop4, self.address.ip()) {
            (None, IpAddr::V4(address)) => Some(address),
            (written, _) => written,
        }
    }
}

fn server_name(v: &Value<'_>) -> Parsed<String> {
    let name = value::string(v, "a name", HOST_NAME)?;
    let is_address = |name: &str| {
        name.rsplit('.').next().is_some_and(|it| it.bytes().all(|c| c.is_ascii_digit()))
    };
    value::server_name(name).filter(|name| !is_address(name)).ok_or_else(|| {
        Problem::new(v.span(), format!("\"{name}\" is no name of a host"), HOST_NAME).into()
    })
}

/// An address that other gateways connect to.
fn address(v: &Value<'_>) -> Parsed<SocketAddr> {
    let address = value::listen(v, CLUSTER_PORT)?;
    let is_local = match address.ip() {
        IpAddr::V6(it) => it.is_unspecified() || it.is_unicast_link_local(),
        IpAddr::V4(it) => it.is_unspecified() || it.is_link_local(),
    };
    if is_local {
        let message = format!("other gateways can't connect to {}", address.ip());
        return Err(Problem::new(v.span(), message, ADDRESS_HELP).into());
    }
    Ok(address)
}

fn replicate(v: &Value<'_>) -> Parsed<Replicated> {
    let words: Choice<&str> = Choice(&[("tcp", "tcp"), ("udp", "udp"), ("icmp", "icmp")]);
    let words = list(words, REPLICATE_HELP).read(v)?;
    if !words.contains(&"tcp") {
        let message = "standbys have the established TCP connections in any case";
        return Err(Problem::new(v.span(), message, REPLICATE_HELP).into());
    }
    Ok(Replicated { udp: words.contains(&"udp"), icmp: words.contains(&"icmp") })
}
