//! Options that name resolvers (RFC 9463) and a captive portal (RFC 8910).

use super::*;

/// RFC 9463 section 6.1, drawn out: priority 1, 600 seconds, dns.example, one address, alpn=dot, port=8853.
#[test]
fn encrypted_dns_is_laid_out_as_in_the_rfc() {
    let octets = [
        &b"\x90\x08\x00\x01\x00\x00\x02\x58"[..],
        b"\x00\x0d\x03dns\x07example\x00",
        b"\x00\x10\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\x00\x53",
        b"\x00\x0e\x00\x01\x00\x04\x03dot\x00\x03\x00\x02\x22\x95",
        // Padding.
        b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
    ]
    .concat();
    let octets = &octets[..64];
    let read = options_of(octets).unwrap();
    let [NdOption::EncryptedDns(it)] = read[..] else { panic!("{read:?}") };
    assert_eq!((it.priority, it.lifetime, it.name.to_string()), (1, 600, "dns.example".into()));
    let address: Ipv6Addr = "2001:db8::53".parse().unwrap();
    assert_eq!(it.addresses().collect::<Vec<_>>(), [address]);
    let mut buffer = [0; 200];
    let mut writer = Writer::solicitation(&mut buffer).unwrap();
    writer.encrypted_dns(1, 600, it.name.labels(), &[address], it.params).unwrap();
    assert_eq!(&writer.finish(ROUTER, ALL_NODES)[SOLICITATION_LEN..], octets);
    // A name alone: the lengths behind it are not there, or are zero.
    for units in [2, 3] {
        let mut alone = b"\x90\x00\x00\x01\0\0\0\x09\x00\x06\x01a\x02bc\0".to_vec();
        alone[1] = units;
        alone.resize(usize::from(units) * 8, 0);
        let read = options_of(&alone).unwrap();
        let [NdOption::EncryptedDns(it)] = read[..] else { panic!("{read:?}") };
        assert!(it.params.is_empty() && it.addresses().next().is_none());
    }
    // Multicast and loopback addresses are discarded.
    let mut other = octets.to_vec();
    other[25] = 0xff;
    let read = options_of(&other).unwrap();
    let [NdOption::EncryptedDns(it)] = read[..] else { panic!("{read:?}") };
    assert_eq!(it.addresses().count(), 0);
    // Other lengths: of the name, of the addresses, of the parameters, of a value; and a key that comes again.
    for (at, value) in [(9, 0x0c), (9, 0xff), (24, 0x0f), (42, 0xff), (46, 0x05), (52, 0x01)] {
        let mut broken = octets.to_vec();
        broken[at] = value;
        assert_eq!(options_of(&broken), Ok(vec![NdOption::Malformed { kind: 144 }]), "{at}");
    }
}

#[test]
fn a_captive_portal_is_a_uri() {
    let of = |text: &[u8]| {
        let mut octets = [&[37, 0], text].concat();
        octets.resize(octets.len().next_multiple_of(8), 0);
        octets[1] = (octets.len() / 8) as u8;
        octets
    };
    let good = of(b"https://a.example/");
    assert_eq!(options_of(&good), Ok(vec![NdOption::CaptivePortal("https://a.example/")]));
    for wrong in [&b""[..], b"https://a\n", b"a\0b", b"https://\xff/"] {
        assert_eq!(options_of(&of(wrong)), Ok(vec![NdOption::Malformed { kind: 37 }]), "{wrong:?}");
    }
}
