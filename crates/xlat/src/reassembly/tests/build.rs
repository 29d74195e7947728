//! Fragments to be reassembled.

use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};

use fordway_wire::ipv4::Ipv4Header;
use fordway_wire::ipv6::{FragmentHeader, Ipv6Header};
use fordway_wire::protocol;

const SRC4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const DST4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

fn src6() -> Ipv6Addr {
    "2001:db8::c633:6401".parse().unwrap()
}

fn dst6() -> Ipv6Addr {
    "2001:db8::c000:201".parse().unwrap()
}

/// A fragment to be built: data and its place.
#[derive(Clone, Debug)]
pub(super) struct Part<'a> {
    pub(super) offset: usize,
    pub(super) more: bool,
    pub(super) data: &'a [u8],
}

impl<'a> Part<'a> {
    pub(super) fn new(offset: usize, more: bool, data: &'a [u8]) -> Part<'a> {
        Part { offset, more, data }
    }
}

pub(super) fn ipv4(id: u16, number: u8, options: usize, part: &Part<'_>) -> Vec<u8> {
    let header = Ipv4Header {
        header_len: 20,
        tos: 0xb8,
        total_len: (20 + options + part.data.len()) as u16,
        identification: id,
        dont_fragment: false,
        more_fragments: part.more,
        fragment_offset: part.offset,
        ttl: 64,
        protocol: number,
        src: SRC4,
        dst: DST4,
    };
    let mut packet = header.to_bytes().to_vec();
    packet.resize(20 + options, 1);
    packet[0] = 0x40 | ((20 + options) / 4) as u8;
    checksum(&mut packet);
    packet.extend(part.data);
    packet
}

pub(super) fn checksum(packet: &mut [u8]) {
    let len = usize::from(packet[0] & 15) * 4;
    packet[10..12].fill(0);
    let sum = fordway_wire::checksum::Sum::ZERO.add_bytes(&packet[..len]).finish();
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// `extensions`: how many Destination Options headers of 8 octets stand in front of the Fragment Header.
pub(super) fn ipv6(id: u32, number: u8, extensions: usize, part: &Part<'_>) -> Vec<u8> {
    let header = Ipv6Header {
        traffic_class: 0xb8,
        flow_label: 0x12345,
        payload_len: (extensions * 8 + 8 + part.data.len()) as u16,
        next_header: if extensions > 0 { protocol::IPV6_OPTS } else { protocol::IPV6_FRAG },
        hop_limit: 64,
        src: src6(),
        dst: dst6(),
    };
    let mut packet = header.to_bytes().to_vec();
    for left in (0..extensions).rev() {
        let next = if left > 0 { protocol::IPV6_OPTS } else { protocol::IPV6_FRAG };
        packet.extend([next, 0, 1, 4, 0, 0, 0, 0]);
    }
    let Part { offset, more, .. } = *part;
    let fragment = FragmentHeader { next_header: number, offset, more, identification: id };
    packet.extend(fragment.to_bytes());
    packet.extend(part.data);
    packet
}

pub(super) fn payload(len: usize) -> Vec<u8> {
    let mut octets: Vec<u8> = (0..len).map(|at| (at * 7 + at / 251) as u8).collect();
    // As TCP: a data offset of 5.
    if let Some(octet) = octets.get_mut(12) {
        *octet = 0x50;
    }
    octets
}
