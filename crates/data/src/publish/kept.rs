//! A kept result: what the numbers of a run are computed from, and no more. It is small enough for a repository.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{SOURCES, Scrub};
use crate::artefacts::{COSTS, read_environment, read_experiment, without_environment};
use crate::error::{DataError, Result};
use crate::files::write_file;
use crate::spec::Known;
use crate::trial::{Ledger, Trial};

/// Writes the kept result of a run's folder into `out`, without names of hosts and people: `spec.toml`,
/// `environment.json`, `trials.jsonl.gz`, and `program-costs.json` where the run has one.
///
/// Everything that reads a run's folder reads it. Time series, single replies, histograms, counters and command lines of
/// trials are left out: values, verdicts and limiters do not depend on them. Such a run cannot be resumed.
pub fn keep(dir: &Path, out: &Path, scrub: &mut Scrub) -> Result<()> {
    for name in SOURCES.into_iter().filter(|name| *name != "trials.jsonl") {
        let path = dir.join(name);
        match std::fs::read(&path) {
            Ok(bytes) => {
                let bytes = if name == "environment.json" { portable(dir)? } else { bytes };
                write_file(&out.join(name), &scrub.bytes(name, &bytes))?;
            }
            Err(error) if name == COSTS && error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(DataError::file(path)(error)),
        }
    }
    let experiment = read_experiment(dir)?;
    let whole = serde_json::to_vec(&small(Ledger::of(dir).read(&experiment)?));
    let damaged =
        |e: serde_json::Error| DataError::Artefact { path: out.into(), why: e.to_string() };
    let text = scrub.bytes("trials.jsonl", &whole.map_err(damaged)?);
    let _known = Known::of_experiment(&experiment);
    let trials: Vec<Trial> = serde_json::from_slice(&text).map_err(damaged)?;
    Ledger::of(out).pack(&trials)
}

/// The environment with programs that are no part of the system by their name alone, not by where somebody has built them.
fn portable(dir: &Path) -> Result<Vec<u8>> {
    let mut environment = read_environment(dir)?.ok_or_else(|| without_environment(dir))?;
    let named = environment.programs.into_iter().map(|(path, sum)| {
        let name = Path::new(&path).file_name().and_then(|name| name.to_str());
        (
            name.filter(|_| !path.starts_with("/usr/")).map_or_else(|| path.clone(), str::to_owned),
            sum,
        )
    });
    environment.programs = named.collect();
    let text = serde_json::to_vec_pretty(&environment);
    text.map_err(|e| DataError::Artefact { path: dir.into(), why: e.to_string() })
}

/// Trials without what no value, verdict or limiter is computed from.
fn small(mut trials: Vec<Trial>) -> Vec<Trial> {
    // Devices that lost nothing in the whole run limit nothing.
    let lost: BTreeSet<String> = trials
        .iter()
        .flat_map(|trial| &trial.links)
        .filter(|(_, counted)| counted.rx_lost + counted.tx_lost > 0)
        .map(|(device, _)| device.clone())
        .collect();
    // A key only says which trials are repetitions of one, and which comes first.
    let keys: BTreeSet<String> = trials.iter().map(|trial| trial.key.clone()).collect();
    let ranks: BTreeMap<&String, usize> = keys.iter().zip(0..).collect();
    for trial in &mut trials {
        let rank = ranks.get(&trial.key).copied().unwrap_or_default();
        trial.key = format!("{rank:05}");
        trial.replies.clear();
        trial.histogram.clear();
        trial.series.clear();
        trial.counters = None;
        trial.links.retain(|device, _| lost.contains(device));
        trial.config_hash.clear();
        trial.argv.clear();
        trial.mechanism_argv.clear();
        trial.elapsed_s = 0.0;
    }
    trials
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::artefacts;
    use crate::fixture;

    #[test]
    fn a_kept_result_has_every_number_of_the_run() {
        let dir = tempfile::tempdir().unwrap();
        let (run, out) = (dir.path().join("run"), dir.path().join("out"));
        for name in ["nat64", "goals", "pairs"] {
            fixture::folder(&run, name, 7, 1.0);
            keep(&run, &out, &mut Scrub::default()).unwrap();
            let [mut whole, kept] = [&run, &out].map(|dir| artefacts::read(dir).unwrap());
            assert_eq!(kept.trials.len(), whole.trials.len());
            // What single replies give beside a deployment's own value.
            for cell in &mut whole.results.cells {
                if cell.metric.has_replies() {
                    (cell.replies, cell.p95) = (None, None);
                }
            }
            let text = |results| serde_json::to_string(results).unwrap();
            assert_eq!(text(&kept.results), text(&whole.results), "{name}");
            std::fs::remove_dir_all(&run).unwrap();
        }
        let size = std::fs::metadata(out.join("trials.jsonl.gz")).unwrap().len();
        assert!(size < 30_000, "{size} octets");
        assert!(!out.join("trials.jsonl").exists() && !out.join("raw").exists());
    }

    #[test]
    fn repetitions_of_a_trial_stay_repetitions() {
        let of = |key: &str, lost: u64| {
            let mut trial = Trial::blank(crate::spec::Metric::UdpRateUp);
            trial.key = key.into();
            for (device, rx_lost) in [("host/a", lost), ("host/b", 0)] {
                let counted = crate::trial::LinkCounters { rx_lost, ..Default::default() };
                trial.links.insert(device.into(), counted);
            }
            trial
        };
        let kept = small(vec![of("y", 0), of("x", 3), of("y", 0)]);
        let keys: Vec<&str> = kept.iter().map(|trial| trial.key.as_str()).collect();
        assert_eq!(keys, ["00001", "00000", "00001"]);
        // A device that lost something is told of in every trial, since shares are of all packets.
        assert!(kept.iter().all(|trial| trial.links.keys().eq(["host/a"])));
    }
}
