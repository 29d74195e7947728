//! A page of Markdown from kept results: prose from a template, every number from a run.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use fordway_stats::paired::Verdict;
use minijinja::{Environment, ErrorKind, UndefinedBehavior};

use super::words::{brief, interval, interval_at, value, verdict};
use crate::analysis::{Cell, VsBaseline, undecided};
use crate::artefacts::{self, Run};
use crate::error::{DataError, Result};
use crate::spec::{Axis, Experiment, MechanismSpec, Metric, Point};
use crate::trial::Condition;

/// The template, beside the folders of the kept results.
pub const TEMPLATE: &str = "performance.md.jinja";

/// Runs by the names of their folders.
type Runs = BTreeMap<String, Run>;

/// Writes the page of a folder: its template, with the runs in the folders beside it.
///
/// The template calls `machine("RUN")` (what was run on what, and what disturbed it), `table("RUN", "METRIC")` (a row per
/// mechanism, with its configuration, interval and verdict) and
/// `replay("RUN")` (the command that repeats it). A run or a metric that is not there is an error; `kept("RUN")` says
/// whether a run is.
pub fn performance(dir: &Path) -> Result<String> {
    let path = dir.join(TEMPLATE);
    let template = std::fs::read_to_string(&path).map_err(DataError::file(&path))?;
    draw(&template, read(dir)?)
        // A template's last line end is not part of what it makes.
        .map(|page| page + "\n")
        .map_err(|e| DataError::Draw { what: path.display().to_string(), why: format!("{e:#}") })
}

/// The kept results below a folder.
fn read(dir: &Path) -> Result<Runs> {
    let mut runs = Runs::new();
    for entry in std::fs::read_dir(dir).map_err(DataError::file(dir))? {
        let path = entry.map_err(DataError::file(dir))?.path();
        if let (true, Some(name)) = (path.join("spec.toml").is_file(), path.file_name()) {
            runs.insert(name.to_string_lossy().into_owned(), artefacts::read(&path)?);
        }
    }
    Ok(runs)
}

type Drawn = std::result::Result<String, minijinja::Error>;

fn draw(template: &str, runs: Runs) -> Drawn {
    let mut jinja = Environment::new();
    jinja.set_undefined_behavior(UndefinedBehavior::Strict);
    let runs = Arc::new(runs);
    let with = |make: fn(&Run) -> Drawn| {
        let runs = Arc::clone(&runs);
        move |name: String| make(find(&runs, &name)?)
    };
    jinja.add_function("machine", with(|run| Ok(machine(run))));
    jinja.add_function("replay", with(replay));
    jinja.add_function("kept", {
        let runs = Arc::clone(&runs);
        move |name: String| runs.contains_key(&name)
    });
    jinja.add_function("table", {
        let runs = Arc::clone(&runs);
        move |name: String, metric: String| table(find(&runs, &name)?, &metric)
    });
    jinja.render_str(template, ())
}

fn refused(why: String) -> minijinja::Error {
    minijinja::Error::new(ErrorKind::InvalidOperation, why)
}

fn find<'a>(runs: &'a Runs, name: &str) -> std::result::Result<&'a Run, minijinja::Error> {
    runs.get(name).ok_or_else(|| refused(format!("there is no kept result {name}")))
}

