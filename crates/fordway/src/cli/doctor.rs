//! Options of `fordway doctor`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Look at this host as the gateway of a configuration file; else as a host of its network
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The device towards the network [default: that of the IPv6 default route]
    #[arg(long, value_name = "DEV", conflicts_with = "config")]
    pub(crate) device: Option<String>,
    /// An IPv4 host that answers pings: its address, or its name
    #[arg(long, value_name = "HOST")]
    pub(crate) target: Option<String>,
    /// How long to look for the translation prefix
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = humantime::parse_duration)]
    pub(crate) timeout: Duration,
    /// Write the findings as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
