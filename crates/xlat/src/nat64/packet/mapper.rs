//! The mapper of stateful translation: incoming tuple in, outgoing tuple out (RFC 6146 sections 3.4 to 3.6),
//! and hairpinning (section 3.8).

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::addr::{Mapped, Pool6, Unmapped, Via, classify};
use crate::config::Config;
use crate::mapper::{Mapper, Outgoing, Ports};
use crate::mapping;
use crate::nat64::Nat64;
use crate::nat64::alg::{Ends as AlgEnds, Mappings, Watched};
use crate::nat64::policy::{Closed, Partition};
use crate::nat64::table::{Protocol, SessionKey, Side, TcpState, View};
use crate::stop::Stop;
use crate::syns::Ends;
use crate::trace::{Step, Trace};
use crate::tuple::{Incoming, Transport};
use crate::verdict::DropReason;

use super::{Fence, Outgoing6, Refusal, Segment, Tuple};

/// Maps by the BIB and the session table. For one packet.
#[derive(Debug)]
pub(crate) struct Stateful<'a> {
    config: &'a Config,
    pub(crate) view: View<'a>,
    /// The packet's mark.
    pub(crate) mark: u32,
    packets: u32,
    octets: u32,
    /// Which of `pool6` a packet that hairpins was sent to.
    pub(crate) pool6: u8,
    /// The packet hairpins.
    pub(crate) is_hairpin: bool,
    /// The packet was an unsolicited SYN, which is to be kept (RFC 6146 section 3.5.2.2): its ends.
    pub(crate) stored: Option<Ends>,
    /// Of a cluster.
    pub(crate) fence: Option<Fence<'a>>,
    elsewhere: Option<u16>,
    watched: Option<Watched>,
}

/// A packet from IPv6 whose destination is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admitted6 {
    dst: Mapped<Ipv4Addr>,
    pool6: u8,
    ports: Tuple6,
}

/// Of an ICMP error, that of the packet inside, as it went: from IPv4 to the host.
#[derive(Clone, Copy, Debug)]
struct Tuple6 {
    transport: Transport,
    /// The IPv4 end of the packet inside.
    remote: Option<Ipv4Addr>,
}

/// What the tables hold of a packet's flow.
#[derive(Clone, Copy, Debug)]
struct Known {
    has_bib: bool,
    /// Of its session; of TCP, the state.
    session: Option<Option<TcpState>>,
}

fn protocol_of(transport: Transport) -> Protocol {
    match transport {
        Transport::Tcp { .. } => Protocol::Tcp,
        Transport::Udp { .. } => Protocol::Udp,
        Transport::IcmpQuery { .. } => Protocol::Icmp,
    }
}

fn segment_of(transport: Transport) -> Segment {
    match transport {
        Transport::Tcp { flags, .. } => Segment::of(flags),
        _ => Segment::Other,
    }
}

/// The host's port and the remote one, when the host is the source; ICMP has no remote port.
fn ports_from_host(transport: Transport) -> (u16, u16) {
    match transport {
        Transport::IcmpQuery { id, .. } => (id, 0),
        _ => transport.ports(),
    }
}

/// The host's port and the remote one, when the host is the destination.
fn ports_to_host(transport: Transport) -> (u16, u16) {
    match (transport, transport.ports()) {
        (Transport::IcmpQuery { id, .. }, _) => (id, 0),
        (_, (src, dst)) => (dst, src),
    }
}

/// The ports of the outgoing tuple, where the host's own is `near`.
fn ports_out(transport: Transport, near: u16, host_is_source: bool) -> Ports {
    match (transport, host_is_source) {
        (Transport::IcmpQuery { .. }, _) => Ports { src: near, dst: near },
        (_, true) => Ports { src: near, dst: transport.ports().1 },
        (_, false) => Ports { src: transport.ports().0, dst: near },
    }
}

impl<'a> Stateful<'a> {
    /// For a packet of so many segments and octets.
    pub(crate) fn new(config: &'a Config, view: View<'a>, packets: usize, octets: usize) -> Self {
        Stateful {
            config,
            view,
            mark: 0,
            packets: packets as u32,
            octets: octets as u32,
            pool6: 0,
            is_hairpin: false,
            stored: None,
            fence: None,
            elsewhere: None,
            watched: None,
        }
    }

