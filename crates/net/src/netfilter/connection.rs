//! The words of rules about connections: what connection tracking knows of them, the
//! translation of their addresses, how many there are.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use netlink_packet_core::DefaultNla;
use netlink_packet_netfilter::nftables::{Bitwise, DataAttribute, Expressions, Operator, Register};

use super::expression::{
    Base, Expression, compare, immediate, number_of, other, payload, protocol,
};
use super::object::{COUNTER, nested, text};

/// States of a packet's connection, as bits (`NF_CT_STATE_BIT`).
pub(crate) const INVALID: u32 = 1 << 0;
pub(crate) const NEW: u32 = 1 << 3;

/// `IPS_DST_NAT`: the connection's destination is translated.
const DST_NAT: u32 = 1 << 5;

/// Keys of connection tracking (`NFT_CT_*`).
const STATE: u32 = 0;
const STATUS: u32 = 2;
const PROTOCOL_DESTINATION: u32 = 12;
const IPV4_DESTINATION: u32 = 20;

/// `NF_NAT_RANGE_*`.
const PROTO_SPECIFIED: u32 = 1 << 1;
const RANDOM_FULLY: u32 = 1 << 4;
const PERSISTENT: u32 = 1 << 3;
const NETMAP: u32 = 1 << 6;

/// How a translation chooses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    /// A host always gets the same address.
    pub(crate) persistent: bool,
    /// Ports are drawn, instead of kept where possible.
    pub(crate) random: bool,
}

impl Choice {
    fn flags(self) -> u32 {
        let flag = |on: bool, flag: u32| if on { flag } else { 0 };
        flag(self.persistent, PERSISTENT) | flag(self.random, RANDOM_FULLY)
    }
}

/// Whether a direction is that of the source or of the destination.
#[derive(Clone, Copy, Debug)]
enum Side {
    Source = 0,
    Destination = 1,
}

/// Matches packets whose connection is in one of these states.
pub(crate) fn state(states: u32) -> Vec<Expression> {
    any_bit(STATE, states, true)
}

/// Matches packets of connections whose destination is translated, or is not.
pub(crate) fn destination_translated(is: bool) -> Vec<Expression> {
    any_bit(STATUS, DST_NAT, is)
}

/// Compares the destination of the connection's first packet, as it came.
pub(crate) fn original_destination(address: Ipv4Addr) -> Vec<Expression> {
    vec![original(IPV4_DESTINATION), compare(Operator::Equal, &address.octets())]
}

/// Compares the destination port of the connection's first packet, as it came.
pub(crate) fn original_port(port: u16) -> Vec<Expression> {
    vec![original(PROTOCOL_DESTINATION), compare(Operator::Equal, &port.to_be_bytes())]
}

/// Compares the network of an address in the IPv4 header.
pub(crate) fn network(offset: u32, net: Ipv4Net) -> Vec<Expression> {
    let load = payload(Base::Network, offset, 4, Register::Reg1);
    let masked = mask(&net.netmask().octets());
    match net.prefix_len() {
        0 => Vec::new(),
        32 => vec![load, compare(Operator::Equal, &net.addr().octets())],
        _ => vec![load, masked, compare(Operator::Equal, &net.network().octets())],
    }
}

/// Matches the first segments of TCP connections, from either end.
pub(crate) fn syn() -> Vec<Expression> {
    const FLAGS: u32 = 13;
    const SYN: u8 = 0x02;
    const RST: u8 = 0x04;
    let mut steps = protocol(6);
    steps.push(payload(Base::Transport, FLAGS, 1, Register::Reg1));
    steps.push(mask(&[SYN | RST]));
    steps.push(compare(Operator::Equal, &[SYN]));
    steps
}

