//! A stateless translator with a pool, under the packets of a few hosts.

extern crate std;

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use std::net::IpAddr;

use fordway_wire::ipv4::Ipv4Header;
use fordway_wire::ipv6::Ipv6Header;
use fordway_wire::protocol;
use ipnet::Ipv4Net;

use super::*;
use crate::addr::{Eam, EamTable};
use crate::nat64::{Heap, Lifetimes, Nat64, Settings, Sizes, Sweeper};
use crate::packet::{ChecksumState, HEADROOM, Offload, Packet};
use crate::{Config, State, Translator, Verdict};

/// Source and destination.
type Ends = (IpAddr, IpAddr);

fn v4(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, last)
}

fn embedded(v4: Ipv4Addr) -> Ipv6Addr {
    Ipv6Addr::from_bits(0x2001_0db8_0064 << 80 | u128::from(v4.to_bits()))
}

fn host(number: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, number)
}

const SELF4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 254);
const SELF6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xfe, 0, 0, 0, 0, 1);
/// Explicitly mapped; the second, though the pool has it.
const MAPPED: [(Ipv4Addr, Ipv6Addr); 2] = [
    (Ipv4Addr::new(203, 0, 113, 5), Ipv6Addr::new(0x2001, 0xdb8, 0xe, 0, 0, 0, 0, 5)),
    (Ipv4Addr::new(198, 51, 100, 0), Ipv6Addr::new(0x2001, 0xdb8, 0xe, 0, 0, 0, 0, 6)),
];

struct Bench {
    translator: Translator,
    state: State,
    now: Duration,
}

impl Bench {
    fn new(pool: &[&str], clients: &[&str], hairpin: bool) -> Bench {
        Bench::with_prefix("2001:db8:64::/96", pool, clients, hairpin)
    }

    fn with_prefix(pool6: &str, pool: &[&str], clients: &[&str], hairpin: bool) -> Bench {
        Bench::with(pool6, pool, clients, hairpin, &MAPPED)
    }

    fn with(
        pool6: &str,
        pool: &[&str],
        clients: &[&str],
        hairpin: bool,
        mapped: &[(Ipv4Addr, Ipv6Addr)],
    ) -> Bench {
        let eam = mapped.iter().map(|(v4, v6)| Eam::new((*v4).into(), (*v6).into()).unwrap());
        let config = Config {
            pool6: vec![pool6.parse().unwrap()],
            eam: EamTable::new(eam).unwrap(),
            icmp_source4: Some(SELF4),
            icmp_source6: Some(SELF6),
            hairpin,
            ..Config::default()
        };
        let dynamic4 = Dynamic4 {
            pool: pool.iter().map(|net| net.parse().unwrap()).collect(),
            clients: clients.iter().map(|net| net.parse().unwrap()).collect(),
        };
        let sizes = Sizes { bibs: 64, sessions: 1, subscribers: 1 };
        let settings = Settings { dynamic4: Some(dynamic4), sizes, ..Settings::default() };
        let nat = Nat64::new(settings, Arc::new(Heap::new(&sizes, [7, 11]))).unwrap();
        let translator = Translator::dynamic4(config, Arc::new(nat)).unwrap();
        Bench { translator, state: State::new(1), now: Duration::from_secs(1000) }
    }

    fn nat(&self) -> &Nat64 {
        self.translator.tables().unwrap()
    }

    /// Translates; the octets that come out of it, unless it is dropped.
    fn send(&mut self, octets: &[u8]) -> Result<Vec<u8>, DropReason> {
        match self.translate(octets) {
            (Verdict::Forward, octets) => Ok(octets),
            (Verdict::Reply(error), _) => Err(error.reason),
            (Verdict::Drop(reason), _) => Err(reason),
            (other, _) => panic!("{other:?}"),
        }
    }

    fn translate(&mut self, octets: &[u8]) -> (Verdict, Vec<u8>) {
        let mut buffer = vec![0; 2 * HEADROOM + octets.len()];
        let range = HEADROOM..HEADROOM + octets.len();
        buffer[range.clone()].copy_from_slice(octets);
        let offload = Offload { checksum: ChecksumState::Verified, ..Offload::default() };
        let mut packet = Packet::new(&mut buffer, range, offload);
        let verdict = self.translator.translate(&mut packet, self.now, &mut self.state, &mut ());
        (verdict, packet.bytes().to_vec())
    }