    /// The packet's connection, if an ALG watches it. Not of a packet that hairpins: both its ends are IPv6
    /// hosts.
    pub(crate) fn watched(&self) -> Option<Watched> {
        self.watched.filter(|_| !self.is_hairpin)
    }

    /// Looks up whether an ALG watches a connection.
    fn watch(&mut self, from: Side, ends: AlgEnds) {
        let nat = self.view.nat;
        let ports = [ends.host.1, ends.remote.1];
        let found = nat.alg_of(ports[0], ports[1]);
        if found.is_none() && !nat.was_watched(ports) {
            return;
        }
        let key = SessionKey::tcp(ends.local, ends.remote);
        let state = self.view.session(&key).map(|(_, session)| session.life().state);
        let opening = state.and_then(TcpState::of);
        let opening = matches!(opening, Some(TcpState::V4Init | TcpState::V6Init));
        let (alg, opener) = found.map_or((None, ends.opener), |(alg, side)| (Some(alg), side));
        self.watched = Some(Watched { alg, ends: AlgEnds { opener, ..ends }, from, opening });
    }

    fn prefix(&self, number: u8) -> Result<Pool6, DropReason> {
        let prefixes = &self.config.pool6;
        let found = prefixes.get(usize::from(number)).or(prefixes.first());
        found.copied().ok_or(DropReason::NoMappingSource)
    }

    /// The number of the prefix that an address was mapped by.
    fn number(&self, via: Via) -> u8 {
        let Via::Pool6(prefix) = via else { return 0 };
        let found = self.config.pool6.iter().position(|pool6| *pool6 == prefix);
        found.and_then(|number| u8::try_from(number).ok()).unwrap_or(0)
    }

    fn embed(&self, number: u8, addr: Ipv4Addr) -> Result<Mapped<Ipv6Addr>, DropReason> {
        mapping::map_v4_into(self.config, self.prefix(number)?, addr).map_err(Unmapped::as_source)
    }

    /// Enters the packet's shard, or the shard of what an ICMP error quotes. `hairpin`: nobody else can have the packet.
    fn enter(
        &mut self,
        shard_of: impl FnOnce(&dyn Partition) -> Option<u16>,
        hairpin: bool,
    ) -> Result<(), Stop> {
        let Some(fence) = &mut self.fence else { return Ok(()) };
        let Some(shard) = shard_of(fence.partition()) else { return Ok(()) };
        let entered = fence.enter(shard);
        if entered == Err(Closed::Elsewhere) && !hairpin {
            self.elsewhere = Some(shard);
        }
        self.view.is_quiet = entered.map_err(|closed| Stop::silent(closed.into()))?;
        Ok(())
    }

    /// Whether a packet that hairpins may do so here: its target's shard is translated here. If not, it leaves as IPv4, and
    /// its target's owner gets it.
    fn enters_target(&mut self, transport: Transport, addr: Ipv4Addr, port: u16) -> bool {
        let Some(fence) = &mut self.fence else { return true };
        // The identifier that an ICMP query will have, by which it belongs to a shard, is not chosen yet.
        protocol_of(transport) != Protocol::Icmp
            && fence.partition().of_v4(addr, port).is_none_or(|shard| fence.enter(shard).is_ok())
    }

    /// How a packet stops that the tables refuse. In a quiet shard they may lack its session.
    fn refused(&self, reason: DropReason) -> Stop {
        if self.view.is_quiet { Stop::silent(reason) } else { reason.into() }
    }

    /// Whether a transport address is the translator's. Identifiers are chosen here, so an ICMP query to an
    /// address of the pool is.
    fn is_own(&self, transport: Transport, addr: Ipv4Addr, port: u16) -> bool {
        match protocol_of(transport) {
            Protocol::Icmp => self.view.nat.owns_address(addr),
            protocol => {
                let nat = self.view.nat;
                nat.owns(protocol, addr, port)
                    || nat.owns_address(addr)
                        && self.view.bib4((addr, port), protocol.number()).is_some()
            }
        }
    }

