//! Every vector through both engines together, as a translator runs them: the kernel's program at the
//! egress of a TUN device, the user engine at its queues.
//!
//! As `tun.rs`, and held to the same, but for identifications.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;

use fordway_bpf::{Accelerator, Hook, Options as KernelOptions, SoftwireMaps, Totals, Tunnels};
use fordway_engine::{Engine, Options};
use fordway_softwire::Softwire;
use fordway_testkit::live::{
    self, INTERFACE, applies_to_programs, namespace, passes_unmatched, same_fragment_ids, tap,
    try_step,
};
use fordway_testkit::tap::Tap;
use fordway_testkit::vector::{
    Applies, Case, CaseStep, CounterMap, Observation, Subject, SubjectError,
};
use fordway_tun::{Device, OpenOptions};
use fordway_xlat::{Direction, DropReason, Verdict};
use libtest_mimic::Trial;

use crate::shared::{key, leaves_traces, take_identification};
use crate::tun::{self, other};

/// Next Header of ICMPv6.
const ICMPV6: u8 = 58;

pub(crate) fn trials() -> Vec<Trial> {
    live::trials(|| Both, key, "kernel_tun/")
}

struct Both;

impl Subject for Both {
    fn name(&self) -> &'static str {
        "tun"
    }

    fn applies(&self, case: &Case) -> Applies {
        if let Some(reason) = case.vector.skip.get("kernel_tun") {
            return Applies::No(reason.clone());
        }
        match applies_to_programs(self.name(), case) {
            Applies::Yes if passes_unmatched(case) => {
                Applies::No("what is routed to an interface is the translator's".into())
            }
            applies => applies,
        }
    }

    fn observe(&mut self, case: &Case) -> Result<Vec<Observation>, SubjectError> {
        RUNNING.with_borrow_mut(|slot| {
            let key = key(case);
            if slot.as_ref().is_none_or(|running| running.key != key) {
                // The old one gives the interface up first.
                slot.take().map_or(Ok(()), |mut running| running.stop())?;
                *slot = Some(Running::start(case, key)?);
            }
            let Some(running) = slot else { return Err(other("no engines")) };
            let seen = running.observe(case);
            if seen.is_err() || leaves_traces(case) {
                slot.take().map_or(Ok(()), |mut running| running.stop())?;
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

/// Both engines. What is attached and pinned goes with them.
struct Running {
    key: String,
    kernel: Option<Accelerator>,
    engine: Option<Engine>,
    tap: Tap,
}

impl Running {
    fn start(case: &Case, key: String) -> Result<Running, SubjectError> {
        // There is one interface at a time.
        tun::stop();
        let folder = namespace()?;
        let options =
            OpenOptions { run_dir: folder.clone(), adopt: false, ..OpenOptions::default() };
        let (device, queues) = Device::open(INTERFACE, &options).map_err(other)?;
        let hook = Hook::Interface { tun: device.ifindex() };
        let tap = tap()?;
        let options = Options::default();
        let engine = fordway_engine::start(device, queues, tun::core(case)?, options);
        let engine = engine.map_err(other)?;
        // A name of this process and thread.
        let pins = Path::new("/sys/fs/bpf").join(folder.file_name().unwrap_or_default());
        let tunnels = case.softwire.as_ref().map(tunnels).transpose()?;
        let options = KernelOptions { tunnels, ..KernelOptions::new(pins, hook) };
        let kernel = Accelerator::start(&case.config, &options).map_err(other)?;
        Ok(Running { key, kernel: Some(kernel), engine: Some(engine), tap })
    }

    fn observe(&mut self, case: &Case) -> Result<Vec<Observation>, SubjectError> {
        let (Some(kernel), Some(engine)) = (&self.kernel, &self.engine) else {
            return Err(other("the engines were stopped"));
        };
        let seen = case.steps.iter().map(|step| {
            let mut seen = try_step(&self.tap, step, || counters(engine, kernel))?;
            same_fragment_ids(step, &mut seen);
            // Out of a tunnel the identification is the packet's own, unless an error was made.
            let is_own = case.softwire.is_some()
                && step.expected.verdict == Verdict::Forward
                && step.input.get(6) != Some(&ICMPV6);
            if !is_own {
                same_identifications(step, &mut seen);
            }
            Ok(seen)
        });
        seen.collect()
    }

    fn stop(&mut self) -> Result<(), SubjectError> {
        self.kernel.take().map_or(Ok(()), Accelerator::detach).map_err(other)?;
        self.engine.take().map_or(Ok(()), Engine::stop).map_err(other)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

fn tunnels(softwire: &Softwire) -> Result<Tunnels, SubjectError> {
    let settings = *softwire.settings();
    let maps = SoftwireMaps::make(settings.role, 64).map_err(other)?;
    for entry in softwire.bindings().iter() {
        maps.insert(&entry.binding).map_err(other)?;
    }
    Ok(Tunnels { settings, maps: Arc::new(maps) })
}

/// Of both engines together.
fn counters(engine: &Engine, kernel: &Accelerator) -> Result<CounterMap, SubjectError> {
    let mut sum = kernel_counters(&kernel.totals().map_err(other)?);
    for (name, value) in tun::counters(engine) {
        *sum.entry(name).or_default() += value;
    }
    Ok(sum)
}

fn kernel_counters(totals: &Totals) -> CounterMap {
    let mut map = CounterMap::new();
    for direction in Direction::ALL {
        let (label, carried) = (direction.label(), totals.direction(direction));
        map.insert(format!("{label}.packets"), carried.packets);
        map.insert(format!("{label}.segments"), carried.segments);
        map.insert(format!("{label}.octets"), carried.octets);
    }
    for reason in DropReason::ALL {
        map.insert(format!("drop.{}", reason.label()), totals.drops(*reason));
    }
    map.retain(|_, value| *value != 0);
    map
}

/// Where the translator chose the identification, the expected one is put in its place: each engine has
/// a generator of its own.
fn same_identifications(step: &CaseStep, seen: &mut Observation) {
    let from_v6 = step.input.first().is_some_and(|first| first >> 4 == 6);
    if from_v6 || matches!(step.expected.verdict, Verdict::Reply(_)) {
        for (sent, expected) in seen.sent.iter_mut().zip(&step.expected.packets) {
            take_identification(expected, &mut sent.bytes);
        }
    }
}
