//! Every vector on the kernel's program, by `BPF_PROG_TEST_RUN`.
//!
//! A vector that the program leaves to the user engine is held against nothing here: `kernel_tun.rs`
//! runs both engines together. How many it leaves is bounded.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fordway_bpf::{Loaded, Outcome, Program, SoftwireMaps, TestOptions, Tunnels};
use fordway_testhost::is_root;
use fordway_testkit::live::{Inapplicable, passes_unmatched};
use fordway_testkit::oracle;
use fordway_testkit::vector::{Case, CaseError, CaseStep, dissect, load, vectors_dir, walk};
use fordway_xlat::{ChecksumState, State, Translator, Verdict};
use libtest_mimic::{Arguments, Failed, Trial};

use crate::alike::{Made, agree, frame};

/// The names of trials begin so.
const PREFIX: &str = "kernel/";

/// Of the packets of vectors, which are unusual by nature, at most this share is left to the user
/// engine, in percent: by programs that translate, and by those of a softwire.
const MAX_PASSED_ON: [usize; 2] = [35, 65];

/// Octets of the longest packet that a test run takes.
const MAX_LEN: usize = 3000;

/// What was tried.
struct Tally {
    seen: AtomicUsize,
    passed_on: AtomicUsize,
}

impl Tally {
    const fn new() -> Self {
        Self { seen: AtomicUsize::new(0), passed_on: AtomicUsize::new(0) }
    }

    fn add(&self, outcome: Outcome) {
        self.seen.fetch_add(1, Ordering::Relaxed);
        if matches!(outcome, Outcome::PassedOn(_)) {
            self.passed_on.fetch_add(1, Ordering::Relaxed);
        }
    }
}

static TRANSLATED: Tally = Tally::new();
static TUNNELLED: Tally = Tally::new();

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    if !is_root() {
        return trials;
    }
    let mut inapplicable = Inapplicable::default();
    let mut cases = Vec::new();
    for (name, path) in walk(&vectors_dir()).expect("the folder of vectors") {
        let case = load(&name, &path);
        match case.as_ref().ok().and_then(skip) {
            Some(reason) => inapplicable.add(reason),
            None => cases.push((case.as_ref().map_or(String::new(), key), name, case)),
        }
    }
    inapplicable.print(PREFIX);
    cases.sort_by(|(key, name, _), (other, its_name, _)| (key, name).cmp(&(other, its_name)));
    for (key, name, case) in cases {
        trials.push(trial(key, name, case));
    }
    trials
}

fn trial(key: String, name: String, case: Result<Case, CaseError>) -> Trial {
    Trial::test(format!("{PREFIX}{name}"), move || {
        let case = case.map_err(|error| format!("{name}: {error}"))?;
        run(key, &case).map_err(Failed::from)
    })
}

/// What cases have to have in common to share programs.
fn key(case: &Case) -> String {
    format!("{:?} {:?}", case.config, case.softwire)
}

/// Whether the programs have left no more than they may, if all vectors were tried on them.
pub(crate) fn leaves_little(arguments: &Arguments) -> bool {
    let is_whole = arguments.filter.as_deref().is_none_or(|filter| filter == PREFIX);
    let mut is_right = true;
    for ((what, tally), most) in
        [("translation", &TRANSLATED), ("softwires", &TUNNELLED)].into_iter().zip(MAX_PASSED_ON)
    {
        let seen = tally.seen.load(Ordering::Relaxed);
        let passed_on = tally.passed_on.load(Ordering::Relaxed);
        println!("{what}: {passed_on} of {seen} packets were left to the user engine");
        if is_whole && arguments.skip.is_empty() && passed_on * 100 > seen * most {
            eprintln!("that is more than {most} %");
            is_right = false;
        }
    }
    is_right
}

