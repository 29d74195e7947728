//! What an operator sets.

use core::net::Ipv4Addr;

use fordway_xlat::config::{ICMP_SOURCE4, IPV6_MIN_MTU};
use fordway_xlat::{HopCount, IcmpErrors, TrafficClass};

/// Which end of the tunnels this is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// The tunnel end point (lwAFTR): IPv4 packets find their tunnel by their destination.
    #[default]
    Tep,
    /// A client (lwB4): all IPv4 packets go into its one tunnel, and must have its source.
    Client,
}

/// The settings of one softwire interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Which end this is.
    pub role: Role,
    /// Hop Limit of tunnel packets (RFC 2473 section 6.3).
    pub hop_limit: u8,
    /// Traffic Class of tunnel packets: the DSCP. The ECN field is always copied (RFC 6040 section 4.1).
    pub traffic_class: TrafficClass,
    /// MTU of the first link for IPv6 packets, in octets. The path MTU may be lower.
    pub mtu6: u32,
    /// Makes flow labels.
    pub flow_secret: [u64; 2],
    /// Source of ICMPv4 errors: about packets that don't fit, and those relayed out of the tunnel. `None`: none are
    /// sent.
    pub icmp_source4: Option<Ipv4Addr>,
    /// ICMP errors of both families. Those of ICMPv6 are from the tunnel's address that a packet was sent to.
    pub icmp_errors: IcmpErrors,
    /// Where the packet in the tunnel loses a hop here, because no routing step does it.
    pub hop_count: HopCount,
    /// Lower the MSS of TCP SYNs to what fits the tunnel.
    pub mss_clamp: bool,
    /// Let packets go from one client to another (RFC 7596 section 6.2).
    pub hairpin: bool,
    /// Pass packets on that are for no tunnel: for attach points that see traffic which was not routed to it.
    pub pass_unmatched: bool,
}

impl Default for Settings {
    /// A tunnel end point behind routing, on links of unknown MTU.
    fn default() -> Settings {
        Settings {
            role: Role::Tep,
            hop_limit: 64,
            traffic_class: TrafficClass::Copy,
            mtu6: 65_535,
            flow_secret: [0; 2],
            icmp_source4: Some(ICMP_SOURCE4),
            icmp_errors: IcmpErrors::default(),
            hop_count: HopCount::NONE,
            mss_clamp: false,
            hairpin: true,
            pass_unmatched: false,
        }
    }
}

/// Why settings make no softwire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// An MTU that IPv6 does not allow.
    #[error("an MTU of {0} octets is below the least of IPv6, {IPV6_MIN_MTU}")]
    Mtu(u32),
    /// Packets would not leave the first link.
    #[error("a packet with hop limit 0 is dropped at once")]
    HopLimit,
    /// A client has one binding, or none yet.
    #[error("a client has one binding, not {0}")]
    Client(usize),
}

impl Settings {
    pub(crate) fn check(&self, bindings: usize) -> Result<(), SettingsError> {
        if self.mtu6 < IPV6_MIN_MTU {
            return Err(SettingsError::Mtu(self.mtu6));
        }
        if self.hop_limit == 0 {
            return Err(SettingsError::HopLimit);
        }
        if self.role == Role::Client && bindings > 1 {
            return Err(SettingsError::Client(bindings));
        }
        Ok(())
    }
}
