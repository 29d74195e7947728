//! Packets that are no ICMP errors.

use alloc::vec;
use alloc::vec::Vec;

use fordway_wire::ipv6::FragmentHeader;
use fordway_wire::protocol;
use proptest::prelude::*;

use super::build::{Check, Kind, Spec, verifies};
use super::fixed::{Entry, Fixed};
use super::*;
use crate::trace::{ChecksumStep, Step};
use crate::{ChecksumState, DropReason, Gso, GsoKind, UdpChecksumZero};

/// A's packet to Z in IPv6, and what it must be in IPv4.
fn outbound(kind: Kind, data: &[u8], check: Check) -> (Vec<u8>, Vec<u8>) {
    let (ports6, ports4) = out(kind);
    let v6 = Spec { check, ..Spec::new(kind, (a(), embed(Z)), ports6, data) };
    let df = 20 + kind.header_len() + data.len() > 1260;
    let v4 = Spec::new(kind, (T, Z), ports4, data);
    (v6.v6(), Spec { check, ttl: 63, identification: 77, df, ..v4 }.v4())
}

/// Z's packet to A in IPv4, and what it must be in IPv6.
fn inbound(kind: Kind, data: &[u8], check: Check) -> (Vec<u8>, Vec<u8>) {
    let (ports6, ports4) = back(kind);
    // Without DF, long ones leave in fragments.
    let df = data.len() > 1200 && kind == Kind::Tcp;
    let v4 = Spec { check, df, ..Spec::new(kind, (Z, T), ports4, data) };
    // RFC 7915 section 4.5: over IPv6 there must be a checksum.
    let computed = if kind == Kind::UdpZero { Kind::Udp } else { kind };
    let v6 = Spec::new(computed, (embed(Z), a()), ports6, data);
    (v4.v4(), Spec { check, ttl: 63, ..v6 }.v6())
}

#[test]
fn whole_packets_of_every_kind() {
    for kind in Kind::ALL {
        for len in [0, 1, 2, 33, 1200, if kind == Kind::Tcp { 1400 } else { 1199 }] {
            let data = payload(len);
            for (before, after) in
                [outbound(kind, &data, Check::Complete), inbound(kind, &data, Check::Complete)]
            {
                assert!(forwarded(&before) == after, "{kind:?} {len}");
            }
        }
    }
}

#[test]
fn a_verified_packet_stays_verified() {
    let offload = Offload { checksum: ChecksumState::Verified, ..Offload::default() };
    for (before, after) in [
        outbound(Kind::Tcp, &payload(9), Check::Complete),
        inbound(Kind::Tcp, &payload(9), Check::Complete),
    ] {
        let came = translate(&mut fixed(), &before, offload);
        assert_eq!(came.offload, offload);
        assert_eq!(came.forwarded(), after);
    }
}

/// Ports are not in the pseudo-header, which is all that a partial checksum holds.
#[test]
fn partial_checksums() {
    let partial = |kind: Kind, start| Offload {
        checksum: ChecksumState::Partial { start, offset: kind.checksum_at() as u16 },
        ..Offload::default()
    };
    for kind in [Kind::Tcp, Kind::Udp, Kind::Echo, Kind::EchoReply] {
        for len in [0, 1, 1000] {
            let data = payload(len);
            for (outbound_way, (before, after)) in [
                (true, outbound(kind, &data, Check::Partial)),
                (false, inbound(kind, &data, Check::Partial)),
            ] {
                let (from, to) = if outbound_way { (40, 20) } else { (20, 40) };
                let came = translate(&mut fixed(), &before, partial(kind, from));
                assert_eq!(came.offload, partial(kind, to));
                let mut octets = came.forwarded();
                let field = usize::from(to) + kind.checksum_at();
                if octets[field..field + 2] == [0xff, 0xff] && kind.is_icmp() {
                    // ICMPv4 has no pseudo-header: either zero will do.
                    octets[field..field + 2].fill(0);
                }
                assert!(octets == after, "{kind:?} {len}");
                // Completed, it is what the device would have sent.
                let range = 0..octets.len();
                let mut packet = Packet::new(&mut octets, range, partial(kind, to));
                packet.complete_checksum();
                assert!(verifies(packet.bytes()), "{kind:?} {len}");
            }
        }
    }
}

