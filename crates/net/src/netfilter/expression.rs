//! The words that nftables rules are made of.
//!
//! Each function gives one step as `nft --debug=netlink` shows it, or the few that
//! belong together: load something into a register and compare it. A comparison
//! that fails ends the rule.

use std::net::{Ipv4Addr, Ipv6Addr};

use netlink_packet_core::DefaultNla;
use netlink_packet_netfilter::nftables::{
    Cmp, DataAttribute, ExpressionAttribute, Expressions, Immediate, ListAttribute, Lookup, Meta,
    MetaKey, Operator, Payload, Register, Verdict, VerdictAttribute,
};

/// One step of a rule.
pub(crate) type Expression = ListAttribute<ExpressionAttribute>;

/// What an offset counts from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Base {
    /// The IP header.
    Network,
    /// What follows it.
    Transport,
}

/// Compares the name of the interface that the packet came by (`Iifname`) or leaves
/// by (`Oifname`).
pub(crate) fn device(key: MetaKey, name: &str) -> Vec<Expression> {
    const IFNAMSIZ: usize = 16;
    let mut octets = name.as_bytes().to_vec();
    octets.resize(IFNAMSIZ, 0);
    vec![load(key, Register::Reg1), compare(Operator::Equal, &octets)]
}

/// Compares the transport protocol.
pub(crate) fn protocol(number: u8) -> Vec<Expression> {
    vec![load(MetaKey::L4Proto, Register::Reg1), compare(Operator::Equal, &[number])]
}

/// Compares octets of the packet.
pub(crate) fn field(base: Base, offset: u32, octets: &[u8]) -> Vec<Expression> {
    let length = octets.len() as u32;
    vec![payload(base, offset, length, Register::Reg1), compare(Operator::Equal, octets)]
}

/// Compares octets of the packet; they must differ.
pub(crate) fn other_field(base: Base, offset: u32, octets: &[u8]) -> Vec<Expression> {
    let length = octets.len() as u32;
    vec![payload(base, offset, length, Register::Reg1), compare(Operator::NotEqual, octets)]
}

/// Compares two octets of the packet with a range of numbers.
pub(crate) fn within(base: Base, offset: u32, first: u16, last: u16) -> Vec<Expression> {
    if first == last {
        return field(base, offset, &first.to_be_bytes());
    }
    vec![
        payload(base, offset, 2, Register::Reg1),
        compare(Operator::GreatherThanEqual, &first.to_be_bytes()),
        compare(Operator::LessThanEqual, &last.to_be_bytes()),
    ]
}

/// Looks whether an IPv4 address and a number of two octets, both from the packet,
/// are in a set.
pub(crate) fn in_set(set: &str, address: (Base, u32), number: (Base, u32)) -> Vec<Expression> {
    let lookup = vec![Lookup::Set(set.to_owned()), Lookup::SourceRegister(Register::Reg1)];
    let mut key = pair(address, number);
    key.push(Expressions::Lookup(lookup).into());
    key
}

/// Puts an IPv4 address and a number of two octets, both from the packet, into a
/// set, or begins its time anew if they are there.
pub(crate) fn put_in_set(set: &str, address: (Base, u32), number: (Base, u32)) -> Vec<Expression> {
    const NFTA_DYNSET_SET_NAME: u16 = 1;
    const NFTA_DYNSET_OP: u16 = 3;
    const NFTA_DYNSET_SREG_KEY: u16 = 4;
    const NFT_DYNSET_OP_UPDATE: u32 = 1;
    let mut name = set.as_bytes().to_vec();
    name.push(0);
    let mut key = pair(address, number);
    key.push(other(
        "dynset",
        vec![
            DefaultNla::new(NFTA_DYNSET_SET_NAME, name),
            number_of(NFTA_DYNSET_OP, NFT_DYNSET_OP_UPDATE),
            number_of(NFTA_DYNSET_SREG_KEY, Register::Reg1.into()),
        ],
    ));
    key
}

/// Matches if this host has a socket for the packet, be it connected or not; for an
/// ICMP error, for the packet that it is about.
pub(crate) fn has_socket() -> Vec<Expression> {
    const NFTA_SOCKET_KEY: u16 = 1;
    const NFTA_SOCKET_DREG: u16 = 2;
    // Of the questions that can be asked of a socket this one has an answer for
    // each, also for one that waits or is just being made.
    const NFT_SOCKET_TRANSPARENT: u32 = 0;
    let question = vec![
        number_of(NFTA_SOCKET_KEY, NFT_SOCKET_TRANSPARENT),
        number_of(NFTA_SOCKET_DREG, Register::Reg1.into()),
    ];
    vec![other("socket", question), compare(Operator::LessThanEqual, &[1])]
}

/// Compares the packet's mark.
pub(crate) fn mark(mark: u32) -> Vec<Expression> {
    vec![load(MetaKey::Mark, Register::Reg1), compare(Operator::Equal, &mark.to_ne_bytes())]
}

/// Sets the packet's mark.
pub(crate) fn set_mark(mark: u32) -> Vec<Expression> {
    let set = vec![Meta::Key(MetaKey::Mark), Meta::SourceRegister(Register::Reg1)];
    vec![immediate(Register::Reg1, &mark.to_ne_bytes()), Expressions::Meta(set).into()]
}

/// Sends a copy of the packet out of an interface, as to a neighbour of this address.
pub(crate) fn copy_to(neighbour: Ipv4Addr, ifindex: u32) -> Vec<Expression> {
    const NFTA_DUP_SREG_ADDR: u16 = 1;
    const NFTA_DUP_SREG_DEV: u16 = 2;
    let registers = vec![
        number_of(NFTA_DUP_SREG_ADDR, Register::Reg1.into()),
        number_of(NFTA_DUP_SREG_DEV, Register::Reg2.into()),
    ];
    vec![
        immediate(Register::Reg1, &neighbour.octets()),
        immediate(Register::Reg2, &ifindex.to_ne_bytes()),
        other("dup", registers),
    ]
}

