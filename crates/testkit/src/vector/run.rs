//! Trying vectors on subjects.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use fordway_softwire::Softwire;
use fordway_xlat::counters::{Arrival, Direction};
use fordway_xlat::reassembly::{Limits, Reassembler};
use fordway_xlat::{
    ChecksumState, ConfigError, Counters, DropReason, GsoKind, HEADROOM, Offload, Packet, State,
    TAILROOM, Translator, Verdict,
};

use super::case::{Case, CaseError, CaseStep};
use super::format::CounterMap;
use super::report::Mismatch;
use super::softwire::{Assembled, assemble};
use crate::segment::segment_count;

/// Something that translates packets and can be held against vectors.
pub trait Subject {
    /// Its name in the `skip` table of vectors.
    fn name(&self) -> &'static str;

    /// Whether a vector can be tried on this subject at all.
    fn applies(&self, case: &Case) -> Applies {
        match case.vector.skip.get(self.name()) {
            Some(reason) => Applies::No(reason.clone()),
            None => Applies::Yes,
        }
    }

    /// Feeds the packets of a case, one after the other, and tells what came of each.
    fn observe(&mut self, case: &Case) -> Result<Vec<Observation>, SubjectError>;
}

/// Whether a vector applies to a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applies {
    /// It does.
    Yes,
    /// It does not, for this reason.
    No(String),
}

/// What came of a packet, as far as the subject shows it. `None`: the subject can't show this.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// The verdict.
    pub verdict: Option<Verdict>,
    /// The packets that left.
    pub sent: Vec<Sent>,
    /// The counters that moved, by how much.
    pub counters: Option<CounterMap>,
}

/// A packet that left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Its octets.
    pub bytes: Vec<u8>,
    /// Its offload state.
    pub offload: Option<Offload>,
}

/// Why a subject could not be tried.
#[derive(Debug, thiserror::Error)]
pub enum SubjectError {
    /// The configuration was refused.
    #[error("the configuration was refused: {0}")]
    Config(#[from] ConfigError),
    /// A system call failed.
    #[error("{0}: {1}")]
    Io(&'static str, io::Error),
    /// Something else.
    #[error("{0}")]
    Other(String),
}

/// Tries a case on a subject. `Ok(None)`: as demanded; `Ok(Some(_))`: the differences.
pub fn check(subject: &mut dyn Subject, case: &Case) -> Result<Option<Mismatch>, SubjectError> {
    let seen = subject.observe(case)?;
    Ok(Mismatch::find(case, &seen))
}

/// The core itself.
#[derive(Debug, Default)]
pub struct Core;

impl Subject for Core {
    fn name(&self) -> &'static str {
        "core"
    }

    fn observe(&mut self, case: &Case) -> Result<Vec<Observation>, SubjectError> {
        // The limiter's bucket is full some time after the origin.
        translate(case, &mut State::new(case.vector.identification), Duration::from_secs(10))
    }
}

/// What the core makes of the packets of a case, the first of which comes at `begin`. A `state` that goes from case to
/// case is that of a queue which has them all.
pub fn translate(
    case: &Case,
    state: &mut State,
    begin: Duration,
) -> Result<Vec<Observation>, SubjectError> {
    let machine = match &case.softwire {
        Some(softwire) => Machine::Softwire(softwire),
        None => Machine::Translator(Box::new(Translator::new(case.config.clone())?)),
    };
    let mut waiting = Reassembler::new(Limits::default());
    let mut seen = Vec::new();
    for step in &case.steps {
        let counters = Counters::default();
        let now = begin + step.at;
        let input = match machine.assemble(&mut waiting, step, now) {
            Assembled::Whole(input) => input,
            Assembled::Waits => {
                seen.push(observation(Verdict::Stored, Vec::new(), &counters));
                continue;
            }
            Assembled::Dropped(reason, fragments) => {
                (0..fragments).for_each(|_| counters.drop(reason));
                seen.push(observation(Verdict::Drop(reason), Vec::new(), &counters));
                continue;
            }
        };
        let mut buffer = vec![0xa5; HEADROOM + input.len() + TAILROOM];
        let range = HEADROOM..HEADROOM + input.len();
        buffer[range.clone()].copy_from_slice(&input);
        let arrival = Arrival {
            direction: Direction::of(&input),
            octets: input.len(),
            segments: segment_count(&input, &step.offload),
        };
        let mut packet = Packet::new(&mut buffer, range, step.offload);
        let verdict = match &machine {
            Machine::Translator(it) => it.translate(&mut packet, now, state, &mut ()),
            Machine::Softwire(it) => it.translate(&mut packet, now, state, &mut ()),
        };
        let sent = match verdict {
            Verdict::Forward => collect(&packet),
            Verdict::Reply(_) | Verdict::Pass | Verdict::Elsewhere(_) => {
                vec![Sent { bytes: packet.bytes().to_vec(), offload: Some(packet.offload) }]
            }
            Verdict::Drop(_) | Verdict::Stored => Vec::new(),
        };
        counters.record(arrival, verdict, sent.len());
        counters.suppress(state.take_suppressed());
        seen.push(observation(verdict, sent, &counters));
    }
    Ok(seen)
}

/// What a case is tried on.
enum Machine<'a> {
    Translator(Box<Translator>),
    Softwire(&'a Softwire),
}

impl Machine<'_> {
    /// The packet of a step, if nothing of it is missing.
    fn assemble(&self, waiting: &mut Reassembler, step: &CaseStep, now: Duration) -> Assembled {
        let contradicts = step.offload.gso.kind != GsoKind::None
            || matches!(step.offload.checksum, ChecksumState::Partial { .. });
        match self {
            Machine::Softwire(softwire) if !contradicts => {
                assemble(softwire, waiting, &step.input, now)
            }
            _ => Assembled::Whole(step.input.clone()),
        }
    }
}

