//! Many threads at once.

use core::sync::atomic::AtomicU64;
use std::sync::RwLock;

use super::*;

const THREADS: usize = 4;

struct Crowd<'a> {
    nat: &'a Nat64,
    has_operator: bool,
    /// Threads that run.
    running: AtomicU64,
    /// Stands for the grace period: who holds it may be looking at entries.
    looking: RwLock<()>,
    /// All stand still while somebody writes this.
    still: RwLock<()>,
    clock: AtomicU64,
}

/// Counts a thread down, also when it panics.
struct Leaving<'a>(&'a AtomicU64);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Threads of packets, the sweeper, and perhaps an operator; then all of them are gone.
pub(super) fn work(nat: &Nat64, has_operator: bool) {
    let running = AtomicU64::new(THREADS as u64);
    let (looking, still, clock) = (RwLock::new(()), RwLock::new(()), AtomicU64::new(0));
    let crowd = &Crowd { nat, has_operator, running, looking, still, clock };
    let mut sweeper = std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || crowd.packets(thread));
        }
        if has_operator {
            scope.spawn(|| crowd.operator());
        }
        scope.spawn(|| crowd.sweeper()).join().unwrap()
    });
    for _ in 0..6 {
        crowd.clock.fetch_add(1000, Ordering::Relaxed);
        sweep(nat, &mut sweeper, crowd.now());
        races::assert_sound(nat);
    }
    let left: Vec<u64> = nat.occupancy().iter().map(|kind| kind.used).collect();
    assert_eq!(left, [0, 0, 0], "entries leaked");
}

fn random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    *seed >> 20
}

impl Crowd<'_> {
    fn now(&self) -> Duration {
        at(self.clock.load(Ordering::Relaxed))
    }

    fn packets(&self, thread: usize) {
        let _guard = Leaving(&self.running);
        let mut seed = thread as u64 + 1;
        for _ in 0..60_000 {
            let number = random(&mut seed);
            let tuple = udp((number >> 13) as u16 % 8, (number >> 20) as u16 % 64);
            // Several sessions of one permission.
            let ports =
                if self.nat.settings.filtering == Filtering::AddressDependent { 3 } else { 1 };
            let tuple = Tuple { remote: (SERVER.0, 80 + (number >> 27) as u16 % ports), ..tuple };
            let _moves = self.still.read().unwrap();
            let _looks = self.looking.read().unwrap();
            match self.nat.from_v6(&tuple, self.now(), thread) {
                Ok(local) => {
                    let back = answer(&tuple, local, Segment::Other);
                    let found = self.nat.from_v4(&back, self.now(), thread);
                    // What an operator has taken away may be somebody else's by now.
                    if let Ok(found) = found
                        && !self.has_operator
                    {
                        assert_eq!(found.host, tuple.near, "somebody else's packet");
                    }
                }
                // What an operator has taken away keeps its place until the next sweep.
                Err(DropReason::BibFull | DropReason::SessionsFull) if self.has_operator => {}
                Err(reason) => assert_eq!(reason, DropReason::Busy),
            }
        }
    }

    fn operator(&self) {
        let mut seed = 99;
        while self.running.load(Ordering::Relaxed) != 0 {
            let _moves = self.still.read().unwrap();
            let number = random(&mut seed);
            let v6 = (host((number >> 13) as u16 % 8), (number >> 20) as u16 % 64);
            let v4 = (POOL, 1024 + (number >> 28) as u16 % 7168);
            let bib = StaticBib { protocol: Protocol::Udp, v6, v4 };
            if self.nat.add_bib(&bib, self.now()).is_ok() {
                self.nat.remove_bib(Protocol::Udp, v4, self.now()).unwrap();
            }
            let found = self.nat.bib(self.now()).find(|entry| !entry.in_hold_down);
            if let Some(found) = found {
                // Gone already is as good.
                let _ = self.nat.remove_bib(Protocol::Udp, found.binding.v4, self.now());
            }
        }
    }

    fn sweeper(&self) -> Sweeper {
        let mut sweeper = Sweeper::new();
        while self.running.load(Ordering::Relaxed) != 0 {
            self.clock.fetch_add(250, Ordering::Relaxed);
            sweeper.sweep(self.nat, self.now(), &mut |_| {});
            drop(self.looking.write().unwrap());
            sweeper.release(self.nat);
            let _all_stand = self.still.write().unwrap();
            let mut v4 = HashSet::new();
            for entry in self.nat.bib(self.now()) {
                assert!(v4.insert(entry.binding.v4), "{entry:?} twice");
            }
        }
        sweeper
    }
}
