//! Errors and warnings with their place in the text.

use std::fmt;
use std::ops::Range;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use crate::source::{Part, Source};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The configuration is refused.
    Error,
    /// It is taken, but may not do what was meant.
    Warning,
}

/// One thing to say about one place of the text.
#[derive(Clone, Debug)]
pub(crate) struct Diagnostic {
    pub(crate) severity: Severity,
    /// One sentence without a full stop.
    pub(crate) message: String,
    /// Octets of the text that it is about.
    pub(crate) span: Range<usize>,
    /// What stands beside the caret.
    pub(crate) label: String,
    /// Other places that matter.
    pub(crate) related: Vec<(Range<usize>, String)>,
    /// What to write instead.
    pub(crate) help: Option<String>,
}

impl Diagnostic {
    pub(crate) fn error(span: Range<usize>, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            severity: Severity::Error,
            message: message.into(),
            span,
            label: String::new(),
            related: Vec::new(),
            help: None,
        }
    }

    pub(crate) fn warning(span: Range<usize>, message: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Warning, ..Diagnostic::error(span, message) }
    }

    pub(crate) fn label(mut self, label: impl Into<String>) -> Diagnostic {
        self.label = label.into();
        self
    }

    /// Adds another place that matters.
    pub(crate) fn beside(&mut self, span: Range<usize>, label: impl Into<String>) {
        self.related.push((span, label.into()));
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Diagnostic {
        self.help = Some(help.into());
        self
    }
}

/// Diagnostics that a report keeps. Nobody reads more at once, and each takes a walk over the text.
const MAX_KEPT: usize = 100;

/// Collects diagnostics while a text is read.
#[derive(Debug, Default)]
pub(crate) struct Sink(Vec<Diagnostic>);

impl Sink {
    pub(crate) fn push(&mut self, diagnostic: Diagnostic) {
        self.0.push(diagnostic);
    }

    /// An error: what is wrong at a place, and what to write.
    pub(crate) fn error(
        &mut self,
        span: Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> &mut Diagnostic {
        self.0.push_mut(Diagnostic::error(span, message).help(help))
    }

    /// A warning: what may be wrong at a place, and what to write.
    pub(crate) fn warn(
        &mut self,
        span: Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> &mut Diagnostic {
        self.0.push_mut(Diagnostic::warning(span, message).help(help))
    }

    pub(crate) fn into_report(self, source: Source) -> Report {
        let mut diagnostics = self.0;
        // Stable: what concerns one place stays in the order in which it was found.
        diagnostics.sort_by_key(|diagnostic| diagnostic.span.start);
        let errors = diagnostics.iter().filter(|one| one.severity == Severity::Error).count();
        // Errors first where not all are kept, so that a refusal always says why.
        if diagnostics.len() > MAX_KEPT && errors > 0 {
            diagnostics.retain(|one| one.severity == Severity::Error);
        }
        let more = diagnostics.len().saturating_sub(MAX_KEPT);
        diagnostics.truncate(MAX_KEPT);
        Report { source: Box::new(source), diagnostics, more, note: None }
    }
}

/// Everything that is to be said about a configuration text, in the order of the text.
///
/// Displays as plain text, with the lines concerned and carets under them.
#[derive(Clone, Debug)]
pub struct Report {
    source: Box<Source>,
    diagnostics: Vec<Diagnostic>,
    /// How many were left out.
    more: usize,
    /// What is to be said of all of them.
    note: Option<String>,
}

impl Report {
    /// Whether there is nothing to say.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.diagnostics.is_empty()
    }

    /// Whether the configuration is refused.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error)
    }

    /// With a sentence behind all messages.
    #[must_use]
    pub fn with_note(self, note: String) -> Report {
        Report { note: Some(note), ..self }
    }

    /// The sentence behind all messages.
    #[must_use]
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// Each message as one line for a log or JSON: severity, line, column (both from 1, the column
    /// in characters; 0 for a setting, which is in no line of the file), sentence.
    pub fn lines(&self) -> impl Iterator<Item = (Severity, usize, usize, &str)> {
        self.diagnostics.iter().map(|diagnostic| {
            let (line, column) = self.source.position(diagnostic.span.start);
            (diagnostic.severity, line, column, diagnostic.message.as_str())
        })
    }

    /// The name of the text that was read, usually a file's.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.source.origin
    }

    /// The report as text for a terminal, with colours or without.
    #[must_use]
    pub fn render(&self, color: bool) -> String {
        let renderer = if color { Renderer::styled() } else { Renderer::plain() };
        let renderer = renderer.decor_style(DecorStyle::Ascii);
        let mut rendered: Vec<String> = self
            .diagnostics
            .iter()
            .map(|diagnostic| renderer.render(&[self.group(diagnostic)]))
            .collect();
        if self.more > 0 {
            rendered.push(format!("... and {} more of this kind", self.more));
        }
        rendered.extend(self.note.as_ref().map(|note| format!("note: {note}")));
        rendered.join("\n\n")
    }

    fn group<'a>(&'a self, diagnostic: &'a Diagnostic) -> Group<'a> {
        let level = match diagnostic.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let first = self.source.part(diagnostic.span.start);
        let snippet = |part: Part<'a>| Snippet::source(part.text).path(part.origin);
        let primary = AnnotationKind::Primary.span(first.clip(&diagnostic.span));
        let primary = match diagnostic.label.as_str() {
            "" => primary,
            label => primary.label(label),
        };
        let mut shown = snippet(first).annotation(primary);
        let mut elsewhere = Vec::new();
        for (span, label) in &diagnostic.related {
            let part = self.source.part(span.start);
            let context = AnnotationKind::Context.span(part.clip(span)).label(label.as_str());
            match part.start == first.start {
                true => shown = shown.annotation(context),
                false => elsewhere.push(snippet(part).annotation(context)),
            }
        }
        let group = level.primary_title(diagnostic.message.as_str()).element(shown);
        let group = group.elements(elsewhere);
        match &diagnostic.help {
            Some(help) => group.element(Level::HELP.message(help.as_str())),
            None => group,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_keeps_a_readable_number_and_says_how_many_more() {
        let mut sink = Sink::default();
        for _ in 0..MAX_KEPT {
            sink.push(Diagnostic::warning(0..1, "doubtful"));
        }
        for _ in 0..MAX_KEPT + 7 {
            sink.push(Diagnostic::error(1..2, "wrong"));
        }
        let report = sink.into_report(Source::new("origin", "text", &[]));
        assert!(report.has_errors());
        assert_eq!(report.lines().count(), MAX_KEPT);
        assert!(report.render(false).ends_with("... and 7 more of this kind"));
    }
}