    /// A datagram between these; from whom to whom it goes on.
    fn udp(&mut self, src: impl Into<IpAddr>, dst: impl Into<IpAddr>) -> Result<Ends, DropReason> {
        let octets = packet(protocol::UDP, (src.into(), dst.into()), &[0, 9, 0, 9, 0, 8, 1, 1]);
        Ok(ends(&self.send(&octets)?))
    }

    /// "Port unreachable" about a datagram; both pairs of ends that come out.
    fn error(
        &mut self,
        from: impl Into<IpAddr>,
        quoted: (impl Into<IpAddr>, impl Into<IpAddr>),
    ) -> Result<(Ends, Ends), DropReason> {
        let (from, quoted) = (from.into(), (quoted.0.into(), quoted.1.into()));
        let (number, kind, code) = if from.is_ipv4() { (1, 3, 3) } else { (58, 1, 4) };
        let mut message = vec![kind, code, 0, 0, 0, 0, 0, 0];
        message.extend(packet(protocol::UDP, quoted, &[0, 9, 0, 9, 0, 8, 1, 1]));
        let out = self.send(&packet(number, (from, quoted.0), &message))?;
        let inner = if out[0] >> 4 == 4 { 28 } else { 48 };
        Ok((ends(&out), ends(&out[inner..])))
    }

    /// The address that a host is given, which must be its own both ways.
    fn address_of(&mut self, host: Ipv6Addr) -> Result<Ipv4Addr, DropReason> {
        let IpAddr::V4(addr) = self.udp(host, embedded(v4(1)))?.0 else { panic!("not IPv4") };
        assert_eq!(self.udp(v4(1), addr), Ok((embedded(v4(1)).into(), host.into())));
        Ok(addr)
    }

    /// Two hosts that have addresses.
    fn pair(&mut self) -> (Ipv4Addr, Ipv4Addr) {
        (self.address_of(host(1)).unwrap(), self.address_of(host(2)).unwrap())
    }
}

fn packet(number: u8, ends: Ends, payload: &[u8]) -> Vec<u8> {
    match ends {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let header = Ipv4Header {
                header_len: 20,
                tos: 0,
                total_len: 20 + payload.len() as u16,
                identification: 0,
                dont_fragment: false,
                more_fragments: false,
                fragment_offset: 0,
                ttl: 64,
                protocol: number,
                src,
                dst,
            };
            [&header.to_bytes()[..], payload].concat()
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let header = Ipv6Header {
                traffic_class: 0,
                flow_label: 0,
                payload_len: payload.len() as u16,
                next_header: number,
                hop_limit: 64,
                src,
                dst,
            };
            [&header.to_bytes()[..], payload].concat()
        }
        _ => panic!("two families"),
    }
}

fn ends(octets: &[u8]) -> Ends {
    match Ipv4Header::parse(octets) {
        Ok(header) => (header.src.into(), header.dst.into()),
        Err(_) => {
            let header = Ipv6Header::parse(octets).unwrap();
            (header.src.into(), header.dst.into())
        }
    }
}

#[test]
fn each_host_keeps_an_address_until_there_are_no_more() {
    for (pool, usable) in [
        (&["198.51.100.8/29"][..], &[9, 10, 11, 12, 13, 14][..]),
        (&["198.51.100.4/31", "198.51.100.32/30", "198.51.100.7/32"][..], &[4, 5, 33, 34, 7][..]),
    ] {
        let mut bench = Bench::new(pool, &[], true);
        let usable: BTreeSet<u8> = usable.iter().copied().collect();
        let count = usable.len() as u16;
        let given: Vec<_> = (1..=count).map(|n| bench.address_of(host(n)).unwrap()).collect();
        assert_eq!(given.iter().map(|addr| addr.octets()[3]).collect::<BTreeSet<_>>(), usable);
        assert!(bench.state.take_made());
        assert_eq!(bench.address_of(host(count + 1)), Err(DropReason::PoolExhausted));
        for (n, addr) in (1..).zip(&given) {
            assert_eq!(bench.address_of(host(n)), Ok(*addr));
        }
        assert!(!bench.state.take_made(), "nothing new");
        let nets: Vec<Ipv4Net> = pool.iter().map(|net| net.parse().unwrap()).collect();
        for number in 0..64 {
            let addr = Ipv4Addr::new(198, 51, 100, number);
            let expected = nets.iter().any(|net| net.contains(&addr));
            assert_eq!(bench.nat().settings().dynamic4.as_ref().unwrap().contains(addr), expected);
        }
    }
}

