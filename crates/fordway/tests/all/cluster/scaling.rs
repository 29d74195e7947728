//! What one, two, three and eight gateways cost, in time of processors: figures for people, and a model of more gateways made of them.

mod model;

use std::fmt::Write;
use std::net::{Ipv6Addr, UdpSocket};
use std::ops::Sub;
use std::thread;
use std::time::{Duration, Instant};

use fordway_testhost::{can_use_tun, has_programs, poll};
use serde_json::Value;

use super::world::{Setting, World, host};
use super::{SUBSCRIBERS, number, owned};
use crate::common::daemon::Daemon;
use crate::common::netns::Netns;
use model::Model;

/// How long nothing happens.
const IDLE: Duration = Duration::from_secs(10);
/// New UDP flows, each a BIB entry and a session.
const FLOWS: u64 = 200_000;
/// Packets of known flows.
const KNOWN: u64 = 1_000_000;
/// Nothing listens there, and nothing is answered.
const SINK: u16 = 9;

/// Processors' time in ns since they began, and octets.
#[derive(Clone, Copy, Default)]
struct Spent {
    /// Of all processors of the machine: sender, gateways, receiver, store.
    machine: u64,
    /// Of the gateways' processes, all of them together, packets in the kernel not counted.
    gateways: u64,
    /// Of the servers of the store.
    store: u64,
    /// Octets of TCP that gateways have sent to each other, and to the store and back.
    between: u64,
    stored: u64,
    /// Octets of memory of the gateways' processes, but for the tables.
    memory: u64,
}

impl Sub for Spent {
    type Output = Spent;

    fn sub(self, before: Spent) -> Spent {
        Spent {
            machine: self.machine - before.machine,
            gateways: self.gateways - before.gateways,
            store: self.store - before.store,
            between: self.between - before.between,
            stored: self.stored - before.stored,
            memory: self.memory.saturating_sub(before.memory),
        }
    }
}

/// Processors' time of a process with all its threads.
fn of_process(pid: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let spent = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0)
    };
    tasks.map_while(Result::ok).map(spent).sum()
}

/// Memory of a process that is no file's and no map's.
fn anonymous(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Time in which the machine's processors were busy.
fn of_machine() -> u64 {
    let text = std::fs::read_to_string("/proc/stat").unwrap();
    let ticks = text.lines().next().unwrap().split_whitespace().skip(1);
    let ticks: Vec<u64> = ticks.map(|it| it.parse().unwrap()).collect();
    // User, nice, system; not idle and waiting; interrupts of both kinds.
    const TICK: u64 = 10_000_000;
    (ticks[..3].iter().sum::<u64>() + ticks[5] + ticks[6]) * TICK
}

/// Counts octets of TCP between gateways and with the store.
fn count(gateway: &Netns) {
    gateway.run(
        "nft add table inet spent ; add counter inet spent between ; add counter inet spent stored ; \
         add chain inet spent out { type filter hook output priority 0 ; } ; \
         add chain inet spent in { type filter hook input priority 0 ; } ; \
         add rule inet spent out tcp dport 6146 counter name between ; \
         add rule inet spent out tcp sport 6146 counter name between ; \
         add rule inet spent out tcp dport 4222 counter name stored ; \
         add rule inet spent in tcp sport 4222 counter name stored",
    );
}

/// Gateways of one kind.
struct Gateways<'a> {
    world: &'a World,
    daemons: Vec<Daemon<'a>>,
    all: Vec<usize>,
    shards: u64,
}

