//! Softwires: into the tunnel, out of it, errors, pieces (RFC 2473, RFC 7596, RFC 6040).

mod bench;
mod errors;
mod pieces;
mod shared;

use fordway_softwire::{Role, Settings};
use fordway_testkit::checksum::checksum;
use fordway_xlat::{
    ChecksumState, DropReason, HopCount, IcmpErrorKind, Offload, TrafficClass, Verdict,
};

use bench::{Bench, CLIENT, HOST, SERVER, TEP, dropped, packet, reply, v6};

const UDP_IN: &str = r#"
    v4 = { src = "198.51.100.7", dst = "192.0.2.1", tos = 0xb9, ttl = 9, id = 7, df = true }
    udp = { sport = 53, dport = 4000 }
    payload = 5
"#;

const UDP_OUT: &str = r#"
    v4 = { src = "192.0.2.1", dst = "198.51.100.7", ttl = 9 }
    udp = { sport = 4000, dport = 53 }
    payload = 5
"#;

#[test]
fn into_the_tunnel_only_a_header_is_put_in_front() {
    let inner = packet(UDP_IN);
    let outcome = Bench::tep().run(&inner);
    assert_eq!(outcome.verdict, Verdict::Forward);
    let outer = outcome.one();
    assert_eq!(&outer[40..], inner);
    let label = &outer[1..4];
    assert_eq!(
        (outer[0] >> 4, outer[0] & 15, label[0] >> 4),
        (6, 0xb, 9),
        "traffic class is copied"
    );
    assert_ne!(u32::from_be_bytes([0, label[0] & 15, label[1], label[2]]), 0);
    assert_eq!(outer[4..8], [0, inner.len() as u8, 4, 64]);
    assert_eq!((v6(&outer[8..24]), v6(&outer[24..40])), (TEP, CLIENT));
}

#[test]
fn out_of_the_tunnel_only_the_header_goes() {
    let inner = packet(UDP_OUT);
    let mut bench = Bench::tep();
    let outcome = bench.run(&bench::wrapped(CLIENT, TEP, &inner));
    assert_eq!((outcome.verdict, outcome.one()), (Verdict::Forward, &inner[..]));
    // What lies behind Payload Length, and behind Total Length, is none of the packet's.
    let mut padded = bench::wrapped(CLIENT, TEP, &[&inner[..], &[7; 9]].concat());
    padded.extend([0xee; 6]);
    assert_eq!(bench.run(&padded).one(), inner);
}

#[test]
fn extension_headers_and_an_encapsulation_limit_are_stepped_over() {
    let inner = packet(UDP_OUT);
    let mut outer = bench::wrapped(CLIENT, TEP, &[]);
    // Destination Options: Tunnel Encapsulation Limit 4, PadN; then an atomic Fragment Header.
    outer[6] = 60;
    outer.extend([44, 0, 4, 1, 4, 1, 1, 0, 4, 0, 0, 0, 0, 0, 0, 9]);
    outer.extend(&inner);
    let len = (outer.len() - 40) as u16;
    outer[4..6].copy_from_slice(&len.to_be_bytes());
    assert_eq!(Bench::tep().run(&outer).one(), inner);
}

#[test]
fn the_client_sends_all_to_the_end_point() {
    let mut bench = Bench::client();
    let inner = packet(UDP_OUT);
    let outcome = bench.run(&inner);
    assert_eq!(outcome.verdict, Verdict::Forward);
    assert_eq!((v6(&outcome.one()[8..24]), v6(&outcome.one()[24..40])), (CLIENT, TEP));
    let back = packet(UDP_IN);
    assert_eq!(bench.run(&bench::wrapped(TEP, CLIENT, &back)).one(), back);
}

#[test]
fn a_forged_source_is_dropped_and_told() {
    let mut bench = Bench::tep();
    let inner = packet(UDP_OUT);
    let foreign = packet(&UDP_OUT.replace("192.0.2.1", "192.0.2.77"));
    // Another client's address; another's tunnel; no binding at all; the wrong end point.
    for (src, dst, inner) in [
        (CLIENT, TEP, &foreign),
        ("2001:db8:1::77".parse().unwrap(), TEP, &inner),
        (CLIENT, "2001:db8:2::77".parse().unwrap(), &inner),
    ] {
        let tunnelled = bench::wrapped(src, dst, inner);
        let outcome = bench.run(&tunnelled);
        let kind = IcmpErrorKind::SourcePolicy;
        assert_eq!(outcome.verdict, reply(kind, DropReason::SoftwireSource));
        let error = outcome.one();
        assert_eq!((v6(&error[8..24]), v6(&error[24..40])), (dst, src));
        assert_eq!((error[6], error[40], error[41]), (58, 1, 5));
        assert_eq!(&error[48..], tunnelled);
        assert!(bench::icmpv6_is_right(error));
    }
}

