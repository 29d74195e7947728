//! The packet inside an ICMP error (RFC 7915 sections 4.3 and 5.3).
//!
//! It may be cut short after 8 octets of transport header, so nothing can be verified; checksums are
//! updated by the difference, and a field that was cut off is left alone.

use fordway_wire::checksum::{Sum, pseudo_v6, update};
use fordway_wire::ipv4::{self, Ipv4Header};
use fordway_wire::ipv6::{self, Ipv6Header};
use fordway_wire::{get_u8, get_u16, icmp, protocol, put_u8, put_u16, transport};

use crate::config::Config;
use crate::header::v4_to_v6::{self, HEADER_MAX, with_fragment_header};
use crate::header::v6_to_v4::{self, DF_CLEAR_MAX};
use crate::mapper::{Mapper, Outgoing, Pass};
use crate::trace::{Step, Trace};
use crate::transport::{Change, put_ports};
use crate::tuple::{Incoming, Part};
use crate::verdict::DropReason;

use super::{maps, put_identifier};

/// The translated inner header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Translated {
    /// The new header; the first `header_len` octets count.
    pub(super) header: [u8; HEADER_MAX],
    /// Octets of the new header.
    pub(super) header_len: usize,
    /// Octets of the old header with options or extension headers.
    pub(super) old_len: usize,
}

/// How the ICMP message inside is translated.
struct InnerIcmp {
    map: fn(u8) -> Option<u8>,
    is_error: fn(u8) -> bool,
    old_pseudo: Sum,
    new_pseudo: Sum,
}

/// Translates the IPv4 packet at the start of `original`: its transport header in place, its header
/// into the value returned, with the length of the whole packet by its header. The TTL is not decremented.
pub(super) fn v4_to_v6(
    config: &Config,
    mapper: &mut impl Mapper,
    original: &mut [u8],
    pass: Pass,
    trace: &mut impl Trace,
) -> Result<(Translated, usize), DropReason> {
    let header = Ipv4Header::parse(original).map_err(|_| DropReason::IcmpInner)?;
    let part = Part::of(header.fragment_offset, header.more_fragments);
    let ends = (header.src, header.dst);
    let quoted = Incoming::new(original, header.header_len, ends, header.protocol, part)
        .inside_error()
        .with_hairpin(pass == Pass::Hairpin);
    let outgoing = mapper.map_quoted_v4(&quoted)?;
    let Outgoing { src, dst, .. } = outgoing;
    trace.step(Step::SourceV4(header.src, src));
    trace.step(Step::DestinationV4(header.dst, dst));

    // What is never forwarded can't have caused an error.
    let next_header =
        v4_to_v6::check_protocol(header.protocol).map_err(|_| DropReason::IcmpInner)?;
    let len = header.payload_len() as u32;
    let message = InnerIcmp {
        map: maps::query_v4_to_v6,
        is_error: icmp::v4::is_error,
        old_pseudo: Sum::ZERO,
        new_pseudo: pseudo_v6(src.addr, dst.addr, protocol::ICMPV6, len),
    };
    let change = Change::v4_to_v6(ends, &outgoing);
    let payload = &mut original[header.header_len..];
    let is_icmp = header.protocol == protocol::ICMP;
    transport_header(payload, header.protocol, is_icmp.then_some(message), part, change, trace)?;

    let fields = v4_to_v6::new_header(config, &header, next_header, &outgoing);
    let (bytes, header_len) = with_fragment_header(fields, &header, false);
    let translated = Translated { header: bytes, header_len, old_len: header.header_len };
    Ok((translated, usize::from(header.total_len)))
}

