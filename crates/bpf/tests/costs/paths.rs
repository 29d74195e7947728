//! The ways of a packet through the kernel programs: each with its configuration and its frame.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use fordway_bpf::{
    Clock, Forwarding, Loaded, Outcome, Program, RoutingNews, SoftwireMaps, StateMaps, Stateful,
    TestOptions, Tunnels,
};
use fordway_softwire::{Binding, Role};
use fordway_xlat::addr::{Eam, EamTable, Pool6};
use fordway_xlat::nat64::{Memory, Nat64, Pool, Range, Settings, Sizes};
use fordway_xlat::{Config, HEADROOM, Offload, Packet, State, Translator};

const HOST: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);
const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
const SERVER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x64, 0, 0, 0, 0xc633, 0x6407);
const ELSEWHERE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 9, 0, 0, 0, 0, 1);
const TEP: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 1);
const UDP: u8 = 17;
const TCP: u8 = 6;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
const SYN_ACK: u8 = SYN | ACK;
/// Entries of the tables of sessions.
const SESSIONS: u32 = 65_536;

/// A way of a packet through a program.
pub(crate) struct Path {
    /// `nat64 known udp v6>v4`: what translates, what is done, with which packet, in which direction.
    pub(crate) name: &'static str,
    /// The attach point.
    pub(crate) at: &'static str,
    pub(crate) program: Program,
    pub(crate) outcome: Outcome,
    /// The frame of a number: another one each time where sessions are made, else always the same.
    pub(crate) frame: Box<dyn Fn(u16) -> Vec<u8>>,
}

impl Path {
    /// Runs the program on the frame of a number; gives nanoseconds.
    pub(crate) fn run(&self, loaded: &mut Loaded, number: u16) -> u32 {
        let run = loaded.run(self.program, &(self.frame)(number), 0, 1).expect("a run");
        assert_eq!(run.outcome, Some(self.outcome), "{} at {}: {run:?}", self.name, self.at);
        run.ns
    }
}

/// In a network namespace of this thread and on one processor: calls `visit` with each path, and the programs that it needs,
/// loaded for it alone.
pub(crate) fn visit(visit: &mut dyn FnMut(&Path, &mut Loaded)) {
    let options = prepare();
    for (at, program, forward) in GATEWAY {
        let options = TestOptions { forward, ..options.clone() };
        stateless(at, program, &options, visit);
    }
    client(&options, visit);
    for (at, program, forward) in GATEWAY {
        let program = if program == Program::Xdp { Program::XdpNat64 } else { program };
        let options = TestOptions { forward, ..options.clone() };
        stateful(at, program, &options, visit);
    }
    for (at, program, forward) in [
        ("interface", Program::SoftwireInterface, Forwarding::Stack),
        ("ingress, direct", Program::SoftwireIngress, Forwarding::Direct),
    ] {
        softwire(at, program, TestOptions { forward, ..options.clone() }, visit);
    }
}

/// Attach points of a gateway, their stateless programs, and whether these forward.
const GATEWAY: [(&str, Program, Forwarding); 4] = [
    ("interface", Program::Interface, Forwarding::Stack),
    ("ingress", Program::Ingress, Forwarding::Stack),
    ("ingress, direct", Program::Ingress, Forwarding::Direct),
    ("XDP", Program::Xdp, Forwarding::Stack),
];

type Visit<'a> = &'a mut dyn FnMut(&Path, &mut Loaded);

fn stateless(at: &'static str, program: Program, options: &TestOptions, visit: Visit<'_>) {
    let mut loaded = Loaded::load(&config(), &[program], options).expect("programs");
    let mut path = |name, outcome, frame: Vec<u8>| {
        let frame = Box::new(move |_| frame.clone());
        visit(&Path { name, at, program, outcome, frame }, &mut loaded);
    };
    path("SIIT v6>v4", Outcome::Translated, from_v6(HOST, SERVER6, 4000, UDP, 0));
    path("SIIT v4>v6", Outcome::Translated, from_v4(SERVER, ADDRESS, [53, 4000], UDP, 0));
    if program != Program::Interface {
        path("not translated", Outcome::Unmatched, from_v6(HOST, ELSEWHERE, 4000, UDP, 0));
    }
    if program == Program::Xdp {
        first_packets(at, &mut loaded, visit);
    }
}

