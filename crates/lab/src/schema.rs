//! JSON schemas of what the lab writes, made from the types that write it.

use std::borrow::Cow;

use clap::ValueEnum;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::analysis::Results;
use crate::spec::Metric;
use crate::trial::Trial;

/// Files with a published schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Published {
    /// `results.json`
    Results,
    /// One line of `trials.jsonl`
    Trials,
}

impl Published {
    /// The schema (JSON Schema 2020-12).
    pub(crate) fn schema(self) -> Schema {
        match self {
            Self::Results => of::<Results>("Results of a run of fordway-lab (results.json)"),
            Self::Trials => of::<Trial>("A trial of fordway-lab (one line of trials.jsonl)"),
        }
    }
}

/// The schema of what a type is written as.
fn of<T: JsonSchema>(title: &str) -> Schema {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.insert("title".into(), title.into());
    schema
}

/// Metrics are added with every experiment, which must not make older schemas wrong.
impl JsonSchema for Metric {
    fn schema_name() -> Cow<'static, str> {
        "Metric".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Name of a measured quantity, such as `tcp_throughput_up`.",
            "type": "string",
            "pattern": "^[a-z][a-z0-9_]*$",
        })
    }
}

#[cfg(test)]
mod tests;
