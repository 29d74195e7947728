//! The cards at the top of the page.

use fordway_stats::paired::Verdict;
use serde::Serialize;

use super::figures::slot;
use super::words::{brief, share, value};
use crate::analysis::{Cell, first, undecided};
use crate::artefacts::Run;
use crate::numbers::nice;
use crate::spec::{Experiment, Kind, Metric};

/// One translator at a glance.
#[derive(Debug, Serialize)]
pub(super) struct Card {
    label: String,
    slot: usize,
    rows: Vec<Row>,
    base: String,
    broken: Option<String>,
}

/// One quantity: what its verdict carries, and below it what was measured.
#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    said: String,
    measured: String,
}

/// One card per translator with a base of its own.
pub(super) fn cards(run: &Run) -> Vec<Card> {
    let cell = |name: &str, metric| first(&run.results, name, metric);
    let shown = [
        (Metric::TcpThroughputUp, "TCP up"),
        (Metric::TcpThroughputDown, "TCP down"),
        (Metric::Rtt, "Round trip"),
    ];
    let mut cards = Vec::new();
    for m in run.experiment.mechanisms.iter().filter(|m| m.kind == Kind::Clat) {
        let found: Vec<(&Cell, &'static str)> = shown
            .iter()
            .filter_map(|(metric, name)| Some((cell(&m.name, *metric)?, *name)))
            .collect();
        let Some((any, _)) = found.first() else { continue };
        let base = m.base.as_deref().unwrap_or_default();
        let row = |(own, name): &(&Cell, &'static str)| Row {
            name,
            said: said(own, cell(base, own.metric), &run.experiment),
            measured: format!("{} {}", value(own), own.unit),
        };
        cards.push(Card {
            label: m.label.clone(),
            slot: slot(&run.experiment, &m.name),
            rows: found.iter().map(row).collect(),
            base: run.experiment.mechanism(base).map(brief).unwrap_or_default(),
            broken: any.broken.clone(),
        });
    }
    cards
}

/// The verdict: of rates a share, of times what is added.
fn said(own: &Cell, base: Option<&Cell>, experiment: &Experiment) -> String {
    let Some(vs) = &own.vs_baseline else { return "–".into() };
    match vs.verdict {
        Verdict::Equivalent => format!("equal within {}", share(experiment.margin)),
        Verdict::Unresolved => undecided(vs, experiment),
        Verdict::Better | Verdict::Worse if own.metric.higher_is_better() => share(vs.ratio),
        Verdict::Better | Verdict::Worse => {
            let medians = own.median.zip(base.and_then(|base| base.median));
            medians.map_or_else(
                || format!("× {}", nice(vs.ratio)),
                |(own_median, base)| format!("{:+.3} {}", own_median - base, own.unit),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{artefacts, fixture};

    #[test]
    fn a_card_says_what_was_decided_in_few_words() {
        let dir = tempfile::tempdir().unwrap();
        for (blocks, decided) in [(2, false), (7, true)] {
            let folder = dir.path().join(blocks.to_string());
            fixture::folder(&folder, "clat-vs-dual-stack", blocks, 1.0);
            let cards = cards(&artefacts::read(&folder).unwrap());
            assert!(!cards.is_empty());
            for row in cards.iter().flat_map(|card| &card.rows) {
                assert!(row.said.split_whitespace().count() <= 20, "{row:?}");
                assert_eq!(!row.said.contains("not decided by this run"), decided, "{row:?}");
            }
        }
    }
}
