//! The mapper of stateless translation: addresses by algorithm, ports as they are (RFC 7915 section 6).
//!
//! With [`Dynamic`] bindings, hosts without a mapping get IPv4 addresses of a pool.

mod dynamic;

pub(crate) use dynamic::{Bindings, Dynamic};

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::addr::{Mapped, Unmapped, Via, classify};
use crate::config::Config;
use crate::mapper::{Mapper, Outgoing};
use crate::mapping;
use crate::stop::Stop;
use crate::trace::{Step, Trace};
use crate::tuple::Incoming;
use crate::verdict::DropReason;

/// Maps by explicit mappings and translation prefixes first, then by dynamic bindings; `()`: there are none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stateless<'a, B = ()> {
    pub(crate) config: &'a Config,
    pub(crate) bindings: B,
}

/// A packet from IPv6 by its addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admitted6 {
    /// `None`: the source needs a dynamic mapping, which is made only for a packet that passes the other checks.
    src: Option<Mapped<Ipv4Addr>>,
    dst: Mapped<Ipv4Addr>,
}

impl<B: Bindings> Stateless<'_, B> {
    /// Whether an IPv4 address is mapped by the dynamic bindings.
    #[inline]
    fn is_pooled(&self, addr: Ipv4Addr) -> bool {
        self.bindings.contains(addr) && self.config.eam.v4_to_v6(addr).is_none()
    }

    /// Whether a destination by pool6 has a mapping of its own, explicit or dynamic.
    #[inline]
    fn hairpins_to(&self, mapped: Mapped<Ipv4Addr>) -> bool {
        matches!(mapped.via, Via::Pool6(_))
            && (self.config.eam.v4_to_v6(mapped.addr).is_some()
                || self.is_pooled(mapped.addr) && self.bindings.known6(mapped.addr).is_some())
    }

    /// RFC 7915 section 5.1: a packet both of whose addresses are pool6's came from an IPv4 network, and goes to one.
    #[inline]
    fn check_loop(&self, src: Via, dst: Via) -> Result<(), DropReason> {
        let both_pool6 = matches!((src, dst), (Via::Pool6(_), Via::Pool6(_)));
        if both_pool6 && !self.config.ipv4_translatable { Err(DropReason::Loop) } else { Ok(()) }
    }
}

impl<B: Bindings> Mapper for Stateless<'_, B> {
    type Admitted4 = Outgoing<Ipv6Addr>;
    type Admitted6 = Admitted6;

    const HAIRPIN: Step = Step::Hairpin;

    /// RFC 7915 section 6 and RFC 7757 section 4.
    #[inline]
    fn admit_v4(
        &mut self,
        incoming: &Incoming<'_, Ipv4Addr>,
        trace: &mut impl Trace,
    ) -> Result<Outgoing<Ipv6Addr>, Stop> {
        let config = self.config;
        check_self_v4(config, incoming)?;
        let src = source_v4(config, incoming).map_err(Unmapped::as_source)?;
        let dst = if self.is_pooled(incoming.dst) {
            // RFC 5508 REQ-6: an ICMP error does not refresh a mapping.
            let found = match incoming.is_icmp_error {
                true => self.bindings.known6(incoming.dst),
                false => self.bindings.refresh6(incoming.dst),
            };
            Mapped { addr: found.ok_or(DropReason::NoMappingDestination)?, via: Via::Dynamic4 }
        } else {
            mapping::map_v4(config, incoming.dst).map_err(Unmapped::as_destination)?
        };
        self.check_loop(src.via, dst.via)?;
        trace.step(Step::SourceV4(incoming.src, src));
        trace.step(Step::DestinationV4(incoming.dst, dst));
        Ok(Outgoing { src, dst, ports: None })
    }

    #[inline]
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
            let addr = self.bindings.known6(quoted.src).ok_or(DropReason::IcmpInner)?;
            Mapped { addr, via: Via::Dynamic4 }
        } else {
            mapping::map_v4(self.config, quoted.src).map_err(unmapped)?
        };
        // RFC 7757 section 4.2.1, rule 2.
        let dst = if quoted.hairpin {
            mapping::map_v4_by_pool6(self.config, quoted.dst)
        } else {
            mapping::map_v4(self.config, quoted.dst)
        };
        Ok(Outgoing { src, dst: dst.map_err(unmapped)?, ports: None })
    }

    /// RFC 7915 section 6; RFC 6791 for the source of ICMPv6 errors.
    #[inline]
    fn admit_v6(
        &mut self,
        incoming: &Incoming<'_, Ipv6Addr>,
        trace: &mut impl Trace,
    ) -> Result<Admitted6, Stop> {
        let config = self.config;
        check_self_v6(config, incoming)?;
        let dst = mapping::map_v6(config, incoming.dst).map_err(Unmapped::as_destination)?;
        let src = match (mapping::map_v6(config, incoming.src), config.icmp_source4) {
            (Err(Unmapped::NoMapping), _) if B::EXIST => None,
            (Err(Unmapped::NoMapping), Some(addr)) if incoming.is_icmp_error => {
                Some(Mapped { addr, via: Via::IcmpSource })
            }
            (mapped, _) => Some(mapped.map_err(Unmapped::as_source)?),
        };
        // A mapping can lead to an address that must not be on a wire.
        let illegal_src = || src.and_then(|src| classify::illegal_v4(src.addr));
        if let Some(reason) = classify::illegal_v4(dst.addr).or_else(illegal_src) {
            return Err(reason.into());
        }
        if let Some(src) = src {
            self.check_loop(src.via, dst.via)?;
            trace.step(Step::SourceV6(incoming.src, src));
            trace.step(Step::DestinationV6(incoming.dst, dst));
        }
        Ok(Admitted6 { src, dst })
    }

    /// RFC 7757 section 4.2.2.
    #[inline]
    fn hairpins(
        &mut self,
        incoming: &Incoming<'_, Ipv6Addr>,
        admitted: &Admitted6,
    ) -> Result<bool, Stop> {
        let config = self.config;
        if !config.hairpin || !B::EXIST && config.eam.is_empty() {
            return Ok(false);
        }
        if incoming.is_icmp_error {
            // Conditions B1 to B3.
            let quoted = incoming.quoted().ok().and_then(|it| mapping::map_v6(config, it.src).ok());
            return Ok(quoted.is_some_and(|mapped| self.hairpins_to(mapped)));
        }
        // Conditions A1 to A3.
        let hairpins = self.hairpins_to(admitted.dst);
        if let (true, false, Some(src)) = (hairpins, B::EXIST, admitted.src) {
            // The second pass maps the source so; a failure is answered only while the packet is whole.
            mapping::map_v4_by_pool6(config, src.addr).map_err(Unmapped::as_source)?;
        }
        Ok(hairpins)
    }

    #[inline]
    fn map_v6(
        &mut self,
        incoming: &Incoming<'_, Ipv6Addr>,
        Admitted6 { src, dst }: Admitted6,
        trace: &mut impl Trace,
    ) -> Result<Outgoing<Ipv4Addr>, Stop> {
        if let Some(src) = src {
            return Ok(Outgoing { src, dst, ports: None });
        }
        let bound = if incoming.is_icmp_error {
            self.bindings.known4(incoming.src)
        } else {
            self.bindings.bind4(incoming.src).transpose()?
        };
        let src = match (bound, self.config.icmp_source4) {
            (Some(addr), _) => Mapped { addr, via: Via::Dynamic4 },
            // A router on the way gets no address for its errors (RFC 6791).
            (None, Some(addr)) if incoming.is_icmp_error => Mapped { addr, via: Via::IcmpSource },
            _ => return Err(DropReason::NoMappingSource.into()),
        };
        trace.step(Step::SourceV6(incoming.src, src));
        trace.step(Step::DestinationV6(incoming.dst, dst));
        Ok(Outgoing { src, dst, ports: None })
    }

    fn map_quoted_v6(
        &mut self,
        quoted: &Incoming<'_, Ipv6Addr>,
    ) -> Result<Outgoing<Ipv4Addr>, DropReason> {
        let unmapped = |_| DropReason::IcmpInner;
        let src = mapping::map_v6(self.config, quoted.src).map_err(unmapped)?;
        let dst = match mapping::map_v6(self.config, quoted.dst) {
            Err(Unmapped::NoMapping) => {
                let addr = self.bindings.known4(quoted.dst).ok_or(DropReason::IcmpInner)?;
                Mapped { addr, via: Via::Dynamic4 }
            }
            mapped => mapped.map_err(unmapped)?,
        };
        Ok(Outgoing { src, dst, ports: None })
    }

    #[inline]
    fn shares_addresses(&self) -> bool {
        false
    }
}

