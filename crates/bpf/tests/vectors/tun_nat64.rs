//! Sequences through the user engine on a TUN device, as far as they need no clock.
//!
//! As in `tun.rs`, packets go out through the interface with a packet socket and come in from it. The
//! tables are looked at from outside while the engine has them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fordway_engine::{Engine, Options, monotonic};
use fordway_testhost::can_use_tun;
use fordway_testkit::live::{INTERFACE, Inapplicable, PATIENCE, namespace, seed_for, tap};
use fordway_testkit::tap::Tap;
use fordway_testkit::vector::sequence::{
    Gateway, Operator, Sequence, Stateful, Tables, check_sequence, load_sequence, tables_of,
};
use fordway_testkit::vector::{Observation, Sent, SubjectError, vectors_dir, walk_sequences};
use fordway_tun::{Device, OpenOptions};
use fordway_xlat::nat64::{Heap, Nat64};
use fordway_xlat::{ChecksumState, DropReason, Offload, Translator, Verdict};
use libtest_mimic::{Failed, Trial};

use crate::kernel_tun;
use crate::shared::Shifts;
use crate::tun::{self, counters, other};

/// The names of trials begin so.
const PREFIX: &str = "tun_nat64/";

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    if !can_use_tun() {
        return trials;
    }
    let mut inapplicable = Inapplicable::default();
    for (name, path) in walk_sequences(&vectors_dir()).expect("the folder of vectors") {
        let sequence = load_sequence(&name, &path);
        if let Some(reason) = sequence.as_ref().ok().and_then(skip) {
            inapplicable.add(reason);
            continue;
        }
        trials.push(Trial::test(format!("{PREFIX}{name}"), move || {
            let sequence = sequence.map_err(|error| format!("{name}: {error}"))?;
            match check_sequence(&mut Sequences, &sequence) {
                Ok(None) => Ok(()),
                Ok(Some(mismatch)) => Err(Failed::from(mismatch.to_string())),
                Err(error) => Err(Failed::from(format!("{name}: {error}"))),
            }
        }));
    }
    inapplicable.print(PREFIX);
    trials
}

/// Why a sequence can't be tried here.
fn skip(sequence: &Sequence) -> Option<&'static str> {
    let steps = &sequence.steps;
    let holds = |expect: &toml::Value| expect.as_str() == Some("hold");
    if steps.iter().any(|step| step.at.is_some()) {
        Some("its clock can't be set")
    } else if steps.iter().any(|step| step.expect.as_ref().is_some_and(holds)) {
        Some("that a packet is kept can't be seen")
    } else if steps.iter().any(|step| step.mark != 0) {
        Some("a TUN device does not tell marks")
    } else if sequence.nat64.fragments.is_set() {
        Some("the engine has its own limits for fragments")
    } else {
        None
    }
}

/// A TUN device with the user engine.
struct Sequences;

impl Stateful for Sequences {
    fn name(&self) -> &'static str {
        "tun"
    }

    fn begin(&mut self, sequence: &Sequence) -> Result<Box<dyn Gateway>, SubjectError> {
        // There is one interface at a time.
        tun::stop();
        kernel_tun::stop();
        let settings = sequence.nat64.settings().map_err(other)?;
        let fixed = settings.bib.clone();
        let heap = Heap::new(&settings.sizes, [0x7e57, 0x5eed]);
        let nat = Arc::new(Nat64::new(settings, Arc::new(heap)).map_err(other)?);
        for bib in &fixed {
            nat.add_bib(bib, monotonic()).map_err(|error| other(format!("{error:?}")))?;
        }
        let translator = Translator::nat64(sequence.config.clone(), Arc::clone(&nat))?;
        let options = OpenOptions { run_dir: namespace()?, adopt: false, ..OpenOptions::default() };
        let (device, queues) = Device::open(INTERFACE, &options).map_err(other)?;
        let tap = tap()?;
        let seed = seed_for(sequence.identification);
        let options = Options { seed, ..Options::default() };
        let engine = fordway_engine::start(device, queues, Arc::new(translator), options);
        Ok(Box::new(Running {
            engine: engine.map_err(other)?,
            tap,
            nat,
            begun: Instant::now(),
            identification: sequence.identification,
            shifts: Shifts::default(),
        }))
    }
}

struct Running {
    engine: Engine,
    tap: Tap,
    nat: Arc<Nat64>,
    begun: Instant,
    identification: u16,
    shifts: Shifts,
}

impl Gateway for Running {
    fn sweep(&mut self, _at: Duration) -> Result<Vec<Sent>, SubjectError> {
        Ok(Vec::new())
    }

    fn feed(
        &mut self,
        _at: Duration,
        input: &[u8],
        offload: &Offload,
        _mark: u32,
    ) -> Result<Option<Observation>, SubjectError> {
        let before = counters(&self.engine);
        self.tap.send(input, offload).map_err(|error| SubjectError::Io("send", error))?;
        let deadline = Instant::now() + PATIENCE;
        // A packet is counted when everything that comes of it has been written.
        let dropped = loop {
            let now = counters(&self.engine);
            let moved = |name: &str| now.get(name) != before.get(name);
            if moved("v4_to_v6.packets") || moved("v6_to_v4.packets") {
                break None;
            }
            let reason =
                DropReason::ALL.iter().find(|reason| moved(&format!("drop.{}", reason.label())));
            if reason.is_some() {
                break reason;
            }
            if Instant::now() > deadline {
                return Err(SubjectError::Other("the packet was not dealt with in time".into()));
            }
            std::thread::yield_now();
        };
        let received =
            self.tap.receive_all().map_err(|error| SubjectError::Io("receive", error))?;
        let sent: Vec<Sent> = received
            .into_iter()
            .map(|(mut bytes, offload)| {
                self.shifts.shift(&mut bytes, self.identification);
                // The kernel does not keep the header length.
                let partial = matches!(offload.checksum, ChecksumState::Partial { .. });
                Sent { bytes, offload: (!partial).then_some(offload) }
            })
            .collect();
        let verdict = match dropped {
            None => Some(Verdict::Forward),
            Some(reason) if sent.is_empty() => Some(Verdict::Drop(*reason)),
            // It was answered, and the answer shows how.
            Some(_) => None,
        };
        Ok(Some(Observation { verdict, sent, counters: None }))
    }

    fn operate(&mut self, _at: Duration, operator: &Operator) -> Result<(), SubjectError> {
        operator.apply(&self.nat, monotonic())
    }

    fn tables(&mut self, _at: Duration) -> Result<Option<Tables>, SubjectError> {
        Ok(Some(tables_of(&self.nat, monotonic())))
    }

    fn ahead(&self) -> Duration {
        // Of a tick, too, which is a unit of its clock.
        self.begun.elapsed() + Duration::from_millis(135)
    }
}
