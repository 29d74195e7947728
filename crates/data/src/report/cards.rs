//! The cards at the top of the page.

use serde::Serialize;

use super::figures::slot;
use super::words::{share, value};
use crate::analysis::Cell;
use crate::analysis::first;
use crate::artefacts::Run;
use crate::numbers::nice;
use crate::spec::{Kind, Metric};

/// One translator at a glance.
#[derive(Serialize)]
pub(super) struct Card {
    label: String,
    slot: usize,
    up: String,
    up_value: String,
    down: String,
    down_value: String,
    rtt: String,
    rtt_base: String,
    base: String,
    broken: Option<String>,
}

/// One card per translator with a base of its own.
pub(super) fn cards(run: &Run) -> Vec<Card> {
    let cell = |name: &str, metric| first(&run.results, name, metric);
    let of = |c: Option<&Cell>| {
        c.and_then(|c| c.vs_baseline.as_ref()).map_or_else(|| "–".into(), |v| share(v.ratio))
    };
    let absolute = |c: Option<&Cell>| c.map_or_else(|| "–".into(), value);
    let mut cards = Vec::new();
    for m in run.experiment.mechanisms.iter().filter(|m| m.kind == Kind::Clat) {
        let up = cell(&m.name, Metric::TcpThroughputUp);
        let down = cell(&m.name, Metric::TcpThroughputDown);
        let rtt = cell(&m.name, Metric::Rtt);
        let Some(any) = up.or(down).or(rtt) else { continue };
        let base = m.base.as_deref().unwrap_or_default();
        let native = cell(base, Metric::Rtt).and_then(|c| c.median);
        let own = rtt.and_then(|c| c.median);
        cards.push(Card {
            label: m.label.clone(),
            slot: slot(&m.name),
            up: of(up),
            up_value: absolute(up),
            down: of(down),
            down_value: absolute(down),
            rtt: own
                .zip(native)
                .map_or_else(|| "–".into(), |(own, native)| format!("{:+.3}", own - native)),
            rtt_base: native.map_or_else(|| "–".into(), nice),
            base: run.experiment.mechanism(base).map(|m| m.label.clone()).unwrap_or_default(),
            broken: any.broken.clone(),
        });
    }
    cards
}
