//! Every vector through the user engine on a TUN device.
//!
//! Packets go out through the interface with a packet socket, so the engine reads them from its queue
//! as it reads the host's; what it writes comes in from the interface and is taken by the same socket.
//! Each test thread has a network namespace of its own. Needs root; says so, and does nothing, without.

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{fs, io, process, thread};

use fordway_engine::Engine;
use fordway_testkit::sys;
use fordway_testkit::tap::Tap;
use fordway_testkit::vector::{
    Applies, Case, CaseStep, CounterMap, Observation, Sent, Subject, SubjectError, check,
    counter_map, load, vectors_dir, walk,
};
use fordway_tun::{Device, OpenOptions};
use fordway_xlat::{ChecksumState, Translator};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(Some(2));
    let trials = if sys::is_root() {
        let found = walk(&vectors_dir()).expect("the folder of vectors");
        found.into_iter().map(|(name, path)| trial(name, path)).collect()
    } else {
        eprintln!("vectors through a TUN device: skipped, this needs root");
        Vec::new()
    };
    libtest_mimic::run(&arguments, trials).exit();
}

fn trial(name: String, path: PathBuf) -> Trial {
    Trial::test(name.clone(), move || {
        let case = load(&name, &path).map_err(|error| format!("{name}: {error}"))?;
        if let Applies::No(reason) = Tun.applies(&case) {
            println!("{name} does not apply to a TUN device: {reason}");
            return Ok(());
        }
        match check(&mut Tun, &case) {
            Ok(None) => Ok(()),
            Ok(Some(mismatch)) => Err(Failed::from(mismatch.to_string())),
            Err(error) => Err(Failed::from(error.to_string())),
        }
    })
}

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long counters that belong to one packet may take to move one after the other.
const SETTLING: Duration = Duration::from_secs(1);

/// A TUN device with the user engine.
struct Tun;

impl Subject for Tun {
    fn name(&self) -> &'static str {
        "tun"
    }

    fn applies(&self, case: &Case) -> Applies {
        let verified = |step: &CaseStep| step.offload.checksum == ChecksumState::Verified;
        if let Some(reason) = case.vector.skip.get(self.name()) {
            Applies::No(reason.clone())
        } else if case.steps.iter().any(|step| step.at > Duration::ZERO) {
            Applies::No("the engine's clock can't be set".into())
        } else if case.steps.iter().any(verified) {
            Applies::No("a packet socket can't tell the kernel that a checksum is verified".into())
        } else if case.steps.iter().any(|step| step.input.is_empty()) {
            Applies::No("a packet of no octets can't be sent".into())
        } else {
            Applies::Yes
        }
    }

    fn observe(&mut self, case: &Case) -> Result<Vec<Observation>, SubjectError> {
        let run_dir = namespace();
        let translator = Arc::new(Translator::new(case.config.clone())?);
        let options = OpenOptions { run_dir, adopt: false, ..OpenOptions::default() };
        let (device, queues) = Device::open("vec0", &options)
            .map_err(|error| SubjectError::Other(error.to_string()))?;
        let name = device.name().to_owned();
        sys::bring_up(&name, 65_535).map_err(|error| SubjectError::Io("bring_up", error))?;
        let tap = Tap::open(&name).map_err(|error| SubjectError::Io("packet socket", error))?;
        let seed = seed_for(case.vector.identification);
        let engine = fordway_engine::start(device, queues, translator, seed)
            .map_err(|error| SubjectError::Other(error.to_string()))?;
        let seen = case.steps.iter().map(|step| try_step(&engine, &tap, step)).collect();
        engine.stop().map_err(|error| SubjectError::Other(error.to_string()))?;
        seen
    }
}

fn try_step(engine: &Engine, tap: &Tap, step: &CaseStep) -> Result<Observation, SubjectError> {
    let before = counters(engine);
    tap.send(&step.input, &step.offload).map_err(|error| SubjectError::Io("send", error))?;
    let deadline = Instant::now() + PATIENCE;
    // The engine counts a packet when everything that comes of it has been written. Its counters move
    // one after the other: what is expected has a moment to be reached.
    let mut settled = None;
    let moved = loop {
        let moved = difference(&before, &counters(engine));
        if moved == step.expected.counters {
            break moved;
        }
        if moved.keys().any(|name| is_verdict(name)) {
            let settled = *settled.get_or_insert_with(|| Instant::now() + SETTLING);
            if Instant::now() > settled {
                break moved;
            }
        } else if Instant::now() > deadline {
            return Err(SubjectError::Other("the engine did not take the packet in time".into()));
        }
        thread::yield_now();
    };
    let received = tap.receive_all().map_err(|error| SubjectError::Io("receive", error))?;
    let sent = received.into_iter().map(|(bytes, mut offload)| {
        // The kernel does not keep the header length, nor that a checksum is verified.
        offload.gso.header_len = step.expected.offload.gso.header_len;
        Sent { bytes, offload: Some(offload) }
    });
    let mut sent: Vec<Sent> = sent.collect();
    if let fordway_xlat::Verdict::Pass = step.expected.verdict {
        // A TUN has nowhere to pass packets on to; that nothing came out is all that can be seen.
        if sent.is_empty() {
            sent.push(Sent { bytes: step.input.clone(), offload: None });
        }
    }
    Ok(Observation { verdict: None, sent, counters: Some(moved) })
}

/// Whether this counter says that a packet has been dealt with.
fn is_verdict(name: &str) -> bool {
    name.ends_with(".packets") || name.starts_with("drop.") || name == "passed"
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

fn difference(before: &CounterMap, after: &CounterMap) -> CounterMap {
    let moved =
        after.iter().map(|(name, value)| (name.clone(), value - before.get(name).unwrap_or(&0)));
    moved.filter(|(_, value)| *value != 0).collect()
}

/// The seed that makes queue 0 begin with this identification: the engine multiplies by an odd number
/// and takes the upper 16 bits.
fn seed_for(identification: u16) -> u64 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    // Newton's iteration doubles the number of right bits each time; an odd number begins with 3.
    let mut inverse = MULTIPLIER;
    for _ in 0..5 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(MULTIPLIER.wrapping_mul(inverse)));
    }
    (u64::from(identification) << 48).wrapping_mul(inverse)
}

thread_local! {
    static NAMESPACE: RefCell<Option<Namespace>> = const { RefCell::new(None) };
}

/// The namespace of a test thread, with the folder for the locks of its devices.
struct Namespace {
    run_dir: PathBuf,
}

impl Namespace {
    fn enter() -> io::Result<Namespace> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        sys::enter_new_namespace()?;
        // No router solicitation, no duplicate address detection, no answer of the host's stack.
        fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1")?;
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = format!("fordway-testkit-{}-{number}", process::id());
        let run_dir = std::env::temp_dir().join(folder);
        fs::create_dir_all(&run_dir)?;
        Ok(Namespace { run_dir })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.run_dir);
    }
}

/// Enters the thread's namespace, if it is not there yet.
fn namespace() -> PathBuf {
    NAMESPACE.with_borrow_mut(|slot| {
        let namespace =
            slot.get_or_insert_with(|| Namespace::enter().expect("a network namespace"));
        namespace.run_dir.clone()
    })
}
