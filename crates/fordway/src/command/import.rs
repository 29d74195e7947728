//! `fordway import`: a configuration file of another translator becomes one of ours.
//!
//! A setting without a counterpart becomes a comment in the output, so that it is not mistaken for one in effect. The
//! output is validated like any configuration before it is printed.

mod clatd;
mod jool;
mod tayga;

use std::fmt::Write as _;
use std::fs;
use std::io::Read as _;
use std::path::Path;

use fordway_config::parse;
use fordway_daemon::failure::Failure;
use fordway_daemon::output;
use toml::{Table, Value};

use crate::cli::{ImportArgs, Origin};

/// A `[[translator]]` under construction.
#[derive(Debug, Default)]
struct Draft {
    keys: Vec<(&'static str, Value)>,
    /// `[[translator.pool]]` and `[[translator.log]]`.
    tables: Vec<(&'static str, Table)>,
    /// Settings without a counterpart, and differences that an operator has to know.
    notes: Vec<String>,
}

pub(crate) fn run(args: &ImportArgs) -> Result<(), Failure> {
    let name = args.file.display().to_string();
    let text = read(&args.file)?;
    let draft = match args.program {
        Origin::Jool => jool::nat64(&name, &text, args.uplink.as_deref())?,
        Origin::JoolSiit => jool::siit(&name, &text)?,
        Origin::Tayga => tayga::read(&name, &text)?,
        Origin::Clatd => clatd::read(&name, &text)?,
    };
    let text = draft.written(&name)?;
    if let Err(report) = parse("(the imported configuration)", &text) {
        // Standard output stays empty, so that an invalid configuration is not redirected into a file.
        output::complain(text.trim_end());
        return Err(Failure::Config(report));
    }
    output::print(&text)
}

fn read(file: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let read = match file.as_os_str() == "-" {
        true => std::io::stdin().read_to_string(&mut text).map(|_| text),
        false => fs::read_to_string(file),
    };
    read.map_err(|error| Failure::failed(format!("cannot read {}: {error}", file.display())))
}

/// A mistake in the file that is imported.
fn wrong(file: &str, place: impl std::fmt::Display, what: &str, help: &str) -> Failure {
    Failure::usage(format!("{file}:{place}: {what}"), help)
}

impl Draft {
    /// A translator of this mode. `name`: what the other program calls it.
    fn new(mode: &str, name: &str, fallback: &str) -> Draft {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let fits = (1..=15).contains(&name.len())
            && name.chars().all(is_plain)
            && !name.starts_with(['-', '.']);
        let mut draft = Draft::default();
        draft.put("name", if fits { name } else { fallback });
        draft.put("mode", mode);
        if !fits {
            draft.note(
                "name",
                format!("{name:?} is no name of a Linux interface; it is {fallback} here"),
            );
        }
        draft
    }

    /// Puts a key; the last one counts.
    fn put(&mut self, key: &'static str, value: impl Into<Value>) {
        self.keys.retain(|(known, _)| *known != key);
        self.keys.push((key, value.into()));
    }

    /// Puts a list, unless it is empty.
    fn list(&mut self, key: &'static str, values: Vec<Value>) {
        if !values.is_empty() {
            self.put(key, values);
        }
    }

    /// `place`: a key or a line of the imported file.
    fn note(&mut self, place: impl std::fmt::Display, text: impl std::fmt::Display) {
        self.notes.push(format!("{place}: {text}"));
    }

    fn written(&self, file: &str) -> Result<String, Failure> {
        let mut out = format!("# Imported from {file}.\n");
        if !self.notes.is_empty() {
            out.push_str("# Not the same as there:\n");
        }
        for note in &self.notes {
            // A line of the file that is repeated here ends no comment.
            let _ = writeln!(out, "# - {}", note.replace(['\n', '\r'], " "));
        }
        out.push_str("\n[[translator]]\n");
        for (key, value) in &self.keys {
            let _ = writeln!(out, "{key} = {value}");
        }
        for (name, table) in &self.tables {
            let _ = write!(out, "\n[[translator.{name}]]\n");
            for (key, value) in table {
                let _ = writeln!(out, "{key} = {value}");
            }
        }
        Ok(out)
    }
}
