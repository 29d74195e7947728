//! ICMP errors that the translator originates (RFC 7915 sections 4.4 and 5.4).

use core::net::{Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use fordway_wire::checksum::{Sum, pseudo_v6};
use fordway_wire::icmp::{self, CHECKSUM_AT, IcmpHeader};
use fordway_wire::ipv4::{self, Ipv4Header};
use fordway_wire::ipv6::{self, Ipv6Error, Ipv6Header};
use fordway_wire::{get_u8, protocol, put_u16, set_ip_len, tcp, transport as wire_transport};

use crate::addr::classify;
use crate::config::IcmpErrors;
use crate::icmp::{ERROR_MAX_V4, ERROR_MAX_V6, put_front};
use crate::identification::Ends;
use crate::offload::{ChecksumState, GsoKind, Offload, segment_header_len};
use crate::packet::Packet;
use crate::state::State;
use crate::stop::Stop;
use crate::trace::{Step, Suppressed, Trace};
use crate::verdict::{DropReason, IcmpError, IcmpErrorKind, Verdict};

/// Type of Service of an ICMPv4 error: precedence 6, internetwork control (RFC 1812 section 4.3.2.5).
const ICMPV4_TOS: u8 = 0xc0;

/// Sources and rate of the ICMP errors.
#[derive(Clone, Copy, Debug)]
pub struct Errors {
    /// Source of ICMPv4 errors; `None`: none are sent.
    pub source4: Option<Ipv4Addr>,
    /// Source of ICMPv6 errors; `None`: none are sent.
    pub source6: Option<Ipv6Addr>,
    /// Their rate.
    pub rate: IcmpErrors,
}

/// Ends a packet that stopped: with the ICMP error that is due, if it may be sent, else by a drop.
pub fn answer(
    errors: Errors,
    packet: &mut Packet<'_>,
    stop: Stop,
    now: Duration,
    state: &mut State,
    trace: &mut impl Trace,
) -> Verdict {
    let Stop { reason, answer: Some(kind) } = stop else {
        return Verdict::Drop(stop.reason);
    };
    trace.step(Step::Error(kind, reason));
    match build(errors, packet, kind, now, state) {
        Ok(()) => Verdict::Reply(IcmpError { kind, reason }),
        Err(why) => {
            trace.step(Step::Suppressed(why));
            if why != Suppressed::Forbidden {
                state.suppressed += 1;
            }
            Verdict::Drop(reason)
        }
    }
}

/// The verdict of an ICMPv4 error that was translated into the ICMPv6 error that `packet` is: its MTU is
/// that of IPv6.
pub(crate) fn retold(packet: &Packet<'_>, verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::Reply(IcmpError { kind: IcmpErrorKind::TooBig { .. }, reason }) => {
            let mtu = fordway_wire::get_u32(packet.bytes(), ipv6::HEADER_LEN + 4);
            let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
            Verdict::Reply(IcmpError { kind: IcmpErrorKind::TooBig { mtu }, reason })
        }
        verdict => verdict,
    }
}

fn build(
    errors: Errors,
    packet: &mut Packet<'_>,
    kind: IcmpErrorKind,
    now: Duration,
    state: &mut State,
) -> Result<(), Suppressed> {
    let version = get_u8(packet.bytes(), 0) >> 4;
    let (forbidden, no_source) = (Suppressed::Forbidden, Suppressed::NoSource);
    let sender = if version == 4 {
        let to = sender_v4(packet).ok_or(forbidden)?;
        Sender::V4 { to, source: errors.source4.ok_or(no_source)? }
    } else {
        let to = sender_v6(packet, kind).ok_or(forbidden)?;
        Sender::V6 { to, source: errors.source6.ok_or(no_source)? }
    };
    match errors.rate {
        IcmpErrors::Off => return Err(Suppressed::Off),
        IcmpErrors::Unlimited => {}
        IcmpErrors::Limited { per_second, burst } => {
            if !state.limiter.take(now, per_second, burst) {
                return Err(Suppressed::RateLimit);
            }
        }
    }
    one_segment(packet);
    packet.offload = Offload::default();
    let built = match sender {
        Sender::V4 { to, source } => {
            packet.truncate(ERROR_MAX_V4 - ipv4::HEADER_LEN - icmp::HEADER_LEN);
            let ends = Ends { src: source, dst: to, protocol: protocol::ICMP };
            put_error_v4(packet, kind, source, to, state.next_identification_of(ends, 1))
        }
        Sender::V6 { to, source } => {
            packet.truncate(ERROR_MAX_V6 - ipv6::HEADER_LEN - icmp::HEADER_LEN);
            put_error_v6(packet, kind, source, to)
        }
    };
    built.map_err(|_| forbidden)
}

