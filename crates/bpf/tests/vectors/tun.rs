//! Every vector through the user engine on a TUN device.
//!
//! Packets go out through the interface with a packet socket, so the engine reads them from its queue
//! as it reads the host's; what it writes comes in from the interface and is taken by the same socket.
//! Each test thread has a network namespace of its own.

use std::cell::RefCell;
use std::sync::Arc;

use fordway_engine::{Core, Engine, Options, monotonic};
use fordway_testkit::live::{
    self, INTERFACE, applies_to_interface, namespace, same_fragment_ids, seed_for, tap, try_step,
};
use fordway_testkit::tap::Tap;
use fordway_testkit::vector::{
    Applies, Case, CaseStep, CounterMap, Observation, SoftwireSpec, Subject, SubjectError,
    counter_map, translate,
};
use fordway_tun::{Device, OpenOptions};
use fordway_xlat::{State, Translator};
use libtest_mimic::Trial;

use crate::kernel_tun;
use crate::shared::{key, leaves_traces, take_identification};

pub(crate) fn trials() -> Vec<Trial> {
    live::trials(|| Tun, key, "tun/")
}

/// A TUN device with the user engine.
struct Tun;

impl Subject for Tun {
    fn name(&self) -> &'static str {
        "tun"
    }

    fn applies(&self, case: &Case) -> Applies {
        applies_to_interface(self.name(), case)
    }

    fn observe(&mut self, case: &Case) -> Result<Vec<Observation>, SubjectError> {
        RUNNING.with_borrow_mut(|slot| {
            let key = key(case);
            if slot.as_ref().is_none_or(|running| running.key != key) {
                // The old one gives the interface up first.
                slot.take().map_or(Ok(()), Running::stop)?;
                *slot = Some(Running::start(case, key)?);
            }
            let Some(running) = slot else { return Err(other("no engine")) };
            let seen = running.observe(case);
            if seen.is_err() || leaves_traces(case) {
                slot.take().map_or(Ok(()), Running::stop)?;
            }
            seen
        })
    }
}

thread_local! {
    static RUNNING: RefCell<Option<Running>> = const { RefCell::new(None) };
}

/// Gives the interface up.
pub(crate) fn stop() {
    drop(RUNNING.take());
}

/// An engine.
struct Running {
    key: String,
    engine: Engine,
    tap: Tap,
    /// What the state of the engine's queue has to be.
    state: State,
}

impl Running {
    fn start(case: &Case, key: String) -> Result<Running, SubjectError> {
        // There is one interface at a time.
        kernel_tun::stop();
        let options = OpenOptions { run_dir: namespace()?, adopt: false, ..OpenOptions::default() };
        let (device, queues) = Device::open(INTERFACE, &options).map_err(other)?;
        let tap = tap()?;
        let seed = seed_for(case.vector.identification);
        let options = Options { seed, ..Options::default() };
        let engine = fordway_engine::start(device, queues, core(case)?, options).map_err(other)?;
        let state = fordway_engine::state(seed, 0, &fordway_engine::identifications(seed));
        Ok(Running { key, engine, tap, state })
    }

    fn observe(&mut self, case: &Case) -> Result<Vec<Observation>, SubjectError> {
        let seen = case.steps.iter().map(|step| {
            let mut seen = try_step(&self.tap, step, || Ok(counters(&self.engine)))?;
            same_fragment_ids(step, &mut seen);
            Ok(seen)
        });
        let mut seen = seen.collect::<Result<Vec<_>, SubjectError>>()?;
        let due = translate(case, &mut self.state, monotonic())?;
        for (step, (seen, due)) in case.steps.iter().zip(seen.iter_mut().zip(&due)) {
            same_identifications(step, seen, due);
        }
        Ok(seen)
    }

    fn stop(self) -> Result<(), SubjectError> {
        self.engine.stop().map_err(other)
    }
}

/// What the engine runs. A softwire is not the case's own: it learns the MTUs of paths.
pub(crate) fn core(case: &Case) -> Result<Core, SubjectError> {
    let softwire = case.vector.softwire.as_ref().map(SoftwireSpec::softwire);
    Ok(match softwire.transpose().map_err(other)? {
        Some(softwire) => Arc::new(softwire).into(),
        None => Arc::new(Translator::new(case.config.clone())?).into(),
    })
}

/// The engine has translated other vectors before, so its generator of identifications has gone on: the expected ones
/// are put in the place of those that are due.
fn same_identifications(step: &CaseStep, seen: &mut Observation, due: &Observation) {
    let due = due.sent.iter().map(|sent| &sent.bytes);
    for ((sent, due), expected) in seen.sent.iter_mut().zip(due).zip(&step.expected.packets) {
        if sent.bytes.get(4..6) == due.get(4..6) {
            take_identification(expected, &mut sent.bytes);
        }
    }
}

/// Of all queues of an engine.
pub(crate) fn counters(engine: &Engine) -> CounterMap {
    let mut sum = CounterMap::new();
    for queue in engine.counters() {
        for (name, value) in counter_map(&queue.core) {
            *sum.entry(name).or_default() += value;
        }
    }
    sum
}

pub(crate) fn other(error: impl std::fmt::Display) -> SubjectError {
    SubjectError::Other(error.to_string())
}
