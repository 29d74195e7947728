//! The tuple of a packet: addresses, ports, ICMP identifier (RFC 6146 section 3.4).
//!
//! [`Incoming`] is made for every packet and costs nothing; ports are read only when a mapper asks for
//! them ([`Incoming::transport`]), and so is the packet inside an ICMP error ([`Incoming::quoted`]).

use core::net::{Ipv4Addr, Ipv6Addr};

use fordway_wire::icmp::{self, v4, v6};
use fordway_wire::ipv4::Ipv4Header;
use fordway_wire::ipv6::{self, Ipv6Header};
use fordway_wire::{get_u8, get_u16, protocol, tcp};

use crate::verdict::DropReason;

/// Offset of the identifier in an ICMP query of either version.
pub(crate) const IDENTIFIER_AT: usize = 4;

/// Octets of transport header that every ICMP error quotes (RFC 792).
const QUOTED_MIN: usize = 8;

/// Which part of its original packet a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    Whole,
    /// The first fragment: the transport header is in it, not all of the payload.
    First,
    /// Another fragment: no transport header.
    Later,
}

impl Part {
    /// By the fragment offset and the More Fragments flag.
    #[must_use]
    pub fn of(offset: usize, more: bool) -> Part {
        match (offset, more) {
            (0, false) => Part::Whole,
            (0, true) => Part::First,
            _ => Part::Later,
        }
    }
}

/// The fields of a transport header that stateful translation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp {
        /// Source port.
        src: u16,
        /// Destination port.
        dst: u16,
        /// The octet of flags (RFC 9293 section 3.1); 0 inside an ICMP error, which may not reach so far.
        flags: u8,
    },
    /// UDP.
    Udp {
        /// Source port.
        src: u16,
        /// Destination port.
        dst: u16,
    },
    /// An ICMP query: echo request or reply.
    IcmpQuery {
        /// Identifier.
        id: u16,
        /// It is a request.
        is_request: bool,
    },
}

impl Transport {
    /// The protocol number in IPv4.
    #[must_use]
    pub const fn protocol(self) -> u8 {
        match self {
            Transport::Tcp { .. } => protocol::TCP,
            Transport::Udp { .. } => protocol::UDP,
            Transport::IcmpQuery { .. } => protocol::ICMP,
        }
    }

    /// Source and destination port; of an ICMP query twice the identifier.
    #[must_use]
    pub const fn ports(self) -> (u16, u16) {
        match self {
            Transport::Tcp { src, dst, .. } | Transport::Udp { src, dst } => (src, dst),
            Transport::IcmpQuery { id, .. } => (id, id),
        }
    }
}

/// A packet as it came, or (by [`Incoming::quoted`]) the packet inside an ICMP error.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a, A> {
    /// Source address.
    pub src: A,
    /// Destination address.
    pub dst: A,
    /// Protocol number, as the packet's own family has it.
    pub protocol: u8,
    /// Which part of its original packet it is.
    pub part: Part,
    /// It is an ICMP error.
    pub is_icmp_error: bool,
    /// It hairpins: it came as IPv6 and is now IPv4 (RFC 6146 section 3.8, RFC 7757 section 4).
    pub hairpin: bool,
    is_quoted: bool,
    packet: &'a [u8],
    at: usize,
}

/// An address of either family.
pub trait Address: Copy + private::Family {}

impl Address for Ipv4Addr {}
impl Address for Ipv6Addr {}

mod private {
    use super::Incoming;

    /// What differs between the families.
    pub trait Family: Sized {
        /// The protocol number of ICMP.
        const ICMP: u8;

        /// Whether an ICMP type is an error.
        fn is_error(kind: u8) -> bool;

        /// Whether an ICMP type is a query's request; `None`: neither request nor reply.
        fn is_request(kind: u8) -> Option<bool>;

        /// The packet at the start of `bytes`, which may be cut short behind its IP header.
        fn parse(bytes: &[u8]) -> Option<Incoming<'_, Self>>;
    }
}

impl private::Family for Ipv4Addr {
    const ICMP: u8 = protocol::ICMP;

    fn is_error(kind: u8) -> bool {
        v4::is_error(kind)
    }

    fn is_request(kind: u8) -> Option<bool> {
        matches!(kind, v4::ECHO | v4::ECHO_REPLY).then_some(kind == v4::ECHO)
    }

    fn parse(bytes: &[u8]) -> Option<Incoming<'_, Ipv4Addr>> {
        let header = Ipv4Header::parse(bytes).ok()?;
        let part = Part::of(header.fragment_offset, header.more_fragments);
        let (src, dst) = (header.src, header.dst);
        Some(Incoming::new(bytes, header.header_len, (src, dst), header.protocol, part))
    }
}

