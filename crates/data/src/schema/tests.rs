use boon::{Compiler, SchemaIndex, Schemas};

use super::*;
use crate::analysis::analyse;
use crate::fixture;
use crate::fixture::environment;
use crate::spec::{Experiment, RunSpec};

/// Name, schema, and the file in docs.
type Documented = (&'static str, fn() -> Schema, &'static str);

const IN_DOCS: [Documented; 3] = [
    ("experiment", experiment, include_str!("../../../../docs/experiment.schema.json")),
    ("results", results, include_str!("../../../../docs/results.schema.json")),
    ("trials", trials, include_str!("../../../../docs/trials.schema.json")),
];

/// A schema that values are held against.
struct Validator {
    schemas: Schemas,
    index: SchemaIndex,
}

fn validator(schema: &Schema) -> Validator {
    let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
    compiler.add_resource("schema.json", schema.as_value().clone()).unwrap();
    let index = compiler.compile("schema.json", &mut schemas).unwrap();
    Validator { schemas, index }
}

fn problems(validator: &Validator, value: &serde_json::Value) -> Vec<String> {
    let result = validator.schemas.validate(value, validator.index);
    result.err().map(|error| format!("{error:#}")).into_iter().collect()
}

#[test]
fn the_schemas_in_docs_are_those_of_the_program() {
    for (name, schema, text) in IN_DOCS {
        let published: serde_json::Value = serde_json::from_str(text).unwrap();
        assert!(
            published == *schema().as_value(),
            "docs/{name}.schema.json is not what the types say: \
             `fordway-lab schema {name} > docs/{name}.schema.json`"
        );
    }
}

#[test]
fn results_and_trials_of_every_experiment_are_valid() {
    let [results, trial] = [super::results, super::trials].map(|schema| validator(&schema()));
    for experiment in Experiment::built_in().unwrap() {
        let experiment = fixture::experiment(&experiment.name);
        let trials = fixture::trials(&experiment, 2, 1.0);
        let found = analyse(&experiment, environment(), &trials).unwrap();
        assert!(!found.cells.is_empty() && found.cells.iter().any(|c| c.vs_baseline.is_some()));
        let found = serde_json::to_value(&found).unwrap();
        assert_eq!(problems(&results, &found), [""; 0], "{}", experiment.name);
        for one in &trials {
            assert_eq!(problems(&trial, &serde_json::to_value(one).unwrap()), [""; 0]);
        }
    }
}

#[test]
fn what_is_no_result_is_told_apart() {
    let mut experiment = Experiment::find("nat64").unwrap();
    experiment.run = Some(RunSpec { mechanisms: vec!["nat44".into()], ..RunSpec::bare() });
    let found = analyse(&experiment, environment(), &fixture::trials(&experiment, 2, 1.0)).unwrap();
    let good = serde_json::to_value(&found).unwrap();
    let schema = validator(&super::results());
    let spoilt: [fn(&mut serde_json::Value); 4] = [
        |v| v["version"] = "one".into(),
        |v| v["cells"][0]["metric"] = "Speed up".into(),
        |v| v["cells"][0]["interval"] = serde_json::json!([1.0]),
        |v| drop(v.as_object_mut().map(|o| o.remove("environment"))),
    ];
    assert_eq!(problems(&schema, &good), [""; 0]);
    for spoil in spoilt {
        let mut bad = good.clone();
        spoil(&mut bad);
        assert_eq!(problems(&schema, &bad).len(), 1);
    }
}
