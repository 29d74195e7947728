//! Packets to gather, and what becomes of them.

use fordway_testkit::checksum::sum;
use fordway_testkit::segment::segments;
use fordway_xlat::Direction;

use super::*;

pub(super) const V4: usize = ipv4::HEADER_LEN;
pub(super) const V6: usize = ipv6::HEADER_LEN;

/// Flows from here on are of UDP.
pub(super) const UDP: u8 = 16;

pub(super) fn is_v4(flow: u8) -> bool {
    flow.is_multiple_of(2)
}

/// What a packet says of itself, well or not.
pub(super) fn said(packet: &[u8]) -> Segment {
    let ip = ip_len(packet);
    let protocol = packet[if ip == V4 { ipv4::PROTOCOL_AT } else { ipv6::NEXT_HEADER_AT }];
    let is_udp = protocol == protocol::UDP;
    Segment { is_udp, ip, headers: ip, end: packet.len() }
}

pub(super) fn ip_len(packet: &[u8]) -> usize {
    if packet[0] >> 4 == 4 { V4 } else { V6 }
}

/// The ones' complement sum (RFC 1071) of the pseudo-header and `octets`.
pub(super) fn summed(packet: &[u8], octets: &[u8]) -> u16 {
    let ip = ip_len(packet);
    let addresses = if ip == V4 { 12..V4 } else { 8..V6 };
    let protocol = if said(packet).is_udp { protocol::UDP } else { protocol::TCP };
    let len = (packet.len() - ip) as u16;
    sum(&[&packet[addresses], &[0, protocol], &len.to_be_bytes(), octets].concat())
}

/// Makes both checksums right.
pub(super) fn sum_up(packet: &mut [u8]) {
    let segment = said(packet);
    let Segment { ip, is_udp, .. } = segment;
    put_u16(packet, ip + segment.checksum_at(), 0);
    if is_udp {
        let len = packet.len() - ip;
        put_u16(packet, ip + UDP_LENGTH_AT, len as u16);
    }
    let sum = match !summed(packet, &packet[ip..]) {
        0 if is_udp => 0xffff,
        sum => sum,
    };
    put_u16(packet, ip + segment.checksum_at(), sum);
    fordway_wire::set_ip_len(packet, ip);
}

/// A segment with twelve octets of options, or a datagram.
pub(super) fn segment(flow: u8, sequence: u32, id: u16, flags: u8, len: usize) -> Vec<u8> {
    let mut packet = if is_v4(flow) {
        let mut header = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 60, protocol::TCP, 0, 0];
        put_u16(&mut header, ipv4::IDENTIFICATION_AT, id);
        // Those of every second may be fragmented.
        header[ipv4::FRAGMENT_AT] = if flow.is_multiple_of(4) { 0x40 } else { 0 };
        header.extend([198, 51, 100, 1, 192, 0, 2, flow]);
        header
    } else {
        let mut header = vec![0x60, 0, 0, 0, 0, 0, protocol::TCP, 60];
        header.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        header.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, flow]);
        header
    };
    packet.extend([0x0f, 0xa0, 0x13, flow, 0, 0, 0, 0]);
    let ip = ip_len(&packet);
    if flow < UDP {
        packet.extend([0, 0, 0, 9, 0x80, flags, 1, 0, 0, 0, 0, 0]);
        packet.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
        put_u32(&mut packet, ip + tcp::SEQ_AT, sequence);
    } else {
        packet[if ip == V4 { ipv4::PROTOCOL_AT } else { ipv6::NEXT_HEADER_AT }] = protocol::UDP;
    }
    packet.extend((0..len).map(|at| (sequence as usize + at) as u8));
    sum_up(&mut packet);
    packet
}

/// What leaves, in order, with the number of packets that it is counted as.
#[derive(Default)]
pub(super) struct Sent(pub(super) Vec<(VnetHeader, Vec<u8>, usize)>);

impl Sent {
    pub(super) fn offer(&mut self, gro: &mut Gro, bytes: &[u8], offload: Offload) {
        let mut bytes = bytes.to_vec();
        let len = bytes.len();
        let packet = Packet::new(&mut bytes, 0..len, offload);
        let arrival = Arrival { direction: Some(Direction::V4ToV6), octets: len, segments: 1 };
        loop {
            let Offer { ahead, is_taken } = gro.offer(&packet, arrival);
            let is_last = ahead.is_none();
            ahead.into_iter().for_each(|it| self.gathered(gro, it));
            if is_taken {
                return;
            }
            if is_last {
                break;
            }
        }
        self.0.push((offload::to_vnet(&offload), packet.bytes().to_vec(), 1));
    }

    fn gathered(&mut self, gro: &mut Gro, mut it: Begun) {
        let header = it.finish();
        if it.arrivals.len() > 1 {
            let pieces: Vec<_> = it.pieces().collect();
            assert_eq!(pieces, cut(&header, it.packet()), "for a kernel that refuses them in one");
        }
        self.0.push((header, it.packet().to_vec(), it.arrivals.len()));
        gro.recycle(it);
    }

    pub(super) fn end(&mut self, gro: &mut Gro) {
        while let Some(it) = gro.pop() {
            self.gathered(gro, it);
        }
    }
}

/// All of `packets`, in one burst.
pub(super) fn all(packets: &[Vec<u8>]) -> Vec<(VnetHeader, Vec<u8>, usize)> {
    let (mut gro, mut sent) = (Gro::new(Gathered::TcpUdp), Sent::default());
    packets.iter().for_each(|it| sent.offer(&mut gro, it, Offload::default()));
    sent.end(&mut gro);
    sent.0
}

/// What a device makes of what left, which says of itself what it needs for that.
pub(super) fn cut(header: &VnetHeader, packet: &[u8]) -> Vec<Vec<u8>> {
    if header.is_gso() {
        let segment = said(packet);
        let Segment { ip, is_udp, .. } = segment;
        let partial = get_u16(packet, ip + segment.checksum_at());
        assert_eq!(partial, summed(packet, &[]), "what the device sums up");
        let len = if is_udp { UDP_HEADER_LEN } else { tcp::header_len(&packet[ip..]).unwrap() };
        assert_eq!(usize::from(header.hdr_len), ip + len);
        let told = (usize::from(header.csum_start), usize::from(header.csum_offset));
        assert_eq!((told, header.needs_csum()), ((ip, segment.checksum_at()), true));
        if is_udp {
            assert_eq!(udp_len(&packet[ip..]), packet.len() - ip);
            assert!(packet.len() - ip - len <= 64 * usize::from(header.gso_size), "too many");
        }
    }
    segments(packet, &offload::from_vnet(header).unwrap()).expect("it can be cut")
}
