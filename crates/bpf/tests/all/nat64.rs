//! The tables of stateful translation under the hands of many: programs in the kernel and the core at the
//! same time. Needs root.

mod tables;

use std::collections::{HashMap, HashSet};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use fordway_bpf::{Loaded, Outcome, PassReason, Program, StateMaps, Stateful, TestOptions};
use fordway_testhost::is_root;
use fordway_xlat::nat64::layout::{Bib, Session, Subscriber, TICK_SHIFT};
use fordway_xlat::nat64::{
    Allocation, Memory, Nat64, Pool, Protocol, Quotas, Range, Settings, Sizes, Sweeper,
};
use fordway_xlat::{Config, HEADROOM, Offload, Packet, State, Translator};

const HOSTS: u16 = 12;
const PORTS: u16 = 24;
const REMOTES: u8 = 3;

/// States of entries.
const LIVE: u32 = 4;
const HOLD_DOWN: u32 = 5;

fn config() -> Config {
    Config { pool6: vec!["2001:db8:64::/96".parse().unwrap()], ..Config::default() }
}

fn settings() -> Settings {
    let range = Range {
        first: Ipv4Addr::new(192, 0, 2, 1),
        last: Ipv4Addr::new(192, 0, 2, 2),
        low: 1024,
        high: 2047,
    };
    Settings {
        pools: vec![Pool {
            ranges: vec![range],
            allocation: Allocation::Blocks { size: 256, most: 1 },
            ..Pool::default()
        }],
        sizes: Sizes { bibs: 2000, sessions: 4000, subscribers: 100 },
        subscriber_len: 64,
        ..Settings::default()
    }
}

fn host(number: u16) -> Ipv6Addr {
    // Four hosts to a subscriber.
    Ipv6Addr::new(0x2001, 0xdb8, 1, number / 4, 0, 0, 0, number + 1)
}

fn remote(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 51, 100, number + 1)
}

/// A UDP datagram whose checksum nobody looks at.
fn from_v6(host: Ipv6Addr, port: u16, remote: Ipv4Addr) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 8, 17, 64];
    packet.extend(host.octets());
    let prefix: Ipv6Addr = "2001:db8:64::".parse().unwrap();
    packet.extend((prefix.to_bits() | u128::from(remote.to_bits())).to_be_bytes());
    packet.extend([port.to_be_bytes(), [0, 53], [0, 8], [0x12, 0x34]].concat());
    packet
}

fn from_v4(remote: Ipv4Addr, local: (Ipv4Addr, u16)) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
    packet.extend([remote.octets(), local.0.octets()].concat());
    let words = packet.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum = words.sum::<u32>();
    let sum = (sum & 0xffff) + (sum >> 16);
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet.extend([[0, 53], local.1.to_be_bytes(), [0, 8], [0x12, 0x34]].concat());
    packet
}

fn frame(packet: &[u8]) -> Vec<u8> {
    let kind: [u8; 2] = if packet[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xdd] };
    [&[0u8; 12], &kind[..], packet].concat()
}

/// Spreads a number, so that every thread has an order of its own.
fn spread(mut word: u64) -> u64 {
    word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word ^ word >> 31
}

/// Tables that programs and cores share.
struct Shared {
    settings: Settings,
    maps: Arc<StateMaps>,
    nat: Arc<Nat64>,
    /// Time that has gone by beside the clock's.
    ahead: AtomicU64,
}

impl Shared {
    fn new(settings: Settings) -> Shared {
        let maps = Arc::new(StateMaps::make(&settings.sizes, [3, 5]).unwrap());
        let memory = Arc::clone(&maps) as Arc<dyn Memory>;
        let nat = Arc::new(Nat64::new(settings.clone(), memory).unwrap());
        Shared { settings, maps, nat, ahead: AtomicU64::new(0) }
    }

    fn program(&self) -> Loaded {
        let (settings, maps) = (self.settings.clone(), Arc::clone(&self.maps));
        let stateful = Stateful { settings, maps, gates: None };
        let options = TestOptions { stateful: Some(stateful), ..TestOptions::default() };
        Loaded::load(&config(), &[Program::Interface], &options).unwrap()
    }

