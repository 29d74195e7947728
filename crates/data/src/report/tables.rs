//! Tables of the page whose fields are plain text.

use super::words::{interval, p, share, value, verdict};
use crate::analysis::first;
use crate::artefacts::Run;
use crate::histogram::{percentile, together};
use crate::numbers::nice;
use crate::spec::published::{Study, Throughput};
use crate::spec::quantity;
use crate::spec::{Family, Metric};

/// Percentiles of the pooled datagrams.
const PERCENTILES: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 0.9999];

/// Round-trip times under a steady load: the datagrams of all deployments together.
pub(super) fn tails(run: &Run, number: usize) -> Vec<Vec<String>> {
    let condition = run.results.conditions()[number];
    let mut rows = Vec::new();
    for m in &run.experiment.mechanisms {
        let Some(cell) = run.results.cell(&m.name, Metric::LatencyP50, condition) else { continue };
        let (Some(sent), Some(answered)) = (cell.sent, cell.arrived) else { continue };
        let of = run.trials.iter().filter(|t| {
            t.valid
                && t.mechanism == m.name
                && t.condition == *condition
                && t.metric == Metric::LatencyP50
        });
        let all = together(of.map(|t| t.histogram.as_slice()));
        let mut row = vec![m.label.clone(), sent.to_string(), (sent - answered).to_string()];
        let us = |p: f64| percentile(&all, sent, p).map_or_else(|_| "–".into(), nice);
        row.extend(PERCENTILES.map(us));
        row.push(all.last().map_or_else(|| "–".into(), |(ns, _)| nice(*ns as f64 / 1e3)));
        rows.push(row);
    }
    rows
}

/// The table of round-trip times in the study's form.
pub(super) fn round_trips(run: &Run, number: usize) -> Vec<Vec<String>> {
    let condition = run.results.conditions()[number];
    let mut rows = Vec::new();
    for m in &run.experiment.mechanisms {
        let cell = run.results.cell(&m.name, Metric::Rtt, condition);
        let Some(r) = cell.and_then(|c| c.replies) else { continue };
        let ms = |v: f64| format!("{v:.3}");
        rows.push(vec![
            "This run".into(),
            if m.family == Family::V4 { "v4" } else { "v6" }.into(),
            m.label.clone(),
            m.kind.label().into(),
            ms(r.min),
            ms(r.mean),
            ms(r.max),
            ms(r.stddev),
            r.p95.map_or_else(|| "–".into(), ms),
            r.n.to_string(),
        ]);
    }
    rows
}

/// Every comparison with every number behind its verdict.
pub(super) fn tests(run: &Run, number: usize) -> Vec<Vec<String>> {
    let condition = run.results.conditions()[number];
    let here = run.results.cells.iter().filter(|c| c.condition == *condition);
    here.filter_map(|cell| {
        let vs = cell.vs_baseline.as_ref()?;
        Some(vec![
            cell.label.clone(),
            quantity(cell.metric, cell.point.as_ref()),
            run.experiment.mechanism(&vs.base).map(|m| m.label.clone()).unwrap_or_default(),
            vs.n.to_string(),
            vs.times(),
            interval(vs.ci95),
            format!("{:+.3} {}", vs.shift, cell.unit),
            format!("{:+.2}", vs.cliffs_delta),
            p(vs.p_t),
            p(vs.p),
            p(vs.p_wilcoxon),
            p(vs.p_equivalence),
            verdict(cell),
        ])
    })
    .collect()
}

/// The study's own table of round-trip times.
pub(super) fn study_rtt(study: &Study) -> Vec<Vec<String>> {
    let ms = |v: f64| format!("{v:.3}");
    study
        .rtt
        .iter()
        .map(|r| {
            let mut row = vec![r.env.clone(), r.ip.clone(), r.tool.clone(), r.kind.clone()];
            row.extend([r.min, r.avg, r.max, r.sd, r.p95].map(ms));
            row.push(r.n.to_string());
            row
        })
        .collect()
}

/// The study's throughputs beside ours, each also as a share of its own native IPv6.
pub(super) fn beside(run: &Run, study: &Study) -> Vec<Vec<String>> {
    let native = |environment: &str| {
        let row = |t: &&Throughput| t.environment == environment && t.mechanism == "native-v6";
        study.throughput.iter().find(row).map(|t| t.gbit_s)
    };
    let own = |name: &str| first(&run.results, name, Metric::TcpThroughputUp);
    study
        .throughput
        .iter()
        .map(|t| {
            let ours = own(&t.mechanism);
            let ours_share = ours
                .and_then(|c| c.median)
                .zip(own("native-v6").and_then(|c| c.median))
                .map_or_else(|| "–".into(), |(a, b)| share(a / b));
            vec![
                t.environment.clone(),
                t.label.clone(),
                t.gbit_s.to_string(),
                native(&t.environment).map_or_else(|| "–".into(), |n| share(t.gbit_s / n)),
                ours.map_or_else(|| "not measured".into(), value),
                ours_share,
            ]
        })
        .collect()
}
