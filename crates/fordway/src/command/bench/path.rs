//! `fordway bench --path`: where the kernel spends time on the traffic of this host.

use std::fmt::Write;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use fordway_bpf::{Calls, Observed, PathWatch, ProgramRuns};
use fordway_daemon::failure::Failure;
use fordway_daemon::output::{self, STRONG};
use serde::Serialize;

/// Functions of the kernel that the table shows.
const FUNCTIONS: usize = 20;

/// What was seen.
#[derive(Debug, Serialize)]
struct Seen {
    seconds: f64,
    /// By processor.
    processors: Vec<Use>,
    steps: Vec<Step>,
    /// Where the kernel was, the most first.
    functions: Vec<Function>,
    /// The running programs of the kernel engine.
    programs: Vec<Runs>,
}

/// Shares of the time of one processor, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
struct Use {
    /// Not idle.
    busy: f64,
    /// In interrupts and softirqs, where the kernel receives and forwards.
    interrupts: f64,
}

/// A step on a packet's way, by processor.
#[derive(Debug, Serialize)]
struct Step {
    tracepoint: &'static str,
    about: &'static str,
    /// False: this kernel does not have it.
    observed: bool,
    processors: Vec<PerProcessor>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct PerProcessor {
    calls: u64,
    gso_packets: u64,
    gso_segments: u64,
    octets: u64,
    ns: u64,
}

#[derive(Debug, Serialize)]
struct Function {
    function: String,
    samples: u64,
    /// Of the time of one processor; of several processors it may be above 1.
    share: f64,
}

#[derive(Debug, Serialize)]
struct Runs {
    id: u32,
    program: String,
    runs: u64,
    ns: u64,
}

/// Observes for so many seconds, and prints it.
pub(super) fn run(seconds: u64, json: bool) -> Result<(), Failure> {
    let watch = PathWatch::start()?;
    let (before, started) = (times(), Instant::now());
    thread::sleep(Duration::from_secs(seconds));
    let (steps, samples, programs) = (watch.steps()?, watch.samples()?, watch.programs());
    let (after, seconds) = (times(), started.elapsed().as_secs_f64());
    drop(watch);
    let share = |samples| samples as f64 / (PathWatch::SAMPLES_PER_SECOND as f64 * seconds);
    let function = |(function, samples)| Function { function, samples, share: share(samples) };
    let seen = Seen {
        seconds,
        processors: before.iter().zip(&after).map(|(before, after)| used(before, after)).collect(),
        steps: steps.iter().map(step).collect(),
        functions: samples.into_iter().map(function).collect(),
        programs: programs.into_iter().filter(|it| it.runs > 0).map(runs).collect(),
    };
    if json {
        return output::print_json(&seen);
    }
    output::print(&table(&seen))
}

fn step(observed: &Observed) -> Step {
    Step {
        tracepoint: observed.step.tracepoint,
        about: observed.step.about,
        observed: !observed.processors.is_empty(),
        processors: observed.processors.iter().map(per_processor).collect(),
    }
}

fn per_processor(calls: &Calls) -> PerProcessor {
    let &Calls { calls, super_packets, segments, octets, ns } = calls;
    PerProcessor { calls, gso_packets: super_packets, gso_segments: segments, octets, ns }
}

fn runs(program: ProgramRuns) -> Runs {
    Runs { id: program.id, program: program.name, runs: program.runs, ns: program.ns }
}

/// The counters of each processor in /proc/stat, in ticks (proc_stat(5)): user, nice, system, idle, iowait, irq, softirq, steal.
fn times() -> Vec<Vec<u64>> {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let processor = |line: &str| {
        let (name, counters) = line.split_once(' ')?;
        name.strip_prefix("cpu").filter(|number| !number.is_empty())?;
        counters.split_whitespace().take(8).map(|it| it.parse().ok()).collect()
    };
    text.lines().filter_map(processor).collect()
}

fn used(before: &[u64], after: &[u64]) -> Use {
    let ticks: Vec<f64> =
        before.iter().zip(after).map(|(old, new)| new.saturating_sub(*old) as f64).collect();
    let [_, _, _, idle, iowait, irq, softirq, _] = ticks[..] else { return Use::default() };
    match ticks.iter().sum::<f64>() {
        0.0 => Use::default(),
        all => Use { busy: (all - idle - iowait) / all, interrupts: (irq + softirq) / all },
    }
}

fn table(seen: &Seen) -> String {
    let mut text = format!("{:.1} s", seen.seconds);
    for (number, it) in seen.processors.iter().enumerate() {
        let [busy, interrupts] = [it.busy, it.interrupts].map(|share| share * 100.0);
        let _ =
            write!(text, "; processor {number}: {busy:.0} % busy, {interrupts:.0} % in interrupts");
    }
    let _ = writeln!(
        text,
        "\n\n{STRONG}{:<23}{:>11}{:>7}{:>9}{:>9}  what happens{STRONG:#}",
        "step", "per second", "GSO", "octets", "ns"
    );
    let mut row = |name: &str, calls: u64, [gso, octets, ns]: [String; 3], about: &str| {
        let per_second = calls as f64 / seen.seconds;
        let _ = writeln!(text, "{name:<23}{per_second:>11.0}{gso:>7}{octets:>9}{ns:>9}  {about}");
    };
    for step in &seen.steps {
        let sum = |of: fn(&PerProcessor) -> u64| step.processors.iter().map(of).sum::<u64>();
        let [calls, gso, octets, ns] =
            [sum(|it| it.calls), sum(|it| it.gso_packets), sum(|it| it.octets), sum(|it| it.ns)];
        // The softirq has no packets.
        let packets = if octets > 0 { calls } else { 0 };
        let cells = [percent(gso, packets), mean(octets, calls), mean(ns, calls)];
        let about = if step.observed { step.about } else { "not in this kernel" };
        row(step.tracepoint, calls, cells, about);
    }
    for Runs { program, runs, ns, id } in &seen.programs {
        let cells = ["-".into(), "-".into(), mean(*ns, *runs)];
        row(program, *runs, cells, &format!("program {id} of the kernel engine runs"));
    }
    let _ = writeln!(text, "\n{STRONG}{:>8}  where the processors were{STRONG:#}", "share");
    for Function { function, share, .. } in seen.functions.iter().take(FUNCTIONS) {
        let _ = writeln!(text, "{:>6.1} %  {function}", share * 100.0);
    }
    text.push_str(
        "\nShare: of the time of one processor. Packets of all network namespaces of the host count; to observe them takes some\n\
         100 ns a step.\n",
    );
    text
}

/// `-`: there is none, or nothing of it was counted.
fn mean(sum: u64, count: u64) -> String {
    if sum == 0 || count == 0 { "-".into() } else { format!("{:.0}", sum as f64 / count as f64) }
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".into() } else { format!("{:.0} %", part as f64 / whole as f64 * 100.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_busy_by_the_ticks_between_two_looks() {
        let before = [100, 0, 50, 1000, 10, 5, 20, 0];
        let after = [110, 0, 60, 1060, 20, 5, 30, 0];
        let found = used(&before, &after);
        assert_eq!((found.busy, found.interrupts), (0.3, 0.1));
        assert_eq!(used(&before, &before), Use::default());
        let now = times();
        assert!(!now.is_empty() && now.iter().all(|it| it.len() == 8), "{now:?}");
    }
}
