use super::*;

#[test]
fn padding_reaches_as_far_as_the_buffer() {
    let mut buffer = [0xffu8; 12];
    let mut packet = Packet::new(&mut buffer, 4..8, Offload::default());
    assert!(packet.pad_to(3), "it is longer already");
    assert_eq!(packet.len(), 4);
    assert!(!packet.pad_to(9));
    assert_eq!(packet.len(), 4);
    assert!(packet.pad_to(8));
    assert_eq!(packet.bytes(), [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
}

#[test]
fn only_a_super_packet_is_several() {
    let segments = |kind, size, checksum| {
        let mut buffer = [0u8; 40 + 20 + 100];
        // A TCP header of 20 octets behind 40 of IPv6.
        buffer[52] = 0x50;
        let gso = Gso { kind, size, ..Gso::default() };
        Packet::new(&mut buffer, 0..160, Offload { checksum, gso }).segments()
    };
    let partial = ChecksumState::Partial { start: 40, offset: 16 };
    assert_eq!(segments(GsoKind::TcpV6, 30, partial), 4);
    assert_eq!(segments(GsoKind::TcpV6, 25, partial), 4);
    assert_eq!(segments(GsoKind::TcpV6, 100, partial), 1);
    assert_eq!(segments(GsoKind::TcpV6, 0, partial), 1);
    assert_eq!(segments(GsoKind::None, 30, partial), 1);
    assert_eq!(segments(GsoKind::TcpV6, 30, ChecksumState::Complete), 1);
}
