//! Softwires between real hosts, carried by the kernel's programs alone: a client, its tunnel end point and a server,
//! each in a network namespace, and nobody at the queue of any TUN device.
//!
//! Needs root; says so, and does nothing, without.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::sync::{Arc, mpsc};
use std::thread;

use fordway_bpf::{
    Accelerator, Forwarding, Hook, Options, PassReason, SoftwireMaps, Totals, Tunnels,
};
use fordway_softwire::{Binding, Role, Settings};
use fordway_testhost::{PATIENCE, can_use_tun};
use fordway_tun::{Device, Queue};
use fordway_xlat::{Config, Direction, HopCount};

use crate::wire::{Folders, index, run};

/// The client's end of the tunnel, and the other.
const B4: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xb4, 0, 0, 0, 0, 1);
const TEP: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);

/// Of links, and so of the tunnel.
const MTU: u32 = 1500;

/// Octets of a transfer.
const LEN: usize = 6_000_000;

#[test]
fn connections_are_carried_by_the_programs_alone_at_interfaces() {
    connections_are_carried(Attach::Interface);
}

#[test]
fn connections_are_carried_by_the_programs_alone_at_the_uplink() {
    connections_are_carried(Attach::Uplink);
}

#[test]
fn connections_are_carried_by_the_programs_alone_at_the_ingress() {
    connections_are_carried(Attach::Ingress);
}

#[test]
fn connections_are_carried_by_the_programs_alone_in_place() {
    connections_are_carried(Attach::InPlace);
}

fn connections_are_carried(attach: Attach) {
    if !can_use_tun() {
        return;
    }
    let lab = Lab::new();
    let (client, tep) = lab.start(attach);
    lab.transfer();
    for (name, end) in [("client", &client), ("end point", &tep)] {
        let totals = end.totals().expect("counters");
        for direction in Direction::ALL {
            let carried = totals.direction(direction);
            let least = (LEN / 1460) as u64;
            assert!(carried.segments > least, "{name} {direction:?} {totals:?}");
            assert!(carried.packets < carried.segments, "super-packets are whole {totals:?}");
        }
        // The host's own multicast reports have a Hop-by-Hop header.
        let own = totals.passed_on(PassReason::ExtensionHeaders);
        let left: u64 = totals.passed_on.iter().sum();
        assert_eq!(left, own, "{name} {totals:?}");
        assert_eq!(totals.drops.iter().sum::<u64>(), 0, "{name} {totals:?}");
    }
    // As when the processes are killed: programs stay, and nobody has their maps.
    let before = tep.totals().expect("counters");
    drop((client, tep));
    lab.transfer();
    // Whoever starts next takes over, and the counters go on.
    let (client, tep) = lab.start(attach);
    let after = tep.totals().expect("counters");
    let packets = |totals: &Totals| totals.direction(Direction::V4ToV6).packets;
    assert!(packets(&after) > packets(&before), "{before:?} {after:?}");
    lab.transfer();
    for end in [client, tep] {
        end.detach().expect("to detach");
    }
}

/// Where the ends stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attach {
    /// Both at their interfaces.
    Interface,
    /// The client at its uplink.
    Uplink,
    /// The client at its uplink, the end point at the ingress of its devices.
    Ingress,
    /// The same, and what the end point makes of packets arrives from the devices that they came by.
    InPlace,
}

/// A thread in a network namespace of its own, which does what it is told.
struct Host {
    tid: i32,
    work: mpsc::Sender<Box<dyn FnOnce() + Send>>,
}

impl Host {
    fn new() -> Host {
        let (work, tasks) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            fordway_testkit::sys::enter_new_namespace().expect("a network namespace");
            run("ip link set lo up");
            for family in ["ipv4", "ipv6"] {
                run(&format!("sysctl -qw net.{family}.conf.all.forwarding=1"));
            }
            let link = std::fs::read_link("/proc/thread-self").expect("/proc");
            let tid = link.file_name().expect("a number").to_string_lossy().parse::<i32>();
            tell.send(tid.expect("a number")).expect("the test waits");
            for task in tasks {
                task();
            }
        });
        Host { tid: told.recv().expect("a namespace"), work }
    }

    fn run<T: Send + 'static>(&self, task: impl FnOnce() -> T + Send + 'static) -> T {
        let (give, given) = mpsc::channel();
        let task = Box::new(move || {
            let _ = give.send(task());
        });
        self.work.send(task).expect("the host");
        given.recv().expect("what the host was told succeeds")
    }

    fn ip(&self, lines: &'static str) {
        self.run(move || {
            lines.lines().map(str::trim).filter(|line| !line.is_empty()).for_each(|line| {
                run(&format!("ip {line}"));
            });
        });
    }
}

