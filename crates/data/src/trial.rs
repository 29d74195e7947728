//! The record of one trial, and the append-only file that holds them.

mod checks;
mod counters;
mod stateful;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::{DataError, Result};
use crate::files::write_file;
use crate::spec::{Experiment, Family, Known, Metric, Point};

pub(crate) use checks::GATE;
pub use checks::{Check, NAMES, WAYS};
pub use counters::{CpuUse, LinkCounters, Snapshot, difference};
pub use stateful::Stateful;

/// The mechanism name of a calibration of the generator, of either family; runs of method 1 have only this one.
pub const CALIBRATION: &str = "calibration";
/// A trial during which other programs kept this many cores busy is flagged.
pub const FLAG_OTHER: f64 = 0.3;
/// How the flag for other programs begins.
pub const OTHER_WORK: &str = "other programs kept";

/// The mechanism name of the generator's calibration over a family: `calibration-v4`, `calibration-v6`.
pub fn calibration(family: Family) -> String {
    format!("{CALIBRATION}-{}", family.name())
}

/// Whether a trial calibrates the generator, and for which family; `Some(None)`: for both.
pub fn calibrates(mechanism: &str) -> Option<Option<Family>> {
    let of = |family: &Family| mechanism == calibration(*family);
    match [Family::V4, Family::V6].into_iter().find(of) {
        Some(family) => Some(Some(family)),
        None => (mechanism == CALIBRATION).then_some(None),
    }
}

/// A factor setting under which blocks are run.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct Condition {
    /// Clock source in use.
    pub clocksource: String,
    /// Length of a TCP flow.
    pub duration_s: u64,
    /// Octets that end a TCP flow in place of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow_octets: Option<u64>,
    /// Whether the lab's veth devices keep their offloads.
    pub offloads: bool,
    /// Names that are asked for, where that is a factor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shares: Option<Shares>,
}

/// Names that a DNS64 server is asked for, per cent.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
pub struct Shares {
    /// Names whose answers it has in its cache.
    pub cached: u8,
    /// Names with an AAAA record of their own.
    pub native: u8,
}

impl Condition {
    /// One line for people.
    pub fn label(&self) -> String {
        let offloads = if self.offloads { "offloads on" } else { "offloads off" };
        let names = self.shares.map_or_else(String::new, |shares| {
            format!(", {} % cached, {} % native AAAA", shares.cached, shares.native)
        });
        let flows = match self.flow_octets {
            Some(octets) => format!("flows of {octets} octets"),
            None => format!("{} s flows", self.duration_s),
        };
        format!("clock {}, {flows}, {offloads}{names}", self.clocksource)
    }
}

