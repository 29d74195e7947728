use alloc::vec::Vec;

use super::*;
use crate::config::Config;
use crate::packet::{Offload, Packet};
use crate::{State, Translator};

/// The steps of a packet through 2001:db8:64::/96.
fn steps(octets: &[u8]) -> Vec<Step> {
    let pool6 = alloc::vec!["2001:db8:64::/96".parse().unwrap()];
    let translator = Translator::new(Config { pool6, ..Config::default() }).unwrap();
    let mut buffer = alloc::vec![0; 64 + octets.len()];
    buffer[64..].copy_from_slice(octets);
    let mut packet = Packet::new(&mut buffer, 64..64 + octets.len(), Offload::default());
    let mut steps = Vec::new();
    let now = core::time::Duration::ZERO;
    let verdict = translator.translate(&mut packet, now, &mut State::new(0), &mut steps);
    assert_eq!(verdict, Verdict::Forward);
    steps
}

/// Whether the steps say that options, or extension headers, were left out, and how many octets.
fn left_out(octets: &[u8]) -> Option<Step> {
    let is = |step: &Step| matches!(step, Step::OptionsIgnored(_) | Step::ExtensionsSkipped(_));
    let mut found = steps(octets).into_iter().filter(is);
    let first = found.next();
    assert_eq!(found.next(), None);
    first
}

#[test]
fn what_is_left_out_is_told_with_its_length() {
    // RFC 791: protocol 253 from 192.0.2.1 to 192.0.2.2.
    let v4 = |words: u8| {
        let len = usize::from(words) * 4;
        let mut octets = alloc::vec![1u8; len];
        octets[..20].copy_from_slice(&[
            0x40 | words,
            0,
            0,
            len as u8,
            0,
            0,
            0,
            0,
            64,
            253,
            0,
            0,
            192,
            0,
            2,
            1,
            192,
            0,
            2,
            2,
        ]);
        let checksum = fordway_wire::checksum::Sum::ZERO.add_bytes(&octets).finish();
        octets[10..12].copy_from_slice(&checksum.to_be_bytes());
        octets
    };
    assert_eq!(left_out(&v4(5)), None);
    assert_eq!(left_out(&v4(7)), Some(Step::OptionsIgnored(8)));

    // RFC 8200: the same hosts, Destination Options in front.
    let v6 = |extensions: usize| {
        let mut octets = alloc::vec![0u8; 40];
        octets[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, extensions as u8 * 8, 253, 64]);
        for (at, last) in [(8, 1), (24, 2)] {
            let addr = [0x20, 1, 0xd, 0xb8, 0, 0x64, 0, 0, 0, 0, 0, 0, 192, 0, 2, last];
            octets[at..at + 16].copy_from_slice(&addr);
        }
        for left in (0..extensions).rev() {
            octets.extend([if left > 0 { 60 } else { 253 }, 0, 1, 4, 0, 0, 0, 0]);
        }
        if extensions > 0 {
            octets[6] = 60;
        }
        octets
    };
    assert_eq!(left_out(&v6(0)), None);
    assert_eq!(left_out(&v6(2)), Some(Step::ExtensionsSkipped(16)));
}

#[test]
fn steps_name_the_section_that_demands_them() {
    for (step, section) in [
        (Step::Direction(Direction::V4ToV6), "RFC 7915 section 4"),
        (Step::Direction(Direction::V6ToV4), "RFC 7915 section 5"),
        (Step::MssClamped { from: 2, to: 1 }, "RFC 9293 section 3.7.1"),
        (Step::HairpinPool4, "RFC 6146 section 3.8"),
        (Step::Verdict(Verdict::Forward), ""),
    ] {
        assert_eq!(step.section(), section);
    }
    for (via, section) in [
        (Via::IcmpSource, "RFC 6791 section 3"),
        (Via::Bib, "RFC 6146 section 3.6"),
        (Via::Dynamic4, "RFC 7915 section 6"),
    ] {
        let addr = core::net::Ipv4Addr::new(192, 0, 2, 1);
        let to = Mapped { addr, via };
        let v6 = core::net::Ipv6Addr::LOCALHOST;
        assert_eq!(Step::SourceV6(v6, to).section(), section);
        assert_eq!(Step::DestinationV6(v6, to).section(), section);
    }
}

#[test]
fn what_is_not_sent_is_told_with_the_section_that_says_so() {
    let section = |why| Step::Suppressed(why).section();
    assert_eq!(section(Suppressed::Forbidden), "RFC 1122 section 3.2.2 and RFC 4443 section 2.4");
    for why in [Suppressed::Off, Suppressed::RateLimit, Suppressed::NoSource] {
        assert_eq!(section(why), "RFC 7915 sections 4.4 and 5.4", "{why:?}");
    }
}
