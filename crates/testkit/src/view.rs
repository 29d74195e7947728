//! A second reading of packets: small, slow, independent of `fordway-wire`.

use crate::checksum::{add, sum};

/// What a packet says of itself. Made only of packets whose headers are whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View<'a> {
    /// The whole packet.
    pub bytes: &'a [u8],
    /// IPv4, else IPv6.
    pub v4: bool,
    /// Octets of the source address.
    pub src: &'a [u8],
    /// Octets of the destination address.
    pub dst: &'a [u8],
    /// Type of Service or Traffic Class.
    pub class: u8,
    /// TTL or Hop Limit.
    pub hop: u8,
    /// The transport's protocol number.
    pub protocol: u8,
    /// Where the transport header begins.
    pub transport: usize,
    /// The length that the header gives: Total Length, or Payload Length plus 40.
    pub length: usize,
    /// Fragment offset in octets.
    pub offset: usize,
    /// More fragments follow.
    pub more: bool,
    /// Identification; 0 in IPv6 without a Fragment Header.
    pub identification: u32,
    /// Don't Fragment; always set in IPv6.
    pub dont_fragment: bool,
    /// Whether there is a Fragment Header (IPv6).
    pub fragment_header: bool,
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

impl<'a> View<'a> {
    /// Reads a packet; `None` when its headers are cut short or contradict themselves.
    pub fn of(bytes: &'a [u8]) -> Option<View<'a>> {
        match bytes.first()? >> 4 {
            4 => View::of_v4(bytes),
            6 => View::of_v6(bytes),
            _ => None,
        }
    }

    fn of_v4(bytes: &'a [u8]) -> Option<View<'a>> {
        let header = usize::from(bytes[0] & 15) * 4;
        if header < 20 || bytes.len() < header {
            return None;
        }
        let flags = word(bytes, 6)?;
        Some(View {
            bytes,
            v4: true,
            src: &bytes[12..16],
            dst: &bytes[16..20],
            class: bytes[1],
            hop: bytes[8],
            protocol: bytes[9],
            transport: header,
            length: usize::from(word(bytes, 2)?),
            offset: usize::from(flags & 0x1fff) * 8,
            more: flags & 0x2000 != 0,
            identification: u32::from(word(bytes, 4)?),
            dont_fragment: flags & 0x4000 != 0,
            fragment_header: false,
        })
    }

    fn of_v6(bytes: &'a [u8]) -> Option<View<'a>> {
        if bytes.len() < 40 {
            return None;
        }
        let mut view = View {
            bytes,
            v4: false,
            src: &bytes[8..24],
            dst: &bytes[24..40],
            class: bytes[0] << 4 | bytes[1] >> 4,
            hop: bytes[7],
            protocol: bytes[6],
            transport: 40,
            length: usize::from(word(bytes, 4)?) + 40,
            offset: 0,
            more: false,
            identification: 0,
            dont_fragment: true,
            fragment_header: false,
        };
        while matches!(view.protocol, 0 | 43 | 44 | 60) && !view.fragment_header {
            let at = view.transport;
            let next = *bytes.get(at)?;
            if view.protocol == 44 {
                let field = word(bytes, at + 2)?;
                view.offset = usize::from(field & 0xfff8);
                view.more = field & 1 != 0;
                let high = u32::from(word(bytes, at + 4)?);
                view.identification = high << 16 | u32::from(word(bytes, at + 6)?);
                view.fragment_header = true;
                view.transport = at + 8;
            } else {
                view.transport = at + (usize::from(*bytes.get(at + 1)?) + 1) * 8;
            }
            view.protocol = next;
        }
        (view.transport <= bytes.len()).then_some(view)
    }

    /// Transport header and payload, as far as the packet goes.
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[self.transport.min(self.bytes.len())..]
    }

    /// Whether this is a piece of a larger packet.
    pub fn is_fragment(&self) -> bool {
        self.offset != 0 || self.more
    }

    /// Whether the IPv4 header checksum is right; always so in IPv6.
    pub fn header_checksum_is_right(&self) -> bool {
        !self.v4 || sum(&self.bytes[..self.transport]) == 0xffff
    }

    /// Whether the packet is an ICMP error.
    pub fn is_icmp_error(&self) -> bool {
        let kind = self.payload().first().copied();
        self.offset == 0
            && match self.protocol {
                1 if self.v4 => matches!(kind, Some(3 | 4 | 5 | 11 | 12)),
                58 if !self.v4 => matches!(kind, Some(0..=127)),
                _ => false,
            }
    }

    /// Whether the packet is any ICMP message of its IP version.
    pub fn is_icmp(&self) -> bool {
        self.protocol == if self.v4 { 1 } else { 58 }
    }

    /// Where, in the transport header, a checksum lies that covers addresses (or an ICMP checksum).
    pub fn checksum_at(&self) -> Option<usize> {
        match self.protocol {
            6 => Some(16),
            17 | 33 | 136 => Some(6),
            _ if self.is_icmp() => Some(2),
            _ => None,
        }
    }

    /// The transport checksum, if it is there.
    pub fn checksum(&self) -> Option<u16> {
        if self.offset != 0 {
            return None;
        }
        word(self.payload(), self.checksum_at()?)
    }

    /// The one's complement sum of pseudo-header and payload, 0 and 0xffff taken for the same (0): it is
    /// 0 when the checksum is right, and translation never changes it. `None`: no such checksum.
    ///
    /// The pseudo-header counts the octets that are there, so for a fragment the value means nothing by
    /// itself, but stays as it is too.
    pub fn deviation(&self) -> Option<u16> {
        self.checksum()?;
        let payload = self.payload();
        let mut total = sum(payload);
        if !(self.v4 && self.protocol == 1) {
            total = add(total, add(sum(self.src), sum(self.dst)));
            total = add(total, add(u16::from(self.protocol), payload.len() as u16));
        }
        Some(total % 0xffff)
    }

    /// The packet inside an ICMP error.
    pub fn inner(&self) -> Option<View<'a>> {
        if !self.is_icmp_error() {
            return None;
        }
        let message = self.payload();
        View::of(message.get(8..self.original_end(message))?)
    }

    /// Where the original datagram field of an ICMP error ends: where RFC 4884 section 4 says, if an
    /// extension header fits behind it, else with the message.
    fn original_end(&self, message: &[u8]) -> usize {
        let octet = |at: usize| usize::from(message.get(at).copied().unwrap_or(0));
        let field = match (self.v4, octet(0)) {
            (true, 3 | 11 | 12) => octet(5) * 4,
            (false, 1 | 3) => octet(4) * 8,
            _ => 0,
        };
        if field != 0 && 8 + field + 4 <= message.len() { 8 + field } else { message.len() }
    }
}