#[test]
fn a_client_takes_only_what_is_its_own() {
    let mut bench = Bench::client();
    let inner = packet(UDP_IN);
    let foreign = packet(&UDP_IN.replace("192.0.2.1", "192.0.2.77"));
    let other = "2001:db8:2::77".parse().unwrap();
    for (src, dst, inner) in
        [(other, CLIENT, &inner), (TEP, CLIENT, &foreign), (TEP, other, &inner)]
    {
        let outcome = bench.run(&bench::wrapped(src, dst, inner));
        assert_eq!(outcome.verdict, dropped(DropReason::SoftwireSource));
    }
    // And lets nobody send with an address that is not its own.
    let foreign = packet(&UDP_OUT.replace("192.0.2.1", "192.0.2.77"));
    let kind = IcmpErrorKind::AdministrativelyProhibited;
    assert_eq!(bench.run(&foreign).verdict, reply(kind, DropReason::SoftwireSource));
}

#[test]
fn a_client_without_a_binding_says_so() {
    let mut bench = Bench::new(Settings { role: Role::Client, ..bench::settings() }, &[]);
    assert_eq!(bench.run(&packet(UDP_OUT)).verdict, dropped(DropReason::SoftwireUnbound));
    let tunnelled = bench::wrapped(TEP, CLIENT, &packet(UDP_IN));
    assert_eq!(bench.run(&tunnelled).verdict, dropped(DropReason::SoftwireUnbound));
}

#[test]
fn nobody_has_this_address() {
    let inner = packet(&UDP_IN.replace("192.0.2.1", "192.0.2.77"));
    let outcome = Bench::tep().run(&inner);
    let kind = IcmpErrorKind::AddressUnreachable;
    assert_eq!(outcome.verdict, reply(kind, DropReason::SoftwireBinding));
    let error = outcome.one();
    assert_eq!((error[9], error[20], error[21]), (1, 3, 1));
    assert_eq!(error[16..20], [198, 51, 100, 7]);
}

#[test]
fn hops_are_counted_where_no_routing_step_does() {
    let settings = Settings { hop_count: HopCount::BOTH, ..bench::settings() };
    let mut bench = Bench::new(settings, &bench::whole());
    let outcome = bench.run(&packet(UDP_IN));
    let inner = &outcome.one()[40..];
    assert_eq!((inner[8], checksum(&inner[..20])), (8, 0));
    let outcome = bench.run(&bench::wrapped(CLIENT, TEP, &packet(UDP_OUT)));
    assert_eq!((outcome.one()[8], checksum(&outcome.one()[..20])), (8, 0));
    let last = packet(&UDP_IN.replace("ttl = 9", "ttl = 1"));
    let kind = IcmpErrorKind::TimeExceeded;
    assert_eq!(bench.run(&last).verdict, reply(kind, DropReason::HopLimitExceeded));
    let last = packet(&UDP_OUT.replace("ttl = 9", "ttl = 1"));
    let verdict = bench.run(&bench::wrapped(CLIENT, TEP, &last)).verdict;
    assert_eq!(verdict, dropped(DropReason::HopLimitExceeded));
}

#[test]
fn congestion_marks_come_out_of_the_tunnel() {
    for (inside, around, expected) in [
        (2, 3, Some(3)),
        (2, 1, Some(1)),
        (1, 2, Some(1)),
        (0, 2, Some(0)),
        (0, 3, None),
        (3, 0, Some(3)),
    ] {
        let inner = packet(&UDP_OUT.replace("ttl = 9", &format!("tos = {}", 0xb8 | inside)));
        let mut outer = bench::wrapped(CLIENT, TEP, &inner);
        outer[1] |= around << 4;
        let outcome = Bench::tep().run(&outer);
        let Some(expected) = expected else {
            assert_eq!(outcome.verdict, dropped(DropReason::SoftwireEcn));
            continue;
        };
        let inner = outcome.one();
        assert_eq!((inner[1], checksum(&inner[..20])), (0xb8 | expected, 0));
    }
}

