//! `fordway status`.

use crate::cli::{Global, StatusArgs};
use crate::control::ask_status;
use crate::failure::Failure;
use crate::output;

pub(crate) fn run(global: &Global, args: &StatusArgs) -> Result<(), Failure> {
    let status = ask_status(&global.socket_to_read())?;
    if args.json { output::print_json(&status) } else { output::print(&status.render()) }
}
