//! Transport headers: checksums that cover addresses, and the TCP MSS (RFC 7915 sections 4.5, 5.5).

use core::net::{Ipv4Addr, Ipv6Addr};

use fordway_wire::checksum::{Sum, update, update_partial};
use fordway_wire::{get_u16, icmp, protocol, put_u16, tcp, transport};

use crate::config::{Config, UdpChecksumZero};
use crate::mapper::{Outgoing, Ports};
use crate::offload::{ChecksumState, GsoKind, own_partial};
use crate::packet::Packet;
use crate::trace::{ChecksumStep, Step, Trace};
use crate::tuple::Part;
use crate::verdict::DropReason;

/// A transport header in a packet.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Where it starts, in octets from the start of the packet.
    pub at: usize,
    /// Protocol number.
    pub protocol: u8,
    /// Which part of the original packet the packet is.
    pub part: Part,
}

/// What changes around and in a transport header.
///
/// Protocol and length are the same in both pseudo-headers of every transport but ICMP.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    /// The sum of the addresses before.
    pub(crate) old: Sum,
    /// The sum of the addresses now.
    pub(crate) new: Sum,
    /// The ports now; `None`: as before.
    pub(crate) ports: Option<Ports>,
}

impl Change {
    #[inline]
    pub(crate) fn v4_to_v6(old: (Ipv4Addr, Ipv4Addr), new: &Outgoing<Ipv6Addr>) -> Change {
        Change {
            old: Sum::ZERO.add_v4(old.0).add_v4(old.1),
            new: Sum::ZERO.add_v6(new.src.addr).add_v6(new.dst.addr),
            ports: new.ports,
        }
    }

    #[inline]
    pub(crate) fn v6_to_v4(old: (Ipv6Addr, Ipv6Addr), new: &Outgoing<Ipv4Addr>) -> Change {
        Change {
            old: Sum::ZERO.add_v6(old.0).add_v6(old.1),
            new: Sum::ZERO.add_v4(new.src.addr).add_v4(new.dst.addr),
            ports: new.ports,
        }
    }
}

/// Checks that the offload state fits the packet.
///
/// What passes here can be relied on: a partial checksum's field lies in the packet, in the transport
/// header or behind it, and a super-packet is whole, of the right protocol, and has its checksum partial.
pub fn check_offload(
    packet: &Packet<'_>,
    Segment { at, protocol, part }: Segment,
    tcp: GsoKind,
) -> Result<(), DropReason> {
    let gso = packet.offload.gso;
    let ChecksumState::Partial { start, offset } = packet.offload.checksum else {
        return if gso.kind == GsoKind::None { Ok(()) } else { Err(DropReason::BadOffload) };
    };
    let (start, offset) = (usize::from(start), usize::from(offset));
    let fits = start >= at && start + offset + 2 <= packet.len() && part == Part::Whole;
    let own = start == at;
    let right_field = match (own, protocol) {
        (true, protocol::ICMP | protocol::ICMPV6) => offset == icmp::CHECKSUM_AT,
        (true, _) => transport::checksum_at(protocol).is_none_or(|expected| offset == expected),
        // The checksum of a packet inside, where this one's payload may be a packet.
        (false, protocol::UDP) => start >= at + transport::UDP_HEADER_LEN,
        (false, protocol::ICMP | protocol::ICMPV6) => false,
        (false, _) => transport::checksum_at(protocol).is_none(),
    };
    let segment = &packet.bytes()[at.min(packet.len())..];
    let right_gso = match gso.kind {
        GsoKind::None => true,
        GsoKind::Udp => {
            own && protocol == protocol::UDP
                && gso.size > 0
                && segment.len() > transport::UDP_HEADER_LEN
        }
        kind => {
            own && protocol == protocol::TCP
                && kind == tcp
                && gso.size > 0
                && tcp::header_len(segment).is_some()
        }
    };
    if fits && right_field && right_gso { Ok(()) } else { Err(DropReason::BadOffload) }
}

/// Corrects a transport header for changed addresses and ports. ICMP is not handled here.
///
/// `to_v6`: the packet becomes IPv6, where UDP must have a checksum (RFC 8200 section 8.1).
#[inline]
pub(crate) fn translate(
    config: &Config,
    packet: &mut Packet<'_>,
    segment: Segment,
    change: Change,
    to_v6: bool,
    trace: &mut impl Trace,
) -> Result<(), DropReason> {
    let step = match transport::checksum_at(segment.protocol) {
        Some(field) if segment.part != Part::Later => {
            if segment.protocol == protocol::TCP && config.mss_clamp {
                clamp_mss_to_both(config, packet, segment.at, trace);
            }
            correct(config, packet, segment, field, change, to_v6, trace)?
        }
        _ => ChecksumStep::Untouched,
    };
    trace.step(Step::Checksum(step));
    Ok(())
}