/// The first packet between two hosts, each time, at XDP: pairs of hosts are kept from the second on.
fn first_packets(at: &'static str, loaded: &mut Loaded, visit: Visit<'_>) {
    type Made = Box<dyn Fn(u16) -> Vec<u8>>;
    let server = |number: u16| SERVER.to_bits() + 1 + u32::from(number);
    let to = move |number| {
        Ipv6Addr::from_bits(SERVER6.to_bits() >> 32 << 32 | u128::from(server(number)))
    };
    let frames: [(_, Made); 2] = [
        (
            "SIIT v6>v4, first packet",
            Box::new(move |number| from_v6(HOST, to(number), 4000, UDP, 0)),
        ),
        (
            "SIIT v4>v6, first packet",
            Box::new(move |number| from_v4(server(number).into(), ADDRESS, [53, 4000], UDP, 0)),
        ),
    ];
    for (name, frame) in frames {
        let path = Path { name, at, program: Program::Xdp, outcome: Outcome::Translated, frame };
        visit(&path, loaded);
    }
}

fn client(options: &TestOptions, visit: Visit<'_>) {
    let programs = [Program::UplinkEgress, Program::UplinkIngress];
    let mut loaded = Loaded::load(&config(), &programs, options).expect("programs");
    for (name, program, frame) in [
        ("CLAT v4>v6", programs[0], from_v4(ADDRESS, SERVER, [4000, 53], UDP, 0)),
        ("CLAT v6>v4", programs[1], from_v6(SERVER6, HOST, 53, UDP, 0)),
    ] {
        let frame = Box::new(move |_| frame.clone());
        let path = Path { name, at: "uplink", program, outcome: Outcome::Translated, frame };
        visit(&path, &mut loaded);
    }
}

fn stateful(at: &'static str, program: Program, options: &TestOptions, visit: Visit<'_>) {
    let tables = Tables::new();
    let stateful =
        Stateful { settings: tables.settings.clone(), maps: Arc::clone(&tables.maps), gates: None };
    let options =
        TestOptions { stateful: Some(stateful), clock: Clock::Machine, ..options.clone() };
    let mut loaded = Loaded::load(&translator(), &[program], &options).expect("programs");
    let mut path = |name, frame: Box<dyn Fn(u16) -> Vec<u8>>| {
        visit(&Path { name, at, program, outcome: Outcome::Translated, frame }, &mut loaded);
    };
    // The subscriber is the user engine's to make.
    let udp = from_v6(HOST, SERVER6, 5000, UDP, 0);
    let (local, port) = tables.translate(&udp);
    let back = from_v4(SERVER, local, [53, port], UDP, 0);
    path("NAT64 v6>v4", Box::new(move |_| udp.clone()));
    path("NAT64 v4>v6", Box::new(move |_| back.clone()));
    let (local, port) = tables.translate(&from_v6(HOST, SERVER6, 5000, TCP, SYN));
    tables.translate(&from_v4(SERVER, local, [53, port], TCP, SYN_ACK));
    let segment = from_v6(HOST, SERVER6, 5000, TCP, ACK);
    tables.translate(&segment);
    path("NAT64 TCP v6>v4", Box::new(move |_| segment.clone()));
    let first = |protocol, flags| -> Box<dyn Fn(u16) -> Vec<u8>> {
        Box::new(move |number| from_v6(HOST, SERVER6, 10_000 + number, protocol, flags))
    };
    path("NAT64 new UDP flow", first(UDP, 0));
    path("NAT64 new TCP connection", first(TCP, SYN));
}

