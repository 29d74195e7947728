//! Connections that are used all the time.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fordway_testhost::{PATIENCE, poll};

use super::SUBSCRIBERS;
use super::world::World;

/// An octet goes both ways so often.
const PERIOD: Duration = Duration::from_millis(20);

/// What happens to connections.
#[derive(Default)]
struct Fate {
    over: AtomicBool,
    broken: AtomicU64,
    /// In microseconds.
    longest: AtomicU64,
}

/// The connections.
pub(super) struct Pulses {
    fate: Arc<Fate>,
    /// How often an octet has come back to each.
    rounds: Vec<Arc<AtomicU64>>,
    threads: Vec<JoinHandle<()>>,
}

impl Pulses {
    /// Opens so many, from one subscriber after the other.
    pub(super) fn start(world: &World, listener: &TcpListener, number: u64) -> Pulses {
        let fate = Arc::new(Fate::default());
        let (mut rounds, mut threads) = (Vec::new(), Vec::new());
        let to = target(listener);
        for number in 0..number {
            world.send_from(1 + number % SUBSCRIBERS);
            let client = world.client.inside(|| TcpStream::connect_timeout(&to, PATIENCE).unwrap());
            let mut server = listener.accept().unwrap().0;
            let (own, round) = (Arc::clone(&fate), Arc::<AtomicU64>::default());
            rounds.push(Arc::clone(&round));
            threads.push(thread::spawn(move || own.use_up(client, &round)));
            threads.push(thread::spawn(move || {
                let mut octet = [0];
                while server.read_exact(&mut octet).is_ok() && server.write_all(&octet).is_ok() {}
            }));
        }
        Pulses { fate, rounds, threads }
    }

    /// The longest time in ms that a connection stood still since the last call, and how many have broken.
    pub(super) fn take(&self) -> (u64, u64) {
        // What stands still now is part of it.
        thread::sleep(Duration::from_secs(2));
        let longest = self.fate.longest.swap(0, Ordering::SeqCst);
        (longest / 1000, self.fate.broken.load(Ordering::SeqCst))
    }

    /// Waits until an octet has come back to each since now.
    pub(super) fn go_on(&self) {
        let all = || self.rounds.iter().map(|round| round.load(Ordering::SeqCst));
        let before: Vec<u64> = all().collect();
        poll("every connection goes on", || {
            assert_eq!(self.fate.broken.load(Ordering::SeqCst), 0, "connections have broken");
            all().zip(&before).all(|(now, before)| now > *before).then_some(())
        });
    }

    pub(super) fn end(self) {
        self.fate.over.store(true, Ordering::SeqCst);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

impl Fate {
    fn use_up(&self, mut client: TcpStream, rounds: &AtomicU64) {
        client.set_nodelay(true).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut last = Instant::now();
        while !self.over.load(Ordering::SeqCst) {
            let round = client.write_all(&[1]).and_then(|()| client.read_exact(&mut [0]));
            if let Err(error) = round {
                eprintln!("{:?} has broken: {error}", client.local_addr());
                self.broken.fetch_add(1, Ordering::SeqCst);
                return;
            }
            let still = last.elapsed().saturating_sub(PERIOD).as_micros() as u64;
            self.longest.fetch_max(still, Ordering::SeqCst);
            last = Instant::now();
            rounds.fetch_add(1, Ordering::SeqCst);
            thread::sleep(PERIOD);
        }
    }
}

/// The listener, as the clients see it.
pub(super) fn target(listener: &TcpListener) -> SocketAddr {
    let server: IpAddr = "2001:db8:64::198.51.100.2".parse().unwrap();
    SocketAddr::new(server, listener.local_addr().unwrap().port())
}