#[inline]
fn correct(
    config: &Config,
    packet: &mut Packet<'_>,
    Segment { at, protocol, part }: Segment,
    field: usize,
    change: Change,
    to_v6: bool,
    trace: &mut impl Trace,
) -> Result<ChecksumStep, DropReason> {
    // Of a tiny first fragment the checksum lies in the next one, out of reach (RFC 1858).
    let minimum = if protocol == protocol::TCP { tcp::HEADER_LEN } else { field + 2 };
    let own_partial = own_partial(packet.offload.checksum, at);
    let segment = packet.bytes_mut().get_mut(at..).unwrap_or_default();
    if segment.len() < minimum {
        return Err(DropReason::Truncated);
    }
    let checksum = get_u16(segment, field);
    if protocol == protocol::UDP && checksum == 0 && to_v6 && !own_partial {
        may_lack_checksum(config, part)?;
    }
    let ports = change.ports.map(|ports| put_ports(segment, ports, trace));
    if own_partial {
        // The field holds the pseudo-header alone; the device sums the ports.
        put_u16(segment, field, update_partial(checksum, change.old, change.new));
        return Ok(ChecksumStep::Partial);
    }
    if protocol == protocol::UDP && checksum == 0 && to_v6 {
        return udp_without_checksum(config, packet, at, change.new);
    }
    if protocol == protocol::UDP && checksum == 0 {
        // RFC 6935: a zero checksum over IPv6 stays what it is.
        return Ok(ChecksumStep::Untouched);
    }
    let mut updated = update(checksum, change.old, change.new);
    if let Some((old, new)) = ports {
        updated = update(updated, old, new);
    }
    put_u16(segment, field, transport::never_zero(protocol, updated));
    Ok(ChecksumStep::Updated)
}

/// Writes ports into a TCP or UDP header; returns the sums of the ports before and now.
pub(crate) fn put_ports(segment: &mut [u8], ports: Ports, trace: &mut impl Trace) -> (Sum, Sum) {
    let from = (get_u16(segment, 0), get_u16(segment, 2));
    put_u16(segment, 0, ports.src);
    put_u16(segment, 2, ports.dst);
    trace.step(Step::Ports { from, to: (ports.src, ports.dst) });
    let sum = |(src, dst)| Sum::ZERO.add_u16(src).add_u16(dst);
    (sum(from), sum((ports.src, ports.dst)))
}

/// RFC 7915 section 4.5: whether UDP over IPv4 without a checksum is translated. Checked before the packet is changed,
/// because an ICMP error quotes it.
fn may_lack_checksum(config: &Config, part: Part) -> Result<(), DropReason> {
    match config.udp_checksum_zero {
        UdpChecksumZero::Drop => Err(DropReason::UdpChecksumZero),
        UdpChecksumZero::Compute if part != Part::Whole => Err(DropReason::UdpChecksumZeroFragment),
        UdpChecksumZero::Compute | UdpChecksumZero::Pass => Ok(()),
    }
}

/// RFC 7915 section 4.5: UDP over IPv4 without a checksum gets one.
fn udp_without_checksum(
    config: &Config,
    packet: &mut Packet<'_>,
    at: usize,
    addresses: Sum,
) -> Result<ChecksumStep, DropReason> {
    if config.udp_checksum_zero == UdpChecksumZero::Pass {
        return Ok(ChecksumStep::Untouched);
    }
    // A tunnel's inner checksum may still be partial; the sum must cover it completed.
    packet.complete_checksum();
    let segment = packet.bytes_mut().get_mut(at..).unwrap_or_default();
    let len = transport::udp_len(segment);
    if len < transport::UDP_HEADER_LEN || len > segment.len() {
        return Err(DropReason::Truncated);
    }
    let sum =
        addresses.add_u16(u16::from(protocol::UDP)).add_u32(len as u32).add_bytes(&segment[..len]);
    put_u16(
        segment,
        transport::UDP_CHECKSUM_AT,
        transport::never_zero(protocol::UDP, sum.finish()),
    );
    Ok(ChecksumStep::Computed)
}

/// Lowers the MSS option of a SYN to what fits both sides without fragments.
///
/// Source: RFC 9293 section 3.7.1: the MSS counts neither IP nor TCP header, 40 octets over IPv4 and
/// 60 over IPv6.
fn clamp_mss_to_both(config: &Config, packet: &mut Packet<'_>, at: usize, trace: &mut impl Trace) {
    let limit = config.mtu4.saturating_sub(40).min(config.mtu6.saturating_sub(60));
    if let Ok(limit) = u16::try_from(limit) {
        clamp_mss(packet, at, limit, trace);
    }
}

/// Lowers the MSS option to `limit` octets, if the TCP segment at octet `at` is a SYN that has more.
pub fn clamp_mss(packet: &mut Packet<'_>, at: usize, limit: u16, trace: &mut impl Trace) {
    let own_partial = own_partial(packet.offload.checksum, at);
    let segment = packet.bytes_mut().get_mut(at..).unwrap_or_default();
    if !tcp::is_syn(segment) {
        return;
    }
    let Some((mss_at, from)) = tcp::mss(segment) else {
        return;
    };
    if from <= limit {
        return;
    }
    put_u16(segment, mss_at, limit);
    if !own_partial {
        // An option may start at an odd offset: its octets then stand swapped in the sum.
        let word = |value: u16| {
            if mss_at % 2 == 0 { value } else { value.swap_bytes() }
        };
        let (old, new) = (Sum::ZERO.add_u16(word(from)), Sum::ZERO.add_u16(word(limit)));
        let checksum = get_u16(segment, tcp::CHECKSUM_AT);
        put_u16(segment, tcp::CHECKSUM_AT, update(checksum, old, new));
    }
    trace.step(Step::MssClamped { from, to: limit });
}
