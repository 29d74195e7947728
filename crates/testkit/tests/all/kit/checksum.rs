use fordway_testkit::checksum::{checksum, sum};

/// RFC 1071 section 3's example.
#[test]
fn rfc1071_example() {
    assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
    assert_eq!(checksum(&[0xff]), 0x00ff);
}

#[test]
fn a_packet_with_its_checksum_sums_to_all_ones() {
    let mut bytes = vec![0x45, 0, 0, 20, 0, 1, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];
    let value = checksum(&bytes);
    bytes[10..12].copy_from_slice(&value.to_be_bytes());
    assert_eq!(checksum(&bytes), 0);
}
