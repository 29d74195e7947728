//! Tests of stateful translation in the form of RFC 9693 section 6: repetitions with median and percentiles, and the parameters.

use fordway_procedures::summary::Repeated;
use serde::Serialize;

use super::words::value;
use crate::analysis::Cell;
use crate::artefacts::Run;
use crate::numbers::nice;
use crate::spec::{Axis, Group};
use crate::trial::Stateful;

/// Results of one condition.
#[derive(Debug, Serialize)]
pub(super) struct Stated {
    /// What all steps have in common, in words; several where resumed runs differ.
    common: Vec<String>,
    /// A row for each mechanism, quantity and step.
    rows: Vec<Vec<String>>,
}

/// The results of a condition; none where no test of RFC 9693 has a value.
pub(super) fn stated(run: &Run, number: usize) -> Option<Stated> {
    let condition = run.results.conditions()[number];
    let is_of = |c: &&Cell| c.metric.group() == Some(Group::Rfc9693) && c.condition == *condition;
    let cells: Vec<&Cell> = run.results.cells.iter().filter(is_of).collect();
    let mut common: Vec<String> =
        cells.iter().filter_map(|cell| Some(in_common(cell.stateful.as_ref()?))).collect();
    common.sort();
    common.dedup();
    let rows: Vec<Vec<String>> = cells.into_iter().filter_map(row).collect();
    (!rows.is_empty()).then_some(Stated { common, rows })
}

/// Numbers of ports of both sides.
fn ports(of: &Stateful) -> String {
    let count = |[first, last]: [u32; 2]| (last + 1).saturating_sub(first);
    format!("{} × {}", count(of.source_ports), count(of.destination_ports))
}

/// What all steps of a run have in common, in words.
fn in_common(of: &Stateful) -> String {
    format!(
        "alpha {}, beta {}, gamma {}; the table is filled at {} of the establishment rate; errors: {} connections/s, {} connections",
        of.alpha, of.beta, of.gamma, of.fill, of.rate_error, of.capacity_error
    )
}

/// A block is a repetition.
fn row(cell: &Cell) -> Option<Vec<String>> {
    let all = Repeated::of(cell.values.iter().map(|(_, value)| *value).collect())?;
    let number = |number: Option<u64>| number.map_or_else(|| "–".into(), |it| it.to_string());
    let parameters = cell.stateful.as_ref();
    let level = cell.point.as_ref().and_then(|point| point.at(Axis::Connections));
    let n = match cell.failures.len() {
        0 => all.n().to_string(),
        _ => format!("{} of {}", all.n(), cell.of),
    };
    Some(vec![
        cell.label.clone(),
        format!("{}, {}", cell.metric.label(), cell.unit),
        number(parameters.map(|it| it.connections).or(level)),
        parameters.map_or_else(|| "–".into(), ports),
        number(parameters.and_then(|it| it.table_limit)),
        n,
        value(cell),
        nice(all.p1),
        nice(all.p99),
        nice(all.average),
        if all.n() > 1 { nice(all.stddev) } else { "–".into() },
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::artefacts::read;
    use crate::fixture;
    use crate::report::page;
    use crate::spec::Metric;
    use crate::trial::{Ledger, Trial};

    /// A run of five blocks, in one of which the capacity of the base failed.
    fn run(dir: &std::path::Path) -> Run {
        let metrics = [Metric::EstablishmentRate, Metric::TableCapacity];
        let experiment = fixture::experiment_about("rfc9693", &metrics);
        fixture::folder_of(dir, &experiment, 0, 1.0);
        let stateful = Stateful {
            connections: 100_000,
            most_connections: None,
            source_addresses: 1,
            source_ports: [1024, 21_023],
            destination_addresses: 1,
            destination_ports: [1, 5],
            frame_octets: [64, 64],
            maximum_rate: 1_000_000,
            rate_error: 1000,
            alpha: 0.5,
            fill: 0.5,
            beta: 0.1,
            gamma: 0.5,
            capacity_error: 1000,
            table_limit: Some(262_144),
            table_buckets: Some(65_536),
        };
        for trial in fixture::trials(&experiment, 5, 1.0) {
            let lost = trial.block == 3
                && trial.mechanism == "nat44"
                && trial.metric == Metric::TableCapacity;
            let failed = if lost { vec!["it ended".to_owned()] } else { Vec::new() };
            let stateful = (trial.block > 0).then(|| stateful.clone());
            Ledger::of(dir).append(&Trial { failed, stateful, ..trial }).unwrap();
        }
        read(dir).unwrap()
    }

    #[test]
    fn each_arm_and_step_has_its_repetitions_with_median_and_percentiles() {
        let dir = tempfile::tempdir().unwrap();
        let run = run(dir.path());
        let Stated { rows, common } = stated(&run, 0).unwrap();
        let of = |metric: &str| rows.iter().find(|row| row[1].starts_with(metric)).unwrap();
        // Values of the first arm: 1.02, 1.04, 1.01, 1.03, 1.00.
        let rate = of(Metric::EstablishmentRate.label());
        let words =
            ["100000", "20000 × 5", "262144", "5", "1.02", "1.00", "1.04", "1.02", "0.0158"];
        assert_eq!(rate[2..], words, "{rows:?}");
        let capacity = of(Metric::TableCapacity.label());
        assert_eq!(capacity[5], "4 of 5");
        assert_eq!(common.len(), 1);
        assert!(common[0].contains("alpha 0.5, beta 0.1, gamma 0.5"), "{common:?}");
        let page = page::render(&run, &[], None).unwrap();
        assert!(page.contains("Repetitions (RFC 9693)") && page.contains("20000 × 5"));
        // What a run holds, its results hold.
        let json = serde_json::to_value(&run.results).unwrap();
        assert_eq!(json["cells"][0]["stateful"]["table_limit"], 262_144);
    }

    #[test]
    fn runs_of_other_tests_have_no_such_table() {
        let dir = tempfile::tempdir().unwrap();
        fixture::folder(dir.path(), "nat64", 2, 1.0);
        assert!(stated(&read(dir.path()).unwrap(), 0).is_none());
    }
}
