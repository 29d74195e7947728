//! Transport headers and their checksums.

use super::build::{BuildError, Fill, padded, parse_hex, payload, resolve};
use super::spec::{Icmp, PacketSpec, Tcp};
use crate::checksum::{Endpoints, add, sum};

/// A transport header with everything behind it.
pub(super) struct Segment {
    pub(super) bytes: Vec<u8>,
    /// The protocol number, unless there is no transport header.
    pub(super) protocol: Option<u8>,
    /// Where the checksum lies.
    pub(super) checksum: Option<usize>,
    /// Octets of the header.
    pub(super) header: usize,
}

/// Builds the transport header that `spec` describes. `quoted`: what an ICMP error carries, and how much
/// of it is the original datagram.
pub(super) fn build(
    spec: &PacketSpec,
    ends: Endpoints,
    protocol: Option<u8>,
    fill: Fill,
    quoted: (Vec<u8>, usize),
) -> Result<Segment, BuildError> {
    let headers = [
        spec.tcp.is_some(),
        spec.udp.is_some(),
        spec.udplite.is_some(),
        spec.dccp.is_some(),
        spec.icmp.is_some(),
    ];
    if headers.iter().filter(|&&given| given).count() > 1 {
        return Err(BuildError::Transport);
    }
    let data = payload(&spec.payload)?;
    let mut bytes = Vec::new();
    let (number, at, sum_given) = if let Some(tcp) = &spec.tcp {
        bytes = tcp_header(tcp)?;
        (6, 16, tcp.checksum)
    } else if let Some(udp) = &spec.udp {
        bytes.extend(udp.sport.to_be_bytes());
        bytes.extend(udp.dport.to_be_bytes());
        bytes.extend(udp.len.unwrap_or((8 + data.len()) as u16).to_be_bytes());
        bytes.extend([0, 0]);
        (17, 6, udp.checksum)
    } else if let Some(udplite) = &spec.udplite {
        bytes.extend(udplite.sport.to_be_bytes());
        bytes.extend(udplite.dport.to_be_bytes());
        bytes.extend(udplite.coverage.to_be_bytes());
        bytes.extend([0, 0]);
        (136, 6, udplite.checksum)
    } else if let Some(dccp) = &spec.dccp {
        bytes.extend(dccp.sport.to_be_bytes());
        bytes.extend(dccp.dport.to_be_bytes());
        // Data offset of 4 words; CCVal 0, checksum coverage 0 (all); type 2 (Data) with X = 1.
        bytes.extend([4, 0, 0, 0, 2 << 1 | 1, 0, 0, 0, 0, 0, 0, 9]);
        (33, 6, dccp.checksum)
    } else if let Some(icmp) = &spec.icmp {
        bytes = icmp_header(icmp, ends, spec, quoted.1);
        (if matches!(ends, Endpoints::V4(..)) { 1 } else { 58 }, 2, icmp.checksum)
    } else {
        if fill == Fill::Partial {
            return Err(BuildError::NoChecksum);
        }
        return Ok(Segment { bytes: data, protocol: None, checksum: None, header: 0 });
    };
    let header = bytes.len();
    bytes.extend(quoted.0);
    bytes.extend(data);

    // ICMPv4 alone has no pseudo-header. An overridden protocol number changes the pseudo-header too.
    let has_pseudo_header = number != 1;
    let pseudo = match has_pseudo_header {
        true => ends.pseudo_header(protocol.unwrap_or(number), bytes.len()),
        false => 0,
    };
    let covered = match &spec.udplite {
        Some(udplite) if udplite.coverage != 0 => usize::from(udplite.coverage).min(bytes.len()),
        _ => bytes.len(),
    };
    let value = match fill {
        Fill::Partial => pseudo,
        Fill::Complete => match !add(pseudo, sum(&bytes[..covered])) {
            // RFC 768, RFC 3828: zero means "no checksum".
            0 if matches!(number, 17 | 136) => 0xffff,
            value => value,
        },
    };
    bytes[at..at + 2].copy_from_slice(&resolve(sum_given, value).to_be_bytes());
    Ok(Segment { bytes, protocol: Some(number), checksum: Some(at), header })
}

fn tcp_header(tcp: &Tcp) -> Result<Vec<u8>, BuildError> {
    let mut options = Vec::new();
    if let Some(mss) = tcp.mss {
        options.extend([2, 4]);
        options.extend(mss.to_be_bytes());
    }
    options.extend(parse_hex(&tcp.options)?);
    let options = padded(options, 4);
    let mut flags = 0u8;
    for letter in tcp.flags.chars() {
        let bit = "FSRPAUEC".find(letter).ok_or(BuildError::Flag(letter))?;
        flags |= 1 << bit;
    }
    let mut bytes = Vec::with_capacity(20 + options.len());
    bytes.extend(tcp.sport.to_be_bytes());
    bytes.extend(tcp.dport.to_be_bytes());
    bytes.extend(tcp.seq.to_be_bytes());
    bytes.extend(tcp.ack.to_be_bytes());
    bytes.push(tcp.doff.unwrap_or((5 + options.len() / 4) as u8) << 4);
    bytes.push(flags);
    bytes.extend(tcp.window.to_be_bytes());
    bytes.extend([0, 0, 0, 0]);
    bytes.extend(options);
    Ok(bytes)
}

fn icmp_header(icmp: &Icmp, ends: Endpoints, spec: &PacketSpec, original: usize) -> Vec<u8> {
    let mut bytes = vec![icmp.kind, icmp.code, 0, 0];
    let mut rest = [0; 4];
    rest[..2].copy_from_slice(&icmp.id.to_be_bytes());
    rest[2..].copy_from_slice(&icmp.seq.to_be_bytes());
    let length = icmp.length.or_else(|| {
        let unit = if matches!(ends, Endpoints::V4(..)) { 4 } else { 8 };
        spec.extension.is_some().then_some((original / unit) as u8)
    });
    match ends {
        Endpoints::V4(..) => {
            if let Some(pointer) = icmp.pointer {
                rest[0] = pointer as u8;
            }
            if let Some(length) = length {
                rest[1] = length;
            }
            if let Some(mtu) = icmp.mtu {
                rest[2..].copy_from_slice(&(mtu as u16).to_be_bytes());
            }
        }
        Endpoints::V6(..) => {
            if let Some(length) = length {
                rest[0] = length;
            }
            if let Some(value) = icmp.mtu.or(icmp.pointer) {
                rest = value.to_be_bytes();
            }
        }
    }
    bytes.extend(rest);
    bytes
}
