//! Datagrams with messages through a whole translator: what goes on, what is sent back, and what nobody reads.

extern crate std;

use alloc::sync::Arc;
use alloc::vec;
use core::net::{IpAddr, SocketAddr};

use fordway_wire::checksum::Sum;

use super::*;
use crate::nat64::{Heap, Pool, Range as Ports, Settings, Sizes};
use crate::packet::Offload;
use crate::{HEADROOM, Translator};

const HOST: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 0x31);
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
const SERVER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x64, 0, 0, 0, 0xc633, 0x6407);
const POOL: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 31);

/// Says nothing about most messages: `=TEXT` becomes TEXT, `+TEXT` a hundred times TEXT, `!TEXT` is answered by TEXT.
#[derive(Debug)]
struct Parrot;

impl DnsReader for Parrot {
    fn message(&self, exchange: &Exchange<'_>, message: &[u8], out: &mut Vec<u8>) -> DnsAction {
        assert_eq!((exchange.host, exchange.remote), ((HOST, 4000), (SERVER, PORT)));
        assert_eq!(exchange.local.0, POOL);
        let Some((first, text)) = message.split_first() else { return DnsAction::Pass };
        let action = match first {
            b'=' | b'+' => DnsAction::Replace,
            b'!' => DnsAction::Return,
            _ => return DnsAction::Pass,
        };
        out.extend(text.repeat(if *first == b'+' { 100 } else { 1 }));
        action
    }
}

struct Gateway {
    translator: Translator,
    state: State,
}

/// A datagram: its ends, and what it says.
type Datagram = (SocketAddr, SocketAddr, Vec<u8>);

impl Gateway {
    fn new() -> Gateway {
        let sizes = Sizes { bibs: 64, sessions: 64, subscribers: 16 };
        let range = Ports { first: POOL, last: POOL, low: 1024, high: 65_535 };
        let settings = Settings {
            pools: vec![Pool { ranges: vec![range], ..Pool::default() }],
            sizes,
            dns: Some(Arc::new(Parrot)),
            ..Settings::default()
        };
        let nat64 = Nat64::new(settings, Arc::new(Heap::new(&sizes, [3, 4]))).unwrap();
        let pool6 = vec!["2001:db8:64::/96".parse().unwrap()];
        let config = Config { pool6, mtu4: 1500, mtu6: 1500, ..Config::default() };
        let translator = Translator::nat64(config, Arc::new(nat64)).unwrap();
        Gateway { translator, state: State::new(1) }
    }

    /// What becomes of a packet, which has `room` octets behind it.
    fn pass(&mut self, packet: &[u8], room: usize) -> (Verdict, Vec<u8>) {
        let mut buffer = vec![0; HEADROOM + packet.len() + room];
        let range = HEADROOM..HEADROOM + packet.len();
        buffer[range.clone()].copy_from_slice(packet);
        let mut packet = Packet::new(&mut buffer, range, Offload::default());
        let now = Duration::from_secs(1000);
        let verdict = self.translator.translate(&mut packet, now, &mut self.state, &mut ());
        (verdict, packet.bytes().to_vec())
    }

    fn say(&mut self, src: SocketAddr, dst: SocketAddr, text: &[u8]) -> Datagram {
        let (verdict, packet) = self.pass(&written(src, dst, text), 100);
        assert_eq!(verdict, Verdict::Forward);
        read(&packet)
    }

    /// Gives where the server hears the host from.
    fn begin(&mut self) -> SocketAddr {
        let (src, dst, text) = self.say(host(), server6(), b"hello");
        assert_eq!((src.ip(), dst, &text[..]), (POOL.into(), server(), &b"hello"[..]));
        src
    }
}

fn host() -> SocketAddr {
    (HOST, 4000).into()
}

fn server() -> SocketAddr {
    (SERVER, PORT).into()
}

fn server6() -> SocketAddr {
    (SERVER6, PORT).into()
}

/// A datagram without a checksum, to be put into a packet, and what its checksum is made of.
fn udp_of(src: SocketAddr, dst: SocketAddr, text: &[u8]) -> Vec<u8> {
    let mut udp = vec![0; transport::UDP_HEADER_LEN];
    put_u16(&mut udp, 0, src.port());
    put_u16(&mut udp, 2, dst.port());
    put_u16(&mut udp, 4, (transport::UDP_HEADER_LEN + text.len()) as u16);
    udp.extend_from_slice(text);
    udp
}

