//! What the tests of living subjects share: a namespace per test thread, a step through an interface.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use std::{fs, io, process, thread};

use fordway_testkit::sys;
use fordway_testkit::tap::Tap;
use fordway_testkit::vector::{
    Applies, Case, CaseError, CaseStep, CounterMap, Observation, Sent, Subject, SubjectError,
    check, load, vectors_dir, walk,
};
use fordway_xlat::{ChecksumState, DropReason, Verdict};
use libtest_mimic::{Arguments, Conclusion, Failed, Trial};

/// The interface under test; each namespace has one.
pub(crate) const INTERFACE: &str = "vec0";

/// How long anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// How long counters that belong to one packet may take to move one after the other.
const SETTLING: Duration = Duration::from_secs(1);

/// Runs every vector, in the order of `key`, on the subject that each thread makes for itself.
pub(crate) fn run<S: Subject + 'static>(
    subject: fn() -> S,
    key: fn(&Case) -> String,
) -> Conclusion {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(Some(2));
    let trials = if sys::is_root() && Path::new("/dev/net/tun").exists() {
        let found = walk(&vectors_dir()).expect("the folder of vectors");
        let mut cases: Vec<_> = found
            .into_iter()
            .map(|(name, path)| {
                let case = load(&name, &path);
                (case.as_ref().map_or(String::new(), key), name, case)
            })
            .collect();
        cases.sort_by(|(key, name, _), (other, its_name, _)| (key, name).cmp(&(other, its_name)));
        cases.into_iter().map(|(_, name, case)| trial(subject, name, case)).collect()
    } else {
        eprintln!("SKIPPED: the vectors on a living interface need root and /dev/net/tun");
        Vec::new()
    };
    let conclusion = libtest_mimic::run(&arguments, trials);
    tidy();
    conclusion
}

/// Removes the folders of all threads.
pub(crate) fn tidy() {
    let folders = FOLDERS.lock().map(|mut folders| std::mem::take(&mut *folders));
    for folder in folders.unwrap_or_default() {
        let _ = fs::remove_dir_all(folder);
    }
}

/// The seed that makes queue 0 of a user engine begin with this identification: the engine multiplies by an
/// odd number and takes the upper 16 bits.
#[allow(dead_code, reason = "not every subject is a user engine")]
pub(crate) fn seed_for(identification: u16) -> u64 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    // Newton's iteration doubles the number of right bits each time, and an odd number is right in 3.
    let mut inverse = MULTIPLIER;
    for _ in 0..5 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(MULTIPLIER.wrapping_mul(inverse)));
    }
    (u64::from(identification) << 48).wrapping_mul(inverse)
}

/// A vector that does not apply is reported as ignored, with the reason.
fn trial<S: Subject + 'static>(
    subject: fn() -> S,
    name: String,
    case: Result<Case, CaseError>,
) -> Trial {
    let applies = case.as_ref().map_or(Applies::Yes, |case| subject().applies(case));
    let trial = Trial::test(name.clone(), move || {
        let case = case.map_err(|error| format!("{name}: {error}"))?;
        match check(&mut subject(), &case) {
            Ok(None) => Ok(()),
            Ok(Some(mismatch)) => Err(Failed::from(mismatch.to_string())),
            Err(error) => Err(Failed::from(error.to_string())),
        }
    });
    match applies {
        Applies::Yes => trial,
        Applies::No(reason) => trial.with_kind(reason).with_ignored_flag(true),
    }
}

/// What keeps any vector from an interface that a packet socket feeds.
pub(crate) fn applies_to_interface(subject: &str, case: &Case) -> Applies {
    let verified = |step: &CaseStep| step.offload.checksum == ChecksumState::Verified;
    if let Some(reason) = case.vector.skip.get(subject) {
        Applies::No(reason.clone())
    } else if case.steps.iter().any(|step| step.at > Duration::ZERO) {
        Applies::No("its clock can't be set".into())
    } else if case.steps.iter().any(verified) {
        Applies::No("a packet socket can't tell the kernel that a checksum is verified".into())
    } else if case.steps.iter().any(|step| step.input.is_empty()) {
        Applies::No("a packet of no octets can't be sent".into())
    } else {
        Applies::Yes
    }
}

/// The same where the kernel's programs come first.
#[allow(dead_code, reason = "not every test has them")]
pub(crate) fn applies_to_programs(subject: &str, case: &Case) -> Applies {
    let bad = |step: &CaseStep| step.expected.verdict == Verdict::Drop(DropReason::BadOffload);
    match applies_to_interface(subject, case) {
        Applies::Yes if case.steps.iter().any(bad) => Applies::No(
            "programs are not told where a partial checksum starts, only that it is one".into(),
        ),
        applies => applies,
    }
}

/// Whether packets that are nobody's are to go on.
#[allow(dead_code, reason = "not every test has to know")]
pub(crate) fn passes_unmatched(case: &Case) -> bool {
    match &case.softwire {
        Some(softwire) => softwire.settings().pass_unmatched,
        None => case.config.pass_unmatched,
    }
}

