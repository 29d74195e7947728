//! The DNS gateway of NAT-PT, in the path of datagrams and of connections.
//!
//! The first octet chooses: datagrams through a whole translator (0), or connections (1), whose messages come in one
//! piece each and, a second time, cut anywhere: both must become the same. Then follow messages:
//!
//! ```text
//! message *   kind, length, octets
//! ```
//!
//! Kind: bit 0 who speaks (0 the client), bits 1 and 2 how the message is made (any octets; a question; an answer, whose
//! records are the octets behind six that say RCODE, flags and counts), bit 3 the client's side, bits 4 and 5 what is asked
//! for, bit 6 EDNS with DO, bit 7 that time passes. Pointers to the name that was asked for are `c00c`.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use fordway_dns64::alg::{DnsAlg, DnsPolicy, DnsStreams};
use fordway_wire::tcp::flag::{ACK, SYN};
use fordway_xlat::alg::{Alg, AlgCounters, Connection, Context, Ends, Mappings, Passed, TcpFields};
use fordway_xlat::nat64::{Addresses, Heap, Nat64, Pool, Range, Settings, Side, Sizes};
use fordway_xlat::{Config, HEADROOM, Offload, Packet, State, Translator, Verdict};
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query};
use hickory_proto::rr::{Name, RData, RecordType};

use crate::checksum::{Endpoints, add, checksum, sum};
use crate::view::View;

const CLIENT4: (Ipv4Addr, u16) = (Ipv4Addr::new(198, 51, 100, 9), 4000);
const SERVER4: (Ipv4Addr, u16) = (Ipv4Addr::new(198, 51, 100, 53), 53);
const CLIENT6: (Ipv6Addr, u16) = (Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 5), 5000);
const SERVER6: (Ipv6Addr, u16) = (Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 0x53), 53);
/// By what IPv4 knows the server of the IPv6 side.
const SERVER6_IN_IPV4: (Ipv4Addr, u16) = (Ipv4Addr::new(203, 0, 113, 65), 53);

/// Messages of one input at most.
const MESSAGES: usize = 48;

/// The longest message that the gateway may write in the place of another over UDP.
const PAYLOAD: usize = 1232;

/// Octets as messages: see the module.
pub fn dns_gateway(data: &[u8]) {
    match data {
        [choose, rest @ ..] if choose & 1 == 0 => datagrams(rest),
        [_, cuts, rest @ ..] => streams(*cuts, rest),
        _ => {}
    }
}

struct Bench {
    config: Config,
    nat64: Arc<Nat64>,
    gateway: Arc<DnsAlg>,
    now: Duration,
}

impl Bench {
    fn new() -> Bench {
        let gateway =
            Arc::new(DnsAlg::new(DnsPolicy { most_addresses: 2, ..DnsPolicy::default() }));
        let addresses = Addresses {
            pool: vec!["203.0.113.64/29".parse().expect("a network")],
            fixed: vec![(SERVER6_IN_IPV4.0, SERVER6.0)],
            hold: Duration::from_secs(60),
            ..Addresses::default()
        };
        let address = Ipv4Addr::new(203, 0, 113, 1);
        let range = Range { first: address, last: address, low: 1024, high: 65_535 };
        let settings = Settings {
            pools: vec![Pool { ranges: vec![range], ..Pool::default() }],
            dns: Some(Arc::clone(&gateway) as Arc<dyn fordway_xlat::dns::DnsReader>),
            addresses: Some(addresses),
            sizes: Sizes { bibs: 64, sessions: 64, subscribers: 64 },
            ..Settings::default()
        };
        let memory = Heap::new(&settings.sizes, [1, 2]);
        let nat64 = Arc::new(Nat64::new(settings, Arc::new(memory)).expect("settings fit"));
        assert!(nat64.make_fixed_addresses(Duration::ZERO).is_empty());
        let config = Config {
            pool6: vec!["2001:db8:64::/96".parse().expect("a prefix")],
            ..Config::default()
        };
        Bench { config, nat64, gateway, now: Duration::from_secs(1000) }
    }

    /// The IPv6 address of an IPv4 host.
    fn v6_of(&self, addr: Ipv4Addr) -> Ipv6Addr {
        self.config.pool6[0].embed(addr)
    }

