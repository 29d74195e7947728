//! Neighbor Discovery: router solicitations and router advertisements with their options.
//!
//! | part | content | source |
//! |---|---|---|
//! | [`solicitation`], [`Advertisement`] | the two messages and the checks of a received one | RFC 4861 sections 4.1, 4.2, 6.1 |
//! | [`Options`], [`NdOption`] | the options behind either | RFC 4861 section 4.6, RFC 4191, RFC 8106, RFC 8781, RFC 8910, RFC 9463 |
//! | [`Writer`] | builds either message in a buffer | |
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |   Type 134    |    Code 0     |          Checksum             |
//! | Cur Hop Limit |M|O|H|Prf|Resvd|       Router Lifetime         |
//! |                         Reachable Time                        |
//! |                         Retrans Timer                         |
//! |   Options ...                                                 |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```
//!
//! A solicitation has type 133, and a reserved field of 4 octets before its options.

mod encrypted;
mod name;
mod option;
mod write;

use core::net::Ipv6Addr;

pub use encrypted::EncryptedDns;
pub use name::DomainName;
pub use option::{
    Dnssl, NdOption, Options, Pref64, PrefixInformation, Rdnss, RouteInformation, ScaledLifetime,
};
pub use write::{NoRoom, Writer};

use fordway_wire::checksum::pseudo_v6;
use fordway_wire::{get_u8, get_u16, get_u32, icmp, protocol};

/// ICMPv6 type of a router solicitation.
pub const ROUTER_SOLICITATION: u8 = 133;
/// ICMPv6 type of a router advertisement.
pub const ROUTER_ADVERTISEMENT: u8 = 134;

/// Octets of a router solicitation before its options.
pub const SOLICITATION_LEN: usize = 8;
/// Octets of a router advertisement before its options.
pub const ADVERTISEMENT_LEN: usize = 16;

/// Hop Limit of every message, which proves that no router has forwarded it (RFC 4861 section 6.1).
pub const HOP_LIMIT: u8 = 255;
/// Lifetime of 32 bits that never ends.
pub const INFINITY: u32 = u32::MAX;

/// All nodes on the link, `ff02::1`.
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// All routers on the link, `ff02::2`.
pub const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// Longest time between advertisements, in seconds, where nothing else is configured (`MaxRtrAdvInterval`, RFC 4861
/// section 6.2.1).
pub const MAX_RTR_ADV_INTERVAL: u16 = 600;
/// How many advertisements a router begins with (RFC 4861 section 10).
pub const MAX_INITIAL_RTR_ADVERTISEMENTS: u32 = 3;
/// Longest time between those, in seconds (RFC 4861 section 10).
pub const MAX_INITIAL_RTR_ADVERT_INTERVAL: u64 = 16;
/// Shortest time between advertisements to all nodes, in seconds (RFC 4861 section 10).
pub const MIN_DELAY_BETWEEN_RAS: u64 = 3;
/// Longest time before a solicitation is answered, in milliseconds (RFC 4861 section 10).
pub const MAX_RA_DELAY_TIME_MS: u64 = 500;

/// Why a message is refused whole (RFC 4861 sections 6.1.1 and 6.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NdpError {
    /// The Hop Limit is not 255: it may have been forwarded.
    HopLimit,
    /// Another ICMPv6 type than asked for.
    Type,
    /// The code is not 0.
    Code,
    /// Shorter than the message's fixed part.
    Truncated,
    /// An option of length zero, or one that goes beyond the message.
    OptionLength,
    /// An advertisement whose source is not link-local, or a message from a multicast address.
    Source,
    /// A solicitation from the unspecified address with a source link-layer address.
    LinkLayerWithoutSource,
}

/// How much a router, or a route, is to be preferred (RFC 4191 section 2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Preference {
    /// `11`.
    Low,
    /// `00`.
    #[default]
    Medium,
    /// `01`.
    High,
}

impl Preference {
    /// The two bits.
    #[inline]
    pub fn bits(self) -> u8 {
        match self {
            Preference::Medium => 0b00,
            Preference::High => 0b01,
            Preference::Low => 0b11,
        }
    }

    /// The value of two bits; `None` for the reserved one, `10`.
    #[inline]
    pub fn from_bits(bits: u8) -> Option<Preference> {
        match bits & 0b11 {
            0b00 => Some(Preference::Medium),
            0b01 => Some(Preference::High),
            0b11 => Some(Preference::Low),
            _ => None,
        }
    }
}

/// The fields of a router advertisement before its options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Advertisement {
    /// Cur Hop Limit; 0 is unspecified.
    pub cur_hop_limit: u8,
    /// M: addresses by DHCPv6.
    pub managed: bool,
    /// O: other configuration by DHCPv6.
    pub other: bool,
    /// Default Router Preference (RFC 4191 section 2.2).
    pub preference: Preference,
    /// Router Lifetime in seconds; 0 is no default router.
    pub router_lifetime: u16,
    /// Reachable Time in milliseconds; 0 is unspecified.
    pub reachable_time: u32,
    /// Retrans Timer in milliseconds; 0 is unspecified.
    pub retrans_timer: u32,
}

