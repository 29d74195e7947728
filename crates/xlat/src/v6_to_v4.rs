//! IPv6 to IPv4 (RFC 7915 section 5).

use core::net::Ipv6Addr;

use fordway_wire::checksum::{Sum, pseudo_v6};
use fordway_wire::ipv4::{self, Ipv4Header};
use fordway_wire::ipv6::{self, Extensions, FragmentHeader, Ipv6Error, Ipv6Header};
use fordway_wire::protocol;

use crate::addr::{Via, classify};
use crate::config::{Config, IPV6_MIN_MTU};
use crate::fragment::Plan;
use crate::header::v6_to_v4::{DF_CLEAR_MAX, check_protocol, new_header};
use crate::icmp;
use crate::identification::Ends;
use crate::mapper::{Mapper, Pass};
use crate::mapping;
use crate::offload::{GsoKind, segment_header_len};
use crate::packet::Packet;
use crate::state::State;
use crate::stop::Stop;
use crate::trace::{Step, Trace};
use crate::transport::{self, Change, Segment};
use crate::tuple::{Incoming, Part};
use crate::v4_to_v6;
use crate::verdict::{DropReason, IcmpErrorKind, Verdict};

/// Translates a packet whose first octet says IPv6.
pub(crate) fn translate<M: Mapper>(
    config: &Config,
    mapper: &mut M,
    packet: &mut Packet<'_>,
    state: &mut State,
    trace: &mut impl Trace,
) -> Result<Verdict, Stop> {
    let (header, extensions) = validate(packet).map_err(|reason| match reason {
        DropReason::FragmentExtension => behind_fragment(config, mapper, packet),
        reason => reason.into(),
    })?;
    let at = extensions.header_len;
    let payload_len = packet.len() - at;
    let part = extensions.fragment.map_or(Part::Whole, |f| Part::of(f.offset, f.more));
    trace.step(Step::HeaderV6 { header: at, payload: payload_len, protocol: extensions.protocol });
    let segment = Segment { at, protocol: extensions.protocol, part };
    transport::check_offload(packet, segment, GsoKind::TcpV6)?;
    let ends = (header.src, header.dst);
    let incoming = Incoming::new(packet.bytes(), at, ends, extensions.protocol, part);
    check_addresses(&incoming)?;
    let admitted = mapper.admit_v6(&incoming, trace)?;
    check_routing_header(&extensions, trace)?;
    let ttl = hop_limit(config, &header, trace)?;
    let protocol = check_protocol(extensions.protocol)?;
    check_fragment(&extensions, payload_len, trace)?;
    let hairpin = mapper.hairpins(&incoming, &admitted)?;
    let outgoing = mapper.map_v6(&incoming, admitted, trace)?;
    // Pieces keep the Identification that they have in common.
    let kept = match extensions.fragment {
        Some(_) if part == Part::Whole && mapper.shares_addresses() => None,
        fragment => fragment,
    };

    let mut new =
        Ipv4Header { ttl, ..new_header(config, &header, extensions.fragment, protocol, &outgoing) };
    let split = if incoming.is_icmp_error {
        icmp::error_v6_to_v4(config, mapper, packet, at, trace)?;
        if config.icmp_node_id && outgoing.src.via == Via::IcmpSource {
            icmp::add_node(packet, header.src, trace);
        }
        let size = size_of_error(config, packet, hairpin);
        new.total_len = size.total_len as u16;
        new.dont_fragment = size.dont_fragment;
        new.identification = identification(state, kept, &new, 1);
        icmp::finish_v4(packet, &new)?;
        size.split
    } else {
        let size = size(config, packet, &extensions, hairpin, trace)?;
        new.total_len = size.total_len as u16;
        new.dont_fragment = size.dont_fragment;
        new.identification = identification(state, kept, &new, packet.segments());
        trace.step(Step::DontFragment(size.dont_fragment));
        if extensions.protocol == protocol::ICMPV6 {
            let pseudo = pseudo_v6(header.src, header.dst, protocol::ICMPV6, payload_len as u32);
            let identifier = outgoing.ports.map(|ports| ports.src);
            let sums = (pseudo, Sum::ZERO);
            icmp::query(packet, at, sums, icmp::maps::query_v6_to_v4, identifier, trace)?;
        } else {
            let change = Change::v6_to_v4(ends, &outgoing);
            transport::translate(config, packet, segment, change, false, trace)?;
        }
        packet.replace_header(at, &new.to_bytes())?;
        size.split
    };
    if let Some(limit) = split {
        trace.step(Step::Split(limit));
        packet.split(Plan::new(limit, ipv4::HEADER_LEN));
    }
    if hairpin {
        trace.step(M::HAIRPIN);
        return v4_to_v6::translate(config, mapper, packet, Pass::Hairpin, trace);
    }
    Ok(Verdict::Forward)
}