/// Lowers the segment size that a segment announces to what its route's MTU takes.
pub(crate) fn clamp_mss() -> Vec<Expression> {
    const NFT_RT_TCPMSS: u32 = 3;
    const NFT_BYTEORDER_HTON: u32 = 1;
    const NFT_EXTHDR_OP_TCPOPT: u32 = 1;
    const TCPOPT_MAXSEG: u8 = 2;
    let register = u32::from(Register::Reg1);
    let octet = |kind: u16, octet: u8| DefaultNla::new(kind, vec![octet]);
    vec![
        other("rt", vec![number_of(1, register), number_of(2, NFT_RT_TCPMSS)]),
        other(
            "byteorder",
            vec![
                number_of(1, register),
                number_of(2, register),
                number_of(3, NFT_BYTEORDER_HTON),
                number_of(4, 2),
                number_of(5, 2),
            ],
        ),
        // The size stands two octets behind the option's beginning.
        other(
            "exthdr",
            vec![
                octet(2, TCPOPT_MAXSEG),
                number_of(3, 2),
                number_of(4, 2),
                number_of(6, NFT_EXTHDR_OP_TCPOPT),
                number_of(7, register),
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
    translate(Side::Source, (first, last), ports, choice.flags())
}

/// Translates destinations to one address and port.
pub(crate) fn translate_destination(address: Ipv4Addr, port: u16) -> Vec<Expression> {
    translate(Side::Destination, (address, address), Some((port, port)), 0)
}

/// Translates the network of sources or of destinations, and leaves the rest.
pub(crate) fn map_network(to: Ipv4Net, source: bool) -> Vec<Expression> {
    let side = if source { Side::Source } else { Side::Destination };
    translate(side, (to.network(), to.broadcast()), None, NETMAP)
}

/// Translates the source to the address that the connection was opened to.
pub(crate) fn translate_source_to_original_destination() -> Vec<Expression> {
    let register = u32::from(Register::Reg1);
    vec![
        original(IPV4_DESTINATION),
        nat(Side::Source, &[number_of(3, register), number_of(4, register)]),
    ]
}

/// Translates sources to the address of the device that the packet leaves by.
pub(crate) fn masquerade(ports: Option<(u16, u16)>, choice: Choice) -> Vec<Expression> {
    let mut steps = Vec::new();
    // The registers alone do not tell the kernel that ports are meant, as they do where addresses are given.
    let ranged = if ports.is_some() { PROTO_SPECIFIED } else { 0 };
    let mut attributes = vec![number_of(1, choice.flags() | ranged)];
    if let Some((low, high)) = ports {
        steps.push(immediate(Register::Reg1, &low.to_be_bytes()));
        steps.push(immediate(Register::Reg2, &high.to_be_bytes()));
        attributes.push(number_of(2, Register::Reg1.into()));
        attributes.push(number_of(3, Register::Reg2.into()));
    }
    steps.push(other("masq", attributes));
    steps
}

/// Conntrack does not see the packet.
pub(crate) fn notrack() -> Vec<Expression> {
    vec![other("notrack", Vec::new())]
}

/// Matches one source in `of`, always the same ones.
pub(crate) fn share_of_sources(share: u32, of: u32) -> Vec<Expression> {
    const SOURCE: u32 = 12;
    const NFT_HASH_JENKINS: u32 = 0;
    let hash = vec![
        number_of(1, Register::Reg2.into()),
        number_of(2, Register::Reg1.into()),
        number_of(3, 4),
        number_of(4, of),
        number_of(5, 0),
        number_of(7, NFT_HASH_JENKINS),
    ];
    vec![
        payload(Base::Network, SOURCE, 4, Register::Reg2),
        other("hash", hash),
        compare(Operator::Equal, &share.to_ne_bytes()),
    ]
}

/// Counts the packet.
pub(crate) fn count(counter: &str) -> Vec<Expression> {
    vec![other("objref", vec![number_of(1, COUNTER), DefaultNla::new(2, text(counter))])]
}

/// Matches if the source has more than this many connections, which a set counts.
pub(crate) fn has_more_connections(set: &str, most: u32) -> Vec<Expression> {
    const INVERT: u32 = 1;
    let connlimit = [number_of(1, most), number_of(2, INVERT)];
    by_source(set, true, "connlimit", &connlimit)
}

/// Matches if the source sends more than this many such packets in a second, which a
/// set counts.
pub(crate) fn comes_more_often(set: &str, per_second: u32) -> Vec<Expression> {
    by_source(set, false, "limit", &rate(per_second, per_second, true))
}

/// Writes a line about the packet into the kernel's log, at most so many in a second.
pub(crate) fn log(prefix: &str, per_second: u32) -> Vec<Expression> {
    const INFO: u32 = 6;
    vec![
        other("limit", rate(per_second, per_second, false)),
        other("log", vec![DefaultNla::new(2, text(prefix)), number_of(5, INFO)]),
    ]
}

fn rate(per_second: u32, burst: u32, over: bool) -> Vec<DefaultNla> {
    let long = |kind: u16, number: u64| DefaultNla::new(kind, number.to_be_bytes().to_vec());
    vec![
        long(1, per_second.into()),
        long(2, 1),
        number_of(3, burst),
        number_of(4, 0),
        number_of(5, u32::from(over)),
    ]
}

/// Asks something that is kept for each source in a set; `add`: made once, else begun
/// anew by each packet.
fn by_source(set: &str, add: bool, name: &str, question: &[DefaultNla]) -> Vec<Expression> {
    const SOURCE: u32 = 12;
    const NFT_DYNSET_OP_ADD: u32 = 0;
    const NFT_DYNSET_OP_UPDATE: u32 = 1;
    let expression = [DefaultNla::new(1, text(name)), nested(2, question)];
    let operation = if add { NFT_DYNSET_OP_ADD } else { NFT_DYNSET_OP_UPDATE };
    let attributes = vec![
        DefaultNla::new(1, text(set)),
        number_of(3, operation),
        number_of(4, Register::Reg1.into()),
        nested(7, &expression),
    ];
    vec![payload(Base::Network, SOURCE, 4, Register::Reg1), other("dynset", attributes)]
}

fn translate(
    side: Side,
    (first, last): (Ipv4Addr, Ipv4Addr),
    ports: Option<(u16, u16)>,
    flags: u32,
) -> Vec<Expression> {
    let (mut steps, mut attributes) = (Vec::new(), Vec::new());
    // With the last, where it is another than the first.
    let mut range = |kind: u16, registers: [Register; 2], ends: [&[u8]; 2]| {
        let count = if ends[0] == ends[1] { 1 } else { 2 };
        for (place, (register, end)) in (0..).zip(registers.into_iter().zip(ends)).take(count) {
            steps.push(immediate(register, end));
            attributes.push(number_of(kind + place, register.into()));
        }
    };
    range(3, [Register::Reg1, Register::Reg2], [&first.octets(), &last.octets()]);
    if let Some((low, high)) = ports {
        let ends = [low.to_be_bytes(), high.to_be_bytes()];
        range(5, [Register::Reg3, Register::Reg4], [&ends[0], &ends[1]]);
    }
    attributes.push(number_of(7, flags));
    steps.push(nat(side, &attributes));
    steps
}

fn nat(side: Side, more: &[DefaultNla]) -> Expression {
    const NFPROTO_IPV4: u32 = 2;
    let mut attributes = vec![number_of(1, side as u32), number_of(2, NFPROTO_IPV4)];
    attributes.extend_from_slice(more);
    other("nat", attributes)
}

/// Loads something of the connection's direction in which it was opened.
fn original(key: u32) -> Expression {
    const IP_CT_DIR_ORIGINAL: u8 = 0;
    let direction = DefaultNla::new(3, vec![IP_CT_DIR_ORIGINAL]);
    other("ct", vec![number_of(1, Register::Reg1.into()), number_of(2, key), direction])
}

fn any_bit(key: u32, bits: u32, set: bool) -> Vec<Expression> {
    let operator = if set { Operator::NotEqual } else { Operator::Equal };
    vec![
        other("ct", vec![number_of(1, Register::Reg1.into()), number_of(2, key)]),
        mask(&bits.to_ne_bytes()),
        compare(operator, &[0; 4]),
    ]
}

/// Keeps these bits of what was loaded.
fn mask(bits: &[u8]) -> Expression {
    let attributes = vec![
        Bitwise::SourceRegister(Register::Reg1),
        Bitwise::DestinationRegister(Register::Reg1),
        Bitwise::Length(bits.len() as u32),
        Bitwise::Mask(DataAttribute::Value(bits.to_vec())),
        Bitwise::Xor(DataAttribute::Value(vec![0; bits.len()])),
    ];
    Expressions::Bitwise(attributes).into()
}