    /// What the client gets in an answer that the gateway has written is true: addresses are bound to hosts, or
    /// stand for IPv4 hosts.
    fn check_answer(&self, client: Side, octets: &[u8]) {
        let message = Message::from_vec(octets).expect("the gateway writes what can be read");
        for record in &message.answers {
            match (client, &record.data) {
                (Side::V4, RData::A(a)) => {
                    assert!(self.nat64.bound_host(a.0, self.now).is_some(), "{} is nobody's", a.0);
                }
                (Side::V6, RData::AAAA(aaaa)) => {
                    assert!(self.config.pool6[0].contains(aaaa.0), "{} is elsewhere", aaaa.0);
                }
                _ => {}
            }
        }
    }
}

/// One message of the input.
struct Said<'a> {
    kind: u8,
    octets: &'a [u8],
}

fn said(mut data: &[u8]) -> impl Iterator<Item = Said<'_>> {
    std::iter::from_fn(move || {
        let [kind, len, rest @ ..] = data else { return None };
        let (octets, behind) = rest.split_at(usize::from(*len).min(rest.len()));
        data = behind;
        Some(Said { kind: *kind, octets })
    })
    .take(MESSAGES)
}

impl Said<'_> {
    fn is_answer(&self) -> bool {
        self.kind & 1 != 0
    }

    fn client(&self) -> Side {
        if self.kind & 8 == 0 { Side::V4 } else { Side::V6 }
    }

    /// The message; an answer is one to `asked`.
    fn message(&self, asked: &[u8]) -> Vec<u8> {
        match self.kind >> 1 & 3 {
            1 => self.question().unwrap_or_default(),
            2 | 3 => self.answer(asked).unwrap_or_default(),
            _ => self.octets.to_vec(),
        }
    }

    fn question(&self) -> Option<Vec<u8>> {
        let [id, name, ..] = *self.octets else { return None };
        let record_type = match self.kind >> 4 & 3 {
            0 => RecordType::A,
            1 => RecordType::AAAA,
            2 => RecordType::PTR,
            _ => RecordType::MX,
        };
        let names = [
            "www.example.net.",
            "65.113.0.203.in-addr.arpa.",
            "66.113.0.203.in-addr.arpa.",
            "0.5.4.6.3.3.6.c.0.0.0.0.0.0.0.0.0.0.0.0.4.6.0.0.8.b.d.0.1.0.0.2.ip6.arpa.",
            ".",
        ];
        let name = Name::from_ascii(names[usize::from(name) % names.len()]).ok()?;
        let mut message = Message::new(u16::from(id), MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = true;
        message.queries.push(Query::query(name, record_type));
        if self.kind & 0x40 != 0 {
            let mut edns = Edns::new();
            edns.set_max_payload(u16::from(*self.octets.get(2).unwrap_or(&4)) << 8);
            edns.set_dnssec_ok(true);
            message.set_edns(edns);
        }
        message.to_vec().ok()
    }

    fn answer(&self, asked: &[u8]) -> Option<Vec<u8>> {
        let [code, high, low, answers, authorities, others, records @ ..] = self.octets else {
            return None;
        };
        // The question ends behind its name, type and class.
        let mut end = 12;
        while *asked.get(end)? != 0 {
            end += usize::from(asked[end]) + 1;
        }
        let question = asked.get(12..end + 5)?;
        let mut message = asked[..2].to_vec();
        message.extend([0x80 | high & 0x07, low & 0xb0 | code & 15, 0, 1]);
        message.extend([0, *answers, 0, *authorities, 0, *others]);
        message.extend(question);
        message.extend(records);
        Some(message)
    }
}

