//! Packets drawn so that they meet each other's state.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use fordway_testkit::model::Random;
use fordway_testkit::packet::{
    Ext, ExtKind, Icmp, PacketSpec, Payload, Sum, Tcp, Udp, UdpLite, V4, V6,
};
use fordway_xlat::Config;
use fordway_xlat::nat64::{Binding, Nat64, Protocol, SessionEntry, Settings};

pub(crate) const HOSTS: [&str; 6] = [
    "2001:db8:1::1",
    "2001:db8:1::2",
    "2001:db8:1:0:ffff::3",
    "2001:db8:2::1",
    "2001:db8:2:1::1",
    "2001:db8:3::1",
];
const HOST_PORTS: [u16; 8] = [7, 53, 1023, 1024, 5004, 5005, 40_000, 65_535];
const REMOTES: [Ipv4Addr; 3] =
    [Ipv4Addr::new(198, 51, 100, 1), Ipv4Addr::new(198, 51, 100, 2), Ipv4Addr::new(198, 18, 0, 1)];
const REMOTE_PORTS: [u16; 3] = [53, 80, 443];
const FLAGS: [&str; 12] = ["S", "S", "S", "SA", "SA", "A", "PA", "FA", "FA", "R", "RA", "SF"];

/// What the packets are to meet.
pub(crate) struct Surroundings {
    prefixes: Vec<Ipv6Addr>,
    pool4: Vec<Ipv4Addr>,
    /// Ports that packets from IPv4 try.
    ports: (u16, u16),
    bindings: Vec<Binding>,
    sessions: Vec<SessionEntry>,
}

impl Surroundings {
    /// What settings say; no entries yet.
    pub(crate) fn of(config: &Config, settings: &Settings) -> Surroundings {
        let ranges = settings.pools.iter().flat_map(|pool| &pool.ranges);
        let fixed = settings.addresses.iter().flat_map(|it| &it.fixed).map(|(addr, _)| *addr);
        let pool4 = ranges.clone().flat_map(|range| [range.first, range.last]).chain(fixed);
        let ports = ranges.clone().next().map_or((1, 1), |range| {
            (range.low.saturating_sub(3).max(1), range.high.min(range.low.saturating_add(40)))
        });
        Surroundings {
            prefixes: config.pool6.iter().map(|pool6| pool6.net().addr()).collect(),
            pool4: pool4.collect(),
            ports,
            bindings: Vec::new(),
            sessions: Vec::new(),
        }
    }

    /// From now on packets meet the entries that are there now.
    pub(crate) fn look_at(&mut self, nat: &Nat64, now: Duration) {
        self.bindings.clear();
        for bib in nat.bib(now) {
            extend_with_ports(&mut self.bindings, bib.binding);
        }
        self.sessions.clear();
        self.sessions.extend(nat.sessions(now));
    }
}

/// A binding that packets can meet: of a whole address (NAT-PT), some ports.
fn extend_with_ports(bindings: &mut Vec<Binding>, binding: Binding) {
    if binding.protocol.is_some() {
        return bindings.push(binding);
    }
    bindings.extend(HOST_PORTS.iter().map(|port| Binding {
        v4: (binding.v4.0, *port),
        v6: (binding.v6.0, *port),
        ..binding
    }));
}

/// A packet of one of the families.
pub(crate) fn packet(random: &mut Random, around: &Surroundings) -> Vec<u8> {
    loop {
        let mut spec =
            if random.percent(60) { from_v6(random, around) } else { from_v4(random, around) };
        spec.payload = Payload::Pattern(random.pick(&[0, 1, 8, 33, 500, 1240, 1400]));
        spoil(random, &mut spec);
        // Now and then it quotes another.
        let built = if random.percent(4) { error(random, around) } else { spec };
        if let Ok(built) = built.build()
            && built.bytes.len() >= if built.bytes[0] >> 4 == 4 { 20 } else { 40 }
        {
            return built.bytes;
        }
    }
}

fn embed(prefix: Ipv6Addr, v4: Ipv4Addr) -> Ipv6Addr {
    Ipv6Addr::from_bits(prefix.to_bits() | u128::from(v4.to_bits()))
}

