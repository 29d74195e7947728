//! The steps of rules about connections: what connection tracking knows of them, the translation of their addresses,
//! how many there are.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use libc::c_int;
use netlink_packet_core::DefaultNla;

use super::expression::{
    Base, Expression, Place, REG_1, REG_2, compare, dynset, equal, immediate, named, payload,
    protocol, step, value, verdict,
};
use super::message::{long, nested, number, text};
use super::object::COUNTER;
use super::{Choice, Table};

/// States of a packet's connection, as bits (`NF_CT_STATE_BIT`).
pub(crate) const INVALID: u32 = 1 << 0;
pub(crate) const NEW: u32 = 1 << 3;

/// `IPS_DST_NAT`: the connection's destination is translated.
const DST_NAT: u32 = 1 << 5;

/// `NF_NAT_RANGE_*`.
const PROTO_SPECIFIED: u32 = 1 << 1;
const RANDOM_FULLY: u32 = 1 << 4;
const PERSISTENT: u32 = 1 << 3;
const NETMAP: u32 = 1 << 6;

/// The source address of an IPv4 header.
const SOURCE: Place = (Base::Network, 12);

impl Table {
    /// Adds a chain of the type "nat", which the kernel calls with the first packet of each connection.
    pub(crate) fn nat_chain(&mut self, name: &str, hook: c_int, priority: i32) {
        self.add_base_chain(name, "nat", hook, priority);
    }

    /// Adds a counter. If the table replaces another, the counter goes on from there.
    pub(crate) fn counter(&mut self, name: &str) {
        self.counters.push(name.to_owned());
    }
}

impl Choice {
    fn flags(self) -> u32 {
        let flag = |on: bool, flag: u32| if on { flag } else { 0 };
        flag(self.persistent, PERSISTENT) | flag(self.random, RANDOM_FULLY)
    }
}

/// Goes on in another chain, and comes back.
pub(crate) fn jump(chain: &str) -> Vec<Expression> {
    verdict(libc::NFT_JUMP, Some(chain))
}

/// Keeps these bits of what was loaded.
fn mask(bits: &[u8]) -> Expression {
    const NFTA_BITWISE_SREG: u16 = 1;
    const NFTA_BITWISE_DREG: u16 = 2;
    const NFTA_BITWISE_LEN: u16 = 3;
    const NFTA_BITWISE_MASK: u16 = 4;
    const NFTA_BITWISE_XOR: u16 = 5;
    let attributes = [
        number(NFTA_BITWISE_SREG, REG_1),
        number(NFTA_BITWISE_DREG, REG_1),
        number(NFTA_BITWISE_LEN, bits.len() as u32),
        value(NFTA_BITWISE_MASK, bits),
        value(NFTA_BITWISE_XOR, &vec![0; bits.len()]),
    ];
    step("bitwise", &attributes)
}

/// Matches packets whose connection is in one of these states.
pub(crate) fn state(states: u32) -> Vec<Expression> {
    any_bit(libc::NFT_CT_STATE, states, true)
}

/// Matches packets of connections whose destination is translated, or is not.
pub(crate) fn destination_translated(is: bool) -> Vec<Expression> {
    any_bit(libc::NFT_CT_STATUS, DST_NAT, is)
}

/// Compares the destination of the connection's first packet, as it came.
pub(crate) fn original_destination(address: Ipv4Addr) -> Vec<Expression> {
    equal(original(libc::NFT_CT_DST_IP), &address.octets())
}

/// Compares the destination port of the connection's first packet, as it came.
pub(crate) fn original_port(port: u16) -> Vec<Expression> {
    equal(original(libc::NFT_CT_PROTO_DST), &port.to_be_bytes())
}

/// Compares the network of an address in the IPv4 header.
pub(crate) fn network(place: Place, net: Ipv4Net) -> Vec<Expression> {
    let load = payload(place, 4, REG_1);
    let compare = compare(libc::NFT_CMP_EQ, &net.network().octets());
    match net.prefix_len() {
        0 => Vec::new(),
        32 => vec![load, compare],
        _ => vec![load, mask(&net.netmask().octets()), compare],
    }
}

