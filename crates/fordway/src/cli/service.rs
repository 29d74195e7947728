//! What the short forms of servers have in common.

use clap::Args;

use super::short::Entry;
use crate::failure::Failure;

/// Options of all of them.
#[derive(Debug, Args)]
pub(super) struct ServiceArgs {
    /// Threads [default: one for each processor]
    #[arg(long, value_name = "NUMBER")]
    threads: Option<String>,
    /// Any key of the server's section with its value as in the file; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Write the configuration that the options stand for to standard output, and end
    #[arg(long)]
    pub(super) print_config: bool,
}

impl ServiceArgs {
    pub(super) fn add_to(&self, entry: &mut Entry) -> Result<(), Failure> {
        entry.number_or_text("threads", self.threads.as_ref());
        entry.set(&self.set)
    }
}
