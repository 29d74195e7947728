//! `power`: what a number of blocks can show; the same for `plan` and `run`, from what is known of the spread.

use std::path::{Path, PathBuf};

use fordway_data::artefacts::{self, Run};
use fordway_data::spec::{Experiment, Metric, RunSpec};
use fordway_stats::power::{
    MOST_BLOCKS, blocks_for_difference, blocks_for_equivalence, cv_of_ratio, deviation_of_ratio,
    least_difference,
};
use serde::Serialize;
use serde_json::json;

use super::run::RESULTS;
use crate::cli::{PlanArgs, PowerArgs};
use crate::environment;
use crate::error::{EXIT_DONE, Result};

/// Numbers of blocks in the table.
const BLOCKS: [u32; 9] = [3, 5, 7, 10, 15, 20, 30, 50, 100];
/// Fewest pairs from which a spread is taken.
const FEWEST: u32 = 3;

#[derive(Serialize)]
struct Line {
    blocks: u32,
    /// The least difference of a ratio from 1 that is shown with power 0.8.
    least_difference: Option<f64>,
}

/// Prints what numbers of blocks can show.
pub(super) fn power(args: &PowerArgs) -> Result<u8> {
    let deviation = deviation_of_ratio(args.cv);
    let all: Vec<u32> = args.blocks.map_or_else(|| BLOCKS.to_vec(), |blocks| vec![blocks]);
    let line =
        |blocks| Line { blocks, least_difference: least_difference(blocks, deviation, args.alpha) };
    let lines: Vec<Line> = all.into_iter().map(line).collect();
    let equivalence = blocks_for_equivalence(deviation, args.margin, args.alpha);
    let difference = blocks_for_difference(deviation, args.margin, args.alpha);
    if args.json {
        return super::print_json(&json!({
            "cv": args.cv, "margin": args.margin, "alpha": args.alpha, "power": 0.8,
            "blocks": lines, "blocks_for_equivalence": equivalence,
            "blocks_for_a_difference_of_the_margin": difference,
        }));
    }
    let (cv, margin) = (percent(args.cv), percent(args.margin));
    anstream::println!(
        "A deployment's value varies by {cv} %; tests at {} with power 0.8.\n",
        args.alpha
    );
    anstream::println!("blocks  least difference that is shown");
    for line in &lines {
        let least = line.least_difference.map_or("none".into(), |d| format!("{} %", percent(d)));
        anstream::println!("{:>6}  {least}", line.blocks);
    }
    anstream::println!("\nEquivalence within {margin} % takes {}.", blocks(equivalence));
    anstream::println!("A difference of {margin} % takes {}.", blocks(difference));
    Ok(EXIT_DONE)
}

fn percent(share: f64) -> String {
    let value = 100.0 * share;
    let digits = if value < 10.0 { 1 } else { 0 };
    format!("{value:.digits$}")
}

fn blocks(number: Option<u32>) -> String {
    number.map_or_else(|| format!("more than {MOST_BLOCKS} blocks"), |n| format!("{n} blocks"))
}

/// What is known of the spread, and from where.
struct Spread {
    /// Coefficient of variation by quantity; without a name, of all.
    of: Vec<(Option<Metric>, f64)>,
    from: String,
}

/// What a run's number of blocks can show, as far as the spread is known: declared, or from an earlier run of the
/// same experiment on this machine.
pub(super) fn sizes(
    experiment: &Experiment,
    run: &RunSpec,
    args: &PlanArgs,
) -> Result<Vec<String>> {
    if run.blocks < FEWEST {
        return Ok(Vec::new());
    }
    let declared = args.cv.or(experiment.expected_cv);
    let spread = match (declared, &args.earlier) {
        (_, Some(dir)) => of_run(&artefacts::read(dir)?, dir),
        (Some(cv), None) => {
            let from = if args.cv.is_some() { "as --cv says" } else { "as the experiment expects" };
            Some(Spread { of: vec![(None, cv)], from: from.into() })
        }
        (None, None) => earlier(experiment),
    };
    let Some(spread) = spread else {
        let how = "declare expected_cv, give --cv, or let an earlier run lie in lab-results";
        return Ok(vec![format!("What these blocks can show is not known beforehand: {how}.")]);
    };
    Ok(words(experiment, run.blocks, &spread))
}

