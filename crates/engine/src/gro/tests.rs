use std::collections::BTreeMap;

use fordway_xlat::Direction;
use proptest::prelude::*;

use super::*;
use packets::{Sent, UDP, V4, V6, all, cut, ip_len, is_v4, segment, sum_up, summed};

mod packets;

/// A segment of one of some connections, and how it departs from what would be gathered.
#[derive(Clone, Debug)]
struct Spec {
    flow: u8,
    len: usize,
    /// Octet of the headers to change, and by which bits.
    change: Option<(usize, u8)>,
    flags: u8,
    /// Octets that are missing before it.
    gap: u32,
    is_damaged: bool,
    checksum: ChecksumState,
}

/// A packet without the identification that it does not need.
fn without_id(mut packet: Vec<u8>) -> Vec<u8> {
    if packet[0] == 0x45 && packet[ipv4::FRAGMENT_AT..][..2] == [0x40, 0] {
        let is_valid = ipv4::header_checksum_is_valid(&packet[..V4]);
        put_u16(&mut packet, ipv4::IDENTIFICATION_AT, 0);
        put_u16(&mut packet, ipv4::CHECKSUM_AT, u16::from(is_valid));
    }
    packet
}

/// What a packet keeps its place within: protocol, addresses and ports.
fn flow_of(packet: &[u8]) -> Vec<u8> {
    let ip = ip_len(packet);
    let (protocol, addresses) =
        if ip == V4 { (ipv4::PROTOCOL_AT, 12) } else { (ipv6::NEXT_HEADER_AT, 8) };
    [&packet[protocol..=protocol], &packet[addresses..ip + 4]].concat()
}

fn specs() -> impl Strategy<Value = Vec<Spec>> {
    let len = prop_oneof![6 => Just(100usize), 1 => Just(0), 1 => 1usize..200];
    let change = prop::option::weighted(0.15, (0usize..72, 0u8..8));
    let flags = prop_oneof![8 => Just(0x10u8), 2 => Just(0x18), 1 => any::<u8>()];
    let gap = prop_oneof![15 => Just(0u32), 1 => Just(1), 1 => any::<u32>()];
    let checksum = prop_oneof![8 => Just(0u8), 1 => Just(1), 2 => Just(2)];
    let spec = (0u8..14, len, change, flags, gap, prop::bool::weighted(0.05), checksum);
    let spec = spec.prop_map(|(flow, len, change, flags, gap, is_damaged, checksum)| {
        // Few connections have many segments.
        let flow = match flow {
            0..4 => flow,
            4..8 => UDP + flow % 4,
            _ => (flow % 2) * UDP,
        };
        let start = if is_v4(flow) { V4 as u16 } else { V6 as u16 };
        let offset = if flow < UDP { 16 } else { 6 };
        // What is verified, or not made yet, is not damaged; nor is it changed in what it is about.
        let (is_damaged, change, checksum) = match checksum {
            0 => (is_damaged, change.map(|(at, bit)| (at, 1 << bit)), ChecksumState::Complete),
            1 => (false, None, ChecksumState::Verified),
            _ => (false, None, ChecksumState::Partial { start, offset }),
        };
        Spec { flow, len, change, flags, gap, is_damaged, checksum }
    });
    prop::collection::vec(spec, 1..100)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Cut again as the kernel does, what leaves is what came, octet by octet and in order within each connection.
    #[test]
    fn what_is_cut_again_is_what_came(specs in specs()) {
        let (mut gro, mut sent) = (Gro::new(Gathered::TcpUdp), Sent::default());
        let mut came: Vec<Vec<u8>> = Vec::new();
        let mut next = [u32::MAX - 500; 20];
        let mut id = [u16::MAX - 3; 20];
        for spec in &specs {
            let flow = usize::from(spec.flow);
            let sequence = next[flow].wrapping_add(spec.gap);
            let mut packet = segment(spec.flow, sequence, id[flow], spec.flags, spec.len);
            next[flow] = sequence.wrapping_add(spec.len as u32);
            id[flow] = id[flow].wrapping_add(1);
            if let Some((at, bits)) = spec.change
                && at > 0
                && at < packet.len()
            {
                packet[at] ^= bits;
                // A changed length or protocol stays as it is, with sums that are right where they can be.
                let ip = ip_len(&packet);
                if (ip == V4 && !(2..4).contains(&at)) || (ip == V6 && !(4..6).contains(&at)) {
                    sum_up(&mut packet);
                }
            }
            if spec.is_damaged && let Some(last) = packet.last_mut() {
                *last ^= 1;
            }
            let offload = Offload { checksum: spec.checksum, ..Offload::default() };
            came.push(packet.clone());
            if let ChecksumState::Partial { start, offset } = spec.checksum {
                let sum = summed(&packet, &[]);
                put_u16(&mut packet, usize::from(start + offset), sum);
            }
            sent.offer(&mut gro, &packet, offload);
        }
        sent.end(&mut gro);
        let counted: usize = sent.0.iter().map(|(_, _, packets)| packets).sum();
        prop_assert_eq!(counted, came.len());
        let left: Vec<_> = sent.0.iter().flat_map(|(header, it, _)| cut(header, it)).collect();
        let by_flow = |all: Vec<Vec<u8>>| {
            let mut flows: BTreeMap<_, Vec<_>> = BTreeMap::new();
            for packet in all {
                flows.entry(flow_of(&packet)).or_default().push(without_id(packet));
            }
            flows
        };
        prop_assert_eq!(by_flow(left), by_flow(came));
    }
}

