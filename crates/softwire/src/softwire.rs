//! The entry: a packet comes in, its IP version decides whether it goes into a tunnel or comes out of one.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use fordway_wire::ipv4::Ipv4Header;
use fordway_wire::ipv6::{self, Ipv6Header};
use fordway_wire::protocol;
use fordway_xlat::steps::{self, Errors, Stop};
use fordway_xlat::trace::{Step, Trace};
use fordway_xlat::tuple::Incoming;
use fordway_xlat::{Direction, DropReason, IcmpErrorKind, Packet, State, Verdict};

use crate::bindings::{Address, Bindings, Entry};
use crate::inner::{self, End};
use crate::settings::{Role, Settings, SettingsError};

/// One end of softwires: immutable, shared by all queues.
#[derive(Clone, Debug)]
pub struct Softwire {
    pub(crate) settings: Settings,
    pub(crate) bindings: Bindings,
}

/// Which part of something larger a packet is, as far as that must be whole first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Of nothing larger: translate it.
    Whole,
    /// A fragment: put the packet together.
    Fragment,
    /// The packet in the tunnel is a fragment, and its client has ports: put that packet together, and then a header
    /// like this one's in front of it.
    Inside {
        /// Where the packet in the tunnel begins, in octets from the start of the packet.
        at: usize,
        /// From whom the tunnel packet is.
        remote: Ipv6Addr,
    },
}

impl Softwire {
    /// A softwire with these bindings. A client may have none yet: then it drops what comes as
    /// [`DropReason::SoftwireUnbound`].
    pub fn new(settings: Settings, bindings: Bindings) -> Result<Softwire, SettingsError> {
        settings.check(bindings.len())?;
        Ok(Softwire { settings, bindings })
    }

