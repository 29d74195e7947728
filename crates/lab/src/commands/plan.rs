//! `plan`: what a run would do. Also makes the choices of a run for `run`.

use std::collections::BTreeMap;
use std::path::Path;

use fordway_data::plan::{Plan, blocks_for, in_words, lay_out, metrics_of, power_notes, shares};
use fordway_data::spec::{Experiment, Hosts, METHOD, Metric, Pin, RunSpec, is_file};
use serde::Serialize;

use super::power::sizes;
use crate::cli::{PlanArgs, Switch};
use crate::error::{EXIT_DONE, LabError, Result};
use crate::host::{affinity, clocksource};
use crate::hosts::Pair;
use crate::hosts::orders::Surveyed;
use crate::mechanism::locate_fordway;
use crate::runner::surveyed;
use crate::topology::needs;

#[derive(Serialize)]
struct Shown<'a> {
    experiment: &'a str,
    run: &'a RunSpec,
    plan: &'a Plan,
    notes: &'a [String],
}

/// Shows the plan.
pub(super) fn plan(args: &PlanArgs) -> Result<u8> {
    let fordway = locate_fordway(args.fordway.as_deref())?;
    // Without asking the hosts: a plan touches nothing but what it is typed on.
    let (experiment, run) = choose(args, fordway.as_deref(), false, None)?;
    let plan = lay_out(&experiment, &run, &own_clocksource());
    let mut notes = notes(&experiment, &run);
    notes.extend(sizes(&experiment, &run, args)?);
    if args.json {
        let shown = Shown { experiment: &experiment.name, run: &run, plan: &plan, notes: &notes };
        return super::print_json(&shown);
    }
    anstream::println!("{}", experiment.title);
    anstream::println!("  question  {}", experiment.question);
    anstream::println!("  decision  {}", experiment.decision);
    anstream::println!("  profile   {} (seed {})", run.profile, run.seed);
    for condition in &plan.conditions {
        anstream::println!("  condition {}", condition.label());
    }
    anstream::println!("  blocks    {} per condition, each in this order:", run.blocks);
    let first = &plan.conditions[0];
    for block in 1..=run.blocks.min(3) {
        let of = plan.deployments.iter().filter(|d| d.block == block && d.condition == *first);
        let names: Vec<&str> = of.map(|d| d.mechanism.as_str()).collect();
        anstream::println!("    {block}: {}", names.join(" "));
    }
    if run.blocks > 3 {
        anstream::println!("    ...");
    }
    if let Some(pin) = &run.pin {
        anstream::println!("  pin       {}", pin_words(pin));
    }
    print_skipped(&run);
    print_needs(&experiment, &run);
    anstream::println!("  trials    {}", plan.trials);
    anstream::println!("  time      about {}", in_words(plan.seconds));
    for note in notes {
        anstream::println!("  note      {note}");
    }
    Ok(EXIT_DONE)
}

/// Says what another machine has to be, as a device under test.
fn print_needs(experiment: &Experiment, run: &RunSpec) {
    // Also of one that is skipped as it has no carrier yet.
    let named = |name: &String| run.mechanisms.contains(name) || run.skipped.contains_key(name);
    for arm in experiment.mechanisms.iter().filter(|arm| named(&arm.name)) {
        let Some((lines, duty)) = needs(arm) else { continue };
        anstream::println!("  device    {}: {duty}; on Linux:", arm.name);
        lines.iter().for_each(|line| anstream::println!("    {line}"));
    }
}

/// What a run binds, in words.
pub(super) fn pin_words(pin: &Pin) -> String {
    match pin.words() {
        none if none.is_empty() => format!("{pin}: chosen on the hosts when the run begins"),
        words => format!(
            "{} (kernel work is done where the packet's sender runs)",
            words.replace(',', ", ").replace('=', " ")
        ),
    }
}

/// Says which mechanisms are left out and what to install.
pub(super) fn print_skipped(run: &RunSpec) {
    for (name, hint) in &run.skipped {
        crate::note!("  skipped   {name}: {hint}");
    }
    for (reason, metrics) in run.unmeasured_by_reason() {
        crate::note!("  skipped   {}: not measured: {reason}", metrics.join(", "));
    }
}

