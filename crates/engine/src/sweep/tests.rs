use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use fordway_xlat::nat64::{
    Heap, Lifetimes, Pool, Protocol, Range, Segment, Settings, Sizes, Tuple,
};
use fordway_xlat::{Config, Translator};

use super::*;
use crate::current::Current;

/// More than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

fn settings(pool4: u8) -> Settings {
    let address = Ipv4Addr::new(192, 0, 2, pool4);
    let range = Range { first: address, last: address, low: 1024, high: 65_535 };
    Settings {
        pools: vec![Pool { ranges: vec![range], ..Pool::default() }],
        lifetimes: Lifetimes { port_rest: Duration::ZERO, ..Lifetimes::default() },
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

/// A sweeper at work, and what it tells.
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
        let heap = Heap::new(&settings.sizes, [1, 2]);
        let nat64 = Arc::new(Nat64::new(settings, Arc::new(heap)).unwrap());
        let current = Current::new(translator(&nat64).into());
        let (queue, stop) = (Bursts::default(), Stop::new().unwrap());
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
        let thread = Some(thread::spawn(move || task.run()));
        Running { current, nat64, queue, stop, events, thread }
    }

    /// The port of the host whose BIB entry is the next to go, if one goes in time.
    fn next_gone(&self, patience: Duration) -> Option<u16> {
        loop {
            if let Event::BibRemoved(binding) = self.events.recv_timeout(patience).ok()? {
                return Some(binding.v6.1);
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
    running.current.set(translator(&other).into());
    // The burst is not over when the sweeper has long seen that there are other settings.
    let _ = running.next_gone(INTERVAL * 3);
    open(&running.nat64, 2);
    running.queue.end();
    let gone = std::iter::from_fn(|| running.next_gone(PATIENCE)).find(|port| *port == 2);
    assert_eq!(gone, Some(2));
}

#[test]
fn entries_are_given_back_only_when_bursts_are_over() {
    let mut settings = settings(1);
    settings.lifetimes.udp = Duration::ZERO;
    let running = Running::start(settings);
    let used = || running.nat64.occupancy().map(|it| it.used);
    running.queue.begin();
    open(&running.nat64, 1);
    assert_eq!(running.next_gone(PATIENCE), Some(1));
    // Somebody may still look at it, however long.
    let _ = running.next_gone(INTERVAL * 3);
    assert_eq!(used()[..2], [1, 1]);
    running.queue.end();
    let deadline = Instant::now() + PATIENCE;
    while used()[..2] != [0, 0] {
        assert!(Instant::now() < deadline, "{:?}", used());
        thread::yield_now();
    }
}
