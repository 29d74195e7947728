//! `fordway leases`.

use fordway_control::{Client, Leases, Request};

use crate::cli::{Global, LeasesArgs};
use crate::failure::Failure;
use crate::output;
use crate::report::leases_table;

/// Shows the leases of the daemon's DSTM server, or ends one.
pub(crate) fn run(global: &Global, args: &LeasesArgs) -> Result<(), Failure> {
    let client = Client::new(global.socket());
    if let Some(lessee) = &args.release {
        return super::control::tell(&client, &Request::Revoke { client: lessee.clone() });
    }
    let Leases { leases, more } = client.leases()?;
    if args.json {
        return output::print_json(&leases);
    }
    output::print(&leases_table(&leases))?;
    if more > 0 {
        output::complain(&format!("{more} more are not shown"));
    }
    Ok(())
}
