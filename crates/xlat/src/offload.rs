//! What a device still has to do to a packet: the state of its checksum and segmentation offloads.

use fordway_wire::{tcp, transport};

/// What is known of the transport checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChecksumState {
    /// The checksum field is complete, and not verified.
    #[default]
    Complete,
    /// The checksum field is complete, and the host has verified it (or made it).
    Verified,
    /// The field holds the folded pseudo-header sum; the device completes it by summing from octet `start` of the
    /// packet to its end, into octet `start + offset`.
    Partial {
        /// First octet covered, counted from the start of the IP header.
        start: u16,
        /// Where the checksum field lies, counted from `start`.
        offset: u16,
    },
}

/// Which kind of super-packet this is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GsoKind {
    /// An ordinary packet.
    #[default]
    None,
    /// TCP over IPv4, to be segmented.
    TcpV4,
    /// TCP over IPv6, to be segmented.
    TcpV6,
    /// UDP, to be cut into datagrams of `size` octets of payload each (USO), IPv4 or IPv6.
    Udp,
}

/// Segmentation offload state (GSO).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gso {
    /// Kind of super-packet.
    pub kind: GsoKind,
    /// The TCP flow negotiated ECN: CWR goes out with the first segment only.
    pub ecn: bool,
    /// Octets of transport payload per segment.
    pub size: u16,
    /// Octets of IP and transport headers, counted from the start of the IP header. A hint: not trusted, but kept true
    /// through translation.
    pub header_len: u16,
}

/// Offload state that travels beside a packet, as in the virtio-net header of a TUN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// Transport checksum.
    pub checksum: ChecksumState,
    /// Segmentation.
    pub gso: Gso,
}

/// Octets of the transport header of each segment of a super-packet; 0 for an ordinary packet.
pub fn segment_header_len(gso: GsoKind, segment: &[u8]) -> usize {
    match gso {
        GsoKind::None => 0,
        GsoKind::Udp => transport::UDP_HEADER_LEN,
        GsoKind::TcpV4 | GsoKind::TcpV6 => tcp::header_len(segment).unwrap_or(0),
    }
}

/// Whether the checksum of the transport header at `at` itself is partial (and not that of a packet
/// inside it).
pub(crate) fn own_partial(checksum: ChecksumState, at: usize) -> bool {
    matches!(checksum, ChecksumState::Partial { start, .. } if usize::from(start) == at)
}
