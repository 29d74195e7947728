//! ICMP errors: the packet inside gets back the addresses and ports that its sender gave it (RFC 6146
//! section 3.7, RFC 5508 REQ-4 and REQ-5).

use fordway_wire::ipv4::Ipv4Header;
use fordway_wire::ipv6::{FragmentHeader, Ipv6Header};
use fordway_wire::protocol;

use super::build::{Kind, Spec, error_v4, error_v6, verifies};
use super::*;
use crate::DropReason;

/// A router in the IPv4 network.
const ROUTER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 99);

fn router6() -> Ipv6Addr {
    "2001:db8:99::1".parse().unwrap()
}

/// A's packet to Z as A sent it (but for the hop limit), and as Z's network sees it.
fn sent(kind: Kind, len: usize) -> (Vec<u8>, Vec<u8>) {
    let data = payload(len);
    let (ports6, _) = out(kind);
    let spec = Spec::new(kind, (a(), embed(Z)), ports6, &data);
    let seen = forwarded(&spec.v6());
    (Spec { ttl: 63, ..spec }.v6(), seen)
}

/// Z's packet to A as Z sent it (but for the TTL), and as A's network sees it.
fn received(kind: Kind, len: usize) -> (Vec<u8>, Vec<u8>) {
    let data = payload(len);
    let (_, ports4) = back(kind);
    let spec = Spec::new(kind, (Z, T), ports4, &data);
    let seen = forwarded(&spec.v4());
    (Spec { ttl: 63, ..spec }.v4(), seen)
}

#[test]
fn an_icmpv4_error_reaches_the_host_about_its_own_packet() {
    for kind in Kind::ALL {
        for len in [0, 1, 60, 500] {
            let (own, seen) = sent(kind, len);
            // RFC 792: 8 octets of the transport header; RFC 1812: as much as there is.
            for quoted in [28, 29, 39, 40, 41, 60, 68, seen.len()] {
                let quoted = quoted.min(seen.len());
                for source in [ROUTER, Z] {
                    let error = error_v4((3, 1), (source, T), &seen[..quoted]);
                    let octets = forwarded(&error);
                    let outer = Ipv6Header::parse(&octets).unwrap();
                    assert_eq!((outer.src, outer.dst), (embed(source), a()));
                    assert_eq!(octets[40..42], [1, 0]);
                    assert!(verifies(&octets));
                    let inner = &octets[48..];
                    assert!(inner == &own[..quoted + 20], "{kind:?} {len} {quoted}");
                }
            }
        }
    }
}

#[test]
fn an_icmpv6_error_reaches_the_server_about_its_own_packet() {
    for kind in Kind::ALL {
        for len in [0, 1, 60, 500] {
            let (mut own, seen) = received(kind, len);
            if kind == Kind::UdpZero {
                // It has had a checksum since it was translated.
                let segment = Spec::new(Kind::Udp, (Z, T), back(kind).1, &payload(len)).v4();
                own[26..28].copy_from_slice(&segment[26..28]);
            }
            for quoted in [48, 49, 59, 60, 61, 80, 88, seen.len()] {
                let quoted = quoted.min(seen.len());
                // Whoever on this side sends the error, it comes from T (RFC 5508 REQ-5).
                for source in [router6(), a()] {
                    let error = error_v6((1, 4), (source, embed(Z)), &seen[..quoted]);
                    let octets = forwarded(&error);
                    let outer = Ipv4Header::parse(&octets).unwrap();
                    assert_eq!((outer.src, outer.dst), (T, Z));
                    assert_eq!(octets[20..22], [3, 3]);
                    assert!(verifies(&octets));
                    let inner = &octets[28..];
                    assert!(inner == &own[..quoted - 20], "{kind:?} {len} {quoted}");
                }
            }
        }
    }
}

