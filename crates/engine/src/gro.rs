//! Segments of TCP, and datagrams of UDP, that were received one by one leave as one super-packet (generic receive offload),
//! so that the kernel takes them through its stack in one go.
//!
//! A super-packet is what the kernel cuts into exactly the segments that were gathered: they differ only in what the
//! cutting itself counts on (sequence number, length, checksums, and the identification of IPv4). It waits no longer than
//! its burst lasts, and nothing of its flow overtakes it. A checksum is verified before it is left to the kernel to make
//! it anew, so that what was damaged before stays so.

use core::ops::Range;

use fordway_tun::VnetHeader;
use fordway_wire::checksum::Sum;
use fordway_wire::transport::{UDP_CHECKSUM_AT, UDP_HEADER_LEN, UDP_LENGTH_AT, udp_len};
use fordway_wire::{get_u8, get_u16, get_u32, ipv4, ipv6, protocol, put_u8, put_u16, put_u32, tcp};
use fordway_xlat::counters::Arrival;
use fordway_xlat::{ChecksumState, Gso, GsoKind, Offload, Packet};

use crate::{Gathered, offload};

/// Flows of which segments are gathered at a time.
const FLOWS: usize = 8;

/// The longest super-packet: IPv4 has no room for more in its total length.
const LONGEST: usize = ipv4::MAX_LEN;

/// Most datagrams of a super-packet of UDP: what Linux before 6.9 takes.
const MOST_DATAGRAMS: usize = 64;

/// UDP ports of tunnels: VXLAN, VXLAN-GPE, Geneve, MPLS, and Linux's older port of VXLAN. Some kernels lose
/// super-packets that end in a tunnel of theirs.
const TUNNELS: [u16; 5] = [4789, 4790, 6081, 6635, 8472];

/// What is gathered in one burst.
#[derive(Debug, Default)]
pub(crate) struct Gro {
    /// In the order in which they began.
    begun: Vec<Begun>,
    /// Buffers to begin with.
    spare: Vec<Begun>,
    gathered: Gathered,
}

/// What [`Gro::offer`] has done with a packet.
#[derive(Debug)]
pub(crate) struct Offer {
    /// What is to be sent now, and before the packet.
    pub(crate) ahead: Option<Begun>,
    /// Whether the packet was taken; else it is to be sent.
    pub(crate) is_taken: bool,
}

/// A super-packet that grows, or the only packet that there is of it.
#[derive(Debug, Default)]
pub(crate) struct Begun {
    /// Room for the virtio-net header, and the packet.
    pub(crate) buffer: Vec<u8>,
    /// What was received for it, in order.
    pub(crate) arrivals: Vec<Arrival>,
    /// The offload state of the first packet, as it came.
    offload: Offload,
    first: Segment,
    /// The sequence number of TCP that goes on with it.
    next: u32,
}

/// A segment of TCP or a datagram of UDP: where its parts lie in its packet.
#[derive(Clone, Copy, Debug, Default)]
struct Segment {
    is_udp: bool,
    /// Octets of the IP header.
    ip: usize,
    /// Octets of both headers.
    headers: usize,
    /// Octets of the packet.
    end: usize,
}

/// How a packet concerns what is gathered.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// TCP or UDP in a plain packet.
    Segment(Segment),
    /// It may be of a flow that is gathered: below options or extension headers, or in fragments.
    Unclear,
    /// It is of another protocol.
    Other,
}

impl Gro {
    pub(crate) fn new(gathered: Gathered) -> Gro {
        Gro { gathered, ..Gro::default() }
    }

    /// Gathers nothing from now on. What has begun goes on.
    pub(crate) fn cease(&mut self) {
        self.gathered = Gathered::Nothing;
    }

    /// Takes a packet that is to be sent, or says what is to be sent before it.
    pub(crate) fn offer(&mut self, packet: &Packet<'_>, arrival: Arrival) -> Offer {
        let bytes = packet.bytes();
        if self.gathered == Gathered::Nothing {
            return Offer { ahead: self.pop(), is_taken: false };
        }
        let segment = match Segment::find(bytes) {
            Kind::Segment(segment) if segment.is_udp && self.gathered != Gathered::TcpUdp => {
                return Offer { ahead: None, is_taken: false };
            }
            Kind::Segment(segment) if !packet.is_split() => segment,
            Kind::Other => return Offer { ahead: None, is_taken: false },
            // Asked again until nothing is left that it could overtake.
            Kind::Segment(_) | Kind::Unclear => {
                return Offer { ahead: self.pop(), is_taken: false };
            }
        };
        let can_begin = segment.can_begin(packet);
        let ahead = match self.begun.iter().position(|it| it.is_of_flow(&segment, bytes)) {
            Some(at) if self.begun[at].append(&segment, packet, arrival) => {
                let is_complete = self.begun[at].is_complete(&segment, bytes);
                let ahead = is_complete.then(|| self.begun.remove(at));
                return Offer { ahead, is_taken: true };
            }
            Some(at) => Some(self.begun.remove(at)),
            None if can_begin && self.begun.len() == FLOWS => self.pop(),
            None => None,
        };
        if can_begin {
            self.begin(segment, packet, arrival);
        }
        Offer { ahead, is_taken: can_begin }
    }

