//! Into the tunnel (RFC 2473 sections 3.1, 6 and 7.2).

use std::time::Duration;

use fordway_wire::ipv4::Ipv4Header;
use fordway_wire::ipv6::Ipv6Header;
use fordway_wire::protocol;
use fordway_xlat::steps::{Stop, check_offload, segment_header_len, validate_v4};
use fordway_xlat::trace::{Step, Trace};
use fordway_xlat::{DropReason, GsoKind, IcmpErrorKind, Packet, State, TrafficClass, Verdict};

use crate::settings::Role;
use crate::softwire::Softwire;
use crate::{OVERHEAD, ecn, flow, inner};

impl Softwire {
    /// Puts the IPv6 header of its binding's tunnel in front of an IPv4 packet.
    pub(crate) fn encapsulate(
        &self,
        packet: &mut Packet<'_>,
        now: Duration,
        state: &mut State,
        trace: &mut impl Trace,
    ) -> Result<Verdict, Stop> {
        let settings = &self.settings;
        let header = validate_v4(packet, 0).map_err(Stop::silent)?;
        trace.step(Step::HeaderV4 {
            header: header.header_len,
            payload: header.payload_len(),
            protocol: header.protocol,
        });
        let segment = inner::segment(&header, 0);
        check_offload(packet, segment, GsoKind::TcpV4).map_err(Stop::silent)?;
        inner::check_addresses(&header).map_err(Stop::silent)?;
        let incoming = inner::incoming(packet.bytes(), &header);
        let entry = self.find(&incoming, self.near(), self.no_way_in(), trace)?;
        let (src, dst) = self.ends(entry);
        let limit = entry.path.get(settings.mtu6, now);
        if settings.hop_count.v4_to_v6 && header.ttl <= 1 {
            return Err(Stop::hop_limit());
        }
        let cut = fit(packet, &header, limit)?;
        if settings.hop_count.v4_to_v6 {
            inner::decrement_ttl(packet);
            trace.step(Step::HopLimit(header.ttl - 1));
        }
        if settings.mss_clamp {
            inner::clamp_mss(packet, &header, limit, trace);
        }
        let ports = inner::flow_ports(packet.bytes(), &header);
        let flow_label =
            flow::label(settings.flow_secret, header.src, header.dst, header.protocol, ports);
        let outer = Ipv6Header {
            traffic_class: match settings.traffic_class {
                TrafficClass::Copy => header.tos,
                // RFC 6040 section 4.1: the ECN field is copied, whatever the DSCP.
                TrafficClass::Set(octet) => octet & !ecn::MASK | header.tos & ecn::MASK,
            },
            flow_label,
            payload_len: header.total_len,
            next_header: protocol::IPV4,
            hop_limit: settings.hop_limit,
            src,
            dst,
        };
        let packets = packet.segments();
        if packet.offload.gso.kind == GsoKind::None {
            packet.complete_checksum();
        }
        if !packet.grow_front(OVERHEAD) {
            return Err(Stop::silent(DropReason::NoHeadroom));
        }
        packet.bytes_mut()[..OVERHEAD].copy_from_slice(&outer.to_bytes());
        trace.step(Step::Encapsulated { flow_label });
        match cut {
            Cut::None => {}
            Cut::Segments => packet.cut_tunnelled(limit as usize, 0),
            Cut::Fragments => {
                trace.step(Step::Split(limit as usize));
                packet.cut_tunnelled(limit as usize, state.next_fragment(packets));
            }
        }
        Ok(Verdict::Forward)
    }

    /// The stop of an IPv4 packet without a binding: RFC 7596 section 6.2 at the tunnel end point; at the client, its
    /// source is not the client's address.
    fn no_way_in(&self) -> Stop {
        match self.settings.role {
            Role::Tep => {
                Stop::answered(DropReason::SoftwireBinding, IcmpErrorKind::AddressUnreachable)
            }
            Role::Client => Stop::answered(
                DropReason::SoftwireSource,
                IcmpErrorKind::AdministrativelyProhibited,
            ),
        }
    }
}

/// How a packet leaves.
enum Cut {
    /// In one piece.
    None,
    /// In segments, each of which fits.
    Segments,
    /// In segments or as one packet, of which some have to be cut into fragments.
    Fragments,
}

/// RFC 2473 section 7.2: what does not fit is refused with DF, and cut into fragments without. Segments of a TCP
/// super-packet without DF may be any, so they become shorter.
fn fit(packet: &mut Packet<'_>, header: &Ipv4Header, limit: u32) -> Result<Cut, Stop> {
    let room = (limit as usize).saturating_sub(OVERHEAD);
    let gso = packet.offload.gso;
    let is_super = gso.kind != GsoKind::None;
    let transport = packet.bytes().get(header.header_len..).unwrap_or_default();
    let headers = header.header_len + segment_header_len(gso.kind, transport);
    let total = usize::from(header.total_len);
    let longest = if is_super { total.min(headers + usize::from(gso.size)) } else { total };
    if longest <= room {
        return Ok(if is_super { Cut::Segments } else { Cut::None });
    }
    if header.dont_fragment {
        return Err(Stop::too_big(room));
    }
    if gso.kind == GsoKind::TcpV4 && room > headers {
        packet.offload.gso.size = (room - headers) as u16;
        return Ok(Cut::Segments);
    }
    Ok(Cut::Fragments)
}
