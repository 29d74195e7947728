//! The JSON schema of an experiment file, made from the types that it is read into.

use std::sync::LazyLock;

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{JsonType, Validator};
use schemars::Schema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::Experiment;
use super::document::{Document, below};
use super::findings::{Finding, nearest};

/// The schema (JSON Schema 2020-12).
pub(crate) static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    let generator = SchemaSettings::draft2020_12().for_deserialize().into_generator();
    let mut schema = generator.into_root_schema_for::<Experiment>();
    schema.ensure_object().values_mut().for_each(plain);
    schema.insert("title".into(), json!("An experiment of fordway-lab (*.toml)"));
    schema
});

static VALIDATOR: LazyLock<std::result::Result<Validator, String>> = LazyLock::new(|| {
    jsonschema::validator_for(SCHEMA.as_value()).map_err(|error| error.to_string())
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
    let validator = match &*VALIDATOR {
        Ok(validator) => validator,
        Err(why) => {
            let message = format!("the schema of experiment files is damaged: {why}");
            return vec![Finding { span: 0..0, message, fix: None }];
        }
    };
    let mut all = Vec::new();
    for error in validator.iter_errors(&document.value) {
        let pointer = error.instance_path().to_string();
        let name = pointer.rsplit('/').find(|word| word.parse::<usize>().is_err());
        let name = name.unwrap_or_default();
        let here = |message: String, fix: Option<String>| Finding {
            span: document.value_at(&pointer),
            message,
            fix,
        };
        match error.kind() {
            ValidationErrorKind::AdditionalProperties { unexpected } => {
                let known = siblings(error.schema_path().as_str());
                all.extend(unexpected.iter().map(|key| Finding {
                    span: document.key_at(&below(&pointer, key)),
                    message: format!("unknown key `{key}`{}", place(&pointer)),
                    fix: Some(nearest(key, known.iter().map(String::as_str), "the keys are")),
                }));
            }
            ValidationErrorKind::Required { property } => {
                let key = property.as_str().unwrap_or_default();
                let about = about(error.schema_path().as_str(), key);
                all.push(Finding {
                    span: document.key_at(&pointer),
                    message: format!("`{key}` is missing{}", place(&pointer)),
                    fix: about.map(|about| format!("{key}: {about}")),
                });
            }
            ValidationErrorKind::Enum { options } => {
                let words: Vec<&str> =
                    options.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
                let given = error.instance();
                let fix = match given.as_str() {
                    Some(word) => nearest(word, words, "there are"),
                    None => format!("there are: {}", words.join(", ")),
                };
                all.push(here(format!("{given} is no {}", name.trim_end_matches('s')), Some(fix)));
            }
            ValidationErrorKind::Type { kind } => {
                let wanted = match kind {
                    TypeKind::Single(kind) => word_of(*kind),
                    TypeKind::Multiple(_) => "something else",
                };
                let about = described(holder(error.schema_path().as_str()));
                all.push(here(format!("`{name}` has to be {wanted}"), about));
            }
            ValidationErrorKind::Pattern { .. } => {
                let message = format!("{} cannot be a {name}", error.instance());
                let fix = "small letters, digits, `-`, `_` and `.`, a letter or digit first";
                all.push(here(message, Some(fix.into())));
            }
            ValidationErrorKind::Minimum { limit } => {
                all.push(here(format!("`{name}` has to be {limit} at least"), None));
            }
            ValidationErrorKind::Maximum { limit } => {
                all.push(here(format!("`{name}` has to be {limit} at most"), None));
            }
            ValidationErrorKind::ExclusiveMinimum { limit } => {
                all.push(here(format!("`{name}` has to be more than {limit}"), None));
            }
            ValidationErrorKind::ExclusiveMaximum { limit } => {
                all.push(here(format!("`{name}` has to be less than {limit}"), None));
            }
            ValidationErrorKind::MinItems { limit } | ValidationErrorKind::MinLength { limit } => {
                let message = format!("`{name}` must not be empty (it needs {limit})");
                all.push(here(message, None));
            }
            _ => all.push(here(error.to_string(), None)),
        }
    }
    all
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

/// The object of the schema that a keyword stands in.
fn holder(keyword: &str) -> Option<&'static Value> {
    SCHEMA.as_value().pointer(keyword.rsplit_once('/')?.0)
}

/// The keys that an object of the schema knows.
fn siblings(keyword: &str) -> Vec<String> {
    let known = holder(keyword).and_then(|object| object["properties"].as_object());
    known.map(|all| all.keys().cloned().collect()).unwrap_or_default()
}

/// What a key of an object is for.
fn about(keyword: &str, key: &str) -> Option<String> {
    described(holder(keyword)?["properties"].get(key))
}

fn described(schema: Option<&Value>) -> Option<String> {
    Some(schema?.get("description")?.as_str()?.replace('\n', " "))
}

fn word_of(kind: JsonType) -> &'static str {
    match kind {
        JsonType::String => "a text: write it in quotes",
        JsonType::Integer => "a whole number",
        JsonType::Number => "a number",
        JsonType::Boolean => "true or false",
        JsonType::Array => "a list: [ ... ]",
        JsonType::Object => "a table",
        JsonType::Null => "left out",
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
