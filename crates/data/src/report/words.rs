//! Numbers and findings in words.

use fordway_stats::interval::Interval;
use fordway_stats::paired::Verdict;

use crate::analysis::{Cell, Judged, Noise, Results, VsBaseline, undecided};
use crate::numbers::nice;
use crate::spec::{Experiment, Kind, MechanismSpec, quantity};

/// A value with its sign of being a lower bound.
pub(crate) fn value(cell: &Cell) -> String {
    let sign = if cell.at_least { "≥ " } else { "" };
    cell.median.map_or_else(|| "–".into(), |v| format!("{sign}{}", nice(v)))
}

/// An interval, or nothing.
pub fn interval(ci: Option<[f64; 2]>) -> String {
    ci.map_or_else(String::new, |[lo, hi]| format!("{} – {}", nice(lo), nice(hi)))
}

/// An interval with the level at which it holds: `11.9 – 12.8 (98.4 %)`.
pub fn interval_at(of: Option<Interval>) -> String {
    of.map_or_else(String::new, |i| {
        format!("{} ({})", interval(Some([i.low, i.high])), level(i.level))
    })
}

/// A level with the digits that it needs: `95 %`, `98.4 %`.
pub fn level(level: f64) -> String {
    let text = format!("{:.1}", 100.0 * level);
    format!("{} %", text.trim_end_matches(".0"))
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

/// Most words of a headline.
const MOST_WORDS: usize = 20;

/// What the run has decided, in at most 20 words that verdicts carry: the first verdict in the experiment's order of
/// mechanisms and metrics, or how many blocks the first comparison would take.
pub(crate) fn headline(experiment: &Experiment, results: &Results) -> String {
    if !results.goals.is_empty() {
        return goals_headline(&results.goals);
    }
    let compared = compared(experiment, results);
    let decided: Vec<&Compared<'_>> =
        compared.iter().filter(|c| c.vs.verdict != Verdict::Unresolved).collect();
    let Some(first) = compared.first() else {
        let equal = results.noise.as_ref().map(Noise::headline);
        return equal
            .unwrap_or_else(|| "No comparison could be made: no base was measured.".into());
    };
    let count = format!("{} of {} comparisons decided.", decided.len(), compared.len());
    let (lead, rest) = match decided.first() {
        Some(lead) => (lead.finding(experiment), count.clone()),
        None => (format!("{}:", first.what()), format!("{}.", undecided(first.vs, experiment))),
    };
    // Without the names, or the count, where both are too long.
    let one = if decided.is_empty() { capital(&rest) } else { format!("{lead}.") };
    let whole =
        if decided.is_empty() { format!("{lead} {rest}") } else { format!("{lead}; {rest}") };
    let fits = |text: &String| text.split_whitespace().count() <= MOST_WORDS;
    [whole, one].into_iter().find(fits).unwrap_or(count)
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// A comparison that is not one of equal arms.
struct Compared<'a> {
    arm: &'a MechanismSpec,
    base: &'a MechanismSpec,
    cell: &'a Cell,
    vs: &'a VsBaseline,
}

/// The comparisons under the first condition, in the experiment's order: mechanisms before native paths.
fn compared<'a>(experiment: &'a Experiment, results: &'a Results) -> Vec<Compared<'a>> {
    let Some(condition) = results.conditions().first().copied() else { return Vec::new() };
    let (native, others): (Vec<&MechanismSpec>, Vec<&MechanismSpec>) =
        experiment.mechanisms.iter().partition(|m| m.kind == Kind::Native);
    let mut all = Vec::new();
    for arm in others.into_iter().chain(native) {
        for metric in &experiment.metrics {
            let here = |c: &&Cell| {
                c.mechanism == arm.name && c.metric == *metric && c.condition == *condition
            };
            for cell in results.cells.iter().filter(here) {
                let Some(vs) = cell.vs_baseline.as_ref().filter(|vs| !vs.same) else { continue };
                let Ok(base) = experiment.mechanism(&vs.base) else { continue };
                all.push(Compared { arm, base, cell, vs });
            }
        }
    }
    all
}

impl Compared<'_> {
    /// `CLAT by TAYGA, TCP up`.
    fn what(&self) -> String {
        let quantity = quantity(self.cell.metric, self.cell.point.as_ref());
        // Without what a label explains in brackets.
        let quantity = quantity.split(" (").next().unwrap_or_default().to_owned();
        format!("{}, {quantity}", brief(self.arm))
    }

    /// `CLAT by TAYGA, TCP up: 6.9 % of Native IPv6`.
    fn finding(&self, experiment: &Experiment) -> String {
        format!("{}: {} {}", self.what(), said(self.vs, experiment), brief(self.base))
    }
}

/// What a verdict says of the ratio, to be followed by the base's name.
fn said(vs: &VsBaseline, experiment: &Experiment) -> String {
    match vs.verdict {
        Verdict::Equivalent => format!("within {} of", share(experiment.margin)),
        Verdict::Unresolved => "not decided against".into(),
        Verdict::Better | Verdict::Worse if vs.ratio >= 2.0 => format!("{} times", nice(vs.ratio)),
        Verdict::Better | Verdict::Worse => format!("{} of", share(vs.ratio)),
    }
}

/// A mechanism in few words: `CLAT by TAYGA`, `Native IPv6`.
pub fn brief(m: &MechanismSpec) -> String {
    if m.kind == Kind::Native {
        return m.label.split([',', '(']).next().unwrap_or_default().trim().to_owned();
    }
    format!("{} by {}", m.kind.label(), who(m))
}

