//! Between the virtio-net header of a queue and the offload state of the core.

use fordway_tun::{GsoType, VnetHeader};
use fordway_xlat::{ChecksumState, Gso, GsoKind, Offload};

/// The offload state that a header says; `None` for a kind of super-packet that is not known.
pub(crate) fn from_vnet(header: &VnetHeader) -> Option<Offload> {
    let checksum = if header.needs_csum() {
        ChecksumState::Partial { start: header.csum_start, offset: header.csum_offset }
    } else if header.data_valid() {
        ChecksumState::Verified
    } else {
        ChecksumState::Complete
    };
    let kind = match header.gso_type {
        GsoType::None => {
            return Some(Offload { checksum, gso: Gso::default() });
        }
        GsoType::TcpV4 => GsoKind::TcpV4,
        GsoType::TcpV6 => GsoKind::TcpV6,
        GsoType::UdpL4 => GsoKind::Udp,
        GsoType::UdpFragment | GsoType::Other(_) => return None,
    };
    let gso = Gso { kind, ecn: header.ecn, size: header.gso_size, header_len: header.hdr_len };
    Some(Offload { checksum, gso })
}

/// The header that says an offload state.
pub(crate) fn to_vnet(offload: &Offload) -> VnetHeader {
    let mut header = VnetHeader::default();
    match offload.checksum {
        ChecksumState::Complete => {}
        ChecksumState::Verified => header.flags = VnetHeader::DATA_VALID,
        ChecksumState::Partial { start, offset } => {
            header.flags = VnetHeader::NEEDS_CSUM;
            header.csum_start = start;
            header.csum_offset = offset;
        }
    }
    header.gso_type = match offload.gso.kind {
        GsoKind::None => return header,
        GsoKind::TcpV4 => GsoType::TcpV4,
        GsoKind::TcpV6 => GsoType::TcpV6,
        GsoKind::Udp => GsoType::UdpL4,
    };
    header.ecn = offload.gso.ecn;
    header.gso_size = offload.gso.size;
    header.hdr_len = offload.gso.header_len;
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_survive_the_header() {
        let checksums = [
            ChecksumState::Complete,
            ChecksumState::Verified,
            ChecksumState::Partial { start: 40, offset: 16 },
        ];
        let kinds = [GsoKind::None, GsoKind::TcpV4, GsoKind::TcpV6, GsoKind::Udp];
        for checksum in checksums {
            for kind in kinds {
                let gso = match kind {
                    GsoKind::None => Gso::default(),
                    kind => Gso { kind, ecn: true, size: 1440, header_len: 60 },
                };
                let offload = Offload { checksum, gso };
                assert_eq!(from_vnet(&to_vnet(&offload)), Some(offload));
            }
        }
    }

    #[test]
    fn unknown_kinds_are_refused() {
        for gso_type in [GsoType::UdpFragment, GsoType::Other(77)] {
            assert_eq!(from_vnet(&VnetHeader { gso_type, ..VnetHeader::default() }), None);
        }
    }
}
