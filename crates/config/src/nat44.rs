//! What only the kernel does, as configured: `[[translator]]` of mode `nat44` and of mode `dual-stack`.
//!
//! Neither has an interface or an engine of its own, so neither is a [`crate::Translator`].

pub(crate) mod check;
pub(crate) mod dual_stack;
mod forward;
mod lifetimes;

use ipnet::Ipv4Net;
use serde_json::{Value as Json, json};

use crate::diagnostic::Sink;
use crate::keys::common::{INTERFACE, NAME, PREFIX4};
use crate::keys::form::{BOOLEAN, Choice, Form, Integer, List, Plain, integer, list, some, texts};
use crate::keys::{Read, keys, read_after};
use crate::name::InterfaceName;
use crate::nat64::{Pool4, pool::POOL4};
use crate::problem::{Problem, Problems, Value};
use crate::value;
use crate::value::Table;

pub use dual_stack::DualStack;
pub use forward::Forward;
pub use lifetimes::Nat44Lifetimes;

const NAME_HELP: &str = "write a name such as name = \"nat44\"; the nftables table gets it";
const CLIENTS: &str = "write the networks of the hosts, such as clients = [\"198.51.100.0/24\"]";
const UPLINK: &str = "write the device towards the IPv4 network, such as uplink = \"eth0\"";
const DEVICES: &str = "write a list of interface names such as devices = [\"lan0\"]";
const NETMAP: &str = "write a list of pairs: [[\"198.51.100.0/28\", \"192.0.2.16/28\"]]";
const FORWARD: &str = "write a list such as [[\"tcp\", \"192.0.2.1:80\", \"198.51.100.10:8080\"]]";

/// Networks, devices and forwarded ports of one translator: each makes rules that packets pass one by one.
const MOST: usize = 256;

/// A device, or a list of devices.
struct Devices(&'static str);

impl Form for Devices {
    type Value = Vec<InterfaceName>;

    fn read(&self, v: &Value<'_>) -> Result<Vec<InterfaceName>, Problems> {
        if v.get_ref().as_array().is_none() {
            return Ok(vec![value::name(v)?]);
        }
        let devices = list(INTERFACE, self.0).read(v)?;
        match devices.len() {
            1..=MOST => Ok(devices),
            number => {
                let message = format!("{number} devices can't be meant");
                Err(Problem::new(v.span(), message, self.0).into())
            }
        }
    }

    fn write(&self, devices: &Vec<InterfaceName>) -> Option<toml::Value> {
        list(INTERFACE, self.0).write(devices)
    }

    fn values(&self) -> String {
        "interface name, or a list".to_owned()
    }

    fn placeholder(&self) -> &'static str {
        INTERFACE.placeholder()
    }

    fn schema(&self) -> Json {
        json!({"anyOf": [INTERFACE.schema(), some(INTERFACE, self.0).schema()]})
    }
}

/// Two networks of one size, inside and outside.
const PAIR: List<Plain<(Ipv4Net, Ipv4Net)>> = list(
    Plain {
        read: pair,
        write: |(inside, outside)| toml::Value::from(vec![inside.to_string(), outside.to_string()]),
        named: ("pair", "pairs", "INSIDE=OUTSIDE"),
        schema: || texts(2),
    },
    NETMAP,
);

const INBOUND: Choice<bool> = Choice(&[("drop", true), ("route", false)]);

