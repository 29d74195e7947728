//! JSON schemas of what the lab writes and reads, made from the types that do.

use std::borrow::Cow;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::json;

use crate::analysis::Results;
use crate::spec::{self, Metric};
use crate::trial::Trial;

/// The schema (JSON Schema 2020-12) of an experiment file.
pub fn experiment() -> Schema {
    spec::SCHEMA.clone()
}

/// The schema of `results.json`.
pub fn results() -> Schema {
    of::<Results>("Results of a run of fordway-lab (results.json)")
}

/// The schema of one line of `trials.jsonl`.
pub fn trials() -> Schema {
    of::<Trial>("A trial of fordway-lab (one line of trials.jsonl)")
}

/// The schema of what a type is written as.
fn of<T: JsonSchema>(title: &str) -> Schema {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.insert("title".into(), title.into());
    schema
}

/// An experiment names those that there are. In results there may be others: metrics are added with every experiment,
/// which must not make older schemas wrong.
impl JsonSchema for Metric {
    fn schema_name() -> Cow<'static, str> {
        "Metric".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        if generator.contract().is_deserialize() {
            let all = Self::ALL.into_iter().filter(|metric| *metric != Self::Gate);
            let (names, labels): (Vec<&str>, Vec<&str>) =
                all.map(|metric| (metric.name(), metric.label())).unzip();
            // taplo, and with it editors, show these beside the names.
            let docs = json!({"docs": {"enumValues": labels}});
            return json_schema!({
                "description": "A measured quantity: a built-in one, or one of the experiment's own.",
                "type": "string",
                // The second choice takes everything: own names are held against `[[metric]]`, which a schema can't do.
                "anyOf": [{"enum": names, "x-taplo": docs}, {}],
            });
        }
        json_schema!({
            "description": "Name of a measured quantity, such as `tcp_throughput_up`.",
            "type": "string",
            "pattern": "^[a-z][a-z0-9_]*$",
        })
    }
}

#[cfg(test)]
mod tests;
