use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};

use fordway_testhost::{PATIENCE, poll};
use fordway_xlat::nat64::{
    Heap, Lifetimes, Pool, Protocol, Range, Segment, Settings, Sizes, Tuple,
};
use fordway_xlat::{Config, Translator};

use super::*;
use crate::current::Current;

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
    let tuple = Tuple {
        protocol: Protocol::Udp,
        near: ("2001:db8::1".parse::<Ipv6Addr>().unwrap(), port),
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
    let task = Task {
        core: current.follower(),
        threads: vec![queue.clone()],
        probes: Arc::default(),
        found: Found::default(),
        stop: stop.clone(),
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
    let translator = translator(&other);
    running.current.set(Arc::clone(&translator).into());
    // The burst is not over when the sweeper has seen that there are other settings: what runs has one reference, and
    // the sweeper another.
    poll("the sweeper to look", || (Arc::strong_count(&translator) > 2).then_some(()));
    open(&running.nat64, 2);
    // A sweep may tell of the new session meanwhile; a review would end its BIB entry.
    let is_removal = |event: Event| matches!(event, Event::BibRemoved(_));
    assert!(!running.events.try_iter().any(is_removal), "reviewed while the burst is under way");
    running.queue.end();
    while running.next_gone() != 2 {}
}

#[test]
fn entries_are_given_back_only_when_bursts_are_over() {
    let mut settings = settings(1);
    settings.lifetimes.udp = Duration::ZERO;
    let nat64 = tables(settings);
    let (queue, stop) = (Bursts::default(), Stop::new().unwrap());
    let (mut task, events) = task(&Current::new(translator(&nat64).into()), &queue, &stop);
    let mut sweeper = Sweeper::new();
    let used = || nat64.occupancy().map(|it| it.used);
    // Whoever is told to stop does not wait for the end of the burst.
    stop.set();
    queue.begin();
    open(&nat64, 1);
    poll("the entry to go", || {
        task.sweep(&mut sweeper, &nat64);
        events.try_iter().find(|event| matches!(event, Event::BibRemoved(_)))
    });
    // The burst may still look at it.
    assert!(!task.sweep(&mut sweeper, &nat64));
    assert_eq!(used()[..2], [1, 1]);
    queue.end();
    assert!(task.sweep(&mut sweeper, &nat64));
    assert_eq!(used()[..2], [0, 0]);
}