    fn tuple<A>(
        &self,
        transport: Transport,
        near: (A, u16),
        remote: (Ipv4Addr, u16),
        pool6: u8,
    ) -> Tuple<A> {
        Tuple {
            protocol: protocol_of(transport),
            near,
            remote,
            segment: segment_of(transport),
            pool6,
            mark: self.mark,
            packets: self.packets,
            octets: self.octets,
        }
    }

    /// What the tables hold of a flow with this (T,t) and (Z,z); only for a trace.
    fn known(
        &self,
        transport: Transport,
        local: Option<(Ipv4Addr, u16)>,
        remote: (Ipv4Addr, u16),
    ) -> Known {
        let protocol = protocol_of(transport).number();
        let local = local.filter(|local| self.view.bib4(*local, protocol).is_some());
        let session = local.and_then(|local| {
            let (_, session) = self.view.session(&SessionKey { local, remote, protocol })?;
            Some(TcpState::of(session.life().state))
        });
        Known { has_bib: local.is_some(), session }
    }

    /// Traces what a packet has found or made.
    fn tell(before: Known, after: Known, trace: &mut impl Trace) {
        if after.has_bib {
            trace.step(Step::Bib { new: !before.has_bib });
        }
        let Some(state) = after.session else { return };
        trace.step(Step::Session { new: before.session.is_none() });
        if let Some(to) = state.map(TcpState::label) {
            let from = before.session.flatten().map_or("closed", TcpState::label);
            trace.step(Step::TcpState { from, to });
        }
    }

    /// The session of the packet inside an ICMPv4 error.
    fn quoted_host(&self, quoted: &Incoming<'_, Ipv4Addr>) -> Result<Outgoing6, DropReason> {
        let transport = quoted.transport()?;
        let (near, far) = ports_from_host(transport);
        let found =
            self.view.error_from_v4(protocol_of(transport), (quoted.src, near), (quoted.dst, far));
        found.ok_or(DropReason::NoBib)
    }
}

impl Mappings for Stateful<'_> {
    fn expect(
        &mut self,
        host: (Ipv6Addr, u16),
        at: Ipv4Addr,
        from: Ipv4Addr,
        pool6: u8,
    ) -> Option<(Ipv4Addr, u16)> {
        self.view.expect(host, at, from, pool6, self.mark).ok()
    }

    fn v6_of(&self, pool6: u8, addr: Ipv4Addr) -> Option<Ipv6Addr> {
        self.embed(pool6, addr).ok().map(|mapped| mapped.addr)
    }

    fn tables(&self) -> Option<(&Config, &Nat64)> {
        Some((self.config, self.view.nat))
    }
}