/// What a reader should know before the run.
pub(super) fn notes(experiment: &Experiment, run: &RunSpec) -> Vec<String> {
    let chosen = || experiment.mechanisms.iter().filter(|m| run.mechanisms.contains(&m.name));
    let mut alone: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for arm in chosen() {
        if let Some(base) = arm.base.as_deref().filter(|b| !run.mechanisms.iter().any(|m| m == b)) {
            alone.entry(base).or_default().push(&arm.name);
        }
    }
    let without_base = alone
        .into_iter()
        .map(|(base, arms)| format!("{}: no ratio, as {base} does not run", arms.join(", ")));
    let arms = chosen()
        .filter(|m| m.same_as.is_none())
        .filter(|m| m.base.as_ref().is_some_and(|base| run.mechanisms.contains(base)));
    let of = |m| metrics_of(experiment, &run.unmeasured, m);
    let comparisons = arms.flat_map(of).filter(|m| *m != Metric::StartTime).count();
    power_notes(run.blocks, comparisons, experiment.alpha).into_iter().chain(without_base).collect()
}

/// The machine's present clock source.
pub(super) fn own_clocksource() -> String {
    clocksource::current().unwrap_or_else(|_| "unknown".into())
}

/// The experiment and the choices that the arguments make. Before a run, `rehearse` finds out by a
/// short start which engines work here.
pub(super) fn choose(
    args: &PlanArgs,
    fordway: Option<&Path>,
    rehearse: bool,
    pair: Option<&Pair>,
) -> Result<(Experiment, RunSpec)> {
    let mut experiment = Experiment::named(&args.name)?;
    for name in &args.only {
        experiment.mechanism(name)?;
    }
    let runs = |name: &String| args.only.is_empty() || args.only.contains(name);
    if let Some(arm) =
        experiment.mechanisms.iter().find(|arm| arm.device.is_some() && runs(&arm.name))
        && (pair.is_some() || args.hosts.is_some())
    {
        return Err(LabError::Usage(format!(
            "{} is another machine, and both ends of its Tester are on this one: leave --hosts out, or the mechanism by --only",
            arm.name
        )));
    }
    if let Some(times) = args.aa {
        let one = match &args.only[..] {
            [] => experiment.sentinel.clone(),
            [one] => one.clone(),
            _ => {
                return Err(LabError::Usage(
                    "--aa repeats one mechanism: name one in --only".into(),
                ));
            }
        };
        experiment = experiment.repeated(&one, times)?;
    }
    let profile = experiment.profile(args.profile.key())?;
    if !args.clocksource.is_empty() {
        let offered = match pair {
            Some(pair) => pair.clocksources()?,
            None => clocksource::available()?,
        };
        if let Some(bad) = args.clocksource.iter().find(|c| !offered.contains(c)) {
            return Err(LabError::Usage(format!(
                "this kernel has no clock source `{bad}`; it offers: {}",
                offered.join(", ")
            )));
        }
    }
    let wanted: Vec<String> = experiment
        .mechanisms
        .iter()
        .map(|m| m.name.clone())
        .filter(|name| args.only.is_empty() || args.aa.is_some() || args.only.contains(name))
        .collect();
    let Surveyed { versions, skipped, mut unmeasured } =
        found(&experiment, &wanted, fordway, rehearse, pair)?;
    let hosts = args.hosts.as_deref().map(Hosts::read).transpose()?;
    if let Some(hosts) = &hosts {
        if args.offloads == Switch::Off {
            return Err(LabError::Usage(
                "--offloads off is about the veth devices of one machine; on hosts it is their network cards': \
                 `ethtool -K DEVICE ...` before the run"
                    .into(),
            ));
        }
        if experiment.matrix {
            return Err(LabError::Usage(format!(
                "{} finds out which ways each mechanism opens, which needs both ends on one machine: leave --hosts out",
                experiment.name
            )));
        }
        let why = |m: &Metric| {
            hosts.unmeasured(*m, profile.probe_rate).map(|why| (m.name().to_owned(), why))
        };
        unmeasured.extend(experiment.metrics.iter().filter_map(why));
    }
    let mechanisms: Vec<String> =
        wanted.into_iter().filter(|name| versions.contains_key(name)).collect();
    let durations = if args.duration.is_empty() {
        profile.durations_s.clone()
    } else {
        each_once(&args.duration)
    };
    let clocksources = each_once(&args.clocksource);
    let (cached, native) = (each_once(&args.cached), each_once(&args.native));
    let named = !cached.is_empty() || !native.is_empty();
    if named && !experiment.metrics.contains(&Metric::DnsRate) {
        return Err(LabError::Usage(format!(
            "--cached and --native are about questions to DNS64 servers; {} asks none",
            experiment.name
        )));
    }
    if named {
        // All the rest is about new names alone, or about known ones alone.
        let why = "names are a factor of the rate without loss alone";
        let rest = experiment.metrics.iter().filter(|m| **m != Metric::DnsRate);
        unmeasured.extend(rest.map(|m| (m.name().to_owned(), why.to_owned())));
    }
    let conditions = clocksources.len().max(1) * shares(&cached, &native).len();
    let blocks = args.blocks.unwrap_or_else(|| {
        blocks_for(&experiment, profile, &mechanisms, &unmeasured, &durations, conditions)
    });
    let seed = args.seed.unwrap_or_else(|| u64::from(rand::random::<u32>()));
    let pin = args.pin.as_ref().map(|pin| bound(pin, hosts.is_some(), pair)).transpose()?;
    let mut run = RunSpec {
        profile: args.profile.key().into(),
        method: METHOD,
        seed,
        blocks,
        durations_s: durations,
        clocksources,
        offloads: args.offloads == Switch::On,
        cached,
        native,
        mechanisms,
        skipped,
        unmeasured,
        versions,
        replay: String::new(),
        hosts,
        pin,
        guest: crate::guest::around(),
    };
    // Of a user's own file, what lies beside the results is the one that was run.
    let name = if is_file(&args.name) { "spec.toml" } else { &args.name };
    run.replay = replay(name, &run, args.aa.map(|times| (experiment.sentinel.as_str(), times)));
    Ok((experiment, run))
}

