//! The files of a recording: `spec.toml`, `environment.json`, and `samples.jsonl`, to which lines are only ever added.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use fordway_data::environment::Environment;
use fordway_data::error::DataError;
use fordway_data::files::write_file;
use serde::{Deserialize, Serialize};

use crate::error::{LabError, Result};

/// What is recorded, and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Spec {
    /// When it began (RFC 3339).
    pub(crate) started: String,
    /// What is watched, for people.
    pub(crate) watched: String,
    /// Seconds between two samples.
    pub(crate) every_s: f64,
    /// Seconds that were asked for; without, until it is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) for_s: Option<f64>,
    /// Whom the echo requests go to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) targets: Vec<String>,
    /// What the source does not have, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) absent: Vec<String>,
    /// The command line that repeats it; without a community or a password.
    pub(crate) replay: String,
}

/// One sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// Seconds since the recording began.
    pub(crate) at_s: f64,
    /// The same as a date (RFC 3339).
    pub(crate) time: String,
    /// Value by series.
    pub(crate) values: BTreeMap<String, f64>,
    /// Series without a value, and why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) missing: BTreeMap<String, String>,
}

/// A recording that goes on.
#[derive(Debug)]
pub(crate) struct Writer {
    path: PathBuf,
    file: File,
}

impl Writer {
    /// Begins a recording in a folder that is new or empty.
    pub(crate) fn begin(dir: &Path, spec: &Spec, environment: &Environment) -> Result<Self> {
        let text = toml::to_string(spec).map_err(|e| LabError::Usage(e.to_string()))?;
        write_file(&dir.join("spec.toml"), text.as_bytes())?;
        let text = serde_json::to_vec_pretty(environment).unwrap_or_default();
        write_file(&dir.join("environment.json"), &text)?;
        let path = dir.join("samples.jsonl");
        let file = File::options().create(true).append(true).open(&path);
        let file = file.map_err(LabError::file(&path))?;
        Ok(Self { path, file })
    }

    /// Adds a sample and puts it on the disk.
    pub(crate) fn append(&mut self, sample: &Sample) -> Result<()> {
        let mut line = serde_json::to_vec(sample)
            .map_err(|e| DataError::Artefact { path: self.path.clone(), why: e.to_string() })?;
        line.push(b'\n');
        let written = self.file.write_all(&line).and_then(|()| self.file.sync_data());
        written.map_err(LabError::file(&self.path))
    }
}

/// A recording, read.
#[derive(Debug, Clone)]
pub(crate) struct Recording {
    /// Its folder's own name.
    pub(crate) name: String,
    /// What was recorded.
    pub(crate) spec: Spec,
    /// The machine that recorded.
    pub(crate) environment: Environment,
    /// Every sample, in order.
    pub(crate) samples: Vec<Sample>,
}

impl Recording {
    /// Reads a folder. A last line cut short by a crash is left out.
    pub(crate) fn read(dir: &Path) -> Result<Self> {
        let path = dir.join("samples.jsonl");
        if !path.exists() {
            return Err(LabError::Usage(format!(
                "{} is not the folder of a recording (it has no samples.jsonl); name the folder that \
                 `fordway-lab monitor` has written",
                dir.display()
            )));
        }
        let text = |file: &str| {
            let path = dir.join(file);
            std::fs::read_to_string(&path).map_err(LabError::file(path))
        };
        let damaged = |file: &str, why: String| -> LabError {
            DataError::Artefact { path: dir.join(file), why }.into()
        };
        let spec: Spec =
            toml::from_str(&text("spec.toml")?).map_err(|e| damaged("spec.toml", e.to_string()))?;
        let environment = serde_json::from_str(&text("environment.json")?)
            .map_err(|e| damaged("environment.json", e.to_string()))?;
        let mut samples: Vec<Sample> = Vec::new();
        for (number, line) in text("samples.jsonl")?.split_inclusive('\n').enumerate() {
            match serde_json::from_str(line) {
                Ok(sample) => samples.push(sample),
                Err(_) if !line.ends_with('\n') => {}
                Err(error) => {
                    let why = format!("line {} is damaged: {error}", number + 1);
                    return Err(damaged("samples.jsonl", why));
                }
            }
        }
        if samples.is_empty() {
            return Err(damaged("samples.jsonl", "no sample yet: nothing to report".into()));
        }
        let name = dir.canonicalize().unwrap_or_else(|_| dir.to_path_buf());
        let name = name.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
        Ok(Self { name, spec, environment, samples })
    }

    /// Names of all series that have a value at any time, in order.
    pub(crate) fn series(&self) -> Vec<&str> {
        let mut names: Vec<&str> =
            self.samples.iter().flat_map(|s| s.values.keys().map(String::as_str)).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Times and values of one series.
    pub(crate) fn points(&self, series: &str) -> Vec<(f64, f64)> {
        let of = |s: &Sample| Some((s.at_s, *s.values.get(series)?));
        self.samples.iter().filter_map(of).collect()
    }

    /// Values of one series.
    pub(crate) fn values(&self, series: &str) -> Vec<f64> {
        self.points(series).into_iter().map(|p| p.1).collect()
    }

    /// Samples without a value of a series, and the reason that came most often.
    pub(crate) fn gaps(&self, series: &str) -> (usize, Option<&str>) {
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        for why in self.samples.iter().filter_map(|s| s.missing.get(series)) {
            *reasons.entry(why).or_default() += 1;
        }
        let most = reasons.iter().max_by_key(|(_, count)| **count).map(|(why, _)| *why);
        (reasons.values().sum(), most)
    }

    /// Series that never had a value, and why.
    pub(crate) fn never(&self) -> Vec<(String, String)> {
        let have = self.series();
        let mut all: Vec<(String, String)> = self
            .samples
            .iter()
            .flat_map(|s| s.missing.iter())
            .filter(|(name, _)| !have.contains(&name.as_str()))
            .map(|(name, why)| (name.clone(), why.clone()))
            .collect();
        all.sort();
        all.dedup_by(|a, b| a.0 == b.0);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_recording_is_refused_with_what_to_name() {
        let dir = tempfile::tempdir().unwrap();
        let said = Recording::read(dir.path()).unwrap_err().to_string();
        assert!(
            said.contains("no samples.jsonl") && said.contains("fordway-lab monitor"),
            "{said}"
        );
    }
}
