//! The mapper of stateless translation: addresses by algorithm, ports as they are (RFC 7915 section 6).

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::addr::{self, Mapped, Unmapped, Via, classify};
use crate::config::Config;
use crate::mapper::{Mapper, Outgoing};
use crate::stop::Stop;
use crate::trace::{Step, Trace};
use crate::tuple::Incoming;
use crate::verdict::DropReason;

/// Maps by explicit mappings and translation prefixes alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stateless<'a> {
    /// The mappings.
    pub(crate) config: &'a Config,
}

impl Mapper for Stateless<'_> {
    type Admitted4 = Outgoing<Ipv6Addr>;
    type Admitted6 = Outgoing<Ipv4Addr>;

    const HAIRPIN: Step = Step::Hairpin;

    #[inline]
    fn admit_v4(
        &mut self,
        incoming: &Incoming<'_, Ipv4Addr>,
        trace: &mut impl Trace,
    ) -> Result<Outgoing<Ipv6Addr>, Stop> {
        Ok(addresses_v4(self.config, incoming, trace)?)
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
        let src = addr::map_v4(self.config, quoted.src).map_err(unmapped)?;
        // RFC 7757 section 4.2.1, rule 2.
        let dst = if quoted.hairpin {
            addr::map_v4_by_pool6(self.config, quoted.dst)
        } else {
            addr::map_v4(self.config, quoted.dst)
        };
        Ok(Outgoing { src, dst: dst.map_err(unmapped)?, ports: None })
    }

    #[inline]
    fn admit_v6(
        &mut self,
        incoming: &Incoming<'_, Ipv6Addr>,
        trace: &mut impl Trace,
    ) -> Result<Outgoing<Ipv4Addr>, Stop> {
        Ok(addresses_v6(self.config, incoming, trace)?)
    }

    /// RFC 7757 section 4.2.2.
    #[inline]
    fn turns_round(
        &mut self,
        incoming: &Incoming<'_, Ipv6Addr>,
        admitted: &Outgoing<Ipv4Addr>,
    ) -> Result<bool, Stop> {
        let config = self.config;
        if !config.hairpin || config.eam.is_empty() {
            return Ok(false);
        }
        let by_pool6_and_explicit = |mapped: Mapped<Ipv4Addr>| {
            matches!(mapped.via, Via::Pool6(_)) && config.eam.v4_to_v6(mapped.addr).is_some()
        };
        if incoming.is_icmp_error {
            // Conditions B1 to B3.
            let quoted = incoming.quoted();
            return Ok(quoted.is_ok_and(|quoted| {
                addr::map_v6(config, quoted.src).is_ok_and(by_pool6_and_explicit)
            }));
        }
        // Conditions A1 to A3.
        let turns = by_pool6_and_explicit(admitted.dst);
        if turns {
            // The second pass maps the source so; a failure is answered only while the packet is whole.
            addr::map_v4_by_pool6(config, admitted.src.addr).map_err(Unmapped::as_source)?;
        }
        Ok(turns)
    }

    #[inline]
    fn map_v6(
        &mut self,
        _incoming: &Incoming<'_, Ipv6Addr>,
        admitted: Outgoing<Ipv4Addr>,
        _trace: &mut impl Trace,
    ) -> Result<Outgoing<Ipv4Addr>, Stop> {
        Ok(admitted)
    }

    fn map_quoted_v6(
        &mut self,
        quoted: &Incoming<'_, Ipv6Addr>,
    ) -> Result<Outgoing<Ipv4Addr>, DropReason> {
        let unmapped = |_| DropReason::IcmpInner;
        let src = addr::map_v6(self.config, quoted.src).map_err(unmapped)?;
        let dst = addr::map_v6(self.config, quoted.dst).map_err(unmapped)?;
        Ok(Outgoing { src, dst, ports: None })
    }

    #[inline]
    fn shares_addresses(&self) -> bool {
        false
    }
}

