//! Sending by the program of `c/live.bpf.c`, which makes the frames of a plan by itself.
//!
//! The kernel repeats the program over frames that it hands to the device as a driver would (`BPF_PROG_TEST_RUN` with live
//! frames): no packet buffer is allocated and nothing is copied. It takes one system call for a whole trial.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram as Recorder;
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{DataSec, Var};
use libbpf_rs::{Link, Map, MapCore, MapFlags, Object, ObjectBuilder, Program};

use crate::plan::{Key, Plan, TEMPLATE, Tables};
use crate::setup::{bind, elsewhere, index};
use crate::sys::{Variables, WAKE, apart, interrupt, repeat};
use crate::{End, Setup, machine, processor_time};

/// The compiled object. ELF structures are read where they lie.
#[repr(C, align(8))]
struct Compiled<T: ?Sized>(T);

static OBJECT: &Compiled<[u8]> = &Compiled(*include_bytes!(concat!(env!("OUT_DIR"), "/live.o")));

/// Time between two looks at what the program has sent.
const LOOK: Duration = Duration::from_micros(500);
/// The sender's thread never waits: any other thread on its processor preempts it, such as the receiver's or a device under
/// test that is a process.
const NICE: i32 = 19;
/// Leading bits of a lateness behind the first one, as the program counts it.
const PRECISION: u32 = 5;
/// Words of `struct done` before the histogram: next, last, aborted, worst, sent by class.
const COUNTERS: usize = 6;
const BUCKETS: usize = ((64 - PRECISION + 1) as usize) << PRECISION;

/// Frames by which a device shows that it takes what the program sends: fewer than the ring of a veth holds.
const PROBES: u64 = 64;
/// Number of the loopback device of a namespace.
const LOOPBACK: i32 = 1;
/// Time for a driver to count frames that it has sent.
const COUNTED: Duration = Duration::from_secs(2);

/// The program, for one device.
#[derive(Debug)]
pub(crate) struct Live {
    /// The program at a device that receives nothing, in a network namespace of its own. The kernel's way into programs at
    /// devices (its dispatcher) then knows the program already. Otherwise each call to repeat it changes that way, and waits for
    /// the end of all runs under way: for the sender of the other direction, 50 ms and more.
    _home: (Link, File),
    object: Object,
    /// Words of `.bss`, and those at which variables begin.
    variables: Variables,
    order: usize,
    done: usize,
    templates: Variables,
    tuples: Variables,
    /// What the tuples follow from that lie in the map.
    key: Option<Key>,
}

/// What was sent.
#[derive(Debug)]
pub(crate) struct Sent {
    /// Frames, by class.
    pub(crate) sent: [u64; 2],
    /// When the last one was, CLOCK_MONOTONIC, ns; 0: none was.
    pub(crate) last: u64,
    /// The largest lateness, ns.
    pub(crate) worst: u64,
}

/// The programs that send at both ends, which are open already. Each has shown that frames leave.
pub(crate) fn senders(setup: &Setup) -> std::io::Result<[Live; 2]> {
    let live = |end: &End| {
        elsewhere(end.namespace.as_ref(), || {
            let mut live = Live::new(index(end)?)?;
            live.probe(end)?;
            Ok(live)
        })
    };
    Ok([live(&setup.client)?, live(&setup.server)?])
}

impl Live {
    /// The program for a device of the calling thread's namespace.
    pub(crate) fn new(device: u32) -> Result<Self> {
        // Without a handler the signal that ends the program would end the process.
        signal_hook::flag::register(WAKE, Arc::new(AtomicBool::new(false)))?;
        let live = Self::load([1, 1], None)?;
        if device != 0 {
            let (key, value) = (0u32.to_ne_bytes(), device.to_ne_bytes());
            let map = find(&live.object, "device")?;
            map.update(&key, &value, MapFlags::ANY).map_err(explained)?;
        }
        Ok(live)
    }