#[test]
fn a_fixed_traffic_class_leaves_the_ecn_field() {
    let settings = Settings { traffic_class: TrafficClass::Set(0xff), ..bench::settings() };
    let outcome = Bench::new(settings, &bench::whole()).run(&packet(UDP_IN));
    let outer = outcome.one();
    assert_eq!((outer[0] & 15) << 4 | outer[1] >> 4, 0xfd);
}

#[test]
fn other_traffic_to_the_tunnels_address_is_refused() {
    let mut bench = Bench::tep();
    let to =
        |text: &str| packet(&format!("v6 = {{ src = \"{CLIENT}\", dst = \"{TEP}\" }}\n{text}"));
    let kind = IcmpErrorKind::PortUnreachable;
    let verdict = bench.run(&to("tcp = { sport = 4000, dport = 22, flags = \"S\" }")).verdict;
    assert_eq!(verdict, reply(kind, DropReason::Protocol));
    let verdict = bench.run(&to("icmp = { type = 128, id = 1 }")).verdict;
    assert_eq!(verdict, dropped(DropReason::IcmpType));
}

#[test]
fn what_is_malformed_is_dropped_with_its_reason() {
    let mut bench = Bench::tep();
    let inner = packet(UDP_OUT);
    let tunnelled = bench::wrapped(CLIENT, TEP, &inner);
    let with = |at: usize, octet: u8| {
        let mut packet = tunnelled.clone();
        packet[at] = octet;
        packet
    };
    for (packet, reason) in [
        (tunnelled[..39].to_vec(), DropReason::Truncated),
        (tunnelled[..60].to_vec(), DropReason::Truncated),
        (with(5, 30), DropReason::Truncated),
        (with(40, 0x65), DropReason::BadVersion),
        (with(40, 0x44), DropReason::BadHeader),
        (with(40 + 8, 77), DropReason::BadHeaderChecksum),
        (with(0, 0x50), DropReason::BadVersion),
        (vec![], DropReason::Truncated),
        (inner[..19].to_vec(), DropReason::Truncated),
    ] {
        assert_eq!(bench.run(&packet).verdict, dropped(reason), "{packet:02x?}");
    }
    for (dst, reason) in [("127.0.0.1", DropReason::Loopback), ("224.0.0.1", DropReason::Multicast)]
    {
        let inner = packet(&UDP_OUT.replace("198.51.100.7", dst));
        let tunnelled = bench::wrapped(CLIENT, TEP, &inner);
        assert_eq!(bench.run(&tunnelled).verdict, dropped(reason));
    }
}

#[test]
fn a_partial_checksum_is_completed_on_the_way_in_and_moved_on_the_way_out() {
    let inner = packet(UDP_OUT);
    let (partial, offload) = bench::partial(UDP_OUT);
    let outcome = Bench::client().run_with(&partial, offload);
    assert_eq!(outcome.offload.checksum, ChecksumState::Complete);
    assert_eq!(&outcome.one()[40..], inner);
    let ChecksumState::Partial { start, offset } = offload.checksum else { panic!() };
    let moved = ChecksumState::Partial { start: start + 40, offset };
    let tunnelled = bench::wrapped(CLIENT, TEP, &partial);
    let offload_in = Offload { checksum: moved, ..offload };
    let outcome = Bench::tep().run_with(&tunnelled, offload_in);
    assert_eq!((outcome.one(), outcome.offload.checksum), (&partial[..], offload.checksum));
}

#[test]
fn hairpinning_can_be_forbidden() {
    let inner = packet(&UDP_OUT.replace("198.51.100.7", "192.0.2.2"));
    let tunnelled = bench::wrapped(CLIENT, TEP, &inner);
    assert_eq!(Bench::tep().run(&tunnelled).verdict, Verdict::Forward);
    let settings = Settings { hairpin: false, ..bench::settings() };
    let kind = IcmpErrorKind::AdministrativelyProhibited;
    let verdict = Bench::new(settings, &bench::whole()).run(&tunnelled).verdict;
    assert_eq!(verdict, reply(kind, DropReason::SoftwireHairpin));
}

#[test]
fn what_is_none_of_ours_can_pass() {
    let settings = Settings { pass_unmatched: true, ..bench::settings() };
    let mut bench = Bench::new(settings, &bench::whole());
    let inner = packet(&UDP_IN.replace("192.0.2.1", "192.0.2.77"));
    assert_eq!(bench.run(&inner).verdict, Verdict::Pass);
    assert_eq!(bench.run(&bench::wrapped(SERVER, TEP, &inner)).verdict, Verdict::Pass);
    assert_eq!(HOST.to_string(), "192.0.2.1");
}