/// The hosts; both ends have a TUN device `sw0`, whose queue nobody reads.
struct Lab {
    client: Host,
    tep: Host,
    server: Host,
    folders: [Arc<Folders>; 2],
    _devices: [(Device, Queue); 2],
}

impl Lab {
    fn new() -> Lab {
        let [client, tep, server] = [Host::new(), Host::new(), Host::new()];
        let (tid, next) = (tep.tid, server.tid);
        client.run(move || run(&format!("ip link add wan type veth peer name near netns {tid}")));
        tep.run(move || run(&format!("ip link add far type veth peer name wan netns {next}")));
        let folders = [Arc::new(Folders::new()), Arc::new(Folders::new())];
        let devices = [(&client, &folders[0]), (&tep, &folders[1])].map(|(host, folders)| {
            let folders = Arc::clone(folders);
            host.run(move || folders.tun("sw0", MTU))
        });
        client.ip("link set dev wan up
             -6 addr add 2001:db8:1::1/64 dev wan nodad
             addr add 203.0.113.1/30 dev wan
             addr add 192.0.2.1/32 dev lo
             -6 route add 2001:db8:2::1 via 2001:db8:1::2");
        tep.ip("link set dev near up
             link set dev far up
             -6 addr add 2001:db8:1::2/64 dev near nodad
             addr add 203.0.113.2/30 dev near
             addr add 198.51.100.1/24 dev far
             -6 route add 2001:db8:b4::1 via 2001:db8:1::1
             -6 route add 2001:db8:2::1 dev sw0
             route add 192.0.2.1 dev sw0 mtu 1460");
        server.ip("link set dev wan up
             addr add 198.51.100.2/24 dev wan
             route add default via 198.51.100.1");
        Lab { client, tep, server, folders, _devices: devices }
    }

    /// Lets the client's packets go its way, and starts both ends.
    fn start(&self, attach: Attach) -> (Accelerator, Accelerator) {
        self.client.ip(match attach {
            Attach::Interface => {
                "-6 route replace 2001:db8:b4::1 dev sw0
                 route replace 198.51.100.2 dev sw0 src 192.0.2.1 mtu 1460"
            }
            Attach::Uplink | Attach::Ingress | Attach::InPlace => {
                "route replace 198.51.100.2 via inet6 2001:db8:1::2 dev wan src 192.0.2.1 mtu 1460"
            }
        });
        let start = |host: &Host, folders: &Folders, role| {
            let pins = folders.pins.clone();
            host.run(move || {
                let tun = index("sw0");
                let hook = match (attach, role) {
                    (Attach::Interface, _) | (Attach::Uplink, Role::Tep) => Hook::Interface { tun },
                    (_, Role::Client) => Hook::Uplink { device: index("wan"), tun },
                    (Attach::Ingress | Attach::InPlace, Role::Tep) => {
                        Hook::Ingress { devices: vec![index("near"), index("far")], tun }
                    }
                };
                let maps = SoftwireMaps::make(role, 16).expect("maps");
                maps.insert(&Binding { v4: CLIENT, ports: None, remote: B4, local: TEP })
                    .expect("room");
                let hop_count = HopCount::from(matches!(hook, Hook::Uplink { .. }));
                let settings =
                    Settings { role, mtu6: MTU, hop_count, mss_clamp: true, ..Settings::default() };
                let tunnels = Some(Tunnels { settings, maps: Arc::new(maps) });
                let in_place = attach == Attach::InPlace && role == Role::Tep;
                let forward = if in_place { Forwarding::InPlace } else { Forwarding::Stack };
                let options = Options { tunnels, forward, ..Options::new(pins, hook) };
                Accelerator::start(&Config::default(), &options).expect("programs at their place")
            })
        };
        (
            start(&self.client, &self.folders[0], Role::Client),
            start(&self.tep, &self.folders[1], Role::Tep),
        )
    }

    /// Octets there and back, which arrive as they were.
    fn transfer(&self) {
        let listener = self.server.run(|| TcpListener::bind((SERVER, 0)).expect("a socket"));
        let port = listener.local_addr().expect("an address").port();
        let stream = self.client.run(move || {
            let to = (SERVER, port).into();
            TcpStream::connect_timeout(&to, PATIENCE).expect("a connection")
        });
        let (other, from) = listener.accept().expect("the connection");
        assert_eq!(from.ip(), CLIENT);
        for (mut out, mut back) in [(&stream, &other), (&other, &stream)] {
            back.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            out.set_write_timeout(Some(PATIENCE)).expect("a timeout");
            let pattern: Vec<u8> = (0..LEN).map(|at| (at % 251) as u8).collect();
            let mut got = vec![0; LEN];
            thread::scope(|scope| {
                scope.spawn(|| out.write_all(&pattern).expect("to send"));
                back.read_exact(&mut got).expect("all of it");
            });
            assert!(got == pattern, "other octets arrived");
        }
    }
}
