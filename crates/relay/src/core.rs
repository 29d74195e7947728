//! What the parts of a relay's thread share: settings, counters, the epoll set and its tokens.

use std::io;
use std::net::SocketAddrV6;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use arc_swap::ArcSwap;
use foldhash::quality::RandomState;
use rustix::event::epoll::{self, CreateFlags, EventData};
use rustix::event::{EventfdFlags, eventfd};
use slotmap::{Key as _, KeyData, new_key_type};

use super::journal::Journal;
use super::policy::Refusal;
use super::settings::Settings;
use fordway_counters::trt::{Counters, Stats};
use fordway_serve::{Exceeded, Network, Tally, thread};

new_key_type! {
    /// A connection, or a client's port, of a thread: never the same for two.
    pub(super) struct Key;
}

/// The socket of an event: of a side of a connection, a client's IPv4 socket, or one of the thread's own.
pub(super) const TCP_V6: u8 = 0;
pub(super) const TCP_V4: u8 = 1;
pub(super) const UDP_V4: u8 = 2;
pub(super) const OWN: u8 = 3;

/// Numbers of the thread's own sockets.
pub(super) const LISTENER: u64 = 0;
pub(super) const DATAGRAMS: u64 = 1;
pub(super) const WAKE: u64 = 2;

/// What all threads share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) settings: ArcSwap<Settings>,
    /// Connections and sessions of clients.
    pub(super) connections: Arc<Tally>,
    pub(super) sessions: Arc<Tally>,
    pub(super) counters: Vec<Arc<Counters>>,
    pub(super) stopping: AtomicBool,
    pub(super) wakes: Vec<OwnedFd>,
    hasher: RandomState,
}

impl thread::Shared for Shared {
    fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.wake();
    }
}

impl Shared {
    pub(super) fn new(settings: Settings) -> io::Result<Shared> {
        let threads = settings.threads.get();
        let wake = |_| eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
        Ok(Shared {
            settings: ArcSwap::from_pointee(settings),
            connections: Arc::default(),
            sessions: Arc::default(),
            counters: (0..threads).map(|_| Arc::default()).collect(),
            stopping: AtomicBool::new(false),
            wakes: (0..threads).map(wake).collect::<Result<_, _>>()?,
            hasher: RandomState::default(),
        })
    }

    /// A keyed hash of a client network, which cannot be predicted from outside.
    pub(super) fn hash(&self, network: Network) -> u64 {
        use std::hash::BuildHasher;
        self.hasher.hash_one(network)
    }

    /// Wakes all threads, which then take the settings.
    pub(super) fn wake(&self) {
        for wake in &self.wakes {
            let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
        }
    }

    pub(super) fn stats(&self) -> Stats {
        let mut stats = Stats {
            connections: self.connections.count() as u64,
            sessions: self.sessions.count() as u64,
            ..Stats::default()
        };
        self.counters.iter().for_each(|counters| counters.add_to(&mut stats));
        stats
    }
}

/// What every part of a thread needs.
pub(super) struct Core {
    pub(super) shared: Arc<Shared>,
    pub(super) settings: Arc<Settings>,
    pub(super) counters: Arc<Counters>,
    pub(super) epoll: OwnedFd,
    pub(super) now: Instant,
    journal: Journal,
}

impl Core {
    /// The core of the thread with this number, which waits for no socket yet.
    pub(super) fn new(shared: &Arc<Shared>, index: usize) -> io::Result<Core> {
        Ok(Core {
            settings: shared.settings.load_full(),
            counters: Arc::clone(&shared.counters[index]),
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            now: Instant::now(),
            journal: Journal::default(),
            shared: Arc::clone(shared),
        })
    }

    /// A core without sockets, whose time a test sets.
    #[cfg(test)]
    pub(super) fn of_test(settings: Settings) -> Core {
        Core::new(&Arc::new(Shared::new(settings).unwrap()), 0).unwrap()
    }

    pub(super) fn listener_token(&self) -> EventData {
        own(LISTENER)
    }

    pub(super) fn refused(&self, refusal: Refusal) {
        let counters = &self.counters;
        match refusal {
            Refusal::Client => counters.refused_client.add(1),
            Refusal::Address => counters.refused_address.add(1),
            Refusal::Private => counters.refused_private.add(1),
            Refusal::Own => counters.refused_own.add(1),
            Refusal::Listed => counters.refused_listed.add(1),
        }
    }

    /// Counts and logs a limit that this client has reached.
    pub(super) fn limited(&mut self, over: Exceeded, what: &str, client: SocketAddrV6) {
        let (counter, whose) = match over {
            Exceeded::Total => (&self.counters.limited_total, ""),
            Exceeded::Client => (&self.counters.limited_client, " of a client network"),
        };
        counter.add(1);
        if let Some(more) = self.journal.limit.due(self.now) {
            let name = &self.settings.name;
            tracing::warn!(
                "{name}: too many {what}{whose}: {client} refused ({more} more since the last line)"
            );
        }
    }

    /// Logs that the host has run out of something.
    pub(super) fn no_resources(&mut self, what: &str) {
        if let Some(more) = self.journal.resources.due(self.now) {
            let name = &self.settings.name;
            tracing::warn!("{name}: {what} ({more} more since the last line)");
        }
    }

    pub(super) fn count_icmp(&self, sent: bool) {
        let counter = if sent { &self.counters.icmp_sent } else { &self.counters.icmp_limited };
        counter.add(1);
    }
}

/// The token of a socket of a connection or a client: the key, with the kind in its lowest two bits. There are far
/// fewer than 2^30 descriptors.
pub(super) fn token(key: Key, kind: u8) -> EventData {
    let bits = key.data().as_ffi();
    EventData::new_u64(
        bits & !0xffff_ffff | u64::from(bits as u32) << 2 & 0xffff_ffff | u64::from(kind),
    )
}

/// Key and kind of a token.
pub(super) fn whose(token: u64) -> (Key, u8) {
    let bits = token & !0xffff_ffff | u64::from(token as u32 >> 2);
    (KeyData::from_ffi(bits).into(), (token & 3) as u8)
}

/// The token of one of the thread's own sockets.
pub(super) fn own(number: u64) -> EventData {
    EventData::new_u64(number << 2 | u64::from(OWN))
}

#[cfg(test)]
mod tests {
    use slotmap::SlotMap;

    use super::*;

    #[test]
    fn tokens_say_whose_they_are() {
        let mut things = SlotMap::<Key, ()>::default();
        let (first, second) = (things.insert(()), things.insert(()));
        things.remove(first);
        for (key, kind) in [(first, TCP_V6), (second, TCP_V4), (things.insert(()), UDP_V4)] {
            assert_eq!(whose(token(key, kind).u64()), (key, kind));
            assert_ne!(whose(own(LISTENER).u64()), (key, kind));
        }
    }
}
