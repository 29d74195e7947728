//! Styles, and lines for people on standard error.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

/// Style of the word "error".
pub const ERROR: Style = AnsiColor::Red.on_default().bold();
/// Style of the word "warning".
pub const WARNING: Style = AnsiColor::Yellow.on_default().bold();
/// Style of headings.
pub const STRONG: Style = Style::new().bold();
/// Style of what may be passed over.
pub const FAINT: Style = Style::new().dimmed();
/// Style of what is well.
pub const GOOD: Style = AnsiColor::Green.on_default();

/// Writes a line with styles to standard error. A write error is ignored and does not change the exit code.
pub fn complain(line: &str) {
    let _ = writeln!(anstream::AutoStream::auto(io::stderr().lock()), "{line}");
}
