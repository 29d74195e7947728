//! Packets of all kinds that belong to a shard.

use super::*;

pub(super) const SYN: u8 = 2;
pub(super) const ACK: u8 = 16;

pub(super) fn udp_segment(src: u16, dst: u16) -> Vec<u8> {
    [src, dst, 12, 0x1234, 0x5678, 0x9abc].into_iter().flat_map(u16::to_be_bytes).collect()
}

pub(super) fn tcp_segment(src: u16, dst: u16, flags: u8) -> Vec<u8> {
    let words = [src, dst, 1, 2, 3, 4, 0x5000 | u16::from(flags), 0x1000, 0x1234, 0];
    words.into_iter().flat_map(u16::to_be_bytes).collect()
}

/// An ICMPv6 echo request.
pub(super) fn echo(id: u16) -> Vec<u8> {
    [0x8000, 0x1234, id, 1].into_iter().flat_map(u16::to_be_bytes).collect()
}

/// By the length that [`udp_segment`] gives.
fn protocol_of(segment: &[u8]) -> u8 {
    if segment.len() == 12 { protocol::UDP } else { protocol::TCP }
}

fn embedded(addr: Ipv4Addr) -> Ipv6Addr {
    let [a, b, c, d] = addr.octets();
    Ipv6Addr::new(
        0x2001,
        0xdb8,
        0x64,
        0,
        0,
        0,
        u16::from_be_bytes([a, b]),
        u16::from_be_bytes([c, d]),
    )
}

pub(super) fn v6_of(number: u16, dst: Ipv4Addr, next_header: u8, segment: &[u8]) -> Vec<u8> {
    let header = Ipv6Header {
        payload_len: segment.len() as u16,
        ..Ipv6Header::new(next_header, host(number), embedded(dst))
    };
    [&header.to_bytes()[..], segment].concat()
}

pub(super) fn v6(number: u16, dst: Ipv4Addr, segment: &[u8]) -> Vec<u8> {
    v6_of(number, dst, protocol_of(segment), segment)
}

fn v4_of(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, segment: &[u8]) -> Vec<u8> {
    let total_len = 20 + segment.len() as u16;
    let header = Ipv4Header { total_len, ..Ipv4Header::new(protocol, src, dst) };
    [&header.to_bytes()[..], segment].concat()
}

pub(super) fn v4(src: Ipv4Addr, dst: Ipv4Addr, segment: &[u8]) -> Vec<u8> {
    v4_of(src, dst, protocol_of(segment), segment)
}

/// "Port unreachable" about a packet that `to` has sent.
pub(super) fn error_v4(from: Ipv4Addr, to: Ipv4Addr, quoted: &[u8]) -> Vec<u8> {
    let mut message = [&[3, 3, 0, 0, 0, 0, 0, 0], quoted].concat();
    let checksum = Sum::ZERO.add_bytes(&message).finish();
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    v4_of(from, to, protocol::ICMP, &message)
}

/// "Port unreachable" by an IPv6 node about a packet from IPv4, to its sender.
pub(super) fn error_v6(number: u16, quoted: &[u8]) -> Vec<u8> {
    let mut message = [&[1, 4, 0, 0, 0, 0, 0, 0], quoted].concat();
    let octets: [u8; 16] = quoted[8..24].try_into().unwrap();
    let len = message.len() as u32;
    let pseudo = pseudo_v6(host(number), octets.into(), protocol::ICMPV6, len);
    let checksum = pseudo.add_bytes(&message).finish();
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    let mut packet = v6_of(number, SERVER.0, protocol::ICMPV6, &message);
    packet[24..40].copy_from_slice(&octets);
    packet
}

/// Source address and port of an IPv4 packet.
pub(super) fn source(packet: &[u8]) -> (Ipv4Addr, u16) {
    let addr: [u8; 4] = packet[12..16].try_into().unwrap();
    (addr.into(), u16::from_be_bytes([packet[20], packet[21]]))
}

/// An error about a packet that went the other way between the same ends.
pub(super) fn quoting(packet: &[u8]) -> Vec<u8> {
    let mut sent = packet.to_vec();
    if packet[0] >> 4 == 6 {
        // To the host, from the server: ports change places, too.
        sent[8..24].copy_from_slice(&packet[24..40]);
        sent[24..40].copy_from_slice(&packet[8..24]);
        sent[40..42].copy_from_slice(&packet[42..44]);
        sent[42..44].copy_from_slice(&packet[40..42]);
        // The router's own shard is the other one.
        return error_v6(u16::from(packet[23]) + 1, &sent);
    }
    sent[12..16].copy_from_slice(&packet[16..20]);
    sent[16..20].copy_from_slice(&packet[12..16]);
    sent[20..22].copy_from_slice(&packet[22..24]);
    sent[22..24].copy_from_slice(&packet[20..22]);
    let local: [u8; 4] = packet[16..20].try_into().unwrap();
    error_v4(Ipv4Addr::new(203, 0, 113, 9), local.into(), &sent)
}

/// Writes TTL or hop limit.
pub(super) fn set_hops(packet: &mut [u8], hops: u8) {
    if packet[0] >> 4 == 6 {
        packet[7] = hops;
    } else {
        packet[8] = hops;
        packet[10..12].fill(0);
        let checksum = Sum::ZERO.add_bytes(&packet[..20]).finish();
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// The shard of a packet as this file makes them, read from where its host or transport address stands.
pub(super) fn shard_of(packet: &[u8]) -> Option<u16> {
    let is_v6 = packet[0] >> 4 == 6;
    let is_error = packet[if is_v6 { 6 } else { 9 }] == if is_v6 { 58 } else { 1 };
    let (last, port) = match (is_v6, is_error) {
        (true, false) => (packet[23], None),
        (true, true) => (packet[48 + 39], None),
        (false, false) => (packet[19], Some([packet[22], packet[23]])),
        (false, true) => (packet[28 + 15], Some([packet[28 + 20], packet[28 + 21]])),
    };
    let is_in_pool = port.is_none_or(|port| (2000..=2063).contains(&u16::from_be_bytes(port)));
    (is_in_pool || is_error).then_some(u16::from(last) % 2)
}
