use proptest::prelude::*;

use super::*;

fn ends(client: &str, local: &str) -> Ends {
    Ends { client: client.parse().unwrap(), local: local.parse().unwrap() }
}

fn front() -> Ends {
    ends("[2001:db8::1]:1", "[2001:db8::2]:2")
}

/// The octets that the specification draws.
#[test]
fn headers_are_those_of_the_specification() {
    let v6 = ends("[2001:db8::a]:1025", "[2001:db8::b]:443");
    let v1 = v6.header(SendProxy::V1).unwrap();
    assert_eq!(v1, b"PROXY TCP6 2001:db8::a 2001:db8::b 1025 443\r\n");
    let v4 = ends("192.0.2.1:1025", "198.51.100.1:443");
    let v2 = v4.header(SendProxy::V2).unwrap();
    let expected = [
        &b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c"[..],
        &[192, 0, 2, 1, 198, 51, 100, 1],
        b"\x04\x01\x01\xbb",
    ];
    assert_eq!(v2, expected.concat());
    assert_eq!(v4.header(SendProxy::Off), None);
    assert_eq!(own_header(SendProxy::V1).unwrap(), b"PROXY UNKNOWN\r\n");
    assert_eq!(own_header(SendProxy::V2).unwrap(), b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00");
    // Two families become one.
    let mixed = ends("192.0.2.1:1025", "[2001:db8::b]:443").header(SendProxy::V1).unwrap();
    assert_eq!(mixed, b"PROXY TCP6 ::ffff:192.0.2.1 2001:db8::b 1025 443\r\n");
}

#[test]
fn what_is_told_is_read() {
    let told = ends("192.0.2.1:1025", "198.51.100.1:443");
    for version in [SendProxy::V1, SendProxy::V2] {
        let header = told.header(version).unwrap();
        for len in 0..header.len() {
            assert_eq!(front().parse(&header[..len]), Ok(None), "{version:?} {len}");
        }
        let more = [&header[..], b"GET"].concat();
        assert_eq!(front().parse(&more), Ok(Some((told, header.len()))));
        let own = own_header(version).unwrap();
        assert_eq!(front().parse(&own), Ok(Some((front(), own.len()))));
    }
    // With additions behind the addresses, which are passed over.
    let mut header = told.header(SendProxy::V2).unwrap();
    header[15] += 5;
    header.extend([0x04, 0, 2, 9, 9]);
    assert_eq!(front().parse(&header), Ok(Some((told, 33))));
}

#[test]
fn what_is_no_header_is_refused() {
    for octets in [
        &b"GET / HTTP/1.1\r\n"[..],
        b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00",
        b"PROXY TCP5 192.0.2.1 192.0.2.2 1 2\r\n",
        b"PROXY TCP4 192.0.2.300 192.0.2.2 1 2\r\n",
        b"PROXY TCP4 192.0.2.1 192.0.2.2 1 70000\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x31\x11\x00\x0c\0\0\0\0\0\0\0\0\0\0\0\0",
        // Datagrams.
        b"\r\n\r\n\0\r\nQUIT\n\x21\x12\x00\x0c\0\0\0\0\0\0\0\0\0\0\0\0",
    ] {
        assert_eq!(front().parse(octets), Err(NoHeader), "{octets:?}");
    }
    let endless = [&b"PROXY TCP4 "[..], &[b'1'; 200]].concat();
    assert_eq!(front().parse(&endless), Err(NoHeader));
}

proptest! {
    #[test]
    fn any_octets_are_survived(
        front in prop::sample::select(vec![&b""[..], b"PROXY TCP6 ", b"\r\n\r\n\0\r\nQUIT\n"]),
        octets in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let octets = [front, &octets].concat();
        if let Ok(Some((_, len))) = super::tests::front().parse(&octets) {
            prop_assert!(len <= octets.len());
        }
    }
}