    fn now(&self) -> Duration {
        let clock = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).unwrap();
        Duration::from(clock) + Duration::from_nanos(self.ahead.load(SeqCst))
    }

    fn wait(&self, time: Duration) {
        let ahead = self.ahead.fetch_add(time.as_nanos() as u64, SeqCst) + time.as_nanos() as u64;
        self.maps.regions().meta.clock_offset_ns.store(ahead, SeqCst);
    }

    fn core(&self, seed: u16) -> Core<'_> {
        let translator = Translator::nat64(config(), Arc::clone(&self.nat)).unwrap();
        Core { shared: self, translator, state: State::new(seed) }
    }

    fn pair(&self, seed: u16) -> Pair<'_> {
        Pair { program: self.program(), core: self.core(seed) }
    }

    /// Makes every subscriber known.
    fn introduce(&self) {
        let mut core = self.core(0);
        for number in 0..HOSTS {
            core.translate(&from_v6(host(number), 4000, remote(0)));
        }
    }

    fn expire(&self, sweeper: &mut Sweeper) {
        self.wait(Duration::from_secs(10_000));
        // Sessions first, then the BIB entries that are left without, then ports that have rested, then
        // their owners.
        for _ in 0..6 {
            sweeper.sweep(&self.nat, self.now(), &mut |_| {});
            sweeper.release(&self.nat);
            self.wait(Duration::from_secs(10_000));
        }
    }
}

struct Core<'a> {
    shared: &'a Shared,
    translator: Translator,
    state: State,
}

impl Core<'_> {
    fn translate(&mut self, packet: &[u8]) {
        let mut buffer = vec![0; HEADROOM + packet.len() + HEADROOM];
        let range = HEADROOM..HEADROOM + packet.len();
        buffer[range.clone()].copy_from_slice(packet);
        let mut packet = Packet::new(&mut buffer, range, Offload::default());
        let now = self.shared.now();
        self.translator.translate(&mut packet, now, &mut self.state, &mut ());
    }
}

/// A program, and a core that takes what the program leaves.
struct Pair<'a> {
    program: Loaded,
    core: Core<'a>,
}

impl Pair<'_> {
    /// Gives 1 if the program has translated the packet.
    fn pass(&mut self, packet: &[u8]) -> u64 {
        let run = self.program.run(Program::Interface, &frame(packet), 0, 1).unwrap();
        match run.outcome.expect("counted once") {
            Outcome::Translated => return 1,
            Outcome::PassedOn(_) => self.core.translate(packet),
            _ => {}
        }
        0
    }
}

/// A packet of the common mixture; replies go to what is bound at the moment.
fn mixture(shared: &Shared, number: u64) -> Vec<u8> {
    let remote = remote((number >> 40) as u8 % REMOTES);
    if number.is_multiple_of(4) {
        let bibs = shared.maps.regions().bibs;
        let bib = &bibs[(number >> 8) as usize % bibs.len()];
        let local = (Ipv4Addr::from_bits(bib.v4.load(Relaxed)), bib.v4_port.load(Relaxed));
        if bib.life.load(Relaxed) >> 24 == LIVE {
            return from_v4(remote, local);
        }
    }
    from_v6(host((number >> 8) as u16 % HOSTS), 5000 + (number >> 24) as u16 % PORTS, remote)
}

