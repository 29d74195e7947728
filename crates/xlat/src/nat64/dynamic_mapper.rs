//! The mapper of stateless translation with dynamic 1:1 mappings: explicit mappings and translation prefixes
//! first, then the pool.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::addr::{self, Mapped, Unmapped, Via, classify};
use crate::config::Config;
use crate::mapper::{Mapper, Outgoing};
use crate::stateless::{Stateless, check_self_v4, check_self_v6, source_v4};
use crate::stop::Stop;
use crate::trace::{Step, Trace};
use crate::tuple::Incoming;
use crate::verdict::DropReason;

use super::settings::Dynamic4;
use super::view::View;

/// Maps by algorithm where it can, else by the pool.
#[derive(Debug)]
pub(crate) struct Dynamic<'a> {
    pub(crate) config: &'a Config,
    pub(crate) view: View<'a>,
    pub(crate) pool: &'a Dynamic4,
}

/// A packet from IPv6: what is known of its source before it gets a mapping.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Admitted6 {
    /// All by algorithm.
    Mapped(Outgoing<Ipv4Addr>),
    /// The source is to have a mapping; this is the destination.
    Unmapped(Mapped<Ipv4Addr>),
}

impl Admitted6 {
    fn dst(&self) -> Mapped<Ipv4Addr> {
        match self {
            Admitted6::Mapped(outgoing) => outgoing.dst,
            Admitted6::Unmapped(dst) => *dst,
        }
    }
}

impl<'a> Dynamic<'a> {
    fn stateless(&self) -> Stateless<'a> {
        Stateless { config: self.config }
    }

    /// Whether an IPv4 address is mapped by the pool.
    fn is_pooled(&self, addr: Ipv4Addr) -> bool {
        self.pool.contains(addr) && self.config.eam.v4_to_v6(addr).is_none()
    }

    /// Whether an IPv6 address is not mapped by algorithm.
    fn is_unmapped(&self, addr: Ipv6Addr) -> bool {
        matches!(addr::map_v6(self.config, addr), Err(Unmapped::NoMapping))
    }

    /// The counterpart of an address of the pool, which this is no use of.
    fn known6(&self, addr: Ipv4Addr) -> Result<Mapped<Ipv6Addr>, DropReason> {
        let found = self.view.dynamic6_known(addr).ok_or(DropReason::IcmpInner)?;
        Ok(Mapped { addr: found, via: Via::Dynamic4 })
    }

    fn known4(&self, addr: Ipv6Addr) -> Result<Mapped<Ipv4Addr>, DropReason> {
        let found = self.view.dynamic4_known(addr).ok_or(DropReason::IcmpInner)?;
        Ok(Mapped { addr: found, via: Via::Dynamic4 })
    }

    /// Whether what an address was mapped to has a mapping of its own, and the packet turns round.
    fn turns(&self, mapped: Mapped<Ipv4Addr>) -> bool {
        let explicit = || self.config.eam.v4_to_v6(mapped.addr).is_some();
        let dynamic = || self.view.dynamic6_known(mapped.addr).is_some();
        matches!(mapped.via, Via::Pool6(_))
            && (explicit() || self.is_pooled(mapped.addr) && dynamic())
    }
}

