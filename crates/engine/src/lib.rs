//! The user engine: the core of Fordway on the queues of a TUN device.
//!
//! ```text
//!   kernel ──► queue 0 ──► thread 0: receive ► translate ► send ──► queue 0 ──► kernel
//!          ──► queue 1 ──► thread 1: receive ► translate ► send ──► queue 1 ──►
//! ```
//!
//! One thread per queue, each with one buffer, one [`State`](fordway_xlat::State) and counters that only it writes; all
//! share one immutable [`Core`], which [`Engine::replace`] exchanges between two bursts of packets. Nothing is
//! allocated per packet and nothing is locked, but for the fragments that a stateful translator or a softwire needs
//! whole: they wait in memory that all threads share. A packet is received with headroom, translated in place together
//! with its offload state, and sent from where it lies; only the fragments that it is cut into are sent as two pieces.
//!
//! Beside the queues' threads, a stateful translator has one that sweeps its tables ([`Engine::sweep`]).
#![forbid(unsafe_code)]

mod clock;
mod core;
mod counters;
mod current;
mod fragments;
mod gro;
mod hand_over;
mod held;
mod idle;
mod offload;
mod out;
mod placement;
mod priority;
mod queue;
mod quiescence;
mod stop;
mod sweep;
mod tables;
mod unchecked;

pub use crate::core::Core;
pub use clock::{boottime, monotonic};
pub use counters::{IoCounters, IoTotals, LATENCY_US, Latency, QueueCounters};
pub use current::Current;
pub use hand_over::HandOver;
pub use priority::{level, prefer};
pub use quiescence::Grace;
pub use sweep::Sweeping;
pub use tables::Tables;

use std::fmt;
use std::net::{Ipv6Addr, SocketAddrV4};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fordway_tun::{Device, Offloads, Queue};
use fordway_xlat::nat64::Swept;
use fordway_xlat::{Identifications, State};

use crate::fragments::Fragments;
use crate::placement::Placement;
use crate::queue::Worker;
use crate::quiescence::{Bursts, Threads};
use crate::stop::Stop;
use crate::sweep::{Found, Probes, Shared, Task};

/// Why an engine did not start, or stopped by itself.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A thread or descriptor could not be made.
    #[error("can't start the threads of {interface}: {source}")]
    Start {
        /// The interface.
        interface: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The interface was deleted under the engine.
    #[error("interface {interface} was deleted")]
    Gone {
        /// The interface.
        interface: String,
    },
    /// A queue gave an error that does not pass.
    #[error("queue {queue} of {interface}: {source}")]
    Queue {
        /// The interface.
        interface: String,
        /// The queue's number, from 0.
        queue: usize,
        /// What the system said.
        source: std::io::Error,
    },
    /// A thread ended by a panic: a fault in Fordway.
    #[error("{thread} of {interface} panicked; this is a fault in Fordway, please report it")]
    Panicked {
        /// The interface.
        interface: String,
        /// `queue`, with its number from 0, or `the sweeper`.
        thread: String,
    },
}

/// How to run an engine.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Makes the IPv4 identifications; give a random number.
    pub seed: u64,
    /// While a queue is busy its thread stays on one processor. The number tells engines of one process apart, so that
    /// the second starts where the first ended; `None`: the threads always run where the kernel likes.
    pub pin: Option<usize>,
    /// What is gathered into super-packets, outside a cluster.
    pub gro: Gathered,
    /// Looks up the marks of packets, which a TUN does not carry, if a pool of pool4 needs them.
    pub marks: Option<Marks>,
    /// Called for packets that a softwire's client drops because it has no IPv4 address yet.
    pub unbound: Option<Unbound>,
    /// Called for UDP datagrams that are dropped because they have no checksum.
    pub unchecked: Option<Unchecked>,
    /// Hands packets over whose shard another gateway of the cluster translates; without, they are dropped.
    pub hand_over: Option<Arc<dyn HandOver>>,
}

/// What waits in a queue and is gathered into super-packets (generic receive offload).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gathered {
    /// Nothing.
    Nothing,
    /// Segments of TCP.
    #[default]
    Tcp,
    /// Segments of TCP, and datagrams of UDP if the kernel has super-packets of UDP (Linux 6.2).
    TcpUdp,
}

