//! What only the kernel does, as configured: `[[translator]]` of mode `nat44` and of mode `dual-stack`.
//!
//! Neither has an interface or an engine of its own, so neither is a [`crate::Translator`].

pub(crate) mod check;
pub(crate) mod dual_stack;
pub(crate) mod emit;
pub(crate) mod read;

use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net};

use crate::name::InterfaceName;
use crate::nat64::Pool4;

/// One `[[translator]]` of mode `nat44`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nat44 {
    /// Its name; the nftables table gets it.
    pub name: InterfaceName,
    /// Networks of the hosts that are translated.
    pub clients: Vec<Ipv4Net>,
    /// Devices that their packets come in by; empty: any.
    pub devices: Vec<InterfaceName>,
    /// Devices that packets leave by translated; at least one.
    pub uplinks: Vec<InterfaceName>,
    /// Addresses and ports that hosts get; empty: the uplink's address, all ports.
    pub pool4: Vec<Pool4>,
    /// The addresses of `pool4` are set up on the first uplink.
    pub assign: bool,
    /// A host has the same address whomever it talks to (RFC 4787 REQ-2).
    pub persistent: bool,
    /// Ports are drawn instead of kept.
    pub random_ports: bool,
    /// Networks that are translated address by address, both ways: inside and outside.
    pub netmap: Vec<(Ipv4Net, Ipv4Net)>,
    /// Forwarded ports.
    pub forwards: Vec<Forward>,
    /// Clients reach forwarded ports at the outer address too.
    pub hairpin: bool,
    /// What becomes of connections from outside to addresses of clients.
    pub inbound: Inbound,
    /// The TCP segment size is clamped to what the route takes.
    pub mss_clamp: bool,
    /// How long the kernel keeps what it knows of connections; `None`: as the host has it.
    pub lifetimes: Option<Nat44Lifetimes>,
    /// Lifetimes below those of the RFCs were asked for.
    pub allow_short_lifetimes: bool,
    /// Limits of each client.
    pub quotas: Nat44Quotas,
    /// The kernel logs new connections.
    pub log: bool,
}

/// A port that is forwarded to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Forward {
    /// TCP or UDP.
    pub protocol: ForwardProtocol,
    /// The outer address; `None`: whatever addresses the uplinks have.
    pub address: Option<Ipv4Addr>,
    /// The outer port.
    pub port: u16,
    /// The host, and its port.
    pub to: (Ipv4Addr, u16),
}

/// A transport protocol whose ports are forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum ForwardProtocol {
    Tcp,
    Udp,
}

/// What becomes of connections from outside to addresses of clients that nobody forwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Inbound {
    /// They are dropped and counted.
    #[default]
    Drop,
    /// They are routed as they are.
    Route,
}

/// Conntrack's lifetimes, in whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nat44Lifetimes {
    /// UDP (RFC 4787 REQ-5).
    pub udp: Duration,
    /// ICMP queries (RFC 5508 REQ-2).
    pub icmp: Duration,
    /// Established TCP connections (RFC 5382 REQ-5).
    pub tcp_est: Duration,
    /// TCP connections that open or close (RFC 5382 REQ-5).
    pub tcp_trans: Duration,
}

impl Default for Nat44Lifetimes {
    fn default() -> Nat44Lifetimes {
        let seconds = Duration::from_secs;
        Nat44Lifetimes {
            udp: seconds(300),
            icmp: seconds(60),
            tcp_est: seconds(7440),
            tcp_trans: seconds(240),
        }
    }
}

/// Limits of each client; 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nat44Quotas {
    /// Connections at a time.
    pub sessions: u32,
    /// New connections in a second.
    pub new_per_second: u32,
}

/// One `[[translator]]` of mode `dual-stack`: the host forwards both families between devices, and that is all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DualStack {
    /// Its name.
    pub name: InterfaceName,
    /// The devices between which packets are forwarded; at least one.
    pub devices: Vec<InterfaceName>,
    /// Addresses that the devices get.
    pub addresses: Vec<(InterfaceName, IpNet)>,
}