/// What was run, on what, and what a reader must know before believing it.
fn machine(run: &Run) -> String {
    let (results, machine) = (&run.results, &run.results.environment);
    let mut lines = Vec::new();
    if let Some(choices) = &run.experiment.run {
        lines.push(format!(
            "One run of `{}` (profile {}, {} blocks, seed {}) on {}, by fordway-lab {}.",
            results.experiment,
            choices.profile,
            choices.blocks,
            choices.seed,
            results.started.get(..10).unwrap_or(&results.started),
            machine.versions.get("fordway-lab").map_or("of an unknown version", String::as_str),
        ));
        lines.extend(choices.guest.as_ref().map(|guest| format!("Run in a {}.", guest.words())));
    }
    lines.push(format!(
        "Machine: {}, processors: {}, virtualisation: {}, {} MiB, {}.",
        machine.cpu_model,
        machine.processors,
        machine.virtualisation,
        machine.memory_mib,
        machine.kernel,
    ));
    let conditions: Vec<String> = results.conditions().into_iter().map(Condition::label).collect();
    let timed = run.trials.iter().filter(|trial| trial.block > 0).count();
    let lost = run.trials.iter().filter(|trial| trial.block > 0 && !trial.valid).count();
    lines.push(format!(
        "Condition: {}. Load average before the run: {:.1}. Trials: {timed}, of which {lost} do not count and {} are \
         failures of mechanisms.",
        conditions.join("; "),
        machine.load_average,
        results.failed.len(),
    ));
    let warnings: Vec<String> = results.warnings.iter().map(|said| format!("\n- {said}")).collect();
    let told = if warnings.is_empty() { "" } else { "\n\nThe run warns:\n" };
    lines.join("\n") + told + &warnings.concat()
}

/// The command that repeats a run.
fn replay(run: &Run) -> Drawn {
    let choices = run.experiment.run().map_err(|e| refused(e.to_string()))?;
    Ok(format!("```\nsudo {}\n```", choices.replay))
}

/// One metric under the run's first condition: a row per mechanism. At several points: a column per point.
fn table(run: &Run, metric: &str) -> Drawn {
    let metric = Metric::ALL.into_iter().find(|known| known.name() == metric);
    let metric = metric.filter(|metric| run.experiment.metrics.contains(metric));
    let metric = metric.ok_or_else(|| refused("the run has no such metric".into()))?;
    let conditions = run.results.conditions();
    let condition = *conditions.first().ok_or_else(|| refused("the run has no values".into()))?;
    let points = run.results.points(metric, condition);
    let title = format!("**{}, {}**", metric.label(), metric.unit());
    let cell = |m: &MechanismSpec, point| run.results.cell_at(&m.name, metric, condition, point);
    let arms =
        |point| run.experiment.mechanisms.iter().filter_map(move |m| Some((m, cell(m, point)?)));
    let rows = if points.is_empty() {
        let head = [
            "mechanism",
            "configuration",
            "median",
            "interval",
            "against",
            "ratio",
            "interval",
            "verdict",
        ];
        let row = |(m, cell): (&MechanismSpec, &Cell)| {
            let vs = cell.vs_baseline.as_ref();
            vec![
                m.label.clone(),
                configuration(run, m),
                value(cell),
                interval_at(cell.interval),
                vs.map(|vs| base(&run.experiment, &vs.base)).unwrap_or_default(),
                vs.map(VsBaseline::times).unwrap_or_default(),
                vs.map(|vs| interval(vs.ci95)).unwrap_or_default(),
                decided(run, cell),
            ]
        };
        [vec![head.map(str::to_owned).to_vec()], arms(None).map(row).collect()].concat()
    } else {
        let axis = points[0].axes().last();
        let level = |point: &&Point| {
            let axis = axis.filter(|_| point.axes().count() == 1);
            axis.map_or_else(|| point.label(), |axis| counted(axis, point.at(axis).unwrap_or(0)))
        };
        let mut rows = vec![vec!["mechanism".to_owned(), "configuration".to_owned()]];
        rows[0].extend(points.iter().map(level));
        for (m, _) in arms(Some(points[0])) {
            let words = points.iter().map(|point| {
                cell(m, Some(point)).map_or_else(|| "–".into(), |cell| at_point(run, cell))
            });
            rows.push([m.label.clone(), configuration(run, m)].into_iter().chain(words).collect());
        }
        rows
    };
    Ok([title, markdown(&rows), skipped(run)].join("\n\n").trim_end().to_owned())
}

