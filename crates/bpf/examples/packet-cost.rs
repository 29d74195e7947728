//! The time of the kernel programs for a packet, in nanoseconds: the mean of the middle half of many single runs. Needs
//! root.
//!
//! Absolute numbers are of this machine and of warm caches. Compare two builds of this, run in turns:
//! `cargo run --release -p fordway-bpf --example packet-cost`.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use fordway_bpf::{Loaded, Outcome, Program, StateMaps, Stateful, TestOptions};
use fordway_xlat::addr::Pool6;
use fordway_xlat::nat64::{Memory, Nat64, Pool, Range, Settings, Sizes};
use fordway_xlat::{Config, HEADROOM, Offload, Packet, State, Translator};

const RUNS: usize = 20_000;
const HOST: &str = "2001:db8:1::1";
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);

fn main() {
    fordway_testkit::sys::enter_new_namespace().expect("a network namespace (as root)");
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
        "ip -6 route add 2001:db8:1::/64 via fe80::2 dev veth0",
    ] {
        let mut words = command.split(' ');
        let done = Command::new(words.next().expect("a word")).args(words).status();
        assert!(done.is_ok_and(|status| status.success()), "{command}");
    }
    let index = |name: &str| nix::net::if_::if_nametoindex(name).expect("the device");
    let options = TestOptions {
        tun: index("fw0"),
        devices: vec![index("veth0")],
        keep_order: true,
        ..Default::default()
    };

    let prefix = Pool6::new("2001:db8:64::/96".parse().expect("a prefix")).expect("a prefix");
    let mut config = Config { pool6: vec![prefix], ..Config::default() };
    let eam = fordway_xlat::addr::Eam::new(
        "192.0.2.1/32".parse().expect("a prefix"),
        format!("{HOST}/128").parse().expect("a prefix"),
    );
    config.eam = fordway_xlat::addr::EamTable::new(eam).expect("a table");
    for tcp in [false, true] {
        let kind = if tcp { "tcp" } else { "udp" };
        let (up, down) = (from_v6(4000, tcp), from_v4(Ipv4Addr::new(192, 0, 2, 1), 4000, tcp));
        for program in [Program::Interface, Program::Ingress, Program::Xdp] {
            let mut loaded = Loaded::load(&config, &[program], &options).expect("programs");
            measure(&mut loaded, program, &format!("siit {kind} v6>v4"), &up);
            measure(&mut loaded, program, &format!("siit {kind} v4>v6"), &down);
        }
    }

    let range = |number| Range {
        first: Ipv4Addr::new(192, 0, 2, number),
        last: Ipv4Addr::new(192, 0, 2, number),
        low: 1024 + u16::from(number),
        high: 65_535,
    };
    let ranges = vec![range(9), range(1), range(3), range(5)];
    let settings = Settings {
        pools: vec![Pool { ranges, ..Pool::default() }],
        sizes: Sizes { bibs: 1000, sessions: 2000, subscribers: 100 },
        ..Settings::default()
    };
    let maps = Arc::new(StateMaps::make(&settings.sizes, [3, 5]).expect("tables"));
    let memory = Arc::clone(&maps) as Arc<dyn Memory>;
    let nat = Arc::new(Nat64::new(settings.clone(), memory).expect("sound settings"));
    let mut core = Translator::nat64(config.clone(), nat).expect("a sound configuration");
    for tcp in [false, true] {
        let kind = if tcp { "tcp" } else { "udp" };
        let up = from_v6(5000, tcp);
        let (local, port) = translated_source(&mut core, &up);
        let down = from_v4(local, port, tcp);
        for program in [Program::Interface, Program::Ingress, Program::XdpNat64] {
            let stateful =
                Stateful { settings: settings.clone(), maps: Arc::clone(&maps), gates: None };
            let options = TestOptions { stateful: Some(stateful), ..options.clone() };
            let mut loaded = Loaded::load(&config, &[program], &options).expect("programs");
            measure(&mut loaded, program, &format!("nat64 {kind} v6>v4"), &up);
            measure(&mut loaded, program, &format!("nat64 {kind} v4>v6"), &down);
        }
    }
    assert!(maps.regions().meta.fresh[0].load(Relaxed) > 0);
}

fn measure(loaded: &mut Loaded, program: Program, what: &str, packet: &[u8]) {
    let kind: [u8; 2] = if packet[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xdd] };
    let frame = [&[0u8; 12], &kind[..], packet].concat();
    let mut times: Vec<u32> = (0..RUNS)
        .map(|_| {
            let run = loaded.run(program, &frame, 0, 1).expect("a run");
            assert_eq!(run.outcome, Some(Outcome::Translated), "{what} {program:?}: {run:?}");
            run.ns
        })
        .collect();
    times.sort_unstable();
    let middle = &times[RUNS / 4..RUNS * 3 / 4];
    let mean = middle.iter().map(|&ns| f64::from(ns)).sum::<f64>() / middle.len() as f64;
    println!("{:<14} {what:<18} {mean:>7.1} ns", format!("{program:?}"));
}

/// (T,t) of a packet from IPv6, for which the core makes a session.
fn translated_source(core: &mut Translator, packet: &[u8]) -> (Ipv4Addr, u16) {
    let mut buffer = vec![0; HEADROOM + packet.len() + HEADROOM];
    let range = HEADROOM..HEADROOM + packet.len();
    buffer[range.clone()].copy_from_slice(packet);
    let mut packet = Packet::new(&mut buffer, range, Offload::default());
    let clock = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).expect("a clock");
    core.translate(&mut packet, Duration::from(clock), &mut State::new(1), &mut ());
    let octets = packet.bytes();
    let addr = <[u8; 4]>::try_from(&octets[12..16]).expect("an address");
    (addr.into(), u16::from_be_bytes([octets[20], octets[21]]))
}

fn transport(ports: [u16; 2], tcp: bool) -> Vec<u8> {
    let mut octets = ports.map(u16::to_be_bytes).concat();
    if tcp {
        // A SYN, which opens a session: later segments of it go the same way.
        octets.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x02, 0x20, 0, 0x12, 0x34, 0, 0]);
    } else {
        octets.extend([0, 8 + 12, 0x12, 0x34]);
        octets.extend([7; 12]);
    }
    octets
}

fn from_v6(port: u16, tcp: bool) -> Vec<u8> {
    let data = transport([port, 53], tcp);
    let protocol = if tcp { 6 } else { 17 };
    let mut packet = vec![0x60, 0, 0, 0, 0, data.len() as u8, protocol, 64];
    packet.extend(HOST.parse::<Ipv6Addr>().expect("an address").octets());
    packet.extend("2001:db8:64::".parse::<Ipv6Addr>().expect("an address").octets());
    packet[36..40].copy_from_slice(&SERVER.octets());
    packet.extend(data);
    packet
}

fn from_v4(local: Ipv4Addr, port: u16, tcp: bool) -> Vec<u8> {
    let data = transport([53, port], tcp);
    let protocol = if tcp { 6 } else { 17 };
    let mut packet = vec![0x45, 0, 0, 20 + data.len() as u8, 0, 0, 0x40, 0, 64, protocol, 0, 0];
    packet.extend([SERVER.octets(), local.octets()].concat());
    let words = packet.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum = words.sum::<u32>();
    let sum = (sum & 0xffff) + (sum >> 16);
    packet[10..12].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
    packet.extend(data);
    packet
}
