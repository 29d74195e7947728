//! A fragment as it comes.

use core::net::IpAddr;

use fordway_wire::ipv4::{self, Ipv4Header};
use fordway_wire::ipv6::{self, Ipv6Header};
use fordway_wire::{get_u8, icmp, protocol, tcp, transport};

use crate::verdict::DropReason;

use super::{Key, Origin};

/// Offset of a fragment that begins within a TCP header, behind the ports (RFC 3128 section 4).
const WITHIN_TCP: core::ops::Range<usize> = 1..tcp::HEADER_LEN;

/// A fragment that has to wait for others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece<'a> {
    /// The packet that it belongs to.
    pub(super) key: Key,
    /// Protocol number of the transport.
    pub(super) protocol: u8,
    /// What stands before the data in the whole packet: the IPv4 header with options, or the IPv6 header
    /// and the extension headers in front of the Fragment Header.
    pub(super) front: &'a [u8],
    /// The ECN field.
    pub(super) ecn: u8,
    /// Where in the whole packet the data lies, behind `front`.
    pub(super) offset: usize,
    /// There is more behind it.
    pub(super) more: bool,
    /// The data.
    pub(super) data: &'a [u8],
}

impl<'a> Piece<'a> {
    /// `None` if the packet has not to wait. A malformed header is the translator's business, too.
    pub(super) fn parse(origin: Origin, packet: &'a [u8]) -> Option<Piece<'a>> {
        match get_u8(packet, 0) >> 4 {
            4 => Piece::parse_v4(origin, packet),
            _ => Piece::parse_v6(origin, packet),
        }
    }

    fn parse_v4(origin: Origin, packet: &'a [u8]) -> Option<Piece<'a>> {
        let header = Ipv4Header::parse(packet).ok()?;
        let (front, _) = packet.split_at_checked(header.header_len)?;
        let has_ports = matches!(header.protocol, protocol::TCP | protocol::UDP | protocol::ICMP);
        if !header.is_fragment() || !has_ports || !ipv4::header_checksum_is_valid(front) {
            return None;
        }
        Some(Piece {
            key: Key {
                src: IpAddr::V4(header.src),
                dst: IpAddr::V4(header.dst),
                protocol: header.protocol,
                identification: u32::from(header.identification),
                softwire: match origin {
                    Origin::Inside(remote) => Some(remote),
                    Origin::Network | Origin::Softwire => None,
                },
            },
            protocol: header.protocol,
            front,
            ecn: header.tos & 3,
            offset: header.fragment_offset,
            more: header.more_fragments,
            data: packet.get(header.header_len..usize::from(header.total_len))?,
        })
    }

    fn parse_v6(origin: Origin, packet: &'a [u8]) -> Option<Piece<'a>> {
        let header = Ipv6Header::parse(packet).ok()?;
        let packet = packet.get(..ipv6::HEADER_LEN + usize::from(header.payload_len))?;
        let extensions = ipv6::walk(packet, header.next_header).ok()?;
        let fragment = extensions.fragment?;
        let has_ports = match extensions.protocol {
            protocol::TCP | protocol::UDP | protocol::ICMPV6 => true,
            protocol => protocol == protocol::IPV4 && origin == Origin::Softwire,
        };
        // RFC 6946: an atomic fragment is whole, whatever else has its Identification.
        let is_atomic = fragment.offset == 0 && !fragment.more;
        if is_atomic || !has_ports {
            return None;
        }
        Some(Piece {
            key: Key {
                src: IpAddr::V6(header.src),
                dst: IpAddr::V6(header.dst),
                protocol: 0,
                identification: fragment.identification,
                softwire: None,
            },
            protocol: extensions.protocol,
            front: packet.get(..extensions.header_len - ipv6::FRAGMENT_HEADER_LEN)?,
            ecn: header.traffic_class & 3,
            offset: fragment.offset,
            more: fragment.more,
            data: packet.get(extensions.header_len..)?,
        })
    }

    /// Where in the whole packet the data ends.
    pub(super) fn end(&self) -> usize {
        self.offset + self.data.len()
    }

    /// RFC 791 section 3.2 and RFC 8200 section 4.5: all fragments but the last are multiples of 8, none is
    /// empty, and all end within what a length field can say.
    pub(super) fn check(&self) -> Result<(), DropReason> {
        let bad_length = self.data.is_empty() || self.more && !self.data.len().is_multiple_of(8);
        if bad_length || whole_len(self.front.len(), self.end(), self.key.src) > ipv4::MAX_LEN {
            return Err(DropReason::BadFragment);
        }
        Ok(())
    }

    /// Whether it would let a transport header be read otherwise than the receiver reads it: a first
    /// fragment without all of it (RFC 1858 section 3, RFC 7112), or another that begins within it.
    pub(super) fn cuts_header(&self) -> bool {
        match (self.protocol, self.offset) {
            (protocol::TCP, 0) => tcp::header_len(self.data).is_none(),
            (protocol::UDP, 0) => self.data.len() < transport::UDP_HEADER_LEN,
            (_, 0) => self.data.len() < icmp::HEADER_LEN,
            (protocol::TCP, offset) => WITHIN_TCP.contains(&offset),
            _ => false,
        }
    }
}

/// What the length field of the whole packet says: Total Length in IPv4; Payload Length in IPv6, with the
/// Fragment Header that stays.
pub(super) fn whole_len(front: usize, data: usize, src: IpAddr) -> usize {
    match src {
        IpAddr::V4(_) => front + data,
        IpAddr::V6(_) => front + ipv6::FRAGMENT_HEADER_LEN + data - ipv6::HEADER_LEN,
    }
}