fn goals_headline(goals: &[Judged]) -> String {
    let count = |of: fn(&Judged) -> bool| goals.iter().filter(|g| of(g)).count();
    let mut text =
        format!("{} of {} goals met", count(|g| g.met == Some(true) && !g.close), goals.len());
    for (number, what) in [
        (count(|g| g.met == Some(false) && !g.close), "missed"),
        (
            count(|g| g.close || (g.met.is_none() && g.measured.is_some())),
            "not decided by this run",
        ),
        (count(|g| g.measured.is_none()), "not measured"),
    ] {
        if number > 0 {
            text.push_str(&format!(", {number} {what}"));
        }
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
    let alone = match (m.engine.as_deref(), m.attach.as_deref()) {
        (Some("kernel"), Some("xdp")) => format!("{name} at XDP"),
        (Some("kernel"), Some("in-place")) => format!("{name}, in place at the ingress"),
        (Some("kernel"), Some("direct")) => format!("{name}, forwarding directly"),
        (Some("kernel"), Some(attach)) => format!("{name} at the {attach}"),
        (Some(engine), _) => format!("{name}'s {engine} engine"),
        (None, _) => name.to_owned(),
    };
    if m.standby.is_some() { format!("{alone} with a standby") } else { alone }
}

/// A word for a verdict that says what the difference is.
pub(crate) fn verdict(cell: &Cell) -> String {
    let Some(vs) = &cell.vs_baseline else {
        if let Some(why) = &cell.undecided {
            return why.clone();
        }
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
    let n_of = vs.n_of().map_or_else(String::new, |n_of| format!(" ({n_of} blocks)"));
    format!("{}{n_of}", vs.verdict.word())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::analyse;
    use crate::fixture;
    use crate::fixture::environment;

    fn of(name: &str, blocks: u32) -> (Experiment, Results) {
        let experiment = fixture::experiment(name);
        let trials = fixture::trials(&experiment, blocks, 1.0);
        let results = analyse(&experiment, environment(), &trials).unwrap();
        (experiment, results)
    }

    #[test]
    fn headlines_have_twenty_words_at_most_and_say_what_was_decided() {
        for experiment in Experiment::built_in().unwrap() {
            for blocks in [1, 2, 7] {
                let (experiment, results) = of(&experiment.name, blocks);
                let said = headline(&experiment, &results);
                let words = said.split_whitespace().count();
                assert!(words <= MOST_WORDS, "{}: {words}: {said}", experiment.name);
                let decided = results.cells.iter().any(|c| {
                    c.vs_baseline
                        .as_ref()
                        .is_some_and(|v| !v.same && v.verdict != Verdict::Unresolved)
                });
                let judged = results.goals.is_empty() && results.noise.is_none();
                if judged {
                    assert_eq!(said.contains("not decided by this run"), !decided, "{said}");
                }
                assert!(said.ends_with('.') && !said.contains(".."), "{said}");
            }
        }
    }

    #[test]
    fn each_goal_is_counted_once() {
        let goal = |met, measured, close| Judged {
            id: String::new(),
            text: String::new(),
            goal: String::new(),
            measured,
            interval: None,
            unit: String::new(),
            met,
            close,
            detail: String::new(),
        };
        let goals = [
            goal(Some(true), Some(1.0), false),
            goal(Some(false), Some(0.5), false),
            goal(Some(true), Some(1.0), true),
            // The generator was the limit, once with the goal inside the interval.
            goal(None, Some(0.9), true),
            goal(None, Some(0.9), false),
            goal(None, None, false),
        ];
        assert_eq!(
            goals_headline(&goals),
            "1 of 6 goals met, 1 missed, 3 not decided by this run, 1 not measured."
        );
    }

    #[test]
    fn a_headline_is_the_first_verdict_or_what_it_would_take() {
        let (experiment, mut results) = of("nat64", 7);
        let said = headline(&experiment, &results);
        assert_eq!(
            said,
            "NAT44 by nftables, TCP up: 2.99 times Native IPv6; 88 of 88 comparisons decided."
        );
        for cell in &mut results.cells {
            if let Some(vs) = &mut cell.vs_baseline {
                vs.verdict = Verdict::Unresolved;
            }
        }
        let said = headline(&experiment, &results);
        assert!(said.contains("not decided by this run: 8 blocks would do."), "{said}");
        let (experiment, results) = of("nat64", 1);
        let said = headline(&experiment, &results);
        assert!(said.ends_with("not decided by this run: one block shows nothing."), "{said}");
    }

    #[test]
    fn intervals_say_their_level() {
        assert_eq!([level(0.95), level(0.984375), level(0.75)], ["95 %", "98.4 %", "75 %"]);
        let seven = Interval { low: 0.5, high: 12.34, level: 0.984375 };
        assert_eq!(interval_at(Some(seven)), "0.500 – 12.3 (98.4 %)");
        assert_eq!(interval_at(None), "");
    }

    #[test]
    fn shares_and_p_values_read_well() {
        assert_eq!([share(0.0694), share(0.57), share(1.034)], ["6.9 %", "57 %", "103 %"]);
        assert_eq!([p(None), p(Some(0.0004)), p(Some(0.0312))], ["–", "< 0.001", "0.031"]);
        assert_eq!(interval(Some([0.5, 12.34])), "0.500 – 12.3");
        assert_eq!(interval(None), "");
    }
}