/// What must hold of tables at which nobody works.
fn check(shared: &Shared) {
    let regions = shared.maps.regions();
    let state = |life: u32| life >> 24;
    let live = |bib: &&Bib| matches!(state(bib.life.load(SeqCst)), LIVE | HOLD_DOWN);
    let v6 = |bib: &Bib| {
        let protocol = bib.protocol.load(Relaxed);
        (bib.v6_hi.load(Relaxed), bib.v6_lo.load(Relaxed), bib.v6_port.load(Relaxed), protocol)
    };
    let v4 =
        |bib: &Bib| (bib.v4.load(Relaxed), bib.v4_port.load(Relaxed), bib.protocol.load(Relaxed));
    let bibs: Vec<&Bib> = regions.bibs.iter().filter(live).collect();
    let distinct: HashSet<_> = bibs.iter().map(|bib| v6(bib)).collect();
    assert_eq!(distinct.len(), bibs.len(), "an IPv6 transport address is bound twice");
    let distinct: HashSet<_> = bibs.iter().map(|bib| v4(bib)).collect();
    assert_eq!(distinct.len(), bibs.len(), "an IPv4 transport address is bound twice");

    let key = |session: &Session| {
        let local = (session.local.load(Relaxed), session.local_port.load(Relaxed));
        let remote = (session.remote.load(Relaxed), session.remote_port.load(Relaxed));
        (local, remote, session.protocol.load(Relaxed))
    };
    let live = |session: &&Session| (session.life.load(SeqCst) >> 32) as u8 >= LIVE as u8;
    let sessions: Vec<&Session> = regions.sessions.iter().filter(live).collect();
    let distinct: HashSet<_> = sessions.iter().map(|session| key(session)).collect();
    assert_eq!(distinct.len(), sessions.len(), "a session is there twice");

    let mut of_bib = HashMap::<u32, u32>::new();
    let mut of_subscriber = HashMap::<u32, u32>::new();
    for session in &sessions {
        let index = session.bib.load(Relaxed);
        let bib = &regions.bibs[index as usize];
        assert_eq!(state(bib.life.load(SeqCst)), LIVE, "a session of a BIB entry that is gone");
        *of_bib.entry(index).or_default() += 1;
        *of_subscriber.entry(bib.subscriber.load(Relaxed)).or_default() += 1;
    }
    for (index, bib) in
        regions.bibs.iter().enumerate().filter(|(_, bib)| state(bib.life.load(SeqCst)) == LIVE)
    {
        let counted = bib.life.load(SeqCst) & 0xff_ffff;
        assert_eq!(
            counted,
            of_bib.get(&(index as u32)).copied().unwrap_or(0),
            "sessions of a BIB entry"
        );
    }
    for (index, subscriber) in regions.subscribers.iter().enumerate() {
        if state(subscriber.life.load(SeqCst)) != LIVE {
            continue;
        }
        let owns = |bib: &&&Bib| {
            state(bib.life.load(SeqCst)) == LIVE && bib.subscriber.load(Relaxed) == index as u32
        };
        check_subscriber(subscriber, bibs.iter().filter(owns).count());
        let counted = of_subscriber.get(&(index as u32)).copied().unwrap_or(0);
        assert_eq!(subscriber.sessions.load(SeqCst), counted, "sessions of a subscriber");
    }
}

fn check_subscriber(subscriber: &Subscriber, bibs: usize) {
    let ports: u32 = subscriber.ports.iter().map(|ports| ports.load(SeqCst)).sum();
    assert_eq!(ports as usize, bibs, "ports of a subscriber");
}

const PROGRAMS: u64 = 4;
const CORES: u64 = 2;
const PACKETS: u64 = 30_000;

