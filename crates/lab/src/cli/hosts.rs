//! Two hosts on the command line.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// What the lab does on another host.
#[derive(Debug, Subcommand)]
pub(crate) enum Far {
    /// Take orders from standard input, one JSON object a line, until it ends; then undo everything
    Serve {
        /// The run's id
        #[arg(long)]
        id: String,
        /// The gateway's program there
        #[arg(long)]
        fordway: Option<PathBuf>,
        /// Seconds without an order or a sign of life after which the other end is taken for lost
        #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
        silence: u64,
    },
    /// Run a command until it ends, or standard input does
    Run {
        /// Network namespace to run it in
        #[arg(long)]
        net: Option<String>,
        /// The command
        #[arg(last = true, required = true)]
        argv: Vec<String>,
    },
}

/// Arguments of `hosts`.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct HostsArgs {
    /// Print a hosts file with comments
    #[arg(long)]
    pub(crate) example: bool,
    /// Mark the hosts of this file, on themselves, as lab hosts
    #[arg(long, value_name = "FILE")]
    pub(crate) mark: Option<PathBuf>,
}