/// `count` segments of `len` octets that follow each other.
fn row(flow: u8, count: usize, len: usize) -> Vec<Vec<u8>> {
    let next = |at: usize| segment(flow, (at * len) as u32, at as u16, tcp::flag::ACK, len);
    (0..count).map(next).collect()
}

#[test]
fn a_row_of_segments_is_one_super_packet() {
    for flow in [0, 1, 2, 3, UDP, UDP + 1, UDP + 2, UDP + 3] {
        let packets = row(flow, 40, 1448);
        let sent = all(&packets);
        let [(header, packet, 40)] = sent.as_slice() else { panic!("{} left", sent.len()) };
        assert_eq!(cut(header, packet), packets);
    }
}

#[test]
fn a_super_packet_is_no_longer_than_its_header_can_say() {
    assert_eq!(all(&row(UDP + 1, 70, 100)).len(), 2, "more datagrams than kernels take");
    for flow in 0..2 {
        let packets = row(flow, 50, 1448);
        let sent = all(&packets);
        let counts: Vec<_> = sent.iter().map(|(_, _, packets)| *packets).collect();
        assert_eq!(counts, [45, 5]);
        assert!(sent[0].1.len() <= LONGEST && sent[0].1.len() + 1448 > LONGEST);
    }
}

#[test]
fn a_shorter_segment_and_one_that_is_pushed_end_it() {
    let mut packets = row(0, 3, 100);
    packets.push(segment(0, 300, 3, tcp::flag::ACK, 99));
    packets.push(segment(0, 399, 4, tcp::flag::ACK, 99));
    packets.push(segment(0, 498, 5, tcp::flag::ACK | tcp::flag::PSH, 99));
    packets.push(segment(0, 597, 6, tcp::flag::ACK, 99));
    let sent = all(&packets);
    let counts: Vec<_> = sent.iter().map(|(_, _, packets)| *packets).collect();
    assert_eq!(counts, [4, 2, 1]);
}

#[test]
fn a_packet_that_is_alone_leaves_as_it_came() {
    let packet = segment(1, 7, 0, tcp::flag::ACK, 100);
    for checksum in [
        ChecksumState::Complete,
        ChecksumState::Verified,
        ChecksumState::Partial { start: 40, offset: 16 },
    ] {
        let offload = Offload { checksum, ..Offload::default() };
        let (mut gro, mut sent) = (Gro::new(Gathered::TcpUdp), Sent::default());
        sent.offer(&mut gro, &packet, offload);
        assert!(sent.0.is_empty(), "it waits for others");
        sent.end(&mut gro);
        assert_eq!(sent.0, [(offload::to_vnet(&offload), packet.clone(), 1)]);
    }
}

#[test]
fn a_checksum_that_nobody_has_made_yet_is_not_looked_at() {
    let partial = ChecksumState::Partial { start: 40, offset: 16 };
    let elsewhere = ChecksumState::Partial { start: 40, offset: 18 };
    for (checksum, packets) in [(partial, 1), (elsewhere, 3)] {
        let (mut gro, mut sent) = (Gro::new(Gathered::TcpUdp), Sent::default());
        for mut packet in row(1, 3, 100) {
            let sum = summed(&packet, &[]);
            put_u16(&mut packet, V6 + tcp::CHECKSUM_AT, sum);
            sent.offer(&mut gro, &packet, Offload { checksum, ..Offload::default() });
        }
        sent.end(&mut gro);
        assert_eq!(sent.0.len(), packets);
    }
}