/// A level of an axis: `pairs of hosts: 1,000`.
fn counted(axis: Axis, level: u64) -> String {
    let digits = level.to_string();
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .filter_map(|three| std::str::from_utf8(three).ok())
        .collect();
    format!("{}: {}", axis.label(), groups.join(","))
}

/// Median, ratio and verdict in one field.
fn at_point(run: &Run, cell: &Cell) -> String {
    let Some(vs) = &cell.vs_baseline else { return value(cell) };
    let (times, of) = (vs.times(), base(&run.experiment, &vs.base));
    format!("{}; {times} of {of} ({}): {}", value(cell), interval(vs.ci95), decided(run, cell))
}

fn base(experiment: &Experiment, name: &str) -> String {
    experiment.mechanism(name).map_or_else(|_| name.to_owned(), brief)
}

/// The verdict, or what one would take; why there is no value.
fn decided(run: &Run, cell: &Cell) -> String {
    let told = match &cell.vs_baseline {
        Some(vs) if vs.verdict == Verdict::Unresolved && !vs.same => undecided(vs, &run.experiment),
        _ => verdict(cell),
    };
    if let Some(why) = cell.broken.as_ref().filter(|_| !cell.valid) {
        return format!("broken: {why}");
    }
    let checks = run.results.gate.get(&cell.mechanism).into_iter().flatten();
    let failed: Vec<&str> =
        checks.filter(|check| !check.ok).map(|check| check.name.as_str()).collect();
    if failed.is_empty() { told } else { format!("{told}; fails the probe {}", failed.join(", ")) }
}

/// How a mechanism was set up.
fn configuration(run: &Run, m: &MechanismSpec) -> String {
    let versions = run.experiment.run.as_ref().map(|choices| &choices.versions);
    let mut words: Vec<String> =
        versions.and_then(|versions| versions.get(&m.name)).cloned().into_iter().collect();
    words.extend(m.engine.as_ref().map(|engine| format!("engine {engine}")));
    words.extend(m.attach.as_ref().map(|attach| format!("attach {attach}")));
    words.extend(m.standby.map(|_| "with a standby".into()));
    words.extend(m.threads.map(|threads| match threads {
        0 => "a thread per processor".into(),
        n => format!("threads: {n}"),
    }));
    words.join(", ")
}

/// Mechanisms that took no part, and why.
fn skipped(run: &Run) -> String {
    let skipped = run.experiment.run.as_ref().map(|choices| &choices.skipped);
    let lines =
        skipped.into_iter().flatten().map(|(name, why)| format!("Not measured: `{name}`: {why}."));
    lines.collect::<Vec<String>>().join("\n")
}

