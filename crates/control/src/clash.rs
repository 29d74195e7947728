//! Ports that the host uses itself on an address that is the translator's, too.

use std::fmt;
use std::net::Ipv4Addr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Clashes of a kind that are named at most in sentences.
const NAMED: usize = 5;

/// Something of the host that is in the way of pool4.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "clash", rename_all = "snake_case")]
pub enum Clash {
    /// The kernel may give ports of the pool to connections of this host.
    EphemeralPorts {
        /// The pool's address.
        address: Ipv4Addr,
        /// First port that is in both.
        first: u16,
        /// Last port that is in both.
        last: u16,
        /// What to do about it.
        fix: String,
    },
    /// A socket of this host waits on a port of the pool.
    Socket {
        /// `tcp` or `udp`.
        protocol: String,
        /// The pool's address.
        address: Ipv4Addr,
        /// The port.
        port: u16,
        /// The port is forwarded, so it is the socket that gets nothing.
        forwarded: bool,
    },
}

impl Clash {
    /// The clashes for people: each with what to do about it, and of many of a kind only some.
    pub fn sentences(clashes: &[Clash]) -> Vec<String> {
        let is_socket = |clash: &&Clash| matches!(clash, Clash::Socket { .. });
        let (sockets, ranges): (Vec<_>, Vec<_>) = clashes.iter().partition(is_socket);
        let mut lines = Vec::new();
        for (kind, all) in [("addresses", ranges), ("services", sockets)] {
            let shown = all.iter().take(NAMED);
            lines.extend(shown.map(|clash| format!("{clash}: {}", clash.hint())));
            let more = all.len().saturating_sub(NAMED);
            if more > 0 {
                lines.push(format!(
                    "and {more} more such {kind}; fordway status --json names them all"
                ));
            }
        }
        lines
    }

    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Clash::EphemeralPorts { fix, .. } => fix.clone(),
            Clash::Socket { protocol, port, .. } => format!(
                "give pool4 other ports, or that service another one (ss -lnp -A {protocol} \
                 sport = {port} shows it)"
            ),
        }
    }
}

impl fmt::Display for Clash {
    /// A clause.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Clash::EphemeralPorts { address, first, last, .. } => write!(
                f,
                "connections of this host may take ports {first}-{last} of pool4 {address}, for they \
                 are within net.ipv4.ip_local_port_range"
            ),
            Clash::Socket { protocol, address, port, forwarded: false } => write!(
                f,
                "a service of this host waits on {protocol} port {port} of pool4 {address}, so no \
                 host behind the translator can use that port"
            ),
            Clash::Socket { protocol, address, port, forwarded: true } => write!(
                f,
                "a service of this host waits on {protocol} port {port} of {address}, which is \
                 forwarded, so it gets nothing there"
            ),
        }
    }
}
