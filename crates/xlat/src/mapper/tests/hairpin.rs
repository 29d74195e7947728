//! From one host behind the translator to another (RFC 6146 section 3.8).

use super::build::{Check, Kind, Spec, error_v6, verifies};
use super::*;
use crate::{ChecksumState, DropReason, Gso, GsoKind};

/// A's packet to B's external transport address, and what B must get: from A's external one.
fn across(kind: Kind, data: &[u8], check: Check) -> (Vec<u8>, Vec<u8>) {
    let computed = if kind == Kind::UdpZero { Kind::Udp } else { kind };
    let (to, before, after) = if kind.is_icmp() {
        (T2, (IDS.0, 0), (IDS.0, 0))
    } else {
        (T, (PORTS.0, PORTS_B.1), (PORTS.1, PORTS_B.0))
    };
    let sent = Spec { check, ..Spec::new(kind, (a(), embed(to)), before, data) };
    let got = Spec::new(computed, (embed(T), b()), after, data);
    // RFC 7757 section 4.2.2 of the other hairpin, and here alike: one hop.
    (sent.v6(), Spec { check, ttl: 63, ..got }.v6())
}

#[test]
fn packets_of_every_kind_reach_the_other_host() {
    for kind in Kind::ALL {
        for len in [0, 1, 40, 1200] {
            let (before, after) = across(kind, &payload(len), Check::Complete);
            assert!(forwarded(&before) == after, "{kind:?} {len}");
        }
    }
}

#[test]
fn offloads_come_through_both_passes() {
    for (kind, gso) in [(Kind::Tcp, GsoKind::TcpV6), (Kind::Udp, GsoKind::Udp)] {
        let offset = kind.checksum_at() as u16;
        let header_len = 40 + kind.header_len() as u16;
        let gso = Gso { kind: gso, ecn: false, size: 1100, header_len };
        for gso in [Gso::default(), gso] {
            let offload = Offload { checksum: ChecksumState::Partial { start: 40, offset }, gso };
            let len = if gso == Gso::default() { 500 } else { 12_345 };
            let (before, after) = across(kind, &payload(len), Check::Partial);
            let came = translate(&mut fixed(), &before, offload);
            assert_eq!(came.offload, offload);
            assert!(came.forwarded() == after, "{kind:?}");
        }
    }
}

#[test]
fn an_error_of_the_other_host_comes_back() {
    for kind in [Kind::Tcp, Kind::Udp] {
        let (sent, got) = across(kind, &payload(100), Check::Complete);
        for quoted in [48, 60, got.len()] {
            let error = error_v6((1, 4), (b(), embed(T)), &got[..quoted]);
            let octets = forwarded(&error);
            assert!(verifies(&octets));
            let outer = fordway_wire::ipv6::Ipv6Header::parse(&octets).unwrap();
            assert_eq!((outer.src, outer.dst, outer.hop_limit), (embed(T), a(), 63));
            let mut own = sent.clone();
            own[7] = 63;
            assert!(octets[48..] == own[..quoted], "{kind:?} {quoted}");
        }
    }
}

/// What stops in the second pass is IPv4 by then; the answer about it is translated back to the sender.
#[test]
fn what_nobody_waits_for_stops_as_ipv4() {
    let data = payload(10);
    let packet = Spec::new(Kind::Udp, (a(), embed(T)), (PORTS.0, 7), &data).v6();
    let came = translate(&mut fixed(), &packet, Offload::default());
    assert_eq!(came.result.unwrap_err().reason, DropReason::NoBib);
    let ports = (PORTS.1, 7);
    let spec = Spec::new(Kind::Udp, (T, T), ports, &data);
    assert_eq!(came.octets, Spec { ttl: 63, identification: 77, ..spec }.v4());
}

#[test]
fn the_gateways_own_services_are_no_hairpin() {
    let data = payload(10);
    let packet = Spec::new(Kind::Tcp, (a(), embed(T)), (PORTS.0, 22), &data).v6();
    let spec = Spec::new(Kind::Tcp, (T, T), (PORTS.1, 22), &data);
    assert_eq!(forwarded(&packet), Spec { ttl: 63, identification: 77, ..spec }.v4());
}

#[test]
fn hops_are_counted_once() {
    for (hop_limit, arrives) in [(1, false), (2, true)] {
        let (mut packet, _) = across(Kind::Udp, &payload(3), Check::Complete);
        packet[7] = hop_limit;
        let came = translate(&mut fixed(), &packet, Offload::default());
        match came.result {
            Ok(_) => assert!(arrives && came.octets[7] == 1),
            Err(stop) => {
                assert!(!arrives);
                assert_eq!(stop.reason, DropReason::HopLimitExceeded);
                assert_eq!(came.octets, packet);
            }
        }
    }
}