/// The sender of the packet, to which the error goes, and the source of the error.
enum Sender {
    V4 { to: Ipv4Addr, source: Ipv4Addr },
    V6 { to: Ipv6Addr, source: Ipv6Addr },
}

/// The sender of an IPv4 packet, if an error may be sent (RFC 1122 section 3.2.2): not about an ICMP error,
/// a fragment other than the first, a multicast or broadcast, nor to an address that is no host's.
fn sender_v4(packet: &Packet<'_>) -> Option<Ipv4Addr> {
    let bytes = packet.bytes();
    let header = Ipv4Header::parse(bytes).ok()?;
    let query = |kind| matches!(kind, icmp::v4::ECHO | icmp::v4::ECHO_REPLY | 9 | 10 | 13..=18);
    let about_error = header.protocol == protocol::ICMP
        && !bytes.get(header.header_len).copied().is_some_and(query);
    let forbidden = about_error
        || header.fragment_offset != 0
        || classify::illegal_v4(header.dst).is_some()
        || classify::illegal_v4(header.src).is_some();
    (!forbidden).then_some(header.src)
}

/// The sender of an IPv6 packet, if an error may be sent (RFC 4443 section 2.4 (e)). "Prohibited" is never
/// said about ICMPv6 (RFC 7915 section 5.4).
fn sender_v6(packet: &Packet<'_>, kind: IcmpErrorKind) -> Option<Ipv6Addr> {
    let bytes = packet.bytes();
    let header = Ipv6Header::parse(bytes).ok()?;
    let allowed =
        || classify::illegal_v6(header.dst).is_none() && classify::illegal_v6(header.src).is_none();
    let extensions = match ipv6::walk(bytes, header.next_header) {
        Ok(extensions) => extensions,
        Err(Ipv6Error::ExtensionBehindFragment) => {
            let transport = ipv6::transport_behind(bytes, header.next_header)?;
            return (transport != protocol::ICMPV6 && allowed()).then_some(header.src);
        }
        Err(_) => return None,
    };
    let is_icmp = extensions.protocol == protocol::ICMPV6;
    let later_fragment = extensions.fragment.is_some_and(|f| f.offset != 0);
    let about_error = is_icmp
        && (later_fragment
            || bytes
                .get(extensions.header_len)
                .is_none_or(|&kind| icmp::v6::is_error(kind) || kind == icmp::v6::REDIRECT));
    let forbidden = about_error
        || is_icmp && kind == IcmpErrorKind::AdministrativelyProhibited
        // RFC 8200 section 4.5: only the first fragment says for certain what the protocol is.
        || later_fragment && kind == IcmpErrorKind::ProtocolUnreachable
        || !allowed();
    (!forbidden).then_some(header.src)
}

/// Makes of a packet what was or would have been on the wire: its checksum complete, and of a
/// super-packet the first segment.
fn one_segment(packet: &mut Packet<'_>) {
    let (kind, size) = (packet.offload.gso.kind, usize::from(packet.offload.gso.size));
    if kind != GsoKind::None {
        let ChecksumState::Partial { start, .. } = packet.offload.checksum else {
            return;
        };
        let at = usize::from(start);
        let is_v4 = get_u8(packet.bytes(), 0) >> 4 == 4;
        let least = if is_v4 { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN };
        if at < least {
            // The offload state contradicts the packet, which may have stopped before that was checked.
            return;
        }
        let segment = packet.bytes().get(at..).unwrap_or_default();
        let header = segment_header_len(kind, segment);
        let old_len = segment.len();
        let new_len = old_len.min(header + size);
        packet.truncate(at + new_len);
        resize(packet, at, kind, old_len, new_len);
    }
    packet.complete_checksum();
}

