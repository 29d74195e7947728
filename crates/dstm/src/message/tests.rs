use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use fordway_softwire::{Binding, PortSet};

fn key() -> Key {
    Key::from_hex("000102030405060708090a0b0c0d0e0f").unwrap()
}

fn ports() -> impl Strategy<Value = Option<PortSet>> {
    let set = (0u8..=15, 1u8..=16, any::<u16>())
        .prop_filter_map("no port set", |(a, k, psid)| PortSet::new(a, k, psid).ok());
    option::of(set)
}

fn binding() -> impl Strategy<Value = Binding> {
    let addresses = (any::<Ipv4Addr>(), ports(), any::<Ipv6Addr>(), any::<Ipv6Addr>());
    addresses.prop_map(|(v4, ports, remote, local)| Binding { v4, ports, remote, local })
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (any::<u32>(), binding()).prop_map(|(lifetime, it)| Change::Bind(lifetime, it)),
        (any::<Ipv4Addr>(), ports()).prop_map(|(v4, ports)| Change::Unbind(v4, ports)),
    ]
}

fn id() -> impl Strategy<Value = Option<ClientId>> {
    option::of("[!-~]{1,64}".prop_map(|name| ClientId::new(&name).unwrap()))
}

fn reasons() -> impl Strategy<Value = Reason> {
    prop_oneof![
        Just(Reason::Exhausted),
        Just(Reason::NoLease),
        Just(Reason::Stale),
        Just(Reason::SharedOnly),
        Just(Reason::Limit),
        Just(Reason::Trouble),
        Just(Reason::Tunnel),
    ]
}