/// Called for IPv4 packets that are dropped as [`SoftwireUnbound`](fordway_xlat::DropReason::SoftwireUnbound): the
/// packet, and whether its transport checksum is still partial. It must not block.
#[derive(Clone)]
pub struct Unbound(pub Arc<Hear>);

/// What an [`Unbound`] does.
pub type Hear = dyn Fn(&[u8], bool) + Send + Sync;

impl fmt::Debug for Unbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Unbound")
    }
}

/// Called for UDP datagrams over IPv4 that are dropped because they have no checksum, with source and destination: RFC
/// 7915 section 4.5 asks for a system management event. It must not block.
#[derive(Clone)]
pub struct Unchecked(pub Arc<dyn Fn(SocketAddrV4, SocketAddrV4) + Send + Sync>);

impl fmt::Debug for Unchecked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Unchecked")
    }
}

/// Gives the mark of the last packet of an IPv6 host that a kernel program has passed to the user engine.
#[derive(Clone)]
pub struct Marks(pub Arc<dyn Fn(Ipv6Addr) -> Option<u32> + Send + Sync>);

impl fmt::Debug for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Marks")
    }
}

/// A running user engine. Dropping it stops it.
#[derive(Debug)]
pub struct Engine {
    device: Device,
    core: Current,
    counters: Vec<Arc<QueueCounters>>,
    threads: Vec<JoinHandle<Result<(), Error>>>,
    processors: Vec<usize>,
    stop: Stop,
    bursts: Threads,
    probes: Arc<Probes>,
    fragments: Arc<Fragments>,
    found: Found,
    sweeper: Shared,
    sweeping: Option<JoinHandle<()>>,
}

/// Starts one thread per queue. `device` and `queues` come from [`Device::open`].
pub fn start(
    device: Device,
    queues: Vec<Queue>,
    core: impl Into<Core>,
    options: Options,
) -> Result<Engine, Error> {
    let interface = device.name().to_owned();
    let Options { seed, pin, gro, marks, unbound, unchecked, hand_over } = options;
    let start = |source| Error::Start { interface: interface.clone(), source };
    let stop = Stop::new().map_err(start)?;
    let core = core.into();
    // Subscribers' prefixes have the same length for as long as a translator runs.
    let subscriber_len = core.tables().map(|nat64| nat64.settings().subscriber_len);
    let mut engine = Engine {
        device,
        core: Current::new(core),
        counters: Vec::new(),
        threads: Vec::new(),
        processors: Vec::new(),
        stop,
        bursts: Threads::default(),
        probes: Arc::default(),
        fragments: Arc::new(subscriber_len.map_or_else(Fragments::default, Fragments::new)),
        found: Found::default(),
        sweeper: Shared::new(),
        sweeping: None,
    };
    let identifications = identifications(seed);
    let has_udp = engine.device.offloads().granted.contains(Offloads::USO4);
    let gathered = if gro == Gathered::TcpUdp && !has_udp { Gathered::Tcp } else { gro };
    for queue in queues {
        let bursts = Bursts::default();
        engine.bursts.add(bursts.clone());
        let counters = Arc::new(QueueCounters::default());
        engine.counters.push(Arc::clone(&counters));
        let name = format!("{}-{}", interface, queue.index());
        let queue_index = queue.index();
        let placement = pin.and_then(|first| Placement::new(first + queue.index()));
        engine.processors.extend(placement.as_ref().map(Placement::processor));
        let worker = Worker {
            interface: interface.clone(),
            queue,
            core: engine.core.follower(),
            counters,
            stop: engine.stop.clone(),
            state: state(seed, queue_index, &identifications),
            placement,
            bursts,
            probes: Arc::clone(&engine.probes),
            fragments: Arc::clone(&engine.fragments),
            marks: marks.clone(),
            unbound: unbound.clone(),
            unchecked: unchecked.clone(),
            hand_over: hand_over.clone(),
            held: held::Held::default(),
            gro: gro::Gro::new(gathered),
            whole: Vec::new(),
            tended: Duration::ZERO,
        };
        let thread = thread::Builder::new().name(name).spawn(move || worker.run());
        engine.threads.push(thread.map_err(start)?);
    }
    Ok(engine)
}

