//! The command line.

mod after;
mod guest;
mod hosts;
mod inside;
mod monitor;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use fordway_data::spec::Pin;

pub(crate) use after::{CompareArgs, DecideArgs, FailIf, PublishArgs, ReportArgs};
pub(crate) use guest::GuestArgs;
pub(crate) use hosts::{Far, HostsArgs};
pub(crate) use inside::{Probe, Tester};
pub(crate) use monitor::MonitorArgs;

/// Deploys IPv4/IPv6 mechanisms on a test network, loads them, and reports what they cost.
#[derive(Debug, Parser)]
#[command(name = "fordway-lab", version, arg_required_else_help = true, max_term_width = 100)]
#[command(after_help = "Examples:
  fordway-lab doctor                          what this machine can run, and what is missing
  fordway-lab plan clat-vs-dual-stack         trials and wall time, without running anything
  sudo fordway-lab run clat-vs-dual-stack     three minutes; writes a folder with report.html

Exit status: 0 done, 1 failed, 2 wrong usage, 4 skipped because something is not installed.")]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Say what this machine can run, what is missing, and how to install it
    #[command(after_help = "Examples:
  fordway-lab doctor
  fordway-lab doctor --json | jq '.mechanisms'
  sudo fordway-lab doctor --clean             remove what a crashed run left behind
  fordway-lab doctor --hosts hosts.toml       the hosts of a run, over SSH")]
    Doctor(DoctorArgs),
    /// List the built-in experiments
    #[command(after_help = "Examples:
  fordway-lab list
  fordway-lab list --json")]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print a built-in experiment's file, with its comments: a beginning for one's own
    #[command(after_help = "Examples:
  fordway-lab show nat64 > mine.toml
  fordway-lab validate mine.toml && sudo fordway-lab run mine.toml")]
    Show {
        /// Name of the experiment, see `fordway-lab list`
        name: String,
    },
    /// Check experiment files: everything that is wrong, each with its line and what to write instead
    #[command(after_help = "Examples:
  fordway-lab validate mine.toml
  fordway-lab validate *.toml --json

