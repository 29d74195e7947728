//! `fordway check`.

use fordway_config::{LoadError, Loaded, Report, Severity, load};
use serde::Serialize;

use crate::cli::CheckArgs;
use crate::failure::Failure;
use crate::output;

/// `--json`.
#[derive(Serialize)]
struct Checked<'a> {
    valid: bool,
    messages: Vec<Line<'a>>,
    translators: Vec<Entry>,
}

#[derive(Serialize)]
struct Line<'a> {
    severity: &'static str,
    line: usize,
    column: usize,
    message: &'a str,
}

#[derive(Serialize)]
struct Entry {
    name: String,
    mode: &'static str,
}

pub(crate) fn run(args: &CheckArgs) -> Result<(), Failure> {
    match load(&args.config) {
        Ok(loaded) => valid(args, &loaded),
        Err(LoadError::Invalid(report)) if args.json => {
            let messages = lines(&report);
            output::print_json(&Checked { valid: false, messages, translators: Vec::new() })?;
            Err(Failure::Reported)
        }
        Err(error) => Err(error.into()),
    }
}

fn valid(args: &CheckArgs, loaded: &Loaded) -> Result<(), Failure> {
    let translators = loaded.config.translators.iter().map(|translator| Entry {
        name: translator.name.to_string(),
        mode: translator.mode_name(),
    });
    let translators: Vec<Entry> = translators.collect();
    if args.json {
        let messages = lines(&loaded.warnings);
        return output::print_json(&Checked { valid: true, messages, translators });
    }
    print_warnings(&loaded.warnings);
    if args.print_config {
        return output::print(&loaded.config.to_string());
    }
    let list: Vec<String> =
        translators.iter().map(|entry| format!("{} ({})", entry.name, entry.mode)).collect();
    let good = output::GOOD;
    let origin = loaded.warnings.origin();
    output::print(&format!("{origin}: {good}valid{good:#}; {}\n", list.join(", ")))
}

fn lines(report: &Report) -> Vec<Line<'_>> {
    report
        .lines()
        .map(|(severity, line, column, message)| Line {
            severity: match severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
            },
            line,
            column,
            message,
        })
        .collect()
}

/// Writes warnings to standard error.
pub(crate) fn print_warnings(warnings: &Report) {
    if !warnings.is_empty() {
        crate::output::complain(&warnings.render(true));
    }
}
