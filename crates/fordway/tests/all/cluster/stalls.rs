//! How long connections stand still when shards go to another gateway: figures for people, with times as operators have them.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fordway_testhost::{PATIENCE, can_use_tun, has_programs};

use super::idle::Idle;
use super::{SHARDS, SUBSCRIBERS, World, is_shared, owned};

const CONNECTIONS: u64 = 200;
const TRIALS: usize = 5;
/// An octet goes both ways so often.
const PERIOD: Duration = Duration::from_millis(20);
/// TCP repeats nothing where connections stall for less, in ms.
const CALM: u64 = 150;
/// What stands still then counts as broken.
const BROKEN: Duration = Duration::from_secs(20);

/// Connections that are open beside them, and idle: `FORDWAY_IDLE`.
fn idle() -> u64 {
    std::env::var("FORDWAY_IDLE").map_or(0, |text| text.parse().expect("a number"))
}

/// What happens to connections.
#[derive(Default)]
struct Fate {
    over: AtomicBool,
    broken: AtomicU64,
    /// In microseconds.
    longest: AtomicU64,
}

/// Connections that are used all the time.
struct Pulses {
    fate: Arc<Fate>,
    threads: Vec<JoinHandle<()>>,
}

impl Pulses {
    fn start(world: &World, listener: &TcpListener) -> Pulses {
        let fate = Arc::new(Fate::default());
        let mut threads = Vec::new();
        let to = target(listener);
        for number in 0..CONNECTIONS {
            world.send_from(1 + number % SUBSCRIBERS);
            let client = world.client.inside(|| TcpStream::connect_timeout(&to, PATIENCE).unwrap());
            let mut server = listener.accept().unwrap().0;
            let own = Arc::clone(&fate);
            threads.push(thread::spawn(move || own.use_up(client)));
            threads.push(thread::spawn(move || {
                let mut octet = [0];
                while server.read_exact(&mut octet).is_ok() && server.write_all(&octet).is_ok() {}
            }));
        }
        Pulses { fate, threads }
    }

    /// The longest time in ms that a connection stood still since the last call, and how many have broken.
    fn take(&self) -> (u64, u64) {
        // What stands still now is part of it.
        thread::sleep(Duration::from_secs(2));
        let longest = self.fate.longest.swap(0, Ordering::SeqCst);
        (longest / 1000, self.fate.broken.load(Ordering::SeqCst))
    }

    fn end(self) {
        self.fate.over.store(true, Ordering::SeqCst);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

impl Fate {
    fn use_up(&self, mut client: TcpStream) {
        client.set_nodelay(true).unwrap();
        client.set_read_timeout(Some(BROKEN)).unwrap();
        let mut last = Instant::now();
        while !self.over.load(Ordering::SeqCst) {
            if client.write_all(&[1]).is_err() || client.read_exact(&mut [0]).is_err() {
                self.broken.fetch_add(1, Ordering::SeqCst);
                return;
            }
            let still = last.elapsed().saturating_sub(PERIOD).as_micros() as u64;
            self.longest.fetch_max(still, Ordering::SeqCst);
            last = Instant::now();
            thread::sleep(PERIOD);
        }
    }
}

/// The listener, as the clients see it.
fn target(listener: &TcpListener) -> SocketAddr {
    let server: IpAddr = "2001:db8:64::198.51.100.2".parse().unwrap();
    SocketAddr::new(server, listener.local_addr().unwrap().port())
}

#[test]
#[ignore = "prints figures, which hold for a quiet machine and a release build"]
fn stalls_are_measured() {
    if !can_use_tun() || !has_programs(&["nats-server"]) {
        return;
    }
    for engine in ["user", "kernel"] {
        let world = World::new();
        world.configure(&format!("engine = '{engine}'"), "500ms");
        let first = world.start(0);
        let mut second = world.start(1);
        world.until("both own shards", &[0, 1], |all| is_shared(all, 0));
        // One server, so that each connection has a port of its own.
        let listener = world.server.inside(|| TcpListener::bind("[::]:0").unwrap());
        let mut idle = Idle::open(&world, &listener, target(&listener), idle());
        let pulses = Pulses::start(&world, &listener);
        let records = (CONNECTIONS + idle.number()) * 2 + SUBSCRIBERS;
        let both = || {
            world.until("both own shards", &[0, 1], |all| is_shared(all, records));
        };
        both();
        println!("{engine}: nothing happens: {:?} ms, broken", pulses.take());
        let mut ask = || {
            println!("{engine}: {} idle connections, broken: {}", idle.number(), idle.broken());
            // All at once were more than the engine has room for.
            while pulses.take().0 > CALM {}
        };
        for _ in 0..TRIALS {
            assert!(world.cluster(1, "drain").status.success());
            println!("{engine}: drain: {:?} ms, broken", pulses.take());
            assert!(world.cluster(1, "join").status.success());
            both();
            println!("{engine}: join: {:?} ms, broken", pulses.take());
        }
        ask();
        for _ in 0..TRIALS {
            let began = Instant::now();
            second.kill();
            world.until("the first owns all", &[0], |all| owned(&all[0]) == SHARDS);
            let took = began.elapsed().as_millis();
            println!("{engine}: kill: {:?} ms, broken; owned after {took} ms", pulses.take());
            second = world.start(1);
            both();
            println!("{engine}: start: {:?} ms, broken", pulses.take());
        }
        ask();
        pulses.end();
        second.stop();
        first.stop();
    }
}
