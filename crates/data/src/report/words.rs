//! Numbers and findings in words.

use fordway_stats::describe::mean;
use fordway_stats::paired::Verdict;

use crate::analysis::Judged;
use crate::analysis::{Cell, Results, first};
use crate::numbers::nice;
use crate::spec::{Experiment, Kind, MechanismSpec, Metric};

/// A value with its sign of being a lower bound.
pub(crate) fn value(cell: &Cell) -> String {
    let sign = if cell.at_least { "≥ " } else { "" };
    cell.median.map_or_else(|| "–".into(), |v| format!("{sign}{}", nice(v)))
}

/// An interval, or nothing.
pub fn interval(ci: Option<[f64; 2]>) -> String {
    ci.map_or_else(String::new, |[lo, hi]| format!("{} – {}", nice(lo), nice(hi)))
}

/// A p value.
pub fn p(p: Option<f64>) -> String {
    match p {
        None => "–".into(),
        Some(p) if p < 0.001 => "< 0.001".into(),
        Some(p) => format!("{p:.3}"),
    }
}

/// A ratio as a share: `6.9 %`.
pub fn share(ratio: f64) -> String {
    let per_cent = 100.0 * ratio;
    if per_cent < 10.0 { format!("{per_cent:.1} %") } else { format!("{per_cent:.0} %") }
}

/// The finding in one sentence, from the data alone.
pub(crate) fn headline(experiment: &Experiment, results: &Results) -> String {
    if !results.goals.is_empty() {
        return goals_headline(&results.goals);
    }
    let special = across(experiment, results)
        .or_else(|| gateways(experiment, results))
        .or_else(|| stateful(experiment, results))
        .or_else(|| name_servers(experiment, results))
        .or_else(|| pages(experiment, results))
        .or_else(|| over_points(experiment, results));
    if let Some(text) = special {
        return text;
    }
    // One sentence per program: the tables have the rest. The experiment lists the arm that a program
    // is most about first.
    let mut told: Vec<&str> = Vec::new();
    let mut sentences: Vec<String> = Vec::new();
    for m in experiment.mechanisms.iter().filter(|m| m.kind == Kind::Clat) {
        if !told.contains(&m.implementation.as_str())
            && let Some(sentence) = clat_sentence(results, m)
        {
            told.push(&m.implementation);
            sentences.push(sentence);
        }
    }
    match sentences.split_first() {
        Some((first, rest)) => {
            let others = rest.iter().map(|s| s.replacen("CLAT by ", "", 1));
            let mut all: Vec<String> = whole(experiment, results).into_iter().collect();
            all.push(first.clone());
            all.extend(others);
            all.join(" ")
        }
        None => whole(experiment, results).unwrap_or_else(|| native_sentence(results)),
    }
}

fn goals_headline(goals: &[Judged]) -> String {
    let met = goals.iter().filter(|g| g.met == Some(true)).count();
    let missing = goals.iter().filter(|g| g.met.is_none()).count();
    let mut text = format!("{met} of {} performance goals met on this machine", goals.len());
    if missing > 0 {
        text.push_str(&format!("; {missing} not measured"));
    }
    text.push('.');
    text
}

/// The name of an implementation as its authors write it.
fn proper(implementation: &str) -> &str {
    match implementation {
        "fordway" => "Fordway",
        "tayga" => "TAYGA",
        "tundra" => "Tundra",
        "jool" => "Jool",
        "nftables" => "nftables",
        "unbound" => "Unbound",
        "bind" => "BIND",
        "apache" => "Apache",
        "squid" => "Squid",
        other => other,
    }
}

/// The program, with its engine where it has several: `Fordway at the uplink`.
fn who(m: &MechanismSpec) -> String {
    let name = proper(&m.implementation);
    match (m.engine.as_deref(), m.attach.as_deref()) {
        (Some("kernel"), Some("xdp")) => format!("{name} at XDP"),
        (Some("kernel"), Some(attach)) => format!("{name} at the {attach}"),
        (Some(engine), _) => format!("{name}'s {engine} engine"),
        (None, _) => name.to_owned(),
    }
}

/// Pages per second of NAT64 against NAT44, over all points of the grid.
fn pages(experiment: &Experiment, results: &Results) -> Option<String> {
    let parts: Vec<String> = experiment
        .mechanisms
        .iter()
        .filter(|m| m.kind == Kind::Nat64)
        .filter_map(|m| {
            let cells = results
                .cells
                .iter()
                .filter(|c| c.mechanism == m.name && c.metric == Metric::AbRequestsPerS && c.valid);
            let logs: Vec<f64> =
                cells.filter_map(|c| Some(c.vs_baseline.as_ref()?.ratio.ln())).collect();
            (!logs.is_empty()).then(|| format!("{} {}", who(m), nice(mean(&logs).exp())))
        })
        .collect();
    (!parts.is_empty()).then(|| {
        format!("Pages per second through NAT64 against NAT44, times: {}.", parts.join("; "))
    })
}

