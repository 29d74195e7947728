//! What options take from the description of a key: words for people, the words of a value, and how a value is written in
//! the file.

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Command};
use fordway_daemon::failure::Failure;
use serde_json::Value as Json;
use toml::Value;

/// The sentences of a description.
pub(super) fn sentences(meaning: &str) -> impl Iterator<Item = &str> {
    let begins = |rest: &str| rest.starts_with(|c: char| c == '`' || c.is_uppercase());
    let mut rest = Some(meaning);
    std::iter::from_fn(move || {
        let text = rest?;
        let end = text.match_indices(". ").map(|(at, _)| at).find(|at| begins(&text[at + 2..]));
        rest = end.map(|at| &text[at + 2..]);
        Some(end.map_or(text, |at| &text[..at]))
    })
}

/// The sentences that say what words of a value mean: "`auto`: ...".
pub(super) fn explained_words(meaning: &str) -> String {
    let is_word = |it: &&str| it.starts_with('`') && it.contains("`: ");
    let words: Vec<String> = sentences(meaning).filter(is_word).map(plain).collect();
    match words.is_empty() {
        true => String::new(),
        false => words.join(". ") + ".",
    }
}

/// Markdown as plain text: without marks of code, a link as its text.
pub(super) fn plain(markdown: &str) -> String {
    let text = markdown.replace('`', "");
    let mut parts = text.split("](");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (_, rest) = part.split_once(')').unwrap_or_default();
        // The text of the link stands behind its last bracket.
        if let Some(at) = plain.rfind('[') {
            plain.remove(at);
        }
        plain += rest;
    }
    plain
}

/// The schema of an item, if the value is a list.
pub(super) fn list(schema: &Json) -> Option<&Json> {
    let either = schema["anyOf"].as_array().into_iter().flatten();
    let mut all = std::iter::once(schema).chain(either);
    all.find(|it| it["type"] == "array").map(|it| &it["items"])
}

/// The words of a value or of an item of a list, and whether other values are possible.
pub(super) fn words(schema: &Json) -> (Vec<&str>, bool) {
    if let Some(words) = schema["enum"].as_array() {
        return (words.iter().filter_map(Json::as_str).collect(), false);
    }
    if let Some(either) = schema["anyOf"].as_array() {
        let words = either.iter().flat_map(|it| match it["const"].as_str() {
            Some(word) => vec![word],
            None => words(it).0,
        });
        return (words.collect(), true);
    }
    match &schema["items"] {
        Json::Null => (Vec::new(), true),
        items => words(items),
    }
}

/// A value as the file has it. `option` and `placeholder` are for messages.
pub(super) fn value(
    schema: &Json,
    option: &str,
    placeholder: &str,
    text: &str,
) -> Result<Value, Failure> {
    if schema["type"] == "array" {
        let parts = split(text, schema["minItems"].as_u64());
        let parts = parts.map(|parts| parts.into_iter().map(str::trim).collect::<Vec<_>>());
        return parts.map(Value::from).ok_or_else(|| {
            let message = format!("{option} {text}: this is not {placeholder}");
            Failure::usage(message, format!("write {option} {placeholder}"))
        });
    }
    match text.parse::<i64>() {
        Ok(number) if takes_numbers(schema) => Ok(number.into()),
        _ => Ok(text.into()),
    }
}

/// `ONE=OTHER`, or `FIRST:SECOND=THIRD`.
fn split(text: &str, parts: Option<u64>) -> Option<Vec<&str>> {
    let (front, last) = text.split_once('=')?;
    match parts {
        Some(3) => front.split_once(':').map(|(first, second)| vec![first, second, last]),
        _ => Some(vec![front, last]),
    }
}

fn takes_numbers(schema: &Json) -> bool {
    let kinds = &schema["type"];
    let is_number =
        kinds == "integer" || kinds.as_array().is_some_and(|it| it.contains(&"integer".into()));
    is_number || schema["anyOf"].as_array().is_some_and(|all| all.iter().any(takes_numbers))
}

/// Takes any text, and offers these words to completion.
#[derive(Clone)]
pub(super) struct Suggestions(pub(super) Vec<&'static str>);

impl TypedValueParser for Suggestions {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().map(|word| PossibleValue::new(*word))))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn descriptions_as_plain_text() {
        let meaning = "IPv6 path MTU ([how](operations.md#path-mtu)), RFC 8201 section 1.2. It is `mtu`. `auto`: found";
        let all: Vec<&str> = sentences(meaning).collect();
        assert_eq!(all.len(), 3);
        assert_eq!(plain(all[0]), "IPv6 path MTU (how), RFC 8201 section 1.2");
        assert_eq!(explained_words(meaning), "auto: found.");
        assert_eq!(explained_words("A number"), "");
    }

    #[test]
    fn values_as_the_file_has_them() {
        let text = |schema: Json, text| value(&schema, "--x", "A=B", text).map(|it| it.to_string());
        let pair = json!({"type": "array", "minItems": 2});
        let triple = json!({"type": "array", "minItems": 3});
        assert_eq!(text(pair.clone(), "a = b").unwrap(), "[\"a\", \"b\"]");
        assert_eq!(text(triple, "tcp:1:80=b:9").unwrap(), "[\"tcp\", \"1:80\", \"b:9\"]");
        assert!(text(pair, "a").is_err());
        let octets = json!({"anyOf": [{"type": "integer"}, {"type": "string"}]});
        assert_eq!(text(octets.clone(), "1500").unwrap(), "1500");
        assert_eq!(text(octets, "9 kB").unwrap(), "\"9 kB\"");
        assert_eq!(text(json!({"type": "string"}), "1").unwrap(), "\"1\"");
    }

    #[test]
    fn words_of_values() {
        assert_eq!(words(&json!({"enum": ["a", "b"]})), (vec!["a", "b"], false));
        let or =
            json!({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"const": "local"}]});
        assert_eq!(words(&or), (vec!["local"], true));
        let list = json!({"type": "array", "items": {"enum": ["ftp"]}});
        assert_eq!(words(&list), (vec!["ftp"], false));
    }
}