/// Matches the first segments of TCP connections, from either end.
pub(crate) fn syn() -> Vec<Expression> {
    const FLAGS: Place = (Base::Transport, 13);
    const SYN: u8 = 0x02;
    const RST: u8 = 0x04;
    let flags = [payload(FLAGS, 1, REG_1), mask(&[SYN | RST]), compare(libc::NFT_CMP_EQ, &[SYN])];
    protocol(6).into_iter().chain(flags).collect()
}

/// Lowers the segment size that a segment announces to what its route's MTU takes.
pub(crate) fn clamp_mss() -> Vec<Expression> {
    const NFT_RT_TCPMSS: u32 = 3;
    const NFT_EXTHDR_OP_TCPOPT: u32 = 1;
    const TCPOPT_MAXSEG: u8 = 2;
    let hton = libc::NFT_BYTEORDER_HTON as u32;
    vec![
        numbers("rt", &[(1, REG_1), (2, NFT_RT_TCPMSS)]),
        numbers("byteorder", &[(1, REG_1), (2, REG_1), (3, hton), (4, 2), (5, 2)]),
        // The size stands two octets behind the option's beginning.
        step(
            "exthdr",
            &[
                DefaultNla::new(2, vec![TCPOPT_MAXSEG]),
                number(3, 2),
                number(4, 2),
                number(6, NFT_EXTHDR_OP_TCPOPT),
                number(7, REG_1),
            ],
        ),
    ]
}

/// Translates sources to these addresses, and ports if there are some.
pub(crate) fn translate_source(
    (first, last): (Ipv4Addr, Ipv4Addr),
    ports: Option<(u16, u16)>,
    choice: Choice,
) -> Vec<Expression> {
    translate(libc::NFT_NAT_SNAT, (first, last), ports, choice.flags())
}

/// Translates destinations to one address and port.
pub(crate) fn translate_destination(address: Ipv4Addr, port: u16) -> Vec<Expression> {
    translate(libc::NFT_NAT_DNAT, (address, address), Some((port, port)), 0)
}

/// Translates the network of sources or of destinations, and leaves the rest.
pub(crate) fn map_network(to: Ipv4Net, source: bool) -> Vec<Expression> {
    let side = if source { libc::NFT_NAT_SNAT } else { libc::NFT_NAT_DNAT };
    translate(side, (to.network(), to.broadcast()), None, NETMAP)
}

/// Translates the source to the address that the connection was opened to.
pub(crate) fn translate_source_to_original_destination() -> Vec<Expression> {
    let registers = [number(3, REG_1), number(4, REG_1)];
    vec![original(libc::NFT_CT_DST_IP), nat(libc::NFT_NAT_SNAT, &registers)]
}

/// Translates sources to the address of the device that the packet leaves by.
pub(crate) fn masquerade(ports: Option<(u16, u16)>, choice: Choice) -> Vec<Expression> {
    let Some((low, high)) = ports else { return vec![numbers("masq", &[(1, choice.flags())])] };
    // The registers alone do not tell the kernel that ports are meant, as they do where addresses are given.
    let flags = choice.flags() | PROTO_SPECIFIED;
    vec![
        immediate(REG_1, &low.to_be_bytes()),
        immediate(REG_2, &high.to_be_bytes()),
        numbers("masq", &[(1, flags), (2, REG_1), (3, REG_2)]),
    ]
}

/// Conntrack does not see the packet.
pub(crate) fn notrack() -> Vec<Expression> {
    vec![step("notrack", &[])]
}

/// Matches one source in `of`, always the same ones.
pub(crate) fn share_of_sources(share: u32, of: u32) -> Vec<Expression> {
    const NFT_HASH_JENKINS: u32 = 0;
    let hash = [(1, REG_2), (2, REG_1), (3, 4), (4, of), (5, 0), (7, NFT_HASH_JENKINS)];
    vec![
        payload(SOURCE, 4, REG_2),
        numbers("hash", &hash),
        compare(libc::NFT_CMP_EQ, &share.to_ne_bytes()),
    ]
}

/// Counts the packet.
pub(crate) fn count(counter: &str) -> Vec<Expression> {
    vec![step("objref", &[number(1, COUNTER), text(2, counter)])]
}