fn softwire(at: &'static str, program: Program, mut options: TestOptions, visit: Visit<'_>) {
    let maps = Arc::new(SoftwireMaps::make(Role::Tep, 16).expect("maps"));
    maps.insert(&Binding { v4: ADDRESS, ports: None, remote: HOST, local: TEP }).expect("room");
    options.tunnels = Some(Tunnels { settings: Default::default(), maps });
    let mut loaded = Loaded::load(&Config::default(), &[program], &options).expect("programs");
    let inner = &from_v4(ADDRESS, SERVER, [4000, 53], UDP, 0)[14..];
    let mut tunnelled = v6_header(HOST, TEP, 4, inner.len());
    tunnelled.extend(inner);
    for (name, frame) in [
        ("softwire v4>v6", from_v4(SERVER, ADDRESS, [53, 4000], UDP, 0)),
        ("softwire v6>v4", frame(&tunnelled)),
    ] {
        let frame = Box::new(move |_| frame.clone());
        let path = Path { name, at, program, outcome: Outcome::Translated, frame };
        visit(&path, &mut loaded);
    }
}

/// Makes the namespace: hosts of both families behind veth0, the translator's interface fw0. Gives what all programs are
/// loaded with.
fn prepare() -> TestOptions {
    fordway_testkit::sys::enter_new_namespace().expect("a network namespace (as root)");
    fordway_tun::set_processors(&[0]).expect("processor 0");
    for command in [
        "ip link set lo up",
        "ip tuntap add dev fw0 mode tun",
        "ip link set fw0 up",
        "ip link add veth0 type veth peer name veth1",
        "ip link set veth0 up",
        "ip link set veth1 up",
        "sysctl -qw net.ipv4.ip_forward=1",
        "sysctl -qw net.ipv6.conf.all.forwarding=1",
        "sysctl -qw net.ipv6.conf.lo.forwarding=1",
        "ip addr add 203.0.113.254/24 dev veth0",
        "ip addr add fe80::1/64 dev veth0 nodad",
        "ip neigh add 203.0.113.253 lladdr 02:00:00:00:00:02 dev veth0",
        "ip neigh add fe80::2 lladdr 02:00:00:00:00:02 dev veth0",
        "ip route add 198.51.100.0/24 via 203.0.113.253",
        "ip route add 192.0.2.0/24 dev fw0",
        "ip -6 route add 2001:db8:64::/96 dev fw0",
        "ip -6 route add 2001:db8:2::/64 dev fw0",
        "ip -6 route add 2001:db8:1::/64 via fe80::2 dev veth0",
        "ip -6 route add 2001:db8:9::/64 via fe80::2 dev veth0",
    ] {
        let mut words = command.split(' ');
        let done = Command::new(words.next().expect("a word")).args(words).status();
        assert!(done.is_ok_and(|status| status.success()), "{command}");
    }
    let index = |name: &str| nix::net::if_::if_nametoindex(name).expect("the device");
    // Longer than anything here takes: answers of the kernel are kept, as they are while the daemon runs.
    const LONG: Duration = Duration::from_secs(3600);
    let news = RoutingNews::new(LONG).expect("a map");
    news.set_by_destination(true);
    news.heard(LONG);
    TestOptions {
        tun: index("fw0"),
        devices: vec![index("veth0")],
        keep_order: true,
        routing: Some(Arc::new(news)),
        ..Default::default()
    }
}

/// A translator by prefix.
fn translator() -> Config {
    let prefix = Pool6::new("2001:db8:64::/96".parse().expect("a prefix")).expect("a prefix");
    Config { pool6: vec![prefix], ..Config::default() }
}

/// [`translator`] with an explicit mapping for [`HOST`].
fn config() -> Config {
    let whole = |text: String| text.parse().expect("a prefix");
    let eam =
        Eam::new(format!("{ADDRESS}/32").parse().expect("a prefix"), whole(format!("{HOST}/128")));
    Config { eam: EamTable::new(eam).expect("a table"), ..translator() }
}