/// A quantity that is measured at many points, at the first and the last of them: only where nothing else is measured.
fn over_points(experiment: &Experiment, results: &Results) -> Option<String> {
    let metric = *experiment.metrics.first().filter(|metric| metric.has_points())?;
    let condition = *results.conditions().first()?;
    let points = results.points(metric, condition);
    let (first, last) = (*points.first()?, *points.last()?);
    let times = |m: &MechanismSpec, point| {
        let cell = results.cell_at(&m.name, metric, condition, Some(point));
        let vs = cell.filter(|c| c.valid)?.vs_baseline.as_ref().filter(|vs| !vs.same)?;
        Some(nice(vs.ratio))
    };
    // One arm of each program and kind: the tables have the rest.
    let mut told: Vec<(Kind, &str)> = Vec::new();
    let mut parts: Vec<String> = Vec::new();
    for m in experiment.mechanisms.iter().filter(|m| m.kind != Kind::Native) {
        let own = (m.kind, m.implementation.as_str());
        if let Some(at_first) = times(m, first).filter(|_| !told.contains(&own)) {
            let at_last = times(m, last).unwrap_or_else(|| "failed".into());
            let who = proper(&m.implementation);
            parts.push(format!("{} by {who} {at_first} and {at_last}", m.kind.label()));
            told.push(own);
        }
    }
    (!parts.is_empty()).then(|| {
        format!(
            "{} against the base, times, {} and {}: {}.",
            metric.label(),
            first.label(),
            last.label(),
            parts.join("; ")
        )
    })
}

/// What one arm of each kind carries of its base's TCP, and how long its first packets take: where the ways that each
/// opens are the question.
fn across(experiment: &Experiment, results: &Results) -> Option<String> {
    let mut told: Vec<Kind> = Vec::new();
    let (mut carried, mut begun) = (Vec::new(), Vec::new());
    let arms = experiment.mechanisms.iter().filter(|m| m.kind != Kind::Native);
    for m in arms.filter(|_| experiment.matrix) {
        if told.contains(&m.kind) {
            continue;
        }
        let of = |metric| first(results, &m.name, metric).filter(|c| c.valid);
        let up = of(Metric::TcpThroughputUp).and_then(|c| c.vs_baseline.as_ref());
        carried.extend(up.map(|vs| format!("{} {}", m.kind.label(), share(vs.ratio))));
        let wait = of(Metric::Initiation).and_then(|c| c.median);
        begun.extend(wait.map(|us| format!("{} {}", m.kind.label(), nice(us))));
        if up.is_some() || wait.is_some() {
            told.push(m.kind);
        }
    }
    let sentence = |head: &str, parts: &[String]| {
        (!parts.is_empty()).then(|| format!("{head}: {}.", parts.join(", ")))
    };
    let all = [
        sentence("TCP up, of the base", &carried),
        sentence("First packet of a connection, µs", &begun),
    ];
    let all: Vec<String> = all.into_iter().flatten().collect();
    (!all.is_empty()).then(|| all.join(" "))
}

/// What gateways carry of small packets, against native forwarding.
fn gateways(experiment: &Experiment, results: &Results) -> Option<String> {
    let gateways = experiment.mechanisms.iter().filter(|m| m.kind == Kind::Siit);
    let of = |name: &str, metric| {
        first(results, name, metric).filter(|c| c.valid)?.vs_baseline.as_ref().map(|v| v.ratio)
    };
    let parts: Vec<String> = gateways
        .filter_map(|m| {
            let up = of(&m.name, Metric::FrameRateUp)?;
            let down = of(&m.name, Metric::FrameRateDown)?;
            Some(format!("{} {} up and {} down", who(m), nice(up), nice(down)))
        })
        .collect();
    (!parts.is_empty()).then(|| {
        format!(
            "Small packets per second against kernel IPv6 forwarding, times: {}.",
            parts.join("; ")
        )
    })
}

/// What translators that keep sessions do against their base, which is another one of them.
fn stateful(experiment: &Experiment, results: &Results) -> Option<String> {
    let parts: Vec<String> = experiment
        .mechanisms
        .iter()
        .filter(|m| m.kind == Kind::Nat64)
        .filter_map(|m| {
            let of = |metric, what: &str| {
                let cell = first(results, &m.name, metric).filter(|c| c.valid)?;
                Some(format!("{} {what}", nice(cell.vs_baseline.as_ref()?.ratio)))
            };
            let shares: Vec<String> = [
                of(Metric::TcpThroughputUp, "up"),
                of(Metric::TcpThroughputDown, "down"),
                of(Metric::NewUdpFlows, "in new UDP flows"),
                of(Metric::NewTcpConnections, "in new TCP connections"),
            ]
            .into_iter()
            .flatten()
            .collect();
            (!shares.is_empty()).then(|| format!("{} {}", who(m), shares.join(", ")))
        })
        .collect();
    let base = experiment.mechanisms.iter().find(|m| m.kind == Kind::Nat64)?.base.as_deref();
    let base = experiment.mechanism(base?).ok()?;
    (!parts.is_empty())
        .then(|| format!("NAT64 against {}, times: {}.", base.label, parts.join("; ")))
}