fn written(src: SocketAddr, dst: SocketAddr, text: &[u8]) -> Vec<u8> {
    let mut udp = udp_of(src, dst, text);
    let len = udp.len();
    let (ip, pseudo) = match (src.ip(), dst.ip()) {
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let payload_len = len as u16;
            let (traffic_class, flow_label, next_header, hop_limit) = (0, 0, protocol::UDP, 64);
            let header = Ipv6Header {
                traffic_class,
                flow_label,
                payload_len,
                next_header,
                hop_limit,
                src,
                dst,
            };
            (header.to_bytes().to_vec(), pseudo_v6(src, dst, protocol::UDP, len as u32))
        }
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol::UDP, 0, 0];
            put_u16(&mut ip, 2, 20 + len as u16);
            ip.extend([src.octets(), dst.octets()].concat());
            let sum = Sum::ZERO.add_bytes(&ip).finish();
            put_u16(&mut ip, 10, sum);
            (ip, pseudo_v4(src, dst, protocol::UDP, len as u32))
        }
        _ => unreachable!(),
    };
    let sum = pseudo.add_bytes(&udp).finish();
    put_u16(&mut udp, transport::UDP_CHECKSUM_AT, sum);
    [ip, udp].concat()
}

/// Reads a packet, whose lengths and checksums must be right.
fn read(packet: &[u8]) -> Datagram {
    let (src, dst, at, pseudo): (IpAddr, IpAddr, _, _) = if packet[0] >> 4 == 4 {
        let ip = Ipv4Header::parse(packet).unwrap();
        assert_eq!(usize::from(ip.total_len), packet.len());
        assert_eq!(Sum::ZERO.add_bytes(&packet[..20]).finish(), 0);
        let len = packet.len() as u32 - 20;
        (ip.src.into(), ip.dst.into(), 20, pseudo_v4(ip.src, ip.dst, protocol::UDP, len))
    } else {
        let ip = Ipv6Header::parse(packet).unwrap();
        assert_eq!(usize::from(ip.payload_len) + 40, packet.len());
        let len = packet.len() as u32 - 40;
        (ip.src.into(), ip.dst.into(), 40, pseudo_v6(ip.src, ip.dst, protocol::UDP, len))
    };
    let udp = &packet[at..];
    assert_eq!(usize::from(get_u16(udp, 4)), udp.len());
    assert_ne!(get_u16(udp, 6), 0);
    assert_eq!(pseudo.add_bytes(udp).finish(), 0);
    ((src, get_u16(udp, 0)).into(), (dst, get_u16(udp, 2)).into(), udp[8..].to_vec())
}

#[test]
fn a_message_is_replaced_by_a_longer_or_shorter_one() {
    let mut gateway = Gateway::new();
    let known = gateway.begin();
    for text in [&b"="[..], b"=a", b"=odd", b"=somewhat longer than it was"] {
        assert_eq!(gateway.say(host(), server6(), text), (known, server(), text[1..].to_vec()));
        assert_eq!(gateway.say(server(), known, text), (server6(), host(), text[1..].to_vec()));
    }
    assert_eq!(gateway.say(server(), known, b"as it is").2, b"as it is");
}

#[test]
fn a_checksum_of_zero_is_written_as_ones() {
    let mut gateway = Gateway::new();
    let known = gateway.begin();
    // The last word goes through all values, so that one of the sums is 0.
    for word in 0..=u16::MAX {
        let [high, low] = word.to_be_bytes();
        gateway.say(server(), known, &[b'=', high, low]);
    }
}