/// The identifications that the queues of an engine with this seed share.
pub fn identifications(seed: u64) -> Arc<Identifications> {
    Arc::new(Identifications::new(secret(seed)))
}

/// What a queue of an engine with this seed begins with: identifications that are not to be guessed (RFC 7739), of IPv4
/// packets and of IPv6 fragments, far from those of the other queues.
pub fn state(seed: u64, queue: usize, shared: &Arc<Identifications>) -> State {
    // An odd multiplier spreads neighbouring queue numbers over all upper bits.
    let spread = seed.wrapping_add(queue as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    State::new((spread >> 48) as u16)
        .with_identifications(Arc::clone(shared))
        .with_fragments_from((spread >> 16) as u32)
}

/// The key of the identifications that all queues share: not to be guessed from where a queue's own begin.
fn secret(seed: u64) -> u64 {
    let word = (seed ^ seed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    word ^ word >> 29
}

impl Engine {
    /// The interface.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The interface, to give it another name. Threads keep the name that they were started under.
    pub fn device_mut(&mut self) -> &mut Device {
        &mut self.device
    }

    /// What runs.
    pub fn core(&self) -> Core {
        self.core.get()
    }

    /// What runs, to be changed from another thread.
    pub fn current(&self) -> Current {
        self.core.clone()
    }

    /// Lets another core run from each queue's next burst of packets on; no packet is lost.
    pub fn replace(&self, core: impl Into<Core>) {
        self.core.set(core.into());
    }

    /// Starts the thread that sweeps the tables of a translator that has any ([`Nat64`](fordway_xlat::nat64::Nat64)).
    /// To be called once.
    pub fn sweep(&mut self, sweeping: Sweeping) -> Result<(), Error> {
        let interface = self.device.name().to_owned();
        let task = Task {
            core: self.core.follower(),
            threads: self.bursts.clone(),
            probes: Arc::clone(&self.probes),
            found: self.found.clone(),
            stop: self.stop.clone(),
            sweeper: self.sweeper.clone(),
            sweeping,
        };
        let name = format!("{interface}-sweep");
        let thread = thread::Builder::new().name(name).spawn(move || task.run());
        self.sweeping = Some(thread.map_err(|source| Error::Start { interface, source })?);
        Ok(())
    }

    /// The tables of a translator that has any, to be changed beside packets and the sweeper.
    pub fn tables(&self) -> Tables {
        let threads = self.bursts.clone();
        Tables { core: self.core.clone(), sweeper: self.sweeper.clone(), threads }
    }

    /// What the last sweep has found.
    pub fn swept(&self) -> Swept {
        self.found.get()
    }

    /// The counters of each queue, in the order of the queues.
    pub fn counters(&self) -> &[Arc<QueueCounters>] {
        &self.counters
    }

    /// The processor on which each queue's thread stays while busy, in the order of the queues; empty if they always
    /// roam.
    pub fn processors(&self) -> &[usize] {
        &self.processors
    }

    /// Whether a thread has ended by itself; [`Engine::stop`] then tells why.
    pub fn failed(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
            || self.sweeping.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Stops the threads and waits for them. Packets that wait in the queues are lost, as when any interface goes down.
    /// Gives the first error that had ended a thread before.
    pub fn stop(mut self) -> Result<(), Error> {
        self.join()
    }

    /// Stops the threads, and leaves the interface with its offloads if it outlives the process: for a kernel engine
    /// that goes on without this one.
    pub fn leave(mut self) -> Result<(), Error> {
        self.device.leave();
        self.join()
    }

    fn join(&mut self) -> Result<(), Error> {
        self.stop.set();
        let interface = self.device.name();
        let panicked = |thread| Error::Panicked { interface: interface.to_owned(), thread };
        let mut result = Ok(());
        for (queue, thread) in self.threads.drain(..).enumerate() {
            let ended = thread.join().unwrap_or_else(|_| Err(panicked(format!("queue {queue}"))));
            result = result.and(ended);
        }
        if let Some(sweeper) = self.sweeping.take() {
            let ended = sweeper.join().map_err(|_| panicked("the sweeper".to_owned()));
            result = result.and(ended);
        }
        result
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // `stop` tells the reason.
        let _ = self.join();
    }
}
