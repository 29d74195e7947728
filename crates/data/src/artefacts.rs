//! The files of a run: read what was measured, write what follows from it.

use std::fmt::Write;
use std::path::Path;

use crate::analysis::{Results, analyse};
use crate::costs::Costs;
use crate::environment::Environment;
use crate::error::{DataError, Result};
use crate::files::write_file;
use crate::spec::{Experiment, METHOD, Point};
use crate::trial::{Ledger, Trial};

/// What the gateway's programs cost, in the folder of a run that asked.
pub const COSTS: &str = "program-costs.json";

/// A run's folder, read.
#[derive(Debug)]
pub struct Run {
    /// The experiment with the run's choices.
    pub experiment: Experiment,
    /// Every trial in the order of the ledger.
    pub trials: Vec<Trial>,
    /// What they show.
    pub results: Results,
}

/// The text of a run's `spec.toml`. A folder without one is not a run's.
pub(crate) fn read_spec(dir: &Path) -> Result<String> {
    let spec = dir.join("spec.toml");
    std::fs::read_to_string(&spec).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => DataError::Usage(format!(
            "{} is not the folder of a run (it has no spec.toml); name the folder that `fordway-lab \
             run` has written",
            dir.display()
        )),
        _ => DataError::file(&spec)(error),
    })
}

/// The experiment of a run's folder, with the choices of the run.
pub fn read_experiment(dir: &Path) -> Result<Experiment> {
    let damaged = |why: DataError| DataError::Artefact {
        path: dir.join("spec.toml"),
        why: format!("damaged, so that this run can be neither continued nor reported: {why}"),
    };
    let experiment = Experiment::read("spec.toml", &read_spec(dir)?).map_err(damaged)?;
    let method = experiment.run().map_err(damaged)?.method;
    if method > METHOD {
        let by = read_environment(dir)?.and_then(|e| e.versions.get("fordway-lab").cloned());
        return Err(DataError::Artefact {
            path: dir.join("spec.toml"),
            why: format!(
                "measured by method {method} of fordway-lab {}; this version knows methods up to {METHOD}",
                by.unwrap_or_else(|| "of an unknown version".into())
            ),
        });
    }
    Ok(experiment)
}

/// The environment in which a run began; `None` before it was written.
pub fn read_environment(dir: &Path) -> Result<Option<Environment>> {
    let path = dir.join("environment.json");
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(DataError::file(path)(error)),
    };
    serde_json::from_slice(&bytes).map(Some).map_err(|e| DataError::Artefact {
        path,
        why: format!("damaged, so that nobody knows what the trials were measured on: {e}"),
    })
}

/// Reads a run's folder and analyses it.
pub fn read(dir: &Path) -> Result<Run> {
    let experiment = read_experiment(dir)?;
    let trials = Ledger::of(dir).read(&experiment)?;
    if trials.is_empty() {
        return Err(DataError::Artefact {
            path: dir.join("trials.jsonl"),
            why: "no trial yet: run `fordway-lab resume` on this folder".into(),
        });
    }
    let environment = read_environment(dir)?.ok_or_else(|| without_environment(dir))?;
    let mut results = analyse(&experiment, environment, &trials)?;
    results.program_costs = read_costs(dir)?;
    Ok(Run { experiment, trials, results })
}

/// The error of a folder with trials of which nobody knows what they were measured on.
pub fn without_environment(dir: &Path) -> DataError {
    DataError::Artefact {
        path: dir.join("environment.json"),
        why: "missing, so that nobody knows what the trials were measured on; start a new run"
            .into(),
    }
}

fn read_costs(dir: &Path) -> Result<Option<Costs>> {
    let path = dir.join(COSTS);
    let Ok(bytes) = std::fs::read(&path) else { return Ok(None) };
    let bad = |e: serde_json::Error| DataError::Artefact { path, why: e.to_string() };
    serde_json::from_slice(&bytes).map(Some).map_err(bad)
}

/// Writes `results.json` and `results.csv`.
pub fn write(dir: &Path, results: &Results) -> Result<()> {
    let path = dir.join("results.json");
    let json = serde_json::to_vec_pretty(results)
        .map_err(|e| DataError::Artefact { path: path.clone(), why: e.to_string() })?;
    write_file(&path, &json)?;
    write_file(&dir.join("results.csv"), csv(results).as_bytes())
}

const COLUMNS: &str = "mechanism,implementation,hops,condition,metric,point,unit,n,min,mean,median,max,\
    stddev,p95,interval_lo,interval_hi,interval_level,base,ratio,ratio_lo,ratio_hi,p,verdict,limiter,at_least,valid,\
    broken,discarded";

/// One line per cell (RFC 4180).
fn csv(results: &Results) -> String {
    let mut text = format!("{COLUMNS}\r\n");
    for cell in &results.cells {
        let vs = cell.vs_baseline.as_ref();
        let number = |v: Option<f64>| v.map(|v| v.to_string()).unwrap_or_default();
        let fields = [
            cell.mechanism.clone(),
            cell.implementation.clone(),
            cell.hops.to_string(),
            cell.condition.label(),
            cell.metric.name().into(),
            cell.point.as_ref().map(Point::label).unwrap_or_default(),
            cell.unit.clone(),
            cell.n.to_string(),
            number(cell.min),
            number(cell.mean),
            number(cell.median),
            number(cell.max),
            number(cell.stddev),
            number(cell.p95),
            number(cell.interval.map(|i| i.low)),
            number(cell.interval.map(|i| i.high)),
            number(cell.interval.map(|i| i.level)),
            vs.map(|v| v.base.clone()).unwrap_or_default(),
            number(vs.map(|v| v.ratio)),
            number(vs.and_then(|v| v.ci95).map(|c| c[0])),
            number(vs.and_then(|v| v.ci95).map(|c| c[1])),
            number(vs.and_then(|v| v.p)),
            vs.map(|v| v.verdict.word().to_owned()).unwrap_or_default(),
            cell.limiter.clone(),
            cell.at_least.to_string(),
            cell.valid.to_string(),
            cell.broken.clone().unwrap_or_default(),
            cell.discarded.to_string(),
        ];
        let quoted: Vec<String> = fields.iter().map(|f| quote(f)).collect();
        // Writing to a String cannot fail.
        let _ = write!(text, "{}\r\n", quoted.join(","));
    }
    text
}

fn quote(field: &str) -> String {
    if field.contains([',', '"', '\r', '\n']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_with_commas_and_quotes_are_quoted() {
        assert_eq!(quote("plain"), "plain");
        assert_eq!(quote("a, \"b\""), "\"a, \"\"b\"\"\"");
    }
}
