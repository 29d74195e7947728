//! Every vector through both engines together, as a translator runs them: the kernel's program at the
//! egress of a TUN device, the user engine at its queues.
//!
//! As `tun.rs`, and held to exactly the same. Needs root; says so, and does nothing, without.

use std::sync::Arc;

use fordway_bpf::{Accelerator, Hook, Options as KernelOptions, SoftwireMaps, Totals, Tunnels};
use fordway_engine::{Core, Engine, Options};
use fordway_softwire::Softwire;
use fordway_testkit::checksum::checksum;
use fordway_testkit::live::{
    INTERFACE, applies_to_programs, namespace, passes_unmatched, same_fragment_ids, tap, try_step,
};
use fordway_testkit::vector::{
    Applies, Case, CaseStep, CounterMap, Observation, Subject, SubjectError, counter_map,
};
use fordway_tun::{Device, OpenOptions};
use fordway_xlat::{Direction, DropReason, Translator, Verdict};

fn main() {
    fordway_testkit::live::run(|| Both, |case| case.name.clone()).exit();
}

/// Next Header of ICMPv6.
const ICMPV6: u8 = 58;

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
        let folder = namespace()?;
        let options =
            OpenOptions { run_dir: folder.clone(), adopt: false, ..OpenOptions::default() };
        let (device, queues) = Device::open(INTERFACE, &options).map_err(other)?;
        let tun = device.ifindex();
        let tap = tap()?;
        let core: Core = match &case.softwire {
            Some(softwire) => Arc::new(softwire.clone()).into(),
            None => Arc::new(Translator::new(case.config.clone())?).into(),
        };
        let options = Options { seed: 0, pin: None, marks: None, unbound: None };
        let engine = fordway_engine::start(device, queues, core, options).map_err(other)?;
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let pins = fordway_bpf::pins_dir(u64::from(std::process::id()), &name);
        let tunnels = case.softwire.as_ref().map(tunnels).transpose()?;
        let hook = Hook::Interface { tun };
        let options = KernelOptions { tunnels, ..KernelOptions::new(pins, hook) };
        let kernel = Accelerator::start(&case.config, &options).map_err(other)?;
        let seen: Result<Vec<_>, _> = case
            .steps
            .iter()
            .map(|step| {
                let mut seen = try_step(&tap, step, || counters(&engine, &kernel))?;
                same_fragment_ids(step, &mut seen);
                // Out of a tunnel the identification is the packet's own, unless an error was made.
                let is_own = case.softwire.is_some()
                    && step.expected.verdict == Verdict::Forward
                    && step.input.get(6) != Some(&ICMPV6);
                Ok(if is_own { seen } else { with_identification(step, seen) })
            })
            .collect();
        kernel.detach().map_err(other)?;
        engine.stop().map_err(other)?;
        seen
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

fn other(error: impl std::fmt::Display) -> SubjectError {
    SubjectError::Other(error.to_string())
}

/// Of both engines together.
fn counters(engine: &Engine, kernel: &Accelerator) -> Result<CounterMap, SubjectError> {
    let mut sum = kernel_counters(&kernel.totals().map_err(other)?);
    for queue in engine.counters() {
        for (name, value) in counter_map(&queue.core) {
            *sum.entry(name).or_default() += value;
        }
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
fn with_identification(step: &CaseStep, mut seen: Observation) -> Observation {
    let from_v6 = step.input.first().is_some_and(|first| first >> 4 == 6);
    let replied = matches!(step.expected.verdict, Verdict::Reply(_));
    for (sent, expected) in seen.sent.iter_mut().zip(&step.expected.packets) {
        let (got, expected) = (&mut sent.bytes, &expected[..]);
        let v4 = got.len() >= 20 && expected.len() >= 20 && got[0] == 0x45 && expected[0] == 0x45;
        if v4 && (from_v6 || replied) && checksum(&got[..20]) == 0 {
            got[4..6].copy_from_slice(&expected[4..6]);
            got[10..12].fill(0);
            let value = checksum(&got[..20]);
            got[10..12].copy_from_slice(&value.to_be_bytes());
        }
    }
    seen
}
