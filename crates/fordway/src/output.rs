//! Writing results to standard output.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use crate::failure::Failure;

/// Style of the word "error".
pub(crate) const ERROR: Style = AnsiColor::Red.on_default().bold();
/// Style of the word "warning".
pub(crate) const WARNING: Style = AnsiColor::Yellow.on_default().bold();
/// Style of headings.
pub(crate) const STRONG: Style = Style::new().bold();
/// Style of what may be passed over.
pub(crate) const FAINT: Style = Style::new().dimmed();
/// Style of what is well.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();

/// Writes text with styles, which are left out where they don't belong (no terminal, NO_COLOR).
///
/// A closed pipe (`| head`) ends the command, but not as a failure: [`Failure::Closed`].
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = anstream::AutoStream::auto(io::stdout().lock());
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::Closed,
        _ => Failure::failed(format!("cannot write to standard output: {error}")),
    })
}

/// Writes a line with styles to standard error. A write error is ignored and does not change the exit code.
pub(crate) fn complain(line: &str) {
    let _ = writeln!(anstream::AutoStream::auto(io::stderr().lock()), "{line}");
}

/// Writes a value as indented JSON.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    print(&format!("{}\n", serde_json::to_string_pretty(value)?))
}

/// Writes a value as JSON on one line.
pub(crate) fn print_json_line(value: &impl Serialize) -> Result<(), Failure> {
    print(&format!("{}\n", serde_json::to_string(value)?))
}

/// The items with `, ` between them.
pub(crate) fn joined<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}

/// The items with `, ` between them; `none`: there are none.
pub(crate) fn joined_or<T: ToString>(items: impl IntoIterator<Item = T>, none: &str) -> String {
    let text = joined(items);
    if text.is_empty() { none.to_owned() } else { text }
}
