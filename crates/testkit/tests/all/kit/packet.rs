use fordway_testkit::checksum::{Endpoints, add, checksum, sum};
use fordway_testkit::packet::*;
fn spec(text: &str) -> PacketSpec {
    toml::from_str(text).unwrap()
}

#[test]
fn builds_udp_over_ipv4_octet_by_octet() {
    let built = spec(
        r#"v4 = { src = "192.0.2.1", dst = "198.51.100.2", id = 0x1234, df = true }
           udp = { sport = 1, dport = 2 }
           payload = "aabbcc""#,
    )
    .build()
    .unwrap();
    let expected = parse_hex(
        "45 00 001f 1234 4000 40 11 0000 c0000201 c6336402
         0001 0002 000b 0000 aabbcc",
    )
    .unwrap();
    for (at, (octet, want)) in built.bytes.iter().zip(&expected).enumerate() {
        assert!(matches!(at, 10 | 11 | 26 | 27) || octet == want, "octet {at}");
    }
    assert_eq!(checksum(&built.bytes[..20]), 0);
    let ends = Endpoints::V4("192.0.2.1".parse().unwrap(), "198.51.100.2".parse().unwrap());
    assert_eq!(add(ends.pseudo_header(17, 11), sum(&built.bytes[20..])), 0xffff);
    assert_eq!((built.transport, built.checksum, built.headers), (20, Some(6), 28));
}

#[test]
fn slices_make_fragments_of_one_datagram() {
    let text = |slice: &str| {
        format!(
            r#"v6 = {{ src = "2001:db8::1", dst = "2001:db8::2" }}
               ext = [{{ kind = "fragment", id = 7 }}]
               udp = {{}}
               payload = 100
               {slice}"#
        )
    };
    let whole = spec(&text("")).build().unwrap().bytes;
    let first = spec(&text("slice = [0, 64]")).build().unwrap().bytes;
    let last = spec(&text("slice = [64, 108]")).build().unwrap().bytes;
    assert_eq!([&first[48..], &last[48..]].concat(), whole[48..]);
    assert_eq!(&first[42..44], &[0, 1], "offset 0, M");
    assert_eq!(&last[42..44], &[0, 64], "offset 64, no M");
}

#[test]
fn chains_extension_headers_and_pads_them() {
    let built = spec(
        r#"v6 = { src = "2001:db8::1", dst = "2001:db8::2" }
           ext = [{ kind = "hopopts" }, { kind = "routing", segments_left = 1 }, { kind = "auth" }]
           tcp = { mss = 1400, flags = "S" }"#,
    )
    .build()
    .unwrap();
    assert_eq!(built.bytes[6], 0);
    assert_eq!(&built.bytes[40..48], &[43, 0, 1, 4, 0, 0, 0, 0]);
    assert_eq!(&built.bytes[48..56], &[51, 0, 0, 1, 0, 0, 0, 0]);
    assert_eq!(&built.bytes[56..58], &[6, 0]);
    assert_eq!((built.transport, built.headers), (64, 88));
}

#[test]
fn refuses_what_is_no_packet() {
    assert_eq!(spec("").build().unwrap_err(), BuildError::Header);
    assert_eq!(spec(r#"hex = "123""#).build().unwrap_err(), BuildError::Hex("123".into()));
    assert!(toml::from_str::<PacketSpec>("colour = 1").is_err());
}

#[test]
fn the_pattern_goes_on() {
    let octets = pattern(150_000);
    let due = |at: usize| (at.wrapping_mul(7) ^ at >> 8) as u8;
    assert!(octets.iter().enumerate().all(|(at, octet)| *octet == due(at)));
    assert_eq!((octets.len(), pattern(0).len(), pattern(65_537)[65_536]), (150_000, 0, 0));
}