/// One trial: one metric of one deployment.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Trial {
    /// SHA-256 of what defines the trial; `resume` skips a valid trial with the same key.
    pub key: String,
    /// Experiment.
    pub experiment: String,
    /// Seed of the run.
    pub seed: u64,
    /// Block, from 1; 0 for the full gate.
    pub block: u32,
    /// Place of its deployment in the block's order, from 1.
    pub order: u32,
    /// Place of its load in the order of the loads of the deployment, from 1; 0: not recorded, or the only one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub place: u32,
    /// Factor setting.
    pub condition: Condition,
    /// Arm of the experiment.
    pub mechanism: String,
    /// Program.
    pub implementation: String,
    /// Its version.
    pub version: String,
    /// SHA-256 of its configuration.
    pub config_hash: String,
    /// What was measured.
    pub metric: Metric,
    /// Setting of the load, where it is run at several on one deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub point: Option<Point>,
    /// Its unit.
    pub unit: String,
    /// `up`, `down` or `both`.
    pub direction: String,
    /// Offered load, in the metric's unit or packets per second; `null`: as much as it takes.
    pub offered: Option<f64>,
    /// The rate that the load was held under, in the unit of rates of its kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap: Option<f64>,
    /// Parameters of a test of RFC 9693.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stateful: Option<Stateful>,
    /// The value of this deployment.
    pub value: Option<f64>,
    /// Raw: every reply in ms, for RTT.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replies: Vec<f64>,
    /// Raw: round-trip times in ns and how often each came, for datagrams at a steady rate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub histogram: Vec<(u64, u64)>,
    /// Packets of the load that were sent, or due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<u64>,
    /// Of them, or during the measured time, those that arrived or were answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrived: Option<u64>,
    /// Raw: end of interval in s and rate, for throughput.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<(f64, f64)>,
    /// Payload octets that the generator counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generator_bytes: Option<u64>,
    /// Payload octets that the generator gave to its socket, those under way at the end included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generator_sent: Option<u64>,
    /// TCP segments sent again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmits: Option<u64>,
    /// Share of the echo requests without a reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<f64>,
    /// Rules of exclusion that it falls under.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<String>,
    /// Path MTU as TCP saw it at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_mtu: Option<u32>,
    /// Processor use of the generator's two processes, per cent of one core: sender, receiver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generator_cpu: Option<(f64, f64)>,
    /// Share of the sender's processor that was busy, whoever it worked for, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender_processor: Option<f64>,
    /// How often the sender found its window full, per packet that it sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender_waits: Option<f64>,
    /// Device counters during the trial, by `role/device`.
    #[serde(default, skip_serializing_if = "Snapshot::is_empty")]
    pub links: Snapshot,
    /// The mechanism's own counters before and after, when it has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<(serde_json::Value, serde_json::Value)>,
    /// Processor use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuUse>,
    /// Outcome of the correctness probes, for the gate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
    /// Which ways the mechanism opens, where the experiment asks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ways: Vec<Check>,
    /// Whether the trial counts, as a value or as a failure of the mechanism.
    pub valid: bool,
    /// Why not: what the workbench itself could not do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub invalid: Vec<String>,
    /// What the mechanism failed to do. Such a trial counts, and is worse than every value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<String>,
    /// What is worth knowing of a valid trial.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
    /// What the mechanism said it runs, when it can be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// Command line of the mechanism.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mechanism_argv: Vec<String>,
    /// Command line of the measurement.
    pub argv: Vec<String>,
    /// Its exit status.
    pub exit_status: Option<i32>,
    /// When it began (RFC 3339).
    pub started: String,
    /// How long it took, with deployment.
    pub elapsed_s: f64,
}

/// Why there is no value of a metric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lack {
    /// It could not be measured.
    Unmeasured(String),
    /// The mechanism did not do what the metric is about.
    Failed(String),
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Trial {
    /// A trial with nothing measured yet.
    pub fn blank(metric: Metric) -> Self {
        Self {
            key: String::new(),
            experiment: String::new(),
            seed: 0,
            block: 0,
            order: 0,
            place: 0,
            condition: Condition {
                clocksource: String::new(),
                duration_s: 0,
                flow_octets: None,
                offloads: true,
                shares: None,
            },
            mechanism: String::new(),
            implementation: String::new(),
            version: String::new(),
            config_hash: String::new(),
            metric,
            point: None,
            unit: metric.unit().into(),
            direction: metric.direction().into(),
            offered: None,
            cap: None,
            stateful: None,
            value: None,
            replies: Vec::new(),
            histogram: Vec::new(),
            sent: None,
            arrived: None,
            series: Vec::new(),
            generator_bytes: None,
            generator_sent: None,
            retransmits: None,
            lost: None,
            excluded: Vec::new(),
            path_mtu: None,
            generator_cpu: None,
            sender_processor: None,
            sender_waits: None,
            links: Default::default(),
            counters: None,
            cpu: None,
            checks: Vec::new(),
            ways: Vec::new(),
            valid: false,
            invalid: Vec::new(),
            failed: Vec::new(),
            flags: Vec::new(),
            engine: None,
            mechanism_argv: Vec::new(),
            argv: Vec::new(),
            exit_status: None,
            started: String::new(),
            elapsed_s: 0.0,
        }
    }

    /// Its value, unless the trial does not count or the mechanism failed.
    pub fn counted(&self) -> Option<f64> {
        self.value.filter(|_| self.valid && self.failed.is_empty())
    }
}

/// What a trial's key is made of.
#[derive(Debug, Clone, Copy)]
pub struct KeyParts<'a> {
    /// SHA-256 of the experiment and the run's choices that change results.
    pub spec_hash: &'a str,
    /// Arm.
    pub mechanism: &'a str,
    /// Version of its program.
    pub version: &'a str,
    /// Factor setting.
    pub condition: &'a Condition,
    /// Block.
    pub block: u32,
    /// Seed.
    pub seed: u64,
    /// Metric.
    pub metric: Metric,
    /// Setting of the load.
    pub point: Option<&'a Point>,
}

