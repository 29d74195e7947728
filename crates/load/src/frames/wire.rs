//! One Ethernet frame with IP, UDP and a payload of zeros.

use std::net::IpAddr;

use crate::{Result, Unfit};

/// One end of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    /// Link address.
    pub mac: [u8; 6],
    /// IP address.
    pub ip: IpAddr,
    /// UDP port.
    pub port: u16,
}

/// Hops that the frame may take.
const HOP_LIMIT: u8 = 64;
/// UDP's protocol number.
const UDP: u8 = 17;

/// Link and network header of a packet with so many octets behind them; an IPv4 header's checksum is zero.
pub(crate) fn front(
    [from, to]: [[u8; 6]; 2],
    ends: (IpAddr, IpAddr),
    protocol: u8,
    length: u16,
) -> Result<Vec<u8>> {
    let mut octets = [to, from].concat();
    match ends {
        (IpAddr::V4(source), IpAddr::V4(target)) => {
            octets.extend([0x08, 0x00, 0x45, 0]);
            octets.extend((length + 20).to_be_bytes());
            // Identification 0, may not be fragmented (RFC 6864 section 4).
            octets.extend([0, 0, 0x40, 0, HOP_LIMIT, protocol, 0, 0]);
            octets.extend([source.octets(), target.octets()].concat());
        }
        (IpAddr::V6(source), IpAddr::V6(target)) => {
            octets.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            octets.extend(length.to_be_bytes());
            octets.extend([protocol, HOP_LIMIT]);
            octets.extend([source.octets(), target.octets()].concat());
        }
        (source, target) => {
            return Err(Unfit(format!("{source} and {target} are of two families")));
        }
    }
    Ok(octets)
}

/// Sum of the pseudo-header of what is behind a [`front`], and of that, not folded.
pub(crate) fn transport_sum(front: &[u8], protocol: u8, transport: &[u8]) -> u32 {
    // The addresses are at the end: of IPv4 behind 12 octets, of IPv6 behind 8.
    let addresses = if front[12] == 0x08 { &front[14 + 12..] } else { &front[14 + 8..] };
    sum(addresses) + u32::from(protocol) + transport.len() as u32 + sum(transport)
}

/// The sum of 16-bit words, not folded (RFC 1071); an odd last octet is padded with zero.
pub(crate) fn sum(octets: &[u8]) -> u32 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    octets.chunks(2).map(word).sum()
}

/// A sum folded to 16 bits.
pub(crate) fn folded(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Builds a frame with complete checksums; `size` octets of payload.
pub fn frame(from: Endpoint, to: Endpoint, size: usize) -> Result<Vec<u8>> {
    let length = u16::try_from(size + 8)
        .map_err(|_| Unfit(format!("{size} octets do not fit into a datagram")))?;
    let mut udp = [from.port, to.port, length, 0].map(u16::to_be_bytes).concat();
    udp.resize(usize::from(length), 0);
    let mut octets = front([from.mac, to.mac], (from.ip, to.ip), UDP, length)?;
    let checksum = match !folded(transport_sum(&octets, UDP, &udp)) {
        // A sum of zero would say "no checksum" (RFC 768).
        0 => 0xffff,
        sum => sum,
    };
    udp[6..8].copy_from_slice(&checksum.to_be_bytes());
    if from.ip.is_ipv4() {
        let checksum = !folded(sum(&octets[14..]));
        octets[24..26].copy_from_slice(&checksum.to_be_bytes());
    }
    octets.extend(udp);
    Ok(octets)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(ip: &str, port: u16) -> Endpoint {
        Endpoint { mac: [2, 0, 0, 0, 0, 1], ip: ip.parse().unwrap(), port }
    }

    #[test]
    fn checksums_are_right_over_the_whole() {
        for (from, to, ip) in
            [("192.0.2.2", "198.51.100.2", 20), ("2001:db8:1::2", "2001:db8:5::5", 40)]
        {
            let bytes = frame(end(from, 4000), end(to, 9), 18).unwrap();
            assert_eq!(bytes.len(), 14 + ip + 8 + 18);
            let header = &bytes[14..14 + ip];
            let addresses = if ip == 20 {
                assert_eq!(folded(sum(header)), 0xffff);
                &header[12..20]
            } else {
                &header[8..40]
            };
            let udp = &bytes[14 + ip..];
            // A sum over data with its checksum in place is all ones (RFC 1071 section 1).
            let all = [addresses, &[0, UDP, 0, 26], udp].concat();
            assert_eq!(folded(sum(&all)), 0xffff);
        }
    }

    #[test]
    fn the_smallest_ethernet_frame_has_sixty_octets() {
        let bytes = frame(end("192.0.2.2", 1), end("198.51.100.2", 9), crate::SMALL);
        assert_eq!(bytes.unwrap().len(), 60);
        assert!(frame(end("192.0.2.2", 1), end("2001:db8::1", 9), 18).is_err());
        assert!(frame(end("192.0.2.2", 1), end("192.0.2.3", 9), 70_000).is_err());
    }
}
