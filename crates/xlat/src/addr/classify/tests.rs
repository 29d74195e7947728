use super::*;

/// The networks of the registry, first and last address.
const NON_GLOBAL: [(&str, &str); 14] = [
    ("0.0.0.0", "0.255.255.255"),
    ("10.0.0.0", "10.255.255.255"),
    ("100.64.0.0", "100.127.255.255"),
    ("127.0.0.0", "127.255.255.255"),
    ("169.254.0.0", "169.254.255.255"),
    ("172.16.0.0", "172.31.255.255"),
    ("192.0.0.0", "192.0.0.255"),
    ("192.0.2.0", "192.0.2.255"),
    ("192.88.99.0", "192.88.99.255"),
    ("192.168.0.0", "192.168.255.255"),
    ("198.18.0.0", "198.19.255.255"),
    ("198.51.100.0", "198.51.100.255"),
    ("203.0.113.0", "203.0.113.255"),
    ("224.0.0.0", "255.255.255.255"),
];

#[test]
fn networks_that_are_not_global_end_where_the_registry_says() {
    for (first, last) in NON_GLOBAL {
        let bits = |text: &str| text.parse::<Ipv4Addr>().unwrap().to_bits();
        let global = |bits| is_global_v4(Ipv4Addr::from_bits(bits));
        assert!(!global(bits(first)), "{first}");
        assert!(!global(bits(last)), "{last}");
        if let Some(before) = bits(first).checked_sub(1) {
            assert!(global(before), "before {first}");
        }
        if let Some(behind) = bits(last).checked_add(1) {
            assert!(global(behind), "behind {last}");
        }
    }
    for (text, global) in
        [("192.0.0.8", false), ("192.0.0.9", true), ("192.0.0.10", true), ("192.0.0.11", false)]
    {
        assert_eq!(is_global_v4(text.parse().unwrap()), global, "{text}");
    }
}

#[test]
fn ipv6_addresses_that_are_on_no_wire() {
    for (text, reason) in [
        ("::", Some(DropReason::Martian)),
        ("::1", Some(DropReason::Loopback)),
        ("::2", Some(DropReason::Martian)),
        ("::192.0.2.1", Some(DropReason::Martian)),
        ("::ffff:192.0.2.1", Some(DropReason::Martian)),
        ("::fffe:192.0.2.1", None),
        ("::1:0:0", None),
        ("0:1::", None),
        ("64:ff9b::192.0.2.1", None),
        ("2001:db8::1", None),
        ("fe7f::1", None),
        ("fe80::1", Some(DropReason::LinkLocal)),
        ("febf::1", Some(DropReason::LinkLocal)),
        ("fec0::1", None),
        ("feff::1", None),
        ("ff00::", Some(DropReason::Multicast)),
        ("ffff::1", Some(DropReason::Multicast)),
    ] {
        assert_eq!(illegal_v6(text.parse().unwrap()), reason, "{text}");
    }
}
