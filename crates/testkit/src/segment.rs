//! What a device does with offloaded packets: completes checksums, cuts super-packets.

use fordway_xlat::{ChecksumState, GsoKind, Offload};

use crate::checksum::{checksum, sum};

/// The packet with its checksum complete.
///
/// A partial checksum that does not lie inside the packet is left alone.
pub fn complete(bytes: &[u8], offload: &Offload) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if let ChecksumState::Partial { start, offset } = offload.checksum {
        let (start, at) = (usize::from(start), usize::from(start) + usize::from(offset));
        if at + 2 <= bytes.len() {
            // The device knows no protocols: it writes 0xffff for zero only where that can mean
            // "none", that is UDP; both are right for the others (RFC 1624 section 3).
            let value = match !sum(&bytes[start..]) {
                0 if offset == 6 => 0xffff,
                value => value,
            };
            bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
        }
    }
    bytes
}

/// The packets that a super-packet becomes on a wire, their checksums complete; an ordinary packet
/// becomes itself. `None`: the offload state does not describe this packet.
///
/// TCP (TSO): sequence numbers run on, FIN and PSH go out with the last segment, CWR with the first
/// (with `ecn`). UDP (USO): one datagram per segment. IPv4 identifications count up.
pub fn segments(bytes: &[u8], offload: &Offload) -> Option<Vec<Vec<u8>>> {
    if offload.gso.kind == GsoKind::None {
        return Some(vec![complete(bytes, offload)]);
    }
    let size = usize::from(offload.gso.size);
    let ip = Ip::of(bytes)?;
    let tcp = ip.protocol == 6;
    let header = match ip.protocol {
        6 => usize::from(bytes.get(ip.header + 12)? >> 4) * 4,
        17 => 8,
        _ => return None,
    };
    let headers = ip.header + header;
    let kind_fits = match offload.gso.kind {
        GsoKind::TcpV4 => ip.v4 && tcp,
        GsoKind::TcpV6 => !ip.v4 && tcp,
        GsoKind::Udp => !tcp,
        GsoKind::None => false,
    };
    if !kind_fits || size == 0 || header < 8 || headers > bytes.len() {
        return None;
    }
    let chunks: Vec<&[u8]> = bytes[headers..].chunks(size).collect();
    let last = chunks.len().saturating_sub(1);
    let cut = chunks.iter().enumerate().map(|(index, chunk)| {
        let mut segment = [&bytes[..headers], chunk].concat();
        ip.set_length(&mut segment, index as u16);
        let transport = &mut segment[ip.header..];
        if tcp {
            let seq = u32::from_be_bytes([transport[4], transport[5], transport[6], transport[7]]);
            let seq = seq.wrapping_add((index * size) as u32);
            transport[4..8].copy_from_slice(&seq.to_be_bytes());
            if index != last {
                transport[13] &= !0x09;
            }
            if index != 0 && offload.gso.ecn {
                transport[13] &= !0x80;
            }
        } else {
            let len = transport.len() as u16;
            transport[4..6].copy_from_slice(&len.to_be_bytes());
        }
        ip.set_transport_checksum(&mut segment, if tcp { 16 } else { 6 });
        segment
    });
    Some(cut.collect())
}

/// How many packets go over a wire: 1, or the segments of a super-packet.
pub fn segment_count(bytes: &[u8], offload: &Offload) -> usize {
    segments(bytes, offload).map_or(1, |segments| segments.len().max(1))
}

/// The least that segmentation must know of an IP header. IPv6 extension headers are not walked: no
/// device segments such packets.
struct Ip {
    v4: bool,
    header: usize,
    protocol: u8,
}

impl Ip {
    fn of(bytes: &[u8]) -> Option<Ip> {
        let ip = match bytes.first()? >> 4 {
            4 => Ip { v4: true, header: usize::from(bytes[0] & 15) * 4, protocol: *bytes.get(9)? },
            6 => Ip { v4: false, header: 40, protocol: *bytes.get(6)? },
            _ => return None,
        };
        let least = if ip.v4 { 20 } else { 40 };
        (ip.header >= least && bytes.len() >= ip.header).then_some(ip)
    }

    fn set_length(&self, segment: &mut [u8], index: u16) {
        if self.v4 {
            let len = segment.len() as u16;
            segment[2..4].copy_from_slice(&len.to_be_bytes());
            let id = u16::from_be_bytes([segment[4], segment[5]]).wrapping_add(index);
            segment[4..6].copy_from_slice(&id.to_be_bytes());
            segment[10..12].fill(0);
            let value = checksum(&segment[..self.header]);
            segment[10..12].copy_from_slice(&value.to_be_bytes());
        } else {
            let len = (segment.len() - 40) as u16;
            segment[4..6].copy_from_slice(&len.to_be_bytes());
        }
    }

    fn set_transport_checksum(&self, segment: &mut [u8], at: usize) {
        let addresses = if self.v4 { 12..20 } else { 8..40 };
        let mut covered = segment[addresses].to_vec();
        covered.extend(((segment.len() - self.header) as u32).to_be_bytes());
        covered.extend([0, 0, 0, self.protocol]);
        let at = self.header + at;
        segment[at..at + 2].fill(0);
        covered.extend(&segment[self.header..]);
        let value = match checksum(&covered) {
            0 if self.protocol == 17 => 0xffff,
            value => value,
        };
        segment[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }
}
