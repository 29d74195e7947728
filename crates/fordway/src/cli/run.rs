//! `fordway run` and what is done with a running gateway: down, check, trace, bench.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use fordway_config::Settings;

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct FileArgs {
    /// The configuration file; - is standard input
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    file: Option<PathBuf>,
    /// The configuration file
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Values that replace those of the file.
#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// Replace a value of the file, written as there; may be given several times
    ///
    /// KEY is SECTION.KEY, such as dns64.rate. Where the file has several tables of a section, the name of one stands
    /// between: translator.nat64.mtu. A word needs no quotation marks. A reload reads the file and replaces the same
    /// values.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl SetArgs {
    pub(crate) fn settings(&self) -> Settings {
        Settings::new(&self.set)
    }
}

impl FileArgs {
    /// The file; one of the two is there.
    pub(crate) fn path(&self) -> &std::path::Path {
        let path = self.config.as_ref().or(self.file.as_ref());
        path.map_or(std::path::Path::new("-"), PathBuf::as_path)
    }
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,
    #[command(flatten)]
    pub(crate) set: SetArgs,
    /// Let the kernel engines take the time of each packet; fordway status shows the mean
    #[arg(long)]
    pub(crate) measure: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MeasureArgs {
    /// The translator
    pub(crate) name: String,
    /// Whether to measure
    pub(crate) switch: Switch,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

#[derive(Debug, Args)]
pub(crate) struct ReloadArgs {
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Write the plan as JSON
    #[arg(long, requires = "dry_run")]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct DownArgs {
    /// The translator
    pub(crate) name: Option<String>,
    /// Everything that dead daemons have left on this host; what running ones have stays
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TakeoverArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,
    #[command(flatten)]
    pub(crate) set: SetArgs,
    /// Give up what the next start can't take over: end sessions, move files aside. No daemon may run it
    #[arg(long)]
    pub(crate) drop: bool,
    /// Write the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    /// The translator
    pub(crate) name: String,
    /// Which packets; all if nothing is given
    pub(crate) filter: Vec<String>,
    /// Write one JSON object per packet
    #[arg(long)]
    pub(crate) json: bool,
    /// End after so many packets
    #[arg(long, value_name = "NUMBER")]
    pub(crate) count: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Observe where the kernel spends time on the packets of this host
    #[arg(long)]
    pub(crate) path: bool,
    /// With --path: observe for so long, in seconds
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 5,
        requires = "path",
        value_parser = clap::value_parser!(u64).range(1..=3600)
    )]
    pub(crate) seconds: u64,
    /// Write the results as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,
    #[command(flatten)]
    pub(crate) set: SetArgs,
    /// Write the configuration to standard output with every key
    #[arg(long)]
    pub(crate) print_config: bool,
    /// Write the result as JSON
    #[arg(long, conflicts_with = "print_config")]
    pub(crate) json: bool,
}
