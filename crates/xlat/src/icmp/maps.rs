//! Types, codes, pointers and MTUs (RFC 7915 sections 4.2 and 5.2).

use fordway_wire::icmp::{IcmpHeader, v4, v6};

use crate::config::{Config, IPV4_MIN_MTU, IPV6_MIN_MTU};
use crate::trace::{Step, Trace};
use crate::verdict::DropReason;

/// The new first octets of an ICMP error: type, code, rest of header; checksum and the length field
/// of RFC 4884 are left zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ErrorHeader {
    pub(super) kind: u8,
    pub(super) code: u8,
    pub(super) rest: u32,
}

/// RFC 7915 section 4.2, queries.
pub(crate) fn query_v4_to_v6(kind: u8) -> Option<u8> {
    match kind {
        v4::ECHO => Some(v6::ECHO_REQUEST),
        v4::ECHO_REPLY => Some(v6::ECHO_REPLY),
        _ => None,
    }
}

/// RFC 7915 section 5.2, informational messages.
pub(crate) fn query_v6_to_v4(kind: u8) -> Option<u8> {
    match kind {
        v6::ECHO_REQUEST => Some(v4::ECHO),
        v6::ECHO_REPLY => Some(v4::ECHO_REPLY),
        _ => None,
    }
}

/// RFC 7915 section 4.2, error messages. `total_len`: octets of the packet that the error is about.
pub(super) fn error_v4_to_v6(
    config: &Config,
    icmp: IcmpHeader,
    total_len: usize,
    trace: &mut impl Trace,
) -> Result<ErrorHeader, DropReason> {
    let plain = |kind, code| Ok(ErrorHeader { kind, code, rest: 0 });
    let new = match (icmp.kind, icmp.code) {
        (v4::UNREACHABLE, 0 | 1 | 5..=8 | 11 | 12) => plain(v6::UNREACHABLE, 0),
        (v4::UNREACHABLE, 2) => {
            // Protocol unreachable: the pointer points to the IPv6 Next Header field.
            Ok(ErrorHeader { kind: v6::PARAMETER_PROBLEM, code: 1, rest: 6 })
        }
        (v4::UNREACHABLE, 3) => plain(v6::UNREACHABLE, 4),
        (v4::UNREACHABLE, v4::FRAGMENTATION_NEEDED) => {
            let from = icmp.rest & 0xffff;
            let rest = mtu_v4_to_v6(config, from, total_len);
            trace.step(Step::Mtu { from, to: rest });
            Ok(ErrorHeader { kind: v6::PACKET_TOO_BIG, code: 0, rest })
        }
        (v4::UNREACHABLE, 9 | 10 | 13 | 15) => plain(v6::UNREACHABLE, 1),
        (v4::TIME_EXCEEDED, code) => plain(v6::TIME_EXCEEDED, code),
        (v4::PARAMETER_PROBLEM, 0 | 2) => {
            let from = icmp.rest >> 24;
            let rest = pointer_v4_to_v6(from).ok_or(DropReason::IcmpPointer)?;
            trace.step(Step::Pointer { from, to: rest });
            Ok(ErrorHeader { kind: v6::PARAMETER_PROBLEM, code: 0, rest })
        }
        (v4::UNREACHABLE | v4::PARAMETER_PROBLEM, _) => Err(DropReason::IcmpCode),
        _ => Err(DropReason::IcmpType),
    }?;
    trace.step(Step::Icmp { from: (icmp.kind, icmp.code), to: (new.kind, new.code) });
    Ok(new)
}

/// RFC 7915 section 5.2, error messages. `has_fragment_header`: of the packet that the error is about.
pub(super) fn error_v6_to_v4(
    config: &Config,
    icmp: IcmpHeader,
    has_fragment_header: bool,
    trace: &mut impl Trace,
) -> Result<ErrorHeader, DropReason> {
    let plain = |kind, code| Ok(ErrorHeader { kind, code, rest: 0 });
    let new = match (icmp.kind, icmp.code) {
        (v6::UNREACHABLE, 0 | 2 | 3) => plain(v4::UNREACHABLE, 1),
        (v6::UNREACHABLE, 1) => plain(v4::UNREACHABLE, 10),
        (v6::UNREACHABLE, 4) => plain(v4::UNREACHABLE, 3),
        (v6::PACKET_TOO_BIG, _) => {
            let rest = mtu_v6_to_v4(config, icmp.rest, has_fragment_header);
            trace.step(Step::Mtu { from: icmp.rest, to: rest });
            Ok(ErrorHeader { kind: v4::UNREACHABLE, code: v4::FRAGMENTATION_NEEDED, rest })
        }
        (v6::TIME_EXCEEDED, code) => plain(v4::TIME_EXCEEDED, code),
        (v6::PARAMETER_PROBLEM, 0) => {
            let to = pointer_v6_to_v4(icmp.rest).ok_or(DropReason::IcmpPointer)?;
            trace.step(Step::Pointer { from: icmp.rest, to });
            Ok(ErrorHeader { kind: v4::PARAMETER_PROBLEM, code: 0, rest: to << 24 })
        }
        (v6::PARAMETER_PROBLEM, 1) => plain(v4::UNREACHABLE, 2),
        (v6::UNREACHABLE | v6::PARAMETER_PROBLEM, _) => Err(DropReason::IcmpCode),
        _ => Err(DropReason::IcmpType),
    }?;
    trace.step(Step::Icmp { from: (icmp.kind, icmp.code), to: (new.kind, new.code) });
    Ok(new)
}

/// RFC 7915 figure 3.
fn pointer_v4_to_v6(pointer: u32) -> Option<u32> {
    match pointer {
        0 | 1 => Some(pointer),
        2 | 3 => Some(4),
        8 => Some(7),
        9 => Some(6),
        12..=15 => Some(8),
        16..=19 => Some(24),
        _ => None,
    }
}

/// RFC 7915 figure 6.
fn pointer_v6_to_v4(pointer: u32) -> Option<u32> {
    match pointer {
        0 | 1 => Some(pointer),
        4 | 5 => Some(2),
        6 => Some(9),
        7 => Some(8),
        8..=23 => Some(12),
        24..=39 => Some(16),
        _ => None,
    }
}

/// RFC 1191 section 7, table 7-1: plateaus of 1280 octets and more, greatest first.
const PLATEAUS: [u32; 7] = [65_535, 32_000, 17_914, 8_166, 4_352, 2_002, 1_492];

/// RFC 7915 section 4.2, code 4: the MTU of a Packet Too Big.
///
/// A router that gave none is taken to have given the greatest plateau below the length of the packet
/// that did not fit.
fn mtu_v4_to_v6(config: &Config, mtu: u32, total_len: usize) -> u32 {
    let mtu = match mtu {
        0 => PLATEAUS.into_iter().find(|&plateau| (plateau as usize) < total_len).unwrap_or(0),
        mtu => mtu,
    };
    (mtu + 20).min(config.mtu6).min(config.mtu4.saturating_add(20)).max(IPV6_MIN_MTU)
}

/// RFC 7915 section 5.2: the MTU of a Fragmentation Needed. 20 octets less, and the 8 of a Fragment
/// Header if the packet that did not fit had one.
fn mtu_v6_to_v4(config: &Config, mtu: u32, has_fragment_header: bool) -> u32 {
    let less = if has_fragment_header { 28 } else { 20 };
    let mtu = mtu.saturating_sub(less).min(config.mtu4).min(config.mtu6.saturating_sub(20));
    mtu.clamp(IPV4_MIN_MTU, 65_535)
}
