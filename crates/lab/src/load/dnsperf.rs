//! Questions by `dnsperf`, which everybody knows: a closed loop, and no look at what is in the answers.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fordway_data::files::write_file;
use fordway_data::spec::Mixed;
use fordway_load::dns::message::{Name, Sort};

use crate::backend::{Backend, Place};
use crate::error::{LabError, Result};
use crate::mechanism::Placement;
use crate::process::{Finished, Output};

/// New names per second of questions: more than any server here answers on one machine.
const NEW_PER_S: f64 = 300_000.0;

/// What `dnsperf` says.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Said {
    /// Questions sent.
    pub(crate) sent: u64,
    /// Of them, those that were answered.
    pub(crate) answered: u64,
    /// Of the answers, those without an error.
    pub(crate) good: u64,
    /// Answers per second.
    pub(crate) rate: f64,
}

/// Writes the file of names, unless this run has it already: `series` and how many.
pub(crate) fn names(dir: &Path, series: u16, count: u32) -> Result<PathBuf> {
    let path = dir.join(format!("dnsperf-{series:04x}-{count}.txt"));
    if !path.exists() {
        let mut text = String::with_capacity(count as usize * 32);
        for number in 0..count {
            text.push_str(&Name { sort: Sort::OnlyA, series, number }.text());
            text.push_str(" AAAA\n");
        }
        write_file(&path, text.as_bytes())?;
    }
    Ok(path)
}

/// How many names that nobody has asked for a measurement of this length takes.
pub(crate) fn new_names(seconds: f64) -> u32 {
    (NEW_PER_S * seconds) as u32
}

/// What is asked for.
#[derive(Debug)]
pub(crate) struct Questions<'a> {
    /// The file of names.
    pub(crate) file: &'a Path,
    pub(crate) mixed: Mixed,
    /// How long it is asked, seconds.
    pub(crate) seconds: f64,
    /// How long each answer may take, seconds.
    pub(crate) patience_s: f64,
}

/// Asks for the names of a file.
pub(crate) fn measure(
    backend: &dyn Backend,
    place: &Place,
    target: SocketAddr,
    questions: &Questions<'_>,
    placement: &Placement,
) -> Result<(Finished, Said)> {
    let (server, port) = (target.ip().to_string(), target.port().to_string());
    let (file, seconds_text) =
        (questions.file.display().to_string(), questions.seconds.to_string());
    let window = super::dns::window(placement).to_string();
    let mut argv = placement.tester.clone();
    argv.extend(
        ["dnsperf", "-s", &server, "-p", &port, "-d", &file, "-l", &seconds_text, "-c", "32", "-q"]
            .map(str::to_owned),
    );
    argv.extend([window, "-t".into(), questions.patience_s.to_string()]);
    if questions.mixed == Mixed::Fresh {
        // Over the file once: no name comes again.
        argv.extend(["-n", "1"].map(str::to_owned));
    }
    let limit = Duration::from_secs_f64(questions.seconds + questions.patience_s + 15.0);
    let finished = backend.run(Some(place), &argv, Output::Keep)?.wait(limit)?.ok()?;
    let said = parse(&finished.stdout)?;
    Ok((finished, said))
}

fn parse(text: &str) -> Result<Said> {
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(name))?;
        line.split_whitespace().next()
    };
    let bad = |name: &str| LabError::Parse { tool: "dnsperf", why: format!("no `{name}`") };
    let count = |name: &str| value(name).and_then(|v| v.parse().ok()).ok_or_else(|| bad(name));
    let codes = text.lines().find(|line| line.trim().starts_with("Response codes:"));
    let good = codes
        .and_then(|line| line.split_once("NOERROR")?.1.split_whitespace().next()?.parse().ok());
    Ok(Said {
        sent: count("Queries sent:")?,
        answered: count("Queries completed:")?,
        good: good.unwrap_or(0),
        rate: value("Queries per second:")
            .and_then(|v| v.parse().ok())
            .ok_or_else(|| bad("Queries per second:"))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_statistics_are_read() {
        let text = "Statistics:\n\n  Queries sent:         12000\n  Queries completed:    11998 \
                    (99.98%)\n  Queries lost:         2 (0.02%)\n\n  Response codes:       NOERROR \
                    11990 (99.93%), SERVFAIL 8 (0.07%)\n  Run time (s):         0.500123\n  Queries \
                    per second:   23990.098116\n";
        let said = parse(text).unwrap();
        assert_eq!((said.sent, said.answered, said.good), (12_000, 11_998, 11_990));
        assert!((said.rate - 23_990.098_116).abs() < 1e-6);
        assert!(parse("Error: nothing").is_err());
    }

    #[test]
    fn names_are_written_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = names(dir.path(), 7, 3).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().next(), Some("n000700000000.lab.example AAAA"));
        assert_eq!(text.lines().count(), 3);
        assert_eq!(names(dir.path(), 7, 3).unwrap(), path);
    }
}
