//! Every vector through the user engine on a TUN device.
//!
//! Packets go out through the interface with a packet socket, so the engine reads them from its queue
//! as it reads the host's; what it writes comes in from the interface and is taken by the same socket.
//! Each test thread has a network namespace of its own. Needs root; says so, and does nothing, without.

use std::sync::Arc;

use fordway_engine::{Core, Engine, Options};
use fordway_testkit::live::{
    INTERFACE, applies_to_interface, namespace, same_fragment_ids, seed_for, tap, try_step,
};
use fordway_testkit::vector::{
    Applies, Case, CounterMap, Observation, Subject, SubjectError, counter_map,
};
use fordway_tun::{Device, OpenOptions};
use fordway_xlat::Translator;

fn main() {
    fordway_testkit::live::run(|| Tun, |case| case.name.clone()).exit();
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
        let options = OpenOptions { run_dir: namespace()?, adopt: false, ..OpenOptions::default() };
        let (device, queues) = Device::open(INTERFACE, &options).map_err(other)?;
        let tap = tap()?;
        let core: Core = match &case.softwire {
            Some(softwire) => Arc::new(softwire.clone()).into(),
            None => Arc::new(Translator::new(case.config.clone())?).into(),
        };
        let seed = seed_for(case.vector.identification);
        let engine = fordway_engine::start(
            device,
            queues,
            core,
            Options { seed, pin: None, marks: None, unbound: None },
        )
        .map_err(other)?;
        let seen = case.steps.iter().map(|step| {
            let mut seen = try_step(&tap, step, || Ok(counters(&engine)))?;
            same_fragment_ids(step, &mut seen);
            Ok(seen)
        });
        let seen = seen.collect();
        engine.stop().map_err(other)?;
        seen
    }
}

fn other(error: impl std::fmt::Display) -> SubjectError {
    SubjectError::Other(error.to_string())
}

fn counters(engine: &Engine) -> CounterMap {
    let mut sum = CounterMap::new();
    for queue in engine.counters() {
        for (name, value) in counter_map(&queue.core) {
            *sum.entry(name).or_default() += value;
        }
    }
    sum
}
