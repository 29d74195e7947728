//! Reading a table key by key, and refusing unknown keys.

use std::ops::Range;

use toml::Spanned;
use toml::de::DeTable;

use super::{Keys, Place, Places, Read, read};
use crate::diagnostic::{Diagnostic, Sink};
use crate::problem::{Problems, Value, closest};
use crate::value;

/// A table whose keys are being read.
pub(crate) struct Section<'t, 'i> {
    /// As people write it: `[[translator]]`.
    title: &'static str,
    table: &'t DeTable<'i>,
    known: Vec<&'static str>,
    refused: Vec<&'static str>,
    at: Places,
}

impl<'t, 'i> Section<'t, 'i> {
    pub(crate) fn new(
        title: &'static str,
        table: &'t DeTable<'i>,
        span: Range<usize>,
    ) -> Section<'t, 'i> {
        Section { title, table, known: Vec::new(), refused: Vec::new(), at: Places::new(span) }
    }

    /// Where the section stands.
    pub(crate) fn span(&self) -> Range<usize> {
        self.at.span.clone()
    }

    /// Reads a key. `None`: it is absent, or wrong and reported.
    pub(crate) fn read<T>(
        &mut self,
        sink: &mut Sink,
        key: &'static str,
        parse: impl FnOnce(&'t Value<'i>) -> Result<T, Problems>,
    ) -> Option<Spanned<T>> {
        self.known.push(key);
        let (_, value) = self.table.get_key_value(key)?;
        let parsed = parse(value);
        let list = value.get_ref().as_array();
        let items = list.map(|items| items.iter().map(Spanned::span).collect()).unwrap_or_default();
        let (span, tables, right) = (value.span(), Vec::new(), parsed.is_ok());
        let place = Place { span, is_list: list.is_some(), items, tables, right };
        self.at.insert(key, place);
        match parsed {
            Ok(parsed) => Some(Spanned::new(value.span(), parsed)),
            Err(problems) => {
                for problem in problems.0 {
                    sink.error(problem.span, format!("`{key}`: {}", problem.message), problem.help);
                }
                None
            }
        }
    }

    /// Reads a key that must be there.
    pub(crate) fn require<T>(
        &mut self,
        sink: &mut Sink,
        key: &'static str,
        help: &str,
        parse: impl FnOnce(&'t Value<'i>) -> Result<T, Problems>,
    ) -> Option<Spanned<T>> {
        self.need(sink, key, help);
        self.read(sink, key, parse)
    }

    /// Reports a key that is not there.
    pub(crate) fn need(&mut self, sink: &mut Sink, key: &'static str, help: &str) {
        if self.table.get_key_value(key).is_none() {
            sink.error(self.span(), format!("{} has no `{key}`", self.title), help);
        }
    }

    /// Reads tables, whose lines people begin with `title`; `false` if one of them is incomplete. The last of `names` is
    /// what messages call one of them.
    pub(crate) fn tables<T: Keys>(
        &mut self,
        sink: &mut Sink,
        key: &'static str,
        title: &str,
        names: impl IntoIterator<Item = &'static str>,
    ) -> (Vec<T>, bool) {
        let Some(tables) = self.read(sink, key, |value| value::tables(value, title)) else {
            return (Vec::new(), true);
        };
        let name = names.into_iter().last().unwrap_or(key);
        let tables = tables.into_inner().into_iter();
        self.keep(key, tables.map(|table| read(name, table, sink)).collect())
    }

    /// Reads a table.
    pub(crate) fn table<T: Keys>(
        &mut self,
        sink: &mut Sink,
        key: &'static str,
        title: &'static str,
    ) -> (Option<T>, bool) {
        let Some(table) = self.read(sink, key, value::table) else {
            return (None, true);
        };
        let (mut values, complete) = self.keep(key, vec![read(title, table.into_inner(), sink)]);
        (values.pop(), complete)
    }

    /// The values of tables, whose places are kept.
    fn keep<T>(&mut self, key: &'static str, read: Vec<Read<T>>) -> (Vec<T>, bool) {
        let complete = read.iter().all(|table| table.complete);
        let (values, places) = read.into_iter().map(|table| (table.value, table.at)).unzip();
        self.at.set_tables(key, places);
        (values, complete)
    }

    /// Keys that could be here, and are not.
    pub(crate) fn know(&mut self, keys: &[&'static str]) {
        self.known.extend(keys);
    }

    /// Whether a key has been read or refused.
    pub(crate) fn knows(&self, key: &str) -> bool {
        self.known.iter().chain(&self.refused).any(|known| *known == key)
    }

    /// Refuses a key that means something elsewhere, with the reason.
    pub(crate) fn refuse(&mut self, sink: &mut Sink, key: &'static str, why: &str, help: &str) {
        self.refused.push(key);
        if let Some((name, _)) = self.table.get_key_value(key) {
            sink.error(name.span(), format!("`{key}`: {why}"), help);
        }
    }

    /// The word of a key, if it is one.
    pub(crate) fn word(&self, key: &str) -> Option<&'t str> {
        self.table.get_key_value(key)?.1.get_ref().as_str()
    }

    /// Whether a key is there, right or wrong.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.table.get_key_value(key).is_some()
    }

    /// Reports the keys that were not read, and says where the others stand.
    pub(crate) fn finish(self, sink: &mut Sink) -> Places {
        for key in self.table.keys() {
            let name = key.get_ref().as_ref();
            if self.known.contains(&name) || self.refused.contains(&name) {
                continue;
            }
            let message = format!("unknown key `{name}` in {}", self.title);
            let diagnostic = Diagnostic::error(key.span(), message);
            sink.push(match closest(name, &self.known) {
                Some(known) => diagnostic.label(format!("did you mean `{known}`?")),
                None => diagnostic.help(format!("the keys are {}", enumerate(&self.known))),
            });
        }
        self.at
    }
}

/// "`a`, `b` and `c`".
fn enumerate(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
