//! DSTM, as configured: `[dstm_server]`, `[dstm_tep]`, `[[dstm_client]]`.

pub(crate) mod check;
pub(crate) mod emit;
pub(crate) mod read;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV6};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::{Ipv4Net, Ipv6Net};

use crate::name::InterfaceName;
use crate::softwire::{HOP_LIMIT, Softwire, SoftwireClient, SoftwireEnd};
use crate::types::{Engine, Mode, Translator};

/// The UDP port of DSTM unless another is written.
pub const DSTM_PORT: u16 = 13_653;

/// `[dstm_server]`: lends IPv4 addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DstmServer {
    /// Where it listens.
    pub listen: Vec<SocketAddrV6>,
    /// The addresses that it lends.
    pub pool: Vec<Ipv4Net>,
    /// Ports of each client, a power of two; `None`: all, no address is shared.
    pub ports_per_client: Option<u32>,
    /// Lifetime of a lease where the client has no wish.
    pub lifetime: Duration,
    /// The longest one.
    pub max_lifetime: Duration,
    /// How long an address that has come back is kept from others.
    pub rest: Duration,
    /// The tunnel end point.
    pub tep: DstmTepPlace,
    /// Where leases are kept.
    pub state: PathBuf,
    /// Clients with keys of their own.
    pub clients: Vec<DstmClientKey>,
    /// Prefixes whose clients share a key.
    pub prefixes: Vec<DstmPrefixKey>,
}

/// Where a server's tunnel end point is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DstmTepPlace {
    /// A translator of this file, with mode softwire and role tep.
    Here(InterfaceName),
    /// Another host's `[dstm_tep]`.
    There {
        /// The tunnel end point's IPv6 address.
        address: Ipv6Addr,
        /// Where it listens to the server.
        control: SocketAddrV6,
        /// The file of the key that both share.
        key_file: PathBuf,
    },
}

/// `[[dstm_server.client]]`: a client with a key of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DstmClientKey {
    /// Its name.
    pub id: String,
    /// The file of its key.
    pub key_file: PathBuf,
    /// The address that it always gets.
    pub v4: Option<Ipv4Addr>,
}

/// `[[dstm_server.prefix]]`: a prefix whose clients share a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DstmPrefixKey {
    /// Where they are.
    pub prefix: Ipv6Net,
    /// The file of their key.
    pub key_file: PathBuf,
    /// Most leases of all of them.
    pub max_leases: u32,
}

/// `[dstm_tep]`: a tunnel end point that a server on another host tells its bindings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DstmTep {
    /// Where it listens.
    pub listen: SocketAddrV6,
    /// A translator of this file, with mode softwire and role tep.
    pub tep: InterfaceName,
    /// The file of the key that it shares with the server.
    pub key_file: PathBuf,
    /// Bindings that it takes at most.
    pub max_bindings: u32,
}

/// `[[dstm_client]]`: borrows an IPv4 address when it needs one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DstmClient {
    /// Its name and its interface's.
    pub name: InterfaceName,
    /// The servers, the preferred one first.
    pub servers: Vec<SocketAddrV6>,
    /// Its name for the servers, if it has a key of its own.
    pub id: Option<String>,
    /// The file of the key.
    pub key_file: PathBuf,
    /// The address that packets have which wait for one, and all packets where it is shared.
    pub v4: Ipv4Addr,
    /// The address that it asks from; `None`: the one that leads to the server.
    pub v6: Option<Ipv6Addr>,
    /// Its own end of the tunnel; `None`: made from the uplink's prefix.
    pub local: Option<Ipv6Addr>,
    /// The device towards the IPv6 network; `None`: found by the route to the server.
    pub uplink: Option<InterfaceName>,
    /// Which engine carries the packets.
    pub engine: Engine,
    /// It can do with a port set.
    pub sharing: bool,
    /// Lifetime that it wishes for; `None`: as the server likes.
    pub lifetime: Option<Duration>,
    /// Without a packet for so long, it gives the address back; `None`: never.
    pub idle: Option<Duration>,
    /// What is routed into its interface.
    pub routes4: Vec<Ipv4Net>,
    /// Metric of these routes.
    pub metric: u32,
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
