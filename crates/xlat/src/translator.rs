//! The entry: a packet comes in, its IP version decides the direction.

mod probe;

use alloc::sync::Arc;
use core::net::Ipv4Addr;
use core::time::Duration;

use fordway_wire::ipv4::Ipv4Header;
use fordway_wire::ipv6::{self, Ipv6Header};

use crate::addr::classify;
use crate::config::{Config, ConfigError};
use crate::counters::Direction;
use crate::mapper::{Mapper, Pass};
use crate::mapping;
use crate::nat64::nat_pt::dns;
use crate::nat64::{Fence, Nat64, Shards, Stateful, alg};
use crate::packet::Packet;
use crate::reply::{self, Errors};
use crate::state::State;
use crate::stateless::{Dynamic, Stateless};
use crate::stop::Stop;
use crate::syns::{Ends, StoredSyn};
use crate::trace::{Step, Trace};
use crate::v4_to_v6;
use crate::v6_to_v4;
use crate::verdict::{DropReason, IcmpErrorKind, Verdict};

/// A translator: immutable, shared by all queues.
#[derive(Debug)]
pub struct Translator {
    config: Config,
    kind: Kind,
}

/// Where addresses and ports come from.
#[derive(Debug)]
enum Kind {
    /// RFC 7915.
    Stateless,
    /// RFC 6146.
    Nat64(Arc<Nat64>),
    /// RFC 7915, with addresses that hosts get on first use.
    Dynamic4(Arc<Nat64>),
}

impl Translator {
    /// A stateless translator of this configuration.
    pub fn new(config: Config) -> Result<Translator, ConfigError> {
        config.check()?;
        Ok(Translator { config, kind: Kind::Stateless })
    }

    /// A stateful translator (RFC 6146). Explicit mappings have no meaning for it.
    pub fn nat64(config: Config, nat64: Arc<Nat64>) -> Result<Translator, ConfigError> {
        config.check()?;
        Ok(Translator { config, kind: Kind::Nat64(nat64) })
    }