fn observation(verdict: Verdict, sent: Vec<Sent>, counters: &Counters) -> Observation {
    Observation { verdict: Some(verdict), sent, counters: Some(counter_map(counters)) }
}

pub(super) fn collect(packet: &Packet<'_>) -> Vec<Sent> {
    packet
        .fragments()
        .map(|piece| Sent {
            bytes: [piece.head(), piece.body].concat(),
            offload: Some(packet.offload),
        })
        .collect()
}

/// All counters that are not zero, by name.
pub fn counter_map(counters: &Counters) -> CounterMap {
    let mut map = CounterMap::new();
    for direction in Direction::ALL {
        let (label, totals) = (direction.label(), counters.direction(direction));
        map.insert(format!("{label}.packets"), totals.packets);
        map.insert(format!("{label}.segments"), totals.segments);
        map.insert(format!("{label}.octets"), totals.octets);
        map.insert(format!("{label}.fragments"), totals.fragments);
        map.insert(format!("icmp_errors.{label}"), counters.icmp_errors(direction));
    }
    for reason in DropReason::ALL {
        map.insert(format!("drop.{}", reason.label()), counters.dropped(*reason));
    }
    map.insert("suppressed".into(), counters.icmp_errors_suppressed());
    map.insert("passed".into(), counters.passed());
    map.insert("handed_over".into(), counters.handed_over().packets);
    map.retain(|_, value| *value != 0);
    map
}

/// The folder of the committed vectors.
pub fn vectors_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors")
}

/// Every vector of one packet or of several without state, sorted: name (path without `.toml`, with `/`)
/// and path.
pub fn walk(dir: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let (_, vectors) = walk_all(dir)?;
    Ok(vectors)
}

/// Every [sequence](super::sequence), likewise.
pub fn walk_sequences(dir: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let (sequences, _) = walk_all(dir)?;
    Ok(sequences)
}

type Files = Vec<(String, PathBuf)>;

/// Sequences, and other vectors.
fn walk_all(dir: &Path) -> io::Result<(Files, Files)> {
    let mut found = Vec::new();
    let mut folders = vec![dir.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "toml") {
                let name = path.strip_prefix(dir).unwrap_or(&path).with_extension("");
                found.push((name.to_string_lossy().replace('\\', "/"), path));
            }
        }
    }
    found.sort();
    Ok(found.into_iter().partition(|(_, path)| {
        fs::read_to_string(path).is_ok_and(|text| text.lines().any(|line| line == "[nat64]"))
    }))
}

/// Reads and builds one vector file.
pub fn load(name: &str, path: &Path) -> Result<Case, CaseError> {
    let text = fs::read_to_string(path).unwrap_or_default();
    Case::parse(name, &text)
}
