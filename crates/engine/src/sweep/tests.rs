use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};

use fordway_testhost::{PATIENCE, poll};
use fordway_xlat::nat64::{
    Heap, Lifetimes, Pool, Protocol, Range, Segment, Settings, Sizes, Tuple,
};
use fordway_xlat::{Config, Translator};

use super::*;
use crate::current::Current;
use crate::quiescence::Bursts;

fn settings(pool4: u8) -> Settings {
    let address = Ipv4Addr::new(192, 0, 2, pool4);
    let range = Range { first: address, last: address, low: 1024, high: 65_535 };
    Settings {
        pools: vec![Pool { ranges: vec![range], ..Pool::default() }],
        lifetimes: Lifetimes { hold_down: Duration::ZERO, ..Lifetimes::default() },
        sizes: Sizes { bibs: 64, sessions: 64, subscribers: 16 },
        ..Settings::default()
    }
}

fn translator(nat64: &Arc<Nat64>) -> Arc<Translator> {
    let config = Config { pool6: vec!["64:ff9b::/96".parse().unwrap()], ..Config::default() };
    Arc::new(Translator::nat64(config, Arc::clone(nat64)).unwrap())
}

/// Opens a UDP session from this port of a host.
fn open(nat64: &Nat64, port: u16) {
    open_from(nat64, 1, port);
}

fn open_from(nat64: &Nat64, host: u16, port: u16) {
    let tuple = Tuple {
        protocol: Protocol::Udp,
        near: (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host), port),
        remote: (Ipv4Addr::new(198, 51, 100, 1), 53),
        segment: Segment::Other,
        pool6: 0,
        mark: 0,
        packets: 1,
        octets: 100,
    };
    nat64.from_v6(&tuple, monotonic(), 0).unwrap();
}

fn tables(settings: Settings) -> Arc<Nat64> {
    let heap = Heap::new(&settings.sizes, [1, 2]);
    Arc::new(Nat64::new(settings, Arc::new(heap)).unwrap())
}

/// A sweeper beside one queue, and what it tells.
fn task(current: &Current, queue: &Bursts, stop: &Stop) -> (Task, Receiver<Event>) {
    let (sender, events) = channel();
    let mut threads = Threads::default();
    threads.add(queue.clone());
    let task = Task {
        core: current.follower(),
        threads,
        probes: Arc::default(),
        found: Found::default(),
        stop: stop.clone(),
        sweeper: Shared::new(),
        sweeping: Sweeping {
            tell: Some(Box::new(move |event| sender.send(event).unwrap())),
            kernel_grace: None,
        },
    };
    (task, events)
}

/// A sweeper at work.
struct Running {
    current: Current,
    nat64: Arc<Nat64>,
    queue: Bursts,
    stop: Stop,
    events: Receiver<Event>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(settings: Settings) -> Running {
        let nat64 = tables(settings);
        let current = Current::new(translator(&nat64).into());
        let (queue, stop) = (Bursts::default(), Stop::new().unwrap());
        let (task, events) = task(&current, &queue, &stop);
        let thread = Some(thread::spawn(move || task.run()));
        Running { current, nat64, queue, stop, events, thread }
    }

    /// The port of the host whose BIB entry is the next to go.
    fn next_gone(&self) -> u16 {
        loop {
            if let Event::BibRemoved(binding) = self.events.recv_timeout(PATIENCE).unwrap() {
                return binding.v6.1;
            }
        }
    }

    /// Gives the sweeper other tables, and waits until it has seen them.
    fn show(&self, nat64: &Arc<Nat64>) {
        let translator = translator(nat64);
        self.current.set(Arc::clone(&translator).into());
        // What runs has one reference, and the sweeper another.
        poll("the sweeper to look", || (Arc::strong_count(&translator) > 2).then_some(()));
    }

    fn wait_for_creation(&self) {
        while !matches!(self.events.recv_timeout(PATIENCE).unwrap(), Event::SessionCreated(..)) {}
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.set();
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(thread::panicking() || ended.is_some_and(|ended| ended.is_ok()));
    }
}

#[test]
fn what_a_burst_still_makes_by_the_settings_before_is_reviewed_too() {
    let running = Running::start(settings(1));
    open(&running.nat64, 1);
    running.wait_for_creation();
    running.queue.begin();
    let other = Arc::new(running.nat64.reconfigured(settings(2)).unwrap());
    other.settle();
    // The burst is not over when the sweeper has seen that there are other settings.
    running.show(&other);
    open(&running.nat64, 2);
    // A sweep may tell of the new session meanwhile; a review would end its BIB entry.
    let is_removal = |event: Event| matches!(event, Event::BibRemoved(_));
    assert!(!running.events.try_iter().any(is_removal), "reviewed while the burst is under way");
    running.queue.end();
    while running.next_gone() != 2 {}
}

#[test]
fn refused_settings_end_nothing_and_what_was_made_by_them_ends() {
    let running = Running::start(settings(1));
    open(&running.nat64, 1);
    running.wait_for_creation();
    let refused = Arc::new(running.nat64.reconfigured(settings(2)).unwrap());
    running.show(&refused);
    // Another subscriber: one that has a block keeps it.
    open_from(&refused, 2, 2);
    running.current.set(translator(&running.nat64).into());
    running.nat64.settle();
    // A sweep by the refused settings would have ended the other session first.
    assert_eq!(running.next_gone(), 2);
    assert_eq!(running.nat64.sessions(monotonic()).count(), 1);
}

