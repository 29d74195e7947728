//! Tables of goals: what a run is held against.

use serde::{Deserialize, Serialize};

use super::Metric;
use crate::error::{DataError, Result};

/// The tables of goals, by the names that experiments know them by.
const TABLES: [(&str, &str); 2] = [
    ("goals", include_str!("../../experiments/goals-table.toml")),
    ("mechanisms-goals", include_str!("../../experiments/mechanisms-goals-table.toml")),
];

/// The names of the tables.
pub(crate) fn names() -> Vec<&'static str> {
    TABLES.iter().map(|(name, _)| *name).collect()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    pub(crate) goal: Vec<Goal>,
}

/// How a goal's number is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Measure {
    /// Mechanism / base: the median over blocks.
    Ratio,
    /// Mechanism / base - 1.
    AddedShare,
    /// (Mechanism - zero) / (base - zero).
    AddedRatio,
    /// The mechanism's own value.
    Value,
}

/// Which side of the goal is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Want {
    /// The value or more.
    AtLeast,
    /// The value or less.
    AtMost,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Goal {
    pub(crate) id: String,
    pub(crate) text: String,
    pub(crate) measure: Measure,
    pub(crate) metric: Metric,
    pub(crate) mechanism: String,
    #[serde(default)]
    pub(crate) base: Option<String>,
    /// The untranslated path: subtracted for added ratios, named as the bound for ratios.
    #[serde(default)]
    pub(crate) zero: Option<String>,
    pub(crate) want: Want,
    pub(crate) value: f64,
    pub(crate) unit: String,
}

impl Table {
    /// The table of this name.
    pub(crate) fn find(name: &str) -> Result<Self> {
        let text = TABLES.iter().find(|(own, _)| *own == name).map(|(_, text)| *text);
        let text =
            text.ok_or_else(|| DataError::Usage(format!("no table of goals is called `{name}`")))?;
        toml::from_str(text).map_err(|e| DataError::Usage(format!("table of goals {name}: {e}")))
    }
}
