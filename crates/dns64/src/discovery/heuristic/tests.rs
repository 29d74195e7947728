use proptest::prelude::*;

use super::*;

fn v6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

fn found(addresses: &[&str]) -> Vec<String> {
    let addresses: Vec<_> = addresses.iter().map(|text| v6(text)).collect();
    prefixes(&addresses).iter().map(|candidate| candidate.pool6.to_string()).collect()
}

/// Prefixes of every length (RFC 6052 section 2.4).
const PREFIXES: [&str; 7] = [
    "2001:db8::/32",
    "2001:db8:100::/40",
    "2001:db8:122::/48",
    "2001:db8:122:300::/56",
    "2001:db8:122:344::/64",
    "2001:db8:122:344::/96",
    "64:ff9b::/96",
];

#[test]
fn every_length_is_found_by_either_address() {
    for text in PREFIXES {
        let pool6: Pool6 = text.parse().unwrap();
        let [a, b] = WELL_KNOWN_ADDRESSES.map(|v4| pool6.embed(v4));
        for addresses in [vec![a, b], vec![b, a], vec![a], vec![b]] {
            let expected = [Candidate { pool6, addresses: addresses.clone() }];
            assert_eq!(prefixes(&addresses), expected, "{text}");
        }
    }
}

#[test]
fn several_prefixes_keep_the_order_of_the_answer() {
    for turn in 0..PREFIXES.len() {
        let mut turned = PREFIXES;
        turned.rotate_left(turn);
        let pools: Vec<Pool6> = turned.iter().map(|text| text.parse().unwrap()).collect();
        let [first, second] = WELL_KNOWN_ADDRESSES;
        let addresses: Vec<_> = pools
            .iter()
            .map(|pool6| pool6.embed(first))
            .chain(pools.iter().rev().map(|pool6| pool6.embed(second)))
            .collect();
        let found: Vec<Pool6> = prefixes(&addresses).iter().map(|one| one.pool6).collect();
        assert_eq!(found, pools);
    }
}

#[test]
fn addresses_without_a_well_known_one_are_passed_over() {
    assert_eq!(found(&["2001:db8::1", "2001:db8::c000:2aa", "2001:db8::c000:ac"]), [""; 0]);
    // The portal's address is among them, the prefix is found all the same.
    assert_eq!(found(&["2001:db8:bad::1", "64:ff9b::c000:aa"]), ["64:ff9b::/96"]);
}

#[test]
fn other_places_are_not_standard() {
    // One octet before and behind that of a /96, and at octet 5.
    for text in ["2001:db8::c0:0:aa00", "2001:db8::c0:0:aa", "2001:db8:c0:0:aa00::"] {
        assert_eq!(found(&[text]), [""; 0], "{text}");
    }
}

#[test]
fn the_octet_u_has_to_be_zero() {
    assert_eq!(found(&["2001:db8:c000:aa::"]), ["2001:db8::/32"]);
    assert_eq!(found(&["2001:db8:c000:aa:100::"]), [""; 0]);
    assert_eq!(found(&["2001:db8:1c0::aa:0:0:0"]), ["2001:db8:100::/40"]);
    assert_eq!(found(&["2001:db8:1c0:0:1aa::"]), [""; 0]);
    assert_eq!(found(&["2001:db8:122:344:100:0:c000:aa"]), [""; 0]);
}

#[test]
fn a_suffix_is_ignored_where_there_is_one_place_only() {
    assert_eq!(found(&["2001:db8:c000:aa:0:dead:beef:1"]), ["2001:db8::/32"]);
}

#[test]
fn prefixes_that_none_can_have_are_passed_over() {
    for text in ["::192.0.0.170", "::ffff:192.0.0.170", "fe80::192.0.0.170", "ff0e::192.0.0.170"] {
        assert_eq!(found(&[text]), [""; 0], "{text}");
    }
}

