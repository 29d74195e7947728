//! The decision page: what three networks would need, from measurements and a user's numbers.

use std::collections::BTreeMap;

use minijinja::Environment;
use serde_json::json;

use super::page::{STYLE, add_parts};
use super::words::{interval_at, level, share};
use crate::error::{DataError, Result};
use crate::model::inputs::{Quantity, User};
use crate::model::options::{BREAK_EVEN, BreakEven, Need, Network};
use crate::model::{Decision, Needed, no_interval};
use crate::numbers::nice;

const TEMPLATE: &str = include_str!("../../templates/decision.html");

/// The user's numbers: field, symbol in formulas, name for people with its unit.
const INPUTS: [(&str, &str, &str); 10] = [
    ("subscribers", "N", "subscribers"),
    ("peak_gbit_s", "T", "traffic at the busiest time, Gbit/s"),
    ("native_v6_share", "s", "share of native IPv6, 0 to 1"),
    ("sessions_per_subscriber", "S", "sessions per subscriber at once"),
    ("cores", "k", "processors of a machine"),
    ("packet_octets", "P", "mean length of a packet, octets"),
    ("session_s", "D", "mean length of a session, s"),
    ("names_per_session", "q", "names asked for per session"),
    ("ports_per_address", "p", "ports of an address for sessions"),
    ("utilisation", "u", "share of its time that a processor may work, 0 to 1"),
];

/// A value of the model in words.
pub fn amount(needed: &Needed) -> String {
    match (needed.value, needed.missing) {
        (Some(value), _) => match needed.need {
            Need::Machines | Need::Addresses => format!("{value:.0}"),
            _ => nice(value),
        },
        (None, Some(quantity)) => format!("not measured: {}", quantity.label()),
        (None, None) => "–".into(),
    }
}

/// The break-even share in words.
pub fn break_even(decision: &Decision) -> String {
    let range = decision
        .break_even_interval
        .map_or_else(no_interval, |i| format!("{}: {:.2} to {:.2}", level(i.level), i.low, i.high));
    match (decision.break_even, decision.break_even_missing) {
        (Some(BreakEven::At(share)), _) => format!(
            "Below a native IPv6 share of {share:.2} IPv6-only with NAT64 and DNS64 needs fewer processors, above it dual \
             stack with NAT44 ({range})."
        ),
        (Some(BreakEven::DualStackAlways), _) => format!(
            "Dual stack with NAT44 needs fewer processors at every share of native IPv6 ({range})."
        ),
        (Some(BreakEven::Ipv6OnlyAlways), _) => format!(
            "IPv6-only with NAT64 and DNS64 needs fewer processors at every share of native IPv6 ({range})."
        ),
        (None, Some(quantity)) => {
            format!("Break-even share: not measured: {}.", quantity.label())
        }
        (None, None) => "Break-even share: –.".into(),
    }
}

/// Rows of needs, a column per network: value and interval.
pub fn needs(decision: &Decision) -> Vec<(Need, Vec<(String, String)>)> {
    let of = |need: Need, network: Network| {
        let needed = decision.needs.iter().find(|n| n.need == need && n.network == network);
        match needed {
            Some(n) if n.value.is_none() => ("–".into(), amount(n)),
            Some(n) => (amount(n), interval_at(n.interval)),
            None => ("–".into(), String::new()),
        }
    };
    Need::ALL
        .into_iter()
        .map(|need| (need, Network::ALL.map(|network| of(need, network)).into()))
        .collect()
}

/// The first lines of it, for a report.
pub(super) fn in_short(found: &Decision) -> serde_json::Value {
    let user = &found.inputs;
    let short = [Need::Cores, Need::Machines, Need::Memory, Need::Addresses, Need::Delay];
    let rows: Vec<_> = needs(found)
        .into_iter()
        .filter(|(need, _)| short.contains(need))
        .map(|(need, cells)| (need.label(), cells))
        .collect();
    json!({
        "label": found.label,
        "inputs": format!(
            "for {} subscribers, {} Gbit/s, {} native IPv6, {} sessions each, machines of {} processors",
            user.subscribers,
            user.peak_gbit_s,
            share(user.native_v6_share),
            user.sessions_per_subscriber,
            user.cores
        ),
        "networks": Network::ALL.map(Network::label),
        "rows": rows,
        "break_even": break_even(found),
    })
}