fn body() -> impl Strategy<Value = Body> {
    let cookie = || option::of(any::<[u8; COOKIE]>());
    prop_oneof![
        (
            id(),
            cookie(),
            any::<Option<Ipv4Addr>>(),
            any::<bool>(),
            any::<u32>(),
            any::<Option<Ipv6Addr>>()
        )
            .prop_map(|(id, cookie, v4, sharing, lifetime, tunnel)| Body::Request {
                id,
                cookie,
                v4,
                sharing,
                lifetime,
                tunnel
            }),
        any::<[u8; COOKIE]>().prop_map(|cookie| Body::Offer { cookie }),
        (any::<Ipv4Addr>(), ports(), any::<u32>(), any::<Ipv6Addr>())
            .prop_map(|(v4, ports, lifetime, tep)| Body::Ack { v4, ports, lifetime, tep }),
        (id(), cookie(), any::<Ipv4Addr>(), ports(), any::<u32>(), any::<Option<Ipv6Addr>>())
            .prop_map(|(id, cookie, v4, ports, lifetime, tunnel)| Body::Renew {
                id,
                cookie,
                v4,
                ports,
                lifetime,
                tunnel
            }),
        (id(), cookie(), any::<Ipv4Addr>(), ports())
            .prop_map(|(id, cookie, v4, ports)| Body::Release { id, cookie, v4, ports }),
        (reasons(), any::<Option<u64>>(), any::<u32>())
            .prop_map(|(reason, expected, retry)| Body::Refuse { reason, expected, retry }),
        Just(Body::Hello),
        (any::<u64>(), any::<u64>()).prop_map(|(nonce, session)| Body::Welcome { nonce, session }),
        (any::<u64>(), any::<u64>(), any::<u64>(), any::<bool>(), vec(change(), 0..=24)).prop_map(
            |(nonce, session, position, whole, changes)| Body::Push {
                nonce,
                session,
                position,
                whole,
                changes
            }
        ),
        (any::<u64>(), any::<u64>())
            .prop_map(|(session, position)| Body::Done { session, position }),
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read(transaction: u64, number: u64, body in body()) {
        let message = Message { transaction, number, body };
        let octets = message.seal(&key());
        prop_assert!(octets.len() <= LONGEST, "{} octets", octets.len());
        prop_assert_eq!(Message::parse(&octets), Ok(message));
        prop_assert!(key().has_sealed(&octets));
    }

    #[test]
    fn nothing_can_be_changed(body in body(), at: prop::sample::Index, other in 1u8..) {
        let message = Message { transaction: 1, number: 2, body };
        let mut octets = message.seal(&key());
        let at = at.index(octets.len());
        octets[at] ^= other;
        prop_assert!(Message::parse(&octets).is_err() || !key().has_sealed(&octets));
    }
}

#[test]
fn the_longest_push_fits() {
    let binding = Binding {
        v4: [192, 0, 2, 1].into(),
        ports: PortSet::new(0, 4, 1).ok(),
        remote: Ipv6Addr::LOCALHOST,
        local: Ipv6Addr::LOCALHOST,
    };
    let changes = vec![Change::Bind(1, binding); Body::MOST_CHANGES + 1];
    let body = Body::Push { nonce: 1, session: 2, position: 3, whole: true, changes };
    let octets = Message { transaction: 0, number: 0, body }.seal(&key());
    assert!(octets.len() <= LONGEST);
    let Ok(Message { body: Body::Push { changes, .. }, .. }) = Message::parse(&octets) else {
        panic!("it was written");
    };
    assert_eq!(changes.len(), Body::MOST_CHANGES);
}

#[test]
fn another_key_has_not_sealed_it() {
    let octets = Message { transaction: 1, number: 1, body: Body::Hello }.seal(&key());
    let other = Key::from_hex("ffffffffffffffffffffffffffffffff").unwrap();
    assert!(!other.has_sealed(&octets) && !other.has_sealed(&octets[..40]));
}

#[test]
fn keys_have_enough_digits() {
    for wrong in ["", "00", &"0".repeat(31), &"0".repeat(33), &"0".repeat(130), &"g".repeat(32)] {
        assert!(Key::from_hex(wrong).is_err(), "{wrong}");
    }
    assert!(Key::from_hex(&format!("{}\n", "0Af9".repeat(8))).is_ok());
}

/// Octets around `options`, with an authenticator that nobody looks at.
fn message(kind: u8, options: &[u8]) -> Vec<u8> {
    let mut octets = b"DSTM".to_vec();
    let len = HEADER + options.len() + AUTHENTICATOR;
    octets.extend([1, kind, (len >> 8) as u8, len as u8]);
    octets.extend([0; 16]);
    octets.extend(options);
    octets.extend([0, 32]);
    octets.extend([0; 32]);
    octets
}

#[test]
fn options_that_can_not_be() {
    let wrong = |kind, options: &[u8]| Message::parse(&message(kind, options)).unwrap_err();
    assert_eq!(wrong(1, &[]), Malformed::Missing(5));
    assert_eq!(wrong(1, &[5, 4, 0, 0, 0, 1, 5, 4, 0, 0, 0, 1]), Malformed::Option(5));
    assert_eq!(wrong(1, &[5, 3, 0, 0, 0]), Malformed::Option(5));
    assert_eq!(wrong(1, &[5, 4, 0, 0]), Malformed::Option(5), "cut short");
    assert_eq!(wrong(1, &[5, 4, 0, 0, 0, 0, 9]), Malformed::Length);
    assert_eq!(wrong(1, &[5, 4, 0, 0, 0, 0, 1, 0]), Malformed::Option(1), "an empty name");
    assert_eq!(wrong(1, &[5, 4, 0, 0, 0, 0, 1, 1, b' ']), Malformed::Option(1));
    assert_eq!(wrong(16, &[5, 4, 0, 0, 0, 1]), Malformed::Option(5), "not of this kind");
    assert_eq!(wrong(16, &[99, 0]), Malformed::Option(99), "not known");
    assert_eq!(wrong(7, &[]), Malformed::Kind(7));
    assert!(Message::parse(&message(16, &[200, 1, 7])).is_ok(), "not known, and may be skipped");
    let mut later = message(16, &[]);
    later[4] = 2;
    assert_eq!(Message::parse(&later), Err(Malformed::Version));
    assert_eq!(Message::parse(&[0; 3]), Err(Malformed::Length));
    assert_eq!(Message::parse(&vec![0; LONGEST + 1]), Err(Malformed::Length));
}
