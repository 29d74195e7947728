//! What the studies reported.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{DataError, Result};
use crate::spec::{Axis, Metric};

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
    #[serde(default)]
    pub(crate) throughput: Vec<Throughput>,
    /// The RTT table.
    #[serde(default)]
    pub(crate) rtt: Vec<Rtt>,
    /// Its tables and findings, as printed.
    #[serde(default, rename = "table")]
    pub(crate) tables: Vec<Printed>,
    /// Mechanisms in the order that it found, quantity by quantity.
    #[serde(default, rename = "ordering")]
    pub(crate) orderings: Vec<Ordering>,
    /// Its tests of averages.
    #[serde(default, rename = "test")]
    pub(crate) tests: Vec<Test>,
}

impl Study {
    /// What stands above its tables: it is a study that is repeated here, or figures of others that are not.
    pub(crate) fn heading(&self) -> &'static str {
        let is_printed_alone = self.throughput.is_empty()
            && self.rtt.is_empty()
            && self.orderings.is_empty()
            && self.tests.is_empty();
        if is_printed_alone { "Published elsewhere" } else { "The study" }
    }
}

/// A table as the study prints it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Printed {
    /// Its heading.
    pub(crate) title: String,
    /// Names of the columns.
    pub(crate) head: Vec<String>,
    /// What stands in it.
    pub(crate) rows: Vec<Vec<String>>,
}

/// Mechanisms in the order of one quantity.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ordering {
    /// What is ordered.
    pub(crate) title: String,
    /// The quantity of ours that it corresponds to.
    pub(crate) metric: Metric,
    /// `higher` or `lower`: for readers; a test holds it against the metric.
    pub(crate) better: String,
    /// Levels of the load; without them all points are averaged.
    #[serde(default)]
    pub(crate) point: BTreeMap<Axis, u64>,
    /// In any order.
    pub(crate) mechanisms: Vec<Placed>,
}

/// One mechanism in an order.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Placed {
    /// The arm of ours that it corresponds to.
    pub(crate) mechanism: String,
    /// Its name in the study.
    pub(crate) label: String,
    /// What the study reports, as printed, with its unit.
    pub(crate) value: String,
    /// 1 is the best; those that the study does not tell apart have the same.
    pub(crate) place: u32,
}

/// Two averages and a test.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Test {
    /// The quantity of ours that it corresponds to.
    pub(crate) metric: Metric,
    /// The one arm of ours.
    pub(crate) of: String,
    /// The other.
    pub(crate) minus: String,
    /// Their averages and the unit, as printed.
    pub(crate) averages: String,
    /// p as printed; empty where there is none.
    #[serde(default)]
    pub(crate) p: String,
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
        toml::from_str(TEXT).map_err(|e| DataError::Usage(format!("published numbers: {e}")))?;
    let found = file.study.into_iter().find(|s| s.name == name);
    found.ok_or_else(|| DataError::Usage(format!("no published numbers are called `{name}`")))
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

    #[test]
    fn every_row_of_a_table_has_all_its_columns() {
        let file: File = toml::from_str(TEXT).unwrap();
        for study in &file.study {
            for table in &study.tables {
                assert!(!table.rows.is_empty(), "{}", table.title);
                for row in &table.rows {
                    assert_eq!(row.len(), table.head.len(), "{}: {row:?}", table.title);
                }
            }
        }
        // What others have published stands beside both standards' results, and each row names its source.
        for name in ["rfc8219", "rfc9693"] {
            let experiment = Experiment::find(name).unwrap();
            let elsewhere = study(experiment.published.as_deref().unwrap()).unwrap();
            for table in &elsewhere.tables {
                assert_eq!(table.head.last().map(String::as_str), Some("Source"));
                assert!(table.rows.iter().all(|row| row.last().is_some_and(|it| it.len() > 10)));
            }
        }
    }
}