/// Hands the packet to a local socket with this port. As long as a rule with this
/// step exists, used or not, the kernel reassembles fragments before routing.
pub(crate) fn transparent_proxy(port: u16) -> Vec<Expression> {
    const NFTA_TPROXY_FAMILY: u16 = 1;
    const NFTA_TPROXY_REG_PORT: u16 = 3;
    const NFPROTO_IPV4: u32 = 2;
    let attributes = vec![
        number_of(NFTA_TPROXY_FAMILY, NFPROTO_IPV4),
        number_of(NFTA_TPROXY_REG_PORT, Register::Reg1.into()),
    ];
    vec![immediate(Register::Reg1, &port.to_be_bytes()), other("tproxy", attributes)]
}

/// Hands the packet to a local socket with this address and port; where there is none, the rule ends here. A
/// connection that exists takes its own packets.
pub(crate) fn transparent_proxy6(address: Ipv6Addr, port: u16) -> Vec<Expression> {
    const NFTA_TPROXY_FAMILY: u16 = 1;
    const NFTA_TPROXY_REG_ADDR: u16 = 2;
    const NFTA_TPROXY_REG_PORT: u16 = 3;
    const NFPROTO_IPV6: u32 = 10;
    let attributes = vec![
        number_of(NFTA_TPROXY_FAMILY, NFPROTO_IPV6),
        number_of(NFTA_TPROXY_REG_ADDR, Register::Reg1.into()),
        number_of(NFTA_TPROXY_REG_PORT, Register::Reg2.into()),
    ];
    vec![
        immediate(Register::Reg1, &address.octets()),
        immediate(Register::Reg2, &port.to_be_bytes()),
        other("tproxy", attributes),
    ]
}

/// Drops the packet, and answers with an ICMP error: destination unreachable, with this code.
pub(crate) fn reject(code: u8) -> Vec<Expression> {
    const NFTA_REJECT_TYPE: u16 = 1;
    const NFTA_REJECT_ICMP_CODE: u16 = 2;
    const NFT_REJECT_ICMP_UNREACH: u32 = 0;
    let attributes = vec![
        number_of(NFTA_REJECT_TYPE, NFT_REJECT_ICMP_UNREACH),
        DefaultNla::new(NFTA_REJECT_ICMP_CODE, vec![code]),
    ];
    vec![other("reject", attributes)]
}

/// Goes on in another chain, and does not come back.
pub(crate) fn goto(chain: &str) -> Vec<Expression> {
    verdict(vec![VerdictAttribute::Code(Verdict::Goto), VerdictAttribute::Chain(chain.to_owned())])
}

/// Goes on in another chain, and comes back.
pub(crate) fn jump(chain: &str) -> Vec<Expression> {
    verdict(vec![VerdictAttribute::Code(Verdict::Jump), VerdictAttribute::Chain(chain.to_owned())])
}

/// Leaves the table.
pub(crate) fn accept() -> Vec<Expression> {
    verdict(vec![VerdictAttribute::Code(Verdict::Other(libc::NF_ACCEPT as u32))])
}

/// Drops the packet.
pub(crate) fn drop() -> Vec<Expression> {
    verdict(vec![VerdictAttribute::Code(Verdict::Other(libc::NF_DROP as u32))])
}

fn verdict(attributes: Vec<VerdictAttribute>) -> Vec<Expression> {
    let steps = vec![
        Immediate::DestinationRegister(Register::Verdict),
        Immediate::Data(DataAttribute::Verdict(attributes)),
    ];
    vec![Expressions::Immediate(steps).into()]
}

/// Address and number side by side, as the key of a set.
fn pair(address: (Base, u32), number: (Base, u32)) -> Vec<Expression> {
    vec![
        payload(address.0, address.1, 4, Register::Reg1),
        // The next four octets of the same register, under their other name.
        payload(number.0, number.1, 2, Register::Reg32_01),
    ]
}

fn load(key: MetaKey, register: Register) -> Expression {
    Expressions::Meta(vec![Meta::DestinationRegister(register), Meta::Key(key)]).into()
}

pub(super) fn payload(base: Base, offset: u32, length: u32, register: Register) -> Expression {
    let base = match base {
        Base::Network => 1,
        Base::Transport => 2,
    };
    let attributes = vec![
        Payload::DestinationRegister(register),
        Payload::Base(base),
        Payload::Offset(offset),
        Payload::Len(length),
    ];
    Expressions::Payload(attributes).into()
}

pub(super) fn compare(operator: Operator, octets: &[u8]) -> Expression {
    let attributes = vec![
        Cmp::SourceRegister(Register::Reg1),
        Cmp::Op(operator),
        Cmp::Data(DataAttribute::Value(octets.to_vec())),
    ];
    Expressions::Cmp(attributes).into()
}

pub(super) fn immediate(register: Register, octets: &[u8]) -> Expression {
    let attributes = vec![
        Immediate::DestinationRegister(register),
        Immediate::Data(DataAttribute::Value(octets.to_vec())),
    ];
    Expressions::Immediate(attributes).into()
}

/// A step that the library has no type for.
pub(super) fn other(name: &str, attributes: Vec<DefaultNla>) -> Expression {
    Expressions::Other { expression_type: name.to_owned(), attributes }.into()
}

pub(super) fn number_of(kind: u16, number: u32) -> DefaultNla {
    DefaultNla::new(kind, number.to_be_bytes().to_vec())
}
