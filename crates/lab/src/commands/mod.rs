//! One file per command.

mod compare;
mod decide;
mod doctor;
mod files;
mod guest;
mod hidden;
mod hosts;
mod list;
mod monitor;
mod plan;
mod power;
mod publish;
mod report;
mod run;
mod watch;

use fordway_data::report::performance::performance;
use fordway_data::schema;

use crate::cli::{Command, Published};
use crate::error::Result;

/// Runs a command; the number is the exit code.
pub(crate) fn dispatch(command: Command) -> Result<u8> {
    match command {
        Command::Doctor(args) => doctor::doctor(&args),
        Command::List { json } => list::list(json),
        Command::Show { name } => files::show(&name),
        Command::Validate { files, json } => files::validate(&files, json),
        Command::Plan(args) => plan::plan(&args),
        Command::Run(args) => run::run(&args),
        Command::Resume(args) => run::resume(&args),
        Command::Watch(args) => watch::watch(&args),
        Command::Power(args) => power::power(&args),
        Command::Monitor(args) => monitor::monitor(&args),
        Command::Report(args) => report::report(&args.dir, args.json, args.pdf),
        Command::Compare(args) => compare::compare_runs(&args),
        Command::Decide(args) => decide::decide_for(&args),
        Command::Publish(args) => publish::publish(&args),
        Command::Performance { dir } => {
            anstream::print!("{}", performance(&dir)?);
            Ok(crate::error::EXIT_DONE)
        }
        Command::Schema { of } => print_json(&match of {
            Published::Experiment => schema::experiment(),
            Published::Results => schema::results(),
            Published::Trials => schema::trials(),
        }),
        Command::Completions { shell } => hidden::completions(shell),
        Command::Man { dir } => hidden::man(&dir),
        Command::Probe(probe) => hidden::probe(probe),
        Command::Tester(tester) => hidden::tester(tester),
        Command::Hosts(args) => hosts::hosts(&args),
        Command::Far(far) => hosts::far(far),
    }
}

/// Prints a value as JSON on standard output.
fn print_json(value: &impl serde::Serialize) -> Result<u8> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|e| crate::error::LabError::Usage(e.to_string()))?;
    anstream::println!("{text}");
    Ok(crate::error::EXIT_DONE)
}