Exit status: 0 all are valid, 2 one is not.")]
    Validate {
        /// Experiment files
        #[arg(required = true, value_name = "FILE")]
        files: Vec<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what a run would do: mechanisms, order, trials, wall time
    #[command(after_help = "Examples:
  fordway-lab plan clat-vs-dual-stack
  fordway-lab plan mine.toml
  fordway-lab plan clat-vs-dual-stack --profile strict
  fordway-lab plan goals --blocks 10 --seed 42 --json")]
    Plan(PlanArgs),
    /// Run an experiment and write its report (needs root)
    #[command(after_help = "Examples:
  sudo fordway-lab run clat-vs-dual-stack
  sudo fordway-lab run clat-vs-dual-stack --profile standard --out results/monday
  sudo fordway-lab run clat-vs-dual-stack --only native-v6,clat-tayga --duration 5 --blocks 8
  sudo fordway-lab run clat-vs-dual-stack --clocksource tsc,kvm-clock
  sudo fordway-lab run dns64 --cached 0,40,80,100 --native 0,50
  sudo fordway-lab run mine.toml
  sudo fordway-lab run nat64 --pin client=0,mechanism=1,server=0   each part on processors of its own
  sudo fordway-lab run clat-vs-dual-stack --hosts hosts.toml   client on one host, server on another
  sudo fordway-lab run kernel-translators --guest              beside Jool, in a guest that loads its modules
  sudo fordway-lab run aa --blocks 20
  sudo fordway-lab run nat64 --only nat44 --aa 3
  sudo fordway-lab run goals")]
    Run(RunArgs),
    /// Continue an interrupted run; valid trials are kept
    #[command(after_help = "Examples:
  sudo fordway-lab resume results/monday")]
    Resume(ResumeArgs),
    /// Show a run while it goes on, in another terminal: progress, medians so far, trials that do not count
    #[command(after_help = "Examples:
  fordway-lab watch                           the run that goes on, or the newest in lab-results
  fordway-lab watch results/monday
  fordway-lab watch results/monday --once     print it once
  fordway-lab watch | tee log                 without a terminal: a line for each trial
  fordway-lab watch --json | jq -c 'select(.valid | not)'

It reads the run's folder and nothing else, so a copy of it will do; Ctrl-C does not touch the run.")]
    Watch(WatchArgs),
    /// Two hosts instead of one machine: print a hosts file, or mark the hosts of one as lab hosts
    #[command(after_help = "Examples:
  fordway-lab hosts --example > hosts.toml
  fordway-lab hosts --mark hosts.toml         on each: it may be loaded to its limits
  fordway-lab doctor --hosts hosts.toml       can they be reached, and what do they lack?
  sudo fordway-lab run clat-vs-dual-stack --hosts hosts.toml")]
    Hosts(HostsArgs),
    /// Make the report again from a run's folder; needs no root and changes no measurement
    #[command(after_help = "Examples:
  fordway-lab report results/monday
  fordway-lab report results/monday --pdf     also report.pdf")]
    Report(ReportArgs),
    /// Compare runs of two sides: versions, machines or kernels; a run counts as one value
    #[command(after_help = "Examples:
  fordway-lab compare --before old-1 old-2 old-3 --after new-1 new-2 new-3
  fordway-lab compare --before old-* --after new-* --out old-new
                                              also compare.html, compare.json, figures
  fordway-lab compare --before old-* --after new-* --fail-if worse
                                              for a pipeline: status 1 if a cell is worse
  fordway-lab compare monday tuesday          one run each: ratios, without a verdict")]
    Compare(CompareArgs),
    /// Say what a network would need, by a model from runs: processors, memory, addresses, delay
    #[command(after_help = "Examples:
  fordway-lab decide results/nat64 results/dns64
  fordway-lab decide results/nat64 --subscribers 50000 --peak-gbit-s 40 --native-v6-share 0.6 \\
      --sessions-per-subscriber 50 --cores 8 --out decision.html
  fordway-lab decide results/nat64 --with nat64-tayga --json")]
    Decide(DecideArgs),
    /// Make a folder fit for an archive from a run's folder: no names of hosts or people, a hash per file
    #[command(after_help = "Examples:
  fordway-lab publish results/monday --author 'A. Name'
  fordway-lab publish --check results/monday-published
  fordway-lab publish results/monday --small --out docs/results/nat64
                                              only what its numbers are computed from: for a repository")]
    Publish(PublishArgs),
    /// Write a page of Markdown from kept results: prose of a template, every number from a run
    #[command(after_help = "Examples:
  fordway-lab publish lab-results/nat64-20260101T120000 --small --out docs/results/nat64
  fordway-lab performance docs/results > docs/performance.md

The folder holds performance.md.jinja and the folders of runs that it names:
  {{ machine(\"nat64\") }}                  what was run, on which machine, and what disturbed it
  {{ table(\"nat64\", \"new_udp_flows\") }}   a row per mechanism: configuration, interval, verdict
  {{ replay(\"nat64\") }}                   the command that repeats it")]
    Performance {
        /// Folder of the template and the kept results
        dir: PathBuf,
    },
    /// Print the JSON schema of a file that the lab reads or writes
    #[command(after_help = "Examples:
  fordway-lab schema experiment > experiment.schema.json     for editors
  fordway-lab schema results                  of results.json
  fordway-lab schema trials                   of one line of trials.jsonl")]
    Schema {
        /// The file
        #[arg(value_enum)]
        of: Published,
    },
    /// Say what a number of blocks can show, before a run
    #[command(after_help = "Examples:
  fordway-lab power --cv 0.05
  fordway-lab power --cv 0.02 --margin 0.05 --blocks 7 --json")]
    Power(PowerArgs),
    /// Record processor, memory and round trips of a gateway while its traffic runs; report and compare recordings
    #[command(after_help = "Examples:
  fordway-lab monitor --every 10s --for 2h --target 192.0.2.1        this machine
  fordway-lab monitor --snmp 192.0.2.254 --community lab --interface eth0 --for 14d
  fordway-lab monitor --via 'ssh gateway' --interface eth1 --target server=2001:db8::1
  sudo fordway-lab monitor --lab nat64-tayga --every 1s --for 60s --out nat64
  fordway-lab monitor --report nat64
  fordway-lab monitor --compare nat44 nat64

Ctrl-C ends a recording and keeps all of it.")]
    Monitor(MonitorArgs),
    /// Print completions for a shell
    #[command(hide = true)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the man pages into a folder
    #[command(hide = true)]
    Man {
        /// The folder
        dir: PathBuf,
    },
    /// Probes that the lab runs inside its namespaces
    #[command(hide = true, subcommand)]
    Probe(Probe),
    /// Senders and receivers that the lab runs inside its namespaces
    #[command(hide = true, subcommand)]
    Tester(Tester),
    /// The lab's end on another host
    #[command(hide = true, subcommand)]
    Far(Far),
}

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Remove namespaces and processes that crashed runs left behind; with --hosts, there
    #[arg(long)]
    pub(crate) clean: bool,
    /// Examine the hosts of this file instead
    #[arg(long, value_name = "FILE")]
    pub(crate) hosts: Option<PathBuf>,
    /// The gateway's program [default: $FORDWAY_BIN, beside fordway-lab, then PATH]
    #[arg(long, value_name = "PATH")]
    pub(crate) fordway: Option<PathBuf>,
}

/// Files with a published schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Published {
    /// An experiment file
    Experiment,
    /// `results.json`
    Results,
    /// One line of `trials.jsonl`
    Trials,
}

/// How large a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProfileName {
    /// Minutes
    Quick,
    /// The study's 30 s flows
    Standard,
    /// 30 s and 120 s flows, enough blocks for every test
    Strict,
}

impl ProfileName {
    /// The key in the experiment file.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Standard => "standard",
            Self::Strict => "strict",
        }
    }
}

/// `on` or `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// As the kernel has them
    On,
    /// Segmentation and checksum offloads off on every veth of the lab
    Off,
}

/// Arguments that choose what a run does.
#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// Name of the experiment, see `fordway-lab list`, or a file (*.toml), see `fordway-lab show`
    #[arg(value_name = "NAME|FILE")]
    pub(crate) name: String,
    /// Size of the run
    #[arg(long, value_enum, default_value = "quick")]
    pub(crate) profile: ProfileName,
    /// Seed of the random order [default: random, and printed]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Randomised complete blocks: replications of every mechanism
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) blocks: Option<u32>,
    /// Seconds of a TCP flow; several, with commas, are a factor
    #[arg(long, value_delimiter = ',', value_name = "SECONDS",
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) duration: Vec<u64>,
    /// Mechanisms to run, with commas
    #[arg(long, value_delimiter = ',', value_name = "MECHANISM")]
    pub(crate) only: Vec<String>,
    /// Clock sources to switch through, with commas; the present one is put back afterwards
    #[arg(long, value_delimiter = ',', value_name = "SOURCE")]
    pub(crate) clocksource: Vec<String>,
    /// Segmentation and checksum offloads of the lab's veth devices
    #[arg(long, value_enum, default_value = "on")]
    pub(crate) offloads: Switch,
    /// Bind client, mechanism and server to processors: auto, or client=0,mechanism=1,server=0; with --hosts also
    /// client-irq and server-irq, the interrupts of the devices on the wire
    #[arg(long, value_name = "auto|ROLE=LIST,...")]
    pub(crate) pin: Option<Pin>,
    /// Per cent of the names asked for that a DNS64 server knows; several, with commas, are a factor
    #[arg(long, value_delimiter = ',', value_name = "PERCENT",
          value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) cached: Vec<u8>,
    /// Per cent of the names with an AAAA record of their own; several, with commas, are a factor
    #[arg(long, value_delimiter = ',', value_name = "PERCENT",
          value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) native: Vec<u8>,
    /// A/A: one mechanism (the one of --only, or the sentinel) so many times in each block; whatever differs is noise
    #[arg(long, value_name = "TIMES", value_parser = clap::value_parser!(u32).range(2..=20))]
    pub(crate) aa: Option<u32>,
    /// Coefficient of variation of a deployment's value (0.05 is 5 %): says what the blocks can show
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) cv: Option<f64>,
    /// Folder of an earlier run to take that from [default: the newest of this experiment and machine in lab-results]
    #[arg(long, value_name = "DIR", conflicts_with = "cv")]
    pub(crate) earlier: Option<PathBuf>,
    /// The gateway's program [default: $FORDWAY_BIN, beside fordway-lab, then PATH]
    #[arg(long, value_name = "PATH")]
    pub(crate) fordway: Option<PathBuf>,
    /// Two hosts instead of this machine; see `fordway-lab hosts --example`
    #[arg(long, value_name = "FILE")]
    pub(crate) hosts: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A share that makes sense: more than nothing.
