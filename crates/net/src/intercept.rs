//! Packets to a prefix that sockets of this host take, as if all its addresses were the host's own.
//!
//! nftables hands TCP and UDP to the sockets of a relay (`tproxy`) and marks them; a policy rule and a local route
//! ([`Intercept::changes`]) then have them delivered here. ICMPv6 errors are delivered, too: they are about what
//! the relay has sent, and tell path MTUs. Everything else is answered with "destination unreachable,
//! administratively prohibited". As long as no socket listens, TCP and UDP are answered so, too.

use std::net::Ipv6Addr;

use ipnet::Ipv6Net;
use serde::{Deserialize, Serialize};

use crate::netfilter::expression::{
    Base, Expression, Place, accept, drop, field, goto, icmp_type, protocol, reject, set_mark,
    transparent_proxy6,
};
use crate::netfilter::{Ip, Policy, Table};

/// Packets to prefixes that local sockets take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intercept {
    /// Of the relay; the nftables table's name has it.
    pub name: String,
    /// The mark of packets that are delivered here.
    pub mark: u32,
    /// Routing table with the local routes of the prefixes.
    pub table: u32,
    /// Whose packets are taken; the lengths are multiples of eight.
    pub prefixes: Vec<Ipv6Net>,
    /// Port of the TCP sockets, which listen on ::1; `None`: TCP is refused.
    pub tcp: Option<u16>,
    /// Port of the UDP sockets; `None`: UDP is refused.
    pub udp: Option<u16>,
    /// Packets of this host itself are taken, too.
    pub own: bool,
}

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;

/// ICMPv6 errors (RFC 4443).
const ERRORS: [u8; 4] = [1, 2, 3, 4];

/// Destination unreachable: communication administratively prohibited (RFC 4443 section 3.1). The address may well be
/// reached, so it is neither "no route" nor "address unreachable"; it is this relay that does not let it pass.
const PROHIBITED: u8 = 1;

/// Offsets in an IPv6 header (RFC 8200 section 3).
const SOURCE: Place = (Base::Network, 8);
const DESTINATION: Place = (Base::Network, 24);

/// After connection tracking (-200) and reassembly (-450), as usual for changes of a packet's way ("mangle").
const PREROUTING: i32 = -150;

impl Intercept {
    /// Name of the nftables table, of family `ip6`.
    #[must_use]
    pub fn nft_table(&self) -> String {
        format!("fordway-trt-{}", self.name)
    }

    pub(crate) fn normalise(&mut self) {
        self.prefixes.sort_unstable();
        self.prefixes.dedup();
    }

    fn rules(&self) -> Table {
        let mut table = Table::new(Ip::V6, &self.nft_table());
        table.chain("relay");
        table.base_chain("prerouting", libc::NF_INET_PRE_ROUTING, PREROUTING);
        for prefix in &self.prefixes {
            table.rule("prerouting", [inside(DESTINATION, prefix), goto("relay")]);
            // A client with such an address would be answered by this host itself.
            table.rule("relay", [inside(SOURCE, prefix), drop()]);
        }
        for kind in ERRORS {
            table.rule("relay", [protocol(ICMPV6), icmp_type(kind), set_mark(self.mark), accept()]);
        }
        for (number, port) in [(TCP, self.tcp), (UDP, self.udp)] {
            if let Some(port) = port {
                let to = transparent_proxy6(Ipv6Addr::LOCALHOST, port);
                table.rule("relay", [protocol(number), to, set_mark(self.mark), accept()]);
            }
        }
        table.rule("relay", [reject(PROHIBITED)]);
        table
    }
}

impl Policy for Intercept {
    fn ip(&self) -> Ip {
        Ip::V6
    }

    fn name(&self) -> String {
        self.nft_table()
    }

    fn contents(&self) -> Vec<Table> {
        vec![self.rules()]
    }
}

/// Compares the octets of an address that a prefix has.
fn inside(place: Place, prefix: &Ipv6Net) -> Vec<Expression> {
    let octets = prefix.network().octets();
    let length = usize::from(prefix.prefix_len() / 8).max(1);
    field(place, &octets[..length])
}
