//! Every vector on the kernel's program, by `BPF_PROG_TEST_RUN`.
//!
//! A vector that the program leaves to the user engine is held against nothing here: `kernel_tun.rs`
//! runs both engines together. How many it leaves is bounded. Needs root; says so, and does nothing,
//! without.

mod alike;

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use alike::{Made, agree};
use fordway_bpf::{Loaded, Outcome, Program, SoftwireMaps, TestOptions, Tunnels};
use fordway_softwire::Softwire;
use fordway_testkit::vector::{Case, CaseStep, dissect, load, vectors_dir, walk};
use fordway_testkit::{oracle, sys};
use fordway_xlat::{ChecksumState, State, Translator, Verdict};
use libtest_mimic::{Arguments, Failed, Trial};

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

fn main() {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(Some(2));
    if !sys::is_root() {
        eprintln!("SKIPPED: the vectors in the kernel need root");
        libtest_mimic::run(&arguments, Vec::new()).exit();
    }
    let found = walk(&vectors_dir()).expect("the folder of vectors");
    let trials = found.into_iter().map(|(name, path)| {
        let case = load(&name, &path);
        let skip = case.as_ref().ok().and_then(skip);
        let trial = Trial::test(name.clone(), move || {
            let case = case.map_err(|error| format!("{name}: {error}"))?;
            run(&case).map_err(Failed::from)
        });
        match skip {
            Some(reason) => trial.with_kind(reason).with_ignored_flag(true),
            None => trial,
        }
    });
    let whole = arguments.filter.is_none() && arguments.skip.is_empty();
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    for ((what, tally), most) in
        [("translation", &TRANSLATED), ("softwires", &TUNNELLED)].into_iter().zip(MAX_PASSED_ON)
    {
        let seen = tally.seen.load(Ordering::Relaxed);
        let passed_on = tally.passed_on.load(Ordering::Relaxed);
        println!("{what}: {passed_on} of {seen} packets were left to the user engine");
        if whole && passed_on * 100 > seen * most {
            eprintln!("that is more than {most} %");
            std::process::exit(101);
        }
    }
    conclusion.exit();
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

fn passes_unmatched(case: &Case) -> bool {
    match &case.softwire {
        Some(softwire) => softwire.settings().pass_unmatched,
        None => case.config.pass_unmatched,
    }
}

fn run(case: &Case) -> Result<(), String> {
    if let Some(softwire) = &case.softwire {
        return run_softwire(case, softwire);
    }
    let translator = Translator::new(case.config.clone()).map_err(|error| error.to_string())?;
    // Many vectors share a configuration, and the kernel takes its time to verify a program.
    let key = format!("{:?}", case.config);
    let known = LOADED.with_borrow_mut(|loaded| loaded.remove(&key));
    let mut loaded = match known {
        Some(loaded) => loaded,
        None => Loaded::load(&case.config, &[Program::Interface], &TestOptions::default())
            .map_err(|error| error.to_string())?,
    };
    let result = try_steps(case, &translator, &mut loaded);
    LOADED.with_borrow_mut(|known| known.insert(key, loaded));
    result
}

/// Softwires: every packet by programs with the bindings of the vector, held against what the vector demands.
fn run_softwire(case: &Case, softwire: &Softwire) -> Result<(), String> {
    let settings = *softwire.settings();
    let text = |error: fordway_bpf::Error| error.to_string();
    let maps = SoftwireMaps::make(settings.role, 64).map_err(text)?;
    for entry in softwire.bindings().iter() {
        maps.insert(&entry.binding).map_err(text)?;
    }
    let options = TestOptions {
        tunnels: Some(Tunnels { settings, maps: Arc::new(maps) }),
        ..TestOptions::default()
    };
    let mut loaded =
        Loaded::load(&case.config, &[Program::SoftwireInterface], &options).map_err(text)?;
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
            Outcome::Unmatched => false,
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

thread_local! {
    static LOADED: RefCell<HashMap<String, Loaded>> = RefCell::default();
}

fn try_steps(case: &Case, translator: &Translator, loaded: &mut Loaded) -> Result<(), String> {
    for (index, step) in case.steps.iter().enumerate() {
        let mut state = State::new(case.vector.identification);
        let core = oracle::translate(translator, &mut state, &step.input, step.offload);
        let run = loaded
            .run(Program::Interface, &frame(&step.input), 0, 1)
            .map_err(|error| error.to_string())?;
        let outcome = run.outcome.ok_or("not counted, or counted twice")?;
        TRANSLATED.add(outcome);
        let made = Made { outcome, packet: Some(run.frame[14..].to_vec()), offload: None };
        agree(&step.input, &core, &made)
            .map_err(|error| format!("{} step {index}: {error}", case.name))?;
    }
    Ok(())
}

/// The packet behind an Ethernet header.
fn frame(packet: &[u8]) -> Vec<u8> {
    let kind: [u8; 2] = if packet[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xdd] };
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2], &kind[..], packet].concat()
}
