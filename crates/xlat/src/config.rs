//! What an operator sets, as validated types.

use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};

use crate::addr::{EamTable, Pool6};
use crate::counters::Direction;

/// The smallest MTU of an IPv6 link, in octets (RFC 8200 section 5).
pub const IPV6_MIN_MTU: u32 = 1280;

/// The smallest MTU of an IPv4 link, in octets (RFC 791 section 3.2).
pub const IPV4_MIN_MTU: u32 = 68;

/// RFC 7600 section 4.8's IPv4 dummy address: source of ICMPv4 errors when nothing better is known.
pub const ICMP_SOURCE4: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);

/// What to do with UDP over IPv4 whose checksum is zero (RFC 7915 section 4.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UdpChecksumZero {
    /// Compute it when the datagram is whole; drop first fragments.
    #[default]
    Compute,
    /// Drop the datagram.
    Drop,
    /// Forward it with a zero checksum, for tunnels that allow it (RFC 6935).
    Pass,
}

/// Type of Service and Traffic Class (RFC 7915 sections 4.1 and 5.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrafficClass {
    /// Copy all 8 bits.
    #[default]
    Copy,
    /// Always write this octet (0 is the RFC's option).
    Set(u8),
}

impl TrafficClass {
    /// The octet that stands in the translated header for this one.
    pub(crate) fn of(self, octet: u8) -> u8 {
        match self {
            TrafficClass::Copy => octet,
            TrafficClass::Set(value) => value,
        }
    }
}

/// Whether ICMP errors are sent (RFC 7915 sections 4.4 and 5.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpErrors {
    /// Never.
    Off,
    /// At most `per_second` on average and `burst` at once, per [`State`](crate::State).
    Limited {
        /// Errors per second on average.
        per_second: u32,
        /// Errors at once.
        burst: u32,
    },
    /// Always.
    Unlimited,
}

impl Default for IcmpErrors {
    fn default() -> Self {
        IcmpErrors::Limited { per_second: 1000, burst: 100 }
    }
}

/// In which directions the translator counts as a hop (RFC 7915 sections 4.1 and 5.1).
///
/// Where the host's routing steps before and behind the translator count already, it must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HopCount {
    /// The TTL of IPv4 packets is decremented.
    pub v4_to_v6: bool,
    /// The hop limit of IPv6 packets is decremented.
    pub v6_to_v4: bool,
}

impl HopCount {
    /// In both directions.
    pub const BOTH: HopCount = HopCount { v4_to_v6: true, v6_to_v4: true };
    /// In neither.
    pub const NONE: HopCount = HopCount { v4_to_v6: false, v6_to_v4: false };

    /// Whether a packet of this direction is counted.
    #[must_use]
    pub const fn counts(self, direction: Direction) -> bool {
        match direction {
            Direction::V4ToV6 => self.v4_to_v6,
            Direction::V6ToV4 => self.v6_to_v4,
        }
    }
}

impl From<bool> for HopCount {
    /// In both directions or in neither.
    fn from(counts: bool) -> HopCount {
        if counts { HopCount::BOTH } else { HopCount::NONE }
    }
}

