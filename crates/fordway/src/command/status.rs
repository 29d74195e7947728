//! `fordway status`.

use std::fmt::Write;

use fordway_control::Client;
use fordway_daemon::failure::Failure;
use fordway_daemon::output::{self, FAINT};

use crate::cli::{Global, StatusArgs};
use crate::report::Render;

/// Shows each daemon of the host, or the one that is named. One that can't be read is an error, after all others.
pub(crate) fn run(global: &Global, args: &StatusArgs) -> Result<(), Failure> {
    let sockets = global.sockets_to_read();
    let mut failed = Ok(());
    for (at, socket) in sockets.iter().enumerate() {
        let status = match Client::new(socket).status() {
            Ok(status) => status,
            Err(error) => {
                failed = failed.and(Err(error.into()));
                continue;
            }
        };
        if args.json {
            output::print_json(&status)?;
            continue;
        }
        let mut text = if at == 0 { String::new() } else { "\n".to_owned() };
        if sockets.len() > 1 {
            let _ = writeln!(text, "{FAINT}{}{FAINT:#}", socket.display());
        }
        text.push_str(&status.render());
        output::print(&text)?;
    }
    failed
}
