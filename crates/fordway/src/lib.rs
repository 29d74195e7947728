//! The program `fordway`: the gateway.
//!
//! `cli` says what can be asked for, `command` has one file per subcommand. Exit codes: 0 done,
//! 1 failed, 2 wrong usage or configuration.
#![forbid(unsafe_code)]

mod capture;
mod cli;
mod command;
mod daemons;
mod doctor;
mod explain;
mod features;
mod offline;
mod report;
mod top;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

/// Does what a command line asks for.
#[must_use]
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let refused = |error: clap::Error| match features::left_out(&error) {
        Some(feature) => Err(feature.into()),
        None => error.exit(),
    };
    match cli::Cli::try_parse_from(arguments).map_or_else(refused, command::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.print();
            ExitCode::from(failure.code())
        }
    }
}