#[test]
fn super_packets() {
    for (kind, gso6, gso4) in
        [(Kind::Tcp, GsoKind::TcpV6, GsoKind::TcpV4), (Kind::Udp, GsoKind::Udp, GsoKind::Udp)]
    {
        let offload = |start: u16, gso| Offload {
            checksum: ChecksumState::Partial { start, offset: kind.checksum_at() as u16 },
            gso: Gso {
                kind: gso,
                ecn: false,
                size: 1000,
                header_len: start + kind.header_len() as u16,
            },
        };
        let data = payload(20_000);
        let (before, after) = outbound(kind, &data, Check::Partial);
        let came = translate(&mut fixed(), &before, offload(40, gso6));
        assert_eq!(came.offload, offload(20, gso4));
        // DF is decided by the segments, which are short.
        let mut octets = came.forwarded();
        assert_eq!((octets[6] & 0x40, octets.len()), (0, after.len()));
        octets[6] |= 0x40;
        octets[10..12].copy_from_slice(&after[10..12]);
        assert!(octets == after, "{kind:?}");
        let (before, after) = inbound(kind, &data, Check::Partial);
        let came = translate(&mut fixed(), &before, offload(20, gso4));
        assert_eq!(came.offload, offload(40, gso6));
        assert!(came.forwarded() == after, "{kind:?}");
    }
}

#[test]
fn udp_without_checksum_is_as_configured() {
    let (before, after) = inbound(Kind::UdpZero, &payload(11), Check::Complete);
    let with = |udp_checksum_zero| {
        let mut fixed = fixed();
        fixed.config.udp_checksum_zero = udp_checksum_zero;
        translate(&mut fixed, &before, Offload::default())
    };
    assert_eq!(with(UdpChecksumZero::Compute).forwarded(), after);
    let mut zero = after;
    zero[46..48].fill(0);
    assert_eq!(with(UdpChecksumZero::Pass).forwarded(), zero);
    let dropped = with(UdpChecksumZero::Drop).result;
    assert_eq!(dropped, Err(DropReason::UdpChecksumZero.into()));
}

/// A datagram that does not fit leaves in fragments, the first with the ports; its checksum, partial
/// before, covers all of them.
#[test]
fn pieces_of_a_datagram() {
    let data = payload(1800);
    for check in [Check::Complete, Check::Partial] {
        let offload = match check {
            Check::Complete => Offload::default(),
            Check::Partial => Offload {
                checksum: ChecksumState::Partial { start: 20, offset: 6 },
                ..Offload::default()
            },
        };
        let (before, _) = inbound(Kind::Udp, &data, check);
        let (_, after) = inbound(Kind::Udp, &data, Check::Complete);
        let came = translate(&mut fixed(), &before, offload);
        assert_eq!((came.pieces.len(), came.offload), (2, Offload::default()));
        let segment: Vec<u8> = came.pieces.iter().flat_map(|piece| piece[48..].to_vec()).collect();
        assert_eq!(segment, after[40..]);
    }
}

/// A reassembled IPv6 packet keeps its Fragment Header; the Identification in IPv4 is the translator's,
/// because hosts share the address (RFC 6864 section 5.3.1).
#[test]
fn a_reassembled_packet_gets_an_identification() {
    let data = payload(30);
    let (before, mut after) = outbound(Kind::Udp, &data, Check::Complete);
    let fragment = FragmentHeader {
        next_header: protocol::UDP,
        offset: 0,
        more: false,
        identification: 0x1234_5678,
    };
    let mut packet = before[..40].to_vec();
    packet[6] = protocol::IPV6_FRAG;
    packet[5] += 8;
    packet.extend(fragment.to_bytes());
    packet.extend(&before[40..]);
    after[6..8].fill(0);
    assert_eq!(forwarded(&packet), after);
}

