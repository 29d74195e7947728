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

/// Builds a frame with complete checksums; `size` octets of payload.
pub fn frame(from: Endpoint, to: Endpoint, size: usize) -> Result<Vec<u8>> {
    let length = u16::try_from(size + 8)
        .map_err(|_| Unfit(format!("{size} octets do not fit into a datagram")))?;
    let mut udp = Vec::from(from.port.to_be_bytes());
    udp.extend(to.port.to_be_bytes());
    udp.extend(length.to_be_bytes());
    udp.extend([0; 2]);
    udp.resize(usize::from(length), 0);
    let mut bytes = [to.mac, from.mac].concat();
    let pseudo = match (from.ip, to.ip) {
        (IpAddr::V4(source), IpAddr::V4(target)) => {
            let mut header = vec![0x45, 0];
            header.extend((length + 20).to_be_bytes());
            // Identification 0, may not be fragmented (RFC 6864 section 4).
            header.extend([0, 0, 0x40, 0, HOP_LIMIT, UDP, 0, 0]);
            header.extend(source.octets());
            header.extend(target.octets());
            let sum = checksum(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            bytes.extend([0x08, 0x00]);
            bytes.extend(header);
            [&source.octets()[..], &target.octets()].concat()
        }
        (IpAddr::V6(source), IpAddr::V6(target)) => {
            bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            bytes.extend(length.to_be_bytes());
            bytes.extend([UDP, HOP_LIMIT]);
            bytes.extend(source.octets());
            bytes.extend(target.octets());
            [&source.octets()[..], &target.octets()].concat()
        }
        _ => {
            return Err(Unfit(format!("{} and {} are of two families", from.ip, to.ip)));
        }
    };
    let tail = [&[0, UDP][..], &length.to_be_bytes()].concat();
    let sum = match checksum(&[&pseudo[..], &tail, &udp].concat()) {
        // A sum of zero would say "no checksum" (RFC 768).
        0 => 0xffff,
        sum => sum,
    };
    udp[6..8].copy_from_slice(&sum.to_be_bytes());
    bytes.extend(udp);
    Ok(bytes)
}

/// The Internet checksum (RFC 1071); an odd last octet is padded with zero.
fn checksum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
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
                assert_eq!(checksum(header), 0);
                &header[12..20]
            } else {
                &header[8..40]
            };
            let udp = &bytes[14 + ip..];
            // A sum over data with its checksum in place is zero (RFC 1071 section 1).
            let all = [addresses, &[0, UDP, 0, 26], udp].concat();
            assert_eq!(checksum(&all), 0);
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
