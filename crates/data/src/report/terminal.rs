//! The table at the end of a run.

use super::grid;
use super::points;
use super::words::{headline, interval_at, share, value, verdict};
use crate::analysis::{Cell, Power, Results, first};
use crate::artefacts::Run;
use crate::error::Result;
use crate::numbers::nice;
use crate::spec::published::{Study, study};
use crate::spec::{Experiment, Group, Metric};
use crate::trial::Check;
use crate::trial::WAYS;

const UP: Metric = Metric::TcpThroughputUp;
const DOWN: Metric = Metric::TcpThroughputDown;

/// Prints the summary of a run on standard output.
pub fn print(run: &Run, report: &std::path::Path) -> Result<()> {
    let (experiment, results) = (&run.experiment, &run.results);
    let bold = anstyle::Style::new().bold();
    anstream::println!("\n{bold}{}{bold:#}\n", headline(experiment, results));
    if experiment.metrics.contains(&UP) {
        print_rows(&cells_table(experiment, results));
    }
    let shown = |group: &Group| !matches!(group, Group::Flow | Group::Start);
    for group in Group::ALL.into_iter().filter(shown) {
        let rows = group_table(experiment, results, group);
        if rows.len() > 1 {
            anstream::println!("\n{}", group.title());
            print_rows(&rows);
        }
    }
    if let Some(condition) = results.conditions().first() {
        for table in points::tables(experiment, results, condition) {
            anstream::println!("\n{}", table.title);
            let rows = [std::slice::from_ref(&table.head), &table.rows, &table.differences];
            print_rows(&rows.concat());
        }
    }
    if !results.matrix.is_empty() {
        anstream::println!("\nWhich ways each mechanism opens");
        let (rows, reasons) = matrix(experiment, results);
        print_rows(&rows);
        for reason in reasons {
            anstream::println!("{reason}");
        }
    }
    if let Ok(run) = experiment.run() {
        for (why, what) in run.unmeasured_by_reason() {
            anstream::println!("{}: not measured: {why}", what.join(", "));
        }
    }
    if results.conditions().len() > 1 {
        anstream::println!("\nFirst of {} conditions; all are in the report.", {
            results.conditions().len()
        });
    }
    if !results.goals.is_empty() {
        anstream::println!();
        print_rows(&goals_table(results));
    }
    if let Some(costs) = &results.program_costs {
        anstream::println!("\nThe gateway's programs alone");
        match &costs.missing {
            Some(why) => anstream::println!("not measured: {why}"),
            None => print_rows(&costs.table()),
        }
    }
    if let Some(name) = &experiment.published {
        print_study(run, &study(name)?);
    }
    if let Some(noise) = &results.noise {
        anstream::println!("\n{}", noise.lines().join("\n  "));
    }
    if let Some(power) = Power::line(&results.power) {
        anstream::println!("\n{power}");
    }
    for warning in &results.warnings {
        let yellow = anstyle::AnsiColor::Yellow.on_default();
        anstream::println!("{yellow}warning{yellow:#}  {warning}");
    }
    if !results.failed.is_empty() {
        anstream::println!("{} trials count as failures of mechanisms; the report says which.", {
            results.failed.len()
        });
    }
    if !results.discarded.is_empty() {
        anstream::println!("{} trials do not count; the report says why.", {
            results.discarded.len()
        });
    }
    anstream::println!("\nReport  {}", report.display());
    Ok(())
}

/// What the study reported, in its own tables and beside what is measured here.
fn print_study(run: &Run, study: &Study) {
    let results = &run.results;
    let whose = study.heading();
    anstream::println!("\n{whose}: {}", study.citation);
    for table in &study.tables {
        anstream::println!("\n{whose}, {}", table.title);
        print_rows(&[std::slice::from_ref(&table.head), &table.rows].concat());
    }
    if let Some(found) = &results.agreement {
        anstream::println!("\nThe study and this run");
        print_rows(&found.table);
    }
    let averages = grid::table(&grid::averaged(run), study);
    if averages.len() > 1 && !study.tests.is_empty() {
        anstream::println!("\nAverages and t tests");
        print_rows(&averages);
    }
    if let Some(found) = &results.agreement {
        anstream::println!("\n{}\n", found.paragraph);
    }
}

/// The matrix, and under it why a cell says no. The words of the head are short for a terminal.
pub fn matrix(experiment: &Experiment, results: &Results) -> (Vec<Vec<String>>, Vec<String>) {
    let head =
        WAYS.iter().map(|cell| cell.replace("to server: ", "> ").replace("from server: ", "< "));
    let mut rows = vec![std::iter::once("mechanism".to_owned()).chain(head).collect::<Vec<_>>()];
    let mut reasons = Vec::new();
    for m in &experiment.mechanisms {
        let Some(cells) = results.matrix.get(&m.name) else { continue };
        let word = |cell: &Check| if cell.ok { "yes" } else { "no" }.to_owned();
        rows.push(std::iter::once(m.name.clone()).chain(cells.iter().map(word)).collect());
        let no = cells.iter().filter(|cell| !cell.ok);
        reasons.extend(no.map(|cell| format!("{}: no {}: {}", m.name, cell.name, cell.detail)));
    }
    (rows, reasons)
}

