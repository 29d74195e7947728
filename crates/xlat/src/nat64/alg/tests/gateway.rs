//! A whole translator with FTP, what is said through it, and what is heard.

use alloc::sync::Arc;
use alloc::vec;
use core::net::IpAddr;

use fordway_wire::checksum::{Sum, pseudo_v4, pseudo_v6};
use fordway_wire::ipv4::Ipv4Header;
use fordway_wire::ipv6::Ipv6Header;
use fordway_wire::{get_u16, protocol, put_u16, put_u32};

use super::*;
use crate::nat64::{Heap, Memory, Nat64, Pool, Range, Settings, Sizes};
use crate::packet::{ChecksumState, Offload, Packet};
use crate::trace::Step;
use crate::{Config, HEADROOM, State, Translator, Verdict};
use fordway_wire::tcp::flag;

pub(super) const HOST: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 0x31);
pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
pub(super) const SERVER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x64, 0, 0, 0, 0xc633, 0x6407);
pub(super) const POOL: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 31);

pub(super) fn config() -> Config {
    let pool6 = vec!["2001:db8:64::/96".parse().unwrap()];
    Config { pool6, mtu4: 1500, mtu6: 1500, ..Config::default() }
}

pub(super) fn settings(has_ftp: bool) -> Settings {
    let range = Range { first: POOL, last: POOL, low: 1024, high: 65_535 };
    Settings {
        pools: vec![Pool { ranges: vec![range], ..Pool::default() }],
        sizes: Sizes { bibs: 64, sessions: 64, subscribers: 16 },
        algs: has_ftp.then(|| Arc::new(Ftp::default()) as Arc<dyn Alg>).into_iter().collect(),
        ..Settings::default()
    }
}

/// What is said in a segment, and by whom.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(super) src: (IpAddr, u16),
    pub(super) dst: (IpAddr, u16),
    pub(super) fields: TcpFields,
    pub(super) payload: Vec<u8>,
}

pub(super) fn written(said: &Said) -> Vec<u8> {
    let mss = said.fields.mss;
    let header_len = if mss.is_some() { 24 } else { 20 };
    let mut tcp = vec![0; header_len];
    put_u16(&mut tcp, 0, said.src.1);
    put_u16(&mut tcp, 2, said.dst.1);
    put_u32(&mut tcp, 4, said.fields.seq);
    put_u32(&mut tcp, 8, said.fields.ack);
    tcp[12] = (header_len as u8 / 4) << 4;
    tcp[13] = said.fields.flags;
    put_u16(&mut tcp, 14, 5000);
    if let Some(mss) = mss {
        tcp[20..22].copy_from_slice(&[2, 4]);
        put_u16(&mut tcp, 22, mss);
    }
    tcp.extend_from_slice(&said.payload);
    let len = tcp.len();
    let (ip, pseudo) = match (said.src.0, said.dst.0) {
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let mut ip = vec![0x60, 0, 0, 0, 0, 0, protocol::TCP, 64];
            put_u16(&mut ip, 4, len as u16);
            ip.extend([src.octets(), dst.octets()].concat());
            (ip, pseudo_v6(src, dst, protocol::TCP, len as u32))
        }
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol::TCP, 0, 0];
            put_u16(&mut ip, 2, 20 + len as u16);
            ip.extend([src.octets(), dst.octets()].concat());
            let sum = Sum::ZERO.add_bytes(&ip).finish();
            put_u16(&mut ip, 10, sum);
            (ip, pseudo_v4(src, dst, protocol::TCP, len as u32))
        }
        _ => unreachable!(),
    };
    let sum = pseudo.add_bytes(&tcp).finish();
    put_u16(&mut tcp, 16, sum);
    [ip, tcp].concat()
}

/// Reads a packet, whose lengths and checksums must be right.
pub(super) fn read(packet: &[u8], offload: Offload) -> Said {
    let (src, dst, at, pseudo): (IpAddr, IpAddr, _, _) = if packet[0] >> 4 == 4 {
        let ip = Ipv4Header::parse(packet).unwrap();
        assert_eq!(usize::from(ip.total_len), packet.len());
        assert_eq!(Sum::ZERO.add_bytes(&packet[..20]).finish(), 0);
        let len = packet.len() as u32 - 20;
        (ip.src.into(), ip.dst.into(), 20, pseudo_v4(ip.src, ip.dst, protocol::TCP, len))
    } else {
        let ip = Ipv6Header::parse(packet).unwrap();
        assert_eq!(usize::from(ip.payload_len) + 40, packet.len());
        let len = packet.len() as u32 - 40;
        (ip.src.into(), ip.dst.into(), 40, pseudo_v6(ip.src, ip.dst, protocol::TCP, len))
    };
    let tcp = &packet[at..];
    match offload.checksum {
        ChecksumState::Partial { start, offset } => {
            assert_eq!((usize::from(start), offset), (at, 16));
            assert_eq!(get_u16(tcp, 16), pseudo.fold());
        }
        _ => assert_eq!(pseudo.add_bytes(tcp).finish(), 0),
    }
    let (fields, len) = TcpFields::parse(tcp).unwrap();
    let (src, dst) = ((src, get_u16(tcp, 0)), (dst, get_u16(tcp, 2)));
    Said { src, dst, fields, payload: tcp[len..].to_vec() }
}

