use super::*;
use alloc::string::ToString;
use alloc::vec;
use proptest::prelude::*;

fn eam(v4: &str, v6: &str) -> Eam {
    Eam::new(v4.parse().unwrap(), v6.parse().unwrap()).unwrap()
}

/// RFC 7757 section 3.2, figure 1.
fn figure_1() -> EamTable {
    EamTable::new([
        eam("192.0.2.1/32", "2001:db8:aaaa::/128"),
        eam("192.0.2.2/32", "2001:db8:bbbb::b/128"),
        eam("192.0.2.16/28", "2001:db8:cccc::/124"),
        eam("192.0.2.128/26", "2001:db8:dddd::/64"),
        eam("192.0.2.192/29", "2001:db8:eeee:8::/62"),
        eam("192.0.2.224/31", "64:ff9b::/127"),
    ])
    .unwrap()
}

#[test]
fn rfc7757_appendix_b() {
    let table = figure_1();
    for (v4, v6) in [
        ("192.0.2.1", "2001:db8:aaaa::"),
        ("192.0.2.2", "2001:db8:bbbb::b"),
        ("192.0.2.16", "2001:db8:cccc::"),
        ("192.0.2.24", "2001:db8:cccc::8"),
        ("192.0.2.31", "2001:db8:cccc::f"),
        ("192.0.2.128", "2001:db8:dddd::"),
        ("192.0.2.152", "2001:db8:dddd:0:6000::"),
        ("192.0.2.183", "2001:db8:dddd:0:dc00::"),
        ("192.0.2.191", "2001:db8:dddd:0:fc00::"),
        ("192.0.2.192", "2001:db8:eeee:8::"),
        ("192.0.2.195", "2001:db8:eeee:9:8000::"),
        ("192.0.2.198", "2001:db8:eeee:b::"),
        ("192.0.2.199", "2001:db8:eeee:b:8000::"),
        ("192.0.2.225", "64:ff9b::1"),
    ] {
        let (v4, v6): (Ipv4Addr, Ipv6Addr) = (v4.parse().unwrap(), v6.parse().unwrap());
        assert_eq!(table.v4_to_v6(v4).unwrap().0, v6);
        assert_eq!(table.v6_to_v4(v6).unwrap().0, v4);
    }
    assert!(table.v4_to_v6("192.0.2.3".parse().unwrap()).is_none());
    assert!(table.v6_to_v4("2001:db8:bbbb::c".parse().unwrap()).is_none());
}

#[test]
fn rfc7757_section_5_overlap_is_allowed_and_reported() {
    let ivi = eam("0.0.0.0/0", "2001:db8:ff00::/40");
    let exception = eam("198.51.100.64/32", "2001:db8::abcd/128");
    let table = EamTable::new([ivi, exception]).unwrap();
    let v4 = "198.51.100.64".parse().unwrap();
    assert_eq!(table.v4_to_v6(v4).unwrap().1, exception);
    let v6 = "2001:db8:ffc6:3364:4000::".parse().unwrap();
    assert_eq!(table.v6_to_v4(v6).unwrap().0, v4);
    assert_eq!(table.overlaps(), vec![Overlap { outer: ivi, inner: exception }]);
}

#[test]
fn an_overlap_is_with_the_longest_shorter_prefix() {
    let wide = eam("198.51.100.0/26", "2001:db8::/32");
    let middle = eam("198.51.100.64/26", "2001:db8:1::/48");
    let narrow = eam("198.51.100.128/26", "2001:db8:1:2::/64");
    let apart = eam("198.51.100.192/26", "2001:db9::/48");
    let table = EamTable::new([narrow, wide, apart, middle]).unwrap();
    let overlap = |outer, inner| Overlap { outer, inner };
    assert_eq!(table.overlaps(), vec![overlap(middle, narrow), overlap(wide, middle)]);
    assert_eq!(table.entries(), [narrow, wide, apart, middle]);
}