    fn begin(&mut self, first: Segment, packet: &Packet<'_>, arrival: Arrival) {
        let bytes = packet.bytes();
        let mut new = self.spare.pop().unwrap_or_else(Begun::empty);
        new.buffer.resize(VnetHeader::LEN, 0);
        new.buffer.extend_from_slice(bytes);
        new.arrivals.push(arrival);
        new.offload = packet.offload;
        new.first = first;
        new.next = first.sequence(bytes).wrapping_add(first.payload().len() as u32);
        self.begun.push(new);
    }

    /// What has begun first, to be sent.
    pub(crate) fn pop(&mut self) -> Option<Begun> {
        if self.begun.is_empty() { None } else { Some(self.begun.remove(0)) }
    }

    /// Takes the buffers of what has been sent.
    pub(crate) fn recycle(&mut self, mut sent: Begun) {
        sent.buffer.clear();
        sent.arrivals.clear();
        self.spare.push(sent);
    }
}

impl Begun {
    /// Room for the longest super-packet, which takes memory as it is written.
    fn empty() -> Begun {
        Begun { buffer: Vec::with_capacity(VnetHeader::LEN + LONGEST), ..Begun::default() }
    }

    fn packet(&self) -> &[u8] {
        &self.buffer[VnetHeader::LEN..]
    }

    /// Payload of the first segment, which all but the last have.
    fn size(&self) -> usize {
        self.first.payload().len()
    }

    /// Whether a segment has the same addresses and ports.
    fn is_of_flow(&self, segment: &Segment, bytes: &[u8]) -> bool {
        let own = self.packet();
        let addresses = segment.addresses();
        let ports = segment.ip..segment.ip + 4;
        segment.ip == self.first.ip
            && own[addresses.clone()] == bytes[addresses]
            && own[ports.clone()] == bytes[ports]
    }

    /// Puts the payload of the flow's next segment behind what there is, if cutting gives that segment back.
    fn append(&mut self, segment: &Segment, packet: &Packet<'_>, arrival: Arrival) -> bool {
        let bytes = packet.bytes();
        let payload = segment.payload();
        let follows = segment.is_gatherable(packet)
            && match segment.is_udp {
                true => self.arrivals.len() < MOST_DATAGRAMS,
                false => segment.sequence(bytes) == self.next,
            }
            && payload.len() <= self.size()
            && self.packet().len() + payload.len() <= LONGEST
            && self.has_headers_of(segment, bytes);
        if !follows || !self.is_sound() || !segment.is_sound(bytes, packet.offload.checksum) {
            return false;
        }
        if segment.is_pushed(bytes) {
            let flags = VnetHeader::LEN + self.first.ip + tcp::FLAGS_AT;
            put_u8(&mut self.buffer, flags, tcp::flag::ACK | tcp::flag::PSH);
        }
        self.next = self.next.wrapping_add(payload.len() as u32);
        self.buffer.extend_from_slice(&bytes[payload]);
        self.arrivals.push(arrival);
        true
    }

    /// Whether nothing can follow the segment that was appended.
    fn is_complete(&self, last: &Segment, bytes: &[u8]) -> bool {
        last.payload().len() < self.size() || last.is_pushed(bytes)
    }

