//! The frames that the sender's program fills in: everything that all flows have in common, and the
//! sums of it.

use serde::{Deserialize, Serialize};

use super::walk::Walk;
use crate::frames::{self, sum, transport_sum};

/// Octets of payload of a datagram and of a segment with data. The transport part's length stays a
/// multiple of four, as the programs sum in words of 32 bits.
pub(super) const PAYLOAD: usize = 20;
/// UDP's protocol number.
pub(super) const UDP: u8 = 17;
/// TCP's protocol number.
pub(super) const TCP: u8 = 6;
/// So many bits of a sequence number are for the octets of a flow; the others say which flow it is.
pub(super) const SEQUENCE_BITS: u32 = 6;
/// The first sequence number of every server.
pub(super) const SERVER_SEQUENCE: u32 = 0x2000_0000;

/// The flags of TCP (RFC 9293 section 3.1).
pub(super) mod flag {
    /// No more data.
    pub(in super::super) const FIN: u8 = 0x01;
    /// Synchronise.
    pub(in super::super) const SYN: u8 = 0x02;
    /// Reset.
    #[cfg(test)]
    pub(in super::super) const RST: u8 = 0x04;
    /// Push: here, that there is data.
    pub(in super::super) const PSH: u8 = 0x08;
    /// Acknowledgement.
    pub(in super::super) const ACK: u8 = 0x10;
}

/// What is sent on every flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Packet {
    /// A UDP datagram.
    Datagram,
    /// The segment that opens a TCP connection.
    Syn,
    /// A segment with data on an open connection.
    Data,
    /// The segment that closes a connection.
    Fin,
}

impl Packet {
    /// The protocol that carries it.
    pub fn protocol(self) -> u8 {
        if self == Self::Datagram { UDP } else { TCP }
    }

    /// What its sequence number is above the first one of its connection: the segment that opened it took one.
    pub(super) fn sequence(self) -> u8 {
        u8::from(matches!(self, Self::Data | Self::Fin))
    }
}

/// Octets of the link and network header.
#[cfg(test)]
pub(super) const fn front(v4: bool) -> usize {
    14 + if v4 { 20 } else { 40 }
}

/// A frame without what differs from flow to flow: the source address's own 16 bits, the ports,
/// the flow's number and the checksums are zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template {
    /// The frame.
    pub(super) octets: Vec<u8>,
    /// What is sent.
    pub(super) packet: Packet,
    /// Sum of the pseudo-header and the transport part as they stand here.
    pub(super) sum: u32,
    /// Sum of the network header as it stands here; of use where it is IPv4's.
    pub(super) header_sum: u32,
}

impl Template {
    /// The frame for a walk between two link addresses.
    pub(super) fn new(own: [u8; 6], next: [u8; 6], walk: &Walk, packet: Packet) -> Self {
        let transport = transport(packet, walk.source.is_ipv4());
        let protocol = packet.protocol();
        let ends = (walk.source, walk.target);
        let mut octets = frames::front([own, next], ends, protocol, transport.len() as u16)
            .expect("a walk is of one family");
        let header_sum = sum(&octets[14..]);
        let sum = transport_sum(&octets, protocol, &transport);
        octets.extend(transport);
        Self { octets, packet, sum, header_sum }
    }
}

/// The UDP or TCP part.
fn transport(packet: Packet, v4: bool) -> Vec<u8> {
    let data = [0; PAYLOAD];
    let tcp = |flags: u8, acknowledged: u32, rest: &[u8], options: u8| {
        let mut segment = vec![0; 8];
        segment.extend(acknowledged.to_be_bytes());
        segment.extend([(5 + options) << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
        segment.extend(rest);
        segment
    };
    let answered = SERVER_SEQUENCE + 1;
    match packet {
        Packet::Datagram => {
            let length = (8 + PAYLOAD) as u16;
            [&[0; 4][..], &length.to_be_bytes(), &[0; 2], &data].concat()
        }
        Packet::Syn => {
            // The largest segment of a link with an MTU of 1500 (RFC 9293 section 3.7.1).
            let mss: u16 = if v4 { 1460 } else { 1440 };
            let [high, low] = mss.to_be_bytes();
            tcp(flag::SYN, 0, &[2, 4, high, low], 1)
        }
        Packet::Data => tcp(flag::PSH | flag::ACK, answered, &data, 0),
        Packet::Fin => tcp(flag::FIN | flag::ACK, answered, &[], 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(source: &str, target: &str, packet: Packet) -> Template {
        let walk = Walk::new(source.parse().unwrap(), target.parse().unwrap(), 4, 100).unwrap();
        Template::new([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], &walk, packet)
    }

    #[test]
    fn lengths_are_those_of_the_headers() {
        let v4 = ("198.18.0.0", "198.51.100.2");
        let v6 = ("2001:db8:f00::1", "64:ff9b::198.51.100.2");
        for (packet, transport) in
            [(Packet::Datagram, 28), (Packet::Syn, 24), (Packet::Data, 40), (Packet::Fin, 20)]
        {
            for (source, target) in [v4, v6] {
                let frame = template(source, target, packet);
                let octets = &frame.octets;
                let v4 = octets[12] == 0x08;
                assert_eq!(octets.len(), front(v4) + transport);
                let said = if v4 {
                    usize::from(u16::from_be_bytes([octets[16], octets[17]])) - 20
                } else {
                    usize::from(u16::from_be_bytes([octets[18], octets[19]]))
                };
                assert_eq!(said, transport);
                assert_eq!(transport % 4, 0, "the programs sum whole words");
            }
        }
    }

    #[test]
    fn sources_differ_where_both_families_have_room() {
        for (source, target) in
            [("198.18.0.0", "198.51.100.2"), ("2001:db8:f00::1", "64:ff9b::198.51.100.2")]
        {
            let octets = template(source, target, Packet::Fin).octets;
            assert_eq!(octets[28..30], [0, 0]);
            assert_ne!(octets[26..28], [0, 0]);
        }
    }

    #[test]
    fn sums_are_of_the_whole() {
        let frame = template("198.18.0.0", "198.51.100.2", Packet::Syn);
        let ip = &frame.octets[14..34];
        assert_eq!(frame.header_sum, sum(ip));
        assert_eq!(frame.sum, sum(&ip[12..]) + sum(&[0, TCP, 0, 24]) + sum(&frame.octets[34..]));
        assert_eq!(frame.octets[34 + 13], flag::SYN);
    }
}
