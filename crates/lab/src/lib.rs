//! The workbench: deploys mechanisms that join IPv4 and IPv6 on a test network, loads them with
//! real traffic, and writes a report that says what each one costs.
//!
//! It drives programs, Fordway's own and other people's alike, and links with none of them. Experiments, records, analysis
//! and reports are `fordway-data`, its own senders and receivers of small packets `fordway-load`.
//!
//! | module | concern |
//! |---|---|
//! | `cli`, `commands` | the command line |
//! | `backend`, `topology`, `mechanism` | where things run, the network, what is put on it |
//! | `probe`, `load`, `host` | correctness, traffic, the machine |
//! | `guest` | a Debian guest in which a run takes place |
//! | `hosts`, `agent` | two machines over SSH, and the lab's end on the other one |
//! | `environment` | what a run's numbers depend on |
//! | `runner`, `trials`, `state` | the run, what it measures, its clean-up |
//! | `monitor` | recordings of a gateway at work |
//! | `snmp` | questions to an SNMP agent |
//! | `watch` | how far a run is, by its folder |
//! | `process`, `progress`, `pdf` | programs, the remaining time, pages as PDF |

#![forbid(unsafe_code)]

/// Writes a line for people to standard error. That nobody reads it (a closed pipe) changes nothing, above
/// all not what is measured and tidied up.
macro_rules! note {
    ($($text:tt)*) => {
        $crate::complain(format_args!($($text)*))
    };
}
pub(crate) use note;

mod agent;
mod backend;
mod cli;
mod commands;
mod environment;
mod error;
mod guest;
mod host;
mod hosts;
mod load;
mod mechanism;
mod monitor;
mod pdf;
mod probe;
mod process;
mod progress;
mod runner;
mod snmp;
mod state;
mod topology;
mod trials;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

/// Runs the program with these arguments, the first of which is its own name.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match cli::Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no errors; clap knows which stream they go to.
            let _ = error.print();
            let wrong = error.use_stderr();
            return ExitCode::from(if wrong { error::EXIT_USAGE } else { error::EXIT_DONE });
        }
    };
    match commands::dispatch(cli.command) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            crate::note!("fordway-lab: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

pub(crate) fn complain(line: std::fmt::Arguments<'_>) {
    use std::io::Write;
    let _ = writeln!(anstream::AutoStream::auto(std::io::stderr().lock()), "{line}");
}
