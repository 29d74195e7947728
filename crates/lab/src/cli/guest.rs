//! A guest on the command line.

use clap::Args;

/// Arguments of `run` about a guest.
#[derive(Debug, Args)]
#[command(next_help_heading = "Guest")]
pub(crate) struct GuestArgs {
    /// Run in a Debian guest (QEMU) whose kernel has Jool's modules; built from packages the first time
    #[arg(long, conflicts_with_all = ["hosts", "earlier"])]
    pub(crate) guest: bool,
    /// Debian suite of the guest's kernel, Jool and programs
    #[arg(long, value_name = "SUITE", default_value = "trixie", requires = "guest",
          value_parser = ["bookworm", "trixie", "forky", "sid"])]
    pub(crate) guest_suite: String,
    /// Processors of the guest
    #[arg(long, value_name = "N", default_value_t = 2, requires = "guest",
          value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) guest_cpus: u32,
    /// Memory of the guest in MiB
    #[arg(long, value_name = "MIB", default_value_t = 4096, requires = "guest",
          value_parser = clap::value_parser!(u32).range(1024..=1_048_576))]
    pub(crate) guest_memory: u32,
    /// One emulated processor whose clock advances 1 ns per instruction: rates are then instructions, the same every time
    #[arg(long, requires = "guest", conflicts_with = "guest_cpus")]
    pub(crate) icount: bool,
}
