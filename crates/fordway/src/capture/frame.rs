//! Link-layer headers in front of IP packets.

use pcap_file::DataLink;

/// EtherTypes (IANA "IEEE 802 Numbers").
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// VLAN tags: IEEE 802.1Q, 802.1ad.
const VLAN: [u16; 2] = [0x8100, 0x88a8];

/// A captured frame taken apart: what stands in front of the IP packet, and the packet.
pub(crate) struct Frame<'a> {
    /// The link-layer header; empty for raw IP.
    header: &'a [u8],
    /// Where in `header` the EtherType lies.
    ether_type_at: Option<usize>,
    /// Whether two Ethernet addresses stand at the start, so that an answer can turn them round.
    ethernet: bool,
    /// The packet from its IP header, without what Ethernet pads it with.
    pub(crate) packet: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Takes a frame apart. `None`: it carries no IP, or link layer and frame are not understood.
    pub(crate) fn parse(link: DataLink, bytes: &'a [u8]) -> Option<Frame<'a>> {
        let (header_len, ether_type_at) = match link {
            DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 => (0, None),
            DataLink::ETHERNET => {
                let at = ethernet_type_at(bytes)?;
                (at + 2, Some(at))
            }
            // 16 octets, the EtherType last.
            DataLink::LINUX_SLL => (16, Some(14)),
            // 20 octets, the EtherType first.
            DataLink::LINUX_SLL2 => (20, Some(0)),
            _ => return None,
        };
        let (header, packet) = bytes.split_at_checked(header_len)?;
        let version = packet.first()? >> 4;
        let fits = match ether_type_at {
            Some(at) => matches!((ether_type(header, at)?, version), (IPV4, 4) | (IPV6, 6)),
            None => matches!(version, 4 | 6),
        };
        fits.then_some(Frame {
            header,
            ether_type_at,
            ethernet: link == DataLink::ETHERNET,
            packet: without_padding(packet),
        })
    }

    /// The frame that carries `packet` instead; `answer`: back to where this one came from.
    pub(crate) fn carry(&self, packet: &[u8], answer: bool) -> Vec<u8> {
        let mut frame = self.header.to_vec();
        if let Some(at) = self.ether_type_at {
            let ether_type =
                if packet.first().is_some_and(|first| first >> 4 == 6) { IPV6 } else { IPV4 };
            frame[at..at + 2].copy_from_slice(&ether_type.to_be_bytes());
        }
        if answer && self.ethernet {
            frame[..12].rotate_left(6);
        }
        frame.extend_from_slice(packet);
        frame
    }
}

/// Where the EtherType of an Ethernet frame lies, behind VLAN tags.
fn ethernet_type_at(bytes: &[u8]) -> Option<usize> {
    let mut at = 12;
    while VLAN.contains(&ether_type(bytes, at)?) {
        at += 4;
    }
    Some(at)
}

fn ether_type(bytes: &[u8], at: usize) -> Option<u16> {
    let field = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([field[0], field[1]]))
}

/// Ethernet fills short frames up: the packet's own length says where it ends.
fn without_padding(packet: &[u8]) -> &[u8] {
    let field = |at: usize| ether_type(packet, at).map(usize::from);
    let len = match packet.first().map(|first| first >> 4) {
        Some(4) => field(2).filter(|len| *len >= 20),
        Some(6) => field(4).filter(|len| *len > 0).map(|len| len + 40),
        _ => None,
    };
    len.and_then(|len| packet.get(..len)).unwrap_or(packet)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ipv4(len: u16) -> Vec<u8> {
        let mut packet = vec![0u8; usize::from(len)];
        packet[0] = 0x45;
        packet[2..4].copy_from_slice(&len.to_be_bytes());
        packet
    }

    #[test]
    fn ethernet_with_vlan_tag_and_padding() {
        let mut bytes = vec![0xaa; 6];
        bytes.extend([0xbb; 6]);
        bytes.extend([0x81, 0x00, 0x00, 0x07, 0x08, 0x00]);
        bytes.extend(ipv4(28));
        bytes.extend([0; 18]);
        let frame = Frame::parse(DataLink::ETHERNET, &bytes).unwrap();
        assert_eq!(frame.packet, ipv4(28));
        let made = frame.carry(&[0x60, 1, 2], true);
        assert_eq!(made[..6], [0xbb; 6]);
        assert_eq!(made[6..12], [0xaa; 6]);
        assert_eq!(made[12..], [0x81, 0x00, 0x00, 0x07, 0x86, 0xdd, 0x60, 1, 2]);
    }

    #[test]
    fn cooked_frames_keep_their_header() {
        let mut bytes = vec![0; 14];
        bytes.extend([0x86, 0xdd]);
        bytes.extend([0x60; 40]);
        let frame = Frame::parse(DataLink::LINUX_SLL, &bytes).unwrap();
        let made = frame.carry(&ipv4(20), false);
        assert_eq!(made[14..18], [0x08, 0x00, 0x45, 0x00]);
    }

    #[test]
    fn what_is_no_ip_is_no_frame() {
        let arp = [[0xff; 12].as_slice(), &[0x08, 0x06], &[0; 28]].concat();
        assert!(Frame::parse(DataLink::ETHERNET, &arp).is_none());
        assert!(Frame::parse(DataLink::ETHERNET, &arp[..13]).is_none());
        assert!(Frame::parse(DataLink::RAW, &[]).is_none());
        assert!(Frame::parse(DataLink::RAW, &[0x50]).is_none());
        assert!(Frame::parse(DataLink::LINUX_SLL2, &[0x86]).is_none());
        assert!(Frame::parse(DataLink::PPP, &ipv4(20)).is_none());
    }
}
