//! What the studies reported.

use serde::{Deserialize, Serialize};

use crate::error::{LabError, Result};

const TEXT: &str = include_str!("../../experiments/published.toml");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    study: Vec<Study>,
}

/// One study's numbers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Study {
    /// Name in the experiment file.
    pub(crate) name: String,
    /// Where the numbers are from.
    pub(crate) citation: String,
    /// Mean throughputs.
    pub(crate) throughput: Vec<Throughput>,
    /// The RTT table.
    pub(crate) rtt: Vec<Rtt>,
}

/// A reported throughput.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Throughput {
    /// Machine and clock source.
    pub(crate) environment: String,
    /// The arm of ours that it corresponds to.
    pub(crate) mechanism: String,
    /// Name for people.
    pub(crate) label: String,
    /// Gbit/s.
    pub(crate) gbit_s: f64,
}

/// A row of the RTT table, ms.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rtt {
    /// Environment.
    pub(crate) env: String,
    /// `v4` or `v6`.
    pub(crate) ip: String,
    /// Translator whose namespaces were used.
    pub(crate) tool: String,
    /// `CLAT` or `Baseline`.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// Least.
    pub(crate) min: f64,
    /// Mean.
    pub(crate) avg: f64,
    /// Greatest.
    pub(crate) max: f64,
    /// Standard deviation.
    pub(crate) sd: f64,
    /// 95th percentile.
    pub(crate) p95: f64,
    /// Replies.
    pub(crate) n: u32,
}

/// The study of this name.
pub(crate) fn study(name: &str) -> Result<Study> {
    let file: File =
        toml::from_str(TEXT).map_err(|e| LabError::Usage(format!("published numbers: {e}")))?;
    let found = file.study.into_iter().find(|s| s.name == name);
    found.ok_or_else(|| LabError::Usage(format!("no published numbers are called `{name}`")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Experiment;

    #[test]
    fn reported_numbers_belong_to_arms_of_the_experiment() {
        let experiment = Experiment::find("clat-vs-dual-stack").unwrap();
        let study = study(experiment.published.as_deref().unwrap()).unwrap();
        assert_eq!(study.rtt.len(), 16);
        for row in &study.throughput {
            experiment.mechanism(&row.mechanism).unwrap();
        }
        for row in &study.rtt {
            assert!(row.min <= row.avg && row.avg <= row.max && row.p95 <= row.max);
        }
    }
}