/// Makes the page.
pub fn render(decision: &Decision) -> Result<String> {
    let mut jinja = Environment::new();
    let fail =
        |e: minijinja::Error| DataError::Draw { what: "decision.html".into(), why: e.to_string() };
    add_parts(&mut jinja).map_err(fail)?;
    jinja.add_template("decision.html", TEMPLATE).map_err(fail)?;
    let known = symbols(decision);
    let user = serde_json::to_value(decision.inputs).unwrap_or_default();
    let inputs: Vec<serde_json::Value> = INPUTS
        .iter()
        .map(|(field, symbol, label)| json!({"field": field, "symbol": symbol, "label": label, "value": user[*field].to_string().trim_end_matches(".0")}))
        .collect();
    let rows: Vec<serde_json::Value> = needs(decision)
        .into_iter()
        .map(|(need, cells)| json!({"id": need, "label": need.label(), "cells": cells, "part": is_part(need)}))
        .collect();
    let formulas: Vec<Vec<String>> = decision
        .needs
        .iter()
        .map(|n| {
            let formula = n.need.formula(n.network);
            let put_in = put_in(&formula, &known);
            vec![
                n.network.label().into(),
                n.need.label().into(),
                formula,
                format!("{put_in} = {}", amount(n)),
            ]
        })
        .collect();
    let sources: Vec<Vec<String>> = decision
        .sources
        .iter()
        .map(|i| {
            let s = &i.source;
            vec![
                s.quantity.symbol().into(),
                s.quantity.label().into(),
                s.label.clone(),
                s.metric.label().into(),
                s.folder.clone(),
                s.made.into(),
                scientific(i.median),
                i.interval.map_or_else(String::new, |i| {
                    format!("{} – {} ({})", scientific(i.low), scientific(i.high), level(i.level))
                }),
                s.values.len().to_string(),
            ]
        })
        .collect();
    let scaling: Vec<Vec<String>> = decision
        .scaling
        .iter()
        .map(|s| {
            vec![
                if s.quantity == Quantity::Nat44Traffic { "NAT44" } else { "NAT64" }.into(),
                s.cores.to_string(),
                nice(s.gbit_s),
                format!("{:.0} %", 100.0 * s.efficiency),
                nice(s.wait_us),
                nice(s.wait_spread_us),
            ]
        })
        .collect();
    let checks: Vec<Vec<String>> = decision
        .checks
        .iter()
        .map(|c| {
            vec![
                c.label.clone(),
                c.what.clone(),
                c.processors.to_string(),
                c.n.to_string(),
                c.unit.into(),
                nice(c.measured),
                interval_at(c.interval),
                nice(c.predicted),
                format!("{:+.0} %", 100.0 * (c.predicted / c.measured - 1.0)),
                c.folder.clone(),
            ]
        })
        .collect();
    let script = json!({
        "user": decision.inputs,
        "values": decision.sources.iter().map(|i| (i.source.quantity, i.median)).collect::<BTreeMap<_, _>>(),
        "per_packet": decision.sources.iter().filter(|i| i.source.per_packet()).map(|i| i.source.quantity).collect::<Vec<_>>(),
        "labels": Quantity::ALL.iter().map(|q| (*q, q.label())).collect::<BTreeMap<_, _>>(),
    });
    let values = json!({
        "style": STYLE,
        "label": decision.label,
        "warnings": decision.warnings,
        "inputs": inputs,
        "networks": Network::ALL.map(Network::label),
        "needs": rows,
        "break_even": break_even(decision),
        "break_even_formula": [BREAK_EVEN, &put_in(BREAK_EVEN, &known)],
        "formulas": formulas,
        "sources": sources,
        "not_measured": decision.not_measured.iter().map(|q| q.label()).collect::<Vec<_>>(),
        "scaling": scaling,
        "checks": checks,
        // A page may not be ended by what stands in it.
        "data": script.to_string().replace('<', "\\u003c"),
    });
    let template = jinja.get_template("decision.html").map_err(fail)?;
    template.render(minijinja::Value::from(minijinja::value::Serde(values))).map_err(fail)
}

fn is_part(need: Need) -> bool {
    matches!(need, Need::CoresTranslated | Need::CoresNative | Need::CoresSessions | Need::CoresDns)
}

/// A number of any size.
fn scientific(value: f64) -> String {
    if value == 0.0 || (1e-2..1e6).contains(&value.abs()) {
        nice(value)
    } else {
        format!("{value:.2e}")
    }
}

/// Symbols of the formulas with their numbers.
fn symbols(decision: &Decision) -> BTreeMap<String, String> {
    let user = serde_json::to_value(decision.inputs).unwrap_or_default();
    let mut all: BTreeMap<String, String> = INPUTS
        .iter()
        .map(|(field, symbol, _)| {
            ((*symbol).to_owned(), user[*field].to_string().trim_end_matches(".0").to_owned())
        })
        .collect();
    all.insert("R".into(), nice(User::new_sessions(&decision.inputs)));
    for input in &decision.sources {
        all.insert(input.source.quantity.symbol().into(), scientific(input.median));
    }
    all
}

/// A formula with its symbols replaced; what is not known stays a symbol.
fn put_in(formula: &str, known: &BTreeMap<String, String>) -> String {
    let mut out = String::new();
    let mut word = String::new();
    for c in formula.chars().chain(std::iter::once(' ')) {
        if c.is_ascii_alphanumeric() {
            word.push(c);
            continue;
        }
        out.push_str(known.get(&word).unwrap_or(&word));
        word.clear();
        out.push(c);
    }
    out.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_put_into_a_formula() {
        let known = BTreeMap::from([("T", "20"), ("s", "0.6"), ("c44", "0.31")]);
        let known = known.into_iter().map(|(a, b)| (a.to_owned(), b.to_owned())).collect();
        assert_eq!(put_in("T (1 - s) c44 / u", &known), "20 (1 - 0.6) 0.31 / u");
        assert_eq!(put_in("N / p, rounded up", &known), "N / p, rounded up");
    }

    #[test]
    fn numbers_of_any_size_are_readable() {
        assert_eq!([scientific(0.0), scientific(250.0), scientific(4e-6)], ["0", "250", "4.00e-6"]);
    }
}
