//! The steps that nftables rules are made of.
//!
//! Each function gives one step as `nft --debug=netlink` shows it, or the few that belong together: load something
//! into a register and compare it. A comparison that fails ends the rule.

use std::net::{Ipv4Addr, Ipv6Addr};

use libc::c_int;
use netlink_packet_core::DefaultNla;

use super::message::{nested, number, text};

/// One step of a rule.
pub(crate) type Expression = DefaultNla;

/// Octets of the packet: what their offset counts from, and the offset.
pub(crate) type Place = (Base, u32);

/// What an offset counts from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Base {
    /// The IP header.
    Network = libc::NFT_PAYLOAD_NETWORK_HEADER as isize,
    /// What follows it.
    Transport = libc::NFT_PAYLOAD_TRANSPORT_HEADER as isize,
}

/// Registers of sixteen octets.
pub(super) const REG_1: u32 = libc::NFT_REG_1 as u32;
pub(super) const REG_2: u32 = libc::NFT_REG_2 as u32;

/// Compares the name of the interface that the packet came by (`NFT_META_IIFNAME`) or leaves by (`NFT_META_OIFNAME`).
pub(crate) fn device(key: c_int, name: &str) -> Vec<Expression> {
    let mut octets = name.as_bytes().to_vec();
    octets.resize(libc::IFNAMSIZ, 0);
    equal(meta(key), &octets)
}

/// Compares the transport protocol.
pub(crate) fn protocol(number: u8) -> Vec<Expression> {
    equal(meta(libc::NFT_META_L4PROTO), &[number])
}

/// Compares octets of the packet.
pub(crate) fn field(place: Place, octets: &[u8]) -> Vec<Expression> {
    equal(payload(place, octets.len(), REG_1), octets)
}

/// Compares octets of the packet; they must differ.
pub(crate) fn other_field(place: Place, octets: &[u8]) -> Vec<Expression> {
    vec![payload(place, octets.len(), REG_1), compare(libc::NFT_CMP_NEQ, octets)]
}

/// Compares the type of an ICMP message.
pub(crate) fn icmp_type(kind: u8) -> Vec<Expression> {
    field((Base::Transport, 0), &[kind])
}

/// Compares two octets of the packet with a range of numbers.
pub(crate) fn within(place: Place, first: u16, last: u16) -> Vec<Expression> {
    if first == last {
        return field(place, &first.to_be_bytes());
    }
    vec![
        payload(place, 2, REG_1),
        compare(libc::NFT_CMP_GTE, &first.to_be_bytes()),
        compare(libc::NFT_CMP_LTE, &last.to_be_bytes()),
    ]
}

/// Looks whether an IPv4 address and a number of two octets, both from the packet, are in a set.
pub(crate) fn in_set(set: &str, address: Place, number_at: Place) -> Vec<Expression> {
    const NFTA_LOOKUP_SET: u16 = 1;
    const NFTA_LOOKUP_SREG: u16 = 2;
    let lookup = [text(NFTA_LOOKUP_SET, set), number(NFTA_LOOKUP_SREG, REG_1)];
    pair(address, number_at).into_iter().chain([step("lookup", &lookup)]).collect()
}

/// Puts an IPv4 address and a number of two octets, both from the packet, into a set, or renews the entry.
pub(crate) fn put_in_set(set: &str, address: Place, number_at: Place) -> Vec<Expression> {
    let put = dynset(set, libc::NFT_DYNSET_OP_UPDATE, None);
    pair(address, number_at).into_iter().chain([put]).collect()
}

/// Matches if this host has a socket for the packet, be it connected or not; for an ICMP error, for the packet that
/// it is about.
pub(crate) fn has_socket() -> Vec<Expression> {
    const NFTA_SOCKET_KEY: u16 = 1;
    const NFTA_SOCKET_DREG: u16 = 2;
    // Of the keys this one has a value for every socket, also for one that listens or is just being made.
    const NFT_SOCKET_TRANSPARENT: u32 = 0;
    let question =
        [number(NFTA_SOCKET_KEY, NFT_SOCKET_TRANSPARENT), number(NFTA_SOCKET_DREG, REG_1)];
    vec![step("socket", &question), compare(libc::NFT_CMP_LTE, &[1])]
}