impl Mapper for Stateful<'_> {
    type Admitted4 = Option<Transport>;
    type Admitted6 = Admitted6;

    const HAIRPIN: Step = Step::HairpinPool4;

    fn admit_v4(
        &mut self,
        incoming: &Incoming<'_, Ipv4Addr>,
        _trace: &mut impl Trace,
    ) -> Result<Option<Transport>, Stop> {
        if incoming.is_icmp_error {
            // RFC 5508 REQ-4: it is addressed to the sender of the packet inside.
            let quoted = incoming.quoted().map_err(Stop::silent)?;
            if quoted.src != incoming.dst {
                return Err(Stop::silent(DropReason::IcmpInner));
            }
            let port = || quoted.transport().ok().map(|transport| ports_from_host(transport).0);
            self.enter(|parts| parts.of_v4(quoted.src, port()?), incoming.hairpin)?;
            return Ok(None);
        }
        if !self.view.nat.owns_address(incoming.dst) {
            return Err(Stop::silent(DropReason::NoMappingDestination));
        }
        let transport = incoming.transport()?;
        let (near, far) = ports_to_host(transport);
        if !self.is_own(transport, incoming.dst, near) {
            return Err(Stop::silent(DropReason::NoMappingDestination));
        }
        self.enter(|parts| parts.of_v4(incoming.dst, near), incoming.hairpin)?;
        // Only the translator sends from its transport addresses; in a cluster others send from those of their shards.
        let own_source = match transport {
            Transport::IcmpQuery { .. } => incoming.src == incoming.dst,
            _ => {
                self.view.nat.owns(protocol_of(transport), incoming.src, far)
                    && self.fence.as_ref().is_none_or(|fence| fence.translates(incoming.src, far))
            }
        };
        if own_source && !incoming.hairpin {
            return Err(Stop::silent(DropReason::Loop));
        }
        Ok(Some(transport))
    }

    fn map_v4(
        &mut self,
        incoming: &Incoming<'_, Ipv4Addr>,
        admitted: Option<Transport>,
        trace: &mut impl Trace,
    ) -> Result<Outgoing<Ipv6Addr>, Stop> {
        let Some(transport) = admitted else {
            let quoted = incoming.quoted().map_err(Stop::silent)?;
            let Outgoing6 { host, pool6 } = self.quoted_host(&quoted).map_err(Stop::silent)?;
            // Errors of a router whose address may not be embedded (RFC 6052 section 3.1) are translated all the same:
            // path MTU discovery needs them. The translator's address is their source (RFC 6791).
            let own = self.config.icmp_source6.map(|addr| Mapped { addr, via: Via::IcmpSource });
            let src = self.embed(pool6, incoming.src).or_else(|reason| own.ok_or(reason))?;
            let dst = Mapped { addr: host.0, via: Via::Bib };
            trace.step(Step::SourceV4(incoming.src, src));
            trace.step(Step::DestinationV4(incoming.dst, dst));
            return Ok(Outgoing { src, dst, ports: None });
        };
        let (near, far) = ports_to_host(transport);
        let pool6 = if incoming.hairpin { self.pool6 } else { 0 };
        let tuple = self.tuple(transport, (incoming.dst, near), (incoming.src, far), pool6);
        let look = |mapper: &Self| mapper.known(transport, Some(tuple.near), tuple.remote);
        let before = trace.is_wanted().then(|| look(self));
        // Before a session is made, its source must be one that can stand in IPv6; an existing one has its own prefix.
        let unfit = self.embed(pool6, incoming.src).err();
        let may_begin = || unfit.map_or(Ok(()), Err);
        let found = self.view.filter_v4(&tuple, may_begin).map_err(|refusal| match refusal {
            Refusal::Drop(reason) if unfit == Some(reason) => self.refused(reason),
            Refusal::Drop(reason) => Stop::silent(reason),
            Refusal::Store => {
                self.stored = (!self.view.is_quiet).then_some((tuple.near, tuple.remote));
                Stop::silent(DropReason::SynUnanswered)
            }
        })?;
        if let Some(before) = before {
            Self::tell(before, look(self), trace);
        }
        if let Transport::Tcp { .. } = transport {
            let (host, local, remote) = (found.host, tuple.near, tuple.remote);
            let pool6 = found.pool6;
            self.watch(Side::V4, AlgEnds { opener: Side::V4, host, local, remote, pool6 });
        }
        let src = self.embed(found.pool6, incoming.src)?;
        let dst = Mapped { addr: found.host.0, via: Via::Bib };
        trace.step(Step::SourceV4(incoming.src, src));
        trace.step(Step::DestinationV4(incoming.dst, dst));
        Ok(Outgoing { src, dst, ports: Some(ports_out(transport, found.host.1, false)) })
    }

    fn map_quoted_v4(
        &mut self,
        quoted: &Incoming<'_, Ipv4Addr>,
    ) -> Result<Outgoing<Ipv6Addr>, DropReason> {
        let Outgoing6 { host, pool6 } = self.quoted_host(quoted)?;
        let src = Mapped { addr: host.0, via: Via::Bib };
        let dst = self.embed(pool6, quoted.dst).map_err(|_| DropReason::IcmpInner)?;
        let ports = ports_out(quoted.transport()?, host.1, true);
        Ok(Outgoing { src, dst, ports: Some(ports) })
    }

    fn admit_v6(
        &mut self,
        incoming: &Incoming<'_, Ipv6Addr>,
        _trace: &mut impl Trace,
    ) -> Result<Admitted6, Stop> {
        // RFC 6146 section 3.5: against loops.
        if self.config.pool6.iter().any(|pool6| pool6.contains(incoming.src)) {
            return Err(Stop::silent(DropReason::Loop));
        }
        let dst = mapping::map_v6_by_pool6(self.config, incoming.dst);
        let dst = dst.map_err(Unmapped::as_destination)?;
        if let Some(reason) = classify::illegal_v4(dst.addr) {
            return Err(reason.into());
        }
        let pool6 = self.number(dst.via);
        self.pool6 = pool6;
        if !incoming.is_icmp_error {
            let ports = Tuple6 { transport: incoming.transport()?, remote: None };
            self.enter(|parts| Some(parts.of_host(incoming.src)), false)?;
            return Ok(Admitted6 { dst, pool6, ports });
        }
        let quoted = incoming.quoted().map_err(Stop::silent)?;
        if quoted.src != incoming.dst {
            return Err(Stop::silent(DropReason::IcmpInner));
        }
        let transport = quoted.transport().map_err(Stop::silent)?;
        self.enter(|parts| Some(parts.of_host(quoted.dst)), false)?;
        Ok(Admitted6 { dst, pool6, ports: Tuple6 { transport, remote: Some(dst.addr) } })
    }

    fn hairpins(
        &mut self,
        _incoming: &Incoming<'_, Ipv6Addr>,
        admitted: &Admitted6,
    ) -> Result<bool, Stop> {
        if !self.config.hairpin {
            return Ok(false);
        }
        let transport = admitted.ports.transport;
        let (addr, port) = match admitted.ports.remote {
            None => (admitted.dst.addr, ports_from_host(transport).1),
            // The packet inside came from there, by the same way.
            Some(remote) => (remote, ports_to_host(transport).1),
        };
        self.is_hairpin =
            self.is_own(transport, addr, port) && self.enters_target(transport, addr, port);
        Ok(self.is_hairpin)
    }

    fn map_v6(
        &mut self,
        incoming: &Incoming<'_, Ipv6Addr>,
        admitted: Admitted6,
        trace: &mut impl Trace,
    ) -> Result<Outgoing<Ipv4Addr>, Stop> {
        let Admitted6 { dst, pool6, ports: Tuple6 { transport, remote } } = admitted;
        let (addr, ports) = if remote.is_some() {
            let quoted = incoming.quoted().map_err(Stop::silent)?;
            // RFC 5508 REQ-5: from the host's external address, whichever node behind it sends the error.
            (self.map_quoted_v6(&quoted).map_err(Stop::silent)?.dst.addr, None)
        } else {
            let (near, far) = ports_from_host(transport);
            let tuple = self.tuple(transport, (incoming.src, near), (dst.addr, far), pool6);
            let look = |mapper: &Self| {
                let found = mapper.view.bib6(tuple.near, tuple.protocol.number());
                mapper.known(transport, found.map(|(_, bib)| bib.v4()), tuple.remote)
            };
            let before = trace.is_wanted().then(|| look(self));
            let local = self.view.filter_v6(&tuple).map_err(|reason| self.refused(reason))?;
            if let Some(before) = before {
                Self::tell(before, look(self), trace);
            }
            if let Transport::Tcp { .. } = transport {
                let (host, remote) = (tuple.near, tuple.remote);
                self.watch(Side::V6, AlgEnds { opener: Side::V6, host, local, remote, pool6 });
            }
            (local.0, Some(ports_out(transport, local.1, true)))
        };
        let src = Mapped { addr, via: Via::Bib };
        trace.step(Step::SourceV6(incoming.src, src));
        trace.step(Step::DestinationV6(incoming.dst, dst));
        Ok(Outgoing { src, dst, ports })
    }

    fn map_quoted_v6(
        &mut self,
        quoted: &Incoming<'_, Ipv6Addr>,
    ) -> Result<Outgoing<Ipv4Addr>, DropReason> {
        let transport = quoted.transport()?;
        let src = mapping::map_v6_by_pool6(self.config, quoted.src);
        let src = src.map_err(|_| DropReason::IcmpInner)?;
        let (near, far) = ports_to_host(transport);
        let local =
            self.view.error_from_v6(protocol_of(transport), (quoted.dst, near), (src.addr, far));
        let local = local.ok_or(DropReason::NoBib)?;
        let dst = Mapped { addr: local.0, via: Via::Bib };
        Ok(Outgoing { src, dst, ports: Some(ports_out(transport, local.1, false)) })
    }

    fn shares_addresses(&self) -> bool {
        true
    }

    fn elsewhere(&self) -> Option<u16> {
        self.elsewhere
    }
}