#[test]
fn what_can_not_be_mapped_stops_unchanged() {
    let data = payload(10);
    let (udp6, _) = outbound(Kind::Udp, &data, Check::Complete);
    let (udp4, _) = inbound(Kind::Udp, &data, Check::Complete);
    let change = |packet: &[u8], at: usize, value: u8| {
        let mut packet = packet.to_vec();
        packet[at] = value;
        if packet[0] >> 4 == 4 {
            packet[10..12].fill(0);
            let sum = fordway_wire::checksum::Sum::ZERO.add_bytes(&packet[..20]).finish();
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        packet
    };
    let mut full = fixed();
    full.full = true;
    for (mut fixed, packet, reason) in [
        // SCTP and UDP-Lite have no place in the tables; IGMP neither.
        (fixed(), change(&udp6, 6, 132), DropReason::Transport),
        (fixed(), change(&udp4, 9, 132), DropReason::Transport),
        (fixed(), change(&udp4, 9, 136), DropReason::Transport),
        (fixed(), change(&udp4, 9, 2), DropReason::Transport),
        // 18 octets are no TCP header.
        (fixed(), change(&udp6, 6, 6), DropReason::Truncated),
        (fixed(), change(&udp4, 9, 6), DropReason::Truncated),
        // Another port.
        (fixed(), change(&udp6, 40, 1), DropReason::NoBib),
        (fixed(), change(&udp4, 22, 1), DropReason::NoBib),
        // Hop limits run out before the tables are asked.
        (full.clone(), change(&udp6, 7, 1), DropReason::HopLimitExceeded),
        (full.clone(), change(&udp4, 8, 1), DropReason::HopLimitExceeded),
        (full.clone(), udp6.clone(), DropReason::SessionsFull),
        (full, udp4.clone(), DropReason::SessionsFull),
    ] {
        let came = translate(&mut fixed, &packet, Offload::default());
        assert_eq!(came.result.unwrap_err().reason, reason);
        assert_eq!(came.octets, packet, "{reason:?}");
    }
}

/// RFC 1071: the checksum of an ICMPv4 message that is zero throughout is all ones.
#[test]
fn an_identifier_that_leaves_nothing_but_zeros() {
    let mut fixed = fixed();
    fixed.table = vec![Entry { protocol: 1, v6: (a(), 9), v4: (T, 0) }];
    let sequence_zero = |mut packet: Vec<u8>, at: usize| {
        packet[at + 6..at + 8].fill(0);
        let field = at + 2;
        // The builder's sequence number is 7.
        let old = fordway_wire::checksum::Sum::ZERO.add_u16(7);
        let zero = fordway_wire::checksum::Sum::ZERO;
        let checksum = u16::from_be_bytes([packet[field], packet[field + 1]]);
        let checksum = match fordway_wire::checksum::update(checksum, old, zero) {
            0 if at == 20 => 0xffff,
            checksum => checksum,
        };
        packet[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
        packet
    };
    let reply6 = Spec::new(Kind::EchoReply, (a(), embed(Z)), (9, 0), &[0, 0]).v6();
    let out = translate(&mut fixed, &sequence_zero(reply6, 40), Offload::default()).forwarded();
    assert_eq!(out[20..], [0, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0]);
    assert!(verifies(&out));
    let reply4 = Spec::new(Kind::EchoReply, (Z, T), (0, 0), &[0, 0]).v4();
    let reply4 = sequence_zero(reply4, 20);
    assert_eq!(reply4[20..], [0, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0]);
    let back = translate(&mut fixed, &reply4, Offload::default()).forwarded();
    assert!(verifies(&back));
    assert_eq!(back[44..46], [0, 9]);
}

#[test]
fn steps_tell_of_ports_and_identifiers() {
    let steps = |octets: &[u8]| {
        let mut fixed = fixed();
        let config = &fixed.config.clone();
        let mut buffer = vec![0; HEADROOM + octets.len()];
        buffer[HEADROOM..].copy_from_slice(octets);
        let range = HEADROOM..buffer.len();
        let mut packet = Packet::new(&mut buffer, range, Offload::default());
        let mut steps = Vec::new();
        let result =
            v6_to_v4::translate(config, &mut fixed, &mut packet, &mut State::new(1), &mut steps);
        assert_eq!(result, Ok(Verdict::Forward));
        steps
    };
    let found = steps(&outbound(Kind::Tcp, &[], Check::Complete).0);
    let (from, to) = out(Kind::Tcp);
    assert!(found.contains(&Step::Ports { from, to }));
    assert!(found.contains(&Step::Checksum(ChecksumStep::Updated)));
    let found = steps(&outbound(Kind::Echo, &[], Check::Complete).0);
    assert!(found.contains(&Step::Identifier { from: IDS.0, to: IDS.1 }));
}

fn kinds() -> impl Strategy<Value = Kind> {
    proptest::sample::select(&Kind::ALL[..])
}

fn ports() -> impl Strategy<Value = (u16, u16)> {
    let port = || prop_oneof![4 => any::<u16>(), 1 => Just(0), 1 => Just(0xffff)];
    (port(), port())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// A checksum is right afterwards if it was before, and wrong if it was wrong.
    #[test]
    fn checksums_verify_as_before(
        kind in kinds(),
        is_v4 in any::<bool>(),
        (own, remote) in (ports(), any::<u16>()),
        (host, server) in (any::<u64>(), 1u8..255),
        data in proptest::collection::vec(any::<u8>(), 0..60),
        damage in proptest::option::of((any::<u16>(), 1u8..)),
    ) {
        let host = Ipv6Addr::from_bits(a().to_bits() | u128::from(host));
        let z = Ipv4Addr::new(198, 51, 100, server);
        let config = fixed().config;
        let table =
            vec![Entry { protocol: kind.protocol(), v6: (host, own.0), v4: (T, own.1) }];
        let mut fixed = Fixed { config, table, full: false };
        let icmp = kind.is_icmp();
        let mut packet = if is_v4 {
            let ports = if icmp { (own.1, 0) } else { (remote, own.1) };
            Spec::new(kind, (z, T), ports, &data).v4()
        } else {
            let ports = if icmp { (own.0, 0) } else { (own.0, remote) };
            Spec::new(kind, (host, embed(z)), ports, &data).v6()
        };
        prop_assert!(verifies(&packet));
        // Anything behind what picks the entry: the checksum field and all that it covers there.
        let header = if is_v4 { 20 } else { 40 };
        if let Some((place, value)) = damage {
            let first = header + if icmp { 6 } else { 4 };
            // The length of a UDP datagram is left alone: without a checksum, it counts for itself.
            let first = if kind.protocol() == protocol::UDP { first + 2 } else { first };
            let at = first + usize::from(place) % (packet.len() - first);
            packet[at] ^= value;
        }
        let before = verifies(&packet);
        let came = translate(&mut fixed, &packet, Offload::default());
        prop_assert_eq!(came.result, Ok(Verdict::Forward));
        prop_assert_eq!(verifies(&came.octets), before);
        let to = if is_v4 { own.0 } else { own.1 };
        let at = came.octets.len() - (packet.len() - header) + match (icmp, is_v4) {
            (true, _) => 4,
            (false, true) => 2,
            (false, false) => 0,
        };
        prop_assert_eq!(&came.octets[at..at + 2], &to.to_be_bytes());
    }
}
