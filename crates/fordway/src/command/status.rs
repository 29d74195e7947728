//! `fordway status`.

use fordway_control::Client;

use crate::cli::{Global, StatusArgs};
use crate::failure::Failure;
use crate::output;
use crate::report::Render;

pub(crate) fn run(global: &Global, args: &StatusArgs) -> Result<(), Failure> {
    let status = Client::new(global.socket_to_read()).status()?;
    if args.json { output::print_json(&status) } else { output::print(&status.render()) }
}
