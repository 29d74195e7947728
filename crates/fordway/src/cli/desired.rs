//! Options of the commands for controllers.

use std::path::PathBuf;

use clap::Args;

/// `fordway apply`.
#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    /// A JSON object of keys and values, such as {"translator.nat64.eam": [...]}; - is standard input
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// The file has the value of this key alone
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// Keys that the file does not have are set no more: those of the configuration file hold again
    #[arg(long, conflicts_with = "key")]
    pub(crate) replace: bool,
    /// Say what would be changed, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `fordway get`.
#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// Keys, as SECTION.KEY or SECTION.NAME.KEY [default: those that controllers have set]
    #[arg(value_name = "KEY")]
    pub(crate) keys: Vec<String>,
}

/// `fordway watch`.
#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// Write one JSON object per change
    #[arg(long)]
    pub(crate) json: bool,
    /// End after so many changes
    #[arg(long, value_name = "NUMBER")]
    pub(crate) count: Option<u64>,
}