#[test]
fn an_answer_goes_back_to_who_has_asked() {
    let mut gateway = Gateway::new();
    let known = gateway.begin();
    let answer = gateway.say(host(), server6(), b"!to the host itself");
    assert_eq!(answer, (server6(), host(), b"to the host itself".to_vec()));
    let answer = gateway.say(server(), known, b"!to the server");
    assert_eq!(answer, (known, server(), b"to the server".to_vec()));
    let (_, packet) = gateway.pass(&written(server(), known, b"!x"), 100);
    assert_eq!((packet[8], packet[6] & 0x40), (64, 0x40), "a hop limit of its own, and DF");
    let (_, packet) = gateway.pass(&written(host(), server6(), b"!x"), 100);
    assert_eq!(packet[7], 64);
}

#[test]
fn what_is_not_translated_is_shown_to_nobody() {
    let mut gateway = Gateway::new();
    let (verdict, _) = gateway.pass(&written(server(), (POOL, 4000).into(), b"=text"), 100);
    assert_eq!(verdict, Verdict::Drop(DropReason::NoBib));
}

/// The ALG is for what crosses between IPv4 and IPv6.
#[test]
fn a_message_from_host_to_host_passes_as_it_is() {
    let mut gateway = Gateway::new();
    let known = gateway.begin();
    let IpAddr::V4(known_v4) = known.ip() else { panic!("{known}") };
    let inside = (
        Ipv6Addr::from_bits(SERVER6.to_bits() >> 32 << 32 | u128::from(known_v4.to_bits())),
        known.port(),
    );
    let other = (Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 0x32), PORT);
    let (_, dst, text) = gateway.say(other.into(), inside.into(), b"=text");
    assert_eq!((dst, &text[..]), (host(), &b"=text"[..]));
}

#[test]
fn a_message_that_there_is_no_room_for_is_dropped() {
    let mut gateway = Gateway::new();
    let known = gateway.begin();
    let packet = written(host(), server6(), b"+ten octets");
    let (verdict, _) = gateway.pass(&packet, 1000);
    assert_eq!(verdict, Verdict::Forward);
    let (verdict, _) = gateway.pass(&packet, 900);
    assert_eq!(verdict, Verdict::Drop(DropReason::NoHeadroom));
    assert_eq!(gateway.say(server(), known, b"=later").2, b"later");
}

/// An IPv6 packet whose UDP header stands behind a Fragment Header.
fn behind_fragment_header(offset: u16, more: bool) -> Vec<u8> {
    let mut packet = written(host(), server6(), b"=text");
    packet[6] = protocol::IPV6_FRAG;
    let len = get_u16(&packet, 4) + 8;
    put_u16(&mut packet, 4, len);
    let [high, low] = (offset | u16::from(more)).to_be_bytes();
    packet.splice(40..40, [protocol::UDP, 0, high, low, 0, 0, 0, 7]);
    packet
}

#[test]
fn only_whole_datagrams_are_read() {
    assert!(udp(&behind_fragment_header(0, false)).is_some(), "an atomic fragment is whole");
    assert!(udp(&behind_fragment_header(0, true)).is_none());
    assert!(udp(&behind_fragment_header(1480, false)).is_none());
    assert!(udp(&behind_fragment_header(1480, true)).is_none());

    let whole = written(server(), (POOL, 4000).into(), b"text");
    let (ends, payload) = udp(&whole).unwrap();
    assert!(matches!(ends, Ends::V4((SERVER, PORT), (POOL, 4000))));
    assert_eq!(&whole[payload], b"text");
    for (fragment, is_read) in [(0x0000, true), (0x4000, true), (0x2000, false), (0x0001, false)] {
        let mut packet = whole.clone();
        put_u16(&mut packet, 6, fragment);
        put_u16(&mut packet, 10, 0);
        let sum = Sum::ZERO.add_bytes(&packet[..20]).finish();
        put_u16(&mut packet, 10, sum);
        assert_eq!(udp(&packet).is_some(), is_read, "{fragment:#06x}");
    }
}

#[test]
fn a_length_that_contradicts_the_packet_is_not_believed() {
    let whole = written(host(), server6(), b"text");
    for (len, payload) in [(7, None), (8, Some(0)), (11, Some(3)), (12, Some(4)), (13, None)] {
        let mut packet = whole.clone();
        put_u16(&mut packet, 44, len);
        assert_eq!(udp(&packet).map(|(_, it)| it.len()), payload, "{len}");
    }
    for end in 0..whole.len() {
        udp(&whole[..end]);
    }
}
