//! The table's chains and rules.
//!
//! ```text
//! prerouting ── daddr ──► to-ADDR ── TCP, UDP of the pool ──► pool ──► take
//!                           │                                  ▲        ▲
//!                           └─► icmp-ADDR ── echo reply ─► ping ───────►│
//!                                 └─► error-ADDR ── about TCP, UDP ─┘   │
//!                                       └────────── about ICMP ─────────┘
//! ```
//!
//! What comes by `lo` has been routed already, to this host: errors of the kernel about packets that came out of the
//! translator, and answers of the host's own services to hosts behind it. A copy goes to the translator, and the
//! packet ends.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use super::Divert;
use crate::netfilter::expression::{
    Base, Place, accept, copy_to, device, drop, field, goto, has_socket, icmp_type, in_set, mark,
    other_field, protocol, put_in_set, set_mark, transparent_proxy, within,
};
use crate::netfilter::{Ip, Set, Table};

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// ICMP types (RFC 792).
const ECHO_REPLY: u8 = 0;
const UNREACHABLE: u8 = 3;
const ECHO: u8 = 8;
const TIME_EXCEEDED: u8 = 11;
const PARAMETER_PROBLEM: u8 = 12;

/// Offsets in an IPv4 header (RFC 791 section 3.1).
const SOURCE: Place = (Base::Network, 12);
const DESTINATION: Place = (Base::Network, 16);

/// Offsets in the transport header.
const PORT: Place = (Base::Transport, 2);
const IDENTIFIER: Place = (Base::Transport, 4);

/// Offsets in an ICMP error: of the packet that it is about, which begins behind eight octets and has a header of
/// twenty. What comes out of a translator never has options.
const INNER_VERSION: Place = (Base::Transport, 8);
const INNER_PROTOCOL: Place = (Base::Transport, 17);
const INNER_SOURCE: Place = (Base::Transport, 20);
const INNER_DESTINATION: Place = (Base::Transport, 24);
const INNER_SOURCE_PORT: Place = (Base::Transport, 28);
const INNER_ICMP_TYPE: Place = (Base::Transport, 28);
const INNER_IDENTIFIER: Place = (Base::Transport, 32);

/// After the translation of addresses (-100): a packet that is not for this host then belongs to another one, such as
/// a host behind a masquerade with the same address.
const PREROUTING: i32 = -50;

/// Before the translation of addresses, so that the reply is recognised by the address that was pinged.
const OUTPUT: i32 = -150;

/// The host's own pings: the address asked and the identifier.
const PINGS: &str = "pings";

/// Neighbour that copies go to. It only names the way: an interface without link-layer addresses has no neighbours
/// (RFC 7600, an address that no host has).
const NOBODY: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);

/// The table of `divert`. `reassemble`: have the kernel reassemble fragments, since only the first one has ports.
pub(super) fn table(divert: &Divert, reassemble: bool) -> Table {
    let mut table = Table::new(Ip::V4, &divert.table());
    add_pings(&mut table);
    add_take(&mut table, divert);
    if reassemble {
        table.chain("reassemble");
        table.rule("reassemble", [protocol(UDP), transparent_proxy(1)]);
    }
    let ports = divert.ports.iter().map(|it| it.address);
    let forwards = divert.forwards.iter().map(|it| it.address);
    let addresses: BTreeSet<Ipv4Addr> = ports.chain(forwards).collect();
    table.base_chain("prerouting", libc::NF_INET_PRE_ROUTING, PREROUTING);
    table.base_chain("output", libc::NF_INET_LOCAL_OUT, OUTPUT);
    table.base_chain("postrouting", libc::NF_INET_POST_ROUTING, PREROUTING);
    table.rule("prerouting", [device(libc::NFT_META_IIFNAME, &divert.device), accept()]);
    for address in &addresses {
        add_address(&mut table, divert, *address);
        let octets = address.octets();
        table.rule("prerouting", [field(DESTINATION, &octets), goto(&format!("to-{address}"))]);
        let ping = [field(SOURCE, &octets), protocol(ICMP), icmp_type(ECHO)];
        let remember = put_in_set(PINGS, DESTINATION, IDENTIFIER);
        table.rule("output", ping.into_iter().chain([remember]));
    }
    // Routing has used the mark; behind the interface it has no meaning.
    let leaving = [device(libc::NFT_META_OIFNAME, &divert.device), mark(divert.mark)];
    table.rule("postrouting", leaving.into_iter().chain([set_mark(0)]));
    table
}