/// Only the translator sends from `icmp_source4`, nothing is for it, and no host sends to itself.
#[inline]
fn check_self_v4(config: &Config, incoming: &Incoming<'_, Ipv4Addr>) -> Result<(), DropReason> {
    let to_self = config.icmp_source4 == Some(incoming.dst);
    let from_self = config.icmp_source4 == Some(incoming.src) && !incoming.is_icmp_error;
    if !incoming.hairpin && (to_self || from_self || incoming.src == incoming.dst) {
        return Err(DropReason::SelfAddressed);
    }
    Ok(())
}

/// [`check_self_v4`] for IPv6, except that the host may send from `icmp_source6`, which is mostly its own.
#[inline]
fn check_self_v6(config: &Config, incoming: &Incoming<'_, Ipv6Addr>) -> Result<(), DropReason> {
    if config.icmp_source6 == Some(incoming.dst) || incoming.src == incoming.dst {
        return Err(DropReason::SelfAddressed);
    }
    Ok(())
}

/// Maps the source of a packet from IPv4.
#[inline]
fn source_v4(
    config: &Config,
    incoming: &Incoming<'_, Ipv4Addr>,
) -> Result<Mapped<Ipv6Addr>, Unmapped> {
    // Only the source of an ICMP error can be illegal here.
    let by_pool6 = incoming.is_icmp_error && classify::illegal_v4(incoming.src).is_some()
        || incoming.hairpin && hairpins_source(incoming);
    let mapped = if by_pool6 {
        mapping::map_v4_by_pool6(config, incoming.src)
    } else {
        mapping::map_v4(config, incoming.src)
    };
    // An error of a router, or of this translator, whose address may not be embedded (RFC 6052 section 3.1): path MTU
    // discovery needs it, and the translator has an address for ICMPv6 errors (RFC 6791).
    match (mapped, config.icmp_source6) {
        (Err(Unmapped::NonGlobal), Some(addr)) if incoming.is_icmp_error => {
            Ok(Mapped { addr, via: Via::IcmpSource })
        }
        (mapped, _) => mapped,
    }
}

/// RFC 7757 section 4.2.1, rules 1 and 3: whose source must not be mapped explicitly.
fn hairpins_source(incoming: &Incoming<'_, Ipv4Addr>) -> bool {
    !incoming.is_icmp_error || incoming.quoted().is_ok_and(|quoted| quoted.dst == incoming.src)
}
