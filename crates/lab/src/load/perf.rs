//! Processor cycles by `perf stat`, where the processor's counters can be read.

use std::path::Path;

use crate::error::{LabError, Result};
use crate::process::{find_program, run_str};

const EVENT: &str = "cycles";

/// Whether cycles can be counted here: the reason when they can't.
pub(crate) fn available() -> std::result::Result<(), String> {
    if find_program("perf").is_none() {
        return Err("perf is not installed: apt-get install linux-perf".into());
    }
    let said = run_str(&["perf", "stat", "-a", "-x", ";", "-e", EVENT, "--", "true"])
        .map_err(|e| e.to_string())?;
    read(&said.stderr).map(|_| ()).map_err(|why| match why {
        Unread::NotCounted => "no hardware counters on this host".into(),
        Unread::Missing => format!("perf says: {}", crate::process::last_lines(&said.stderr, 1)),
    })
}

/// The command line that counts over all processors while `argv` runs.
pub(crate) fn around(argv: &[String], output: &Path) -> Vec<String> {
    let output = output.display().to_string();
    let own = ["perf", "stat", "-a", "-x", ";", "-e", EVENT, "-o", &output, "--"];
    own.iter().map(ToString::to_string).chain(argv.iter().cloned()).collect()
}

/// The cycles in a file that [`around`] wrote.
pub(crate) fn cycles(output: &Path) -> Result<f64> {
    let text = std::fs::read_to_string(output).map_err(LabError::file(output))?;
    read(&text).map_err(|_| LabError::Parse { tool: "perf stat", why: text.trim().to_owned() })
}

#[derive(Debug, PartialEq, Eq)]
enum Unread {
    /// `perf` names the event but counted nothing.
    NotCounted,
    /// The event is not there.
    Missing,
}

/// Fields: value; unit; event; ...
fn read(text: &str) -> std::result::Result<f64, Unread> {
    let line = text.lines().find(|line| {
        let event = line.split(';').nth(2).unwrap_or_default();
        // perf adds modifiers and units of the processor: `cycles:k`, `cpu_core/cycles/`.
        event.split([':', '/']).any(|part| part == EVENT)
    });
    let value = line.and_then(|l| l.split(';').next()).ok_or(Unread::Missing)?;
    value.parse().map_err(|_| Unread::NotCounted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_read_and_its_absence_is_told_apart() {
        let good = "# started on Sat\n\n2345678901;;cycles;2004123456;100.00;;\n";
        assert_eq!(read(good), Ok(2_345_678_901.0));
        assert_eq!(read("123;;cpu_core/cycles/;1;100.00;;\n"), Ok(123.0));
        let without = "<not supported>;;cycles;0;100.00;;\n";
        assert_eq!(read(without), Err(Unread::NotCounted));
        assert_eq!(read("<not counted>;;cycles;0;0.00;;\n"), Err(Unread::NotCounted));
        assert_eq!(read("Error: no permission\n"), Err(Unread::Missing));
    }

    #[test]
    fn the_measured_command_keeps_its_arguments() {
        let argv = around(&["a".into(), "--b".into()], Path::new("/tmp/x"));
        assert_eq!(argv[argv.len() - 3..], ["--", "a", "--b"]);
    }
}