/// Runs programs and cores at once on the same tables: in each of so many rounds all with the same packets
/// in the same order, so that they meet; after each round comes `between`, and a look at the tables.
fn contend(shared: &Shared, rounds: u64, between: &(dyn Fn(&mut Sweeper) + Sync)) {
    let (barrier, translated) = (Barrier::new((PROGRAMS + CORES) as usize), AtomicU64::new(0));
    // Whoever failed goes on to the barrier, or the others would wait for ever.
    let failed = Mutex::new(None);
    let guarded = |step: &mut dyn FnMut()| {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(step)) {
            failed.lock().unwrap().get_or_insert(panic);
        }
    };
    let in_turn = |thread: u64, step: &mut dyn FnMut(&[u8])| {
        let mut sweeper = Sweeper::new();
        for round in 0..rounds {
            barrier.wait();
            guarded(&mut || {
                for number in 0..PACKETS / rounds {
                    step(&mixture(shared, spread(round << 32 ^ number)));
                }
            });
            barrier.wait();
            if thread == 0 {
                guarded(&mut || {
                    // What came second is dead, and not linked: it waits a grace period before it is uncounted.
                    for _ in 0..2 {
                        sweeper.sweep(&shared.nat, shared.now(), &mut |_| {});
                        sweeper.release(&shared.nat);
                    }
                    check(shared);
                    between(&mut sweeper);
                });
            }
        }
    };
    thread::scope(|scope| {
        for thread in 0..PROGRAMS {
            let (in_turn, translated) = (&in_turn, &translated);
            scope.spawn(move || {
                let mut pair = shared.pair(thread as u16);
                in_turn(thread, &mut |packet| _ = translated.fetch_add(pair.pass(packet), Relaxed));
            });
        }
        for thread in PROGRAMS..PROGRAMS + CORES {
            let in_turn = &in_turn;
            scope.spawn(move || {
                let mut core = shared.core(thread as u16);
                in_turn(thread, &mut |packet| core.translate(packet));
            });
        }
    });
    if let Some(panic) = failed.into_inner().unwrap() {
        resume_unwind(panic);
    }
    println!("{translated:?} of {} were translated in the kernel", PROGRAMS * PACKETS);
    assert!(translated.into_inner() * 10 > PROGRAMS * PACKETS);
}

#[test]
fn what_many_do_at_once_comes_out_right() {
    if !is_root() {
        return;
    }
    let shared = Shared::new(settings());
    shared.introduce();
    contend(&shared, 40, &|sweeper| {
        let [bibs, sessions, subscribers] = shared.nat.occupancy();
        let bindings = u64::from(HOSTS) * (u64::from(PORTS) + 1);
        assert!(bibs.used > bindings * 3 / 4 && bibs.used <= bindings, "{bibs:?}");
        assert!(sessions.used <= bindings * u64::from(REMOTES), "{sessions:?}");
        assert_eq!(subscribers.used, u64::from(HOSTS) / 4);
        // Nothing was lost on the way.
        shared.expire(sweeper);
        assert_eq!(shared.nat.occupancy().map(|kind| kind.used), [0; 3]);
        shared.introduce();
    });
}

#[test]
fn quotas_hold_when_many_want_more() {
    if !is_root() {
        return;
    }
    let quotas = Quotas { ports: [0, 40, 0], sessions: 60, new_per_second: 0 };
    let shared = Shared::new(Settings { quotas, ..settings() });
    shared.introduce();
    contend(&shared, 10, &|sweeper| {
        for subscriber in shared.nat.subscribers(shared.now()) {
            assert!(subscriber.sessions <= 60, "{subscriber:?}");
        }
        // Who came second at a session kept a place from others until the sweep: they come again.
        let mut core = shared.core((PROGRAMS + CORES) as u16);
        for number in 0..PACKETS / 10 {
            core.translate(&mixture(&shared, spread(number)));
        }
        for subscriber in shared.nat.subscribers(shared.now()) {
            assert_eq!(subscriber.sessions, 60, "{subscriber:?}");
            let ports = subscriber.ports[Protocol::Udp.index()];
            assert!((20..=40).contains(&ports), "{subscriber:?}");
        }
        shared.expire(sweeper);
        shared.introduce();
    });
}

#[test]
fn the_sweeper_may_work_at_the_same_time() {
    if !is_root() {
        return;
    }
    let shared = Shared::new(settings());
    shared.introduce();
    let (steps, done) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let (shared, steps, done) = (&shared, &steps, &done);
        let threads: Vec<_> = (0..PROGRAMS)
            .map(|thread| {
                scope.spawn(move || {
                    let mut pair = shared.pair(thread as u16);
                    for number in 0..PACKETS {
                        steps.fetch_add(1, Relaxed);
                        pair.pass(&mixture(shared, spread(number ^ thread << 32)));
                    }
                })
            })
            .collect();
        let sweeper = scope.spawn(move || {
            let (mut sweeper, mut next) = (Sweeper::new(), 0);
            while !done.load(SeqCst) {
                if steps.load(Relaxed) < next {
                    thread::yield_now();
                    continue;
                }
                // What is not used in 3,000 packets expires. Nothing is released: somebody may look at it.
                next += 1000;
                shared.wait(Duration::from_secs(100));
                sweeper.sweep(&shared.nat, shared.now(), &mut |_| {});
            }
            sweeper
        });
        for thread in threads {
            thread.join().unwrap();
        }
        done.store(true, SeqCst);
        let mut sweeper = sweeper.join().unwrap();
        sweeper.release(&shared.nat);
        sweeper.sweep(&shared.nat, shared.now(), &mut |_| {});
        sweeper.release(&shared.nat);
        check(shared);
        shared.expire(&mut sweeper);
        assert_eq!(shared.nat.occupancy().map(|kind| kind.used), [0; 3]);
    });
}

