//! DNS64: does the gateway's own answer, and do its upstream servers?

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use fordway_daemon::output::joined_or;
use fordway_resolver::{Question, Resolver, Server, Settings};
use fordway_xlat::addr::Pool6;
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RData, RecordType};

use super::finding::Findings;

/// RFC 7050 section 8.2: the addresses of ipv4only.arpa.
const WELL_KNOWN: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 0, 170), Ipv4Addr::new(192, 0, 0, 171)];

/// Asks the server at each address for what no DNS64 server may get wrong (RFC 8880).
pub(super) async fn check_own(listen: &[SocketAddr], pool6: &[Pool6], findings: &mut Findings) {
    for address in listen {
        let server = Server::udp(SocketAddr::new(nearest(address.ip()), address.port()));
        let answer = ask(&server, None, "ipv4only.arpa.", RecordType::AAAA).await;
        match answer.map(|answer| addresses(&answer)) {
            Ok(addresses) if is_synthesised(&addresses, pool6) => {
                findings.good("dns64", format!("{address} answers with {}", joined_or(pool6, "nothing")));
            }
            Ok(addresses) => findings.bad(
                "dns64",
                format!("{address} gives {} for ipv4only.arpa", joined_or(&addresses, "nothing")),
                "another server listens there, or it has other prefixes than the file: fordway reload",
            ),
            Err(why) => findings.bad(
                "dns64",
                format!("{address}: {why}"),
                "the daemon does not run, or its access list (allow) leaves this host out",
            ),
        }
    }
}

/// Asks each upstream server for the root's name servers, which every one knows, and those of domains for the domain.
pub(super) async fn check_upstream(settings: &Settings, findings: &mut Findings) {
    let usual = settings.servers.iter().map(|server| (server, ".".to_owned(), RecordType::NS));
    let own = settings.domains.iter().flat_map(|domain| {
        let name = domain.names.first().map(ToString::to_string).unwrap_or_default();
        domain.servers.iter().map(move |server| (server, name.clone(), RecordType::SOA))
    });
    for (server, name, kind) in usual.chain(own) {
        match ask(server, Some(settings), &name, kind).await {
            Ok(_) => findings.good("upstream", format!("{server} answers")),
            Err(why) => findings.bad(
                "upstream",
                format!("{server}: {name}: {why}"),
                "no name can be looked up there; give another upstream, or look at the way to it",
            ),
        }
    }
}

/// One question to one server; an answer with an error code is an error.
async fn ask(
    server: &Server,
    like: Option<&Settings>,
    name: &str,
    record_type: RecordType,
) -> Result<Message, String> {
    let mut settings = Settings::new(vec![server.clone()]);
    settings.ca = like.and_then(|like| like.ca.clone());
    settings.timeout = Duration::from_secs(1);
    settings.attempts = 2;
    let resolver = Resolver::new(settings).map_err(|error| error.to_string())?;
    let name = Name::from_ascii(name).map_err(|error| error.to_string())?;
    let question = Question {
        name,
        record_type,
        class: DNSClass::IN,
        dnssec_ok: false,
        checking_disabled: false,
    };
    let answer = resolver.lookup(&question).await;
    let message = answer.map_err(|error| error.to_string())?.message.clone();
    match message.metadata.response_code {
        ResponseCode::NoError => Ok(message),
        code => Err(format!("it answers {code}")),
    }
}

fn addresses(message: &Message) -> Vec<Ipv6Addr> {
    let data = message.answers.iter().map(|record| &record.data);
    data.filter_map(|data| match data {
        RData::AAAA(address) => Some(address.0),
        _ => None,
    })
    .collect()
}

/// Both well-known addresses behind each prefix, and nothing else. The server may know more prefixes than are in
/// the file, but none of the file may be missing.
fn is_synthesised(addresses: &[Ipv6Addr], pool6: &[Pool6]) -> bool {
    let mut wanted = pool6.iter().flat_map(|pool6| WELL_KNOWN.map(|address| pool6.embed(address)));
    !addresses.is_empty() && wanted.all(|address| addresses.contains(&address))
}

/// The address by which a server that listens everywhere is reached.
pub(super) fn nearest(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) if address.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(address) if address.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_prefixes_have_to_be_there() {
        let pool6 = |net: &str| Pool6::new(net.parse().unwrap()).unwrap();
        let all = [pool6("64:ff9b::/96"), pool6("2001:db8:64::/96")];
        let one = WELL_KNOWN.map(|address| all[0].embed(address));
        assert!(is_synthesised(&one, &all[..1]));
        assert!(!is_synthesised(&one, &all));
        assert!(!is_synthesised(&one[..1], &all[..1]));
        assert!(!is_synthesised(&[], &[]));
    }
}