/// RFC 7915 section 6 and RFC 7757 section 4.
#[inline]
fn addresses_v4(
    config: &Config,
    incoming: &Incoming<'_, Ipv4Addr>,
    trace: &mut impl Trace,
) -> Result<Outgoing<Ipv6Addr>, DropReason> {
    check_self_v4(config, incoming)?;
    let src = source_v4(config, incoming).map_err(Unmapped::as_source)?;
    let dst = addr::map_v4(config, incoming.dst).map_err(Unmapped::as_destination)?;
    let both_pool6 = matches!((src.via, dst.via), (Via::Pool6(_), Via::Pool6(_)));
    if both_pool6 && !config.ipv4_translatable {
        return Err(DropReason::Loop);
    }
    trace.step(Step::SourceV4(incoming.src, src));
    trace.step(Step::DestinationV4(incoming.dst, dst));
    Ok(Outgoing { src, dst, ports: None })
}

/// Nobody but the translator sends from `icmp_source4`, nothing is for it, and nobody writes to himself.
#[inline]
pub(crate) fn check_self_v4(
    config: &Config,
    incoming: &Incoming<'_, Ipv4Addr>,
) -> Result<(), DropReason> {
    let to_self = config.icmp_source4 == Some(incoming.dst);
    let from_self = config.icmp_source4 == Some(incoming.src) && !incoming.is_icmp_error;
    if !incoming.hairpin && (to_self || from_self || incoming.src == incoming.dst) {
        return Err(DropReason::SelfAddressed);
    }
    Ok(())
}

/// Maps the source of a packet from IPv4.
#[inline]
pub(crate) fn source_v4(
    config: &Config,
    incoming: &Incoming<'_, Ipv4Addr>,
) -> Result<Mapped<Ipv6Addr>, Unmapped> {
    // Only the source of an ICMP error can be illegal here.
    let by_pool6 = incoming.is_icmp_error && classify::illegal_v4(incoming.src).is_some()
        || incoming.hairpin && hairpins_source(incoming);
    let mapped = if by_pool6 {
        addr::map_v4_by_pool6(config, incoming.src)
    } else {
        addr::map_v4(config, incoming.src)
    };
    // An error of a router, or of this translator, whose address may not be embedded (RFC 6052 section 3.1): it is
    // needed all the same, for path MTU discovery, and the translator has an address for ICMPv6 errors (RFC 6791).
    match (mapped, config.icmp_source6) {
        (Err(Unmapped::NonGlobal), Some(addr)) if incoming.is_icmp_error => {
            Ok(Mapped { addr, via: Via::IcmpSource })
        }
        (mapped, _) => mapped,
    }
}

/// RFC 7915 section 6; RFC 6791 for the source of ICMPv6 errors.
#[inline]
fn addresses_v6(
    config: &Config,
    incoming: &Incoming<'_, Ipv6Addr>,
    trace: &mut impl Trace,
) -> Result<Outgoing<Ipv4Addr>, DropReason> {
    check_self_v6(config, incoming)?;
    let dst = addr::map_v6(config, incoming.dst).map_err(Unmapped::as_destination)?;
    let src = match (addr::map_v6(config, incoming.src), config.icmp_source4) {
        (Err(Unmapped::NoMapping), Some(addr)) if incoming.is_icmp_error => {
            Mapped { addr, via: Via::IcmpSource }
        }
        (mapped, _) => mapped.map_err(Unmapped::as_source)?,
    };
    // A mapping can lead to an address that must not be on a wire.
    for addr in [dst.addr, src.addr] {
        if let Some(reason) = classify::illegal_v4(addr) {
            return Err(reason);
        }
    }
    let both_pool6 = matches!((src.via, dst.via), (Via::Pool6(_), Via::Pool6(_)));
    if both_pool6 && !config.ipv4_translatable {
        return Err(DropReason::Loop);
    }
    trace.step(Step::SourceV6(incoming.src, src));
    trace.step(Step::DestinationV6(incoming.dst, dst));
    Ok(Outgoing { src, dst, ports: None })
}

/// The same as [`check_self_v4`], but that the host may send from `icmp_source6`, which is mostly its own.
#[inline]
pub(crate) fn check_self_v6(
    config: &Config,
    incoming: &Incoming<'_, Ipv6Addr>,
) -> Result<(), DropReason> {
    if config.icmp_source6 == Some(incoming.dst) || incoming.src == incoming.dst {
        return Err(DropReason::SelfAddressed);
    }
    Ok(())
}

/// RFC 7757 section 4.2.1, rules 1 and 3: whose source must not be mapped explicitly.
fn hairpins_source(incoming: &Incoming<'_, Ipv4Addr>) -> bool {
    !incoming.is_icmp_error || incoming.quoted().is_ok_and(|quoted| quoted.dst == incoming.src)
}