/// The configuration of one translator: what stateless and stateful translation have in common.
#[derive(Clone, Debug)]
pub struct Config {
    /// Translation prefixes (RFC 6052). Addresses are accepted in all of them (longest match) and
    /// made in the first.
    pub pool6: Vec<Pool6>,
    /// Explicit address mappings (RFC 7757); they come before `pool6`.
    pub eam: EamTable,
    /// Source of ICMPv4 errors that the translator originates, and of translated ICMPv6 errors whose
    /// source has no mapping (RFC 6791). `None`: the first are not sent, the second are dropped.
    pub icmp_source4: Option<Ipv4Addr>,
    /// Translated ICMPv6 errors that come from [`icmp_source4`](Config::icmp_source4) for want of a mapping carry their
    /// IPv6 source in a Node Identification Object.
    pub icmp_node_id: bool,
    /// Source of ICMPv6 errors that the translator originates. `None`: they are not sent.
    pub icmp_source6: Option<Ipv6Addr>,
    /// MTU of the IPv4 next hop, in octets. 65,535 or more: unknown, never the limit.
    pub mtu4: u32,
    /// MTU of the IPv6 next hop, in octets. 65,535 or more: unknown, never the limit.
    pub mtu6: u32,
    /// Longest IPv6 packet made of an IPv4 packet without DF, in octets (RFC 7915 section 4.1).
    pub lowest_ipv6_mtu: u32,
    /// Where the translator counts as a hop. Nowhere if two routing steps of the host count already.
    pub decrement_hop_limit: HopCount,
    /// Type of Service and Traffic Class.
    pub traffic_class: TrafficClass,
    /// UDP without checksum.
    pub udp_checksum_zero: UdpChecksumZero,
    /// Let 64:ff9b::/96 carry non-global IPv4 addresses, against RFC 6052 section 3.1.
    pub allow_private: bool,
    /// IPv6 hosts are numbered from `pool6` (RFC 6052 "IPv4-translatable" addresses). Where they are
    /// not, a packet with both ends in `pool6` is a loop and dropped.
    pub ipv4_translatable: bool,
    /// Hairpinning between IPv6 hosts with explicit mappings (RFC 7757 section 4).
    pub hairpin: bool,
    /// Lower the MSS of TCP SYNs to what fits `mtu4` and `mtu6` without fragments.
    pub mss_clamp: bool,
    /// ICMP errors that the translator originates.
    pub icmp_errors: IcmpErrors,
    /// Answer [`Verdict::Pass`](crate::Verdict::Pass) instead of dropping a packet that is none of the
    /// translator's by its addresses: for attach points that see traffic not routed to the translator.
    pub pass_unmatched: bool,
}

impl Default for Config {
    /// RFC 7915's defaults, no address mapping, one hop, no known MTU.
    fn default() -> Self {
        Config {
            pool6: Vec::new(),
            eam: EamTable::default(),
            icmp_source4: Some(ICMP_SOURCE4),
            icmp_node_id: false,
            icmp_source6: None,
            mtu4: 65_535,
            mtu6: 65_535,
            lowest_ipv6_mtu: IPV6_MIN_MTU,
            decrement_hop_limit: HopCount::BOTH,
            traffic_class: TrafficClass::default(),
            udp_checksum_zero: UdpChecksumZero::default(),
            allow_private: false,
            ipv4_translatable: true,
            hairpin: true,
            mss_clamp: false,
            icmp_errors: IcmpErrors::default(),
            pass_unmatched: false,
        }
    }
}

/// Why a configuration makes no translator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Nothing could be translated.
    #[error("neither pool6 nor eam is set: no address could be translated")]
    NoMapping,
    /// The same prefix twice in `pool6`.
    #[error("pool6 {0} is listed twice")]
    DuplicatePool6(Pool6),
    /// `mtu4` below 68, or `mtu6` or `lowest_ipv6_mtu` below 1280.
    #[error("an MTU of {mtu} octets is below the least allowed, {least}")]
    MtuTooSmall {
        /// The value.
        mtu: u32,
        /// The least that the RFC allows.
        least: u32,
    },
}

impl Config {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if self.pool6.is_empty() && self.eam.is_empty() {
            return Err(ConfigError::NoMapping);
        }
        for (index, prefix) in self.pool6.iter().enumerate() {
            if self.pool6[..index].contains(prefix) {
                return Err(ConfigError::DuplicatePool6(*prefix));
            }
        }
        for (mtu, least) in [
            (self.mtu4, IPV4_MIN_MTU),
            (self.mtu6, IPV6_MIN_MTU),
            (self.lowest_ipv6_mtu, IPV6_MIN_MTU),
        ] {
            if mtu < least {
                return Err(ConfigError::MtuTooSmall { mtu, least });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
