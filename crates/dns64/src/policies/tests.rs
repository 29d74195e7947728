use super::*;

fn policy(prefix: &str) -> Policy {
    Policy { pool6: vec![prefix.parse().unwrap()], ..Policy::default() }
}

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn the_longest_prefix_counts() {
    let policies = Policies::new(
        policy("2001:db8:64::/96"),
        vec![
            (nets(&["2001:db8::/32", "192.0.2.0/24"]), policy("2001:db8:a::/96")),
            (nets(&["2001:db8:5::/48", "192.0.2.128/25"]), policy("2001:db8:b::/96")),
            (nets(&["2001:db8:5::7/128"]), policy("2001:db8:c::/96")),
        ],
    )
    .unwrap();
    for (client, number) in [
        ("2001:2::1", 0),
        ("198.51.100.1", 0),
        ("2001:db8:1::1", 1),
        ("192.0.2.1", 1),
        ("::ffff:192.0.2.1", 1),
        ("2001:db8:5::1", 2),
        ("192.0.2.200", 2),
        ("2001:db8:5::7", 3),
        // The bits of 192.0.2.0 in front of an IPv6 address mean nothing.
        ("c000:200::1", 0),
    ] {
        let (index, policy) = policies.of(client.parse().unwrap());
        assert_eq!(index, number, "{client}");
        assert_eq!(policy, policies.iter().nth(number).unwrap());
    }
}

#[test]
fn everybody_can_be_named() {
    let all = vec![
        (nets(&["::/0"]), policy("2001:db8:a::/96")),
        (nets(&["0.0.0.0/0"]), policy("2001:db8:b::/96")),
    ];
    let policies = Policies::new(Policy::default(), all).unwrap();
    assert_eq!(policies.of("2001:db8::1".parse().unwrap()).0, 1);
    assert_eq!(policies.of("192.0.2.1".parse().unwrap()).0, 2);
    assert_eq!(Policies::default().of("192.0.2.1".parse().unwrap()).0, 0);
}

#[test]
fn agrees_with_the_naive_search() {
    let mut seed = 1_u64;
    let mut draw = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for _ in 0..200 {
        let mut by_client = Vec::new();
        for _ in 0..draw(12) {
            let bits = u128::from(draw(8)) << 125 | u128::from(draw(4)) << 64;
            let len = [0, 1, 2, 3, 64, 65, 128][draw(7) as usize];
            let net = IpNet::new(IpAddr::V6(Ipv6Addr::from_bits(bits)), len).unwrap().trunc();
            if !by_client.iter().any(|(nets, _): &(Vec<IpNet>, Policy)| nets.contains(&net)) {
                by_client.push((vec![net], Policy::default()));
            }
        }
        let policies = Policies::new(Policy::default(), by_client.clone()).unwrap();
        for _ in 0..20 {
            let client =
                Ipv6Addr::from_bits(u128::from(draw(8)) << 125 | u128::from(draw(4)) << 64);
            let client = IpAddr::V6(client);
            let naive = by_client
                .iter()
                .enumerate()
                .filter(|(_, (nets, _))| nets[0].contains(&client))
                .max_by_key(|(_, (nets, _))| nets[0].prefix_len())
                .map_or(0, |(index, _)| index + 1);
            assert_eq!(policies.of(client).0, naive, "{client} in {by_client:?}");
        }
    }
}

#[test]
fn one_network_has_one_policy() {
    let twice = vec![
        (nets(&["2001:db8:5::1/48"]), Policy::default()),
        (nets(&["2001:db8:5::2/48"]), Policy::default()),
    ];
    let error = Policies::new(Policy::default(), twice).unwrap_err();
    assert_eq!(error.to_string(), "two policies name the clients 2001:db8:5::/48");
}

#[test]
fn every_policy_knows_the_prefixes_of_the_site() {
    let range = crate::Range {
        v4: "198.51.100.0/24".parse().unwrap(),
        pool6: vec!["2001:db8:c::/96".parse().unwrap()],
    };
    let policies = Policies::new(
        policy("2001:db8:a::/96"),
        vec![(
            nets(&["2001:db8:5::/48"]),
            Policy { ranges: vec![range], ..policy("2001:db8:b::/96") },
        )],
    )
    .unwrap();
    for policy in policies.iter() {
        let site: Vec<String> = policy.site.iter().map(ToString::to_string).collect();
        assert_eq!(site, ["2001:db8:a::/96", "2001:db8:b::/96", "2001:db8:c::/96"]);
    }
}
