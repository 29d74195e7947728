//! `fordway cluster`.

use std::time::Duration;

use clap::{Args, Subcommand};

/// `fordway cluster`.
#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    #[command(subcommand)]
    pub(crate) command: ClusterCommand,
}

/// What can be done with a cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Show this gateway, the others as it sees them, and the shards
    ///
    /// Exit code 1 if this gateway translates nothing: it holds no lease, or has left.
    #[command(after_help = "\
Examples:
  fordway cluster status
  fordway cluster status --shards
  fordway cluster status --json | jq '.shards[] | select(.wish)'")]
    Status {
        /// A line for each shard, too
        #[arg(long)]
        shards: bool,
        /// Write JSON, with all shards
        #[arg(long, conflicts_with = "shards")]
        json: bool,
    },
    /// Say where a shard of this gateway's is wanted
    ///
    /// The shard moves with its sessions, and stays where it is wanted until this command says otherwise there. Only the shard's
    /// owner can move it.
    #[command(after_help = "\
Examples:
  fordway cluster move 7 gw-b
  fordway cluster move 7 gw-b --wait --timeout 10s
  fordway cluster move 7 --back                 it is placed as the others are")]
    Move {
        /// The shard's number
        shard: u16,
        /// The gateway that is to own it
        #[arg(required_unless_present = "back")]
        gateway: Option<String>,
        /// Where placement wants it
        #[arg(long, conflicts_with = "gateway")]
        back: bool,
        /// Wait until it has moved
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        timeout: TimeoutArg,
    },
    /// Give all shards of this gateway to others, and wait until none is left; it stays in the cluster
    ///
    /// A restart of the daemon, or fordway cluster join, undoes it. If no other gateway is active, the shards stay.
    #[command(after_help = "\
Examples:
  fordway cluster drain && apt-get install fordway
  fordway cluster drain --no-wait")]
    Drain(WaitArgs),
    /// Have this gateway own shards again, after drain
    #[command(after_help = "\
Examples:
  fordway cluster join")]
    Join,
    /// Give all shards of this gateway to others, end its lease, and wait for that
    ///
    /// The gateway translates nothing afterwards, until a restart of its daemon. Shards for which no other gateway is active are
    /// given to nobody, and their sessions are lost.
    #[command(after_help = "\
Examples:
  fordway cluster leave
  fordway cluster leave --timeout 5m")]
    Leave(WaitArgs),
    /// Say that another gateway is off, certainly
    ///
    /// Its lease can then be ended without the votes of other gateways, which is needed when too few of them are left. It must be
    /// without power, or cut off from all networks: if it translates after all, two gateways may use one port of pool4 at a time,
    /// and answers reach the wrong hosts.
    #[command(after_help = "\
Examples:
  fordway cluster declare gw-b --yes")]
    Declare {
        /// The gateway
        gateway: String,
        /// It is off: this was checked
        #[arg(long)]
        yes: bool,
    },
}

/// How long to wait.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct TimeoutArg {
    /// How long to wait at most
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = humantime::parse_duration)]
    pub(crate) timeout: Duration,
}

/// Whether to wait, and how long.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct WaitArgs {
    /// Don't wait
    #[arg(long)]
    pub(crate) no_wait: bool,
    #[command(flatten)]
    pub(crate) timeout: TimeoutArg,
}
