use alloc::vec;
use alloc::vec::Vec;

use super::*;

const V4: (Ipv4Addr, Ipv4Addr) = (Ipv4Addr::new(198, 51, 100, 1), Ipv4Addr::new(192, 0, 2, 1));

fn v4(protocol: u8, fragment: (usize, bool), payload: &[u8]) -> Vec<u8> {
    let header = Ipv4Header {
        header_len: 20,
        tos: 0,
        total_len: 20 + payload.len() as u16,
        identification: 1,
        dont_fragment: false,
        more_fragments: fragment.1,
        fragment_offset: fragment.0,
        ttl: 64,
        protocol,
        src: V4.0,
        dst: V4.1,
    };
    [&header.to_bytes()[..], payload].concat()
}

fn v6(next_header: u8, payload: &[u8]) -> Vec<u8> {
    let header = Ipv6Header {
        traffic_class: 0,
        flow_label: 0,
        payload_len: payload.len() as u16,
        next_header,
        hop_limit: 64,
        src: "2001:db8::1".parse().unwrap(),
        dst: "64:ff9b::c633:6401".parse().unwrap(),
    };
    [&header.to_bytes()[..], payload].concat()
}

fn of<A: Address>(octets: &[u8]) -> Incoming<'_, A> {
    A::parse(octets).unwrap()
}

fn tcp(flags: u8) -> Vec<u8> {
    let mut header = vec![0x12, 0x34, 0x00, 0x50];
    header.resize(20, 0);
    header[12] = 5 << 4;
    header[13] = flags;
    header
}

const UDP: [u8; 8] = [0x12, 0x34, 0, 53, 0, 8, 0, 0];

#[test]
fn ports_flags_and_identifiers() {
    let packet = v4(protocol::TCP, (0, false), &tcp(0x12));
    let expected = Transport::Tcp { src: 0x1234, dst: 80, flags: 0x12 };
    assert_eq!(of::<Ipv4Addr>(&packet).transport(), Ok(expected));
    assert_eq!((expected.protocol(), expected.ports()), (6, (0x1234, 80)));

    let packet = v6(protocol::UDP, &UDP);
    let expected = Transport::Udp { src: 0x1234, dst: 53 };
    assert_eq!(of::<Ipv6Addr>(&packet).transport(), Ok(expected));
    assert_eq!((expected.protocol(), expected.ports()), (17, (0x1234, 53)));

    for (kind, is_request) in [(128, true), (129, false)] {
        let packet = v6(protocol::ICMPV6, &[kind, 0, 0, 0, 0xab, 0xcd, 0, 1]);
        let expected = Transport::IcmpQuery { id: 0xabcd, is_request };
        assert_eq!(of::<Ipv6Addr>(&packet).transport(), Ok(expected));
        assert_eq!((expected.protocol(), expected.ports()), (1, (0xabcd, 0xabcd)));
    }
    for (kind, is_request) in [(8, true), (0, false)] {
        let packet = v4(protocol::ICMP, (0, false), &[kind, 0, 0, 0, 0xab, 0xcd, 0, 1]);
        let expected = Transport::IcmpQuery { id: 0xabcd, is_request };
        assert_eq!(of::<Ipv4Addr>(&packet).transport(), Ok(expected));
    }
}

