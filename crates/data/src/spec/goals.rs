//! Tables of goals: what a run is held against.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Metric;
use crate::error::{DataError, Result};

/// The tables of goals, by the names that experiments know them by.
const TABLES: [(&str, &str); 3] = [
    ("goals", include_str!("../../experiments/goals-table.toml")),
    ("mechanisms-goals", include_str!("../../experiments/mechanisms-goals-table.toml")),
    ("replication", include_str!("../../experiments/replication-goals-table.toml")),
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Mechanism / base: the median over blocks.
    Ratio,
    /// Mechanism / base - 1.
    AddedShare,
    /// (Mechanism - zero) / (base - zero).
    AddedRatio,
    /// The mechanism's own value.
    Value,
}

impl Measure {
    /// Whether it is made of the base's values, too.
    pub(crate) fn has_base(self) -> bool {
        self != Self::Value
    }
}

/// Which side of the goal is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Want {
    /// The value or more.
    AtLeast,
    /// The value or less.
    AtMost,
}

/// A goal: what a mechanism should reach, by itself or in comparison with another.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Goal {
    /// Short name.
    #[schemars(regex(pattern = r"^[a-z0-9][a-z0-9._-]*$"))]
    pub id: String,
    /// The goal in words.
    pub text: String,
    /// How its number is made; without it, the ratio to the base, and where there is no base, the mechanism's own value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measure: Option<Measure>,
    /// What is measured.
    pub metric: Metric,
    /// Of which mechanism.
    pub mechanism: String,
    /// The mechanism that it is compared with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// The untranslated path: subtracted for added ratios, named as the bound for ratios.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zero: Option<String>,
    /// Which side of the value is good.
    pub want: Want,
    /// The value.
    pub value: f64,
    /// Its unit; without it, `x` for what is compared, and else the metric's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
}

impl Goal {
    /// How its number is made.
    pub(crate) fn measure(&self) -> Measure {
        let ratio = if self.base.is_some() { Measure::Ratio } else { Measure::Value };
        self.measure.unwrap_or(ratio)
    }

    /// The unit of its number.
    pub(crate) fn unit(&self) -> &str {
        let own = if self.measure().has_base() { "x" } else { self.metric.unit() };
        self.unit.as_deref().unwrap_or(own)
    }
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
