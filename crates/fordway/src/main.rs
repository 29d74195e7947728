//! `fordway`: the gateway. See [`fordway::run`].

use std::process::ExitCode;

fn main() -> ExitCode {
    fordway::run(std::env::args_os())
}