#[test]
fn an_acknowledgement_and_what_is_unclear_neither_wait_nor_overtake() {
    type Change = fn(&mut Vec<u8>);
    let changes: [(u8, Change); 6] = [
        (0, |it| {
            it.truncate(V4 + 32);
            sum_up(it);
        }),
        (0, |it| {
            it[ipv4::FRAGMENT_AT] = 0x20;
            fordway_wire::set_ip_len(it, V4);
        }),
        // Options.
        (0, |it| {
            it[0] = 0x46;
            fordway_wire::set_ip_len(it, V4);
        }),
        // Padded.
        (0, |it| it.push(0)),
        (1, |it| it[ipv6::NEXT_HEADER_AT] = protocol::IPV6_OPTS),
        // Padded inside, with the right checksum all the same.
        (UDP, |it| {
            it[V4 + UDP_LENGTH_AT + 1] -= 1;
            put_u16(it, V4 + UDP_CHECKSUM_AT, 0);
            let sum = !summed(it, &it[V4..]);
            put_u16(it, V4 + UDP_CHECKSUM_AT, sum);
        }),
    ];
    for (flow, change) in changes {
        let mut packets = row(flow, 5, 100);
        packets[3..].iter_mut().for_each(change);
        let sent = all(&packets);
        let left: Vec<_> = sent.iter().map(|(_, packet, count)| (packet, *count)).collect();
        assert_eq!(left[1..], [(&packets[3], 1), (&packets[4], 1)]);
        assert_eq!(left[0].1, 3);
    }
}

#[test]
fn what_may_not_be_fragmented_needs_no_identification() {
    let next = |at: u32| segment(0, 100 * at, 7, tcp::flag::ACK, 100);
    assert_eq!(all(&[next(0), next(1), next(2)]).len(), 1);
    let next = |at: u32| segment(2, 100 * at, 7, tcp::flag::ACK, 100);
    assert_eq!(all(&[next(0), next(1), next(2)]).len(), 3);
}

/// Of a kernel that refuses super-packets, too: 0 is a checksum of TCP like any other.
#[test]
fn a_checksum_of_tcp_may_be_zero() {
    let mut packets = row(0, 3, 100);
    let end = packets[1].len();
    let sum = get_u16(&packets[1], V4 + tcp::CHECKSUM_AT);
    let word = u32::from(get_u16(&packets[1], end - 2)) + u32::from(sum);
    put_u16(&mut packets[1], end - 2, ((word & 0xffff) + (word >> 16)) as u16);
    sum_up(&mut packets[1]);
    assert_eq!(get_u16(&packets[1], V4 + tcp::CHECKSUM_AT), 0);
    let left = all(&packets);
    assert_eq!(left.len(), 1);
    assert_eq!(cut(&left[0].0, &left[0].1), packets);
}

#[test]
fn a_wrong_checksum_of_a_header_stays_wrong() {
    for damaged in 0..3 {
        let mut packets = row(0, 3, 100);
        packets[damaged][ipv4::CHECKSUM_AT] ^= 1;
        let left: Vec<_> = all(&packets).into_iter().map(|(_, packet, _)| packet).collect();
        assert!(left.contains(&packets[damaged]), "{damaged}");
    }
}

#[test]
fn other_protocols_and_connections_let_it_wait() {
    let (mut gro, mut sent) = (Gro::new(Gathered::TcpUdp), Sent::default());
    let mut datagram = segment(0, 0, 0, tcp::flag::ACK, 100);
    datagram[ipv4::PROTOCOL_AT] = protocol::ICMP;
    let packets = row(0, 2, 100);
    for packet in [&packets[0], &datagram, &segment(1, 0, 0, tcp::flag::ACK, 0), &packets[1]] {
        sent.offer(&mut gro, packet, Offload::default());
    }
    assert_eq!(sent.0.len(), 2);
    sent.end(&mut gro);
    assert_eq!(sent.0[2].2, 2);
}

#[test]
fn where_too_many_connections_begin_the_first_leaves() {
    let flows = FLOWS as u8 + 2;
    let (mut gro, mut sent) = (Gro::new(Gathered::TcpUdp), Sent::default());
    for flow in 0..flows {
        sent.offer(&mut gro, &segment(flow, 0, 0, tcp::flag::ACK, 100), Offload::default());
    }
    let left: Vec<_> = sent.0.iter().map(|(_, packet, _)| packet[ip_len(packet) - 1]).collect();
    assert_eq!(left, [0, 1]);
    sent.end(&mut gro);
    assert_eq!(sent.0.len(), usize::from(flows));
    assert_eq!((gro.begun.len(), gro.spare.len()), (0, FLOWS + 1));
}

#[test]
fn what_leaves_in_pieces_is_not_gathered() {
    let (mut gro, mut sent) = (Gro::new(Gathered::TcpUdp), Sent::default());
    let mut packets = row(1, 2, 1448);
    sent.offer(&mut gro, &packets[0], Offload::default());
    let arrival = Arrival { direction: Some(Direction::V4ToV6), octets: 0, segments: 1 };
    let end = packets[1].len();
    let mut packet = Packet::new(&mut packets[1], 0..end, Offload::default());
    packet.cut_tunnelled(1280, 0);
    let offer = gro.offer(&packet, arrival);
    assert!(offer.ahead.is_some() && !offer.is_taken);
    let offer = gro.offer(&packet, arrival);
    assert!(offer.ahead.is_none() && !offer.is_taken);
}