    /// The program with room for so many templates and tuples; `device`: a map that names one already.
    fn load(room: [u32; 2], device: Option<BorrowedFd<'_>>) -> Result<Self> {
        let places = places()?;
        let mut open = ObjectBuilder::default().open_memory(&OBJECT.0).map_err(explained)?;
        for mut map in open.maps_mut() {
            match map.name().to_str() {
                Some("templates") => map.set_max_entries(room[0]).map_err(explained)?,
                Some("tuples") => map.set_max_entries(room[1]).map_err(explained)?,
                Some("device") => {
                    device.map_or(Ok(()), |it| map.reuse_fd(it)).map_err(explained)?;
                }
                _ => {}
            }
        }
        let object = open.load().map_err(explained)?;
        let attach = || {
            let program = object.progs_mut().find(|program| program.name() == "transmit");
            program.ok_or_else(|| missing("program"))?.attach_xdp(LOOPBACK).map_err(explained)
        };
        let home = apart(attach)?;
        let words = |name: &str| {
            let map = find(&object, name)?;
            let octets = map.max_entries() as usize * map.value_size() as usize;
            Variables::new(map.as_fd(), octets)
        };
        let (variables, templates, tuples) =
            (words(".bss")?, words("templates")?, words("tuples")?);
        let place = |name: &str| places.get(name).copied().ok_or_else(|| missing(name));
        let (order, done) = (place("order")? / 8, place("done")? / 8);
        if variables.words().len() < done + COUNTERS + BUCKETS {
            return Err(missing("room"));
        }
        Ok(Self { _home: home, object, variables, order, done, templates, tuples, key: None })
    }

    /// Makes the tables of a plan, for which memory grows where it has to.
    pub(crate) fn fill(&mut self, plan: &Plan) -> crate::Result<Tables> {
        let mut tables = plan.tables(self.key)?;
        let wanted = [
            tables.templates.len() / TEMPLATE,
            tables.tuples.as_ref().map_or(self.tuples.words().len(), Vec::len),
        ];
        let room = [self.templates.words().len() / TEMPLATE, self.tuples.words().len()];
        if wanted[0] > room[0] || wanted[1] > room[1] {
            // A reload replaces the map, and the tuples in it are lost.
            if self.key.take().is_some() && tables.tuples.is_none() {
                return self.fill(plan);
            }
            let room = [0, 1].map(|map| room[map].max(wanted[map]) as u32);
            let loaded = find(&self.object, "device")
                .and_then(|device| Self::load(room, Some(device.as_fd())));
            *self = loaded.map_err(machine("room for tuples"))?;
        }
        store(self.templates.words(), &tables.templates);
        // The map holds the tuples now; the list is freed.
        if let Some(tuples) = tables.tuples.take() {
            store(self.tuples.words(), &tuples);
            self.key = tables.key;
        }
        Ok(tables)
    }

    /// Prepares a plan, whose tables lie in the maps.
    pub(crate) fn prepare(&self, plan: &Plan, tables: &Tables, start: u64, batch: u32) {
        self.begin(&plan.order(tables, start, batch));
    }

    fn begin(&self, order: &[u64]) {
        let all = self.variables.words();
        store(&all[self.order..], order);
        store(&all[self.done..], &[0; COUNTERS + BUCKETS]);
    }