/// Lengths, version, extension headers; cuts off what lies behind Payload Length.
fn validate(packet: &mut Packet<'_>) -> Result<(Ipv6Header, Extensions), DropReason> {
    let bytes = packet.bytes();
    let header = Ipv6Header::parse(bytes).map_err(reason)?;
    let len = ipv6::HEADER_LEN + usize::from(header.payload_len);
    let whole = bytes.get(..len).ok_or(DropReason::Truncated)?;
    let extensions = ipv6::walk(whole, header.next_header).map_err(reason)?;
    packet.truncate(len);
    Ok((header, extensions))
}

/// A Fragment Header is followed by another extension header. RFC 7915 section 5.1.1: such a packet is dropped; section
/// 5.4: its sender gets an ICMP error, if the packet is for the translator and may be answered.
#[cold]
fn behind_fragment<M: Mapper>(config: &Config, mapper: &M, packet: &Packet<'_>) -> Stop {
    let reason = DropReason::FragmentExtension;
    let Ok(header) = Ipv6Header::parse(packet.bytes()) else { return Stop::silent(reason) };
    let illegal = classify::illegal_v6(header.dst).or_else(|| classify::illegal_v6(header.src));
    if let Some(reason) = illegal {
        return reason.into();
    }
    // RFC 6146 section 3.5: against loops.
    if mapper.shares_addresses() && config.pool6.iter().any(|pool6| pool6.contains(header.src)) {
        return Stop::silent(DropReason::Loop);
    }
    match mapping::map_v6(config, header.dst) {
        Ok(_) => Stop::answered(reason, IcmpErrorKind::AdministrativelyProhibited),
        Err(unmapped) => unmapped.as_destination().into(),
    }
}

fn reason(error: Ipv6Error) -> DropReason {
    match error {
        Ipv6Error::Truncated => DropReason::Truncated,
        Ipv6Error::Version => DropReason::BadVersion,
        Ipv6Error::ExtensionBehindFragment => DropReason::FragmentExtension,
    }
}

/// RFC 7915 section 5.1: addresses that can't be on a wire.
#[inline]
fn check_addresses(incoming: &Incoming<'_, Ipv6Addr>) -> Result<(), DropReason> {
    match classify::illegal_v6(incoming.dst).or_else(|| classify::illegal_v6(incoming.src)) {
        Some(reason) => Err(reason),
        None => Ok(()),
    }
}

/// RFC 7915 section 5.1: extension headers are left out, unless a Routing header has segments left.
fn check_routing_header(extensions: &Extensions, trace: &mut impl Trace) -> Result<(), Stop> {
    if let Some(at) = extensions.segments_left_at {
        let answer = IcmpErrorKind::ParameterProblem { pointer: at as u32 };
        return Err(Stop::answered(DropReason::RoutingHeader, answer));
    }
    if extensions.skipped() > 0 {
        trace.step(Step::ExtensionsSkipped(extensions.skipped()));
    }
    Ok(())
}

/// RFC 7915 section 5.1, "Time to Live".
fn hop_limit(config: &Config, header: &Ipv6Header, trace: &mut impl Trace) -> Result<u8, Stop> {
    let hops = u8::from(config.decrement_hop_limit.v6_to_v4);
    if header.hop_limit <= hops {
        return Err(Stop::hop_limit());
    }
    let ttl = header.hop_limit - hops;
    trace.step(Step::HopLimit(ttl));
    Ok(ttl)
}