keys! {
    /// One `[[translator]]` of mode `nat44`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Nat44 {
        /// Name of the entry and of its nftables table
        name: InterfaceName = NAME, needed(InterfaceName::placeholder(), NAME_HELP);
        /// Networks of the hosts that are translated
        clients: Vec<Ipv4Net> = some(PREFIX4, CLIENTS), needed(Vec::new(), CLIENTS);
        /// Devices that packets leave by translated. They need not exist yet
        uplinks("uplink"): Vec<InterfaceName> = Devices(UPLINK), needed(Vec::new(), UPLINK);
        /// Devices that the clients are behind
        devices: Vec<InterfaceName> = list(INTERFACE, DEVICES), or(Vec::new(), "any"), if(!devices.is_empty());
        /// IPv4 addresses and ports that hosts get. Written as in mode nat64; `"interface:DEV:LO-HI"`, alone, are these
        /// ports of the uplink's address
        pool4: Vec<Pool4> = POOL4, or(Vec::new(), "(the uplink's address)"), if(!pool4.is_empty());
        /// Set the addresses of `pool4`, `netmap` and `forward` up on the first uplink; 256 at most
        assign: bool = BOOLEAN, or(true);
        /// A host has the same address towards all peers (RFC 4787 REQ-2)
        persistent: bool = BOOLEAN, or(true);
        /// Draw ports at random instead of keeping those that hosts chose. That breaks endpoint-independent mapping
        /// (RFC 4787 REQ-1)
        random_ports: bool = BOOLEAN, or(false);
        /// Networks that are translated address by address, both ways. Each is `["198.51.100.0/28", "192.0.2.16/28"]`,
        /// inside and outside
        netmap: Vec<(Ipv4Net, Ipv4Net)> = PAIR, or(Vec::new());
        /// Forwarded ports. Each is `["tcp", "192.0.2.1:80", "198.51.100.10:8080"]`, or with the outer port alone for
        /// whatever addresses the uplinks have; also `"udp"`
        forwards("forward"): Vec<Forward> = list(forward::FORWARD, FORWARD), or(Vec::new());
        /// Clients reach forwarded ports at the outer address
        hairpin: bool = BOOLEAN, or(true);
        /// Connections from outside to the clients' own addresses
        drop_unsolicited("inbound"): bool = INBOUND, or(true);
        /// Lower the MSS of TCP connections to what the route takes
        mss_clamp: bool = BOOLEAN, or(true);
        /// Take lifetimes below what the RFCs allow, with a warning
        allow_short_lifetimes: bool = BOOLEAN, or(false);
        /// How long the kernel keeps what it knows of connections
        lifetimes: Option<Nat44Lifetimes>, flat();
        /// Limits of each host; 0: none
        quotas: Nat44Quotas, table("quotas", Nat44Quotas::default());
        /// The kernel logs new connections
        log: bool = BOOLEAN, or(false);
    }
}

const QUOTA: Integer<u32> = integer(0..=1_000_000, "");

keys! {
    /// Limits of each client; 0: none.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Nat44Quotas {
        /// Connections at a time
        sessions: u32 = QUOTA, or(0);
        /// New connections in a second
        new_per_second: u32 = QUOTA, or(0);
    }
}

/// Reads an entry of mode `nat44`.
pub(crate) fn nat44(table: Table<'_, '_>, sink: &mut Sink) -> Read<Nat44> {
    read_after("[[translator]]", table, sink, |section, sink| {
        section.know(&["mode"]);
        let why = "mode nat44 has no interface and no engine: the kernel translates by itself";
        for key in ["engine", "attach", "queues", "mtu", "pool6", "eam", "routes4", "manage"] {
            section.refuse(sink, key, why, "leave it out");
        }
        let help = "write forward = [[\"tcp\", \"192.0.2.1:80\", \"198.51.100.10:8080\"]]";
        section.refuse(sink, "bib", "in mode nat44 ports are forwarded by `forward`", help);
    })
}

/// Reads an entry of mode `dual-stack`.
pub(crate) fn dual_stack(table: Table<'_, '_>, sink: &mut Sink) -> Read<DualStack> {
    read_after("[[translator]]", table, sink, |section, sink| {
        section.know(&["mode"]);
        let why = "mode dual-stack has no interface and translates nothing";
        for key in
            ["engine", "attach", "queues", "mtu", "pool4", "pool6", "eam", "routes4", "manage"]
        {
            section.refuse(sink, key, why, "leave it out");
        }
    })
}

/// Two networks of one size.
fn pair(v: &Value<'_>) -> Result<(Ipv4Net, Ipv4Net), Problems> {
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