/// Through a whole translator, packet by packet.
fn datagrams(data: &[u8]) {
    let mut bench = Bench::new();
    let nat64 = Arc::clone(&bench.nat64);
    let translator = Translator::nat64(bench.config.clone(), nat64).expect("a prefix");
    let mut state = State::new(7);
    // What the server of each side was asked last, and by whom in its own family.
    let mut asked: [Option<(Vec<u8>, Vec<u8>)>; 2] = [None, None];
    for it in said(data) {
        if it.kind & 0x80 != 0 {
            bench.now += Duration::from_secs(10);
        }
        let client = it.client();
        let place = usize::from(client == Side::V6);
        let known = asked[place].as_ref();
        let message = it.message(known.map(|(message, _)| &message[..]).unwrap_or_default());
        let packet = match (it.is_answer(), known) {
            (false, _) if client == Side::V4 => v4(CLIENT4, SERVER6_IN_IPV4, &message),
            (false, _) => v6(CLIENT6, (bench.v6_of(SERVER4.0), SERVER4.1), &message),
            (true, Some((_, packet))) => back(packet, &message),
            (true, None) => continue,
        };
        let mut buffer = vec![0xa5; 2 * HEADROOM + packet.len() + 2048];
        let range = 2 * HEADROOM..2 * HEADROOM + packet.len();
        buffer[range.clone()].copy_from_slice(&packet);
        let mut it_is = Packet::new(&mut buffer, range, Offload::default());
        if translator.translate(&mut it_is, bench.now, &mut state, &mut ()) != Verdict::Forward {
            continue;
        }
        let out = it_is.bytes().to_vec();
        assert_eq!(it_is.offload, Offload::default());
        let view = View::of(&out).expect("a packet");
        assert!(view.length == out.len() && view.header_checksum_is_right(), "{out:02x?}");
        assert_eq!(view.deviation(), Some(0), "{out:02x?}");
        let got = &view.payload()[8..];
        let towards_server = view.payload()[2..4] == 53u16.to_be_bytes();
        if towards_server {
            // A question of the gateway itself goes back to the server's side, too.
            asked[place] = Some((got.to_vec(), out.clone()));
        }
        if got != message {
            assert!(got.len() <= PAYLOAD, "{} octets", got.len());
            if !towards_server {
                bench.check_answer(client, got);
            }
        }
    }
}

/// Gives whatever the tables give.
struct Mapper<'a>(&'a Config, &'a Nat64);

impl Mappings for Mapper<'_> {
    fn expect(
        &mut self,
        _host: (Ipv6Addr, u16),
        _at: Ipv4Addr,
        _from: Ipv4Addr,
        _pool6: u8,
    ) -> Option<(Ipv4Addr, u16)> {
        None
    }

    fn v6_of(&self, _pool6: u8, addr: Ipv4Addr) -> Option<Ipv6Addr> {
        Some(self.0.pool6[0].embed(addr))
    }

    fn tables(&self) -> Option<(&Config, &Nat64)> {
        Some((self.0, self.1))
    }
}

/// One direction of a connection in front of and behind the gateway.
#[derive(Default)]
struct Way {
    next: u32,
    out_next: u32,
    out: Vec<u8>,
}

/// What stands on both sides of a connection in the end; messages come in segments of `cut` octets, 0 for whole.
fn stream(client: Side, data: &[u8], cut: usize) -> [Vec<u8>; 2] {
    let bench = Bench::new();
    let (host, local, remote) = match client {
        Side::V4 => (SERVER6, SERVER6_IN_IPV4, CLIENT4),
        Side::V6 => (CLIENT6, (Ipv4Addr::new(203, 0, 113, 1), 2000), SERVER4),
    };
    let ends = Ends { opener: client, host, local, remote, pool6: 0 };
    let streams = DnsStreams::new(Arc::clone(&bench.gateway));
    let mut connection = Connection::new(streams.open(&ends));
    let counters = AlgCounters::default();
    let mut pass = |from: Side, mut fields: TcpFields, payload: &[u8]| {
        let (mut mapper, mut out) = (Mapper(&bench.config, &bench.nat64), Vec::new());
        let mut context = Context::new(ends, bench.now, &counters, &mut mapper);
        let passed = connection.pass(from, &mut fields, payload, true, &mut out, &mut context);
        (fields, if passed == Passed::Same { payload.to_vec() } else { out })
    };
    let server = if client == Side::V4 { Side::V6 } else { Side::V4 };
    let isses = [1000_u32, 0xffff_ff00];
    let mss = Some(1460);
    pass(client, TcpFields { seq: isses[0], flags: SYN, mss, ..TcpFields::default() }, &[]);
    let answer =
        TcpFields { seq: isses[1], ack: 1001, flags: SYN | ACK, mss, ..TcpFields::default() };
    pass(server, answer, &[]);
    let way =
        |iss: u32| Way { next: iss.wrapping_add(1), out_next: iss.wrapping_add(1), out: vec![] };
    let mut ways = isses.map(way);
    let mut asked = Vec::new();
    for it in said(data) {
        let speaker = usize::from(it.is_answer());
        let (from, to) = if speaker == 0 { (client, server) } else { (server, client) };
        let message = it.message(&asked);
        let mut octets = (message.len() as u16).to_be_bytes().to_vec();
        octets.extend(&message);
        let before = ways[speaker].out.len();
        for part in octets.chunks(if cut == 0 { octets.len() } else { cut }) {
            let [seq, ack] = [ways[speaker].next, ways[1 - speaker].out_next];
            let fields = TcpFields { seq, ack, flags: ACK, window: 60_000, ..TcpFields::default() };
            let (fields, out) = pass(from, fields, part);
            let way = &mut ways[speaker];
            way.next = seq.wrapping_add(part.len() as u32);
            assert!(out.is_empty() || fields.seq == way.out_next, "octets in their order");
            way.out_next = way.out_next.wrapping_add(out.len() as u32);
            way.out.extend(out);
            // Whoever got it says so.
            let [seq, ack] = [ways[1 - speaker].next, ways[speaker].out_next];
            pass(
                to,
                TcpFields { seq, ack, flags: ACK, window: 60_000, ..TcpFields::default() },
                &[],
            );
        }
        let new = &ways[speaker].out[before..];
        if speaker == 0 && new.len() > 2 {
            asked = new[2..].to_vec();
        }
    }
    ways.map(|way| way.out)
}

