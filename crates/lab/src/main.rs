//! `fordway-lab`: the workbench. See `fordway_lab::run`.

use std::process::ExitCode;

fn main() -> ExitCode {
    fordway_lab::run(std::env::args_os())
}