/// Compares the packet's mark.
pub(crate) fn mark(mark: u32) -> Vec<Expression> {
    equal(meta(libc::NFT_META_MARK), &mark.to_ne_bytes())
}

/// Sets the packet's mark.
pub(crate) fn set_mark(mark: u32) -> Vec<Expression> {
    const NFTA_META_SREG: u16 = 3;
    let set = [number(NFTA_META_KEY, libc::NFT_META_MARK as u32), number(NFTA_META_SREG, REG_1)];
    vec![immediate(REG_1, &mark.to_ne_bytes()), step("meta", &set)]
}

/// Sends a copy of the packet out of an interface, as to a neighbour of this address.
pub(crate) fn copy_to(neighbour: Ipv4Addr, ifindex: u32) -> Vec<Expression> {
    const NFTA_DUP_SREG_ADDR: u16 = 1;
    const NFTA_DUP_SREG_DEV: u16 = 2;
    vec![
        immediate(REG_1, &neighbour.octets()),
        immediate(REG_2, &ifindex.to_ne_bytes()),
        step("dup", &[number(NFTA_DUP_SREG_ADDR, REG_1), number(NFTA_DUP_SREG_DEV, REG_2)]),
    ]
}

const NFTA_TPROXY_FAMILY: u16 = 1;
const NFTA_TPROXY_REG_ADDR: u16 = 2;
const NFTA_TPROXY_REG_PORT: u16 = 3;

/// Hands the packet to a local socket with this port. As long as a rule with this step exists, used or not, the
/// kernel reassembles fragments before routing.
pub(crate) fn transparent_proxy(port: u16) -> Vec<Expression> {
    let family = number(NFTA_TPROXY_FAMILY, libc::NFPROTO_IPV4 as u32);
    vec![
        immediate(REG_1, &port.to_be_bytes()),
        step("tproxy", &[family, number(NFTA_TPROXY_REG_PORT, REG_1)]),
    ]
}

/// Hands the packet to a local socket with this address and port; where there is none, the rule ends here. A
/// connection that exists takes its own packets.
pub(crate) fn transparent_proxy6(address: Ipv6Addr, port: u16) -> Vec<Expression> {
    let attributes = [
        number(NFTA_TPROXY_FAMILY, libc::NFPROTO_IPV6 as u32),
        number(NFTA_TPROXY_REG_ADDR, REG_1),
        number(NFTA_TPROXY_REG_PORT, REG_2),
    ];
    vec![
        immediate(REG_1, &address.octets()),
        immediate(REG_2, &port.to_be_bytes()),
        step("tproxy", &attributes),
    ]
}

/// Drops the packet, and answers with an ICMP error: destination unreachable, with this code.
pub(crate) fn reject(code: u8) -> Vec<Expression> {
    const NFTA_REJECT_TYPE: u16 = 1;
    const NFTA_REJECT_ICMP_CODE: u16 = 2;
    let kind = number(NFTA_REJECT_TYPE, libc::NFT_REJECT_ICMP_UNREACH as u32);
    vec![step("reject", &[kind, DefaultNla::new(NFTA_REJECT_ICMP_CODE, vec![code])])]
}

/// Goes on in another chain, and does not come back.
pub(crate) fn goto(chain: &str) -> Vec<Expression> {
    verdict(libc::NFT_GOTO, Some(chain))
}

/// Leaves the table.
pub(crate) fn accept() -> Vec<Expression> {
    verdict(libc::NF_ACCEPT, None)
}

/// Drops the packet.
pub(crate) fn drop() -> Vec<Expression> {
    verdict(libc::NF_DROP, None)
}

pub(super) fn verdict(code: c_int, chain: Option<&str>) -> Vec<Expression> {
    const NFTA_DATA_VERDICT: u16 = 2;
    const NFTA_VERDICT_CODE: u16 = 1;
    const NFTA_VERDICT_CHAIN: u16 = 2;
    let code = number(NFTA_VERDICT_CODE, code.cast_unsigned());
    let chain = chain.map(|chain| text(NFTA_VERDICT_CHAIN, chain));
    let parts: Vec<DefaultNla> = [code].into_iter().chain(chain).collect();
    let data = nested(NFTA_IMMEDIATE_DATA, &[nested(NFTA_DATA_VERDICT, &parts)]);
    let register = number(NFTA_IMMEDIATE_DREG, libc::NFT_REG_VERDICT as u32);
    vec![step("immediate", &[register, data])]
}