#[test]
fn only_clients_get_an_address_and_only_bound_ones_are_somebody() {
    let mut bench = Bench::new(&["198.51.100.0/29"], &["2001:db8:1::/48", "2001:db8:3::/64"], true);
    assert!(bench.address_of(host(1)).is_ok());
    assert!(bench.address_of("2001:db8:3::9".parse().unwrap()).is_ok());
    let stranger: Ipv6Addr = "2001:db8:2::1".parse().unwrap();
    assert_eq!(bench.address_of(stranger), Err(DropReason::NoMappingSource));
    let unbound = Ipv4Addr::new(198, 51, 100, 7);
    assert_eq!(bench.udp(v4(1), unbound), Err(DropReason::NoMappingDestination));
    bench.nat().drain(true);
    assert_eq!(bench.address_of(host(2)), Err(DropReason::Draining));
    assert!(bench.address_of(host(1)).is_ok());
    assert!(!bench.translator.is_stateful());
}

#[test]
fn explicit_mappings_come_first() {
    let mut bench = Bench::new(&["198.51.100.0/29"], &[], true);
    for (mapped4, mapped6) in MAPPED {
        let there: Ends = (mapped4.into(), v4(1).into());
        assert_eq!(bench.udp(mapped6, embedded(v4(1))), Ok(there));
        let back: Ends = (embedded(v4(1)).into(), mapped6.into());
        assert_eq!(bench.udp(v4(1), mapped4), Ok(back));
    }
    assert!(!bench.state.take_made());
}

#[test]
fn nobody_speaks_to_or_as_the_translator() {
    let mut bench = Bench::new(&["198.51.100.0/29"], &[], true);
    let (first, second) = bench.pair();
    assert_eq!(bench.udp(host(1), SELF6), Err(DropReason::SelfAddressed));
    assert_eq!(bench.udp(host(1), host(1)), Err(DropReason::SelfAddressed));
    assert_eq!(bench.udp(SELF4, first), Err(DropReason::SelfAddressed));
    assert_eq!(bench.udp(first, first), Err(DropReason::SelfAddressed));
    assert!(bench.udp(second, first).is_ok());
    // Its errors are no forgery: another translator may have the same address.
    assert!(bench.error(SELF4, (first, v4(1))).is_ok());
    let broadcast = embedded(Ipv4Addr::BROADCAST);
    assert_eq!(bench.udp(host(1), broadcast), Err(DropReason::Broadcast));
}

#[test]
fn hosts_reach_each_other_by_their_addresses() {
    let mut bench = Bench::new(&["198.51.100.0/29"], &[], true);
    let (first, second) = bench.pair();
    let to = |dst: Ipv6Addr| -> Ends { (embedded(first).into(), dst.into()) };
    assert_eq!(bench.udp(host(1), embedded(second)), Ok(to(host(2))));
    assert_eq!(bench.udp(host(1), embedded(first)), Ok(to(host(1))), "itself, too");
    assert_eq!(bench.udp(host(1), embedded(MAPPED[0].0)), Ok(to(MAPPED[0].1)));
    assert_eq!(bench.udp(host(1), embedded(v4(1))), Ok((first.into(), v4(1).into())));
    let mut pool = (1..7).map(|last| Ipv4Addr::new(198, 51, 100, last));
    let unbound = pool.find(|addr| ![first, second].contains(addr)).unwrap();
    assert_eq!(bench.udp(host(1), embedded(unbound)), Ok((first.into(), unbound.into())));
    // The error about such a packet hairpins as well.
    let outer: Ends = (embedded(second).into(), host(1).into());
    let inner: Ends = (host(1).into(), embedded(second).into());
    assert_eq!(bench.error(host(2), (embedded(first), host(2))), Ok((outer, inner)));

    // Also where no address is mapped explicitly.
    let mut bench = Bench::with("2001:db8:64::/96", &["198.51.100.0/29"], &[], true, &[]);
    let (first, second) = bench.pair();
    let to: Ends = (embedded(first).into(), host(2).into());
    assert_eq!(bench.udp(host(1), embedded(second)), Ok(to));

    let mut bench = Bench::new(&["198.51.100.0/29"], &[], false);
    let (first, second) = bench.pair();
    assert_eq!(bench.udp(host(1), embedded(second)), Ok((first.into(), second.into())));
    let error = bench.error(host(2), (embedded(first), host(2))).unwrap();
    assert_eq!(error.0, (second.into(), first.into()));
}