/// The key of a trial.
pub fn key(parts: KeyParts<'_>) -> String {
    let mut text = format!(
        "{}\n{}\n{}\n{}\n{}\n{}\n{}",
        parts.spec_hash,
        parts.mechanism,
        parts.version,
        parts.condition.label(),
        parts.block,
        parts.seed,
        parts.metric.name()
    );
    if let Some(point) = parts.point {
        text.push('\n');
        text.push_str(&point.label());
    }
    hash(text.as_bytes())
}

/// SHA-256 in hexadecimal.
pub fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// Ending of the file of a kept result's trials.
const PACKED: &str = "jsonl.gz";

/// The file of trials of a run.
#[derive(Debug, Clone)]
pub struct Ledger {
    path: PathBuf,
}

impl Ledger {
    /// The ledger of a run's folder.
    pub fn of(dir: &Path) -> Self {
        Self { path: dir.join("trials.jsonl") }
    }

    /// Appends one trial and puts it on the disk.
    pub fn append(&self, trial: &Trial) -> Result<()> {
        let fail = DataError::file(&self.path);
        let mut line = serde_json::to_vec(trial)
            .map_err(|e| DataError::Artefact { path: self.path.clone(), why: e.to_string() })?;
        line.push(b'\n');
        let write = || -> std::io::Result<()> {
            let mut file = std::fs::File::options().create(true).append(true).open(&self.path)?;
            file.write_all(&line)?;
            file.sync_data()
        };
        write().map_err(fail)
    }

    /// Reads one line of a run of this experiment, as the JSON that it is.
    pub fn read_line(line: &[u8], experiment: &Experiment) -> serde_json::Result<Trial> {
        let _known = Known::of_experiment(experiment);
        serde_json::from_slice(line)
    }

    /// Reads all trials of a run of this experiment. A last line cut short by a crash is left out.
    pub fn read(&self, experiment: &Experiment) -> Result<Vec<Trial>> {
        let _known = Known::of_experiment(experiment);
        let text = match std::fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => self.unpacked()?,
            Err(error) => return Err(DataError::file(&self.path)(error)),
        };
        let mut trials = Vec::new();
        for (number, line) in text.split_inclusive('\n').enumerate() {
            match serde_json::from_str(line) {
                Ok(trial) => trials.push(trial),
                Err(_) if !line.ends_with('\n') => {}
                Err(error) => {
                    return Err(DataError::Artefact {
                        path: self.path.clone(),
                        why: format!(
                            "line {} is damaged ({error}); without that line, `fordway-lab resume` \
                             measures again what it held",
                            number + 1
                        ),
                    });
                }
            }
        }
        Ok(trials)
    }

    /// The trials of a kept result, which are compressed; nothing where there are none.
    fn unpacked(&self) -> Result<String> {
        let path = self.path.with_extension(PACKED);
        let mut text = String::new();
        match std::fs::File::open(&path) {
            Ok(file) => {
                let mut packed = flate2::read::GzDecoder::new(file);
                packed.read_to_string(&mut text).map_err(DataError::file(&path))?;
                Ok(text)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(text),
            Err(error) => Err(DataError::file(path)(error)),
        }
    }

    /// Writes all trials of a kept result, compressed. The same trials give the same octets.
    pub(crate) fn pack(&self, trials: &[Trial]) -> Result<()> {
        let path = self.path.with_extension(PACKED);
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        for trial in trials {
            let line = serde_json::to_string(trial)
                .map_err(|e| DataError::Artefact { path: path.clone(), why: e.to_string() })?;
            writeln!(packed, "{line}").map_err(DataError::file(&path))?;
        }
        let octets = packed.finish().map_err(DataError::file(&path))?;
        write_file(&path, &octets)
    }

    /// Removes a last line that a crash cut short, so that the next append starts a new one.
    pub fn mend(&self) -> Result<()> {
        let Ok(bytes) = std::fs::read(&self.path) else { return Ok(()) };
        let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        if whole < bytes.len() {
            std::fs::write(&self.path, &bytes[..whole]).map_err(DataError::file(&self.path))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