#[test]
fn a_datagram_without_checksum_is_not_gathered() {
    let (mut gro, mut sent) = (Gro::new(Gathered::TcpUdp), Sent::default());
    for mut packet in row(UDP, 3, 100) {
        put_u16(&mut packet, V4 + UDP_CHECKSUM_AT, 0);
        let offload = Offload { checksum: ChecksumState::Verified, ..Offload::default() };
        sent.offer(&mut gro, &packet, offload);
    }
    assert_eq!(sent.0.len(), 3);
}

#[test]
fn datagrams_are_gathered_only_where_the_kernel_takes_them() {
    let (mut gro, mut sent) = (Gro::new(Gathered::Tcp), Sent::default());
    for packet in row(UDP + 1, 3, 100).iter().chain(&row(1, 3, 100)) {
        sent.offer(&mut gro, packet, Offload::default());
    }
    sent.end(&mut gro);
    let counts: Vec<_> = sent.0.iter().map(|(_, _, packets)| *packets).collect();
    assert_eq!(counts, [1, 1, 1, 3]);
}

#[test]
fn datagrams_of_tunnels_are_not_gathered() {
    for (port, left) in [(4788_u16, 1), (4789, 3), (4790, 3), (6081, 3), (6635, 3), (8472, 3)] {
        let mut packets = row(UDP, 3, 100);
        for packet in &mut packets {
            put_u16(packet, V4 + 2, port);
            sum_up(packet);
        }
        assert_eq!(all(&packets).len(), left, "{port}");
    }
}

#[test]
fn nothing_is_gathered_where_that_is_off() {
    let (mut gro, mut sent) = (Gro::new(Gathered::Nothing), Sent::default());
    let packets = row(0, 3, 100);
    packets.iter().for_each(|it| sent.offer(&mut gro, it, Offload::default()));
    assert_eq!(sent.0.len(), 3);
    // What has begun before leaves first.
    let (mut gro, mut sent) = (Gro::new(Gathered::Tcp), Sent::default());
    packets[..2].iter().for_each(|it| sent.offer(&mut gro, it, Offload::default()));
    gro.cease();
    sent.offer(&mut gro, &packets[2], Offload::default());
    let counts: Vec<_> = sent.0.iter().map(|(_, _, packets)| *packets).collect();
    assert_eq!(counts, [2, 1]);
}

proptest! {
    /// Octets that are hardly a packet, twice and changed once more.
    #[test]
    fn no_octets_make_it_panic(
        flow in prop_oneof![0u8..4, UDP..UDP + 4],
        len in 0usize..60,
        end in 0usize..130,
        changes in prop::collection::vec((0usize..80, any::<u8>()), 0..6),
        later in prop::collection::vec((0usize..80, any::<u8>()), 0..3),
    ) {
        let mut packet = segment(flow, 0, 0, tcp::flag::ACK, len);
        packet.truncate(end);
        let mut packets = Vec::new();
        for changes in [changes, later, Vec::new()] {
            changes.into_iter().for_each(|(at, value)| put_u8(&mut packet, at, value));
            packets.push(packet.clone());
        }
        for checksum in [
            ChecksumState::Complete,
            ChecksumState::Verified,
            ChecksumState::Partial { start: 20, offset: 16 },
            ChecksumState::Partial { start: 40, offset: 6 },
        ] {
            let (mut gro, mut sent) = (Gro::new(Gathered::TcpUdp), Sent::default());
            let offload = Offload { checksum, ..Offload::default() };
            packets.iter().for_each(|it| sent.offer(&mut gro, it, offload));
            while let Some(mut it) = gro.pop() {
                it.finish();
                sent.0.push((VnetHeader::default(), Vec::new(), it.arrivals.len()));
            }
            prop_assert!(sent.0.iter().map(|(_, _, packets)| packets).sum::<usize>() == 3);
        }
    }
}

#[test]
fn a_super_packet_that_came_whole_is_not_gathered() {
    let (mut gro, mut sent) = (Gro::new(Gathered::TcpUdp), Sent::default());
    let packets = row(0, 2, 1000);
    let offload = Offload {
        checksum: ChecksumState::Partial { start: 20, offset: 16 },
        gso: Gso { kind: GsoKind::TcpV4, ecn: false, size: 500, header_len: 52 },
    };
    sent.offer(&mut gro, &packets[0], Offload::default());
    sent.offer(&mut gro, &packets[1], offload);
    assert_eq!(sent.0.len(), 2);
    assert_eq!(sent.0[1], (offload::to_vnet(&offload), packets[1].clone(), 1));
}