    /// Sends frames to the next hop that end there, and finds whether they have left: why not, if the kernel or the driver
    /// does not send so. In the namespace of the device.
    pub(crate) fn probe(&mut self, end: &End) -> Result<()> {
        let plan = Plan::probe([end.own, end.next], PROBES);
        let tables = self.fill(&plan).map_err(Error::other)?;
        self.prepare(&plan, &tables, 1, PROBES as u32);
        let before = transmitted(&end.device)?;
        let frame = vec![0; plan.longest(&tables)];
        repeat(self.program()?.as_fd(), &frame, PROBES as u32, PROBES as u32)?;
        // Drivers of network cards count later.
        let deadline = Instant::now() + COUNTED;
        while transmitted(&end.device)? < before + PROBES {
            if Instant::now() > deadline {
                let why = format!("{} sends no frames that a program redirects", end.device);
                return Err(Error::new(ErrorKind::Unsupported, why));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn program(&self) -> Result<Program<'_>> {
        let program = self.object.progs().find(|program| program.name() == "transmit");
        program.ok_or_else(|| missing("program"))
    }

    fn counter(&self, number: usize) -> u64 {
        self.variables.words()[self.done + number].load(Relaxed)
    }

    /// Sends the prepared plan on a processor until all frames have left or `is_over`. Returns the processor time, s.
    pub(crate) fn send(
        &self,
        (plan, tables): (&Plan, &Tables),
        batch: u32,
        processor: usize,
        is_over: impl Fn() -> bool,
    ) -> Result<f64> {
        let program = self.program()?;
        let program = program.as_fd();
        let frame = vec![0; plan.longest(tables)];
        let ended = AtomicBool::new(false);
        let ended = &ended;
        // Looks are made where the sender runs, whose thread is bound as this one is. Each look interrupts the kernel's loop, which
        // otherwise holds up what waits for its readers (RCU): devices and programs that are set up meanwhile.
        bind(processor)?;
        std::thread::scope(|scope| {
            let (tell, told) = std::sync::mpsc::channel();
            let sender = scope.spawn(move || {
                let _ = tell.send(rustix::thread::gettid());
                rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE)?;
                while !ended.load(Relaxed) {
                    // As often as the call can count.
                    repeat(program, &frame, u32::MAX, batch)?;
                }
                Ok::<f64, Error>(processor_time())
            });
            while self.counter(0) < plan.total() && !is_over() && !sender.is_finished() {
                std::thread::sleep(LOOK);
            }
            // No further frame leaves.
            self.variables.words()[self.order + 1].store(0, Relaxed);
            ended.store(true, Relaxed);
            let thread = told.recv().map_err(|error| Error::other(error.to_string()))?;
            while !sender.is_finished() {
                // Again and again: a signal before the kernel's loop is for nobody.
                interrupt(thread);
                std::thread::sleep(LOOK);
            }
            sender.join().unwrap_or_else(|_| Err(Error::other("the sender panicked")))
        })
    }

    /// What was sent.
    pub(crate) fn sent(&self) -> Sent {
        let [_, last, _, worst, translated, native] =
            std::array::from_fn(|number| self.counter(number));
        Sent { sent: [translated, native], last, worst }
    }

    /// Adds the program's histogram to another one: each lateness as the greatest of its bucket.
    pub(crate) fn lateness(&self, sum: &mut Recorder<u64>) {
        let worst = self.counter(3);
        for bucket in 0..BUCKETS {
            let count = self.counter(COUNTERS + bucket);
            if count > 0 {
                sum.saturating_record_n(greatest(bucket).min(worst), count);
            }
        }
    }
}

fn store(places: &[AtomicU64], words: &[u64]) {
    places.iter().zip(words).for_each(|(place, word)| place.store(*word, Relaxed));
}

/// The map with this name, or with a name that ends so.
fn find<'a>(object: &'a Object, name: &str) -> Result<Map<'a>> {
    let found = object.maps().find(|map| map.name().to_string_lossy().ends_with(name));
    found.ok_or_else(|| missing(name))
}

/// Frames that a device of the calling thread's namespace has sent.
fn transmitted(device: &str) -> Result<u64> {
    let all = std::fs::read_to_string("/proc/thread-self/net/dev")?;
    let of_device = |line: &str| {
        let (name, counters) = line.split_once(':')?;
        // Behind the eight of what was received come octets, then frames.
        let frames = counters.split_whitespace().nth(9)?;
        (name.trim() == device).then(|| frames.parse().ok()).flatten()
    };
    all.lines().find_map(of_device).ok_or_else(|| missing(&format!("counter of {device}")))
}

/// The greatest number that the program counts in a bucket.
fn greatest(bucket: usize) -> u64 {
    let (bits, rest) = (bucket >> PRECISION, (bucket & ((1 << PRECISION) - 1)) as u64);
    match bits.checked_sub(1) {
        None => rest,
        Some(shift) => ((((1 << PRECISION) | rest) + 1) << shift).wrapping_sub(1),
    }
}

/// Where variables lie in `.bss`, in octets.
fn places() -> Result<BTreeMap<String, usize>> {
    let btf = Btf::from_raw("live", &OBJECT.0).map_err(explained)?.ok_or_else(|| missing("BTF"))?;
    let section =
        btf.type_by_kind::<DataSec<'_>>().find(|it| it.name().is_some_and(|name| name == ".bss"));
    let section = section.ok_or_else(|| missing(".bss"))?;
    let variables = section.iter().filter_map(|variable| {
        let var: Var<'_> = btf.type_by_id(variable.ty)?;
        Some((var.name()?.to_string_lossy().into_owned(), variable.offset as usize))
    });
    Ok(variables.collect())
}

fn missing(what: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("the sender's object has no {what}"))
}

#[allow(clippy::needless_pass_by_value, reason = "an argument of map_err")]
fn explained(error: libbpf_rs::Error) -> Error {
    Error::other(format!("the sender's program: {error:#}"))
}

#[cfg(test)]
mod tests;
