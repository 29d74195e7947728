//! The text's top level, and what is kept of it until everything has been checked.

use toml::de::{DeTable, DeValue};

use crate::diagnostic::{Diagnostic, Sink};
use crate::section::Section;
use crate::sections;
use crate::translator::{self, Draft};
use crate::types::{Config, Control, Log, Metrics};

/// The parts of the file, with their places where checks across parts need them.
pub(crate) struct Drafts {
    pub(crate) translators: Vec<Draft>,
    control: Control,
    metrics: Metrics,
    log: Log,
}

/// Reads a text. What is wrong goes to `sink`; what is right is returned.
pub(crate) fn read(text: &str, sink: &mut Sink) -> Drafts {
    let (root, errors) = DeTable::parse_recoverable(text);
    // Recovery from a syntax error makes values up: what follows would only confuse.
    let broken = !errors.is_empty();
    for error in errors {
        let span = error.span().unwrap_or(0..0);
        let message = format!("this is no TOML: {}", error.message());
        sink.push(Diagnostic::error(span, message));
    }
    let mut drafts = Drafts {
        translators: Vec::new(),
        control: Control::default(),
        metrics: Metrics::default(),
        log: Log::default(),
    };
    if broken {
        return drafts;
    }
    let mut top = Section::new("this file", root.get_ref(), 0..0);
    read_translators(&mut top, sink, &mut drafts);
    if let Some(control) = top.read(sink, "control", sections::table) {
        drafts.control = sections::control(control.into_inner(), sink);
    }
    if let Some(metrics) = top.read(sink, "metrics", sections::table) {
        drafts.metrics = sections::metrics(metrics.into_inner(), sink);
    }
    if let Some(log) = top.read(sink, "log", sections::table) {
        drafts.log = sections::log(log.into_inner(), sink);
    }
    top.refuse(
        sink,
        "dns64",
        "this version of fordway has no DNS64 server",
        "leave [dns64] out, and run a DNS64 server of your choice beside fordway",
    );
    top.finish(sink);
    drafts
}

fn read_translators(top: &mut Section<'_, '_>, sink: &mut Sink, drafts: &mut Drafts) {
    let help = "begin a translator with a line [[translator]]";
    let tables = top.require(sink, "translator", help, |value| match value.get_ref() {
        DeValue::Array(items) => {
            crate::section::Problems::collect(items.iter().map(sections::table))
        }
        _ => Err(crate::section::Problem::new(
            value.span(),
            "there may be several translators, so this is a list",
            "write [[translator]], with two brackets",
        )
        .into()),
    });
    let Some(tables) = tables else { return };
    if tables.get_ref().is_empty() {
        let message = "the list of translators is empty";
        sink.push(Diagnostic::error(tables.span(), message).help(help));
    }
    for table in tables.into_inner() {
        drafts.translators.extend(translator::read(table, sink));
    }
}

impl Drafts {
    /// The configuration. `None` when a translator is incomplete; then that has been reported.
    pub(crate) fn finish(self) -> Option<Config> {
        let translators: Option<Vec<_>> = self.translators.into_iter().map(Draft::finish).collect();
        Some(Config {
            translators: translators?,
            control: self.control,
            metrics: self.metrics,
            log: self.log,
        })
    }
}