fn share(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| format!("{text} is no number"))?;
    let good = value.is_finite() && value > 0.0001 && value < 5.0;
    good.then_some(value).ok_or_else(|| format!("{value} is no share: 0.05 is 5 %"))
}

/// Arguments of `power`.
#[derive(Debug, Args)]
pub(crate) struct PowerArgs {
    /// Coefficient of variation of a deployment's value: 0.05 is 5 %
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) cv: f64,
    /// Margin of equivalence: 0.03 is 3 %
    #[arg(long, value_name = "SHARE", default_value = "0.03", value_parser = margin)]
    pub(crate) margin: f64,
    /// Error rate of the tests
    #[arg(long, value_name = "SHARE", default_value = "0.05", value_parser = margin)]
    pub(crate) alpha: f64,
    /// This number of blocks alone
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub(crate) blocks: Option<u32>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A share of at most a half.
fn margin(text: &str) -> Result<f64, String> {
    share(text).and_then(|value| {
        (value <= 0.5).then_some(value).ok_or_else(|| format!("{value} is more than 0.5"))
    })
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// What to run.
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
    /// Folder to write [default: lab-results/NAME-TIME]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Also print the report as report.pdf (needs Chromium or WeasyPrint)
    #[arg(long)]
    pub(crate) pdf: bool,
    /// Start long runs without asking
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Where it runs, if not on this machine.
    #[command(flatten)]
    pub(crate) guest: GuestArgs,
}

/// Arguments of `watch`.
#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// Folder of the run [default: the run that goes on, or the newest in lab-results]
    pub(crate) dir: Option<PathBuf>,
    /// Print the state once
    #[arg(long)]
    pub(crate) once: bool,
    /// Print JSON: an object for each trial, one a line; with --once the state
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `resume`.
#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    /// Folder of the run
    pub(crate) dir: PathBuf,
    /// The gateway's program [default: $FORDWAY_BIN, beside fordway-lab, then PATH]
    #[arg(long, value_name = "PATH")]
    pub(crate) fordway: Option<PathBuf>,
    /// Print the summary as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent_and_every_command_has_examples() {
        Cli::command().debug_assert();
        for sub in Cli::command().get_subcommands().filter(|s| !s.is_hide_set()) {
            let help = sub.clone().render_long_help().to_string();
            assert!(help.contains("Examples:"), "{}", sub.get_name());
        }
    }
}
