//! What is wrong with an experiment file, each with its place in the text.

use std::fmt;
use std::ops::Range;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use serde::Serialize;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Octets of the text that it is about.
    pub(crate) span: Range<usize>,
    /// One sentence without a full stop.
    pub(crate) message: String,
    /// What to write instead.
    pub(crate) fix: Option<String>,
}

/// Everything that is wrong with one file, in the order of the text. Displays as plain text, with the lines
/// concerned and carets under them.
#[derive(Debug, Clone)]
pub struct Findings {
    origin: String,
    text: String,
    all: Vec<Finding>,
}

/// A finding as a machine reads it.
#[derive(Debug, Clone, Serialize)]
pub struct Located<'a> {
    /// From 1.
    line: usize,
    /// In characters, from 1.
    column: usize,
    /// What is wrong.
    message: &'a str,
    /// What to write instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<&'a str>,
}

impl Findings {
    /// Of a text that was read from `origin`.
    pub(crate) fn new(origin: &str, text: &str, mut all: Vec<Finding>) -> Self {
        // What cannot be must not be said twice of one place.
        all.sort_by(|a, b| (a.span.start, &a.message).cmp(&(b.span.start, &b.message)));
        all.dedup();
        Self { origin: origin.to_owned(), text: text.to_owned(), all }
    }

    /// Each with its line and column.
    pub fn located(&self) -> impl Iterator<Item = Located<'_>> {
        self.all.iter().map(|finding| {
            let start = finding.span.start.min(self.text.len());
            let before = self.text.get(..start).unwrap_or_default();
            let line_start = before.rfind('\n').map_or(0, |at| at + 1);
            Located {
                line: before.matches('\n').count() + 1,
                column: before[line_start..].chars().count() + 1,
                message: &finding.message,
                fix: finding.fix.as_deref(),
            }
        })
    }

    /// As text for a terminal, with colours or without.
    pub fn render(&self, coloured: bool) -> String {
        let renderer = if coloured { Renderer::styled() } else { Renderer::plain() };
        let renderer = renderer.decor_style(DecorStyle::Ascii);
        let one = |finding: &Finding| {
            let end = self.text.len();
            let start = finding.span.start.min(end);
            // A value over many lines is shown by its first.
            let line = self.text.get(start..).and_then(|rest| rest.find('\n'));
            let last = line.map_or(end, |length| start + length);
            let span = start..finding.span.end.clamp(start, last);
            let snippet = Snippet::source(self.text.as_str())
                .path(self.origin.as_str())
                .annotation(AnnotationKind::Primary.span(span));
            let group = Level::ERROR.primary_title(finding.message.as_str()).element(snippet);
            renderer.render(&[match &finding.fix {
                Some(fix) => group.element(Level::HELP.message(fix.as_str())),
                None => group,
            }])
        };
        self.all.iter().map(one).collect::<Vec<String>>().join("\n\n")
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

/// `did you mean ...?`, or the list of what there is.
pub(crate) fn nearest<'a>(
    word: &str,
    known: impl IntoIterator<Item = &'a str>,
    what: &str,
) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let likeness = |name: &str| {
        let other = name.to_lowercase().replace('-', "_");
        strsim::jaro_winkler(&word.to_lowercase().replace('-', "_"), &other)
    };
    let best = known.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    match best.filter(|name| likeness(name) > 0.8) {
        Some(name) => format!("did you mean `{name}`?"),
        None => format!("{what}: {}", known.join(", ")),
    }
}
