//! `fordway dstm-server`, `fordway dstm-client` and `fordway leases`.

use std::fmt::Write;

use fordway_control::{Client, Leases, Request};
use fordway_counters::dstm::LeaseView;
use fordway_daemon::failure::Failure;
use fordway_daemon::output::{self, FAINT, STRONG, group};

use super::run::options;
use crate::cli::{DstmCommand, Global, LeasesArgs};

pub(super) fn run(global: &Global, command: DstmCommand) -> Result<(), Failure> {
    match command {
        DstmCommand::DstmServer(args) => options(global, args.load()?, args.print_config()),
        DstmCommand::DstmClient(args) => options(global, args.load()?, args.print_config()),
        DstmCommand::Leases(args) => leases(global, &args),
    }
}

/// Shows the leases of the daemon's DSTM server, or ends one.
fn leases(global: &Global, args: &LeasesArgs) -> Result<(), Failure> {
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

/// Leases, a line each.
fn leases_table(leases: &[LeaseView]) -> String {
    let mut text = String::new();
    for LeaseView { client, v4, ports, remote, seconds, .. } in leases {
        let what = match ports {
            Some((low, high)) => format!("{v4}:{low}-{high}"),
            None => v4.to_string(),
        };
        let _ = writeln!(
            text,
            "{STRONG}{what:<27}{STRONG:#} {client:<24} {FAINT}at{FAINT:#} {remote}, {} s left",
            group(*seconds)
        );
    }
    if leases.is_empty() {
        text.push_str("nothing is lent\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_a_line() {
        let lease = LeaseView {
            client: "laptop".to_owned(),
            v4: [192, 0, 2, 1].into(),
            ports: Some((4096, 8191)),
            remote: "2001:db8::1".parse().unwrap(),
            tep: "2001:db8:f::1".parse().unwrap(),
            seconds: 3600,
        };
        let text = anstream::adapter::strip_str(&leases_table(&[lease])).to_string();
        assert_eq!(
            text,
            "192.0.2.1:4096-8191         laptop                   at 2001:db8::1, 3,600 s left\n"
        );
        assert_eq!(leases_table(&[]), "nothing is lent\n");
    }
}
