//! `fordway explain` and `fordway pcap`.

use std::path::PathBuf;

use clap::Args;

use super::SourceArgs;

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("packets").required(true).args(["pcap", "hex"]))]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// A capture file; - is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    /// The octets of one IP packet in hexadecimal; white space and colons are passed over
    #[arg(long, value_name = "BYTES")]
    pub(crate) hex: Option<String>,
    /// Only this packet of the capture, counted from 1
    #[arg(long, value_name = "NUMBER", requires = "pcap")]
    pub(crate) packet: Option<u64>,
    /// Write the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PcapArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// The capture to read; - is standard input
    pub(crate) input: PathBuf,
    /// The capture to write; .pcapng by its name, else .pcap
    pub(crate) output: PathBuf,
    /// Write the counters as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
