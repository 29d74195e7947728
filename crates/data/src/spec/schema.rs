//! The JSON schema of an experiment file, made from the types that it is read into.

mod validate;

use std::sync::LazyLock;

use schemars::Schema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::Experiment;
use super::document::{Document, below};
use crate::findings::{Finding, nearest};
use validate::{Refused, Why};

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
    let refused = validate::refused(SCHEMA.as_value(), &document.value);
    refused.into_iter().flat_map(|one| findings(document, one)).collect()
}

/// What to say of a place that the schema refuses.
fn findings(document: &Document<'_>, refused: Refused<'_, '_>) -> Vec<Finding> {
    let Refused { pointer, value, by, why } = refused;
    let name = pointer.rsplit('/').find(|word| word.parse::<usize>().is_err());
    let name = name.unwrap_or_default();
    let (message, fix) = match why {
        Why::Unknown(keys) => {
            let known = by["properties"].as_object().into_iter().flatten();
            let known: Vec<&str> = known.map(|(key, _)| key.as_str()).collect();
            let each = keys.into_iter().map(|key| Finding {
                span: document.key_at(&below(&pointer, key)),
                message: format!("unknown key `{key}`{}", place(&pointer)),
                fix: Some(nearest(key, known.iter().copied(), "the keys are")),
            });
            return each.collect();
        }
        Why::Missing(key) => {
            let about = described(by["properties"].get(key));
            return vec![Finding {
                span: document.key_at(&pointer),
                message: format!("`{key}` is missing{}", place(&pointer)),
                fix: about.map(|about| format!("{key}: {about}")),
            }];
        }
        Why::Choice(options) => {
            let words: Vec<&str> = options.iter().filter_map(Value::as_str).collect();
            let fix = match value.as_str() {
                Some(word) => nearest(word, words, "there are"),
                None => format!("there are: {}", words.join(", ")),
            };
            (format!("{value} is no {}", name.trim_end_matches('s')), Some(fix))
        }
        Why::Type(kind) => (format!("`{name}` has to be {}", word_of(kind)), described(Some(by))),
        Why::Pattern => {
            let fix = "small letters, digits, `-`, `_` and `.`, a letter or digit first";
            (format!("{value} cannot be a {name}"), Some(fix.to_owned()))
        }
        Why::Least(limit) => (format!("`{name}` has to be {limit} at least"), None),
        Why::Most(limit) => (format!("`{name}` has to be {limit} at most"), None),
        Why::Short(limit) => (format!("`{name}` must not be empty (it needs {limit})"), None),
    };
    vec![Finding { span: document.value_at(&pointer), message, fix }]
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

fn word_of(kind: &str) -> &'static str {
    match kind {
        "string" => "a text: write it in quotes",
        "integer" => "a whole number",
        "number" => "a number",
        "boolean" => "true or false",
        "array" => "a list: [ ... ]",
        "object" => "a table",
        _ => "left out",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_experiment_is_valid_by_the_schema_alone() {
        let validator = jsonschema::draft202012::new(SCHEMA.as_value()).unwrap();
        for text in crate::spec::BUILT_IN {
            let value: Value = toml::from_str(text).unwrap();
            let errors: Vec<String> =
                validator.iter_errors(&value).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "{errors:?}");
        }
        assert!(!validator.is_valid(&json!({"name": "x"})));
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
