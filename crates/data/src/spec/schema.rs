//! The JSON schema of an experiment file, made from the types that it is read into.

use std::sync::LazyLock;

use boon::{Compiler, ErrorKind, Schemas, Type, ValidationError};
use schemars::Schema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::Experiment;
use super::document::{Document, below};
use crate::findings::{Finding, nearest};

/// The schema (JSON Schema 2020-12).
pub(crate) static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    let generator = SchemaSettings::draft2020_12().for_deserialize().into_generator();
    let mut schema = generator.into_root_schema_for::<Experiment>();
    schema.ensure_object().values_mut().for_each(plain);
    schema.insert("title".into(), json!("An experiment of fordway-lab (*.toml)"));
    schema
});

/// Turns what TOML has no word for into what it has: nothing is null, and a choice of words is one list.
fn plain(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(plain),
        Value::Object(own) => {
            own.values_mut().for_each(plain);
            own.retain(|key, value| {
                !(key == "default" && (value.is_null() || *value == json!([])))
            });
            if let Some(Value::Array(types)) = own.get_mut("type") {
                types.retain(|name| name != "null");
                if let [one] = &types[..] {
                    let one = one.clone();
                    own.insert("type".into(), one);
                }
            }
            if let Some(Value::Array(any)) = own.get_mut("anyOf") {
                any.retain(|one| one != &json!({"type": "null"}));
                if let [Value::Object(one)] = &any[..] {
                    let one = one.clone();
                    own.remove("anyOf");
                    own.extend(one);
                }
            }
            words(own);
        }
        _ => {}
    }
}

/// A choice of words, each with its meaning, as a list of words and a list of meanings.
fn words(own: &mut Map<String, Value>) {
    let Some(Value::Array(choices)) = own.get("oneOf") else { return };
    let mut known: Vec<(Value, Value)> = Vec::new();
    for choice in choices {
        let meaning = choice.get("description").cloned().unwrap_or_default();
        if let Some(word) = choice.get("const") {
            known.push((word.clone(), meaning));
        } else if let Some(Value::Array(several)) = choice.get("enum") {
            known.extend(several.iter().map(|word| (word.clone(), meaning.clone())));
        } else {
            return;
        }
    }
    let (names, meanings): (Vec<Value>, Vec<Value>) = known.into_iter().unzip();
    own.remove("oneOf");
    own.insert("type".into(), json!("string"));
    own.insert("enum".into(), Value::Array(names));
    // taplo, and with it editors, show these beside the words.
    own.insert("x-taplo".into(), json!({"docs": {"enumValues": meanings}}));
}

/// All that the schema refuses in a document.
pub(super) fn refused(document: &Document<'_>) -> Vec<Finding> {
    let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
    let whole = SCHEMA.as_value();
    // The schema is made of types; tests compile it.
    compiler.add_resource(ADDRESS, whole.clone()).expect("the address is one");
    let index = compiler.compile(ADDRESS, &mut schemas).expect("the schema of experiments is one");
    let mut found = Vec::new();
    if let Err(error) = schemas.validate(&document.value, index) {
        leaves(document, whole, &error, &mut found);
    }
    found
}

/// The schema's name for the validator, which reads nothing else.
const ADDRESS: &str = "experiment.json";

/// What to say of each error that has no others below it.
fn leaves(
    document: &Document<'_>,
    whole: &Value,
    error: &ValidationError<'_, '_>,
    found: &mut Vec<Finding>,
) {
    // Of several choices none takes the value: what the first has to say is enough.
    let most = if matches!(error.kind, ErrorKind::AnyOf) { 1 } else { error.causes.len() };
    for cause in &error.causes[..most] {
        leaves(document, whole, cause, found);
    }
    if error.causes.is_empty() {
        let pointer = error.instance_location.to_string();
        let by = error.schema_url.split_once('#').and_then(|(_, at)| whole.pointer(at));
        found.extend(findings(document, &pointer, by.unwrap_or(whole), &error.kind));
    }
}

