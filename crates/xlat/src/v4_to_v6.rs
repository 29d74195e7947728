//! IPv4 to IPv6 (RFC 7915 section 4).

use core::net::Ipv4Addr;

use fordway_wire::checksum::{Sum, pseudo_v6};
use fordway_wire::ipv4::{self, Ipv4Error, Ipv4Header};
use fordway_wire::ipv6::{self, Ipv6Header};
use fordway_wire::protocol;

use crate::addr::classify;
use crate::config::Config;
use crate::fragment::Plan;
use crate::header::v4_to_v6::{HEADER_MAX, check_protocol, new_header, with_fragment_header};
use crate::icmp;
use crate::mapper::{Mapper, Pass};
use crate::offload::{Gso, GsoKind, segment_header_len};
use crate::packet::Packet;
use crate::stop::Stop;
use crate::trace::{Step, Trace};
use crate::transport::{self, Change, Segment};
use crate::tuple::{Incoming, Part};
use crate::verdict::{DropReason, IcmpErrorKind, Verdict};

/// Translates a packet whose first octet says IPv4.
pub(crate) fn translate<M: Mapper>(
    config: &Config,
    mapper: &mut M,
    packet: &mut Packet<'_>,
    pass: Pass,
    trace: &mut impl Trace,
) -> Result<Verdict, Stop> {
    let header = validate(packet, 0)?;
    let at = header.header_len;
    let part = Part::of(header.fragment_offset, header.more_fragments);
    trace.step(Step::HeaderV4 {
        header: at,
        payload: header.payload_len(),
        protocol: header.protocol,
    });
    let segment = Segment { at, protocol: header.protocol, part };
    transport::check_offload(packet, segment, GsoKind::TcpV4)?;
    let ends = (header.src, header.dst);
    let incoming = Incoming::new(packet.bytes(), at, ends, header.protocol, part)
        .with_hairpin(pass == Pass::Hairpin);
    check_addresses(&incoming)?;
    let admitted = mapper.admit_v4(&incoming, trace)?;
    check_source_route(&packet.bytes()[ipv4::HEADER_LEN..at], trace)?;
    let hop_limit = hop_limit(config, &header, pass, trace)?;
    let next_header = check_protocol(header.protocol)?;
    check_fragment(&header, trace)?;
    let outgoing = mapper.map_v4(&incoming, admitted, trace)?;

    let new = Ipv6Header { hop_limit, ..new_header(config, &header, next_header, &outgoing) };
    if incoming.is_icmp_error {
        icmp::error_v4_to_v6(config, mapper, packet, at, pass, trace)?;
        icmp::finish_v6(packet, new)?;
        return Ok(Verdict::Forward);
    }
    let split = fit(config, packet, &header, trace)?;
    if header.protocol == protocol::ICMP {
        let pseudo = pseudo_v6(new.src, new.dst, new.next_header, u32::from(new.payload_len));
        let identifier = outgoing.ports.map(|ports| ports.src);
        let sums = (Sum::ZERO, pseudo);
        icmp::query(packet, at, sums, icmp::maps::query_v4_to_v6, identifier, trace)?;
    } else {
        let change = Change::v4_to_v6(ends, &outgoing);
        transport::translate(config, packet, segment, change, true, trace)?;
    }
    let datagrams = packet.offload.gso.kind == GsoKind::Udp;
    replace_header(packet, &header, new, split.is_some() && !datagrams)?;
    if let Some(limit) = split {
        trace.step(Step::Split(limit));
        if datagrams {
            packet.cut_datagrams(limit, header.identification.into());
            return Ok(Verdict::Forward);
        }
        packet.split(Plan::new(limit, HEADER_MAX));
    }
    Ok(Verdict::Forward)
}

/// Lengths, version and header checksum of the IPv4 packet that begins at octet `at`; cuts off what lies behind Total
/// Length.
#[inline(always)]
pub fn validate(packet: &mut Packet<'_>, at: usize) -> Result<Ipv4Header, DropReason> {
    let bytes = packet.bytes().get(at..).unwrap_or_default();
    let header = Ipv4Header::parse(bytes).map_err(|error| match error {
        Ipv4Error::Truncated => DropReason::Truncated,
        Ipv4Error::Version => DropReason::BadVersion,
        Ipv4Error::Length => DropReason::BadHeader,
    })?;
    let total_len = usize::from(header.total_len);
    if bytes.len() < total_len {
        return Err(DropReason::Truncated);
    }
    if !ipv4::header_checksum_is_valid(&bytes[..header.header_len]) {
        return Err(DropReason::BadHeaderChecksum);
    }
    packet.truncate(at + total_len);
    Ok(header)
}

