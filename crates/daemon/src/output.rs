//! Writing results to standard output.

use std::io::{self, Write};

use serde::Serialize;

use crate::failure::Failure;
pub use crate::terminal::{ERROR, FAINT, GOOD, STRONG, WARNING, complain};

/// Writes text with styles, which are left out where they don't belong (no terminal, NO_COLOR).
///
/// A closed pipe (`| head`) ends the command, but not as a failure: [`Failure::Closed`].
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = anstream::AutoStream::auto(io::stdout().lock());
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::Closed,
        _ => Failure::failed(format!("cannot write to standard output: {error}")),
    })
}

/// Writes a value as indented JSON.
pub fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    print(&format!("{}\n", serde_json::to_string_pretty(value)?))
}

/// Writes a value as JSON on one line.
pub fn print_json_line(value: &impl Serialize) -> Result<(), Failure> {
    print(&format!("{}\n", serde_json::to_string(value)?))
}

/// The items with `, ` between them.
pub fn joined<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}

/// The items with `, ` between them; `none`: there are none.
pub fn joined_or<T: ToString>(items: impl IntoIterator<Item = T>, none: &str) -> String {
    let text = joined(items);
    if text.is_empty() { none.to_owned() } else { text }
}

/// A number with its digits in groups of three.
pub fn group(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::group;

    #[test]
    fn groups_of_three() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (1_234_567, "1,234,567"),
            (u64::MAX, "18,446,744,073,709,551,615"),
        ] {
            assert_eq!(group(number), text);
        }
    }
}
