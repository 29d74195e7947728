//! `fordway leases`.

use crate::cli::{Global, LeasesArgs};
use crate::control::{self, Answer, Request, ask, ask_leases};
use crate::failure::Failure;
use crate::output;
use crate::report::leases_table;

/// Shows the leases of the daemon's DSTM server, or ends one.
pub(crate) fn run(global: &Global, args: &LeasesArgs) -> Result<(), Failure> {
    let socket = global.socket();
    if let Some(client) = &args.release {
        let request = Request::Revoke { client: client.clone() };
        return match ask(&socket, &request)? {
            Answer::Done(text) => output::print(&format!("{text}\n")),
            Answer::Unknown => Ok(()),
        };
    }
    let control::Leases { leases, more } = ask_leases(&socket)?;
    if args.json {
        return output::print_json(&leases);
    }
    output::print(&leases_table(&leases))?;
    if more > 0 {
        output::complain(&format!("{more} more are not shown"));
    }
    Ok(())
}