fn check_fragment(
    extensions: &Extensions,
    payload: usize,
    trace: &mut impl Trace,
) -> Result<(), DropReason> {
    let Some(FragmentHeader { offset, more, identification, .. }) = extensions.fragment else {
        return Ok(());
    };
    // RFC 8200 section 4.5: pieces but the last are multiples of 8, and all end within 65,535.
    let bad_length = more && (!payload.is_multiple_of(8) || payload == 0);
    if bad_length || offset + payload + ipv4::HEADER_LEN > ipv4::MAX_LEN {
        return Err(DropReason::BadFragment);
    }
    trace.step(Step::Fragment { offset, more, identification });
    if extensions.protocol == protocol::ICMPV6 && (offset != 0 || more) {
        return Err(DropReason::FragmentedIcmp);
    }
    Ok(())
}

/// How long the IPv4 packet is, and how it leaves.
struct Size {
    total_len: usize,
    dont_fragment: bool,
    /// It has to leave in fragments of at most so many octets.
    split: Option<usize>,
}

/// RFC 7915 section 5.1 ("Total Length", "Flags") and the end of section 5.1.1.
fn size(
    config: &Config,
    packet: &mut Packet<'_>,
    extensions: &Extensions,
    hairpin: bool,
    trace: &mut impl Trace,
) -> Result<Size, Stop> {
    let segment = &packet.bytes()[extensions.header_len..];
    let total_len = ipv4::HEADER_LEN + segment.len();
    let gso = packet.offload.gso;
    // What counts is the packet on the wire: one segment of a super-packet.
    let len = match gso.kind {
        GsoKind::None => total_len,
        kind => {
            let header = segment_header_len(kind, segment);
            ipv4::HEADER_LEN + header + usize::from(gso.size)
        }
    };
    let dont_fragment = extensions.fragment.is_none() && len > DF_CLEAR_MAX;
    // A hairpinned packet does not see the IPv4 network.
    let mtu4 = if hairpin { ipv4::MAX_LEN } else { (config.mtu4 as usize).min(ipv4::MAX_LEN) };
    let split = len > mtu4;
    if split && !dont_fragment && gso.kind == GsoKind::TcpV6 && len - mtu4 < usize::from(gso.size) {
        // Smaller segments do what fragments would.
        let to = gso.size - (len - mtu4) as u16;
        packet.offload.gso.size = to;
        trace.step(Step::SegmentSize { from: gso.size, to });
        return Ok(Size { total_len, dont_fragment, split: None });
    }
    if total_len > ipv4::MAX_LEN || split && (dont_fragment || gso.kind != GsoKind::None) {
        let mtu = mtu4 + ipv6::HEADER_LEN - ipv4::HEADER_LEN;
        return Err(Stop::too_big(mtu.max(IPV6_MIN_MTU as usize)));
    }
    Ok(Size { total_len, dont_fragment, split: split.then_some(mtu4) })
}

/// [`size`] for an ICMP error, whose message `packet` is. One that is too long is fragmented, whatever DF would be: no
/// ICMP error is sent about an error.
fn size_of_error(config: &Config, packet: &Packet<'_>, hairpin: bool) -> Size {
    let total_len = ipv4::HEADER_LEN + packet.len();
    let split = (!hairpin && total_len > config.mtu4 as usize).then_some(config.mtu4 as usize);
    let dont_fragment = total_len > DF_CLEAR_MAX && split.is_none();
    Size { total_len, dont_fragment, split }
}

/// RFC 7915 sections 5.1 and 5.1.1: the Fragment Header's low 16 bits, or the generator's next. A
/// super-packet takes one for each segment.
fn identification(
    state: &mut State,
    fragment: Option<FragmentHeader>,
    new: &Ipv4Header,
    segments: usize,
) -> u16 {
    match fragment {
        Some(fragment) => fragment.identification as u16,
        None if new.dont_fragment => state.next_identification(segments),
        None => {
            let ends = Ends { src: new.src, dst: new.dst, protocol: new.protocol };
            state.next_identification_of(ends, segments)
        }
    }
}
