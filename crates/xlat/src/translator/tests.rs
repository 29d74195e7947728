use alloc::sync::Arc;
use alloc::vec;
use core::time::Duration;

use super::*;
use crate::nat64::{Heap, Pool, Range, Settings, Sizes};
use crate::packet::{HEADROOM, Offload};

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

    // A datagram from 2001:db8::1 to 198.51.100.1.
    let mut octets = [0u8; 48];
    octets[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, 8, 17, 64]);
    octets[8..24].copy_from_slice(&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    octets[24..40]
        .copy_from_slice(&[0x20, 1, 0xd, 0xb8, 0, 0x64, 0, 0, 0, 0, 0, 0, 198, 51, 100, 1]);
    octets[40..].copy_from_slice(&[0x9c, 0x40, 0, 53, 0, 8, 1, 1]);
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
