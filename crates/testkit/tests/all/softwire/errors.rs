//! Errors: those of the core about packets that don't fit, and those out of the tunnel (RFC 2473 section 8).

use std::time::Duration;

use fordway_softwire::{PATH_MTU_LIFETIME, Settings};
use fordway_testkit::checksum::checksum;
use fordway_xlat::{DropReason, IcmpErrorKind, IcmpErrors, Verdict};

use super::bench::{self, Bench, CLIENT, OTHER, TEP, dropped, packet, reply};

const ROUTER: &str = "2001:db8:9::1";

fn inner(len: usize, df: bool) -> Vec<u8> {
    packet(&format!(
        r#"
        v4 = {{ src = "198.51.100.7", dst = "192.0.2.1", df = {df}, id = 7 }}
        udp = {{ sport = 53, dport = 4000 }}
        payload = {}
        "#,
        len - 28
    ))
}

/// An ICMPv6 error of a router in the tunnel about a packet, of which it quotes so much as it may.
fn error(kind: u8, code: u8, rest: &str, quoted: &[u8]) -> Vec<u8> {
    let quoted = &quoted[..quoted.len().min(1280 - 48)];
    let hex: String = quoted.iter().map(|octet| format!("{octet:02x}")).collect();
    packet(&format!(
        r#"
        v6 = {{ src = "{ROUTER}", dst = "{TEP}" }}
        icmp = {{ type = {kind}, code = {code}, {rest} }}
        inner = {{ hex = "{hex}" }}
        "#
    ))
}

#[test]
fn what_does_not_fit_with_df_is_refused_with_the_tunnels_mtu() {
    let mut bench = Bench::tep();
    assert_eq!(bench.run(&inner(1460, true)).one().len(), 1500);
    let outcome = bench.run(&inner(1461, true));
    let kind = IcmpErrorKind::TooBig { mtu: 1460 };
    assert_eq!(outcome.verdict, reply(kind, DropReason::TooBig));
    let told = outcome.one();
    assert_eq!((told[20], told[21], &told[26..28]), (3, 4, &1460u16.to_be_bytes()[..]));
    assert_eq!(
        (told[12..16].to_vec(), &told[16..20]),
        (vec![192, 0, 0, 8], &[198, 51, 100, 7][..])
    );
    assert_eq!((checksum(&told[..20]), checksum(&told[20..])), (0, 0));
}

#[test]
fn a_packet_too_big_lowers_the_mtu_of_its_tunnel_alone() {
    let mut bench = Bench::tep();
    let sent = bench.run(&inner(1460, true)).one().to_vec();
    let outcome = bench.run(&error(2, 0, "mtu = 1400", &sent));
    // The sender is told what fits now, about the packet that it sent.
    assert_eq!(outcome.verdict, Verdict::Forward);
    let told = outcome.one();
    assert_eq!((told[20], told[21], &told[26..28]), (3, 4, &1360u16.to_be_bytes()[..]));
    assert_eq!(told[16..20], [198, 51, 100, 7]);
    assert_eq!((checksum(&told[..20]), checksum(&told[20..])), (0, 0));
    assert_eq!(&told[28..], &inner(1460, true)[..told.len() - 28]);
    // And from now on by the core itself.
    let kind = IcmpErrorKind::TooBig { mtu: 1360 };
    assert_eq!(bench.run(&inner(1361, true)).verdict, reply(kind, DropReason::TooBig));
    assert_eq!(bench.run(&inner(1360, true)).verdict, Verdict::Forward);
    let mut other = inner(1460, true);
    other[19] = 2;
    other[10..12].fill(0);
    let sum = checksum(&other[..20]);
    other[10..12].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(bench.run(&other).verdict, Verdict::Forward, "another tunnel");
    bench.now = PATH_MTU_LIFETIME + Duration::from_secs(2);
    assert_eq!(bench.run(&inner(1460, true)).verdict, Verdict::Forward, "forgotten");
}

#[test]
fn without_df_a_packet_too_big_is_taken_up_in_silence() {
    let mut bench = Bench::tep();
    let sent = bench.run(&inner(1460, false)).one().to_vec();
    assert_eq!(bench.run(&error(2, 0, "mtu = 1400", &sent)).verdict, Verdict::Stored);
    let pieces = bench.run(&inner(1460, false)).packets;
    assert!(pieces.len() == 2 && pieces.iter().all(|piece| piece.len() <= 1400));
    // A router that speaks of a piece of it.
    assert_eq!(bench.run(&error(2, 0, "mtu = 1300", &pieces[0])).verdict, Verdict::Stored);
    assert!(bench.run(&inner(1460, false)).packets.iter().all(|piece| piece.len() <= 1300));
    // Later pieces have nothing of the IPv4 packet.
    let verdict = bench.run(&error(2, 0, "mtu = 1280", &pieces[1])).verdict;
    assert_eq!(verdict, dropped(DropReason::IcmpInner));
}

#[test]
fn the_least_mtu_of_ipv6_is_never_gone_below() {
    let mut bench = Bench::tep();
    let sent = bench.run(&inner(1400, true)).one().to_vec();
    assert_eq!(bench.run(&error(2, 0, "mtu = 68", &sent)).verdict, Verdict::Forward);
    assert_eq!(bench.run(&inner(1240, true)).verdict, Verdict::Forward);
    let kind = IcmpErrorKind::TooBig { mtu: 1240 };
    assert_eq!(bench.run(&inner(1241, true)).verdict, reply(kind, DropReason::TooBig));
}