impl Gateways<'_> {
    fn spent(&self) -> Spent {
        let octets = |gateway: usize, name: &str| {
            let text =
                self.world.gateways[gateway].run(&format!("nft list counter inet spent {name}"));
            let words: Vec<&str> = text.split_whitespace().collect();
            let at = words.iter().position(|word| *word == "bytes").unwrap();
            words[at + 1].parse::<u64>().unwrap()
        };
        Spent {
            machine: of_machine(),
            gateways: self.daemons.iter().map(|daemon| of_process(daemon.pid())).sum(),
            store: self.world.store.borrow().pids().into_iter().map(of_process).sum(),
            between: self.all.iter().map(|n| octets(*n, "between")).sum(),
            stored: self.all.iter().map(|n| octets(*n, "stored")).sum(),
            memory: self.daemons.iter().map(|daemon| anonymous(daemon.pid())).sum(),
        }
    }

    fn records(&self) -> u64 {
        let all = self.all.iter().map(|gateway| self.world.status(*gateway));
        all.map(|one| number(&one, "/records/own")).sum()
    }

    /// Waits until no record is new, and standbys have all. Packets may be lost on a busy machine.
    fn told(&self) {
        let mut last = 0;
        poll("records rest", || {
            thread::sleep(Duration::from_millis(500));
            let records = std::mem::replace(&mut last, self.records());
            (records == last && last > 0).then_some(())
        });
        self.settled();
    }

    /// Waits until all own shards, whose records standbys have.
    fn settled(&self) {
        let is = |all: &[Value]| {
            let sum = |pointer: &str| all.iter().map(|one| number(one, pointer)).sum::<u64>();
            let standbys = if all.len() > 1 { self.shards } else { 0 };
            all.iter().all(|one| owned(one) > 0)
                && sum("/shards_by_role/owner") == self.shards
                && sum("/shards_by_role/ready") >= standbys
                && sum("/records/lag") == 0
        };
        self.world.until("all own shards", &self.all, is);
    }

    /// What it takes to do something, and how long.
    fn during(&self, what: impl FnOnce()) -> (Spent, Duration) {
        let (before, began) = (self.spent(), Instant::now());
        what();
        (self.spent() - before, began.elapsed())
    }

    /// Measures new flows and packets of known ones.
    fn carry(&self, row: &mut Row) {
        let world = self.world;
        let (before, began) = (self.spent(), Instant::now());
        let (opening, took) = self.during(|| open(world, FLOWS));
        self.told();
        let told = self.spent() - before;
        row.made = (self.records() - SUBSCRIBERS) / 2;
        row.flows_per_s = row.made as f64 / took.as_secs_f64();
        // What gateways would have spent anyway is no flow's.
        let anyway = (row.idle.gateways as f64 * began.elapsed().as_secs_f64()) as u64;
        let gateways = told.gateways.saturating_sub(anyway);
        let per_s = per(opening, took.as_secs_f64());
        row.flow = Spent {
            store: per_s.store,
            stored: per_s.stored,
            machine: per(opening, row.made as f64).machine,
            ..per(Spent { gateways, ..told }, row.made as f64)
        };
        repeat(world, KNOWN / 10);
        let (spent, _) = self.during(|| repeat(world, KNOWN));
        row.packet = spent.machine as f64 / KNOWN as f64;
    }
}

/// Sends a datagram from the source port that is this flow's alone.
fn send(flow: u64) -> UdpSocket {
    let to: Ipv6Addr = "2001:db8:64::198.51.100.2".parse().unwrap();
    let source: Ipv6Addr = host(1 + flow % SUBSCRIBERS).parse().unwrap();
    let socket = UdpSocket::bind((source, 1024 + (flow / SUBSCRIBERS) as u16)).unwrap();
    socket.connect((to, SINK)).unwrap();
    socket.send(&[0; 18]).unwrap();
    socket
}

/// Sends the first datagram of so many flows.
fn open(world: &World, flows: u64) {
    world.client.inside(move || (0..flows).for_each(|flow| drop(send(flow))));
}

/// Sends datagrams by flows that are known.
fn repeat(world: &World, packets: u64) {
    world.client.inside(move || {
        let sockets: Vec<_> = (0..64).map(send).collect();
        for socket in sockets.iter().cycle().take(packets as usize) {
            socket.send(&[0; 18]).unwrap();
        }
    });
}