/// Matches if the source has more than this many connections, which a set counts.
pub(crate) fn has_more_connections(set: &str, most: u32) -> Vec<Expression> {
    const INVERT: u32 = 1;
    let connlimit = [number(1, most), number(2, INVERT)];
    by_source(set, libc::NFT_DYNSET_OP_ADD, "connlimit", &connlimit)
}

/// Matches if the source sends more than this many such packets in a second, which a set counts.
pub(crate) fn comes_more_often(set: &str, per_second: u32) -> Vec<Expression> {
    by_source(set, libc::NFT_DYNSET_OP_UPDATE, "limit", &rate(per_second, true))
}

/// Writes a line about the packet into the kernel's log, at most so many in a second.
pub(crate) fn log(prefix: &str, per_second: u32) -> Vec<Expression> {
    const INFO: u32 = 6;
    vec![step("limit", &rate(per_second, false)), step("log", &[text(2, prefix), number(5, INFO)])]
}

/// So many packets in a second, and as many at once; `over`: matches those beyond it.
fn rate(per_second: u32, over: bool) -> [DefaultNla; 5] {
    [
        long(1, per_second.into()),
        long(2, 1),
        number(3, per_second),
        number(4, 0),
        number(5, u32::from(over)),
    ]
}

/// An expression with a state of its own for each source, in a set.
fn by_source(set: &str, operation: c_int, name: &str, question: &[DefaultNla]) -> Vec<Expression> {
    const NFTA_DYNSET_EXPR: u16 = 7;
    let kept = nested(NFTA_DYNSET_EXPR, &named(name, question));
    vec![payload(SOURCE, 4, REG_1), dynset(set, operation, Some(&kept))]
}

fn translate(
    side: c_int,
    (first, last): (Ipv4Addr, Ipv4Addr),
    ports: Option<(u16, u16)>,
    flags: u32,
) -> Vec<Expression> {
    let (mut steps, mut attributes) = (Vec::new(), Vec::new());
    // With the last, where it is another than the first.
    let mut range = |kind: u16, registers: [c_int; 2], ends: [&[u8]; 2]| {
        let count = if ends[0] == ends[1] { 1 } else { 2 };
        for (place, (register, end)) in (0..).zip(registers.into_iter().zip(ends)).take(count) {
            steps.push(immediate(register.cast_unsigned(), end));
            attributes.push(number(kind + place, register.cast_unsigned()));
        }
    };
    range(3, [libc::NFT_REG_1, libc::NFT_REG_2], [&first.octets(), &last.octets()]);
    if let Some((low, high)) = ports {
        let ends = [low.to_be_bytes(), high.to_be_bytes()];
        range(5, [libc::NFT_REG_3, libc::NFT_REG_4], [&ends[0], &ends[1]]);
    }
    attributes.push(number(7, flags));
    steps.push(nat(side, &attributes));
    steps
}

fn nat(side: c_int, more: &[DefaultNla]) -> Expression {
    let common = [number(1, side.cast_unsigned()), number(2, libc::NFPROTO_IPV4 as u32)];
    step("nat", &[&common, more].concat())
}

/// Loads something of the connection's direction in which it was opened (`NFT_CT_*`).
fn original(key: c_int) -> Expression {
    const IP_CT_DIR_ORIGINAL: u8 = 0;
    let direction = DefaultNla::new(3, vec![IP_CT_DIR_ORIGINAL]);
    step("ct", &[number(1, REG_1), number(2, key.cast_unsigned()), direction])
}

fn any_bit(key: c_int, bits: u32, set: bool) -> Vec<Expression> {
    let operator = if set { libc::NFT_CMP_NEQ } else { libc::NFT_CMP_EQ };
    vec![
        numbers("ct", &[(1, REG_1), (2, key.cast_unsigned())]),
        mask(&bits.to_ne_bytes()),
        compare(operator, &[0; 4]),
    ]
}

/// A step whose attributes are numbers.
fn numbers(name: &str, attributes: &[(u16, u32)]) -> Expression {
    let attributes: Vec<DefaultNla> =
        attributes.iter().map(|(kind, it)| number(*kind, *it)).collect();
    step(name, &attributes)
}