#[test]
fn a_source_that_the_well_known_prefix_may_not_have_is_answered() {
    let embedded =
        |v4: [u8; 4]| Ipv6Addr::from_bits(0x0064_ff9b << 96 | u128::from(u32::from_be_bytes(v4)));
    let mut bench = Bench::with_prefix("64:ff9b::/96", &["8.0.0.0/29"], &[], true);
    let bound = bench.udp(host(1), embedded([8, 0, 1, 1])).unwrap().0;
    let IpAddr::V4(bound) = bound else { panic!("not IPv4") };
    // Its explicit mapping is not global: RFC 6052 section 3.1.
    let ends: Ends = (MAPPED[0].1.into(), embedded(bound.octets()).into());
    let (verdict, answer) =
        bench.translate(&packet(protocol::UDP, ends, &[0, 9, 0, 9, 0, 8, 1, 1]));
    let Verdict::Reply(error) = verdict else { panic!("{verdict:?}") };
    assert_eq!(error.reason, DropReason::NonGlobal);
    assert_eq!(self::ends(&answer), (SELF6.into(), MAPPED[0].1.into()));
}

#[test]
fn errors_are_mapped_and_give_nobody_an_address() {
    let mut bench = Bench::new(&["198.51.100.0/29"], &[], true);
    let (first, _) = bench.pair();
    bench.state.take_made();
    // From a router on the way (RFC 6791), and from the host.
    for (from, source) in [(host(99), SELF4), (host(1), first)] {
        let outer: Ends = (source.into(), v4(1).into());
        let inner: Ends = (v4(1).into(), first.into());
        assert_eq!(bench.error(from, (embedded(v4(1)), host(1))), Ok((outer, inner)));
    }
    let outer: Ends = (embedded(v4(9)).into(), host(1).into());
    let inner: Ends = (host(1).into(), embedded(v4(1)).into());
    assert_eq!(bench.error(v4(9), (first, v4(1))), Ok((outer, inner)));
    let unknown = bench.error(host(99), (embedded(v4(1)), host(99)));
    assert_eq!(unknown, Err(DropReason::IcmpInner));
    assert!(!bench.state.take_made());
}

#[test]
fn a_whole_packet_with_a_fragment_header_keeps_its_identification() {
    // RFC 7915 section 5.1.1: the address is the host's alone, so the number needs no other.
    let mut bench = Bench::new(&["198.51.100.0/29"], &[], true);
    let payload = [17, 0, 0, 0, 0, 0, 0x12, 0x34, 0, 9, 0, 9, 0, 8, 1, 1];
    let octets = packet(protocol::IPV6_FRAG, (host(1).into(), embedded(v4(1)).into()), &payload);
    let out = bench.send(&octets).unwrap();
    assert_eq!(Ipv4Header::parse(&out).unwrap().identification, 0x1234);
}

#[test]
fn a_mapping_lives_as_long_as_it_is_used_from_either_side() {
    let lifetime = Lifetimes::default().dynamic4;
    let mut sweeper = Sweeper::new();
    let mut bench = Bench::new(&["198.51.100.0/29"], &[], true);
    let first = bench.address_of(host(1)).unwrap();
    let (most, second) = (lifetime - Duration::from_secs(1), Duration::from_secs(1));
    let sweep = |bench: &Bench, sweeper: &mut Sweeper| {
        let swept = sweeper.sweep(bench.nat(), bench.now, &mut |_| {});
        sweeper.release(bench.nat());
        swept
    };
    bench.now += most;
    assert!(bench.udp(host(1), embedded(v4(1))).is_ok());
    bench.now += most;
    sweep(&bench, &mut sweeper);
    assert!(bench.udp(v4(1), first).is_ok());
    bench.now += most;
    sweep(&bench, &mut sweeper);
    // A quoted packet is no use of it.
    assert!(bench.error(v4(9), (first, v4(1))).is_ok());
    assert!(bench.error(host(99), (embedded(v4(1)), host(1))).is_ok());
    bench.now += second + second;
    sweep(&bench, &mut sweeper);
    assert_eq!(bench.udp(v4(1), first), Err(DropReason::NoMappingDestination));
    assert_eq!(bench.nat().occupancy()[0].used, 0);
}