pub(super) struct Gateway {
    pub(super) memory: Arc<dyn Memory>,
    pub(super) nat: Arc<Nat64>,
    pub(super) translator: Translator,
    pub(super) state: State,
    pub(super) seconds: u64,
    /// What was done to the last packet.
    pub(super) steps: Vec<Step>,
}

impl Gateway {
    pub(super) fn on(memory: Arc<dyn Memory>) -> Gateway {
        Gateway::of(settings(true), memory)
    }

    pub(super) fn of(settings: Settings, memory: Arc<dyn Memory>) -> Gateway {
        let nat = Arc::new(Nat64::new(settings, Arc::clone(&memory)).unwrap());
        let translator = Translator::nat64(config(), Arc::clone(&nat)).unwrap();
        let (state, steps) = (State::new(1), Vec::new());
        Gateway { memory, nat, translator, state, seconds: 1000, steps }
    }

    pub(super) fn new() -> Gateway {
        Gateway::on(Arc::new(Heap::new(&settings(true).sizes, [3, 4])))
    }

    /// Lets a packet pass.
    pub(super) fn pass_with(&mut self, said: &Said, offload: Offload) -> (Said, Offload) {
        self.pass_in(said, offload, 2000)
    }

    /// Lets a packet pass that has so much room behind it.
    pub(super) fn pass_in(
        &mut self,
        said: &Said,
        offload: Offload,
        room: usize,
    ) -> (Said, Offload) {
        let packet = written(said);
        let mut buffer = vec![0; HEADROOM + packet.len() + room];
        let range = HEADROOM..HEADROOM + packet.len();
        buffer[range.clone()].copy_from_slice(&packet);
        if let ChecksumState::Partial { start, offset } = offload.checksum {
            // As a host leaves it to its device.
            let Ok(ip) = Ipv6Header::parse(&packet) else { panic!("IPv6 only") };
            let len = packet.len() as u32 - 40;
            let pseudo = pseudo_v6(ip.src, ip.dst, protocol::TCP, len).fold();
            put_u16(&mut buffer[range.clone()], usize::from(start + offset), pseudo);
        }
        let mut packet = Packet::new(&mut buffer, range, offload);
        let now = Duration::from_secs(self.seconds);
        self.steps.clear();
        let Gateway { translator, state, steps, .. } = self;
        let verdict = translator.translate(&mut packet, now, state, steps);
        assert_eq!(verdict, Verdict::Forward);
        (read(packet.bytes(), packet.offload), packet.offload)
    }

    pub(super) fn pass(&mut self, said: &Said) -> Said {
        self.pass_with(said, Offload::default()).0
    }

    /// The client says something; what the server hears comes back.
    pub(super) fn client(&mut self, seq: u32, ack: u32, flags: u8, payload: &[u8]) -> Said {
        let mss = (flags & flag::SYN != 0).then_some(1440);
        let fields = TcpFields { seq, ack, flags, mss, ..TcpFields::default() };
        let (src, dst) = ((HOST.into(), 4000), (SERVER6.into(), 21));
        self.pass(&Said { src, dst, fields, payload: payload.to_vec() })
    }

    /// The server says something, to where it heard the client from.
    pub(super) fn server(
        &mut self,
        heard: &Said,
        seq: u32,
        ack: u32,
        flags: u8,
        payload: &[u8],
    ) -> Said {
        let mss = (flags & flag::SYN != 0).then_some(1460);
        let fields = TcpFields { seq, ack, flags, mss, ..TcpFields::default() };
        self.pass(&Said { src: heard.dst, dst: heard.src, fields, payload: payload.to_vec() })
    }

    /// A connection with the numbers 1001 and 5001.
    pub(super) fn begin(&mut self) -> Said {
        let heard = self.client(1000, 0, flag::SYN, b"");
        assert_eq!((heard.src.0, heard.dst), (POOL.into(), (SERVER.into(), 21)));
        self.server(&heard, 5000, 1001, flag::SYN | flag::ACK, b"");
        self.client(1001, 5001, flag::ACK, b"");
        self.server(&heard, 5001, 1001, flag::ACK, b"220 ready\r\n");
        heard
    }
}
