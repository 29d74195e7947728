//! Where addresses and ports come from: the interface between packet translation and address mapping.
//!
//! Translation ([`v4_to_v6`](crate::v4_to_v6), [`v6_to_v4`](crate::v6_to_v4), [`icmp`](crate::icmp)) is
//! generic over a [`Mapper`], so that a stateless translator has no trace of ports in it.
//!
//! A mapper is called twice for each packet. [`admit`](Mapper::admit_v4) comes first: it decides by the
//! addresses alone whether the packet is the translator's, and changes nothing. Then come the checks that
//! need no state (hop limit, protocol, fragment). [`map`](Mapper::map_v4) gives what will stand in the
//! translated packet, and there a stateful mapper finds and makes its state: a packet that expires here
//! makes none.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::addr::Mapped;
use crate::stop::Stop;
use crate::trace::{Step, Trace};
use crate::tuple::Incoming;
use crate::verdict::DropReason;

/// What stands in the translated packet (RFC 6146 section 3.6: the outgoing tuple).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outgoing<A> {
    /// Source address.
    pub(crate) src: Mapped<A>,
    /// Destination address.
    pub(crate) dst: Mapped<A>,
    /// Ports; `None`: they stay.
    pub(crate) ports: Option<Ports>,
}

/// Ports of the translated packet; of an ICMP query both are its identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ports {
    /// Source port.
    pub(crate) src: u16,
    /// Destination port.
    pub(crate) dst: u16,
}

/// How the packet came here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// From outside.
    First,
    /// Out of `v6_to_v4`: its destination has an explicit mapping (RFC 7757 section 4.2.2), or is the
    /// translator's own (RFC 6146 section 3.8).
    Hairpin,
}

/// Gives addresses and ports of the other family.
///
/// One value serves one packet, also through the second pass of a packet that hairpins.
pub(crate) trait Mapper {
    /// What [`Mapper::admit_v4`] has found out.
    type Admitted4;
    /// What [`Mapper::admit_v6`] has found out.
    type Admitted6;

    /// The step that is traced when a packet hairpins.
    const HAIRPIN: Step;

    /// Whether a packet from IPv4 is for the translator, by its addresses. Addresses that can't be on a wire have been
    /// rejected, except the source of an ICMP error.
    fn admit_v4(
        &mut self,
        incoming: &Incoming<'_, Ipv4Addr>,
        trace: &mut impl Trace,
    ) -> Result<Self::Admitted4, Stop>;

    /// Maps a packet from IPv4, or the outer header of an ICMP error.
    fn map_v4(
        &mut self,
        incoming: &Incoming<'_, Ipv4Addr>,
        admitted: Self::Admitted4,
        trace: &mut impl Trace,
    ) -> Result<Outgoing<Ipv6Addr>, Stop>;

    /// Maps the packet inside an ICMPv4 error: one that went out to IPv4, its source on this side.
    fn map_quoted_v4(
        &mut self,
        quoted: &Incoming<'_, Ipv4Addr>,
    ) -> Result<Outgoing<Ipv6Addr>, DropReason>;

    /// Whether a packet from IPv6 is for the translator, by its addresses. Addresses that can't be on a wire have been
    /// rejected.
    fn admit_v6(
        &mut self,
        incoming: &Incoming<'_, Ipv6Addr>,
        trace: &mut impl Trace,
    ) -> Result<Self::Admitted6, Stop>;

    /// Whether a packet that was admitted hairpins: as IPv4, it will be an incoming packet again.
    fn hairpins(
        &mut self,
        incoming: &Incoming<'_, Ipv6Addr>,
        admitted: &Self::Admitted6,
    ) -> Result<bool, Stop>;

    /// Maps a packet from IPv6, or the outer header of an ICMP error.
    fn map_v6(
        &mut self,
        incoming: &Incoming<'_, Ipv6Addr>,
        admitted: Self::Admitted6,
        trace: &mut impl Trace,
    ) -> Result<Outgoing<Ipv4Addr>, Stop>;

    /// Maps the packet inside an ICMPv6 error: one that came from IPv4, its destination on this side.
    fn map_quoted_v6(
        &mut self,
        quoted: &Incoming<'_, Ipv6Addr>,
    ) -> Result<Outgoing<Ipv4Addr>, DropReason>;

    /// Whether several IPv6 hosts send from one IPv4 address. Then the Identifications that they chose may
    /// collide, and the translator chooses all of them (RFC 6864 section 5.3.1).
    fn shares_addresses(&self) -> bool;

    /// The packet is for another gateway, which translates this shard. Said only of a packet that was not admitted.
    fn elsewhere(&self) -> Option<u16> {
        None
    }
}

#[cfg(test)]
mod tests;