/// The set of the host's own pings, each for a minute after the last request.
fn add_pings(table: &mut Table) {
    let key_type = Set::IPV4_ADDRESS << 6 | Set::PORT_NUMBER;
    table.set(PINGS, Set { id: 1, key_type, key_len: 8, timeout: Some(60_000) });
}

/// The ends of the way: `take`, and before it the questions whether it is the host's.
fn add_take(table: &mut Table, divert: &Divert) {
    table.chain("take");
    table.rule(
        "take",
        [device(libc::NFT_META_IIFNAME, "lo"), copy_to(NOBODY, divert.ifindex), drop()],
    );
    table.rule("take", [set_mark(divert.mark), accept()]);
    table.chain("pool");
    table.rule("pool", [has_socket(), accept()]);
    table.rule("pool", [goto("take")]);
    table.chain("ping");
    table.rule("ping", [in_set(PINGS, SOURCE, IDENTIFIER), accept()]);
    table.rule("ping", [goto("take")]);
}

/// The chains of one address.
fn add_address(table: &mut Table, divert: &Divert, address: Ipv4Addr) {
    let (to, icmp, error) =
        (format!("to-{address}"), format!("icmp-{address}"), format!("error-{address}"));
    table.chain(&error);
    table.chain(&icmp);
    table.chain(&to);
    let forwards = || divert.forwards.iter().filter(move |it| it.address == address);
    let ranges = || divert.ports.iter().filter(move |it| it.address == address);

    for forward in forwards().filter(|it| it.protocol != ICMP) {
        let port = field(PORT, &forward.port.to_be_bytes());
        table.rule(&to, [protocol(forward.protocol), port, goto("take")]);
    }
    for range in ranges() {
        for number in [TCP, UDP] {
            let ports = within(PORT, range.first, range.last);
            table.rule(&to, [protocol(number), ports, goto("pool")]);
        }
    }
    table.rule(&to, [protocol(ICMP), goto(&icmp)]);

    for forward in forwards().filter(|it| it.protocol == ICMP) {
        for kind in [ECHO, ECHO_REPLY] {
            let identifier = field(IDENTIFIER, &forward.port.to_be_bytes());
            table.rule(&icmp, [icmp_type(kind), identifier, goto("take")]);
        }
    }
    for range in ranges() {
        let identifiers = within(IDENTIFIER, range.first, range.last);
        table.rule(&icmp, [icmp_type(ECHO_REPLY), identifiers, goto("ping")]);
    }
    // Redirects are advice to this host; source quenches are obsolete (RFC 6633).
    for kind in [UNREACHABLE, TIME_EXCEEDED, PARAMETER_PROBLEM] {
        table.rule(&icmp, [icmp_type(kind), goto(&error)]);
    }
    add_error(table, &error, divert, address);
}

/// ICMP errors: whose they are is told by the packet that they are about.
fn add_error(table: &mut Table, chain: &str, divert: &Divert, address: Ipv4Addr) {
    let of = |protocol: u8| field(INNER_PROTOCOL, &[protocol]);
    table.rule(chain, [other_field(INNER_VERSION, &[0x45]), accept()]);
    table.rule(chain, [other_field(INNER_SOURCE, &address.octets()), accept()]);
    for forward in divert.forwards.iter().filter(|it| it.address == address) {
        let place = if forward.protocol == ICMP { INNER_IDENTIFIER } else { INNER_SOURCE_PORT };
        let port = field(place, &forward.port.to_be_bytes());
        table.rule(chain, [of(forward.protocol), port, goto("take")]);
    }
    let ranges = || divert.ports.iter().filter(|it| it.address == address);
    for range in ranges() {
        for number in [TCP, UDP] {
            let ports = within(INNER_SOURCE_PORT, range.first, range.last);
            table.rule(chain, [of(number), ports, goto("pool")]);
        }
    }
    let request = || [of(ICMP), field(INNER_ICMP_TYPE, &[ECHO])];
    let own = in_set(PINGS, INNER_DESTINATION, INNER_IDENTIFIER);
    table.rule(chain, request().into_iter().chain([own, accept()]));
    for range in ranges() {
        let identifiers = within(INNER_IDENTIFIER, range.first, range.last);
        table.rule(chain, request().into_iter().chain([identifiers, goto("take")]));
    }
}