impl private::Family for Ipv6Addr {
    const ICMP: u8 = protocol::ICMPV6;

    fn is_error(kind: u8) -> bool {
        v6::is_error(kind)
    }

    fn is_request(kind: u8) -> Option<bool> {
        matches!(kind, v6::ECHO_REQUEST | v6::ECHO_REPLY).then_some(kind == v6::ECHO_REQUEST)
    }

    fn parse(bytes: &[u8]) -> Option<Incoming<'_, Ipv6Addr>> {
        let header = Ipv6Header::parse(bytes).ok()?;
        let extensions = ipv6::walk(bytes, header.next_header).ok()?;
        let part = extensions.fragment.map_or(Part::Whole, |f| Part::of(f.offset, f.more));
        let (src, dst) = (header.src, header.dst);
        Some(Incoming::new(bytes, extensions.header_len, (src, dst), extensions.protocol, part))
    }
}

impl<'a, A: Address> Incoming<'a, A> {
    /// A packet whose transport header starts at octet `at` of `packet`.
    #[inline]
    pub fn new(
        packet: &'a [u8],
        at: usize,
        (src, dst): (A, A),
        protocol: u8,
        part: Part,
    ) -> Incoming<'a, A> {
        let is_icmp_error =
            protocol == A::ICMP && part != Part::Later && A::is_error(get_u8(packet, at));
        let (hairpin, is_quoted) = (false, false);
        Incoming { src, dst, protocol, part, is_icmp_error, hairpin, is_quoted, packet, at }
    }

    /// The packet whole, from its IP header on.
    #[must_use]
    pub fn packet(&self) -> &'a [u8] {
        self.packet
    }

    /// What lies behind the IP header and its extensions.
    #[must_use]
    pub fn segment(&self) -> &'a [u8] {
        self.packet.get(self.at..).unwrap_or_default()
    }

    /// The transport header (RFC 6146 section 3.4).
    ///
    /// An error is why the packet can't be translated statefully: it is a protocol that is not carried, an
    /// ICMP message that is no query, too short, or a fragment (which has to be reassembled first). Of a
    /// packet inside an ICMP error 8 octets are enough, and any fault is [`DropReason::IcmpInner`].
    pub fn transport(&self) -> Result<Transport, DropReason> {
        let refused = |reason| if self.is_quoted { DropReason::IcmpInner } else { reason };
        let segment = self.segment();
        let needed = match self.protocol {
            protocol::TCP if !self.is_quoted => tcp::HEADER_LEN,
            protocol::TCP | protocol::UDP => QUOTED_MIN,
            number if number == A::ICMP => icmp::HEADER_LEN,
            _ => return Err(refused(DropReason::Transport)),
        };
        match self.part {
            Part::Whole => {}
            Part::First if self.is_quoted => {}
            _ => return Err(refused(DropReason::FragmentsFull)),
        }
        if segment.len() < needed {
            return Err(refused(DropReason::Truncated));
        }
        let (src, dst) = (get_u16(segment, 0), get_u16(segment, 2));
        Ok(match self.protocol {
            protocol::TCP => {
                let flags = if self.is_quoted { 0 } else { tcp::flags(segment) };
                Transport::Tcp { src, dst, flags }
            }
            protocol::UDP => Transport::Udp { src, dst },
            _ if self.is_icmp_error && self.is_quoted => return Err(DropReason::IcmpNested),
            _ => Transport::IcmpQuery {
                id: get_u16(segment, IDENTIFIER_AT),
                is_request: A::is_request(get_u8(segment, 0))
                    .ok_or_else(|| refused(DropReason::IcmpType))?,
            },
        })
    }

    /// The packet inside an ICMP error, which the error's destination sent.
    pub fn quoted(&self) -> Result<Incoming<'a, A>, DropReason> {
        let bytes = self.segment().get(icmp::HEADER_LEN..).unwrap_or_default();
        let inner = A::parse(bytes).ok_or(DropReason::IcmpInner)?;
        Ok(inner.inside_error().with_hairpin(self.hairpin))
    }

    /// Marks the packet as one inside an ICMP error.
    #[inline]
    #[must_use]
    pub fn inside_error(self) -> Incoming<'a, A> {
        Incoming { is_quoted: true, ..self }
    }

    /// Marks the packet as one that hairpins, or not.
    #[inline]
    pub(crate) fn with_hairpin(self, hairpin: bool) -> Incoming<'a, A> {
        Incoming { hairpin, ..self }
    }
}

#[cfg(test)]
mod tests;