#[test]
fn entries_are_given_back_only_when_bursts_are_over() {
    let mut settings = settings(1);
    settings.lifetimes.udp = Duration::ZERO;
    let nat64 = tables(settings);
    let (queue, stop) = (Bursts::default(), Stop::new().unwrap());
    let (mut task, events) = task(&Current::new(translator(&nat64).into()), &queue, &stop);
    let mut pace = Pace::new(task.sweeper.clone());
    let used = || nat64.occupancy().map(|it| it.used);
    // Whoever is told to stop does not wait for the end of the burst.
    stop.set();
    queue.begin();
    open(&nat64, 1);
    poll("the entry to go", || {
        task.stretch(&mut pace, &nat64);
        events.try_iter().find(|event| matches!(event, Event::BibRemoved(_)))
    });
    // The burst may still look at it.
    assert!(task.stretch(&mut pace, &nat64).is_none());
    assert_eq!(used()[..2], [1, 1]);
    queue.end();
    assert!(task.stretch(&mut pace, &nat64).is_some());
    assert_eq!(used()[..2], [0, 0]);
}

#[test]
fn looking_takes_a_fixed_share_of_the_time() {
    let spent = Duration::from_millis(2);
    let share = |work: Work| {
        let all = spent + work.pause(spent);
        spent.as_secs_f64() / all.as_secs_f64()
    };
    let looking = Work { looked: 100_000, ended: 0 };
    assert!((share(looking) - 0.04).abs() < 1e-6);
    // The more of the work was to remove entries, the less it is slowed down.
    let removing = Work { looked: 1000, ended: 1000 };
    assert!(share(removing) > 0.7, "{}", share(removing));
    let some = share(Work { looked: 1000, ended: 10 });
    assert!((0.05..0.1).contains(&some), "{some}");
    assert_eq!(Work::default().pause(spent), Duration::ZERO);
}

#[test]
fn a_sweep_of_large_tables_is_cut_into_stretches() {
    let entries = 1 << 20;
    let mut settings = settings(1);
    settings.sizes.sessions = entries;
    let nat64 = tables(settings);
    open(&nat64, 1);
    // All entries were used before.
    nat64.memory().regions().meta.fresh[1].store(entries, Relaxed);
    let (queue, stop) = (Bursts::default(), Stop::new().unwrap());
    let (mut task, _events) = task(&Current::new(translator(&nat64).into()), &queue, &stop);
    let mut pace = Pace::new(task.sweeper.clone());
    while task.found.get() == Swept::default() {
        assert!(pace.work.looked < u64::from(entries), "it has seen all, and does not say so");
        task.stretch(&mut pace, &nat64).unwrap();
    }
    assert_eq!(task.found.get().sessions, [0, 1, 0]);
    // A BIB entry, the sessions, a subscriber.
    assert_eq!((pace.before.looked, pace.before.ended), (u64::from(entries) + 1, 0));
}

#[test]
fn it_hurries_only_where_that_makes_room() {
    let nat64 = tables(settings(1));
    let mut pace = Pace::new(Shared::new());
    let many = Work { looked: 1000, ended: 40 };
    pace.before = many;
    assert!(!pace.hurries(&nat64), "there is room");
    (0..60).for_each(|port| open(&nat64, port));
    assert!(pace.hurries(&nat64));
    pace.before = Work { ended: 20, ..many };
    assert!(!pace.hurries(&nat64), "what is there lives");
}

/// What sweeping costs; [docs/sizing.md] says how to run it.
#[test]
#[ignore = "measures for a minute, and asserts nothing about time"]
fn ten_million_sessions_are_swept() {
    const HOSTS: u16 = 1000;
    const PORTS: u16 = 10_000;
    let number = u32::from(HOSTS) * u32::from(PORTS);
    let (first, last) = (Ipv4Addr::new(198, 18, 0, 0), Ipv4Addr::new(198, 18, 0, 255));
    let range = Range { first, last, low: 1024, high: 65_535 };
    let nat64 = tables(Settings {
        pools: vec![Pool { ranges: vec![range], ..Pool::default() }],
        sizes: Sizes { bibs: number, sessions: number, subscribers: u32::from(HOSTS) },
        ..Settings::default()
    });
    let processor = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let time = || {
        Duration::from_nanos(processor().tv_sec as u64 * 1_000_000_000 + processor().tv_nsec as u64)
    };
    for port in 0..PORTS {
        (1..=HOSTS).for_each(|host| open_from(&nat64, host, port));
    }
    let (queue, stop) = (Bursts::default(), Stop::new().unwrap());
    let (mut task, _) = task(&Current::new(translator(&nat64).into()), &queue, &stop);
    task.sweeping.tell = None;
    let mut pace = Pace::new(task.sweeper.clone());
    for sweep in ["the first sweep", "a further sweep"] {
        let (mut busy, mut paused, mut longest) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
        task.found.set(Swept::default());
        while task.found.get() == Swept::default() {
            let before = time();
            paused += task.stretch(&mut pace, &nat64).unwrap();
            let stretch = time() - before;
            (busy, longest) = (busy + stretch, longest.max(stretch));
        }
        assert_eq!(task.found.get().sessions, [0, u64::from(number), 0]);
        let share = 100.0 * busy.as_secs_f64() / (busy + paused).as_secs_f64();
        eprintln!(
            "{sweep}: {busy:.1?} of {:.1?}, {share:.1} %; longest stretch {longest:.1?}",
            busy + paused
        );
    }
}
