//! Floods of what programs leave to the user engine. Needs root.

use std::net::Ipv4Addr;
use std::sync::Arc;

use fordway_bpf::{Loaded, Outcome, PassReason, Program, StateMaps, Stateful, TestOptions, Totals};
use fordway_testhost::is_root;
use fordway_testkit::packet::PacketSpec;
use fordway_xlat::nat64::{Pool, Range, Settings, Sizes};
use fordway_xlat::{Config, DropReason};

/// Packets of a flood.
const FLOOD: u32 = 5000;

/// A translator that stores unsolicited SYNs, and leaves so many packets of one reason per second and processor.
fn gateway(pass_rate: Option<u32>) -> Loaded {
    let address = Ipv4Addr::new(192, 0, 2, 1);
    let range = Range { first: address, last: address, low: 1024, high: 65_535 };
    let sizes = Sizes { bibs: 10, sessions: 10, subscribers: 10 };
    let settings = Settings {
        pools: vec![Pool { ranges: vec![range], ..Pool::default() }],
        accept_v4_syn: true,
        sizes,
        ..Settings::default()
    };
    let config = Config { pool6: vec!["2001:db8:64::/96".parse().unwrap()], ..Config::default() };
    let maps = Arc::new(StateMaps::make(&sizes, [3, 5]).unwrap());
    let stateful = Some(Stateful { settings, maps, gates: None });
    let options = TestOptions { pass_rate, stateful, keep_order: true, ..TestOptions::default() };
    Loaded::load(&config, &[Program::Interface], &options).unwrap()
}

/// The Ethernet frame of a described packet.
fn frame(description: &str) -> Vec<u8> {
    let spec: PacketSpec = toml::from_str(description).unwrap();
    let packet = spec.build().unwrap().bytes;
    let kind: [u8; 2] = if packet[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xdd] };
    [&[0; 12], &kind[..], &packet].concat()
}

fn syn() -> Vec<u8> {
    frame(
        "v4 = { src = \"203.0.113.5\", dst = \"192.0.2.1\" }\n\
         tcp = { sport = 1234, dport = 4096, flags = \"S\" }",
    )
}

/// Runs the program on one frame again and again.
fn flood(gateway: &mut Loaded, frame: &[u8]) -> Totals {
    gateway.run(Program::Interface, frame, 0, FLOOD).unwrap();
    gateway.totals().unwrap()
}

#[test]
fn a_flood_of_one_reason_is_cut_and_the_others_are_left() {
    if !is_root() {
        return;
    }
    let mut gateway = gateway(Some(1));
    let totals = flood(&mut gateway, &syn());
    let (left, dropped) =
        (totals.passed_on(PassReason::Session), totals.drops(DropReason::PassRate));
    assert_eq!(left + dropped, u64::from(FLOOD), "{totals:?}");
    assert!(left > 0 && dropped > 0, "{left} were left, {dropped} dropped");

    let fragment = frame(
        "v4 = { src = \"203.0.113.5\", dst = \"192.0.2.1\", mf = true }\n\
         udp = { sport = 53, dport = 4096 }\npayload = 64",
    );
    let error = frame(
        "v4 = { src = \"203.0.113.5\", dst = \"192.0.2.1\" }\n\
         icmp = { type = 3, code = 4 }\npayload = 64",
    );
    for (frame, reason) in
        [(fragment, PassReason::Nat64Fragment), (error, PassReason::Nat64IcmpError)]
    {
        let run = gateway.run(Program::Interface, &frame, 0, 1).unwrap();
        assert_eq!(run.outcome, Some(Outcome::PassedOn(reason)));
    }

    // Hosts behind the translator have quotas instead.
    let first = frame(
        "v6 = { src = \"2001:db8:1::1\", dst = \"2001:db8:64::203.0.113.5\" }\n\
         udp = { sport = 4096, dport = 53 }",
    );
    let totals = flood(&mut gateway, &first);
    assert_eq!(totals.passed_on(PassReason::Subscriber), u64::from(FLOOD));
    assert_eq!(totals.drops(DropReason::PassRate), dropped);
}

/// What would leave in pieces, and what follows it, is nobody's without a session.
#[test]
fn what_has_no_session_is_not_left_for_its_length() {
    if !is_root() {
        return;
    }
    let datagram = |len: usize| {
        frame(&format!(
            "v4 = {{ src = \"203.0.113.5\", dst = \"192.0.2.1\", df = false }}\n\
             udp = {{ sport = 1234, dport = 4096 }}\npayload = {len}"
        ))
    };
    let mut gateway = gateway(Some(1));
    for len in [1300, 0] {
        let totals = flood(&mut gateway, &datagram(len));
        assert_eq!(totals.passed_on(PassReason::NeedsFragments), 0);
    }
    let totals = gateway.totals().unwrap();
    assert_eq!(totals.drops(DropReason::NoBib), u64::from(2 * FLOOD));
}

#[test]
fn without_a_rate_all_is_left() {
    if !is_root() {
        return;
    }
    let totals = flood(&mut gateway(None), &syn());
    assert_eq!(totals.passed_on(PassReason::Session), u64::from(FLOOD));
    assert_eq!(totals.drops(DropReason::PassRate), 0);
}