#[test]
fn mappings_and_their_errors_are_printed_as_they_are_written() {
    let pair = eam("192.0.2.0/24", "2001:db8::/120");
    assert_eq!(pair.v4().to_string(), "192.0.2.0/24");
    assert_eq!(pair.v6().to_string(), "2001:db8::/120");
    assert_eq!(pair.to_string(), "192.0.2.0/24 = 2001:db8::/120");
    let error = Eam::new("192.0.2.0/24".parse().unwrap(), "2001:db8::/121".parse().unwrap());
    let text = error.unwrap_err().to_string();
    assert!(text.contains("has 8 suffix bits, more than the IPv6 prefix's 7"), "{text}");
}

#[test]
fn rfc7757_section_5_identical_prefixes_are_refused() {
    let first = eam("198.51.100.8/32", "2001:db8::1/128");
    let second = eam("198.51.100.9/32", "2001:db8::1/128");
    assert_eq!(EamTable::new([first, second]).err(), Some(EamError::Duplicate(first, second)));
}

#[test]
fn rfc7757_section_3_2_suffix_lengths() {
    let error = Eam::new("192.0.2.0/24".parse().unwrap(), "2001:db8::/121".parse().unwrap());
    assert!(matches!(error, Err(EamError::Suffix(_))));
    let error = Eam::new("192.0.2.1/24".parse().unwrap(), "2001:db8::/120".parse().unwrap());
    assert!(matches!(error, Err(EamError::HostBits(_))));
}

#[test]
fn prefixes_that_no_packet_may_come_from_are_refused() {
    for (v4, v6) in [
        ("192.0.2.1/32", "ff02::1/128"),
        ("192.0.2.0/24", "ff00::/8"),
        ("192.0.2.1/32", "fe80::1/128"),
        ("192.0.2.1/32", "::1/128"),
        ("192.0.2.0/24", "::ffff:192.0.2.0/120"),
        ("224.0.0.0/4", "2001:db8::/64"),
        ("127.0.0.1/32", "2001:db8::1/128"),
        ("255.255.255.255/32", "2001:db8::1/128"),
    ] {
        let refused = Eam::new(v4.parse().unwrap(), v6.parse().unwrap());
        assert!(matches!(refused, Err(EamError::NotUnicast(_))), "{v4} {v6}");
    }
    // Of these only a part is such.
    for (v4, v6) in [("0.0.0.0/0", "2001:db8:ff00::/40"), ("192.0.2.0/24", "::/0")] {
        eam(v4, v6);
    }
}

fn any_eam() -> impl Strategy<Value = Eam> {
    (any::<u32>(), 0u8..=32, any::<u128>(), 0u8..=128).prop_filter_map("suffix", |(a, l, b, m)| {
        let v4 = Ipv4Net::new(Ipv4Addr::from_bits(a), l).ok()?.trunc();
        let v6 = Ipv6Net::new(Ipv6Addr::from_bits(b), m).ok()?.trunc();
        Eam::new(v4, v6).ok()
    })
}

proptest! {
    #[test]
    fn look_up_is_the_naive_longest_match(
        entries in proptest::collection::vec(any_eam(), 1..12),
        pick in any::<prop::sample::Index>(),
        noise in any::<u32>(),
        keep in 0u8..=32,
    ) {
        let Ok(table) = EamTable::new(entries.clone()) else { return Ok(()) };
        let near = pick.get(&entries).v4().addr().to_bits() ^ (noise & suffix_mask_v4(keep));
        let addr = Ipv4Addr::from_bits(near);
        let naive = entries.iter().filter(|e| e.v4().contains(&addr)).max_by_key(|e| e.v4().prefix_len());
        prop_assert_eq!(table.v4_to_v6(addr).map(|hit| hit.1), naive.copied());
        let Some((v6, used)) = table.v4_to_v6(addr) else { return Ok(()) };
        prop_assert!(used.v6().contains(&v6));
        // One mapping alone is a bijection from IPv4 to IPv6.
        prop_assert_eq!(used.extract(v6), addr);
    }
}
