//! ICMPv6 errors from inside the tunnel, relayed to the sender of the IPv4 packet (RFC 2473 section 8).

use std::time::Duration;

use fordway_wire::checksum::pseudo_v6;
use fordway_wire::icmp::{self, IcmpHeader, v6};
use fordway_wire::ipv4::Ipv4Header;
use fordway_wire::ipv6::{self, Ipv6Header};
use fordway_wire::protocol;
use fordway_xlat::steps::{self, Stop};
use fordway_xlat::trace::{Step, Trace};
use fordway_xlat::{ChecksumState, DropReason, IcmpErrorKind, Offload, Packet, State, Verdict};

use crate::bindings::Entry;
use crate::softwire::Softwire;
use crate::{OVERHEAD, inner};

/// The tunnel packet that an error quotes.
struct Quoted {
    outer: Ipv6Header,
    header: Ipv4Header,
    /// Where the IPv4 packet begins, in octets from the start of the error.
    at: usize,
}

impl Softwire {
    /// Makes of an ICMPv6 error, whose header lies at octet `at`, the ICMPv4 error that the IPv4 sender needs.
    pub(crate) fn relay(
        &self,
        packet: &mut Packet<'_>,
        outer: &Ipv6Header,
        at: usize,
        now: Duration,
        state: &mut State,
        trace: &mut impl Trace,
    ) -> Result<Verdict, Stop> {
        let message = verify(packet, outer, at).map_err(Stop::silent)?;
        trace.step(Step::Inner);
        let quoted = quoted(packet.bytes(), at).map_err(Stop::silent)?;
        let entry = self.sent_by_us(packet.bytes(), &quoted, trace)?;
        trace.step(Step::InnerEnd);
        let kind = match message.kind {
            v6::PACKET_TOO_BIG => {
                let link = self.settings.mtu6;
                if let Some(mtu) = entry.path.learn(message.rest, link, now) {
                    trace.step(Step::TunnelMtu(mtu));
                }
                // RFC 2473 section 8.3: senders without DF need no error; their packets are fragmented.
                if !quoted.header.dont_fragment {
                    return Ok(Verdict::Stored);
                }
                let mtu = entry.path.get(link, now).saturating_sub(OVERHEAD as u32);
                IcmpErrorKind::TooBig { mtu: u16::try_from(mtu).unwrap_or(u16::MAX) }
            }
            // RFC 2473 section 8.1: any fault of the tunnel is reported as unreachable.
            v6::UNREACHABLE | v6::TIME_EXCEEDED => IcmpErrorKind::AddressUnreachable,
            // No tunnel packet has an option that could be at fault.
            v6::PARAMETER_PROBLEM => return Err(Stop::silent(DropReason::IcmpCode)),
            _ => return Err(Stop::silent(DropReason::IcmpType)),
        };
        let total_len = usize::from(quoted.header.total_len);
        packet.shrink_front(quoted.at);
        packet.truncate(total_len);
        packet.offload = Offload::default();
        let reason = match kind {
            IcmpErrorKind::TooBig { .. } => DropReason::TooBig,
            _ => DropReason::IcmpCode,
        };
        let stop = Stop::answered(reason, kind);
        Ok(match steps::answer(self.errors(None), packet, stop, now, state, trace) {
            Verdict::Reply(_) => Verdict::Forward,
            verdict => verdict,
        })
    }

    /// The binding by which this end has sent the quoted packet. Only a node that sees the tunnel's packets knows all
    /// of these fields, so an off-path attacker can't forge an error.
    fn sent_by_us(
        &self,
        bytes: &[u8],
        quoted: &Quoted,
        trace: &mut impl Trace,
    ) -> Result<&Entry, Stop> {
        let unknown = Stop::silent(DropReason::IcmpInner);
        let packet = bytes.get(quoted.at..).unwrap_or_default();
        let incoming = inner::incoming(packet, &quoted.header).inside_error();
        if incoming.is_icmp_error {
            return Err(Stop::silent(DropReason::IcmpNested));
        }
        let entry = self.find(&incoming, self.near(), unknown, trace)?;
        let sent = (quoted.outer.src, quoted.outer.dst);
        if self.ends(entry) == sent { Ok(entry) } else { Err(unknown) }
    }
}

/// Checks length and checksum of an error. Other ICMPv6 messages are dropped: this end answers none.
fn verify(packet: &Packet<'_>, outer: &Ipv6Header, at: usize) -> Result<IcmpHeader, DropReason> {
    let message = packet.bytes().get(at..).unwrap_or_default();
    let header = IcmpHeader::parse(message).ok_or(DropReason::Truncated)?;
    if !v6::is_error(header.kind) {
        return Err(DropReason::IcmpType);
    }
    if packet.offload.checksum == ChecksumState::Complete {
        let len = message.len() as u32;
        let sum = pseudo_v6(outer.src, outer.dst, protocol::ICMPV6, len).add_bytes(message);
        if sum.fold() != 0xffff {
            return Err(DropReason::BadIcmpChecksum);
        }
    }
    Ok(header)
}

/// The tunnel packet in the ICMPv6 error whose header lies at octet `at`.
fn quoted(bytes: &[u8], at: usize) -> Result<Quoted, DropReason> {
    let at = at + icmp::HEADER_LEN;
    let quoted = bytes.get(at..).unwrap_or_default();
    let outer = Ipv6Header::parse(quoted).map_err(|_| DropReason::IcmpInner)?;
    let extensions = ipv6::walk(quoted, outer.next_header).map_err(|_| DropReason::IcmpInner)?;
    // Only a first fragment has the packet's beginning.
    let is_later = extensions.fragment.is_some_and(|fragment| fragment.offset != 0);
    if extensions.protocol != protocol::IPV4 || is_later {
        return Err(DropReason::IcmpInner);
    }
    let inside = quoted.get(extensions.header_len..).unwrap_or_default();
    let header = Ipv4Header::parse(inside).map_err(|_| DropReason::IcmpInner)?;
    Ok(Quoted { outer, header, at: at + extensions.header_len })
}
