//! What the tests of living subjects share: a namespace per test thread, a step through an interface.
//!
//! A living subject is an engine or the whole program behind a real interface. Packets go out through the
//! interface with a packet socket and come in from it.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use std::{fs, io, process, thread};

use fordway_xlat::{ChecksumState, DropReason, Offload, Verdict};
use libtest_mimic::{Arguments, Conclusion, Failed, Trial};

use crate::sys;
use crate::tap::Tap;
use crate::vector::{
    Applies, Case, CaseError, CaseStep, CounterMap, Observation, Sent, Subject, SubjectError,
    check, load, vectors_dir, walk,
};

/// The interface under test; each namespace has one.
pub const INTERFACE: &str = "vec0";

pub use fordway_testhost::PATIENCE;

/// A packet that every engine drops and counts, whatever its configuration: less than an IPv4 header. A queue keeps the
/// order of its packets: when this one is counted, all that came of those before it has been written and counted.
const SENTINEL: [u8; 19] = [0x45; 19];

/// The counter that the sentinel moves.
const SENTINEL_COUNTER: &str = "drop.truncated";

/// Runs every vector that applies, in the order of `key`, on the subject that each thread makes for itself.
/// How many vectors do not apply is printed, by reason.
pub fn run<S: Subject + 'static>(subject: fn() -> S, key: fn(&Case) -> String) -> Conclusion {
    let conclusion = libtest_mimic::run(&arguments(), trials(subject, key, ""));
    tidy();
    conclusion
}

/// What the command line says; two threads, unless it says how many.
pub fn arguments() -> Arguments {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(Some(2));
    arguments
}

/// A trial for every vector that applies, in the order of `key`; their names begin with `prefix`. How many vectors
/// do not apply is printed, by reason. None, and a skip, where the host does not allow interfaces.
pub fn trials<S: Subject + 'static>(
    subject: fn() -> S,
    key: fn(&Case) -> String,
    prefix: &str,
) -> Vec<Trial> {
    let mut trials = Vec::new();
    if !fordway_testhost::can_use_tun() {
        return trials;
    }
    let found = walk(&vectors_dir()).expect("the folder of vectors");
    let mut cases: Vec<_> = found
        .into_iter()
        .map(|(name, path)| {
            let case = load(&name, &path);
            (case.as_ref().map_or(String::new(), key), name, case)
        })
        .collect();
    cases.sort_by(|(key, name, _), (other, its_name, _)| (key, name).cmp(&(other, its_name)));
    let mut inapplicable = Inapplicable::default();
    for (_, name, case) in cases {
        match case.as_ref().map_or(Applies::Yes, |case| subject().applies(case)) {
            Applies::Yes => trials.push(trial(subject, format!("{prefix}{name}"), case)),
            Applies::No(reason) => inapplicable.add(&reason),
        }
    }
    inapplicable.print(prefix);
    trials
}

/// How many vectors do not apply to a subject, by reason.
#[derive(Debug, Default)]
pub struct Inapplicable(BTreeMap<String, usize>);

impl Inapplicable {
    /// Counts one vector.
    pub fn add(&mut self, reason: &str) {
        *self.0.entry(reason.to_owned()).or_default() += 1;
    }

    /// Prints a line per reason on stderr, with `prefix` in front.
    pub fn print(&self, prefix: &str) {
        for (reason, count) in &self.0 {
            eprintln!("{prefix}{count} vectors do not apply: {reason}");
        }
    }
}

/// Removes the folders of all threads.
pub fn tidy() {
    let folders = FOLDERS.lock().map(|mut folders| std::mem::take(&mut *folders));
    for folder in folders.unwrap_or_default() {
        let _ = fs::remove_dir_all(folder);
    }
}

/// The seed that makes queue 0 of a user engine begin with this identification: the engine multiplies by an
/// odd number and takes the upper 16 bits.
pub fn seed_for(identification: u16) -> u64 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    // Newton's iteration doubles the number of right bits each time, and an odd number is right in 3.
    let mut inverse = MULTIPLIER;
    for _ in 0..5 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(MULTIPLIER.wrapping_mul(inverse)));
    }
    (u64::from(identification) << 48).wrapping_mul(inverse)
}

fn trial<S: Subject + 'static>(
    subject: fn() -> S,
    name: String,
    case: Result<Case, CaseError>,
) -> Trial {
    Trial::test(name.clone(), move || {
        let case = case.map_err(|error| format!("{name}: {error}"))?;
        match check(&mut subject(), &case) {
            Ok(None) => Ok(()),
            Ok(Some(mismatch)) => Err(Failed::from(mismatch.to_string())),
            Err(error) => Err(Failed::from(error.to_string())),
        }
    })
}

