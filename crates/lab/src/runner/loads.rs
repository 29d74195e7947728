//! Which metrics are measured together, and on which deployments.

use std::collections::BTreeSet;

use fordway_data::spec::{Kind, Load, Metric};

/// The metrics that are measured on one deployment together: what fills a mechanism's tables has one of
/// its own, and so has its death.
pub(super) fn networks(kind: Kind, metrics: &[Metric]) -> Vec<Vec<Metric>> {
    let own = [Load::Hold, Load::Recycled, Load::Failover];
    let on_one = |load: Option<Load>| -> Vec<Metric> {
        let of = |m: &Metric| {
            !stands_alone(kind, *m) && m.load().filter(|load| own.contains(load)) == load
        };
        metrics.iter().copied().filter(of).collect()
    };
    let all = [on_one(None)].into_iter().chain(own.map(|load| on_one(Some(load))));
    all.filter(|m| !m.is_empty()).collect()
}

/// Whether a metric is not measured on a deployment that stays.
fn stands_alone(kind: Kind, metric: Metric) -> bool {
    is_first_packet(kind, metric) || metric.load().is_some_and(renews)
}

/// Whether a metric has a network of its own, which nothing has gone through yet: the start, and a first packet that
/// has to wait for a lease.
pub(super) fn is_first_packet(kind: Kind, metric: Metric) -> bool {
    metric == Metric::StartTime || (metric == Metric::Initiation && kind == Kind::Dstm)
}

/// Whether a load takes the mechanism down and starts it again.
pub(super) fn renews(load: Load) -> bool {
    matches!(load, Load::Reset | Load::Connections | Load::Capacity)
}

/// The loads that yield these metrics, each once.
pub(super) fn loads(metrics: &[Metric]) -> Vec<Load> {
    let all: BTreeSet<Load> = metrics.iter().filter_map(|m| m.load()).collect();
    all.into_iter().filter(|load| *load != Load::Start).collect()
}