/// The processors that a run will bind its parts to. A plan does not ask hosts, whose choice is made by the run.
fn bound(pin: &Pin, hosts: bool, pair: Option<&Pair>) -> Result<Pin> {
    match pair {
        Some(pair) => pair.choose(pin),
        None if hosts => Ok(pin.clone()),
        None => Ok(pin.on_one(&affinity::cores())?),
    }
}

/// What can run and be measured, on this machine or on the hosts of the run.
pub(super) fn found(
    experiment: &Experiment,
    wanted: &[String],
    fordway: Option<&Path>,
    rehearse: bool,
    pair: Option<&Pair>,
) -> Result<Surveyed> {
    let here = |wanted: &[String], rehearse| surveyed(experiment, wanted, fordway, rehearse);
    match pair {
        Some(pair) => pair.survey(experiment, wanted, rehearse, here),
        None => here(wanted, rehearse),
    }
}

/// The levels of a factor in their order: one that is named twice is one.
fn each_once<T: Clone + PartialEq>(levels: &[T]) -> Vec<T> {
    let mut all: Vec<T> = Vec::new();
    for level in levels {
        if !all.contains(level) {
            all.push(level.clone());
        }
    }
    all
}

/// The one command that repeats the run; `aa` is the one mechanism that it repeats, and how often.
fn replay(name: &str, run: &RunSpec, aa: Option<(&str, u32)>) -> String {
    fn list<T: ToString>(items: &[T]) -> String {
        items.iter().map(T::to_string).collect::<Vec<_>>().join(",")
    }
    let mut line = format!(
        "fordway-lab run {name} --profile {} --seed {} --blocks {} --duration {} --only {}",
        run.profile,
        run.seed,
        run.blocks,
        list(&run.durations_s),
        aa.map_or_else(|| run.mechanisms.join(","), |(one, times)| format!("{one} --aa {times}"))
    );
    if !run.clocksources.is_empty() {
        line.push_str(&format!(" --clocksource {}", run.clocksources.join(",")));
    }
    for (option, shares) in [("cached", &run.cached), ("native", &run.native)] {
        if !shares.is_empty() {
            line.push_str(&format!(" --{option} {}", list(shares)));
        }
    }
    if !run.offloads {
        line.push_str(" --offloads off");
    }
    if let Some(pin) = &run.pin {
        line.push_str(&format!(" --pin {}", pin.replay()));
    }
    if let Some(guest) = &run.guest {
        line.push_str(&format!(" --guest --guest-suite {}", guest.suite));
        if guest.icount {
            line.push_str(" --icount");
        } else {
            line.push_str(&format!(" --guest-cpus {}", guest.cpus));
        }
        line.push_str(&format!(" --guest-memory {}", guest.memory_mib));
    }
    if run.hosts.is_some() {
        // It lies beside the results.
        line.push_str(" --hosts hosts.toml");
    }
    line
}
