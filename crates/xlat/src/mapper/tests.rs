//! Translation with ports, by a mapper with a fixed table.

mod build;
mod errors;
mod fixed;
mod hairpin;
mod packets;

use alloc::vec;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};

use build::Kind;
use fixed::{Entry, Fixed};

use super::Pass;
use crate::stop::Stop;
use crate::{Config, HEADROOM, HopCount, Offload, Packet, State, Verdict, v4_to_v6, v6_to_v4};

/// T, the translator's address.
const T: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// Z, the IPv4 server.
const Z: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
/// (X',x) and (T,t).
const PORTS: (u16, u16) = (40_001, 1025);
/// Of a second host behind the translator, B.
const PORTS_B: (u16, u16) = (8080, 2049);
/// The identifiers of A and B: so that a query from A to T reaches B.
const IDS: (u16, u16) = (0x1111, 0xabcd);

fn a() -> Ipv6Addr {
    "2001:db8:1::a".parse().unwrap()
}

fn b() -> Ipv6Addr {
    "2001:db8:2::b".parse().unwrap()
}

/// An IPv4 address in pool6.
fn embed(addr: Ipv4Addr) -> Ipv6Addr {
    let prefix: Ipv6Addr = "2001:db8:64::".parse().unwrap();
    Ipv6Addr::from_bits(prefix.to_bits() | u128::from(addr.to_bits()))
}

/// The second address of the pool, which only B's identifier is mapped to.
const T2: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

fn fixed() -> Fixed {
    let config = Config {
        pool6: vec!["2001:db8:64::/96".parse().unwrap()],
        decrement_hop_limit: HopCount::BOTH,
        ..Config::default()
    };
    let mut table = Vec::new();
    for protocol in [6, 17] {
        table.push(Entry { protocol, v6: (a(), PORTS.0), v4: (T, PORTS.1) });
        table.push(Entry { protocol, v6: (b(), PORTS_B.0), v4: (T, PORTS_B.1) });
    }
    table.push(Entry { protocol: 1, v6: (a(), IDS.0), v4: (T, IDS.1) });
    table.push(Entry { protocol: 1, v6: (b(), IDS.0), v4: (T2, IDS.1) });
    Fixed { config, table, full: false }
}

/// What A's packet to (Z,53) has for ports in IPv6 and in IPv4.
fn out(kind: Kind) -> ((u16, u16), (u16, u16)) {
    if kind.is_icmp() { ((IDS.0, 0), (IDS.1, 0)) } else { ((PORTS.0, 53), (PORTS.1, 53)) }
}

/// The same for the way back.
fn back(kind: Kind) -> ((u16, u16), (u16, u16)) {
    if kind.is_icmp() { ((IDS.0, 0), (IDS.1, 0)) } else { ((53, PORTS.0), (53, PORTS.1)) }
}

/// What came of a packet: its octets (or as they are left, if it stopped) and its offload state.
#[derive(Clone, Debug)]
struct Came {
    result: Result<Verdict, Stop>,
    octets: Vec<u8>,
    offload: Offload,
    pieces: Vec<Vec<u8>>,
}

impl Came {
    /// The octets of a packet that was forwarded.
    #[track_caller]
    fn forwarded(self) -> Vec<u8> {
        assert_eq!(self.result, Ok(Verdict::Forward));
        self.octets
    }
}

fn translate(fixed: &mut Fixed, octets: &[u8], offload: Offload) -> Came {
    let mut buffer = vec![0xee; HEADROOM + octets.len() + 32];
    let range = HEADROOM..HEADROOM + octets.len();
    buffer[range.clone()].copy_from_slice(octets);
    let mut packet = Packet::new(&mut buffer, range, offload);
    let config = &fixed.config.clone();
    let result = if octets[0] >> 4 == 4 {
        v4_to_v6::translate(config, fixed, &mut packet, Pass::First, &mut ())
    } else {
        v6_to_v4::translate(config, fixed, &mut packet, &mut State::new(77), &mut ())
    };
    let piece = |piece: crate::Fragment<'_>| [piece.head(), piece.body].concat();
    Came {
        result,
        octets: packet.bytes().to_vec(),
        offload: packet.offload,
        pieces: packet.fragments().map(piece).collect(),
    }
}

/// A packet without offloads that must be forwarded.
#[track_caller]
fn forwarded(octets: &[u8]) -> Vec<u8> {
    translate(&mut fixed(), octets, Offload::default()).forwarded()
}

fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + 5) as u8).collect()
}
