use hickory_proto::rr::{RData, Record};
use hickory_proto::serialize::binary::BinDecodable;

use super::*;

/// A resolver with all that can be said of one.
pub(crate) fn resolver(name: &str) -> Resolver {
    Resolver {
        name: name.parse().unwrap(),
        priority: 1,
        addresses: vec!["2001:db8:1::53".parse().unwrap()],
        alpn: vec!["dot".to_owned(), "h2".to_owned()],
        port: Some(8443),
        dohpath: Some("/q{?dns}".to_owned()),
        lifetime: None,
    }
}

/// The octets as RFC 9463 section 4.1 and RFC 9460 section 2.2 draw them.
#[test]
fn octets_are_those_of_the_rfcs() {
    let expected = [
        &b"\x00\x01\x00\x0d\x03dns\x07example\x00\x00\x10"[..],
        b"\x20\x01\x0d\xb8\x00\x01\0\0\0\0\0\0\0\0\x00\x53",
        b"\x00\x01\x00\x07\x03dot\x02h2",
        b"\x00\x03\x00\x02\x20\xfb",
        b"\x00\x07\x00\x08/q{?dns}",
    ]
    .concat();
    assert_eq!(resolver("dns.example.").dhcpv6(), expected);
    let alone = Resolver { addresses: Vec::new(), ..resolver("dns.example.") };
    assert_eq!(alone.dhcpv6(), b"\x00\x01\x00\x0d\x03dns\x07example\x00");
    assert!(alone.params().is_empty());
    // A template without HTTP says nothing, and the usual port is not told.
    let dot = Resolver { alpn: vec!["dot".to_owned()], port: None, ..resolver("dns.example.") };
    assert_eq!(dot.params(), b"\x00\x01\x00\x04\x03dot");
}

/// Another program's reader of service parameters finds what was meant.
#[test]
fn service_parameters_are_read_by_a_dns_library() {
    let params = resolver("dns.example.").params();
    let length = (3 + params.len()) as u16;
    // A record of the root: SVCB, IN, a lifetime; priority 1, and the root as its target.
    let front = [&b"\0\x00\x40\x00\x01\0\0\0\x3c"[..], &length.to_be_bytes(), b"\x00\x01\x00"];
    let record = [&front.concat()[..], &params].concat();
    let RData::SVCB(svcb) = Record::from_bytes(&record).unwrap().data else { panic!("no SVCB") };
    let shown = svcb.to_string();
    assert!(shown.contains("dot") && shown.contains("h2") && shown.contains("8443"), "{shown}");
    assert_eq!(svcb.svc_params.len(), 3, "{shown}");
}

#[test]
fn what_can_not_be_told() {
    let good = || resolver("dns.example.");
    assert!(good().is_possible());
    assert!(Resolver { addresses: Vec::new(), alpn: Vec::new(), ..good() }.is_possible());
    for wrong in [
        Resolver { name: Name::root(), ..good() },
        Resolver { priority: 0, ..good() },
        Resolver { addresses: vec!["ff02::1".parse().unwrap()], ..good() },
        Resolver { addresses: vec![Ipv6Addr::LOCALHOST], ..good() },
        Resolver { addresses: vec!["2001:db8::1".parse().unwrap(); 17], ..good() },
        Resolver { alpn: Vec::new(), ..good() },
        Resolver { dohpath: None, ..good() },
        Resolver { dohpath: Some("/".repeat(256)), ..good() },
    ] {
        assert!(!wrong.is_possible(), "{wrong:?}");
    }
}