/// Writes the lengths of a packet whose transport part, at `at`, has gone from `old_len` to `new_len`
/// octets: IP header, UDP header, and the pseudo-header sum in the partial checksum.
fn resize(packet: &mut Packet<'_>, at: usize, kind: GsoKind, old_len: usize, new_len: usize) {
    let is_udp = kind == GsoKind::Udp;
    let field = if is_udp { wire_transport::UDP_CHECKSUM_AT } else { tcp::CHECKSUM_AT };
    let bytes = packet.bytes_mut();
    let checksum = fordway_wire::get_u16(bytes, at + field);
    let sums = (Sum::ZERO.add_u32(old_len as u32), Sum::ZERO.add_u32(new_len as u32));
    let checksum = fordway_wire::checksum::update_partial(checksum, sums.0, sums.1);
    put_u16(bytes, at + field, checksum);
    if is_udp {
        put_u16(bytes, at + wire_transport::UDP_LENGTH_AT, new_len as u16);
    }
    set_ip_len(bytes, at);
}

fn put_error_v4(
    packet: &mut Packet<'_>,
    kind: IcmpErrorKind,
    src: Ipv4Addr,
    dst: Ipv4Addr,
    identification: u16,
) -> Result<(), DropReason> {
    use icmp::v4;
    let (kind, code, rest) = match kind {
        IcmpErrorKind::TimeExceeded => (v4::TIME_EXCEEDED, 0, 0),
        IcmpErrorKind::TooBig { mtu } => {
            (v4::UNREACHABLE, v4::FRAGMENTATION_NEEDED, u32::from(mtu))
        }
        IcmpErrorKind::AdministrativelyProhibited | IcmpErrorKind::SourcePolicy => {
            (v4::UNREACHABLE, v4::ADMINISTRATIVELY_PROHIBITED, 0)
        }
        IcmpErrorKind::SourceRouteFailed => (v4::UNREACHABLE, v4::SOURCE_ROUTE_FAILED, 0),
        IcmpErrorKind::ParameterProblem { pointer } => (v4::PARAMETER_PROBLEM, 0, pointer << 24),
        IcmpErrorKind::AddressUnreachable => (v4::UNREACHABLE, v4::HOST_UNREACHABLE, 0),
        IcmpErrorKind::PortUnreachable => (v4::UNREACHABLE, v4::PORT_UNREACHABLE, 0),
        IcmpErrorKind::ProtocolUnreachable => (v4::UNREACHABLE, v4::PROTOCOL_UNREACHABLE, 0),
    };
    put_icmp(packet, IcmpHeader { kind, code, checksum: 0, rest }, Sum::ZERO)?;
    let total_len = (ipv4::HEADER_LEN + packet.len()) as u16;
    let header = Ipv4Header {
        tos: ICMPV4_TOS,
        total_len,
        identification,
        ..Ipv4Header::new(protocol::ICMP, src, dst)
    };
    put_front(packet, &header.to_bytes(), ipv4::HEADER_LEN)
}

fn put_error_v6(
    packet: &mut Packet<'_>,
    kind: IcmpErrorKind,
    src: Ipv6Addr,
    dst: Ipv6Addr,
) -> Result<(), DropReason> {
    use icmp::v6;
    let (kind, code, rest) = match kind {
        IcmpErrorKind::TimeExceeded => (v6::TIME_EXCEEDED, 0, 0),
        IcmpErrorKind::TooBig { mtu } => (v6::PACKET_TOO_BIG, 0, u32::from(mtu)),
        // There is no source route in IPv6; a Routing header is a Parameter Problem.
        IcmpErrorKind::AdministrativelyProhibited | IcmpErrorKind::SourceRouteFailed => {
            (v6::UNREACHABLE, v6::ADMINISTRATIVELY_PROHIBITED, 0)
        }
        IcmpErrorKind::SourcePolicy => (v6::UNREACHABLE, v6::SOURCE_POLICY, 0),
        IcmpErrorKind::ParameterProblem { pointer } => (v6::PARAMETER_PROBLEM, 0, pointer),
        IcmpErrorKind::AddressUnreachable => (v6::UNREACHABLE, v6::ADDRESS_UNREACHABLE, 0),
        // RFC 6146 section 3.4: a protocol that is not carried is answered so, too.
        IcmpErrorKind::PortUnreachable | IcmpErrorKind::ProtocolUnreachable => {
            (v6::UNREACHABLE, v6::PORT_UNREACHABLE, 0)
        }
    };
    let len = (packet.len() + icmp::HEADER_LEN) as u32;
    let pseudo = pseudo_v6(src, dst, protocol::ICMPV6, len);
    put_icmp(packet, IcmpHeader { kind, code, checksum: 0, rest }, pseudo)?;
    let payload_len = packet.len() as u16;
    let header = Ipv6Header { payload_len, ..Ipv6Header::new(protocol::ICMPV6, src, dst) };
    put_front(packet, &header.to_bytes(), ipv6::HEADER_LEN)
}

