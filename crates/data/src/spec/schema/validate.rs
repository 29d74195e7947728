//! The part of JSON Schema 2020-12 that the schema of experiment files makes use of: a general validator brings two dozen
//! crates. A test holds it against one.

use serde_json::Value;

use crate::spec::document::below;

/// A place of a document that the schema refuses.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Refused<'d, 's> {
    /// Where, as a JSON pointer.
    pub(super) pointer: String,
    /// What stands there.
    pub(super) value: &'d Value,
    /// The object of the schema that refuses it.
    pub(super) by: &'s Value,
    /// Why.
    pub(super) why: Why<'d, 's>,
}

/// The keyword that refuses a value, with what it wants.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Why<'d, 's> {
    /// `additionalProperties`: these keys are unknown.
    Unknown(Vec<&'d str>),
    /// `required`: this key is missing.
    Missing(&'s str),
    /// `enum`: it is none of these.
    Choice(&'s [Value]),
    /// `type`: it is not of this type.
    Type(&'s str),
    /// `pattern`, of which there is one.
    Pattern,
    /// `minimum`.
    Least(&'s Value),
    /// `maximum`.
    Most(&'s Value),
    /// `minItems` and `minLength`.
    Short(&'s Value),
}

/// The pattern of names: a small letter or digit, then also `.`, `_` and `-`.
const NAME: &str = "^[a-z0-9][a-z0-9._-]*$";

/// Keywords that say nothing about a document: of `anyOf`, one choice takes everything.
#[cfg(test)]
const SILENT: [&str; 8] =
    ["$defs", "$schema", "anyOf", "default", "description", "format", "title", "x-taplo"];

/// All that a schema refuses in a document.
pub(super) fn refused<'d, 's>(schema: &'s Value, document: &'d Value) -> Vec<Refused<'d, 's>> {
    let mut walk = Walk { root: schema, all: Vec::new() };
    walk.look(schema, document, "");
    walk.all
}

struct Walk<'d, 's> {
    root: &'s Value,
    all: Vec<Refused<'d, 's>>,
}

impl<'d, 's> Walk<'d, 's> {
    /// Looks at a value by one object of the schema, whose keywords hold each for itself.
    fn look(&mut self, by: &'s Value, value: &'d Value, pointer: &str) {
        for (keyword, wanted) in by.as_object().into_iter().flatten() {
            match keyword.as_str() {
                "$ref" => {
                    let name = wanted.as_str().unwrap_or_default().trim_start_matches('#');
                    if let Some(other) = self.root.pointer(name) {
                        self.look(other, value, pointer);
                    }
                }
                "properties" => {
                    for (key, by) in wanted.as_object().into_iter().flatten() {
                        if let Some(value) = value.get(key) {
                            self.look(by, value, &below(pointer, key));
                        }
                    }
                }
                "additionalProperties" => self.others(by, wanted, value, pointer),
                "items" => {
                    for (index, value) in value.as_array().into_iter().flatten().enumerate() {
                        self.look(wanted, value, &format!("{pointer}/{index}"));
                    }
                }
                "required" => {
                    let keys = wanted.as_array().into_iter().flatten().filter_map(Value::as_str);
                    for key in keys.filter(|key| value.is_object() && value.get(key).is_none()) {
                        self.refuse(by, value, pointer, Why::Missing(key));
                    }
                }
                _ => {
                    if let Some(why) = fault(keyword, wanted, value) {
                        self.refuse(by, value, pointer, why);
                    }
                }
            }
        }
    }

    /// Keys that `properties` does not name.
    fn others(&mut self, by: &'s Value, wanted: &'s Value, value: &'d Value, pointer: &str) {
        let is_named = |key: &str| by["properties"].get(key).is_some();
        let keys = value.as_object().into_iter().flatten().filter(|(key, _)| !is_named(key));
        if *wanted == Value::Bool(false) {
            let unknown: Vec<&str> = keys.map(|(key, _)| key.as_str()).collect();
            if !unknown.is_empty() {
                self.refuse(by, value, pointer, Why::Unknown(unknown));
            }
        } else {
            for (key, value) in keys {
                self.look(wanted, value, &below(pointer, key));
            }
        }
    }

    fn refuse(&mut self, by: &'s Value, value: &'d Value, pointer: &str, why: Why<'d, 's>) {
        self.all.push(Refused { pointer: pointer.to_owned(), value, by, why });
    }
}

/// Why a keyword about a single value refuses it.
fn fault<'d, 's>(keyword: &str, wanted: &'s Value, value: &'d Value) -> Option<Why<'d, 's>> {
    let number = |value: &Value| value.as_f64();
    let (why, refuses) = match keyword {
        "type" => {
            let name = wanted.as_str()?;
            (Why::Type(name), !is_of(name, value))
        }
        "enum" => {
            let all = wanted.as_array()?;
            (Why::Choice(all), !all.contains(value))
        }
        "pattern" => (Why::Pattern, wanted == NAME && !value.as_str().is_none_or(is_name)),
        "minimum" => {
            (Why::Least(wanted), number(value).is_some_and(|it| Some(it) < number(wanted)))
        }
        "maximum" => (Why::Most(wanted), number(value).is_some_and(|it| Some(it) > number(wanted))),
        "minItems" => {
            let length = value.as_array().map(|all| all.len() as u64);
            (Why::Short(wanted), length.is_some_and(|it| Some(it) < wanted.as_u64()))
        }
        "minLength" => {
            let length = value.as_str().map(|text| text.chars().count() as u64);
            (Why::Short(wanted), length.is_some_and(|it| Some(it) < wanted.as_u64()))
        }
        _ => return None,
    };
    refuses.then_some(why)
}

fn is_of(name: &str, value: &Value) -> bool {
    match name {
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "number" => value.is_number(),
        // A whole number may be written with a point (section 6.1.1).
        "integer" => {
            value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|it| it.fract() == 0.0)
        }
        _ => value.is_null(),
    }
}

fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(plain) && text.chars().all(|c| plain(c) || "._-".contains(c))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;
    use crate::spec::SCHEMA;

    /// Places and keywords that refuse a document, by a general validator.
    fn by_another(
        validator: &jsonschema::Validator,
        document: &Value,
    ) -> BTreeSet<(String, String)> {
        let errors = validator.iter_errors(document);
        let keyword = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        errors.map(|e| (e.instance_path().to_string(), keyword(e.schema_path().as_str()))).collect()
    }

    fn by_this(schema: &Value, document: &Value) -> BTreeSet<(String, String)> {
        let word = |one: &Refused<'_, '_>| match &one.why {
            Why::Unknown(_) => "additionalProperties",
            Why::Missing(_) => "required",
            Why::Choice(_) => "enum",
            Why::Type(_) => "type",
            Why::Pattern => "pattern",
            Why::Least(_) => "minimum",
            Why::Most(_) => "maximum",
            Why::Short(_) if one.value.is_array() => "minItems",
            Why::Short(_) => "minLength",
        };
        refused(schema, document)
            .iter()
            .map(|one| (one.pointer.clone(), word(one).into()))
            .collect()
    }

    /// Pointers of all values below one.
    fn places(value: &Value, at: &str, all: &mut Vec<String>) {
        all.push(at.to_owned());
        for (key, value) in value.as_object().into_iter().flatten() {
            places(value, &below(at, key), all);
        }
        for (index, value) in value.as_array().into_iter().flatten().enumerate() {
            places(value, &format!("{at}/{index}"), all);
        }
    }

    #[test]
    fn it_refuses_what_a_general_validator_refuses() {
        let schema = SCHEMA.as_value();
        let validator = jsonschema::draft202012::new(schema).unwrap();
        let spoilt = [
            json!(-1),
            json!(0),
            json!(1.0),
            json!(0.5),
            json!(1e9),
            json!("Bad Name"),
            json!(""),
            json!([]),
            json!([0]),
            json!({"unknown": 1}),
            json!(true),
            json!({}),
            json!("native-v6"),
        ];
        let mut refusals = 0;
        for text in crate::spec::BUILT_IN.iter().take(3) {
            let good: Value = toml::from_str(text).unwrap();
            assert!(refused(schema, &good).is_empty());
            let mut all = Vec::new();
            places(&good, "", &mut all);
            for place in all {
                for (number, other) in spoilt.iter().enumerate() {
                    let mut bad = good.clone();
                    *bad.pointer_mut(&place).unwrap() = other.clone();
                    // Also without what stands next to it.
                    if number % 2 == 0
                        && let Some((above, _)) = place.rsplit_once('/')
                        && let Some(table) = bad.pointer_mut(above).and_then(Value::as_object_mut)
                    {
                        let first = table.keys().next().cloned().unwrap_or_default();
                        table.remove(&first);
                    }
                    let this = by_this(schema, &bad);
                    assert_eq!(this, by_another(&validator, &bad), "{place}: {other}");
                    refusals += this.len();
                }
            }
        }
        assert!(refusals > 5000, "{refusals}");
    }

    #[test]
    fn the_schema_has_no_keyword_that_it_does_not_know() {
        fn look(schema: &Value) {
            for (keyword, wanted) in schema.as_object().into_iter().flatten() {
                match keyword.as_str() {
                    "properties" | "$defs" => {
                        wanted.as_object().unwrap().values().for_each(look);
                    }
                    "additionalProperties" | "items" => look(wanted),
                    "pattern" => assert_eq!(*wanted, NAME),
                    "$ref" => {
                        let name = &wanted.as_str().unwrap()[1..];
                        assert!(SCHEMA.as_value().pointer(name).is_some(), "{name}");
                    }
                    "required" => {}
                    known if SILENT.contains(&known) => {}
                    other => {
                        let known = ["type", "enum", "minimum", "maximum", "minItems", "minLength"];
                        assert!(known.contains(&other), "{other}");
                    }
                }
            }
        }
        look(SCHEMA.as_value());
    }
}