#[test]
fn a_first_fragment_inside_has_ports() {
    let (own, mut seen) = sent(Kind::Udp, 100);
    seen[6..8].copy_from_slice(&0x2000u16.to_be_bytes());
    let octets = forwarded(&error_v4((3, 4), (ROUTER, T), &seen[..60]));
    // With a Fragment Header now.
    assert_eq!(octets[48 + 6], protocol::IPV6_FRAG);
    assert_eq!(octets[48 + 48..], own[40..80]);

    let (own, seen) = received(Kind::Udp, 100);
    let fragment =
        FragmentHeader { next_header: protocol::UDP, offset: 0, more: true, identification: 9 };
    let mut cut = seen[..40].to_vec();
    cut[6] = protocol::IPV6_FRAG;
    cut[5] += 8;
    cut.extend(fragment.to_bytes());
    cut.extend(&seen[40..90]);
    let octets = forwarded(&error_v6((3, 1), (a(), embed(Z)), &cut));
    let inner = Ipv4Header::parse(&octets[28..]).unwrap();
    assert_eq!((inner.more_fragments, inner.src, inner.dst), (true, Z, T));
    assert_eq!(octets[48..], own[20..70]);
}

#[test]
fn rfc4884_extensions_stay_behind_the_packet_inside() {
    let (own, seen) = sent(Kind::Udp, 200);
    // 128 octets of the packet, then an extension structure of 8.
    let extension = [0x20, 0, 0xdf, 0xfb, 0, 4, 1, 1];
    let mut error = error_v4((11, 0), (ROUTER, T), &[&seen[..128], &extension].concat());
    error[25] = 128 / 4;
    error[22..24].fill(0);
    let sum = fordway_wire::checksum::Sum::ZERO.add_bytes(&error[20..]).finish();
    error[22..24].copy_from_slice(&sum.to_be_bytes());
    let octets = forwarded(&error);
    assert!(verifies(&octets));
    assert_eq!(octets[44], 152 / 8);
    assert_eq!(octets[48..48 + 148], own[..148]);
    assert_eq!(octets[octets.len() - 8..], extension);
}

#[test]
fn errors_about_what_is_not_known_are_dropped() {
    let drop = |error: &[u8]| {
        let came = translate(&mut fixed(), error, Offload::default());
        came.result.unwrap_err().reason
    };
    let (_, seen) = sent(Kind::Udp, 20);
    let about = |quoted: &[u8]| error_v4((3, 1), (ROUTER, T), quoted);
    // Cut before the ports, another port, another protocol, a later fragment, an error about an error.
    assert_eq!(drop(&about(&seen[..27])), DropReason::IcmpInner);
    let change = |at: usize, value: u8| {
        let mut quoted = seen.clone();
        quoted[at] = value;
        quoted
    };
    assert_eq!(drop(&about(&change(21, 9))), DropReason::NoBib);
    assert_eq!(drop(&about(&change(9, 132))), DropReason::IcmpInner);
    assert_eq!(drop(&about(&change(7, 1))), DropReason::IcmpInner);
    let nested = error_v4((3, 1), (T, Z), &seen);
    assert_eq!(drop(&about(&nested)), DropReason::IcmpNested);
    // RFC 5508 REQ-3: a wrong checksum of the error itself.
    let mut wrong = about(&seen);
    wrong[50] ^= 1;
    assert_eq!(drop(&wrong), DropReason::BadIcmpChecksum);

    let (_, seen) = received(Kind::Udp, 20);
    let about = |quoted: &[u8]| error_v6((1, 4), (a(), embed(Z)), quoted);
    assert_eq!(drop(&about(&seen[..47])), DropReason::IcmpInner);
    let mut wrong = about(&seen);
    wrong[60] ^= 1;
    assert_eq!(drop(&wrong), DropReason::BadIcmpChecksum);
    let nested = error_v6((1, 4), (embed(Z), a()), &seen);
    assert_eq!(drop(&about(&nested)), DropReason::IcmpNested);
}