/// RFC 7050 section 3: another instance of the value inside the address; the search is repeated with
/// the other well-known address.
#[test]
fn a_prefix_that_looks_like_a_well_known_address_is_found_by_the_other() {
    let prefix = "2001:db8:c000:aa::/96";
    let [a, b] = ["2001:db8:c000:aa::c000:aa", "2001:db8:c000:aa::c000:ab"];
    assert_eq!(found(&[a, b]), [prefix]);
    assert_eq!(found(&[b, a]), [prefix]);
    // The other alone: nothing stands behind 192.0.0.171, but something behind 192.0.0.170.
    assert_eq!(found(&[b]), [prefix]);
    // The value twice, and no other address to search with.
    assert_eq!(found(&[a]), [""; 0]);
    // Also where the second instance is at no place of RFC 6052.
    assert_eq!(found(&["2001:c0:0:aa00::c000:aa"]), [""; 0]);
    assert_eq!(
        found(&["2001:c0:0:aa00::c000:aa", "2001:c0:0:aa00::c000:ab"]),
        ["2001:c0:0:aa00::/96"]
    );
}

#[test]
fn many_addresses_are_bounded() {
    let pools = (0..1000u32).map(|n| {
        Pool6::new(Ipv6Net::new_assert(
            Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(n) << 64),
            96,
        ))
        .unwrap()
    });
    let addresses: Vec<_> = pools.map(|pool6| pool6.embed(WELL_KNOWN_ADDRESSES[0])).collect();
    assert_eq!(prefixes(&addresses).len(), MOST_PREFIXES);
}

/// The same, said with positions of octets.
fn naive(address: Ipv6Addr) -> Option<(u8, u8)> {
    let octets = address.octets();
    let places: [(u8, [usize; 4]); 6] = [
        (32, [4, 5, 6, 7]),
        (40, [5, 6, 7, 9]),
        (48, [6, 7, 9, 10]),
        (56, [7, 9, 10, 11]),
        (64, [9, 10, 11, 12]),
        (96, [12, 13, 14, 15]),
    ];
    let mut found = None;
    for (len, place) in places {
        for last in [170, 171] {
            if place.map(|at| octets[at]) == [192, 0, 0, last] && octets[8] == 0 {
                assert_eq!(found, None, "drawn addresses have one only");
                found = Some((len, last));
            }
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_prefix_is_found_in_its_two_addresses(bits: u128, len in 0usize..6, swap: bool) {
        let len = [32, 40, 48, 56, 64, 96][len];
        let bits = bits & !(0xff << 56);
        let net = Ipv6Net::new(Ipv6Addr::from_bits(bits), len).unwrap().trunc();
        prop_assume!(Pool6::new(net).is_ok());
        let pool6 = Pool6::new(net).unwrap();
        let mut addresses = WELL_KNOWN_ADDRESSES.map(|v4| pool6.embed(v4)).to_vec();
        if swap {
            addresses.reverse();
        }
        prop_assert_eq!(prefixes(&addresses), [Candidate { pool6, addresses }]);
    }

    /// A prefix of 96 bits that has 192.0.0.170 or .171 somewhere in it.
    #[test]
    fn a_well_known_address_within_the_prefix_does_no_harm(
        bits: u128, at in 0usize..9, last in 170u8..=171, swap: bool,
    ) {
        let mut octets = bits.to_be_bytes();
        octets[8] = 0;
        octets[at..at + 4].copy_from_slice(&[192, 0, 0, last]);
        let net = Ipv6Net::new(Ipv6Addr::from(octets), 96).unwrap().trunc();
        prop_assume!(Pool6::new(net).is_ok());
        let pool6 = Pool6::new(net).unwrap();
        let mut addresses = WELL_KNOWN_ADDRESSES.map(|v4| pool6.embed(v4)).to_vec();
        if swap {
            addresses.reverse();
        }
        let found: Vec<Pool6> = prefixes(&addresses).iter().map(|one| one.pool6).collect();
        prop_assert_eq!(found, [pool6]);
    }

    #[test]
    fn any_address_says_what_its_octets_say(bits: u128, place in 0usize..13, last in 168u8..=173) {
        let mut octets = bits.to_be_bytes();
        octets[8] = 0;
        octets[place..place + 4].copy_from_slice(&[192, 0, 0, last]);
        let address = Ipv6Addr::from(octets);
        let expected = naive(address).and_then(|(len, _)| {
            Pool6::new(Ipv6Net::new(address, len).unwrap().trunc()).ok()
        });
        let found = prefixes(&[address]);
        prop_assert_eq!(found.first().map(|one| one.pool6), expected);
    }

    #[test]
    fn any_addresses_at_all_never_panic(bits: Vec<u128>) {
        let addresses: Vec<_> = bits.into_iter().map(Ipv6Addr::from_bits).collect();
        let _ = prefixes(&addresses);
    }
}