/// Puts a transport header of this protocol into the description.
fn transport(
    random: &mut Random,
    spec: &mut PacketSpec,
    protocol: Protocol,
    (src, dst): (u16, u16),
    is_v6: bool,
) {
    match protocol {
        Protocol::Tcp => {
            let flags = random.pick(&FLAGS).to_owned();
            let mss = flags.starts_with('S').then_some(1460);
            spec.tcp = Some(Tcp { sport: src, dport: dst, flags, mss, ..Tcp::default() });
        }
        Protocol::Udp => spec.udp = Some(Udp { sport: src, dport: dst, ..Udp::default() }),
        Protocol::Icmp => {
            let request = random.percent(65);
            let kind = match (is_v6, request) {
                (true, true) => 128,
                (true, false) => 129,
                (false, true) => 8,
                (false, false) => 0,
            };
            spec.icmp =
                Some(Icmp { kind, id: src, seq: random.below(3) as u16, ..Icmp::default() });
        }
    }
}

fn from_v6(random: &mut Random, around: &Surroundings) -> PacketSpec {
    let protocol = random.pick(&Protocol::ALL);
    let known = around.sessions.get(random.below(around.sessions.len().max(1)));
    let (protocol, host, remote) = match known {
        Some(session) if random.percent(55) => {
            let protocol = session.binding.protocol.unwrap_or(protocol);
            (protocol, session.binding.v6, session.remote)
        }
        Some(session) if random.percent(20) => {
            // A known host, another destination.
            let protocol = session.binding.protocol.unwrap_or(protocol);
            (protocol, session.binding.v6, other(random))
        }
        _ => {
            let host = random.pick(&HOSTS).parse().expect("an address");
            (protocol, (host, random.pick(&HOST_PORTS)), other(random))
        }
    };
    let mut dst = embed(random.pick(&around.prefixes), remote.0);
    match random.below(300) {
        0 => dst = embed(around.prefixes[0], random.pick(&around.pool4)),
        1 => dst = "2001:db8:99::1".parse().expect("an address"),
        _ => {}
    }
    let src = if random.below(300) == 0 { embed(around.prefixes[0], remote.0) } else { host.0 };
    let mut spec = PacketSpec { v6: Some(v6(src, dst)), ..PacketSpec::default() };
    let ports = if protocol == Protocol::Icmp { (host.1, host.1) } else { (host.1, remote.1) };
    transport(random, &mut spec, protocol, ports, true);
    spec
}

fn other(random: &mut Random) -> (Ipv4Addr, u16) {
    let port = match random.percent(10) {
        true => 1024 + random.below(5000) as u16,
        false => random.pick(&REMOTE_PORTS),
    };
    (random.pick(&REMOTES), port)
}

/// A datagram from an IPv6 host to an IPv4 host, behind a prefix.
pub(crate) fn datagram6(from: (Ipv6Addr, u16), prefix: Ipv6Addr, to: (Ipv4Addr, u16)) -> Vec<u8> {
    let udp = Udp { sport: from.1, dport: to.1, ..Udp::default() };
    let v6 = v6(from.0, embed(prefix, to.0));
    let spec = PacketSpec { v6: Some(v6), udp: Some(udp), ..PacketSpec::default() };
    spec.build().expect("a packet").bytes
}

/// A datagram between IPv4 hosts.
pub(crate) fn datagram(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16)) -> Vec<u8> {
    let udp = Udp { sport: from.1, dport: to.1, ..Udp::default() };
    let spec = PacketSpec { v4: Some(v4(from.0, to.0)), udp: Some(udp), ..PacketSpec::default() };
    spec.build().expect("a packet").bytes
}

fn v6(src: Ipv6Addr, dst: Ipv6Addr) -> V6 {
    V6 { src, dst, hop: 64, tc: 0, flow: 0, next: None, version: None, len: None }
}

fn v4(src: Ipv4Addr, dst: Ipv4Addr) -> V4 {
    V4 {
        src,
        dst,
        ttl: 64,
        tos: 0,
        id: 7,
        df: true,
        mf: false,
        reserved: false,
        offset: 0,
        options: String::new(),
        proto: None,
        version: None,
        ihl: None,
        len: None,
        checksum: None,
    }
}