/// RFC 7915 section 4.1 and RFC 1812 section 5.3.7: addresses that can't be on a wire.
#[inline]
fn check_addresses(incoming: &Incoming<'_, Ipv4Addr>) -> Result<(), DropReason> {
    if let Some(reason) = classify::illegal_v4(incoming.dst) {
        return Err(reason);
    }
    // RFC 7915 section 4.1: the illegal source of an ICMP error is translated, to help in troubleshooting.
    match classify::illegal_v4(incoming.src) {
        Some(reason) if !incoming.is_icmp_error => Err(reason),
        _ => Ok(()),
    }
}

/// RFC 7915 section 4.1: options are left out, unless a source route is still to be followed.
fn check_source_route(options: &[u8], trace: &mut impl Trace) -> Result<(), Stop> {
    if ipv4::has_unexpired_source_route(options) {
        return Err(Stop::answered(DropReason::SourceRoute, IcmpErrorKind::SourceRouteFailed));
    }
    if !options.is_empty() {
        trace.step(Step::OptionsIgnored(options.len()));
    }
    Ok(())
}

/// RFC 7915 section 4.1, "Hop Limit".
fn hop_limit(
    config: &Config,
    header: &Ipv4Header,
    pass: Pass,
    trace: &mut impl Trace,
) -> Result<u8, Stop> {
    // RFC 7757 section 4.2.2: a hairpinned packet is not counted twice.
    let hops = u8::from(config.decrement_hop_limit.v4_to_v6 && pass == Pass::First);
    if header.ttl <= hops {
        return Err(Stop::hop_limit());
    }
    let hop_limit = header.ttl - hops;
    trace.step(Step::HopLimit(hop_limit));
    Ok(hop_limit)
}

fn check_fragment(header: &Ipv4Header, trace: &mut impl Trace) -> Result<(), DropReason> {
    if !header.is_fragment() {
        return Ok(());
    }
    let payload = header.payload_len();
    let end = header.fragment_offset + payload;
    // RFC 791 section 3.2: pieces but the last are multiples of 8, and all end within 65,535.
    if header.more_fragments && (!payload.is_multiple_of(8) || payload == 0) || end > ipv4::MAX_LEN
    {
        return Err(DropReason::BadFragment);
    }
    trace.step(Step::Fragment {
        offset: header.fragment_offset,
        more: header.more_fragments,
        identification: u32::from(header.identification),
    });
    if header.protocol == protocol::ICMP {
        return Err(DropReason::FragmentedIcmp);
    }
    Ok(())
}

/// Whether the packet fits (RFC 7915 section 4.1). `Some(limit)`: it has to leave in fragments of at
/// most `limit` octets. May lower the segment size of a super-packet.
#[inline]
fn fit(
    config: &Config,
    packet: &mut Packet<'_>,
    header: &Ipv4Header,
    trace: &mut impl Trace,
) -> Result<Option<usize>, Stop> {
    let fragment = if header.is_fragment() { ipv6::FRAGMENT_HEADER_LEN } else { 0 };
    let head = ipv6::HEADER_LEN + fragment;
    let mtu6 = config.mtu6 as usize;
    let lowest = mtu6.min(config.lowest_ipv6_mtu as usize);
    let Gso { kind, size, .. } = packet.offload.gso;
    let len = match kind {
        GsoKind::None => head + header.payload_len(),
        _ => {
            let segment = &packet.bytes()[header.header_len..];
            head + segment_header_len(kind, segment) + usize::from(size)
        }
    };
    if header.dont_fragment {
        // The IPv4 packet that becomes an IPv6 packet of `mtu6` octets.
        let mtu = mtu6 - head + ipv4::HEADER_LEN;
        return if len > mtu6 { Err(Stop::too_big(mtu)) } else { Ok(None) };
    }
    if len <= lowest {
        return Ok(None);
    }
    match kind {
        GsoKind::None => Ok(Some(lowest)),
        GsoKind::TcpV4 | GsoKind::TcpV6 => {
            // Smaller segments do what fragments would, and arrive in more networks.
            let to = (lowest + usize::from(size) - len) as u16;
            packet.offload.gso.size = to;
            trace.step(Step::SegmentSize { from: size, to });
            Ok(None)
        }
        // Datagram boundaries can't move, and a device makes no fragments: one that fits the next hop goes whole.
        GsoKind::Udp if len <= mtu6 => Ok(None),
        GsoKind::Udp => Ok(Some(lowest)),
    }
}

/// Puts the IPv6 header (RFC 7915 section 4.1) in the place of the IPv4 header, with a Fragment Header if
/// the packet is a fragment or will be `split`.
fn replace_header(
    packet: &mut Packet<'_>,
    old: &Ipv4Header,
    new: Ipv6Header,
    split: bool,
) -> Result<(), DropReason> {
    let (bytes, len) = with_fragment_header(new, old, split);
    packet.replace_header(old.header_len, &bytes[..len])
}