/// What name servers answer, against the one that they are compared with.
fn name_servers(experiment: &Experiment, results: &Results) -> Option<String> {
    let servers = experiment.mechanisms.iter().filter(|m| m.kind == Kind::Dns64);
    let parts: Vec<String> = servers
        .filter(|m| m.same_as.is_none())
        .filter_map(|m| {
            let cell = first(results, &m.name, Metric::DnsRate).filter(|c| c.valid)?;
            let times = cell
                .vs_baseline
                .as_ref()
                .map_or_else(String::new, |vs| format!(" (× {})", nice(vs.ratio)));
            Some(format!("{} {}{times}", m.label, value(cell)))
        })
        .collect();
    (!parts.is_empty()).then(|| {
        format!("DNS64, thousand questions per second without loss: {}.", parts.join("; "))
    })
}

/// What a user of an IPv6-only network whole waits for, against dual stack.
fn whole(experiment: &Experiment, results: &Results) -> Option<String> {
    let networks = experiment.mechanisms.iter().filter(|m| m.kind == Kind::Xlat464);
    let mut sentences = networks.filter_map(|m| {
        let ratio = |metric| {
            let cell = first(results, &m.name, metric).filter(|c| c.valid)?;
            Some(cell.vs_baseline.as_ref()?.ratio)
        };
        let up = ratio(Metric::TcpThroughputUp)?;
        let (name, address) = (ratio(Metric::SessionFresh), ratio(Metric::SessionLiteral));
        let waits = name.zip(address).map_or_else(String::new, |(name, address)| {
            format!(
                ", and a session starts in {} of its time by a new name, in {} by address",
                share(name),
                share(address)
            )
        });
        let who = proper(&m.implementation);
        Some(format!("464XLAT by {who} carries {} of dual stack's IPv4 up{waits}.", share(up)))
    });
    sentences.next()
}

fn clat_sentence(results: &Results, m: &MechanismSpec) -> Option<String> {
    let name = m.name.as_str();
    let up = first(results, name, Metric::TcpThroughputUp);
    let down = first(results, name, Metric::TcpThroughputDown);
    let of = |cell: Option<&Cell>| {
        cell.filter(|c| c.valid).and_then(|c| c.vs_baseline.as_ref()).map(|v| v.ratio)
    };
    let who = who(m);
    let shares = match (of(up), of(down)) {
        (Some(up), Some(down)) => {
            format!("{} of native IPv6 up and {} down", share(up), share(down))
        }
        (Some(up), None) => format!("{} of native IPv6 up", share(up)),
        (None, Some(down)) => format!("{} of native IPv6 down", share(down)),
        (None, None) => return None,
    };
    let rtt = first(results, name, Metric::Rtt).filter(|c| c.valid).and_then(|cell| {
        let base = first(results, &cell.vs_baseline.as_ref()?.base, Metric::Rtt)?;
        let added = cell.median? - base.median?;
        let (verb, to) = if added < 0.0 { ("takes", "from") } else { ("adds", "to") };
        Some(format!(", and {verb} {:.3} ms {to} a round trip", added.abs()))
    });
    Some(format!("CLAT by {who} carries {shares}{}.", rtt.unwrap_or_default()))
}

fn native_sentence(results: &Results) -> String {
    let v6 = first(results, "native-v6", Metric::TcpThroughputUp).map(value);
    v6.map_or_else(
        || "No comparison could be made: no base was measured.".into(),
        |v6| format!("Native IPv6 carries {v6} Gbit/s up; no translator was measured."),
    )
}

/// A word for a verdict that says what the difference is.
pub(crate) fn verdict(cell: &Cell) -> String {
    let Some(vs) = &cell.vs_baseline else {
        let baseline = cell.kind == Kind::Native && cell.n > 0;
        return if baseline { "baseline" } else { "–" }.into();
    };
    if vs.same {
        return match vs.verdict {
            Verdict::Better | Verdict::Worse => "A/A differs",
            Verdict::Equivalent => "A/A same",
            Verdict::Unresolved => "A/A unresolved",
        }
        .into();
    }
    vs.verdict.word().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::analyse;
    use crate::fixture;
    use crate::fixture::environment;

    #[test]
    fn a_headline_over_points_names_each_program_of_a_kind_once() {
        let experiment = fixture::experiment("http-translators");
        let trials = fixture::trials(&experiment, 2, 1.0);
        let said = headline(&experiment, &analyse(&experiment, environment(), &trials).unwrap());
        for who in
            ["NAT64 by Fordway ", "NAT64 by TAYGA ", "NAT-PT by Fordway ", "Proxy by Apache "]
        {
            assert_eq!(said.matches(who).count(), 1, "{said}");
        }
        assert!(!said.contains("Baseline") && said.matches(" and ").count() == 6, "{said}");
    }

    #[test]
    fn shares_and_p_values_read_well() {
        assert_eq!([share(0.0694), share(0.57), share(1.034)], ["6.9 %", "57 %", "103 %"]);
        assert_eq!([p(None), p(Some(0.0004)), p(Some(0.0312))], ["–", "< 0.001", "0.031"]);
        assert_eq!(interval(Some([0.5, 12.34])), "0.500 – 12.3");
        assert_eq!(interval(None), "");
    }
}