impl Advertisement {
    /// Reads the ICMPv6 message in `message`, checking what can be seen in it alone.
    pub fn parse(message: &[u8]) -> Result<(Advertisement, Options<'_>), NdpError> {
        let options = open(message, ROUTER_ADVERTISEMENT, ADVERTISEMENT_LEN)?;
        let flags = get_u8(message, 5);
        let router_lifetime = get_u16(message, 6);
        // RFC 4191 section 2.2: the reserved value is as medium, and the preference of a router that is no default
        // router is ignored.
        let preference = match Preference::from_bits(flags >> 3) {
            Some(preference) if router_lifetime != 0 => preference,
            _ => Preference::Medium,
        };
        let advertisement = Advertisement {
            cur_hop_limit: get_u8(message, 4),
            managed: flags & 0x80 != 0,
            other: flags & 0x40 != 0,
            preference,
            router_lifetime,
            reachable_time: get_u32(message, 8),
            retrans_timer: get_u32(message, 12),
        };
        Ok((advertisement, options))
    }

    /// Reads a received message, with all checks of RFC 4861 section 6.1.2 but the checksum's (a raw ICMPv6 socket does
    /// that one; elsewhere [`checksum_is_valid`] does).
    pub fn receive(
        src: Ipv6Addr,
        hop_limit: u8,
        message: &[u8],
    ) -> Result<(Advertisement, Options<'_>), NdpError> {
        if hop_limit != HOP_LIMIT {
            return Err(NdpError::HopLimit);
        }
        let parsed = Advertisement::parse(message)?;
        if is_link_local(src) { Ok(parsed) } else { Err(NdpError::Source) }
    }

    fn to_bytes(self) -> [u8; ADVERTISEMENT_LEN] {
        let mut out = [0u8; ADVERTISEMENT_LEN];
        // RFC 4191 section 2.2: a router that is no default router has no preference.
        let preference = if self.router_lifetime == 0 { 0 } else { self.preference.bits() };
        out[0] = ROUTER_ADVERTISEMENT;
        out[4] = self.cur_hop_limit;
        out[5] = u8::from(self.managed) << 7 | u8::from(self.other) << 6 | preference << 3;
        out[6..8].copy_from_slice(&self.router_lifetime.to_be_bytes());
        out[8..12].copy_from_slice(&self.reachable_time.to_be_bytes());
        out[12..16].copy_from_slice(&self.retrans_timer.to_be_bytes());
        out
    }
}

/// Router solicitations, which have no field of their own.
pub mod solicitation {
    use core::net::Ipv6Addr;

    use super::{
        HOP_LIMIT, NdOption, NdpError, Options, ROUTER_SOLICITATION, SOLICITATION_LEN, open,
    };

    /// Reads the ICMPv6 message in `message`, checking what can be seen in it alone.
    pub fn parse(message: &[u8]) -> Result<Options<'_>, NdpError> {
        open(message, ROUTER_SOLICITATION, SOLICITATION_LEN)
    }

    /// Reads a received message, with all checks of RFC 4861 section 6.1.1 but the checksum's.
    pub fn receive(src: Ipv6Addr, hop_limit: u8, message: &[u8]) -> Result<Options<'_>, NdpError> {
        if hop_limit != HOP_LIMIT {
            return Err(NdpError::HopLimit);
        }
        let options = parse(message)?;
        if src.is_multicast() {
            return Err(NdpError::Source);
        }
        let has_link_layer = || options.clone().any(|o| matches!(o, NdOption::SourceLinkLayer(_)));
        if src.is_unspecified() && has_link_layer() {
            return Err(NdpError::LinkLayerWithoutSource);
        }
        Ok(options)
    }
}

/// The ICMPv6 checksum of `message`, whose own checksum field is taken as zero.
#[inline]
pub fn checksum(src: Ipv6Addr, dst: Ipv6Addr, message: &[u8]) -> u16 {
    let field = get_u16(message, icmp::CHECKSUM_AT);
    (pseudo_v6(src, dst, protocol::ICMPV6, message.len() as u32).add_bytes(message).add_u16(!field))
        .finish()
}

/// Whether the checksum of `message` is right.
#[inline]
pub fn checksum_is_valid(src: Ipv6Addr, dst: Ipv6Addr, message: &[u8]) -> bool {
    pseudo_v6(src, dst, protocol::ICMPV6, message.len() as u32).add_bytes(message).fold() == 0xffff
}

/// Whether an address is unicast and link-local, `fe80::/10`.
#[inline]
pub fn is_link_local(address: Ipv6Addr) -> bool {
    address.segments()[0] & 0xffc0 == 0xfe80
}

/// Type, code, length and the lengths of all options.
fn open(message: &[u8], kind: u8, fixed: usize) -> Result<Options<'_>, NdpError> {
    let options = message.get(fixed..).ok_or(NdpError::Truncated)?;
    if get_u8(message, 0) != kind {
        return Err(NdpError::Type);
    }
    if get_u8(message, 1) != 0 {
        return Err(NdpError::Code);
    }
    Options::new(options)
}

#[cfg(test)]
mod tests;