#[test]
fn what_has_no_tuple_says_why() {
    let why4 = |number, fragment, payload: &[u8]| {
        of::<Ipv4Addr>(&v4(number, fragment, payload)).transport().unwrap_err()
    };
    let whole = (0, false);
    for number in [protocol::UDP_LITE, protocol::DCCP, 132, 50, 47, protocol::ICMPV6] {
        assert_eq!(why4(number, whole, &[0; 40]), DropReason::Transport, "{number}");
    }
    assert_eq!(why4(protocol::TCP, whole, &tcp(0)[..19]), DropReason::Truncated);
    assert_eq!(why4(protocol::UDP, whole, &UDP[..7]), DropReason::Truncated);
    assert_eq!(why4(protocol::ICMP, whole, &[8, 0, 0, 0, 0, 1, 0]), DropReason::Truncated);
    assert_eq!(why4(protocol::ICMP, whole, &[13, 0, 0, 0, 0, 1, 0, 0]), DropReason::IcmpType);
    assert_eq!(why4(protocol::ICMP, whole, &[3, 0, 0, 0, 0, 1, 0, 0]), DropReason::IcmpType);
    for fragment in [(0, true), (8, true), (8, false)] {
        assert_eq!(why4(protocol::UDP, fragment, &UDP), DropReason::FragmentsFull);
    }
    let why6 =
        |number, payload: &[u8]| of::<Ipv6Addr>(&v6(number, payload)).transport().unwrap_err();
    assert_eq!(why6(protocol::ICMP, &[8, 0, 0, 0, 0, 1, 0, 0]), DropReason::Transport);
    assert_eq!(why6(59, &[]), DropReason::Transport);
    // Neighbour Solicitation.
    assert_eq!(why6(protocol::ICMPV6, &[135; 24]), DropReason::IcmpType);
}

#[test]
fn an_error_quotes_a_packet() {
    let error = |inner: &[u8]| {
        let message = [&[3, 1, 0, 0, 0, 0, 0, 0], inner].concat();
        let packet = v4(protocol::ICMP, (0, false), &message);
        let outer = of::<Ipv4Addr>(&packet);
        assert!(outer.is_icmp_error);
        let quoted = outer.with_hairpin(true).quoted()?;
        assert!(quoted.hairpin && (quoted.src, quoted.dst) == V4);
        quoted.transport()
    };
    // 8 octets of a TCP header are enough, and the flags are beyond them.
    let inner = v4(protocol::TCP, (0, false), &tcp(0x12));
    for len in [28, 30, 40] {
        let expected = Transport::Tcp { src: 0x1234, dst: 80, flags: 0 };
        assert_eq!(error(&inner[..len]), Ok(expected), "{len}");
    }
    for len in [0, 19, 20, 27] {
        assert_eq!(error(&inner[..len]), Err(DropReason::IcmpInner), "{len}");
    }
    let expected = Transport::Udp { src: 0x1234, dst: 53 };
    assert_eq!(error(&v4(protocol::UDP, (0, false), &UDP)), Ok(expected));
    assert_eq!(error(&v4(protocol::UDP, (0, true), &UDP)), Ok(expected));
    assert_eq!(error(&v4(protocol::UDP, (8, true), &UDP)), Err(DropReason::IcmpInner));
    let echo = [8, 0, 0, 0, 0xab, 0xcd, 0, 1];
    let expected = Transport::IcmpQuery { id: 0xabcd, is_request: true };
    assert_eq!(error(&v4(protocol::ICMP, (0, false), &echo)), Ok(expected));
    let nested = [11, 0, 0, 0, 0, 0, 0, 0];
    let inner = v4(protocol::ICMP, (0, false), &nested);
    assert_eq!(error(&inner), Err(DropReason::IcmpNested));
    let timestamp = [13, 0, 0, 0, 0, 0, 0, 0];
    let inner = v4(protocol::ICMP, (0, false), &timestamp);
    assert_eq!(error(&inner), Err(DropReason::IcmpInner));
    assert_eq!(error(&v4(132, (0, false), &[0; 20])), Err(DropReason::IcmpInner));
}

#[test]
fn an_icmpv6_error_quotes_a_packet_behind_extension_headers() {
    let udp = [&[protocol::UDP, 0, 0, 0, 0, 0, 0, 0][..], &UDP].concat();
    let message = [&[1, 4, 0, 0, 0, 0, 0, 0][..], &v6(protocol::IPV6_OPTS, &udp)].concat();
    let packet = v6(protocol::ICMPV6, &message);
    let outer = of::<Ipv6Addr>(&packet);
    assert_eq!((outer.packet(), outer.segment()), (&packet[..], &message[..]));
    let quoted = outer.quoted().unwrap();
    assert_eq!(quoted.transport(), Ok(Transport::Udp { src: 0x1234, dst: 53 }));
    assert!(!quoted.hairpin);
}