/// Translates the IPv6 packet at the start of `original`: its transport header in place, its header into the value
/// returned, with whether it has a Fragment Header. The hop limit is not decremented.
pub(super) fn v6_to_v4(
    config: &Config,
    mapper: &mut impl Mapper,
    original: &mut [u8],
    trace: &mut impl Trace,
) -> Result<(Translated, bool), DropReason> {
    let header = Ipv6Header::parse(original).map_err(|_| DropReason::IcmpInner)?;
    let extensions = ipv6::walk(original, header.next_header).map_err(|_| DropReason::IcmpInner)?;
    let fragment = extensions.fragment;
    let part = fragment.map_or(Part::Whole, |f| Part::of(f.offset, f.more));
    let ends = (header.src, header.dst);
    let at = extensions.header_len;
    let quoted = Incoming::new(original, at, ends, extensions.protocol, part).inside_error();
    let outgoing = mapper.map_quoted_v6(&quoted)?;
    trace.step(Step::SourceV6(header.src, outgoing.src));
    trace.step(Step::DestinationV6(header.dst, outgoing.dst));

    let protocol =
        v6_to_v4::check_protocol(extensions.protocol).map_err(|_| DropReason::IcmpInner)?;
    let extension_len = extensions.header_len - ipv6::HEADER_LEN;
    let payload_len =
        usize::from(header.payload_len).checked_sub(extension_len).ok_or(DropReason::IcmpInner)?;
    let total_len = u16::try_from(ipv4::HEADER_LEN + payload_len).unwrap_or(u16::MAX);
    let message = InnerIcmp {
        map: maps::query_v6_to_v4,
        is_error: icmp::v6::is_error,
        old_pseudo: pseudo_v6(header.src, header.dst, protocol::ICMPV6, payload_len as u32),
        new_pseudo: Sum::ZERO,
    };
    let change = Change::v6_to_v4(ends, &outgoing);
    let payload = &mut original[extensions.header_len..];
    let is_icmp = extensions.protocol == protocol::ICMPV6;
    transport_header(
        payload,
        extensions.protocol,
        is_icmp.then_some(message),
        part,
        change,
        trace,
    )?;

    let fields = Ipv4Header {
        total_len,
        identification: fragment.map_or(0, |f| f.identification as u16),
        dont_fragment: fragment.is_none() && usize::from(total_len) > DF_CLEAR_MAX,
        ..v6_to_v4::new_header(config, &header, fragment, protocol, &outgoing)
    };
    let mut bytes = [0u8; HEADER_MAX];
    bytes[..ipv4::HEADER_LEN].copy_from_slice(&fields.to_bytes());
    let header_len = ipv4::HEADER_LEN;
    let translated = Translated { header: bytes, header_len, old_len: extensions.header_len };
    Ok((translated, fragment.is_some()))
}

/// Updates the transport header inside, as far as it is there.
fn transport_header(
    payload: &mut [u8],
    protocol: u8,
    message: Option<InnerIcmp>,
    part: Part,
    Change { mut old, mut new, ports }: Change,
    trace: &mut impl Trace,
) -> Result<(), DropReason> {
    if part == Part::Later {
        return Ok(());
    }
    if let Some(message) = message {
        return icmp_query(payload, &message, ports.map(|ports| ports.src), trace);
    }
    let Some(field) = transport::checksum_at(protocol) else {
        return Ok(());
    };
    if let Some(ports) = ports {
        let (old_ports, new_ports) = put_ports(payload, ports, trace);
        (old, new) = (old + old_ports, new + new_ports);
    }
    let checksum = get_u16(payload, field);
    // A zero UDP checksum means none. It is not computed: the datagram is not here.
    if protocol != protocol::UDP || checksum != 0 {
        // Nothing is written beyond the end.
        put_u16(payload, field, transport::never_zero(protocol, update(checksum, old, new)));
    }
    Ok(())
}

/// RFC 7915 sections 4.3 and 5.3: an ICMP error inside is one header too many.
///
/// In the first fragment of a query the length of the pseudo-header is not known; its checksum is then
/// computed with this fragment's length. The receiver can't verify it: the rest of the message is not here.
fn icmp_query(
    payload: &mut [u8],
    message: &InnerIcmp,
    identifier: Option<u16>,
    trace: &mut impl Trace,
) -> Result<(), DropReason> {
    if payload.len() < icmp::HEADER_LEN {
        return Err(DropReason::IcmpInner);
    }
    let (from, code) = (get_u8(payload, 0), get_u8(payload, 1));
    if (message.is_error)(from) {
        return Err(DropReason::IcmpNested);
    }
    let to = (message.map)(from).ok_or(DropReason::IcmpInner)?;
    let (old_id, new_id) = match identifier {
        Some(identifier) => put_identifier(payload, identifier, trace),
        None => (Sum::ZERO, Sum::ZERO),
    };
    let old = (message.old_pseudo + old_id).add_u16(u16::from_be_bytes([from, code]));
    let new = (message.new_pseudo + new_id).add_u16(u16::from_be_bytes([to, code]));
    let checksum = get_u16(payload, icmp::CHECKSUM_AT);
    put_u8(payload, 0, to);
    put_u16(payload, icmp::CHECKSUM_AT, update(checksum, old, new));
    Ok(())
}