/// Address and number side by side, as the key of a set.
fn pair(address: Place, number_at: Place) -> [Expression; 2] {
    // The next four octets of the same register, under their other name.
    const NFT_REG32_01: u32 = libc::NFT_REG32_01 as u32;
    [payload(address, 4, REG_1), payload(number_at, 2, NFT_REG32_01)]
}

/// Adds to a set (`NFT_DYNSET_OP_*`) the key in the first register, with an expression that is kept with each entry.
pub(super) fn dynset(set: &str, operation: c_int, kept: Option<&Expression>) -> Expression {
    const NFTA_DYNSET_SET_NAME: u16 = 1;
    const NFTA_DYNSET_OP: u16 = 3;
    const NFTA_DYNSET_SREG_KEY: u16 = 4;
    let mut attributes = vec![
        text(NFTA_DYNSET_SET_NAME, set),
        number(NFTA_DYNSET_OP, operation.cast_unsigned()),
        number(NFTA_DYNSET_SREG_KEY, REG_1),
    ];
    attributes.extend(kept.cloned());
    step("dynset", &attributes)
}

const NFTA_META_KEY: u16 = 2;

/// Loads a fact about the packet (`NFT_META_*`).
fn meta(key: c_int) -> Expression {
    const NFTA_META_DREG: u16 = 1;
    step("meta", &[number(NFTA_META_DREG, REG_1), number(NFTA_META_KEY, key.cast_unsigned())])
}

/// Loads octets of the packet.
pub(super) fn payload((base, offset): Place, length: usize, register: u32) -> Expression {
    // Register, base, offset and length (`NFTA_PAYLOAD_*`).
    let attributes = [register, base as u32, offset, length as u32];
    let attributes: Vec<DefaultNla> =
        (1..).zip(attributes).map(|(kind, it)| number(kind, it)).collect();
    step("payload", &attributes)
}

/// Compares what a step has loaded.
pub(super) fn equal(load: Expression, octets: &[u8]) -> Vec<Expression> {
    vec![load, compare(libc::NFT_CMP_EQ, octets)]
}

pub(super) fn compare(operator: c_int, octets: &[u8]) -> Expression {
    const NFTA_CMP_SREG: u16 = 1;
    const NFTA_CMP_OP: u16 = 2;
    const NFTA_CMP_DATA: u16 = 3;
    let attributes = [
        number(NFTA_CMP_SREG, REG_1),
        number(NFTA_CMP_OP, operator.cast_unsigned()),
        value(NFTA_CMP_DATA, octets),
    ];
    step("cmp", &attributes)
}

const NFTA_IMMEDIATE_DREG: u16 = 1;
const NFTA_IMMEDIATE_DATA: u16 = 2;

pub(super) fn immediate(register: u32, octets: &[u8]) -> Expression {
    let register = number(NFTA_IMMEDIATE_DREG, register);
    step("immediate", &[register, value(NFTA_IMMEDIATE_DATA, octets)])
}

/// A step with its attributes.
pub(super) fn step(name: &str, attributes: &[DefaultNla]) -> Expression {
    const NFTA_LIST_ELEM: u16 = 1;
    nested(NFTA_LIST_ELEM, &named(name, attributes))
}

/// Name and attributes of an expression.
pub(super) fn named(name: &str, attributes: &[DefaultNla]) -> [DefaultNla; 2] {
    const NFTA_EXPR_NAME: u16 = 1;
    const NFTA_EXPR_DATA: u16 = 2;
    [text(NFTA_EXPR_NAME, name), nested(NFTA_EXPR_DATA, attributes)]
}

pub(super) fn value(kind: u16, octets: &[u8]) -> DefaultNla {
    const NFTA_DATA_VALUE: u16 = 1;
    nested(kind, &[DefaultNla::new(NFTA_DATA_VALUE, octets.to_vec())])
}