fn throughput(cell: Option<&Cell>) -> String {
    cell.map_or_else(
        || "–".into(),
        |c| format!("{} [{}]", value(c), c.interval.map_or("–".into(), |i| interval_at(Some(i)))),
    )
}

fn ratio(cell: Option<&Cell>) -> String {
    cell.and_then(|c| c.vs_baseline.as_ref()).map_or_else(|| "–".into(), |v| share(v.ratio))
}

/// Rows for people: one per mechanism, under the first condition.
fn cells_table(experiment: &Experiment, results: &Results) -> Vec<Vec<String>> {
    let head = ["mechanism", "up Gbit/s", "down Gbit/s", "up : base", "down : base", "RTT ms"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows[0].extend(["verdict up / down".to_owned(), "gate".to_owned()]);
    for m in &experiment.mechanisms {
        let cell = |metric| first(results, &m.name, metric);
        let any = [UP, DOWN, Metric::Rtt].into_iter().find_map(cell);
        let Some(any) = any else { continue };
        let words = |metric| cell(metric).map_or_else(|| "–".into(), verdict);
        rows.push(vec![
            m.label.clone(),
            throughput(cell(UP)),
            throughput(cell(DOWN)),
            ratio(cell(UP)),
            ratio(cell(DOWN)),
            cell(Metric::Rtt).and_then(|c| c.median).map_or_else(|| "–".into(), nice),
            if words(UP) == words(DOWN) {
                words(UP)
            } else {
                format!("{} / {}", words(UP), words(DOWN))
            },
            match &any.broken {
                None => "passes".into(),
                Some(why) => format!("broken: {}", why.split(" (").next().unwrap_or_default()),
            },
        ]);
    }
    rows
}

/// Median and ratio to the base of each metric of a group; one row per mechanism.
fn group_table(experiment: &Experiment, results: &Results, group: Group) -> Vec<Vec<String>> {
    let metrics: Vec<Metric> = experiment
        .metrics
        .iter()
        .copied()
        .filter(|m| m.group() == Some(group) && !m.has_points())
        .collect();
    let metrics: Vec<Metric> = metrics
        .into_iter()
        .filter(|m| experiment.mechanisms.iter().any(|a| first(results, &a.name, *m).is_some()))
        .collect();
    let mut head = vec!["mechanism".to_owned()];
    head.extend(metrics.iter().map(|m| match m.direction() {
        "both" => format!("{} {}", m.short(), m.unit()),
        way => format!("{} {way}, {}", m.short(), m.unit()),
    }));
    let mut rows = vec![head];
    for m in &experiment.mechanisms {
        let cells: Vec<Option<&Cell>> =
            metrics.iter().map(|metric| first(results, &m.name, *metric)).collect();
        if cells.iter().all(Option::is_none) {
            continue;
        }
        let mut row = vec![m.label.clone()];
        row.extend(cells.into_iter().map(|cell| {
            let Some(cell) = cell else { return "–".to_owned() };
            let times = cell
                .vs_baseline
                .as_ref()
                .map_or_else(String::new, |v| format!(" (× {})", v.times()));
            format!("{}{times}", value(cell))
        }));
        rows.push(row);
    }
    rows
}

fn goals_table(results: &Results) -> Vec<Vec<String>> {
    let mut rows = vec![
        ["goal", "wanted", "measured", "interval (level)", "result", "from"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for goal in &results.goals {
        let close = if goal.close { " (close)" } else { "" };
        rows.push(vec![
            goal.id.clone(),
            goal.goal.clone(),
            goal.measured.map_or_else(|| "–".into(), |v| format!("{} {}", nice(v), goal.unit)),
            interval_at(goal.interval),
            format!("{}{close}", goal.word()),
            goal.detail.clone(),
        ]);
    }
    rows
}

/// Prints rows with aligned columns; the first row is the head.
pub fn print_rows(rows: &[Vec<String>]) {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|r| r.get(column)).map(|f| f.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for (number, row) in rows.iter().enumerate() {
        let mut line = String::new();
        for (field, width) in row.iter().zip(&widths) {
            line.push_str(field);
            line.extend(std::iter::repeat_n(' ', width - field.chars().count() + 2));
        }
        let style =
            if number == 0 { anstyle::Style::new().dimmed() } else { anstyle::Style::new() };
        anstream::println!("{style}{}{style:#}", line.trim_end());
    }
}
