//! `fordway export`: what it is asked.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

/// `fordway export`.
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// The program whose configuration is written
    pub(crate) program: Program,
    /// The configuration file; - is standard input
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: PathBuf,
    /// Version of the program, where not every one knows all that is needed [default: the newest]
    #[arg(long = "for", value_name = "VERSION")]
    pub(crate) for_version: Option<String>,
}

/// A program that can do a part of what Fordway does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Program {
    /// Router advertisements: radvd.conf
    Radvd,
    /// Router advertisements and stateless DHCPv6: dnsmasq.conf
    Dnsmasq,
    /// Stateless DHCPv6: kea-dhcp6.conf
    Kea,
    /// DNS64: unbound.conf
    Unbound,
    /// DNS64: named.conf
    Bind,
}