/// Sends a packet out through the interface, waits until `counters` say that it has been dealt with, and
/// takes what came in.
pub(crate) fn try_step(
    tap: &Tap,
    step: &CaseStep,
    mut counters: impl FnMut() -> Result<CounterMap, SubjectError>,
) -> Result<Observation, SubjectError> {
    let before = counters()?;
    tap.send(&step.input, &step.offload).map_err(|error| SubjectError::Io("send", error))?;
    let deadline = Instant::now() + PATIENCE;
    // A packet is counted when everything that comes of it has been written. Its counters move one
    // after the other: what is expected has a moment to be reached.
    let mut settled = None;
    let moved = loop {
        let moved = difference(&before, &counters()?);
        if moved == step.expected.counters {
            break moved;
        }
        if moved.keys().any(|name| is_verdict(name)) {
            let settled = *settled.get_or_insert_with(|| Instant::now() + SETTLING);
            if Instant::now() > settled {
                break moved;
            }
        } else if Instant::now() > deadline {
            return Err(SubjectError::Other("the packet was not dealt with in time".into()));
        }
        thread::yield_now();
    };
    let received = tap.receive_all().map_err(|error| SubjectError::Io("receive", error))?;
    let sent = received.into_iter().map(|(bytes, mut offload)| {
        // The kernel does not keep the header length.
        offload.gso.header_len = step.expected.offload.gso.header_len;
        Sent { bytes, offload: Some(offload) }
    });
    let mut sent: Vec<Sent> = sent.collect();
    if step.expected.verdict == Verdict::Pass && sent.is_empty() {
        // A TUN device has nowhere to pass packets on to; that nothing came out is all that is seen.
        sent.push(Sent { bytes: step.input.clone(), offload: None });
    }
    Ok(Observation { verdict: None, sent, counters: Some(moved) })
}

/// Identifications of IPv6 fragments begin with a random number: the expected ones are put in their place, if
/// pieces of one packet have one of their own, and of several different ones.
#[allow(dead_code, reason = "not every test has vectors of softwires")]
pub(crate) fn same_fragment_ids(step: &CaseStep, seen: &mut Observation) {
    let mut names = HashMap::new();
    for (sent, expected) in seen.sent.iter_mut().zip(&step.expected.packets) {
        let (Some(got), Some(wanted)) = (fragment_id(&sent.bytes), fragment_id(expected)) else {
            continue;
        };
        let id = |packet: &[u8]| packet[got.clone()].to_vec();
        if *names.entry(id(&sent.bytes)).or_insert_with(|| id(expected)) == id(expected) {
            sent.bytes[got].copy_from_slice(&expected[wanted]);
        }
    }
}

/// Where the identification of a fragment lies, if a Fragment Header follows the IPv6 header.
#[allow(dead_code, reason = "not every test has vectors of softwires")]
fn fragment_id(packet: &[u8]) -> Option<Range<usize>> {
    (packet.len() >= 48 && packet[0] >> 4 == 6 && packet[6] == 44).then_some(44..48)
}

/// Brings the interface up, and a packet socket on it. The host's stack has no part in it: no router
/// solicitation, no duplicate address detection, no answer.
pub(crate) fn tap() -> Result<Tap, SubjectError> {
    let knob = format!("/proc/sys/net/ipv6/conf/{INTERFACE}/disable_ipv6");
    fs::write(knob, "1").map_err(|error| SubjectError::Io("disable_ipv6", error))?;
    sys::bring_up(INTERFACE, 65_535).map_err(|error| SubjectError::Io("bring_up", error))?;
    Tap::open(INTERFACE).map_err(|error| SubjectError::Io("packet socket", error))
}

/// Whether this counter says that a packet has been dealt with.
fn is_verdict(name: &str) -> bool {
    name.ends_with(".packets") || name.starts_with("drop.") || name == "passed"
}

fn difference(before: &CounterMap, after: &CounterMap) -> CounterMap {
    let moved = after
        .iter()
        .map(|(name, value)| (name.clone(), value.saturating_sub(*before.get(name).unwrap_or(&0))));
    moved.filter(|(_, value)| *value != 0).collect()
}

/// Folders to be removed at the end.
static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

thread_local! {
    static RUN_DIR: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
}

/// Enters the thread's own namespace, if it is not there yet; gives the folder for locks and sockets.
pub(crate) fn namespace() -> Result<PathBuf, SubjectError> {
    RUN_DIR.with_borrow_mut(|slot| match slot {
        Some(folder) => Ok(folder.clone()),
        None => {
            let folder = enter().map_err(|error| SubjectError::Io("namespace", error))?;
            Ok(slot.insert(folder).clone())
        }
    })
}

fn enter() -> io::Result<PathBuf> {
    sys::enter_new_namespace()?;
    let mut folders = FOLDERS.lock().map_err(|_| io::Error::other("a thread panicked"))?;
    let name = format!("fordway-testkit-{}-{}", process::id(), folders.len());
    let folder = std::env::temp_dir().join(name);
    fs::create_dir_all(&folder)?;
    folders.push(folder.clone());
    Ok(folder)
}