/// Rows as a table of Markdown, the first one as its head.
fn markdown(rows: &[Vec<String>]) -> String {
    let line = |fields: &[String]| {
        let fields: Vec<String> = fields.iter().map(|field| field.replace('|', "\\|")).collect();
        format!("| {} |", fields.join(" | "))
    };
    let Some((head, rest)) = rows.split_first() else { return String::new() };
    let rule = format!("|{}", "---|".repeat(head.len()));
    let lines = [line(head), rule].into_iter().chain(rest.iter().map(|row| line(row)));
    lines.collect::<Vec<String>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn repository() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    fn runs(names: &[&str]) -> Runs {
        let dir = tempfile::tempdir().unwrap();
        for name in names {
            fixture::folder(&dir.path().join(name), name, 7, 1.0);
        }
        read(dir.path()).unwrap()
    }

    #[test]
    fn the_committed_page_is_what_the_kept_results_give() {
        let page = performance(&repository().join("docs/results")).unwrap();
        let committed = std::fs::read_to_string(repository().join("docs/performance.md")).unwrap();
        assert!(page == committed, "fordway-lab performance docs/results > docs/performance.md");
    }

    #[test]
    fn the_template_has_no_measured_number_of_its_own() {
        let text =
            std::fs::read_to_string(repository().join("docs/results").join(TEMPLATE)).unwrap();
        let units = [
            "%", "times", "Gbit", "Mbit", "kpackets", "µs", "ns", "ms", "octets", "thousand",
            "million",
        ];
        for line in text.lines().filter(|line| !line.contains("{{")) {
            let words: Vec<&str> = line.split_whitespace().collect();
            for pair in words.windows(2) {
                let number = pair[0].trim_start_matches(['(', '≥', '≤', '<', '>']);
                let measured = number.starts_with(|c: char| c.is_ascii_digit())
                    && units.iter().any(|unit| pair[1].starts_with(unit));
                assert!(!measured, "{line}");
            }
        }
    }

    #[test]
    fn every_section_of_the_template_can_be_drawn() {
        let text =
            std::fs::read_to_string(repository().join("docs/results").join(TEMPLATE)).unwrap();
        let mut made = Runs::new();
        let mut all = runs(&[
            "clat-vs-dual-stack",
            "pairs",
            "nat64",
            "tables",
            "small-packets",
            "mechanisms-goals",
            "dns64",
            "kernel-translators",
            "imix",
        ]);
        for (folder, experiment) in [
            ("clat", "clat-vs-dual-stack"),
            ("pairs", "pairs"),
            ("nat64", "nat64"),
            ("tables", "tables"),
            ("instructions", "small-packets"),
            ("mechanisms", "mechanisms-goals"),
            ("dns64", "dns64"),
            ("guest", "kernel-translators"),
            ("imix", "imix"),
        ] {
            assert!(text.contains(&format!("\"{folder}\"")), "{folder}");
            made.insert(folder.into(), all.remove(experiment).unwrap());
        }
        let page = draw(&text, made).unwrap();
        assert!(
            page.matches("\n## ").count() >= 10 && page.contains("sudo fordway-lab run dns64"),
            "{page}"
        );
    }

    #[test]
    fn a_table_has_every_arm_with_its_configuration_and_verdict() {
        let page = draw("{{ table(\"nat64\", \"new_udp_flows\") }}\n", runs(&["nat64"])).unwrap();
        assert!(
            page.starts_with("**New UDP flows, kflows/s**\n\n| mechanism | configuration |"),
            "{page}"
        );
        for attach in ["interface", "ingress", "xdp"] {
            let row = page.lines().find(|line| line.contains(&format!("attach {attach}"))).unwrap();
            assert!(
                row.contains("| NAT44 by nftables |") && row.contains("engine kernel"),
                "{row}"
            );
            assert!(row.contains("| better; fails the probe path mtu |"), "{row}");
        }
        assert!(page.contains("A/A"), "{page}");
    }

    #[test]
    fn points_are_columns_and_a_verdict_stands_in_each() {
        let page = draw("{{ table('pairs', 'pair_rate_up') }}", runs(&["pairs"])).unwrap();
        let head = page.lines().find(|line| line.starts_with("| mechanism")).unwrap();
        let columns = "| pairs of hosts: 1 | pairs of hosts: 1,000 | pairs of hosts: 100,000 |";
        assert!(head.ends_with(columns), "{head}");
        let row = page.lines().find(|line| line.contains("attach xdp")).unwrap();
        assert_eq!(row.matches(" of Native IPv6 (").count(), 3, "{row}");
        assert_eq!(row.matches("better").count(), 3, "{row}");
    }

    #[test]
    fn what_is_not_there_is_an_error() {
        for (template, why) in [
            ("{{ machine('none') }}", "no kept result none"),
            ("{{ table('aa', 'sessions_held') }}", "no such metric"),
            ("{{ nothing }}", "undefined"),
        ] {
            let error = draw(template, runs(&["aa"])).unwrap_err();
            assert!(format!("{error:#}").contains(why), "{error:#}");
        }
        let page = draw("{{ machine('aa') }}\n{{ replay('aa') }}", runs(&["aa"])).unwrap();
        assert!(page.contains("2026-01-01") && page.contains("sudo fordway-lab run aa"), "{page}");
    }
}
