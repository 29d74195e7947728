//! `fordway import`: what it is asked.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

/// `fordway import`.
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The program whose configuration is read
    pub(crate) program: Origin,
    /// Its configuration file; - is standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Device towards the IPv4 network, for a file that takes the host's own addresses (Jool without pool4)
    #[arg(long, value_name = "DEV", value_hint = ValueHint::Other)]
    pub(crate) uplink: Option<String>,
}

/// A translator that Fordway can replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Origin {
    /// NAT64: the JSON file of `jool file handle`
    Jool,
    /// SIIT: the JSON file of `jool_siit file handle`
    JoolSiit,
    /// tayga.conf
    Tayga,
    /// clatd.conf
    Clatd,
}
