//! ICMP messages (RFC 7915 sections 4.2, 4.3, 5.2 and 5.3).
//!
//! Queries keep their body: type and checksum change. An error is taken apart from the front: the
//! outer IP header goes, ICMP and inner header are written anew in front of the inner packet's
//! payload, which stays where it is; then the outer header is put in front and the checksum is
//! computed over what has become a new message.

mod error;
mod extension;
mod inner;
pub(crate) mod maps;
mod node;

pub(crate) use error::{error_v4_to_v6, error_v6_to_v4};
pub(crate) use node::add_node;

use fordway_wire::checksum::{Sum, pseudo_v6, update, update_partial};
use fordway_wire::icmp::{self, CHECKSUM_AT};
use fordway_wire::ipv4::{self, Ipv4Header};
use fordway_wire::ipv6::{self, Ipv6Header};
use fordway_wire::{get_u8, get_u16, put_u8, put_u16};

use crate::config::IPV6_MIN_MTU;
use crate::offload::{ChecksumState, own_partial};
use crate::packet::Packet;
use crate::trace::{ChecksumStep, Step, Trace};
use crate::tuple::IDENTIFIER_AT;
use crate::verdict::DropReason;

/// Octets of an ICMPv4 error at most: of those that are originated here (RFC 1812 section 4.3.2.3), and of
/// those with extensions (RFC 4884 section 7).
pub(crate) const ERROR_MAX_V4: usize = 576;

/// Octets of an ICMPv6 error at most (RFC 4443 section 2.4 (c)).
pub(crate) const ERROR_MAX_V6: usize = IPV6_MIN_MTU as usize;

/// Translates an ICMP query at `at` into the type that `map` gives. `old_pseudo`, `new_pseudo`: the sums of the
/// pseudo-headers, of which ICMPv4 has none; `identifier`: the new one, `None`: as before.
pub(crate) fn query(
    packet: &mut Packet<'_>,
    at: usize,
    (old_pseudo, new_pseudo): (Sum, Sum),
    map: fn(u8) -> Option<u8>,
    identifier: Option<u16>,
    trace: &mut impl Trace,
) -> Result<(), DropReason> {
    let partial = own_partial(packet.offload.checksum, at);
    let message = packet.bytes_mut().get_mut(at..).unwrap_or_default();
    if message.len() < icmp::HEADER_LEN {
        return Err(DropReason::Truncated);
    }
    let (from, code) = (get_u8(message, 0), get_u8(message, 1));
    let to = map(from).ok_or(DropReason::IcmpType)?;
    trace.step(Step::Icmp { from: (from, code), to: (to, code) });
    let checksum = get_u16(message, CHECKSUM_AT);
    put_u8(message, 0, to);
    let (old_id, new_id) = match identifier {
        Some(identifier) => put_identifier(message, identifier, trace),
        None => (Sum::ZERO, Sum::ZERO),
    };
    if partial {
        // The device will sum the message as it is now; the field holds the pseudo-header.
        let checksum = update_partial(checksum, old_pseudo, new_pseudo);
        put_u16(message, CHECKSUM_AT, checksum);
        trace.step(Step::Checksum(ChecksumStep::Partial));
        return Ok(());
    }
    let old = (old_pseudo + old_id).add_u16(u16::from_be_bytes([from, code]));
    let new = (new_pseudo + new_id).add_u16(u16::from_be_bytes([to, code]));
    let updated = match update(checksum, old, new) {
        // Only an ICMPv4 message can be zero throughout (IPv6 has a pseudo-header). Its checksum is all
        // ones, which equation 3 of RFC 1624 can't tell from zero.
        0 if is_zero(message) => 0xffff,
        updated => updated,
    };
    put_u16(message, CHECKSUM_AT, updated);
    trace.step(Step::Checksum(ChecksumStep::Updated));
    Ok(())
}

/// Writes the identifier of a query; returns the sums of the one before and of this one.
fn put_identifier(message: &mut [u8], to: u16, trace: &mut impl Trace) -> (Sum, Sum) {
    let from = get_u16(message, IDENTIFIER_AT);
    put_u16(message, IDENTIFIER_AT, to);
    trace.step(Step::Identifier { from, to });
    (Sum::ZERO.add_u16(from), Sum::ZERO.add_u16(to))
}

/// Whether a message is zero but for its checksum field: an echo reply of ICMPv4 with nothing in it.
fn is_zero(message: &[u8]) -> bool {
    message.iter().enumerate().all(|(at, &octet)| octet == 0 || (2..4).contains(&at))
}

/// Puts `outer`, with its length, in front of the ICMPv6 message that `packet` is, and computes its
/// checksum.
pub(crate) fn finish_v6(packet: &mut Packet<'_>, outer: Ipv6Header) -> Result<(), DropReason> {
    let outer = Ipv6Header { payload_len: packet.len() as u16, ..outer };
    let len = u32::from(outer.payload_len);
    write_checksum(packet, pseudo_v6(outer.src, outer.dst, outer.next_header, len));
    put_front(packet, &outer.to_bytes(), ipv6::HEADER_LEN)
}

/// Puts `outer` in front of the ICMPv4 message that `packet` is, and computes its checksum.
pub(crate) fn finish_v4(packet: &mut Packet<'_>, outer: &Ipv4Header) -> Result<(), DropReason> {
    write_checksum(packet, Sum::ZERO);
    put_front(packet, &outer.to_bytes(), ipv4::HEADER_LEN)
}

/// Computes the checksum of the ICMP message that `packet` is. Its offload state is then complete.
fn write_checksum(packet: &mut Packet<'_>, pseudo: Sum) {
    let message = packet.bytes_mut();
    put_u16(message, CHECKSUM_AT, 0);
    let checksum = pseudo.add_bytes(message).finish();
    put_u16(message, CHECKSUM_AT, checksum);
    if packet.offload.checksum != ChecksumState::Verified {
        packet.offload.checksum = ChecksumState::Complete;
    }
}

/// Puts a header in front of the packet.
pub(crate) fn put_front(
    packet: &mut Packet<'_>,
    header: &[u8],
    len: usize,
) -> Result<(), DropReason> {
    if !packet.grow_front(len) {
        return Err(DropReason::NoHeadroom);
    }
    packet.bytes_mut()[..len].copy_from_slice(&header[..len]);
    Ok(())
}