/// What keeps any vector from an interface that a packet socket feeds.
pub fn applies_to_interface(subject: &str, case: &Case) -> Applies {
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

/// What keeps any vector from an interface whose packets reach the kernel's programs first.
pub fn applies_to_programs(subject: &str, case: &Case) -> Applies {
    let bad = |step: &CaseStep| step.expected.verdict == Verdict::Drop(DropReason::BadOffload);
    match applies_to_interface(subject, case) {
        Applies::Yes if case.steps.iter().any(bad) => Applies::No(
            "programs are not told where a partial checksum starts, only that it is one".into(),
        ),
        applies => applies,
    }
}

/// Whether the case's configuration passes packets on that match nothing.
pub fn passes_unmatched(case: &Case) -> bool {
    match &case.softwire {
        Some(softwire) => softwire.settings().pass_unmatched,
        None => case.config.pass_unmatched,
    }
}

/// Sends a packet out through the interface, waits until `counters` say that it has been dealt with, and
/// takes what came in.
pub fn try_step(
    tap: &Tap,
    step: &CaseStep,
    mut counters: impl FnMut() -> Result<CounterMap, SubjectError>,
) -> Result<Observation, SubjectError> {
    let send = |packet: &[u8], offload: &Offload| {
        tap.send(packet, offload).map_err(|error| SubjectError::Io("send", error))
    };
    let expected = &step.expected;
    let before = counters()?;
    send(&step.input, &step.offload)?;
    send(&SENTINEL, &Offload::default())?;
    let deadline = Instant::now() + PATIENCE;
    let due = expected.counters.get(SENTINEL_COUNTER).unwrap_or(&0) + 1;
    while difference(&before, &counters()?).get(SENTINEL_COUNTER).is_none_or(|it| *it < due) {
        if Instant::now() > deadline {
            return Err(SubjectError::Other("the packet was not dealt with in time".into()));
        }
        thread::yield_now();
    }
    // Counters are read one after the other: those in front of the sentinel's may have been read too early.
    let mut moved = difference(&before, &counters()?);
    moved.entry(SENTINEL_COUNTER.to_owned()).and_modify(|count| *count -= 1);
    moved.retain(|_, count| *count != 0);
    // What a program redirects may lie in the kernel's backlog for a moment.
    let mut received = Vec::new();
    loop {
        let more = tap.receive_all().map_err(|error| SubjectError::Io("receive", error))?;
        received.extend(more);
        let is_due = expected.verdict != Verdict::Pass && moved == expected.counters;
        if !is_due || received.len() >= expected.packets.len() || Instant::now() > deadline {
            break;
        }
        thread::yield_now();
    }
    let sent = received.into_iter().map(|(bytes, mut offload)| {
        // The kernel does not keep the header length.
        offload.gso.header_len = expected.offload.gso.header_len;
        Sent { bytes, offload: Some(offload) }
    });
    let mut sent: Vec<Sent> = sent.collect();
    if expected.verdict == Verdict::Pass && sent.is_empty() {
        // A TUN device has nowhere to pass packets on to; that nothing came out is all that is seen.
        sent.push(Sent { bytes: step.input.clone(), offload: None });
    }
    Ok(Observation { verdict: None, sent, counters: Some(moved) })
}

/// Identifications of IPv6 fragments begin with a random number: the expected ones are put in their place, if
/// pieces of one packet have one of their own, and of several different ones.
pub fn same_fragment_ids(step: &CaseStep, seen: &mut Observation) {
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
fn fragment_id(packet: &[u8]) -> Option<Range<usize>> {
    (packet.len() >= 48 && packet[0] >> 4 == 6 && packet[6] == 44).then_some(44..48)
}

/// Brings the interface up, and a packet socket on it. The host's stack has no part in it: no router
/// solicitation, no duplicate address detection, no answer.
pub fn tap() -> Result<Tap, SubjectError> {
    let knob = format!("/proc/sys/net/ipv6/conf/{INTERFACE}/disable_ipv6");
    fs::write(knob, "1").map_err(|error| SubjectError::Io("disable_ipv6", error))?;
    sys::bring_up(INTERFACE, 65_535).map_err(|error| SubjectError::Io("bring_up", error))?;
    Tap::open(INTERFACE).map_err(|error| SubjectError::Io("packet socket", error))
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
pub fn namespace() -> Result<PathBuf, SubjectError> {
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
    // A process of this number may have been killed before it could remove its folder.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    folders.push(folder.clone());
    Ok(folder)
}