impl Mapper for Dynamic<'_> {
    type Admitted4 = Outgoing<Ipv6Addr>;
    type Admitted6 = Admitted6;

    const HAIRPIN: Step = Step::Hairpin;

    fn admit_v4(
        &mut self,
        incoming: &Incoming<'_, Ipv4Addr>,
        trace: &mut impl Trace,
    ) -> Result<Outgoing<Ipv6Addr>, Stop> {
        if !self.is_pooled(incoming.dst) {
            return self.stateless().admit_v4(incoming, trace);
        }
        check_self_v4(self.config, incoming)?;
        let src = source_v4(self.config, incoming).map_err(Unmapped::as_source)?;
        // RFC 5508 REQ-6: an ICMP error is no use of a mapping.
        let dst = if incoming.is_icmp_error {
            self.view.dynamic6_known(incoming.dst)
        } else {
            self.view.dynamic6(incoming.dst)
        };
        let dst = dst.ok_or(DropReason::NoMappingDestination)?;
        let dst = Mapped { addr: dst, via: Via::Dynamic4 };
        trace.step(Step::SourceV4(incoming.src, src));
        trace.step(Step::DestinationV4(incoming.dst, dst));
        Ok(Outgoing { src, dst, ports: None })
    }

    fn map_v4(
        &mut self,
        _incoming: &Incoming<'_, Ipv4Addr>,
        admitted: Outgoing<Ipv6Addr>,
        _trace: &mut impl Trace,
    ) -> Result<Outgoing<Ipv6Addr>, Stop> {
        Ok(admitted)
    }

    fn map_quoted_v4(
        &mut self,
        quoted: &Incoming<'_, Ipv4Addr>,
    ) -> Result<Outgoing<Ipv6Addr>, DropReason> {
        let unmapped = |_| DropReason::IcmpInner;
        let src = if self.is_pooled(quoted.src) {
            self.known6(quoted.src)?
        } else {
            addr::map_v4(self.config, quoted.src).map_err(unmapped)?
        };
        let dst = if quoted.hairpin {
            addr::map_v4_by_pool6(self.config, quoted.dst)
        } else {
            addr::map_v4(self.config, quoted.dst)
        };
        Ok(Outgoing { src, dst: dst.map_err(unmapped)?, ports: None })
    }

    fn admit_v6(
        &mut self,
        incoming: &Incoming<'_, Ipv6Addr>,
        trace: &mut impl Trace,
    ) -> Result<Admitted6, Stop> {
        if !self.is_unmapped(incoming.src) {
            return self.stateless().admit_v6(incoming, trace).map(Admitted6::Mapped);
        }
        check_self_v6(self.config, incoming)?;
        let dst = addr::map_v6(self.config, incoming.dst).map_err(Unmapped::as_destination)?;
        if let Some(reason) = classify::illegal_v4(dst.addr) {
            return Err(reason.into());
        }
        Ok(Admitted6::Unmapped(dst))
    }

    fn turns_round(
        &mut self,
        incoming: &Incoming<'_, Ipv6Addr>,
        admitted: &Admitted6,
    ) -> Result<bool, Stop> {
        if !self.config.hairpin {
            return Ok(false);
        }
        if incoming.is_icmp_error {
            let quoted = incoming.quoted();
            return Ok(quoted.is_ok_and(|quoted| {
                addr::map_v6(self.config, quoted.src).is_ok_and(|mapped| self.turns(mapped))
            }));
        }
        Ok(self.turns(admitted.dst()))
    }

    fn map_v6(
        &mut self,
        incoming: &Incoming<'_, Ipv6Addr>,
        admitted: Admitted6,
        trace: &mut impl Trace,
    ) -> Result<Outgoing<Ipv4Addr>, Stop> {
        let dst = match admitted {
            Admitted6::Mapped(outgoing) => return Ok(outgoing),
            Admitted6::Unmapped(dst) => dst,
        };
        let src = if incoming.is_icmp_error {
            // A router on the way gets no address for its errors (RFC 6791).
            let own = self.config.icmp_source4;
            self.known4(incoming.src).ok().or(own.map(|addr| Mapped { addr, via: Via::IcmpSource }))
        } else {
            let given = self.view.dynamic4(self.pool, incoming.src).transpose()?;
            given.map(|addr| Mapped { addr, via: Via::Dynamic4 })
        };
        let src = src.ok_or(DropReason::NoMappingSource)?;
        trace.step(Step::SourceV6(incoming.src, src));
        trace.step(Step::DestinationV6(incoming.dst, dst));
        Ok(Outgoing { src, dst, ports: None })
    }

    fn map_quoted_v6(
        &mut self,
        quoted: &Incoming<'_, Ipv6Addr>,
    ) -> Result<Outgoing<Ipv4Addr>, DropReason> {
        let src = addr::map_v6(self.config, quoted.src).map_err(|_| DropReason::IcmpInner)?;
        let dst = if self.is_unmapped(quoted.dst) {
            self.known4(quoted.dst)?
        } else {
            addr::map_v6(self.config, quoted.dst).map_err(|_| DropReason::IcmpInner)?
        };
        Ok(Outgoing { src, dst, ports: None })
    }

    fn shares_addresses(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests;