fn streams(cuts: u8, data: &[u8]) {
    let client = if cuts & 0x80 == 0 { Side::V4 } else { Side::V6 };
    let whole = stream(client, data, 0);
    let cut = stream(client, data, usize::from(cuts & 0x7f) + 1);
    assert!(whole == cut, "whole {whole:02x?}\ncut {cut:02x?}");
}

fn udp(ends: Endpoints, ports: (u16, u16), message: &[u8]) -> Vec<u8> {
    let mut datagram = Vec::with_capacity(8 + message.len());
    datagram.extend(ports.0.to_be_bytes());
    datagram.extend(ports.1.to_be_bytes());
    datagram.extend((8 + message.len() as u16).to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend(message);
    let value = match !add(ends.pseudo_header(17, datagram.len()), sum(&datagram)) {
        0 => 0xffff,
        value => value,
    };
    datagram[6..8].copy_from_slice(&value.to_be_bytes());
    datagram
}

fn v4(src: (Ipv4Addr, u16), dst: (Ipv4Addr, u16), message: &[u8]) -> Vec<u8> {
    let datagram = udp(Endpoints::V4(src.0, dst.0), (src.1, dst.1), message);
    let mut packet = vec![0x45, 0, 0, 0, 0, 1, 0, 0, 64, 17, 0, 0];
    packet.extend(src.0.octets());
    packet.extend(dst.0.octets());
    let len = (packet.len() + datagram.len()) as u16;
    packet[2..4].copy_from_slice(&len.to_be_bytes());
    let value = checksum(&packet);
    packet[10..12].copy_from_slice(&value.to_be_bytes());
    packet.extend(datagram);
    packet
}

fn v6(src: (Ipv6Addr, u16), dst: (Ipv6Addr, u16), message: &[u8]) -> Vec<u8> {
    let datagram = udp(Endpoints::V6(src.0, dst.0), (src.1, dst.1), message);
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((datagram.len() as u16).to_be_bytes());
    packet.extend([17, 64]);
    packet.extend(src.0.octets());
    packet.extend(dst.0.octets());
    packet.extend(datagram);
    packet
}

/// From whom a packet went to, to whom it came from.
fn back(packet: &[u8], message: &[u8]) -> Vec<u8> {
    let view = View::of(packet).expect("a packet that was forwarded");
    let port = |at: usize| u16::from_be_bytes([view.payload()[at], view.payload()[at + 1]]);
    let (src, dst) = (port(0), port(2));
    if view.v4 {
        let address =
            |octets: &[u8]| Ipv4Addr::from(<[u8; 4]>::try_from(octets).unwrap_or_default());
        v4((address(view.dst), dst), (address(view.src), src), message)
    } else {
        let address =
            |octets: &[u8]| Ipv6Addr::from(<[u8; 16]>::try_from(octets).unwrap_or_default());
        v6((address(view.dst), dst), (address(view.src), src), message)
    }
}
