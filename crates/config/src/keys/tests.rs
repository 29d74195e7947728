//! Descriptions of keys against what reads and writes them.

use serde_json::Value as Json;
use toml::de::DeTable;

use super::{Key, Keys, Section, Written};
use crate::diagnostic::Sink;
use crate::source::Source;

/// Reads a table, and writes what was read. Which of `keys` it knows.
pub(crate) type Reader = fn(&str, keys: &[Key]) -> (Written, Vec<bool>, String);

pub(crate) fn read_and_write<T: Keys>(text: &str, keys: &[Key]) -> (Written, Vec<bool>, String) {
    let table = DeTable::parse(text).unwrap();
    let mut sink = Sink::default();
    let mut section = Section::new("it", table.get_ref(), 0..0);
    let (value, _) = T::read(&mut section, &mut sink);
    let known = keys.iter().map(|key| section.knows(key.name)).collect();
    section.finish(&mut sink);
    let report = sink.into_report(Source::new("it", text, &[]));
    (super::write(&value), known, report.render(false))
}

/// Each section with the keys of a table that has what is needed.
fn each(look: impl Fn(&str, &[Key], Reader)) {
    let sections = crate::sections();
    assert!(sections.len() > 30);
    for ((name, keys), (_, reader)) in sections.iter().zip(crate::readers()) {
        look(name, keys, reader);
    }
}

/// Words that choose between kinds of tables.
fn kinds(section: &str) -> &'static [&'static str] {
    match section {
        "translator.siit" => &["dynamic4 = ['192.0.2.0/24']"],
        "translator.softwire" => &["role = 'tep'", "role = 'client'"],
        "translator" => &["mode = 'siit'", "mode = 'clat'", "mode = 'softwire'\nrole = 'tep'"],
        "dstm_server" => &["tep = 'tep0'", "tep_address = '2001:db8::1'"],
        "proxy" => &["mode = 'forward'", "mode = 'reverse'"],
        _ => &[""],
    }
}

#[test]
fn every_key_is_read_and_what_is_written_is_a_key() {
    each(|section, keys, reader| {
        let mut known = vec![false; keys.len()];
        for text in kinds(section) {
            let (written, knows, _) = reader(text, keys);
            known.iter_mut().zip(knows).for_each(|(known, knows)| *known |= knows);
            // Of a mode or a role, with keys that are described elsewhere.
            let others = matches!(
                section,
                "translator" | "translator.softwire" | "proxy" | "translator.nat64"
            );
            for name in written.names() {
                assert!(others || keys.iter().any(|key| key.name == name), "{section}: {name}");
            }
        }
        let unread: Vec<_> = keys.iter().zip(known).filter(|(_, known)| !known).collect();
        assert!(unread.is_empty(), "{section}: {unread:?}");
    });
}

#[test]
fn defaults_are_what_is_read_without_the_key() {
    each(|section, keys, reader| {
        let (written, ..) = reader(kinds(section)[0], keys);
        for key in keys {
            let told = key.default.strip_prefix('`').and_then(|it| it.strip_suffix('`'));
            // Some name a part of the table, or tell several cases.
            let is_whole = |told: &&str| !told.contains('`') && !told.contains("NAME");
            let Some(told) = told.filter(is_whole) else { continue };
            if let Some(read) = written.value(key.name) {
                assert!(read.to_string() == told, "{section}: {} is {read}, not {told}", key.name);
            }
        }
    });
}

/// Whether a reader takes a value of a key.
fn takes(reader: Reader, front: &str, key: &Key, value: &Json) -> Result<(), String> {
    // What the key belongs to.
    let needs = if key.name == "forward" { "attach = 'ingress'" } else { "" };
    let text = format!("{front}\n{needs}\n{} = {value}", key.name);
    let said = reader(&text, &[]).2;
    match said.contains(&format!("error: `{}`", key.name)) {
        true => Err(said),
        false => Ok(()),
    }
}

#[test]
fn ranges_and_words_are_what_the_reader_takes() {
    each(|section, keys, reader| {
        let front = kinds(section)[0];
        for key in keys.iter().filter(|key| !front.contains(key.name)) {
            let all = std::iter::once(&key.schema);
            for schema in all.chain(key.schema["anyOf"].as_array().into_iter().flatten()) {
                let good = |value: &Json| {
                    takes(reader, front, key, value).unwrap_or_else(|it| panic!("{section}: {it}"));
                };
                let bad = |value: Json| {
                    let taken = takes(reader, front, key, &value).is_ok();
                    assert!(!taken, "{section}: {} = {value}", key.name);
                };
                if let (Some(least), Some(most)) =
                    (schema["minimum"].as_i64(), schema["maximum"].as_i64())
                {
                    good(&least.into());
                    good(&most.into());
                    bad((least - 1).into());
                    bad((most + 1).into());
                }
                let words = schema["enum"].as_array().into_iter().flatten();
                words.for_each(good);
                if schema["enum"].is_array() {
                    bad("no such word".into());
                }
                if schema["const"].is_string() {
                    good(&schema["const"]);
                }
            }
        }
    });
}

#[test]
fn tables_of_the_schema_have_the_keys_of_their_sections() {
    let schema = crate::schema();
    for (section, keys) in crate::sections() {
        if let Some(table) = schema["properties"].get(section) {
            let table = if table["items"].is_null() { table } else { &table["items"] };
            let first = table["oneOf"].get(0).unwrap_or(table);
            for key in keys {
                let of = &first["properties"][key.name];
                assert_eq!(of["description"], key.meaning, "{section}: {}", key.name);
                assert_eq!(of["x-reload"], key.reload.words(), "{section}: {}", key.name);
            }
        }
    }
}
