//! Sending by the program of `c/live.bpf.c`, which makes the frames of a plan by itself.
//!
//! The kernel repeats the program over frames that it hands to the device as a driver would (`BPF_PROG_TEST_RUN` with live
//! frames): no packet buffer is allocated and nothing is copied. It takes one system call for a whole trial.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use hdrhistogram::Histogram as Recorder;
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{DataSec, Var};
use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder};

use crate::plan::Plan;
use crate::processor_time;
use crate::sys::{Variables, WAKE, interrupt, repeat};

/// The compiled object. ELF structures are read where they lie.
#[repr(C, align(8))]
struct Compiled<T: ?Sized>(T);

static OBJECT: &Compiled<[u8]> = &Compiled(*include_bytes!(concat!(env!("OUT_DIR"), "/live.o")));

/// Time between two looks at what the program has sent.
const LOOK: Duration = Duration::from_micros(500);
/// The sender's thread never waits: whoever else wants its processor, the receiver first of all, gets it.
const NICE: i32 = 19;
/// Leading bits of a lateness behind the first one, as the program counts it.
const PRECISION: u32 = 5;
/// Words of `struct done` before the histogram: next, last, aborted, worst, sent by class.
const COUNTERS: usize = 6;
const BUCKETS: usize = ((64 - PRECISION + 1) as usize) << PRECISION;

/// The program, for one device.
#[derive(Debug)]
pub(crate) struct Live {
    object: Object,
    variables: Variables,
    /// Words at which variables begin.
    order: usize,
    done: usize,
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

impl Live {
    /// The program for a device of the calling thread's namespace.
    pub(crate) fn new(device: u32) -> Result<Self> {
        // Without a handler the signal that ends the program would end the process.
        signal_hook::flag::register(WAKE, Arc::new(AtomicBool::new(false)))?;
        let places = places()?;
        let object = ObjectBuilder::default().open_memory(&OBJECT.0).map_err(explained)?;
        let object = object.load().map_err(explained)?;
        let map = |wanted: &str| {
            let found = object.maps().find(|map| map.name().to_string_lossy().ends_with(wanted));
            found.ok_or_else(|| missing(wanted))
        };
        if device != 0 {
            let (key, value) = (0u32.to_ne_bytes(), device.to_ne_bytes());
            map("device")?.update(&key, &value, MapFlags::ANY).map_err(explained)?;
        }
        let bss = map(".bss")?;
        let variables = Variables::new(bss.as_fd(), bss.value_size() as usize)?;
        let place = |name: &str| places.get(name).copied().ok_or_else(|| missing(name));
        let (order, done) = (place("order")? / 8, place("done")? / 8);
        if variables.words().len() < done + COUNTERS + BUCKETS {
            return Err(missing("room"));
        }
        Ok(Self { order, done, variables, object })
    }

    /// Prepares a plan. Whether the program can send it.
    pub(crate) fn prepare(&self, plan: &Plan, start: u64, batch: u32) -> bool {
        let Some(words) = plan.order(start, batch) else { return false };
        let all = self.variables.words();
        for (place, word) in all[self.order..].iter().zip(words) {
            place.store(word, Relaxed);
        }
        for place in &all[self.done..][..COUNTERS + BUCKETS] {
            place.store(0, Relaxed);
        }
        true
    }

    fn counter(&self, number: usize) -> u64 {
        self.variables.words()[self.done + number].load(Relaxed)
    }

    /// Sends the prepared plan until all frames have left or `is_over`. `begin` is run first, on the sending thread. Returns
    /// the processor time of that thread, s.
    pub(crate) fn send(
        &self,
        plan: &Plan,
        batch: u32,
        begin: impl FnOnce() -> Result<()> + Send,
        is_over: impl Fn() -> bool,
    ) -> Result<f64> {
        let program = self.object.progs().find(|program| program.name() == "transmit");
        let program = program.ok_or_else(|| missing("program"))?;
        let program = program.as_fd();
        let frame = vec![0; plan.longest()];
        let ended = AtomicBool::new(false);
        let ended = &ended;
        std::thread::scope(|scope| {
            let (tell, told) = std::sync::mpsc::channel();
            let sender = scope.spawn(move || {
                let _ = tell.send(rustix::thread::gettid());
                begin()?;
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