    /// A softwire with these settings and other bindings: a changed copy of [`Softwire::bindings`], or a new table that
    /// [keeps the path MTUs](Bindings::keep_paths).
    pub fn with_bindings(&self, bindings: Bindings) -> Result<Softwire, SettingsError> {
        Softwire::new(self.settings, bindings)
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The bindings.
    #[must_use]
    pub fn bindings(&self) -> &Bindings {
        &self.bindings
    }

    /// Whether a packet has to wait for others. Cheap for all but fragments.
    #[must_use]
    pub fn part(&self, packet: &[u8]) -> Part {
        match Direction::of(packet) {
            Some(Direction::V4ToV6) => match Ipv4Header::parse(packet) {
                Ok(header) if header.is_fragment() && self.is_shared(&header, self.near()) => {
                    Part::Fragment
                }
                _ => Part::Whole,
            },
            Some(Direction::V6ToV4) => self.part_v6(packet),
            None => Part::Whole,
        }
    }

    fn part_v6(&self, packet: &[u8]) -> Part {
        let Ok(outer) = Ipv6Header::parse(packet) else { return Part::Whole };
        let Ok(extensions) = ipv6::walk(packet, outer.next_header) else { return Part::Whole };
        if extensions.fragment.is_some_and(|fragment| fragment.more || fragment.offset != 0) {
            return Part::Fragment;
        }
        let at = extensions.header_len;
        let inside = packet.get(at..).unwrap_or_default();
        match Ipv4Header::parse(inside) {
            Ok(header)
                if extensions.protocol == protocol::IPV4
                    && header.is_fragment()
                    && self.is_shared(&header, self.far()) =>
            {
                Part::Inside { at, remote: outer.src }
            }
            _ => Part::Whole,
        }
    }

    /// Encapsulates an IPv4 packet, or decapsulates an IPv6 packet, in place.
    ///
    /// `now` is a monotone time, the same for all threads: it feeds the rate limiter and path MTUs. `trace` takes the
    /// steps. What [`Softwire::part`] calls a part is dropped.
    pub fn translate(
        &self,
        packet: &mut Packet<'_>,
        now: Duration,
        state: &mut State,
        trace: &mut impl Trace,
    ) -> Verdict {
        // The source of an ICMPv6 error: the address that the packet was sent to.
        let source6 = Ipv6Header::parse(packet.bytes()).ok().map(|header| header.dst);
        let direction = Direction::of(packet.bytes());
        if let Some(direction) = direction {
            trace.step(Step::Direction(direction));
        }
        let result = match direction {
            Some(Direction::V4ToV6) => self.encapsulate(packet, now, state, trace),
            Some(Direction::V6ToV4) => self.leave(packet, now, state, trace),
            None if packet.len() == 0 => Err(Stop::silent(DropReason::Truncated)),
            None => Err(Stop::silent(DropReason::BadVersion)),
        };
        let verdict = match result {
            Ok(verdict) => verdict,
            Err(stop) if self.settings.pass_unmatched && is_foreign(stop.reason) => Verdict::Pass,
            Err(stop) => steps::answer(self.errors(source6), packet, stop, now, state, trace),
        };
        trace.step(Step::Verdict(verdict));
        verdict
    }

    pub(crate) fn errors(&self, source6: Option<Ipv6Addr>) -> Errors {
        let Settings { icmp_source4: source4, icmp_errors: rate, .. } = self.settings;
        Errors { source4, source6, rate }
    }

    /// Which end of a packet that goes into a tunnel has the binding.
    pub(crate) fn near(&self) -> End {
        match self.settings.role {
            Role::Tep => End::Destination,
            Role::Client => End::Source,
        }
    }

    /// Which end of a packet that comes out of a tunnel has the binding.
    pub(crate) fn far(&self) -> End {
        match self.settings.role {
            Role::Tep => End::Source,
            Role::Client => End::Destination,
        }
    }

    /// This end of a tunnel and the other.
    pub(crate) fn ends(&self, entry: &Entry) -> (Ipv6Addr, Ipv6Addr) {
        let (local, remote) = (entry.binding.local, entry.binding.remote);
        match self.settings.role {
            Role::Tep => (local, remote),
            Role::Client => (remote, local),
        }
    }

    fn is_shared(&self, header: &Ipv4Header, end: End) -> bool {
        let v4 = match end {
            End::Source => header.src,
            End::Destination => header.dst,
        };
        matches!(self.bindings.address(v4), Some(Address::Shared(_)))
    }

    /// The binding of one end of a packet. `missing`: why the packet stops if there is none.
    pub(crate) fn find(
        &self,
        incoming: &Incoming<'_, Ipv4Addr>,
        end: End,
        missing: Stop,
        trace: &mut impl Trace,
    ) -> Result<&Entry, Stop> {
        if self.bindings.is_empty() && self.settings.role == Role::Client {
            return Err(Stop::silent(DropReason::SoftwireUnbound));
        }
        let v4 = inner::address(incoming, end);
        let (entry, port) = match self.bindings.address(v4).ok_or(missing)? {
            Address::Whole(entry) => (entry, None),
            Address::Shared(shared) => {
                let port = inner::port(incoming, end).map_err(Stop::silent)?;
                (shared.of_port(port).ok_or(missing)?, Some(port))
            }
        };
        let (local, remote) = (entry.binding.local, entry.binding.remote);
        trace.step(Step::Binding { v4, port, local, remote });
        Ok(entry)
    }

    fn leave(
        &self,
        packet: &mut Packet<'_>,
        now: Duration,
        state: &mut State,
        trace: &mut impl Trace,
    ) -> Result<Verdict, Stop> {
        let bytes = packet.bytes();
        let outer = Ipv6Header::parse(bytes).map_err(|_| Stop::silent(DropReason::Truncated))?;
        let len = ipv6::HEADER_LEN + usize::from(outer.payload_len);
        let bytes = bytes.get(..len).ok_or(Stop::silent(DropReason::Truncated))?;
        let extensions = ipv6::walk(bytes, outer.next_header).map_err(|error| {
            Stop::silent(match error {
                ipv6::Ipv6Error::ExtensionBehindFragment => DropReason::FragmentExtension,
                _ => DropReason::Truncated,
            })
        })?;
        let at = extensions.header_len;
        trace.step(Step::HeaderV6 { header: at, payload: len - at, protocol: extensions.protocol });
        if let Some(pointer) = extensions.segments_left_at {
            let kind = IcmpErrorKind::ParameterProblem { pointer: pointer as u32 };
            return Err(Stop::answered(DropReason::RoutingHeader, kind));
        }
        if extensions.fragment.is_some_and(|fragment| fragment.more || fragment.offset != 0) {
            return Err(Stop::silent(DropReason::FragmentsFull));
        }
        packet.truncate(len);
        match extensions.protocol {
            protocol::IPV4 => self.decapsulate(packet, &outer, at, trace),
            protocol::ICMPV6 => self.relay(packet, &outer, at, now, state, trace),
            // No other protocol ends at a tunnel's address.
            _ => Err(Stop::answered(DropReason::Protocol, IcmpErrorKind::PortUnreachable)),
        }
    }
}

/// Whether the packet is for no tunnel: stopped because of its addresses, before it was changed.
fn is_foreign(reason: DropReason) -> bool {
    matches!(
        reason,
        DropReason::BadVersion
            | DropReason::Martian
            | DropReason::Loopback
            | DropReason::LinkLocal
            | DropReason::Multicast
            | DropReason::Broadcast
            | DropReason::Protocol
            | DropReason::SoftwireBinding
            | DropReason::SoftwireSource
            | DropReason::SoftwireUnbound
    )
}
