//! Mapping of addresses by configuration (RFC 7915 section 6).
//!
//! Explicit mappings (RFC 7757) come first, then the translation prefixes (RFC 6052). ICMPv6 errors of routers that have
//! no IPv4 address get a configured source (RFC 6791) in `stateless`.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::addr::{Mapped, Pool6, Unmapped, Via, classify};
use crate::config::Config;

/// Maps an IPv4 address: explicit mappings first, then the first prefix of `pool6`.
pub fn map_v4(config: &Config, addr: Ipv4Addr) -> Result<Mapped<Ipv6Addr>, Unmapped> {
    match config.eam.v4_to_v6(addr) {
        Some((mapped, eam)) => Ok(Mapped { addr: mapped, via: Via::Eam(eam) }),
        None => map_v4_by_pool6(config, addr),
    }
}

/// Maps an IPv4 address by the first prefix of `pool6`, as if no explicit mapping matched
/// (RFC 7757 section 4.2.1).
#[inline]
pub fn map_v4_by_pool6(config: &Config, addr: Ipv4Addr) -> Result<Mapped<Ipv6Addr>, Unmapped> {
    map_v4_into(config, *config.pool6.first().ok_or(Unmapped::NoMapping)?, addr)
}

/// Maps an IPv4 address into this prefix of `pool6`.
#[inline]
pub fn map_v4_into(
    config: &Config,
    pool6: Pool6,
    addr: Ipv4Addr,
) -> Result<Mapped<Ipv6Addr>, Unmapped> {
    check_global(config, pool6, addr)?;
    Ok(Mapped { addr: pool6.embed(addr), via: Via::Pool6(pool6) })
}

/// Maps an IPv6 address: explicit mappings first, then the longest prefix of `pool6` that covers it.
pub fn map_v6(config: &Config, addr: Ipv6Addr) -> Result<Mapped<Ipv4Addr>, Unmapped> {
    if let Some((mapped, eam)) = config.eam.v6_to_v4(addr) {
        return Ok(Mapped { addr: mapped, via: Via::Eam(eam) });
    }
    map_v6_by_pool6(config, addr)
}

/// Maps an IPv6 address by the longest prefix of `pool6` that covers it, explicit mappings apart.
pub fn map_v6_by_pool6(config: &Config, addr: Ipv6Addr) -> Result<Mapped<Ipv4Addr>, Unmapped> {
    let covering = config.pool6.iter().filter(|pool6| pool6.contains(addr));
    let pool6 = *covering.max_by_key(|pool6| pool6.len()).ok_or(Unmapped::NoMapping)?;
    let mapped = pool6.extract(addr).ok_or(Unmapped::ReservedOctet)?;
    check_global(config, pool6, mapped)?;
    Ok(Mapped { addr: mapped, via: Via::Pool6(pool6) })
}

/// RFC 6052 section 3.1: the Well-Known Prefix must not represent non-global IPv4 addresses.
fn check_global(config: &Config, pool6: Pool6, addr: Ipv4Addr) -> Result<(), Unmapped> {
    if pool6.is_well_known() && !config.allow_private && !classify::is_global_v4(addr) {
        return Err(Unmapped::NonGlobal);
    }
    Ok(())
}