    /// Whether headers are the same but for what cutting counts on.
    fn has_headers_of(&self, segment: &Segment, bytes: &[u8]) -> bool {
        let own = self.packet();
        let same = |range: Range<usize>| own[range.clone()] == bytes[range];
        let tcp = |from: usize, to: usize| segment.ip + from..segment.ip + to;
        let ip = if segment.is_v4() {
            let expected =
                get_u16(own, ipv4::IDENTIFICATION_AT).wrapping_add(self.arrivals.len() as u16);
            // What may not be fragmented needs no identification (RFC 6864 section 4).
            let is_atomic = get_u16(bytes, ipv4::FRAGMENT_AT) == ipv4::DF;
            same(0..2)
                && same(ipv4::FRAGMENT_AT..ipv4::CHECKSUM_AT)
                && (is_atomic || get_u16(bytes, ipv4::IDENTIFICATION_AT) == expected)
        } else {
            same(0..4) && same(ipv6::NEXT_HEADER_AT..ipv6::NEXT_HEADER_AT + 2)
        };
        let tcp = || {
            same(tcp(tcp::ACK_AT, tcp::FLAGS_AT))
                && same(tcp(tcp::WINDOW_AT, tcp::CHECKSUM_AT))
                && same(tcp(tcp::URGENT_AT, segment.headers - segment.ip))
        };
        ip && (segment.is_udp || tcp())
    }

    /// Whether the checksums of the first segment are right; of a super-packet they were looked at.
    fn is_sound(&self) -> bool {
        self.arrivals.len() > 1 || self.first.is_sound(self.packet(), self.offload.checksum)
    }

    /// The segments as they came, for a kernel that refuses them in one; with complete checksums.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = Vec<u8>> {
        let Segment { ip, headers, is_udp, .. } = self.first;
        let last = self.arrivals.len() - 1;
        let payloads = self.packet()[headers..].chunks(self.size());
        payloads.enumerate().map(move |(number, payload)| {
            let mut piece = [&self.packet()[..headers], payload].concat();
            if self.first.is_v4() {
                let id = get_u16(&piece, ipv4::IDENTIFICATION_AT).wrapping_add(number as u16);
                put_u16(&mut piece, ipv4::IDENTIFICATION_AT, id);
            }
            fordway_wire::set_ip_len(&mut piece, ip);
            let len = piece.len() - ip;
            if is_udp {
                put_u16(&mut piece, ip + UDP_LENGTH_AT, len as u16);
            } else {
                let before = (number * self.size()) as u32;
                let sequence = self.first.sequence(&piece).wrapping_add(before);
                put_u32(&mut piece, ip + tcp::SEQ_AT, sequence);
                if number < last {
                    put_u8(&mut piece, ip + tcp::FLAGS_AT, tcp::flag::ACK);
                }
            }
            let (partial, at) =
                (self.first.pseudo(&piece, len).fold(), ip + self.first.checksum_at());
            put_u16(&mut piece, at, partial);
            let end = piece.len();
            let mut packet = Packet::new(&mut piece, 0..end, self.first.partial());
            packet.complete_checksum();
            // A sum of 0 is written as 0xffff for UDP's sake (RFC 768).
            if !is_udp && get_u16(&piece, at) == 0xffff {
                put_u16(&mut piece, at, 0);
            }
            piece
        })
    }

    /// Makes its headers those of a super-packet; the header to send it with.
    pub(crate) fn finish(&mut self) -> VnetHeader {
        if self.arrivals.len() < 2 {
            return offload::to_vnet(&self.offload);
        }
        let size = self.size() as u16;
        let first = self.first;
        let Segment { ip, headers, .. } = first;
        let packet = &mut self.buffer[VnetHeader::LEN..];
        let len = packet.len() - ip;
        fordway_wire::set_ip_len(packet, ip);
        if first.is_udp {
            put_u16(packet, ip + UDP_LENGTH_AT, len as u16);
        }
        let sum = first.pseudo(packet, len).fold();
        put_u16(packet, ip + first.checksum_at(), sum);
        let kind = match (first.is_udp, first.is_v4()) {
            (true, _) => GsoKind::Udp,
            (false, true) => GsoKind::TcpV4,
            (false, false) => GsoKind::TcpV6,
        };
        let gso = Gso { kind, ecn: false, size, header_len: headers as u16 };
        offload::to_vnet(&Offload { gso, ..first.partial() })
    }
}

