//! What comes next: drawn so that states are reached, not only packets refused.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::super::filter::Model;
use super::super::packet::{Datagram, End4, Quoted4, Quoted6, Transport};
use super::super::table::{Rules, WELL_KNOWN};

/// Random numbers that a seed repeats.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// From a seed.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next number (SplitMix64).
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.number() % end.max(1) as u64) as usize
    }

    /// One of them.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// `true` so many times of a hundred.
    pub fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// What comes next.
#[derive(Clone, Debug)]
pub(super) enum Event {
    FromV6(Datagram<Ipv6Addr>),
    FromV4(Datagram<Ipv4Addr>),
    /// From so many ports of one IPv4 host, from that of the packet on.
    Crowd(Datagram<Ipv4Addr>, u16),
    ErrorFromV6(Quoted6),
    ErrorFromV4(Quoted4),
    Seconds(u64),
    AddBib(Transport, (Ipv6Addr, u16), End4),
    RemoveBib(Transport, End4),
    Drain(bool),
}

const HOSTS: [&str; 6] = [
    "2001:db8:1::1",
    "2001:db8:1::2",
    "2001:db8:1:0:ffff::3",
    "2001:db8:2::1",
    "2001:db8:2:1::1",
    "2001:db8:3::1",
];

const HOST_PORTS: [u16; 8] = [7, 53, 1023, 1024, 5004, 5005, 40_000, 65_535];

const REMOTES: [Ipv4Addr; 4] = [
    Ipv4Addr::new(198, 51, 100, 1),
    Ipv4Addr::new(198, 51, 100, 2),
    Ipv4Addr::new(192, 0, 2, 7),
    Ipv4Addr::new(198, 18, 0, 1),
];

const REMOTE_PORTS: [u16; 3] = [53, 80, 443];

/// Sessions that the table holds where one IPv4 host sends from thousands of ports.
pub(super) const CROWDED: usize = 16_384;

/// SYN, SYN+ACK, ACK, FIN, RST, and what no sound host sends.
const FLAGS: [u8; 12] = [2, 2, 2, 18, 18, 16, 24, 17, 17, 4, 20, 0];
const ODD_FLAGS: [u8; 4] = [6, 3, 5, 63];

const JUMPS: [u64; 12] = [1, 1, 2, 3, 6, 7, 60, 61, 121, 240, 301, 7201];

/// Rules of an operator.
pub(super) fn rules(random: &mut Random) -> Rules {
    let prefixes: [Ipv6Addr; 2] =
        ["2001:db8:64::", "2001:db8:65::"].map(|text| text.parse().unwrap_or(Ipv6Addr::LOCALHOST));
    let mut pool6 = prefixes[..1 + random.below(2)].to_vec();
    if pool6.len() == 2 && random.percent(40) {
        pool6[0] = WELL_KNOWN;
    }
    let addresses =
        [1, 2, 9].map(|last| Ipv4Addr::new(203, 0, 113, last))[..1 + random.below(3)].to_vec();
    let ports = random.pick(&[(1000, 1047), (2000, 2007), (2000, 2063), (1022, 1026)]);
    let blocks =
        random.percent(30).then(|| random.pick(&[(2, 2), (4, 1), (4, 8), (6, 3), (16, 2)]));
    let blocks = blocks.filter(|(size, _)| ports.1 - ports.0 + 1 >= *size);
    let mut quota = |most: &[u32]| if random.percent(40) { random.pick(most) } else { 0 };
    let most_ports = [quota(&[2, 5]), quota(&[2, 5]), quota(&[1, 3])];
    let most_sessions = quota(&[3, 8, 20]);
    let most_new = quota(&[2, 6]);
    let mut size = |sizes: &[usize]| if random.percent(30) { random.pick(sizes) } else { 256 };
    let mut sizes = [size(&[4, 16]), size(&[8, 24]), size(&[2, 4])];
    let is_crowded = random.percent(10);
    if is_crowded {
        sizes[1] = CROWDED;
    }
    Rules {
        pool6,
        pool4: addresses,
        ports,
        blocks,
        by_address: is_crowded || random.percent(50),
        accept_v4_syn: random.percent(75),
        refresh_from_v4: random.percent(60),
        subscriber_len: random.pick(&[128, 128, 64, 48, 56]),
        most_ports,
        most_sessions: if is_crowded { 0 } else { most_sessions },
        most_new: if is_crowded { 0 } else { most_new },
        sizes,
        most_resting: usize::MAX,
        udp: random.pick(&[300, 120]),
        icmp: 60,
        tcp_est: random.pick(&[7200, 600]),
        tcp_trans: 240,
        tcp_incoming_syn: 6,
        port_rest: random.pick(&[120, 120, 0, 30]),
        subscriber: random.pick(&[600, 60]),
    }
}

/// The next event.
pub(super) fn event(random: &mut Random, model: &Model) -> Event {
    match random.below(1000) {
        0..=399 => Event::FromV6(from_v6(random, model)),
        400..=739 => Event::FromV4(from_v4(random, model)),
        740..=809 => error_from_v6(random, model),
        810..=879 => error_from_v4(random, model),
        880..=884 => {
            let transport = random.pick(&Transport::ALL);
            let v4 = (random.pick(&model.rules.pool4), 990 + random.below(80) as u16);
            Event::AddBib(transport, host(random), v4)
        }
        885..=889 => match random.percent(80).then(|| known_bib(random, model)).flatten() {
            Some((transport, v4)) => Event::RemoveBib(transport, v4),
            None => Event::RemoveBib(Transport::Udp, (model.rules.pool4[0], 1)),
        },
        890..=892 => Event::Drain(random.percent(30)),
        893..=902 if model.rules.sizes[1] == CROWDED => {
            let packet = from_v4(random, model);
            let mut crowd = |packet| Event::Crowd(packet, 1000 + random.below(3000) as u16);
            match packet.transport {
                Transport::Icmp => Event::FromV4(packet),
                Transport::Udp => crowd(packet),
                // Of SYNs without ACK only so many are stored.
                Transport::Tcp => crowd(Datagram { flags: 18, ..packet }),
            }
        }
        _ => Event::Seconds(random.pick(&JUMPS)),
    }
}

