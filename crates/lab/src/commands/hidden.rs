//! Commands for packagers and for the lab itself.

use std::path::Path;

use clap::CommandFactory;

use crate::cli::{Cli, Probe};
use crate::error::{EXIT_DONE, EXIT_FAILED, LabError, Result};
use crate::probe::{client, server, start};

/// Prints completions for a shell.
pub(super) fn completions(shell: clap_complete::Shell) -> Result<u8> {
    clap_complete::generate(shell, &mut Cli::command(), "fordway-lab", &mut std::io::stdout());
    Ok(EXIT_DONE)
}

/// Writes one man page per command.
pub(super) fn man(dir: &Path) -> Result<u8> {
    std::fs::create_dir_all(dir).map_err(LabError::file(dir))?;
    clap_mangen::generate_to(Cli::command(), dir).map_err(LabError::file(dir))?;
    Ok(EXIT_DONE)
}

/// Runs a probe inside a namespace.
pub(super) fn probe(probe: Probe) -> Result<u8> {
    match probe {
        Probe::Serve { own } => {
            server::serve(&own).map_err(LabError::file("probe server"))?;
            Ok(EXIT_DONE)
        }
        Probe::Client { target, tcp_bytes, udp_sizes, refused } => {
            super::print_json(&client::run(&client::Wanted {
                target,
                tcp_bytes,
                udp_sizes,
                refused,
            }))
        }
        Probe::Start { target, argv } => match start::measure(target, &argv) {
            Ok(ms) => {
                anstream::println!("{ms:.3}");
                Ok(EXIT_DONE)
            }
            Err(why) => {
                crate::note!("fordway-lab probe start: {why}");
                Ok(EXIT_FAILED)
            }
        },
    }
}
