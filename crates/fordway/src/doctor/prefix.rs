//! The network's translation prefix, and what its name servers make of it.

use std::collections::BTreeSet;
use std::time::Duration;

use fordway_daemon::output::joined;
use fordway_discovery::{
    Error, Found, Prefix, Report, Said, ServerReport, Source, Watcher, remaining,
};
use fordway_xlat::addr::Pool6;

use super::finding::Findings;

/// Finds the prefixes that this host would use, best first.
pub(super) async fn check(
    watcher: Result<(Watcher, bool), Error>,
    timeout: Duration,
    findings: &mut Findings,
) -> Vec<Pool6> {
    let looked = match watcher {
        Ok((watcher, _)) => watcher.look(timeout).await,
        Err(error) => Err(error),
    };
    match looked {
        Ok((found, report)) => judge(&found, &report, findings),
        Err(error) => {
            let advice = Error::hint(&error).unwrap_or("fordway discover says more");
            findings.bad("prefix", error.to_string(), advice);
            Vec::new()
        }
    }
}

fn judge(found: &Found, report: &Report, findings: &mut Findings) -> Vec<Pool6> {
    if found.prefixes.is_empty() {
        findings.bad(
            "prefix",
            "neither a router nor a name server tells a translation prefix",
            "this network has no NAT64, or does not announce it: ask its operator for the prefix, and give it to \
             the CLAT (--pref64 PREFIX)",
        );
    }
    for prefix in &found.prefixes {
        findings.good("prefix", describe(prefix));
    }
    compare(report, findings);
    for server in resolvers(report) {
        check_resolver(server, findings);
    }
    found.prefixes.iter().map(|prefix| prefix.pool6).collect()
}

fn describe(prefix: &Prefix) -> String {
    let device = prefix.device.as_ref().map(|it| format!(" on {}", it.name)).unwrap_or_default();
    let until = prefix.until.map(|until| {
        let left = Duration::from_secs(remaining(until).as_secs());
        format!(", for {}", humantime::format_duration(left))
    });
    format!("{} by {}{device}{}", prefix.pool6, prefix.source, until.unwrap_or_default())
}

/// Routers and name servers have to tell the same: hosts use the one for literals and the other for names.
fn compare(report: &Report, findings: &mut Findings) {
    let from = |is_router: bool| -> BTreeSet<String> {
        let matches = |prefix: &&Prefix| match prefix.source {
            Source::RouterAdvertisement { .. } => is_router,
            Source::Dns { .. } => !is_router,
            Source::Configured => false,
        };
        report.prefixes.iter().filter(matches).map(|prefix| prefix.pool6.to_string()).collect()
    };
    let (routers, servers) = (from(true), from(false));
    if !routers.is_empty() && !servers.is_empty() && routers.is_disjoint(&servers) {
        findings.warning(
            "prefix",
            format!("routers say {}, name servers say {}", joined(routers), joined(servers)),
            "the network's router advertisements (PREF64) and its DNS64 should have one prefix; do both lead to \
             a translator?",
        );
    }
}

/// The resolvers of the host's configuration; without any, those that routers announce. A resolver that is both was asked
/// as one of them.
fn resolvers(report: &Report) -> Vec<&ServerReport> {
    let named: Vec<&ServerReport> =
        report.devices.iter().flat_map(|device| &device.resolvers).collect();
    if report.resolvers.is_empty() {
        return named;
    }
    let asked = |own: &ServerReport| {
        let same = named.iter().find(|it| it.server == own.server && it.said.is_some());
        same.copied().filter(|_| own.said.is_none())
    };
    report.resolvers.iter().map(|own| asked(own).unwrap_or(own)).collect()
}

fn check_resolver(server: &ServerReport, findings: &mut Findings) {
    let address = server.server;
    match &server.said {
        Some(Said::Prefixes(prefixes)) => {
            findings.good("dns64", format!("{address} synthesises with {}", joined(prefixes)));
        }
        Some(Said::OtherAddresses(other)) => findings.bad(
            "dns64",
            format!("{address} gives {other} for ipv4only.arpa, where no well-known address is in"),
            "something tampers with the name, or its prefix has an odd length; ask its operator",
        ),
        Some(Said::Nothing { .. }) => findings.warning(
            "dns64",
            format!("{address} does no DNS64: names of IPv4-only servers have no address here"),
            "ask a name server of this network (its advertisements name it), or run a CLAT: fordway clat \
             --pref64 auto",
        ),
        Some(Said::Failed(failure)) => findings.bad(
            "dns64",
            format!("{address} does not answer: {failure}"),
            "look at the way to it; names can't be looked up without it",
        ),
        None => findings.skipped("dns64", format!("{address} was not asked")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::*;

    fn server(said: Said) -> ServerReport {
        let server = "[2001:db8::53]:53".parse().unwrap();
        ServerReport { server, asked: 1, said: Some(said), knows_name: None }
    }

    #[test]
    fn what_resolvers_say_is_judged() {
        let pool6: Pool6 = "64:ff9b::/96".parse().unwrap();
        for (said, state) in [
            (Said::Prefixes(vec![pool6]), State::Good),
            (Said::Nothing { name_exists: true }, State::Warning),
            (Said::OtherAddresses("2001:db8::1".parse().unwrap()), State::Bad),
        ] {
            let mut findings = Findings::default();
            let report = Report { resolvers: vec![server(said)], ..Report::default() };
            judge(&Found::default(), &report, &mut findings);
            let states: Vec<State> = findings.all().iter().map(|it| it.state).collect();
            assert_eq!(states, [State::Bad, state]);
        }
    }
}