/// What is measured of one number of gateways.
#[derive(Clone, Copy, Default)]
struct Row {
    gateways: usize,
    shards: u64,
    /// Per second.
    idle: Spent,
    /// Per flow, until standbys know of it; what has to do with the store per second while flows are opened.
    flow: Spent,
    flows_per_s: f64,
    /// How many of the flows there were.
    made: u64,
    /// Of the machine, per packet, in ns.
    packet: f64,
}

/// The same for one of so many.
fn per(spent: Spent, unit: f64) -> Spent {
    let by = |value: u64| (value as f64 / unit).round() as u64;
    Spent {
        machine: by(spent.machine),
        gateways: by(spent.gateways),
        store: by(spent.store),
        between: by(spent.between),
        stored: by(spent.stored),
        memory: by(spent.memory),
    }
}

/// `carries`: with packets, or as they stand alone.
fn measure(gateways: u16, shards: u64, carries: bool) -> Row {
    let world = World::unrouted(gateways, 1, None);
    world.configure_as(&Setting {
        engine: "engine = 'kernel'\nmax_sessions = 1048576",
        ttl: "500ms",
        shards,
        cluster: "replicate = ['tcp', 'udp']",
    });
    let hops: String = (1..=gateways).fold(String::new(), |mut all, number| {
        let _ = write!(all, " nexthop via 2001:db8:c::{number}");
        all
    });
    world.router.configure(&[&format!("route add 2001:db8:64::/96{hops}")]);
    world.server.run("nft add table ip sink ; add chain ip sink in { type filter hook prerouting priority -300 ; } ; add rule ip sink in udp dport 9 drop");
    world.send_from(1);
    world.gateways.iter().for_each(count);
    let all: Vec<usize> = (0..gateways.into()).collect();
    let daemons = all.iter().map(|gateway| world.start(*gateway)).collect();
    let it = Gateways { world: &world, daemons, all, shards };
    it.settled();
    let (idle, took) = it.during(|| thread::sleep(IDLE));
    let idle = per(idle, took.as_secs_f64());
    let mut row = Row { gateways: gateways.into(), shards, idle, ..Row::default() };
    if carries {
        it.carry(&mut row);
    }
    it.daemons.into_iter().for_each(|daemon| drop(daemon.stop()));
    row
}

#[test]
#[ignore = "prints figures, which hold for a quiet machine and a release build"]
fn scaling_is_measured_and_modelled() {
    if !can_use_tun() || !has_programs(&["nats-server", "nft"]) {
        return;
    }
    println!(
        "| gateways | shards | idle: gateways, ms/s | store, ms/s | to and from it, kB/s | new flows | thousand/s | \
         gateways, µs each | machine, µs each | between gateways, octets each | memory, octets each | \
         store, ms/s | to and from it, kB/s | known packet, machine, ns |"
    );
    println!("|{}", "--:|".repeat(14));
    let rows = [(1, 16), (2, 16), (3, 16), (2, 128), (8, 64)].map(|(gateways, shards)| {
        let row = measure(gateways, shards, gateways <= 3);
        let (idle, flow) = (row.idle, row.flow);
        println!(
            "| {} | {} | {:.1} | {:.1} | {:.1} | {} | {:.1} | {:.1} | {:.1} | {} | {} | {:.1} | {:.1} | {:.0} |",
            row.gateways,
            row.shards,
            idle.gateways as f64 / 1e6,
            idle.store as f64 / 1e6,
            idle.stored as f64 / 1e3,
            row.made,
            row.flows_per_s / 1e3,
            flow.gateways as f64 / 1e3,
            flow.machine as f64 / 1e3,
            flow.between,
            flow.memory,
            flow.store as f64 / 1e6,
            flow.stored as f64 / 1e3,
            row.packet,
        );
        row
    });
    print!("{}", Model::new(&rows).table());
}
