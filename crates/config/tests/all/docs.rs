//! Tables of keys in documents are made of the descriptions of the keys.
//!
//! A table stands between `<!-- keys SECTION: KEY KEY ... -->` and `<!-- end -->`; without keys it has all of the section
//! that no other table has. With UPDATE_DOCS=1 the documents take what the descriptions say now.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use fordway_config::{Key, sections};

const BEGIN: &str = "<!-- keys ";
const END: &str = "<!-- end -->\n";

/// Documents with tables, and their texts.
fn documents() -> Vec<(PathBuf, String)> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let files = std::fs::read_dir(docs).unwrap().map(|entry| entry.unwrap().path());
    let pages = files.filter(|path| path.extension().is_some_and(|it| it == "md"));
    let read = pages.map(|path| (std::fs::read_to_string(&path).unwrap(), path));
    let with_tables = read.filter(|(text, _)| text.contains(BEGIN));
    with_tables.map(|(text, path)| (path, text)).collect()
}

/// The tables of a text: section, and keys in their order.
fn tables(text: &str) -> Vec<(&str, Vec<&str>)> {
    let heads = text.split(BEGIN).skip(1).map(|rest| rest.split_once(" -->").unwrap().0);
    heads
        .map(|head| match head.split_once(": ") {
            Some((section, keys)) => (section, keys.split(' ').collect()),
            None => (head, Vec::new()),
        })
        .collect()
}

fn table<'k>(keys: impl Iterator<Item = &'k Key>) -> String {
    let mut table = "| key | values | default | | reload |\n|---|---|---|---|---|\n".to_owned();
    for Key { name, values, default, meaning, reload, .. } in keys {
        let reload = reload.words();
        writeln!(table, "| `{name}` | {values} | {default} | {meaning} | {reload} |").unwrap();
    }
    table
}

#[test]
fn tables_of_keys_are_what_the_keys_are() {
    let sections: BTreeMap<_, _> = sections().into_iter().collect();
    let documents = documents();
    let mut left: BTreeMap<&str, Vec<&Key>> =
        sections.iter().map(|(section, keys)| (*section, keys.iter().collect())).collect();
    // What is asked for by name comes first, wherever it stands.
    for (path, text) in &documents {
        for (section, names) in tables(text) {
            let left = left.get_mut(section).unwrap_or_else(|| panic!("{path:?}: {section}"));
            for name in names {
                let at = left.iter().position(|key| key.name == name);
                left.remove(at.unwrap_or_else(|| panic!("{path:?}: {section} has no key {name}")));
            }
        }
    }
    let mut stale = Vec::new();
    for (path, text) in &documents {
        let mut written = text.split(BEGIN).next().unwrap().to_owned();
        for (part, (section, names)) in text.split(BEGIN).skip(1).zip(tables(text)) {
            let (head, rest) = part.split_once(" -->\n").unwrap();
            let (_, rest) =
                rest.split_once(END).unwrap_or_else(|| panic!("{path:?}: no end: {head}"));
            let of = |name: &&str| sections[section].iter().find(|key| key.name == *name).unwrap();
            let made = match names.is_empty() {
                true => table(left.remove(section).unwrap_or_default().into_iter()),
                false => table(names.iter().map(of)),
            };
            write!(written, "{BEGIN}{head} -->\n{made}{END}{rest}").unwrap();
        }
        if written != *text {
            stale.push(path);
            if std::env::var_os("UPDATE_DOCS").is_some() {
                std::fs::write(path, written).unwrap();
            }
        }
    }
    assert!(stale.is_empty(), "written anew with UPDATE_DOCS=1: {stale:?}");
    let missing: Vec<_> = left.iter().filter(|(_, keys)| !keys.is_empty()).collect();
    assert!(missing.is_empty(), "keys in no document: {missing:#?}");
}