fn host(random: &mut Random) -> (Ipv6Addr, u16) {
    let text = random.pick(&HOSTS);
    (text.parse().unwrap_or(Ipv6Addr::LOCALHOST), random.pick(&HOST_PORTS))
}

fn flags(random: &mut Random, transport: Transport) -> u8 {
    match transport {
        Transport::Tcp if random.percent(3) => random.pick(&ODD_FLAGS),
        Transport::Tcp => random.pick(&FLAGS),
        Transport::Udp => 0,
        Transport::Icmp => u8::from(random.percent(40)),
    }
}

fn remote(random: &mut Random) -> End4 {
    (random.pick(&REMOTES), random.pick(&REMOTE_PORTS))
}

/// A transport address of the pool, in use or not.
fn own(random: &mut Random, model: &Model) -> End4 {
    let rules = &model.rules;
    let width = usize::from(rules.ports.1 - rules.ports.0) + 5;
    (random.pick(&rules.pool4), rules.ports.0 - 2 + random.below(width) as u16)
}

fn known_bib(random: &mut Random, model: &Model) -> Option<(Transport, End4)> {
    let place = random.below(model.bibs.len());
    model.bibs.get(place).map(|bib| (bib.transport, bib.v4))
}

fn from_v6(random: &mut Random, model: &Model) -> Datagram<Ipv6Addr> {
    let rules = &model.rules;
    let mut transport =
        random.pick(&[Transport::Tcp, Transport::Tcp, Transport::Udp, Transport::Icmp]);
    let mut src = host(random);
    let mut far = remote(random);
    if random.percent(15) {
        // Hairpin: to somebody's external end, or to none's.
        far = own(random, model);
        if let Some((of, v4)) = known_bib(random, model).filter(|_| random.percent(70)) {
            (transport, far) = (of, v4);
        }
    } else if random.percent(50)
        && let Some(session) = model.sessions.get(random.below(model.sessions.len()))
    {
        (transport, src, far) = (session.transport, session.v6, session.remote);
    }
    let mut dst = rules.embed(far.0, random.below(rules.pool6.len()));
    match random.below(200) {
        0 => src.0 = rules.embed(random.pick(&REMOTES), random.below(rules.pool6.len())),
        1 => dst = src.0,
        _ => {}
    }
    let ports = if transport == Transport::Icmp { (src.1, src.1) } else { (src.1, far.1) };
    Datagram {
        transport,
        src: (src.0, ports.0),
        dst: (dst, ports.1),
        flags: flags(random, transport),
        mark: 0,
    }
}

fn from_v4(random: &mut Random, model: &Model) -> Datagram<Ipv4Addr> {
    let mut transport = random.pick(&Transport::ALL);
    let mut dst = own(random, model);
    let mut src = remote(random);
    if random.percent(60)
        && let Some(session) = model.sessions.get(random.below(model.sessions.len()))
    {
        (transport, dst) = (session.transport, session.v4);
        if random.percent(75) {
            src = session.remote;
        }
    } else if random.percent(60)
        && let Some((of, v4)) = known_bib(random, model)
    {
        (transport, dst) = (of, v4);
    }
    match random.below(100) {
        0 => src = own(random, model),
        1 => src = dst,
        2 => dst.0 = Ipv4Addr::new(203, 0, 113, 200),
        _ => {}
    }
    if transport == Transport::Icmp {
        src.1 = dst.1;
    }
    Datagram { transport, src, dst, flags: flags(random, transport), mark: 0 }
}

fn error_from_v4(random: &mut Random, model: &Model) -> Event {
    let mut inner = from_v4(random, model);
    // What came out: from our end to the other.
    (inner.src, inner.dst) = (inner.dst, inner.src);
    if let Some(session) = model.sessions.get(random.below(model.sessions.len()))
        && random.percent(70)
    {
        inner.transport = session.transport;
        (inner.src, inner.dst) = (session.v4, session.remote);
        if session.transport == Transport::Icmp {
            inner.dst.1 = inner.src.1;
        }
    }
    let router = if random.percent(50) { inner.dst.0 } else { random.pick(&REMOTES) };
    let to = if random.percent(97) { inner.src.0 } else { random.pick(&model.rules.pool4) };
    Event::ErrorFromV4(Quoted4 { router, to, inner })
}

fn error_from_v6(random: &mut Random, model: &Model) -> Event {
    let mut inner = from_v6(random, model);
    (inner.src, inner.dst) = (inner.dst, inner.src);
    if let Some(session) = model.sessions.get(random.below(model.sessions.len()))
        && random.percent(80)
    {
        let far = model.rules.embed(session.remote.0, session.pool6);
        inner.transport = session.transport;
        (inner.src, inner.dst) = ((far, session.remote.1), session.v6);
        if session.transport == Transport::Icmp {
            inner.src.1 = inner.dst.1;
        }
    }
    let router = if random.percent(60) { inner.dst.0 } else { host(random).0 };
    let to = if random.percent(97) { inner.src.0 } else { model.rules.embed(REMOTES[0], 0) };
    Event::ErrorFromV6(Quoted6 { router, to, inner })
}