fn words(experiment: &Experiment, blocks: u32, spread: &Spread) -> Vec<String> {
    let alpha = experiment.alpha;
    let margin = percent(experiment.margin);
    let say = |cv: f64| {
        let deviation = deviation_of_ratio(cv);
        let least = least_difference(blocks, deviation, alpha).map_or("?".into(), percent);
        let equal = blocks_for_equivalence(deviation, experiment.margin, alpha);
        let equal = equal.map_or(format!("more than {MOST_BLOCKS}"), |n| n.to_string());
        (least, equal)
    };
    let mut all: Vec<(Option<Metric>, f64)> = spread.of.clone();
    all.sort_by(|a, b| a.1.total_cmp(&b.1));
    let (Some(first), Some(last)) = (all.first(), all.last()) else { return Vec::new() };
    let from = &spread.from;
    if all.len() == 1 {
        let (least, equal) = say(first.1);
        return vec![format!(
            "{blocks} blocks resolve differences from {least} % on, equivalence within {margin} % needs {equal} \
             (power 0.8, one comparison; coefficient of variation {} %, {from}).",
            percent(first.1)
        )];
    }
    let middle = &all[all.len() / 2];
    let told = [("steadiest", first), ("middling", middle), ("least steady", last)];
    let one = |(which, (metric, cv)): (&str, &(Option<Metric>, f64))| {
        let (least, equal) = say(*cv);
        let name = metric.map_or("all", Metric::name);
        format!(
            "{which}, {name} (varies by {} %): from {least} % on, equivalence needs {equal}",
            percent(*cv)
        )
    };
    vec![format!(
        "{blocks} blocks resolve differences (power 0.8, one comparison; equivalence within {margin} %): {} ({from}).",
        told.map(one).join("; ")
    )]
}

/// The spread that a run has seen, by quantity.
fn of_run(run: &Run, dir: &Path) -> Option<Spread> {
    let seen = run.results.power.iter().filter(|p| p.blocks >= FEWEST && p.deviation > 0.0);
    let of: Vec<(Option<Metric>, f64)> =
        seen.map(|p| (Some(p.metric), cv_of_ratio(p.deviation))).collect();
    (!of.is_empty()).then(|| Spread { of, from: format!("as in {}", dir.display()) })
}

/// The newest run of this experiment on this machine that shows a spread.
fn earlier(experiment: &Experiment) -> Option<Spread> {
    let entries = std::fs::read_dir(RESULTS).ok()?;
    let mut all: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    // Their names end in the time at which they began.
    all.sort();
    let (model, processors) = environment::machine();
    all.iter().rev().find_map(|dir| {
        let own = artefacts::read_experiment(dir).ok()?;
        let then = artefacts::read_environment(dir).ok()??;
        let same =
            own.name == experiment.name && then.cpu_model == model && then.processors == processors;
        of_run(&artefacts::read(dir).ok().filter(|_| same)?, dir)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_blocks_show_is_said_for_one_spread_and_for_many() {
        let mut experiment = Experiment::find("nat64").unwrap();
        experiment.margin = 0.03;
        let one = Spread { of: vec![(None, 0.02)], from: "as --cv says".into() };
        let said = words(&experiment, 7, &one);
        // 7 pairs, deviation 2.83 %: noncentral t gives 1.28 standard deviations.
        assert_eq!(
            said,
            [
                "7 blocks resolve differences from 3.7 % on, equivalence within 3.0 % needs 10 (power 0.8, one \
              comparison; coefficient of variation 2.0 %, as --cv says)."
            ]
        );
        let of = vec![(Some(Metric::Rtt), 0.2), (Some(Metric::TcpThroughputUp), 0.01)];
        let many = Spread { of, from: "as in x".into() };
        let said = words(&experiment, 7, &many).concat();
        assert!(said.contains("steadiest, tcp_throughput_up (varies by 1.0 %)"), "{said}");
        assert!(said.contains("least steady, rtt (varies by 20 %)"), "{said}");
    }
}
