//! ICMP errors: the message around the inner packet.

use fordway_wire::checksum::{Sum, pseudo_v6};
use fordway_wire::icmp::{self, IcmpHeader};
use fordway_wire::ipv6::Ipv6Header;

use crate::config::Config;
use crate::mapper::{Mapper, Pass};
use crate::offload::{ChecksumState, own_partial};
use crate::packet::Packet;
use crate::trace::{Step, Trace};
use crate::verdict::DropReason;

use super::extension::{self, Layout, Message};
use super::{inner, maps, put_front};

/// Translates the ICMPv4 error at `at`. The packet is then the ICMPv6 message alone, its checksum
/// still to be computed.
pub(crate) fn error_v4_to_v6(
    config: &Config,
    mapper: &mut impl Mapper,
    packet: &mut Packet<'_>,
    at: usize,
    pass: Pass,
    trace: &mut impl Trace,
) -> Result<(), DropReason> {
    let message = &packet.bytes()[at..];
    let icmp = IcmpHeader::parse(message).ok_or(DropReason::Truncated)?;
    verify(packet, at, Sum::ZERO)?;
    let layout = Layout::of_v4(&icmp, &packet.bytes()[at..]);

    trace.step(Step::Inner);
    let original = packet.bytes_mut().get_mut(layout.original_range(at)).unwrap_or_default();
    let (inner, total_len) = inner::v4_to_v6(config, mapper, original, pass, trace)?;
    trace.step(Step::InnerEnd);

    let new = maps::error_v4_to_v6(config, icmp, total_len, trace)?;
    replace_front(packet, at, layout, &inner, Message::V6(new.kind), new, trace)
}

/// Translates the ICMPv6 error at `at`. The packet is then the ICMPv4 message alone, its checksum
/// still to be computed.
pub(crate) fn error_v6_to_v4(
    config: &Config,
    mapper: &mut impl Mapper,
    packet: &mut Packet<'_>,
    at: usize,
    trace: &mut impl Trace,
) -> Result<(), DropReason> {
    let message = &packet.bytes()[at..];
    let icmp = IcmpHeader::parse(message).ok_or(DropReason::Truncated)?;
    let outer = Ipv6Header::parse(packet.bytes()).map_err(|_| DropReason::Truncated)?;
    let len = message.len() as u32;
    verify(packet, at, pseudo_v6(outer.src, outer.dst, fordway_wire::protocol::ICMPV6, len))?;
    let layout = Layout::of_v6(&icmp, &packet.bytes()[at..]);

    trace.step(Step::Inner);
    let original = packet.bytes_mut().get_mut(layout.original_range(at)).unwrap_or_default();
    let (inner, has_fragment_header) = inner::v6_to_v4(config, mapper, original, trace)?;
    trace.step(Step::InnerEnd);

    let new = maps::error_v6_to_v4(config, icmp, has_fragment_header, trace)?;
    replace_front(packet, at, layout, &inner, Message::V4, new, trace)
}

/// A wrong checksum must not come out right, and here it is computed anew: so it is verified first.
/// One that the host vouches for, or that is still partial, is right.
fn verify(packet: &Packet<'_>, at: usize, pseudo: Sum) -> Result<(), DropReason> {
    let vouched = packet.offload.checksum == ChecksumState::Verified
        || own_partial(packet.offload.checksum, at);
    if vouched || pseudo.add_bytes(&packet.bytes()[at..]).fold() == 0xffff {
        Ok(())
    } else {
        Err(DropReason::BadIcmpChecksum)
    }
}

/// Replaces outer header, ICMP header and inner header by the new ICMP and inner headers, and moves the extensions.
fn replace_front(
    packet: &mut Packet<'_>,
    at: usize,
    layout: Layout,
    inner: &inner::Translated,
    message: Message,
    mut new: maps::ErrorHeader,
    trace: &mut impl Trace,
) -> Result<(), DropReason> {
    if let Some(original) = extension::refit(packet, at, layout, inner, message) {
        trace.step(Step::Extension { original, extension: layout.extension_len() });
        new.rest |= message.length(original);
    }
    if !packet.shrink_front(at + icmp::HEADER_LEN + inner.old_len) {
        return Err(DropReason::IcmpInner);
    }
    put_front(packet, &inner.header, inner.header_len)?;
    let header = IcmpHeader { kind: new.kind, code: new.code, checksum: 0, rest: new.rest };
    put_front(packet, &header.to_bytes(), icmp::HEADER_LEN)
}