impl Segment {
    /// How a packet concerns what is gathered.
    fn find(bytes: &[u8]) -> Kind {
        let (ip, len, protocol) = match get_u8(bytes, 0) >> 4 {
            4 => {
                let is_plain =
                    get_u8(bytes, 0) == 0x45 && get_u16(bytes, ipv4::FRAGMENT_AT) & !ipv4::DF == 0;
                let ip = if is_plain { ipv4::HEADER_LEN } else { bytes.len() };
                (
                    ip,
                    usize::from(get_u16(bytes, ipv4::TOTAL_LEN_AT)),
                    get_u8(bytes, ipv4::PROTOCOL_AT),
                )
            }
            6 => {
                let len = ipv6::HEADER_LEN + usize::from(get_u16(bytes, ipv6::PAYLOAD_LEN_AT));
                (ipv6::HEADER_LEN, len, get_u8(bytes, ipv6::NEXT_HEADER_AT))
            }
            _ => return Kind::Other,
        };
        let segment = bytes.get(ip..).unwrap_or_default();
        let header = match protocol {
            protocol::TCP => tcp::header_len(segment),
            protocol::UDP => {
                let is_whole = udp_len(segment) == segment.len();
                (is_whole && segment.len() >= UDP_HEADER_LEN).then_some(UDP_HEADER_LEN)
            }
            next if ip == ipv6::HEADER_LEN && ipv6::is_extension(next) => None,
            _ => return Kind::Other,
        };
        match header {
            Some(header) if len == bytes.len() => {
                let is_udp = protocol == protocol::UDP;
                Kind::Segment(Segment { is_udp, ip, headers: ip + header, end: len })
            }
            _ => Kind::Unclear,
        }
    }

    fn is_v4(&self) -> bool {
        self.ip == ipv4::HEADER_LEN
    }

    /// Both addresses, which end either header.
    fn addresses(&self) -> Range<usize> {
        if self.is_v4() { 12..self.ip } else { 8..self.ip }
    }

    fn payload(&self) -> Range<usize> {
        self.headers..self.end
    }

    fn sequence(&self, bytes: &[u8]) -> u32 {
        get_u32(bytes, self.ip + tcp::SEQ_AT)
    }

    /// Where the checksum is in the header of TCP or UDP.
    fn checksum_at(&self) -> usize {
        if self.is_udp { UDP_CHECKSUM_AT } else { tcp::CHECKSUM_AT }
    }

    /// One packet whose checksum is to be made.
    fn partial(&self) -> Offload {
        let (start, offset) = (self.ip as u16, self.checksum_at() as u16);
        let checksum = ChecksumState::Partial { start, offset };
        Offload { checksum, ..Offload::default() }
    }

    /// Sum of the pseudo-header of `len` octets behind the IP header.
    fn pseudo(&self, packet: &[u8], len: usize) -> Sum {
        let protocol = if self.is_udp { protocol::UDP } else { protocol::TCP };
        Sum::ZERO
            .add_bytes(&packet[self.addresses()])
            .add_u16(u16::from(protocol))
            .add_u32(len as u32)
    }

    /// Whether it may be part of a super-packet: it carries data, and says nothing that is said once.
    fn is_gatherable(&self, packet: &Packet<'_>) -> bool {
        let segment = &packet.bytes()[self.ip..];
        let is_usual = if self.is_udp {
            get_u16(segment, UDP_CHECKSUM_AT) != 0 && !TUNNELS.contains(&get_u16(segment, 2))
        } else {
            tcp::flags(segment) & !tcp::flag::PSH == tcp::flag::ACK
        };
        let is_known = match packet.offload.checksum {
            ChecksumState::Partial { start, offset } => {
                (usize::from(start), usize::from(offset)) == (self.ip, self.checksum_at())
            }
            ChecksumState::Complete | ChecksumState::Verified => true,
        };
        let is_whole = packet.offload.gso.kind == GsoKind::None;
        is_whole && is_usual && is_known && !self.payload().is_empty()
    }

    /// Whether others may follow it in a super-packet.
    fn can_begin(&self, packet: &Packet<'_>) -> bool {
        self.is_gatherable(packet) && !self.is_pushed(packet.bytes())
    }

    /// Whether it is of TCP and has PSH.
    fn is_pushed(&self, bytes: &[u8]) -> bool {
        !self.is_udp && tcp::flags(&bytes[self.ip..]) & tcp::flag::PSH != 0
    }

    /// Whether its checksums are right; that of TCP or UDP may be one that nobody has made yet.
    fn is_sound(&self, bytes: &[u8], checksum: ChecksumState) -> bool {
        let segment = &bytes[self.ip..self.end];
        let is_right = || {
            let pseudo = self.pseudo(bytes, segment.len());
            (pseudo + Sum::ZERO.add_bytes(segment)).fold() == 0xffff
        };
        (!self.is_v4() || ipv4::header_checksum_is_valid(&bytes[..self.ip]))
            && (checksum != ChecksumState::Complete || is_right())
    }
}

#[cfg(test)]
mod tests;