/// What to say of a place of a document that an object of the schema refuses.
fn findings(
    document: &Document<'_>,
    pointer: &str,
    by: &Value,
    why: &ErrorKind<'_, '_>,
) -> Vec<Finding> {
    let name = pointer.rsplit('/').find(|word| word.parse::<usize>().is_err());
    let name = name.unwrap_or_default();
    let value = document.value.pointer(pointer).unwrap_or(&Value::Null);
    let (message, fix) = match why {
        ErrorKind::AdditionalProperties { got } => {
            let known = by["properties"].as_object().into_iter().flatten();
            let known: Vec<&str> = known.map(|(key, _)| key.as_str()).collect();
            let each = got.iter().map(|key| Finding {
                span: document.key_at(&below(pointer, key)),
                message: format!("unknown key `{key}`{}", place(pointer)),
                fix: Some(nearest(key, known.iter().copied(), "the keys are")),
            });
            return each.collect();
        }
        ErrorKind::Required { want } => {
            let each = want.iter().map(|key| Finding {
                span: document.key_at(pointer),
                message: format!("`{key}` is missing{}", place(pointer)),
                fix: described(by["properties"].get(key)).map(|about| format!("{key}: {about}")),
            });
            return each.collect();
        }
        ErrorKind::Enum { want } => {
            let words: Vec<&str> = want.iter().filter_map(Value::as_str).collect();
            let fix = match value.as_str() {
                Some(word) => nearest(word, words, "there are"),
                None => format!("there are: {}", words.join(", ")),
            };
            (format!("{value} is no {}", name.trim_end_matches('s')), Some(fix))
        }
        ErrorKind::Type { want, .. } => {
            let wanted: Vec<&str> = want.iter().map(word_of).collect();
            (format!("`{name}` has to be {}", wanted.join(" or ")), described(Some(by)))
        }
        ErrorKind::Pattern { .. } => {
            let fix = "small letters, digits, `-`, `_` and `.`, a letter or digit first";
            (format!("{value} cannot be a {name}"), Some(fix.to_owned()))
        }
        ErrorKind::Minimum { want, .. } => (format!("`{name}` has to be {want} at least"), None),
        ErrorKind::Maximum { want, .. } => (format!("`{name}` has to be {want} at most"), None),
        ErrorKind::MinItems { want, .. } | ErrorKind::MinLength { want, .. } => {
            (format!("`{name}` must not be empty (it needs {want})"), None)
        }
        other => (format!("`{name}`: {other}"), described(Some(by))),
    };
    vec![Finding { span: document.value_at(pointer), message, fix }]
}

/// In which table a key stands, for a message.
fn place(pointer: &str) -> String {
    let mut words = pointer.split('/').skip(1);
    match (words.next(), words.next(), words.next()) {
        (None, ..) => String::new(),
        (Some(table), Some(index), below) if index.parse::<usize>().is_ok() => match below {
            Some(below) => format!(" in [{table}.{below}]"),
            None => format!(" in [[{table}]]"),
        },
        (Some(table), Some(name), _) => format!(" in [{table}.{name}]"),
        (Some(table), None, _) => format!(" in [{table}]"),
    }
}

fn described(schema: Option<&Value>) -> Option<String> {
    Some(schema?.get("description")?.as_str()?.replace('\n', " "))
}

fn word_of(kind: Type) -> &'static str {
    match kind {
        Type::String => "a text: write it in quotes",
        Type::Integer => "a whole number",
        Type::Number => "a number",
        Type::Boolean => "true or false",
        Type::Array => "a list: [ ... ]",
        Type::Object => "a table",
        Type::Null => "left out",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Vec<String> {
        let document = Document::read(text).unwrap();
        refused(&document).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn every_built_in_experiment_is_valid_by_the_schema_alone() {
        for text in crate::spec::BUILT_IN {
            assert_eq!(told(text), [""; 0]);
        }
        assert!(!told("name = \"x\"").is_empty());
    }

    #[test]
    fn nothing_is_null_and_a_choice_is_a_list() {
        let text = SCHEMA.as_value().to_string();
        assert!(!text.contains("null") && !text.contains("oneOf"), "{text}");
        assert!(text.contains("\"tcp_throughput_up\""));
    }

    /// What can be written is explained to those who write.
    #[test]
    fn every_key_stands_in_the_manual() {
        let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/lab-experiments.md");
        let manual = std::fs::read_to_string(manual).unwrap();
        let mut objects: Vec<&Value> =
            SCHEMA.as_value()["$defs"].as_object().unwrap().values().collect();
        objects.push(SCHEMA.as_value());
        for object in objects {
            for (key, about) in object["properties"].as_object().into_iter().flatten() {
                assert!(manual.contains(&format!("| `{key}`")), "`{key}` has no row in the manual");
                assert!(described(Some(about)).is_some() || about.get("$ref").is_some(), "{key}");
            }
        }
    }
}