/// Tables, and the core that works on them.
struct Tables {
    settings: Settings,
    maps: Arc<StateMaps>,
    nat: Arc<Nat64>,
}

impl Tables {
    fn new() -> Tables {
        let range = |number| Range {
            first: Ipv4Addr::new(192, 0, 2, number),
            last: Ipv4Addr::new(192, 0, 2, number),
            low: 1024 + u16::from(number),
            high: 65_535,
        };
        let ranges = vec![range(9), range(1), range(3), range(5)];
        let settings = Settings {
            pools: vec![Pool { ranges, ..Pool::default() }],
            sizes: Sizes { bibs: SESSIONS, sessions: SESSIONS, subscribers: 100 },
            ..Settings::default()
        };
        let maps = Arc::new(StateMaps::make(&settings.sizes, [3, 5]).expect("tables"));
        let memory = Arc::clone(&maps) as Arc<dyn Memory>;
        let nat = Arc::new(Nat64::new(settings.clone(), memory).expect("sound settings"));
        Tables { settings, maps, nat }
    }

    fn now() -> Duration {
        nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).expect("a clock").into()
    }

    /// Lets the core translate a frame; gives the first address and port of the result, of a packet to IPv4 (T,t).
    fn translate(&self, frame: &[u8]) -> (Ipv4Addr, u16) {
        let core =
            Translator::nat64(translator(), Arc::clone(&self.nat)).expect("a sound configuration");
        let packet = &frame[14..];
        let mut buffer = vec![0; HEADROOM + packet.len() + HEADROOM];
        let range = HEADROOM..HEADROOM + packet.len();
        buffer[range.clone()].copy_from_slice(packet);
        let mut packet = Packet::new(&mut buffer, range, Offload::default());
        core.translate(&mut packet, Tables::now(), &mut State::new(1), &mut ());
        let octets = packet.bytes();
        let addr = <[u8; 4]>::try_from(&octets[12..16]).expect("an address");
        (addr.into(), u16::from_be_bytes([octets[20], octets[21]]))
    }
}

/// With an Ethernet header for this host.
fn frame(packet: &[u8]) -> Vec<u8> {
    let kind: [u8; 2] = if packet[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xdd] };
    [&[0u8; 12], &kind[..], packet].concat()
}

/// A UDP datagram of 20 octets, or a TCP segment without data and options.
fn transport(ports: [u16; 2], protocol: u8, flags: u8) -> Vec<u8> {
    let mut octets = ports.map(u16::to_be_bytes).concat();
    if protocol == TCP {
        octets.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, flags, 0x20, 0, 0x12, 0x34, 0, 0]);
    } else {
        octets.extend([0, 8 + 12, 0x12, 0x34]);
        octets.extend([7; 12]);
    }
    octets
}

fn v6_header(src: Ipv6Addr, dst: Ipv6Addr, protocol: u8, len: usize) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, len as u8, protocol, 64];
    packet.extend([src.octets(), dst.octets()].concat());
    packet
}

fn from_v6(src: Ipv6Addr, dst: Ipv6Addr, port: u16, protocol: u8, flags: u8) -> Vec<u8> {
    let data = transport([port, 53], protocol, flags);
    let mut packet = v6_header(src, dst, protocol, data.len());
    packet.extend(data);
    frame(&packet)
}

fn from_v4(src: Ipv4Addr, dst: Ipv4Addr, ports: [u16; 2], protocol: u8, flags: u8) -> Vec<u8> {
    let data = transport(ports, protocol, flags);
    let mut packet = vec![0x45, 0, 0, 20 + data.len() as u8, 0, 0, 0x40, 0, 64, protocol, 0, 0];
    packet.extend([src.octets(), dst.octets()].concat());
    let sum = fordway_testkit::checksum::sum(&packet);
    packet[10..12].copy_from_slice(&(!sum).to_be_bytes());
    packet.extend(data);
    frame(&packet)
}
