//! `compare`: runs against runs.

use std::path::{Path, PathBuf};

use fordway_data::artefacts::{self, Run};
use fordway_data::compare::{Compared, FEWEST, compare};
use fordway_data::error::DataError;
use fordway_data::files::write_file;
use fordway_data::numbers::nice;
use fordway_data::report::words::{interval, p};
use fordway_data::report::{comparison, terminal};
use fordway_data::spec::quantity;
use fordway_stats::paired::Verdict;

use crate::cli::{CompareArgs, FailIf};
use crate::error::{EXIT_DONE, EXIT_FAILED, LabError, Result};

/// Compares the runs of B with those of A.
pub(super) fn compare_runs(args: &CompareArgs) -> Result<u8> {
    let (before, after) = match args.runs.as_slice() {
        [a, b] => (std::slice::from_ref(a), std::slice::from_ref(b)),
        _ => (args.before.as_slice(), args.after.as_slice()),
    };
    let read = |dirs: &[PathBuf]| -> Result<Vec<(String, Run)>> {
        dirs.iter().map(|dir| Ok((dir.display().to_string(), artefacts::read(dir)?))).collect()
    };
    let found = compare(&read(before)?, &read(after)?);
    if args.fail_if.is_some() && !found.can_decide() {
        return Err(LabError::Usage(format!(
            "--fail-if needs {FEWEST} runs on each side: with fewer nothing can be decided, so nothing could fail"
        )));
    }
    if let Some(out) = &args.out {
        write(&found, out)?;
    }
    if args.json {
        super::print_json(&found)?;
    } else {
        print(&found);
        if let Some(out) = &args.out {
            anstream::println!("\nReport  {}", out.join("compare.html").display());
        }
    }
    let fails = |verdict: Verdict| match args.fail_if {
        None => false,
        Some(FailIf::Worse) => verdict == Verdict::Worse,
        Some(FailIf::Different) => verdict.differs(),
    };
    let bad = found.cells.iter().any(|c| fails(c.verdict));
    Ok(if bad { EXIT_FAILED } else { EXIT_DONE })
}

fn write(found: &Compared, out: &Path) -> Result<()> {
    let json = serde_json::to_vec_pretty(found)
        .map_err(|e| DataError::Artefact { path: out.join("compare.json"), why: e.to_string() })?;
    write_file(&out.join("compare.json"), &json)?;
    let drawn = comparison::draw(found)?;
    for figure in &drawn {
        let path = out.join("figures").join(format!("{}.svg", figure.name));
        write_file(&path, figure.svg.as_bytes())?;
    }
    Ok(write_file(&out.join("compare.html"), comparison::render(found, &drawn)?.as_bytes())?)
}

fn print(found: &Compared) {
    for (name, side) in [("A", &found.a), ("B", &found.b)] {
        for run in side {
            anstream::println!(
                "{name}  {}  {}  {}  {}",
                run.folder,
                run.experiment,
                run.started,
                run.machine
            );
        }
    }
    if !found.differences.is_empty() {
        anstream::println!("\nWhat differs");
        let row =
            |d: &fordway_data::compare::Difference| vec![d.what.clone(), short(&d.a), short(&d.b)];
        let head = ["", "A", "B"].map(str::to_owned).to_vec();
        terminal::print_rows(
            &std::iter::once(head).chain(found.differences.iter().map(row)).collect::<Vec<_>>(),
        );
    }
    anstream::println!();
    let head =
        ["mechanism", "metric", "unit", "A", "B", "runs", "B / A", "95 %", "p Holm", "verdict"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for cell in &found.cells {
        rows.push(vec![
            cell.mechanism.clone(),
            quantity(cell.metric, cell.point.as_ref()),
            cell.unit.clone(),
            comparison::value(&cell.a),
            comparison::value(&cell.b),
            format!("{} / {}", cell.a.runs, cell.b.runs),
            cell.ratio.map_or_else(|| "–".into(), nice),
            interval(cell.ratio_ci95),
            p(cell.p),
            cell.verdict.word().into(),
        ]);
    }
    terminal::print_rows(&rows);
    for (name, only) in [("A", &found.only_a), ("B", &found.only_b)] {
        if !only.is_empty() {
            anstream::println!("\nOnly in {name}: {}", only.join("; "));
        }
    }
    for warning in &found.warnings {
        let yellow = anstyle::AnsiColor::Yellow.on_default();
        anstream::println!("{yellow}warning{yellow:#}  {warning}");
    }
}

/// The beginning of a long value.
fn short(text: &str) -> String {
    const MOST: usize = 60;
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    format!("{}…", text.chars().take(MOST).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use fordway_data::fixture;

    #[test]
    fn the_status_says_worse_only_when_asked() {
        let dir = tempfile::tempdir().unwrap();
        let folder = |name: &str, factor| {
            let folder = dir.path().join(name);
            fixture::folder(&folder, "nat64", 4, factor);
            folder
        };
        let side = |name: &str, factor| -> Vec<PathBuf> {
            (1..=3)
                .map(|n| folder(&format!("{name}{n}"), factor * (1.0 + 0.001 * f64::from(n))))
                .collect()
        };
        let (a, out) = (side("a", 1.0), dir.path().join("out"));
        // An arm alone is slower; all arms of the fixture are so many times as fast together.
        let b: Vec<PathBuf> = side("b", 1.0);
        for folder in &b {
            slower(&folder.join("trials.jsonl"), "nat44");
        }
        let args = |before: &[PathBuf], after: &[PathBuf], fail_if| CompareArgs {
            runs: Vec::new(),
            before: before.into(),
            after: after.into(),
            json: false,
            out: Some(out.clone()),
            fail_if,
        };
        let status = |before: &[PathBuf], after: &[PathBuf], fail_if| {
            compare_runs(&args(before, after, fail_if))
        };
        assert_eq!(status(&a, &b, None).unwrap(), EXIT_DONE);
        assert_eq!(status(&a, &b, Some(FailIf::Worse)).unwrap(), EXIT_FAILED);
        assert_eq!(status(&a, &a, Some(FailIf::Different)).unwrap(), EXIT_DONE);
        let page = std::fs::read_to_string(out.join("compare.html")).unwrap();
        assert!(
            page.contains("<svg") && !page.contains("src=\"") && out.join("compare.json").is_file()
        );
        // A check that cannot be made has not passed.
        let one = CompareArgs { runs: vec![a[0].clone(), b[0].clone()], ..args(&[], &[], None) };
        assert_eq!(compare_runs(&one).unwrap(), EXIT_DONE);
        let refused =
            compare_runs(&CompareArgs { fail_if: Some(FailIf::Worse), ..one }).unwrap_err();
        assert!(refused.to_string().contains("needs 3 runs on each side"), "{refused}");
    }

    /// Halves the values of one arm in a ledger.
    fn slower(path: &Path, arm: &str) {
        let text = std::fs::read_to_string(path).unwrap();
        let line = |line: &str| {
            let mut trial: serde_json::Value = serde_json::from_str(line).unwrap();
            if trial["mechanism"] == arm
                && let Some(value) = trial["value"].as_f64()
            {
                trial["value"] = (0.5 * value).into();
            }
            format!("{trial}\n")
        };
        std::fs::write(path, text.lines().map(line).collect::<String>()).unwrap();
    }
}
