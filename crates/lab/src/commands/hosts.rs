//! `hosts`, and the lab's end on another host.

use std::time::Duration;

use fordway_data::spec::{EXAMPLE, Hosts};

use crate::agent;
use crate::cli::{Far, HostsArgs};
use crate::error::{EXIT_DONE, Result};
use crate::hosts::check;

/// Prints a hosts file, or marks hosts.
pub(super) fn hosts(args: &HostsArgs) -> Result<u8> {
    let Some(file) = &args.mark else {
        anstream::print!("{EXAMPLE}");
        return Ok(EXIT_DONE);
    };
    let hosts = Hosts::read(file)?;
    hosts.allowed()?;
    for name in check::mark(&hosts)? {
        anstream::println!("host {name} is marked as a lab host: {}", crate::hosts::MARK);
    }
    Ok(EXIT_DONE)
}

/// Runs the lab's end on another host, or a command of it.
pub(super) fn far(far: Far) -> Result<u8> {
    match far {
        Far::Serve { id, fordway, silence } => {
            agent::serve(&id, fordway.as_deref(), Duration::from_secs(silence))
        }
        Far::Run { net, argv } => agent::run(net.as_deref(), &argv),
    }
}
