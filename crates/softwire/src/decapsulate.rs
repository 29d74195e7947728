//! Out of the tunnel (RFC 2473 section 3.3, RFC 7596 section 6.2, RFC 6040 section 4.2).

use fordway_wire::ipv6::Ipv6Header;
use fordway_xlat::steps::{Stop, check_offload, validate_v4};
use fordway_xlat::trace::{Step, Trace};
use fordway_xlat::{ChecksumState, DropReason, GsoKind, IcmpErrorKind, Packet, Verdict};

use crate::ecn;
use crate::inner;
use crate::settings::Role;
use crate::softwire::Softwire;

impl Softwire {
    /// Removes the IPv6 header and its extension headers, `at` octets in all, if the packet behind them may come
    /// through this tunnel.
    pub(crate) fn decapsulate(
        &self,
        packet: &mut Packet<'_>,
        outer: &Ipv6Header,
        at: usize,
        trace: &mut impl Trace,
    ) -> Result<Verdict, Stop> {
        let settings = &self.settings;
        let header = validate_v4(packet, at).map_err(Stop::silent)?;
        trace.step(Step::HeaderV4 {
            header: header.header_len,
            payload: header.payload_len(),
            protocol: header.protocol,
        });
        if packet.offload.gso.kind != GsoKind::None {
            return Err(Stop::silent(DropReason::BadOffload));
        }
        let segment = inner::segment(&header, at);
        check_offload(packet, segment, GsoKind::TcpV4).map_err(Stop::silent)?;
        let incoming = inner::incoming(&packet.bytes()[at..], &header);
        let entry = self.find(&incoming, self.far(), self.no_way_out(), trace)?;
        if self.ends(entry) != (outer.dst, outer.src) {
            return Err(self.no_way_out());
        }
        inner::check_addresses(&header).map_err(Stop::silent)?;
        if settings.role == Role::Tep
            && !settings.hairpin
            && self.bindings.address(header.dst).is_some()
        {
            let kind = IcmpErrorKind::AdministrativelyProhibited;
            return Err(Stop::answered(DropReason::SoftwireHairpin, kind));
        }
        let Some(codepoint) = ecn::decapsulate(header.tos, outer.traffic_class) else {
            return Err(Stop::silent(DropReason::SoftwireEcn));
        };
        if settings.hop_count.v6_to_v4 && header.ttl <= 1 {
            return Err(Stop::silent(DropReason::HopLimitExceeded));
        }
        packet.shrink_front(at);
        move_checksum(packet, at);
        trace.step(Step::Decapsulated);
        if codepoint != header.tos & ecn::MASK {
            inner::set_tos(packet, header.tos & !ecn::MASK | codepoint);
            trace.step(Step::Ecn(codepoint));
        }
        if settings.hop_count.v6_to_v4 {
            inner::decrement_ttl(packet);
            trace.step(Step::HopLimit(header.ttl - 1));
        }
        if settings.mss_clamp {
            inner::clamp_mss(packet, &header, settings.mtu6, trace);
        }
        Ok(Verdict::Forward)
    }

    /// The stop of a packet without a binding, or from another tunnel than its binding's. The tunnel end point answers
    /// with an ICMPv6 error (RFC 7596 section 6.2); a client drops it silently.
    fn no_way_out(&self) -> Stop {
        match self.settings.role {
            Role::Tep => Stop::answered(DropReason::SoftwireSource, IcmpErrorKind::SourcePolicy),
            Role::Client => Stop::silent(DropReason::SoftwireSource),
        }
    }
}

/// Corrects the place of a partial checksum after `octets` in front of it were removed.
fn move_checksum(packet: &mut Packet<'_>, octets: usize) {
    if let ChecksumState::Partial { start, .. } = &mut packet.offload.checksum {
        *start = start.saturating_sub(octets as u16);
    }
}