#[test]
fn unknown_subscribers_are_the_cores() {
    if !is_root() {
        return;
    }
    let shared = Shared::new(settings());
    let mut program = shared.program();
    let packet = frame(&from_v6(host(0), 5000, remote(0)));
    let run = program.run(Program::Interface, &packet, 0, 1).unwrap();
    assert_eq!(run.outcome, Some(Outcome::PassedOn(PassReason::Subscriber)));
    assert_eq!(run.frame, packet);
    shared.core(1).translate(&from_v6(host(0), 5001, remote(0)));
    let run = program.run(Program::Interface, &packet, 0, 1).unwrap();
    assert_eq!(run.outcome, Some(Outcome::Translated));
    let totals = program.totals().unwrap();
    assert_eq!((totals.bibs_created, totals.sessions_created), ([0, 1, 0], [0, 1, 0]));
}

#[test]
fn the_programs_have_the_clock_of_the_cores() {
    if !is_root() {
        return;
    }
    let shared = Shared::new(settings());
    shared.introduce();
    shared.wait(Duration::from_secs(1000));
    // What the programs read: CLOCK_MONOTONIC as it was at the last interrupt of the timer.
    let clock = nix::time::ClockId::CLOCK_MONOTONIC_COARSE;
    let tick = || {
        let now = Duration::from(nix::time::clock_gettime(clock).unwrap()).as_nanos() as u64;
        ((now + shared.ahead.load(SeqCst)) >> TICK_SHIFT) as u32
    };
    let mut program = shared.program();
    let begin = tick();
    let packet = frame(&from_v6(host(0), 5000, remote(0)));
    let run = program.run(Program::Interface, &packet, 0, 1).unwrap();
    let end = tick();
    assert_eq!(run.outcome, Some(Outcome::Translated));
    let regions = shared.maps.regions();
    let bib = regions.bibs.iter().position(|bib| bib.v6_port.load(Relaxed) == 5000);
    let bib = bib.expect("the BIB entry") as u32;
    let made = regions.sessions.iter().find(|session| {
        (session.life.load(SeqCst) >> 32) as u8 >= LIVE as u8 && session.bib.load(Relaxed) == bib
    });
    let made = made.expect("the session").life.load(SeqCst) as u32;
    assert!((begin..=end).contains(&made), "{made} is not within {begin} and {end}");
}

#[test]
fn marks_of_what_is_left_are_kept() {
    if !is_root() {
        return;
    }
    let mut settings = settings();
    let shared = Shared::new(settings.clone());
    let packet = frame(&from_v6(host(0), 5000, remote(0)));
    shared.program().run(Program::Interface, &packet, 0, 1).unwrap();
    assert_eq!(shared.maps.mark(host(0)), None, "no pool asks for marks");

    settings.pools[0].mark = Some(7);
    let shared = Shared::new(settings);
    let mut program = shared.program();
    for mark in [7, 9] {
        program.set_mark(mark);
        let run = program.run(Program::Interface, &packet, 0, 1).unwrap();
        assert_eq!(run.outcome, Some(Outcome::PassedOn(PassReason::Subscriber)));
        assert_eq!(shared.maps.mark(host(0)), Some(mark));
    }
    assert_eq!(shared.maps.mark(host(1)), None);
}
