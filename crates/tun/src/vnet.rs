//! The virtio-net header in front of every packet on a queue.

/// How the packet is to be cut into segments, if it is a super-packet.
///
/// Octet 1 of the header without its top bit, which is [`VnetHeader::ecn`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum GsoType {
    /// One packet (0).
    #[default]
    None,
    /// TCP over IPv4 (1).
    TcpV4,
    /// UDP datagram to be cut into IP fragments (3); kernels since 4.14 do not produce it, but accept it.
    UdpFragment,
    /// TCP over IPv6 (4).
    TcpV6,
    /// UDP datagrams of equal size, the last may be shorter, over either IP version (5).
    UdpL4,
    /// A value this crate does not know. Such a packet cannot be understood: drop it.
    Other(u8),
}

impl GsoType {
    const fn from_bits(bits: u8) -> Self {
        match bits {
            0 => Self::None,
            1 => Self::TcpV4,
            3 => Self::UdpFragment,
            4 => Self::TcpV6,
            5 => Self::UdpL4,
            other => Self::Other(other),
        }
    }

    const fn bits(self) -> u8 {
        match self {
            Self::None => 0,
            Self::TcpV4 => 1,
            Self::UdpFragment => 3,
            Self::TcpV6 => 4,
            Self::UdpL4 => 5,
            Self::Other(other) => other & !GSO_ECN,
        }
    }
}

/// Bit of octet 1: the first segment carries CWR, the others must not.
const GSO_ECN: u8 = 0x80;

/// The 10-octet virtio-net header, decoded.
///
/// ```text
/// octet 0     flags        NEEDS_CSUM = 1, DATA_VALID = 2
///       1     gso_type     with ECN = 0x80
///       2..4  hdr_len      octets of headers to copy in front of each segment
///       4..6  gso_size     payload octets per segment
///       6..8  csum_start   where the sum begins, from the packet's first octet
///       8..10 csum_offset  where it is stored, from csum_start
/// ```
///
/// All 16-bit fields are in the byte order of the host. Every ten octets decode, and encode to the same ten octets
/// again. The default is an ordinary packet with a complete checksum that has not been verified.
///
/// Source: Virtual I/O Device specification 1.2 section 5.1.6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VnetHeader {
    /// [`Self::NEEDS_CSUM`], [`Self::DATA_VALID`] and bits without a meaning here.
    pub flags: u8,
    /// Whether and how the packet is a super-packet.
    pub gso_type: GsoType,
    /// The super-packet's first segment carries TCP CWR.
    pub ecn: bool,
    /// Length of all headers, in octets; only of use with a `gso_type`.
    pub hdr_len: u16,
    /// Payload octets per segment; only of use with a `gso_type`.
    pub gso_size: u16,
    /// Octet of the packet at which the checksum begins; only of use with [`Self::NEEDS_CSUM`].
    pub csum_start: u16,
    /// Offset of the checksum field from `csum_start`, in octets.
    pub csum_offset: u16,
}

impl VnetHeader {
    /// Length on the queue, in octets.
    pub const LEN: usize = 10;

    /// Flag: the checksum field holds only the folded sum of the pseudo-header (not complemented); somebody still has
    /// to sum from `csum_start` to the packet's end.
    pub const NEEDS_CSUM: u8 = 1;

    /// Flag: the checksum has been verified, or the packet never left the host.
    pub const DATA_VALID: u8 = 2;

    /// Decodes the header.
    #[must_use]
    pub const fn decode(bytes: [u8; Self::LEN]) -> Self {
        let [flags, gso, h0, h1, g0, g1, s0, s1, o0, o1] = bytes;
        Self {
            flags,
            gso_type: GsoType::from_bits(gso & !GSO_ECN),
            ecn: gso & GSO_ECN != 0,
            hdr_len: u16::from_ne_bytes([h0, h1]),
            gso_size: u16::from_ne_bytes([g0, g1]),
            csum_start: u16::from_ne_bytes([s0, s1]),
            csum_offset: u16::from_ne_bytes([o0, o1]),
        }
    }

    /// Encodes the header.
    #[must_use]
    pub const fn encode(&self) -> [u8; Self::LEN] {
        let gso = self.gso_type.bits() | if self.ecn { GSO_ECN } else { 0 };
        let [h0, h1] = self.hdr_len.to_ne_bytes();
        let [g0, g1] = self.gso_size.to_ne_bytes();
        let [s0, s1] = self.csum_start.to_ne_bytes();
        let [o0, o1] = self.csum_offset.to_ne_bytes();
        [self.flags, gso, h0, h1, g0, g1, s0, s1, o0, o1]
    }

    /// Whether the transport checksum is partial ([`Self::NEEDS_CSUM`]).
    #[must_use]
    pub const fn needs_csum(&self) -> bool {
        self.flags & Self::NEEDS_CSUM != 0
    }

    /// Whether the checksum counts as verified ([`Self::DATA_VALID`]).
    #[must_use]
    pub const fn data_valid(&self) -> bool {
        self.flags & Self::DATA_VALID != 0
    }

    /// Whether the packet is a super-packet.
    #[must_use]
    pub const fn is_gso(&self) -> bool {
        !matches!(self.gso_type, GsoType::None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_lie_at_their_octets() {
        let header = VnetHeader {
            flags: VnetHeader::NEEDS_CSUM,
            gso_type: GsoType::TcpV6,
            ecn: true,
            hdr_len: 0x0102,
            gso_size: 0x0304,
            csum_start: 0x0506,
            csum_offset: 0x0708,
        };
        let mut expected = vec![1, 0x84];
        for field in [0x0102u16, 0x0304, 0x0506, 0x0708] {
            expected.extend_from_slice(&field.to_ne_bytes());
        }
        assert_eq!(header.encode().as_slice(), expected);
        assert!(header.needs_csum() && !header.data_valid() && header.is_gso());
    }

    #[test]
    fn gso_types_have_their_numbers() {
        for (bits, kind) in [
            (0, GsoType::None),
            (1, GsoType::TcpV4),
            (3, GsoType::UdpFragment),
            (4, GsoType::TcpV6),
            (5, GsoType::UdpL4),
            (2, GsoType::Other(2)),
        ] {
            let mut bytes = [0; VnetHeader::LEN];
            bytes[1] = bits;
            assert_eq!(VnetHeader::decode(bytes).gso_type, kind);
        }
    }

    proptest! {
        #[test]
        fn every_ten_octets_survive(bytes: [u8; VnetHeader::LEN]) {
            prop_assert_eq!(VnetHeader::decode(bytes).encode(), bytes);
        }

        #[test]
        fn other_never_touches_the_ecn_bit(bits: u8, ecn: bool) {
            let header = VnetHeader { gso_type: GsoType::Other(bits), ecn, ..VnetHeader::default() };
            prop_assert_eq!(VnetHeader::decode(header.encode()).ecn, ecn);
        }
    }
}