#[test]
fn whatever_is_wrong_with_the_tunnel_is_an_unreachable_host() {
    for (kind, code) in [(1, 0), (1, 1), (1, 3), (1, 4), (1, 5), (3, 0)] {
        let mut bench = Bench::tep();
        let sent = bench.run(&inner(100, true)).one().to_vec();
        let outcome = bench.run(&error(kind, code, "", &sent));
        assert_eq!(outcome.verdict, Verdict::Forward, "type {kind} code {code}");
        let told = outcome.one();
        assert_eq!((told[20], told[21]), (3, 1));
        assert_eq!(told[28..], inner(100, true));
        assert_eq!((checksum(&told[..20]), checksum(&told[20..])), (0, 0));
    }
}

#[test]
fn the_client_hears_that_the_end_point_does_not_know_it() {
    let mut bench = Bench::client();
    let text = r#"
        v4 = { src = "192.0.2.1", dst = "198.51.100.7" }
        udp = { sport = 4000, dport = 53 }
    "#;
    let sent = bench.run(&packet(text)).one().to_vec();
    let mut error = error(1, 5, "", &sent);
    // From the end point, to the client.
    let (from, to) = (TEP.octets(), CLIENT.octets());
    error[8..24].copy_from_slice(&from);
    error[24..40].copy_from_slice(&to);
    error[42..44].fill(0);
    let ends = fordway_testkit::checksum::Endpoints::V6(TEP, CLIENT);
    let pseudo = ends.pseudo_header(58, error.len() - 40);
    let sum = !fordway_testkit::checksum::add(pseudo, fordway_testkit::checksum::sum(&error[40..]));
    error[42..44].copy_from_slice(&sum.to_be_bytes());
    let outcome = bench.run(&error);
    assert_eq!(outcome.verdict, Verdict::Forward);
    assert_eq!((outcome.one()[20], outcome.one()[21]), (3, 1));
    assert_eq!(outcome.one()[16..20], [192, 0, 2, 1]);
}

#[test]
fn made_up_errors_change_nothing() {
    let mut bench = Bench::tep();
    let sent = bench.run(&inner(1460, true)).one().to_vec();
    let right = error(2, 0, "mtu = 1300", &sent);
    let refused = |bench: &mut Bench, error: &[u8], reason| {
        assert_eq!(bench.run(error).verdict, dropped(reason));
        assert_eq!(bench.run(&inner(1460, true)).verdict, Verdict::Forward);
    };
    // Between others, or of another binding.
    for (at, addr) in [(8, OTHER), (24, OTHER)] {
        let mut quoted = sent.clone();
        quoted[at..at + 16].copy_from_slice(&addr.octets());
        refused(&mut bench, &error(2, 0, "mtu = 1300", &quoted), DropReason::IcmpInner);
    }
    let mut wrong = right.clone();
    wrong[45] ^= 1;
    refused(&mut bench, &wrong, DropReason::BadIcmpChecksum);
    // No tunnel packet, or nearly nothing of it.
    refused(&mut bench, &error(2, 0, "mtu = 1300", &sent[..59]), DropReason::IcmpInner);
    refused(&mut bench, &error(2, 0, "mtu = 1300", &sent[..20]), DropReason::IcmpInner);
    let mut quoted = sent.clone();
    quoted[6] = 17;
    refused(&mut bench, &error(2, 0, "mtu = 1300", &quoted), DropReason::IcmpInner);
    refused(&mut bench, &error(4, 0, "pointer = 0", &sent), DropReason::IcmpCode);
    refused(&mut bench, &error(100, 0, "", &sent), DropReason::IcmpType);
    assert_eq!(bench.run(&right).verdict, Verdict::Forward);
}

#[test]
fn errors_about_errors_are_not_relayed() {
    let mut bench = Bench::tep();
    let text = r#"
        v4 = { src = "198.51.100.7", dst = "192.0.2.1" }
        icmp = { type = 3, code = 3 }
        inner = { v4 = { src = "192.0.2.1", dst = "198.51.100.7" }, udp = { sport = 4000, dport = 53 } }
    "#;
    let sent = bench.run(&packet(text)).one().to_vec();
    assert_eq!(bench.run(&error(1, 0, "", &sent)).verdict, dropped(DropReason::IcmpNested));
}

#[test]
fn their_rate_is_limited() {
    let icmp_errors = IcmpErrors::Limited { per_second: 1, burst: 2 };
    let settings = Settings { icmp_errors, ..bench::settings() };
    let mut bench = Bench::new(settings, &bench::whole());
    let foreign = bench::wrapped(
        OTHER,
        TEP,
        &packet(
            "v4 = { src = \"192.0.2.1\", dst = \"198.51.100.7\" }\nudp = { sport = 1, dport = 2 }",
        ),
    );
    let told = (0..9).filter(|_| matches!(bench.run(&foreign).verdict, Verdict::Reply(_))).count();
    assert_eq!(told, 2);
}