/// Puts an ICMP header in front of the packet and computes its checksum.
fn put_icmp(packet: &mut Packet<'_>, header: IcmpHeader, pseudo: Sum) -> Result<(), DropReason> {
    put_front(packet, &header.to_bytes(), icmp::HEADER_LEN)?;
    let checksum = pseudo.add_bytes(packet.bytes()).finish();
    put_u16(packet.bytes_mut(), CHECKSUM_AT, checksum);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: [u8; 28] = [
        0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 198, 51, 100, 1, 192, 0, 2, 1, //
        0, 9, 0, 9, 0, 8, 0, 0,
    ];

    fn v6() -> [u8; 48] {
        let mut packet = [0; 48];
        let header = Ipv6Header {
            traffic_class: 0,
            flow_label: 0,
            payload_len: 8,
            next_header: protocol::UDP,
            hop_limit: 64,
            src: "2001:db8::1".parse().unwrap(),
            dst: "64:ff9b::c633:6401".parse().unwrap(),
        };
        packet[..40].copy_from_slice(&header.to_bytes());
        packet
    }

    /// Type and code of the error that answers `octets`, whose checksum must be right.
    fn error(octets: &[u8], reason: DropReason) -> Option<(u8, u8)> {
        let errors = Errors {
            source4: Some("192.0.2.254".parse().unwrap()),
            source6: Some("2001:db8::fe".parse().unwrap()),
            rate: IcmpErrors::default(),
        };
        let mut buffer = [0u8; 200];
        let range = 64..64 + octets.len();
        buffer[range.clone()].copy_from_slice(octets);
        let mut packet = Packet::new(&mut buffer, range, Offload::default());
        let (state, now) = (&mut State::new(0), Duration::ZERO);
        match answer(errors, &mut packet, reason.into(), now, state, &mut ()) {
            Verdict::Reply(_) => {}
            _ => return None,
        }
        let (message, pseudo) = match Ipv4Header::parse(packet.bytes()) {
            Ok(header) => (&packet.bytes()[header.header_len..], Sum::ZERO),
            Err(_) => {
                let header = Ipv6Header::parse(packet.bytes()).unwrap();
                let len = u32::from(header.payload_len);
                (&packet.bytes()[40..], pseudo_v6(header.src, header.dst, protocol::ICMPV6, len))
            }
        };
        assert_eq!(pseudo.add_bytes(message).fold(), 0xffff);
        assert_eq!(&message[8..], octets);
        Some((message[0], message[1]))
    }

    #[test]
    fn stateful_reasons_are_answered_as_the_rfc_says() {
        for (reason, in_v4, in_v6) in [
            // RFC 6146 sections 3.4 and 3.5.
            (DropReason::Transport, (3, 2), (1, 4)),
            (DropReason::PoolExhausted, (3, 1), (1, 3)),
            (DropReason::SynUnanswered, (3, 3), (1, 4)),
            // RFC 6888 REQ-11.
            (DropReason::PortQuota, (3, 1), (1, 3)),
            (DropReason::SessionsFull, (3, 1), (1, 3)),
        ] {
            assert_eq!(error(&V4, reason), Some(in_v4), "{reason:?}");
            assert_eq!(error(&v6(), reason), Some(in_v6), "{reason:?}");
        }
        for reason in
            [DropReason::NoBib, DropReason::Filtered, DropReason::NotSyn, DropReason::Busy]
        {
            assert_eq!(error(&V4, reason), None, "{reason:?}");
        }
    }
}
