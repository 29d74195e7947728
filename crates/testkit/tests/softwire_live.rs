//! Softwires between real hosts, carried by the kernel's programs alone: a client, its tunnel end point and a server,
//! each in a network namespace, and nobody at the queue of any TUN device.
//!
//! Needs root; says so, and does nothing, without. `FORDWAY_FIGURES=1` measures too (iperf3).

mod wire;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::sync::{Arc, mpsc};
use std::thread;

use fordway_bpf::{Accelerator, Hook, Options, PassReason, SoftwireMaps, Totals, Tunnels};
use fordway_softwire::{Binding, Role, Settings};
use fordway_tun::{Device, Queue};
use fordway_xlat::{Config, Direction, HopCount};
use wire::{Folders, PATIENCE, index, is_possible, run};

/// The client's end of the tunnel, and the other.
const B4: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xb4, 0, 0, 0, 0, 1);
const TEP: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// The server, through the tunnel, and its other address, to which packets go as they are.
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
const NATIVE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 3);

/// Of links, and so of the tunnel.
const MTU: u32 = 1500;

/// Octets of a transfer.
const LEN: usize = 6_000_000;

#[test]
fn connections_are_carried_by_the_programs_alone() {
    if !is_possible() {
        return;
    }
    let lab = Lab::new();
    for attach in Attach::ALL {
        let (client, tep) = lab.start(attach);
        lab.transfer();
        for (name, end) in [("client", &client), ("end point", &tep)] {
            let totals = end.totals().expect("counters");
            for direction in Direction::ALL {
                let carried = totals.direction(direction);
                let least = (LEN / 1460) as u64;
                assert!(carried.segments > least, "{attach:?} {name} {direction:?} {totals:?}");
                assert!(carried.packets < carried.segments, "super-packets are whole {totals:?}");
            }
            // The host's own multicast reports have a Hop-by-Hop header.
            let own = totals.passed_on(PassReason::ExtensionHeaders);
            let left: u64 = totals.passed_on.iter().sum();
            assert_eq!(left, own, "{attach:?} {name} {totals:?}");
            assert_eq!(totals.drops.iter().sum::<u64>(), 0, "{attach:?} {name} {totals:?}");
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
}

/// One TCP flow through both ends against the same hops without a tunnel, in turns.
#[test]
fn figures() {
    if !is_possible() || std::env::var_os("FORDWAY_FIGURES").is_none() {
        return eprintln!("SKIPPED: FORDWAY_FIGURES=1 measures");
    }
    let lab = Lab::new();
    // Native, then each place.
    const COLUMNS: usize = 1 + Attach::ALL.len();
    let mut figures: Vec<[[f64; COLUMNS]; 2]> = Vec::new();
    for _ in 0..5 {
        let mut row = [[0.0; COLUMNS]; 2];
        for (column, reverse) in row.iter_mut().zip([false, true]) {
            column[0] = lab.iperf(NATIVE, reverse);
            for (place, attach) in Attach::ALL.into_iter().enumerate() {
                let ends = lab.start(attach);
                column[1 + place] = lab.iperf(SERVER, reverse);
                for end in [ends.0, ends.1] {
                    end.detach().expect("to detach");
                }
            }
        }
        println!("{row:.2?}");
        figures.push(row);
    }
    let median = |mut numbers: Vec<f64>| {
        numbers.sort_by(f64::total_cmp);
        numbers[numbers.len() / 2]
    };
    for (way, name) in ["from the client", "to the client"].into_iter().enumerate() {
        let of = |column: usize| median(figures.iter().map(|row| row[way][column]).collect());
        println!("{name}: native {:.2} Gbit/s", of(0));
        for (place, attach) in Attach::ALL.into_iter().enumerate() {
            let ratios = figures.iter().map(|row| row[way][1 + place] / row[way][0]);
            println!("  {attach:?} {:.2} ({:.3})", of(1 + place), median(ratios.collect()));
        }
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
}

impl Attach {
    const ALL: [Attach; 3] = [Attach::Interface, Attach::Uplink, Attach::Ingress];
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
             -6 route add 2001:db8:2::1 via 2001:db8:1::2
             route add 198.51.100.3 via 203.0.113.2");
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
             addr add 198.51.100.3/24 dev wan
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
            Attach::Uplink | Attach::Ingress => {
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
                    (Attach::Ingress, Role::Tep) => {
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
                let options = Options { tunnels, ..Options::new(pins, hook) };
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
            let pattern: Vec<u8> = (0..LEN).map(|at| (at % 251) as u8).collect();
            let mut got = vec![0; LEN];
            thread::scope(|scope| {
                scope.spawn(|| out.write_all(&pattern).expect("to send"));
                back.read_exact(&mut got).expect("all of it");
            });
            assert!(got == pattern, "other octets arrived");
        }
    }

    /// One TCP flow, in Gbit/s.
    fn iperf(&self, to: Ipv4Addr, reverse: bool) -> f64 {
        let mut server = self.server.run(move || {
            let mut command = std::process::Command::new("iperf3");
            command.args(["-s", "-B", &to.to_string()]);
            command.stdout(std::process::Stdio::null()).spawn().expect("iperf3")
        });
        let text = self.client.run(move || {
            let line = format!("iperf3 -c {to} -t 2 -J{}", if reverse { " -R" } else { "" });
            let mut result = (false, String::new());
            wire::poll("the server to listen", || {
                result = wire::attempt(&line);
                // It succeeds with an error in its report, too.
                result.0 && result.1.contains("sum_received")
            });
            result.1
        });
        // It may wait for another client, after one that came too early.
        let _ = server.kill();
        server.wait().expect("iperf3 ends");
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        value["end"]["sum_received"]["bits_per_second"].as_f64().expect("a number") / 1e9
    }
}