/// Why a vector can't be tried in a test run.
fn skip(case: &Case) -> Option<&'static str> {
    let any = |wanted: fn(&CaseStep) -> bool| case.steps.iter().any(wanted);
    if any(|step| matches!(step.offload.checksum, ChecksumState::Partial { .. })) {
        Some("a test run has no partial checksums")
    } else if any(|step| step.offload.checksum == ChecksumState::Verified) {
        Some("a test run can't tell the program that a checksum is verified")
    } else if any(|step| step.input.len() > MAX_LEN) {
        Some("longer than the buffer of a test run")
    } else if any(|step| !matches!(step.input.first(), Some(0x40..=0x4f | 0x60..=0x6f))) {
        Some("a frame says by its type which program takes it")
    } else if any(|step| step.input.len() < if step.input[0] >> 4 == 4 { 20 } else { 40 }) {
        Some("a test run makes no frame without a whole IP header")
    } else if case.vector.skip.contains_key("kernel") {
        Some("see the vector")
    } else if passes_unmatched(case) {
        Some("the program of an interface is given what was routed to it")
    } else {
        None
    }
}

/// Many vectors share a configuration, and the kernel takes its time to verify a program.
struct Programs {
    key: String,
    loaded: Loaded,
}

thread_local! {
    static LOADED: RefCell<Option<Programs>> = const { RefCell::new(None) };
}

fn run(key: String, case: &Case) -> Result<(), String> {
    LOADED.with_borrow_mut(|slot| {
        if slot.as_ref().is_none_or(|programs| programs.key != key) {
            let loaded = load_programs(case).map_err(|error| error.to_string())?;
            *slot = Some(Programs { key, loaded });
        }
        let Some(programs) = slot else { return Err("no programs".into()) };
        match case.softwire {
            Some(_) => run_softwire(case, &mut programs.loaded),
            None => run_translator(case, &mut programs.loaded),
        }
    })
}

/// The program of an interface: of a translator, or of softwires with the bindings of the vector.
fn load_programs(case: &Case) -> fordway_bpf::Result<Loaded> {
    let Some(softwire) = &case.softwire else {
        return Loaded::load(&case.config, &[Program::Interface], &TestOptions::default());
    };
    let settings = *softwire.settings();
    let maps = SoftwireMaps::make(settings.role, 64)?;
    for entry in softwire.bindings().iter() {
        maps.insert(&entry.binding)?;
    }
    let options = TestOptions {
        tunnels: Some(Tunnels { settings, maps: Arc::new(maps) }),
        ..TestOptions::default()
    };
    Loaded::load(&case.config, &[Program::SoftwireInterface], &options)
}

/// Every packet is held against what the vector demands.
fn run_softwire(case: &Case, loaded: &mut Loaded) -> Result<(), String> {
    for (index, step) in case.steps.iter().enumerate() {
        let run = loaded
            .run(Program::SoftwireInterface, &frame(&step.input), 0, 1)
            .map_err(|error| error.to_string())?;
        let (outcome, expected) =
            (run.outcome.ok_or("not counted, or counted twice")?, &step.expected);
        TUNNELLED.add(outcome);
        let made = &run.frame[14..];
        let is_right = match outcome {
            Outcome::PassedOn(_) => made == step.input,
            Outcome::Translated => matches!(&expected.packets[..], [one] if one == made),
            Outcome::Dropped(reason) => expected.verdict == Verdict::Drop(reason),
            Outcome::Unmatched | Outcome::HandedOver => false,
        };
        if !is_right {
            let name = &case.name;
            let expected = expected.packets.first().map(Vec::as_slice).unwrap_or_default();
            return Err(format!(
                "{name} step {index}: {outcome:?}\nexpected {:#?}\ngot {:#?}",
                dissect(expected),
                dissect(made)
            ));
        }
    }
    Ok(())
}

/// Every packet is held against what the core makes of it.
fn run_translator(case: &Case, loaded: &mut Loaded) -> Result<(), String> {
    let translator = Translator::new(case.config.clone()).map_err(|error| error.to_string())?;
    for (index, step) in case.steps.iter().enumerate() {
        let mut state = State::new(case.vector.identification);
        let core = oracle::translate(&translator, &mut state, &step.input, step.offload);
        let run = loaded
            .run(Program::Interface, &frame(&step.input), 0, 1)
            .map_err(|error| error.to_string())?;
        let outcome = run.outcome.ok_or("not counted, or counted twice")?;
        TRANSLATED.add(outcome);
        let made = Made { outcome, packet: Some(&run.frame[14..]), offload: None };
        agree(&step.input, &core, &made)
            .map_err(|error| format!("{} step {index}: {error}", case.name))?;
    }
    Ok(())
}