fn from_v4(random: &mut Random, around: &Surroundings) -> PacketSpec {
    let protocol = random.pick(&Protocol::ALL);
    let session = around.sessions.get(random.below(around.sessions.len().max(1)));
    let binding = around.bindings.get(random.below(around.bindings.len().max(1)));
    let (protocol, own, remote) = match (session, binding) {
        (Some(session), _) if random.percent(60) => {
            let protocol = session.binding.protocol.unwrap_or(protocol);
            (protocol, session.binding.v4, session.remote)
        }
        (_, Some(binding)) if random.percent(60) => {
            (binding.protocol.unwrap_or(protocol), binding.v4, other(random))
        }
        _ => {
            let width = usize::from(around.ports.1 - around.ports.0) + 1;
            let port = around.ports.0 + random.below(width) as u16;
            (protocol, (random.pick(&around.pool4), port), other(random))
        }
    };
    let mut src = remote.0;
    match random.below(300) {
        0 => src = random.pick(&around.pool4),
        1 => src = own.0,
        _ => {}
    }
    let dst = if random.below(300) == 0 { Ipv4Addr::new(203, 0, 113, 200) } else { own.0 };
    let mut spec = PacketSpec { v4: Some(v4(src, dst)), ..PacketSpec::default() };
    let ports = if protocol == Protocol::Icmp { (own.1, own.1) } else { (remote.1, own.1) };
    transport(random, &mut spec, protocol, ports, false);
    spec
}

/// What is not common.
fn spoil(random: &mut Random, spec: &mut PacketSpec) {
    match random.below(100) {
        0 => spec.v4.iter_mut().for_each(|v4| v4.ttl = 1),
        1 => spec.v6.iter_mut().for_each(|v6| v6.hop = 1),
        2 => spec.v4.iter_mut().for_each(|v4| v4.options = "01010101".into()),
        3 if spec.v6.is_some() => spec.ext.push(extension(ExtKind::DstOpts)),
        4 if spec.v6.is_some() => {
            let mut fragment = extension(ExtKind::Fragment);
            fragment.id = 9;
            spec.ext.push(fragment);
        }
        5 => spec.udp.iter_mut().for_each(|udp| udp.checksum = Some(Sum::Value(0))),
        6 => spec.cut = Some(20 + random.below(50)),
        7 => spec.trailer = random.below(20),
        8 => {
            (spec.tcp, spec.udp, spec.icmp) = (None, None, None);
            spec.udplite = Some(UdpLite::default());
        }
        9 => spec.icmp.iter_mut().for_each(|icmp| icmp.kind = 13),
        10 => spec.v4.iter_mut().for_each(|v4| v4.df = false),
        11 => spec.tcp.iter_mut().for_each(|tcp| tcp.checksum = Some(Sum::Value(0x1234))),
        _ => {}
    }
}

fn extension(kind: ExtKind) -> Ext {
    Ext {
        kind,
        body: String::new(),
        routing_type: 0,
        segments_left: 0,
        id: 0,
        offset: 0,
        more: false,
        len: None,
    }
}

/// An ICMP error about a packet that a session has sent.
fn error(random: &mut Random, around: &Surroundings) -> PacketSpec {
    let quoted = |inner, icmp| PacketSpec {
        icmp: Some(icmp),
        inner: Some(Box::new(inner)),
        ..PacketSpec::default()
    };
    if random.percent(50) {
        let mut inner = from_v4(random, around);
        let Some(ends) = &mut inner.v4 else { return inner };
        (ends.src, ends.dst) = (ends.dst, ends.src);
        let outer = v4(random.pick(&REMOTES), ends.src);
        turn_round(&mut inner);
        PacketSpec {
            v4: Some(outer),
            ..quoted(inner, Icmp { kind: 3, code: 1, ..Icmp::default() })
        }
    } else {
        let mut inner = from_v6(random, around);
        let Some(ends) = &mut inner.v6 else { return inner };
        (ends.src, ends.dst) = (ends.dst, ends.src);
        let outer = v6(ends.dst, ends.src);
        turn_round(&mut inner);
        PacketSpec {
            v6: Some(outer),
            ..quoted(inner, Icmp { kind: 1, code: 0, ..Icmp::default() })
        }
    }
}

fn turn_round(spec: &mut PacketSpec) {
    spec.tcp.iter_mut().for_each(|tcp| (tcp.sport, tcp.dport) = (tcp.dport, tcp.sport));
    spec.udp.iter_mut().for_each(|udp| (udp.sport, udp.dport) = (udp.dport, udp.sport));
}
