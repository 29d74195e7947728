//! `compare`: two runs against each other.

use std::path::Path;

use fordway_data::artefacts;
use fordway_data::compare::{Compared, compare};
use fordway_data::error::DataError;
use fordway_data::files::write_file;
use fordway_data::numbers::nice;
use fordway_data::report::words::{interval, p};
use fordway_data::report::{comparison, terminal};
use fordway_data::spec::quantity;
use fordway_stats::paired::Verdict;

use crate::cli::{CompareArgs, FailIf};
use crate::error::{EXIT_DONE, EXIT_FAILED, Result};

/// Compares run B with run A.
pub(super) fn compare_runs(args: &CompareArgs) -> Result<u8> {
    let (a, b) = (artefacts::read(&args.a)?, artefacts::read(&args.b)?);
    let shown = |dir: &Path| dir.display().to_string();
    let found = compare((&shown(&args.a), &a), (&shown(&args.b), &b));
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
        anstream::println!(
            "{name}  {}  {}  {}  {}",
            side.folder,
            side.experiment,
            side.started,
            side.machine
        );
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
    let head = ["mechanism", "metric", "unit", "A", "B", "B / A", "95 %", "p Holm", "verdict"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for cell in &found.cells {
        rows.push(vec![
            cell.mechanism.clone(),
            quantity(cell.metric, cell.point.as_ref()),
            cell.unit.clone(),
            comparison::value(&cell.a),
            comparison::value(&cell.b),
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
        let (a, b, out) = (folder("a", 1.0), folder("b", 1.5), dir.path().join("out"));
        let status = |a: &Path, b: &Path, fail_if| {
            let out = Some(out.clone());
            compare_runs(&CompareArgs { a: a.into(), b: b.into(), json: false, out, fail_if })
                .unwrap()
        };
        assert_eq!(status(&a, &b, None), EXIT_DONE);
        // Rates rose, and so did delays: something is worse.
        assert_eq!(status(&a, &b, Some(FailIf::Worse)), EXIT_FAILED);
        assert_eq!(status(&a, &a, Some(FailIf::Different)), EXIT_DONE);
        let page = std::fs::read_to_string(out.join("compare.html")).unwrap();
        assert!(
            page.contains("<svg") && !page.contains("src=\"") && out.join("compare.json").is_file()
        );
    }
}