    /// A stateless translator that gives IPv6 hosts without a mapping an IPv4 address of a pool:
    /// [`nat64::Settings::dynamic4`](crate::nat64::Settings::dynamic4).
    pub fn dynamic4(config: Config, nat64: Arc<Nat64>) -> Result<Translator, ConfigError> {
        config.check()?;
        Ok(Translator { config, kind: Kind::Dynamic4(nat64) })
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The tables, of a translator that has any.
    pub fn tables(&self) -> Option<&Arc<Nat64>> {
        match &self.kind {
            Kind::Stateless => None,
            Kind::Nat64(nat64) | Kind::Dynamic4(nat64) => Some(nat64),
        }
    }

    /// Whether it is stateful, so that fragments have to be reassembled before it gets them.
    pub fn is_stateful(&self) -> bool {
        matches!(self.kind, Kind::Nat64(_))
    }

    /// The shards of a stateful translator in a cluster.
    #[inline]
    pub fn shards(&self) -> Option<&Shards> {
        match &self.kind {
            Kind::Nat64(nat64) => nat64.settings().shards.as_deref(),
            Kind::Stateless | Kind::Dynamic4(_) => None,
        }
    }

    /// Translates a packet in place.
    ///
    /// `now` is a monotone time; it feeds the rate limiter and lifetimes. Its origin is free, but one for all threads
    /// and programs that share tables: CLOCK_MONOTONIC. `trace` takes the steps: `&mut ()` takes none, a `Vec<Step>`
    /// all of them.
    pub fn translate(
        &self,
        packet: &mut Packet<'_>,
        now: Duration,
        state: &mut State,
        trace: &mut impl Trace,
    ) -> Verdict {
        let config = &self.config;
        // Where to begin looking for free entries: a number that mostly differs between threads.
        let shard = usize::from(state.identification >> 4);
        match &self.kind {
            Kind::Stateless => {
                self.run(&mut Stateless { config, bindings: () }, packet, now, state, trace)
            }
            Kind::Dynamic4(nat64) => {
                let Some(pool) = nat64.settings().dynamic4.as_ref() else {
                    let mapper = &mut Stateless { config, bindings: () };
                    return self.run(mapper, packet, now, state, trace);
                };
                let bindings = Dynamic { view: nat64.view(now, shard), pool };
                let mapper = &mut Stateless { config, bindings };
                let verdict = self.run(mapper, packet, now, state, trace);
                state.made |= mapper.bindings.view.made.get();
                verdict
            }
            Kind::Nat64(nat64) => {
                let (segments, octets) = (packet.segments(), packet.len());
                let mut mapper = Stateful::new(config, nat64.view(now, shard), segments, octets);
                mapper.mark = packet.mark;
                mapper.fence = Fence::new(nat64.settings(), state);
                let dns = dns::Hook::of(config, nat64, packet, now, shard);
                let verdict = self.run(&mut mapper, packet, now, state, trace);
                state.made |= mapper.view.made.get();
                if let Some(fence) = &mapper.fence {
                    state.entered = fence.entered;
                }
                if let Some(stored) = mapper.stored {
                    return self.store(nat64, &mapper, stored, packet, now, state);
                }
                if verdict == Verdict::Forward
                    && let Some(watched) = mapper.watched()
                {
                    let out = &mut state.octets;
                    alg::apply(config, nat64, &watched, packet, &mut mapper, now, out, trace);
                }
                match dns {
                    Some(dns) if verdict == Verdict::Forward => dns.take(packet, state, trace),
                    _ => verdict,
                }
            }
        }
    }

    /// Stores an unsolicited SYN.
    fn store(
        &self,
        nat64: &Nat64,
        mapper: &Stateful<'_>,
        ends: Ends,
        packet: &Packet<'_>,
        now: Duration,
        state: &mut State,
    ) -> Verdict {
        // TCP_INCOMING_SYN, and never early.
        let due = now + nat64.settings().lifetimes.tcp_incoming_syn;
        let hairpin = mapper.is_hairpin.then_some(mapper.pool6);
        if state.syns.store(packet.bytes(), ends, hairpin, due) {
            Verdict::Stored
        } else {
            Verdict::Drop(DropReason::SynsFull)
        }
    }

    /// Puts the ICMP error about a SYN whose time is over in the place of `packet`, which holds [`StoredSyn::packet`],
    /// with [`HEADROOM`](crate::HEADROOM) + 28 octets of room: port unreachable (RFC 6146 section 3.5.2.2, V4 INIT). If
    /// the host has opened the connection meanwhile, nothing is due (RFC 5382 REQ-4). In a cluster, nothing is due either if
    /// the SYN's shard is not translated here any more.
    pub fn unanswered(
        &self,
        syn: &StoredSyn,
        packet: &mut Packet<'_>,
        now: Duration,
        state: &mut State,
        trace: &mut impl Trace,
    ) -> Verdict {
        let Kind::Nat64(nat64) = &self.kind else {
            return Verdict::Drop(DropReason::SynUnanswered);
        };
        if nat64.is_answered(syn, now) {
            return Verdict::Drop(DropReason::SynUnanswered);
        }
        let config = &self.config;
        let mut fence = Fence::new(nat64.settings(), state);
        if let Some(fence) = &mut fence {
            let (addr, port) = syn.ends.0;
            let shard = fence.partition().of_v4(addr, port);
            match shard.map_or(Ok(false), |shard| fence.enter(shard)) {
                Ok(false) => state.entered = fence.entered,
                Ok(true) => return Verdict::Drop(DropReason::SynUnanswered),
                Err(closed) => return Verdict::Drop(closed.into()),
            }
        }
        let errors = self.errors(destination_v4(packet.bytes()));
        let stop = Stop::answered(DropReason::SynUnanswered, IcmpErrorKind::PortUnreachable);
        let verdict = reply::answer(errors, packet, stop, now, state, trace);
        let (Some(pool6), Verdict::Reply(_)) = (syn.hairpin, verdict) else { return verdict };
        let mut mapper = Stateful::new(config, nat64.view(now, 0), 1, packet.len());
        (mapper.pool6, mapper.is_hairpin, mapper.fence) = (pool6, true, fence);
        let result = v4_to_v6::translate(config, &mut mapper, packet, Pass::Hairpin, trace);
        if let Some(fence) = &mapper.fence {
            state.entered = fence.entered;
        }
        match result {
            Ok(_) => verdict,
            Err(stop) => Verdict::Drop(stop.reason),
        }
    }

    /// The shard of an IPv6 fragment that is for another gateway, which then needs all fragments as they are. `None`: it
    /// may be reassembled here, and the whole packet decides. Of a fragmented ICMPv6 error, which belongs to the shard of
    /// what it quotes, it gives the source's.
    #[must_use]
    pub fn fragment_elsewhere(&self, packet: &[u8], state: &State) -> Option<u16> {
        let shards = self.shards()?;
        let header = Ipv6Header::parse(packet).ok()?;
        let fragment = ipv6::walk(packet, header.next_header).ok()?.fragment?;
        let is_part = fragment.offset != 0 || fragment.more;
        let is_loop = || self.config.pool6.iter().any(|pool6| pool6.contains(header.src));
        if !is_part || classify::illegal_v6(header.src).is_some() || is_loop() {
            return None;
        }
        mapping::map_v6_by_pool6(&self.config, header.dst).ok()?;
        let shard = shards.partition().of_host(header.src);
        (!shards.is_enabled(shard, state.enablings)).then_some(shard)
    }

    fn errors(&self, source4: Option<Ipv4Addr>) -> Errors {
        let Config { icmp_source6: source6, icmp_errors: rate, .. } = self.config;
        Errors { source4, source6, rate }
    }

    /// The source of ICMPv4 errors about a packet. A stateful translator answers from the address that the packet was
    /// sent to.
    fn icmp_source4(&self, packet: &Packet<'_>) -> Option<Ipv4Addr> {
        let own = match self.kind {
            Kind::Nat64(_) => destination_v4(packet.bytes()),
            Kind::Stateless | Kind::Dynamic4(_) => None,
        };
        own.or(self.config.icmp_source4)
    }

    fn run<M: Mapper>(
        &self,
        mapper: &mut M,
        packet: &mut Packet<'_>,
        now: Duration,
        state: &mut State,
        trace: &mut impl Trace,
    ) -> Verdict {
        let config = &self.config;
        let direction = Direction::of(packet.bytes());
        if let Some(direction) = direction {
            trace.step(Step::Direction(direction));
        }
        let result = match direction {
            Some(Direction::V4ToV6) => {
                v4_to_v6::translate(config, mapper, packet, Pass::First, trace)
            }
            Some(Direction::V6ToV4) => v6_to_v4::translate(config, mapper, packet, state, trace),
            None if packet.len() == 0 => Err(DropReason::Truncated.into()),
            None => Err(DropReason::BadVersion.into()),
        };
        let verdict = match result {
            Ok(verdict) => verdict,
            Err(stop) if config.pass_unmatched && stop.is_foreign() => Verdict::Pass,
            Err(_) if let Some(shard) = mapper.elsewhere() => Verdict::Elsewhere(shard),
            Err(stop) => {
                let errors = self.errors(self.icmp_source4(packet));
                let verdict = reply::answer(errors, packet, stop, now, state, trace);
                // A hairpinned packet stops as IPv4 (RFC 7757 section 4.2.2); its sender is an IPv6 host, so the answer
                // goes the same way back.
                if matches!(verdict, Verdict::Reply(_))
                    && Direction::of(packet.bytes()) != direction
                {
                    match v4_to_v6::translate(config, mapper, packet, Pass::Hairpin, trace) {
                        Ok(_) => reply::retold(packet, verdict),
                        Err(_) => Verdict::Drop(stop.reason),
                    }
                } else {
                    verdict
                }
            }
        };
        trace.step(Step::Verdict(verdict));
        verdict
    }
}

/// The destination of an IPv4 packet.
fn destination_v4(packet: &[u8]) -> Option<Ipv4Addr> {
    Ipv4Header::parse(packet).ok().map(|header| header.dst)
}

#[cfg(test)]
mod tests;
