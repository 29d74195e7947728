use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv6Addr;
use core::time::Duration;

use super::*;
use crate::Identifications;
use crate::nat64::{Heap, Pool, Range, Settings, Sizes};
use crate::packet::{HEADROOM, Offload};

/// A datagram of a host to 198.51.100.1.
fn datagram(host: Ipv6Addr) -> [u8; 48] {
    let mut octets = [0u8; 48];
    octets[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, 8, 17, 64]);
    octets[8..24].copy_from_slice(&host.octets());
    octets[24..40]
        .copy_from_slice(&[0x20, 1, 0xd, 0xb8, 0, 0x64, 0, 0, 0, 0, 0, 0, 198, 51, 100, 1]);
    octets[40..].copy_from_slice(&[0x9c, 0x40, 0, 53, 0, 8, 1, 1]);
    octets
}

/// RFC 6864 section 4.1, for which hosts' addresses and protocol count and queues don't.
#[test]
fn queues_do_not_repeat_each_others_identifications() {
    let config = Config {
        pool6: vec!["2001:db8:64::/96".parse().unwrap()],
        ipv4_translatable: true,
        ..Config::default()
    };
    let translator = Translator::new(config).unwrap();
    let identifications = |secret: u64, host: u8, queues: &[u16]| {
        let shared = Arc::new(Identifications::new(secret));
        let state = |first: &u16| State::new(*first).with_identifications(Arc::clone(&shared));
        let mut states: Vec<State> = queues.iter().map(state).collect();
        let mut found = Vec::new();
        for number in 0..200 {
            let host =
                Ipv6Addr::new(0x2001, 0xdb8, 0x64, 0, 0, 0, 0xcb00, 0x7100 + u16::from(host));
            let mut buffer = [0u8; HEADROOM + 48];
            buffer[HEADROOM..].copy_from_slice(&datagram(host));
            let mut packet = Packet::new(&mut buffer, HEADROOM..HEADROOM + 48, Offload::default());
            let state = &mut states[number % queues.len()];
            let verdict = translator.translate(&mut packet, Duration::ZERO, state, &mut ());
            assert_eq!(verdict, Verdict::Forward);
            let octets = packet.bytes();
            assert_eq!(octets[6] & 0x40, 0, "it may be fragmented");
            found.push(u16::from_be_bytes([octets[4], octets[5]]));
        }
        found
    };
    let found = identifications(7, 1, &[0, 0, 100]);
    let distinct: BTreeSet<u16> = found.iter().copied().collect();
    assert_eq!(distinct.len(), found.len(), "{found:?}");
    // Where they begin, neither other hosts' nor other runs' tell.
    let begins = [found[0], identifications(7, 2, &[0])[0], identifications(8, 1, &[0])[0]];
    assert_eq!(begins.iter().collect::<BTreeSet<_>>().len(), 3, "{begins:?}");
}

#[test]
fn a_session_that_is_made_is_told_once() {
    let addr = Ipv4Addr::new(203, 0, 113, 1);
    let range = Range { first: addr, last: addr, low: 1024, high: 65_535 };
    let sizes = Sizes { bibs: 8, sessions: 8, subscribers: 8 };
    let pools = vec![Pool { ranges: vec![range], ..Pool::default() }];
    let settings = Settings { pools, sizes, ..Settings::default() };
    let nat64 = Nat64::new(settings, Arc::new(Heap::new(&sizes, [1, 2]))).unwrap();
    let config = Config { pool6: vec!["2001:db8:64::/96".parse().unwrap()], ..Config::default() };
    let stateless = Translator::new(config.clone()).unwrap();
    assert!(!stateless.is_stateful() && stateless.tables().is_none());
    let translator = Translator::nat64(config, Arc::new(nat64)).unwrap();
    assert!(translator.is_stateful() && translator.tables().is_some());

    let octets = datagram("2001:db8::1".parse().unwrap());
    let mut state = State::new(1);
    for made in [true, false] {
        let mut buffer = [0u8; HEADROOM + 48];
        buffer[HEADROOM..].copy_from_slice(&octets);
        let mut packet = Packet::new(&mut buffer, HEADROOM..HEADROOM + 48, Offload::default());
        let now = Duration::from_secs(1000);
        assert_eq!(translator.translate(&mut packet, now, &mut state, &mut ()), Verdict::Forward);
        assert_eq!(state.take_made(), made);
        assert!(!state.take_made());
    }
}

#[test]
fn identifications_of_fragments_begin_where_they_are_told_to() {
    let mut state = State::new(1).with_fragments_from(u32::MAX - 1);
    assert_eq!([2, 3, 1].map(|packets| state.next_fragment(packets)), [u32::MAX - 1, 0, 3]);
}
