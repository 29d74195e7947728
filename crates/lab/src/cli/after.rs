//! Arguments of the commands that come after a run.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Arguments of `report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Folder of the run
    pub(crate) dir: PathBuf,
    /// Also print the page as report.pdf (needs Chromium or WeasyPrint)
    #[arg(long)]
    pub(crate) pdf: bool,
    /// Print the summary as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `publish`.
#[derive(Debug, Args)]
pub(crate) struct PublishArgs {
    /// Folder of the run; with --check, the published folder
    pub(crate) dir: PathBuf,
    /// Folder to write [default: DIR-published]
    #[arg(long, value_name = "DIR", conflicts_with = "check")]
    pub(crate) out: Option<PathBuf>,
    /// Who is to be cited; may be given several times
    #[arg(long, value_name = "NAME", conflicts_with = "check")]
    pub(crate) author: Vec<String>,
    /// Only what the numbers are computed from, some tens of KiB: for a repository
    #[arg(long, conflicts_with_all = ["check", "author"])]
    pub(crate) small: bool,
    /// Check a published folder against its manifest
    #[arg(long)]
    pub(crate) check: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Verdicts that are a failure of `compare`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailIf {
    /// B is worse in any cell
    Worse,
    /// B is better or worse in any cell
    Different,
}

/// Arguments of `compare`.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Folders of one run of each side: that to compare with, and that which is judged
    #[arg(
        num_args = 2,
        value_names = ["A", "B"],
        required_unless_present_any = ["before", "after"],
        conflicts_with_all = ["before", "after"]
    )]
    pub(crate) runs: Vec<PathBuf>,
    /// Folders of the runs to compare with (side A); three or more for verdicts
    #[arg(long, num_args = 1.., value_name = "RUN", requires = "after")]
    pub(crate) before: Vec<PathBuf>,
    /// Folders of the runs that are judged (side B); three or more for verdicts
    #[arg(long, num_args = 1.., value_name = "RUN", requires = "before")]
    pub(crate) after: Vec<PathBuf>,
    /// Folder for compare.html, compare.json and figures
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// End with status 1 at such a verdict; needs three runs on each side
    #[arg(long, value_enum, value_name = "VERDICT")]
    pub(crate) fail_if: Option<FailIf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `decide`.
#[derive(Debug, Args)]
pub(crate) struct DecideArgs {
    /// Folders of runs, the most trusted first
    #[arg(required = true)]
    pub(crate) dirs: Vec<PathBuf>,
    /// Subscribers
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    pub(crate) subscribers: u64,
    /// Traffic of all of them at the busiest time
    #[arg(long, default_value_t = 20.0, value_name = "GBIT_S")]
    pub(crate) peak_gbit_s: f64,
    /// Share of it, and of the sessions, that goes to IPv6 destinations
    #[arg(long, default_value_t = 0.6, value_name = "SHARE")]
    pub(crate) native_v6_share: f64,
    /// Sessions of a subscriber at once, at the busiest time
    #[arg(long, default_value_t = 50.0, value_name = "N")]
    pub(crate) sessions_per_subscriber: f64,
    /// Processors of one gateway machine
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) cores: u32,
    /// Mean length of a packet
    #[arg(long, default_value_t = 800.0, value_name = "OCTETS")]
    pub(crate) packet_octets: f64,
    /// Mean length of a session
    #[arg(long, default_value_t = 60.0, value_name = "SECONDS")]
    pub(crate) session_s: f64,
    /// Names that are asked for per session
    #[arg(long, default_value_t = 0.5, value_name = "N")]
    pub(crate) names_per_session: f64,
    /// Ports of an IPv4 address that sessions may use
    #[arg(long, default_value_t = 64_512, value_parser = clap::value_parser!(u32).range(1..=65_535))]
    pub(crate) ports_per_address: u32,
    /// Share of its time that a processor may work at the busiest time
    #[arg(long, default_value_t = 0.7, value_name = "SHARE")]
    pub(crate) utilisation: f64,
    /// Mechanisms to take, with commas [default: the first of each kind that was measured]
    #[arg(long, value_delimiter = ',', value_name = "MECHANISM")]
    pub(crate) with: Vec<String>,
    /// Page to write
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
