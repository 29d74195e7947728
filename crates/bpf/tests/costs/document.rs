//! The table of the document.

use std::fmt::Write as _;

use crate::table::{Row, Scope};

/// What stands around the table in the document.
pub(crate) const BEGIN: &str = "<!-- costs -->\n";
pub(crate) const END: &str = "<!-- end of costs -->";

const SHARED: [Scope; 3] = [Scope::Flow, Scope::Subscriber, Scope::All];

/// The table's text.
pub(crate) fn write(rows: &[Row]) -> String {
    let mut text = String::from(
        "\n| path | instructions | map look-ups | other helpers | lines of the flow | of the subscriber | of all | atomic writes to them |\n|---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let Row { path, instructions, lookups, helpers, .. } = row;
        let _ = write!(text, "| {path} | {instructions} | {lookups} | {helpers} |");
        for scope in SHARED {
            let _ = write!(text, " {} |", row.lines.get(&scope).copied().unwrap_or(0));
        }
        let _ = writeln!(text, " {} |", row.atomic);
    }
    text.push('\n');
    text
}

/// The rows of a table's text.
pub(crate) fn read(text: &str) -> Vec<Row> {
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let lines = text.lines().filter(|line| line.starts_with("| ")).skip(1);
    let row = |line: &str| {
        let cells = cells(line);
        let number = |at: usize| cells[at].parse().expect("a number");
        let lines = SHARED.iter().zip(4..).map(|(&scope, at)| (scope, number(at)));
        Row {
            path: cells[0].clone(),
            instructions: number(1),
            lookups: number(2),
            helpers: number(3),
            lines: lines.filter(|&(_, lines)| lines > 0).collect(),
            atomic: number(7),
        }
    };
    lines.map(row).collect()
}
