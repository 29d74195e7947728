//! Names of servers: /etc/hosts, then DNS.

use std::collections::HashMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;

use fordway_dns64::Question;
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::{DNSClass, Name, RData, RecordType};

use super::reason::Reason;
use fordway_resolver::{Asker, Error, LookupError, Resolver, Server, Settings};
use fordway_serve::{Network, resolv_conf};

/// Octets of answers that are kept where the system's servers are asked.
const CACHE: usize = 4 << 20;

/// The resolver of servers' names, and the names of this host.
#[derive(Debug)]
pub(super) struct Names {
    resolver: Arc<Resolver>,
    hosts: HashMap<String, Vec<IpAddr>>,
}

/// Addresses of one kind that are tried: each costs a socket, and the owner of a name decides how many it has.
const MOST: usize = 16;

impl Names {
    /// Reads the files. The resolver of `before` stays, with its cache, if its settings do.
    pub(super) fn new(settings: Option<&Settings>, before: Option<&Names>) -> Result<Names, Error> {
        let settings = settings.cloned().unwrap_or_else(|| {
            let servers = servers(Path::new(resolv_conf::PATH));
            Settings { cache_octets: CACHE, ..Settings::new(servers) }
        });
        let resolver = match before {
            Some(before) if *before.resolver.settings() == settings => Arc::clone(&before.resolver),
            _ => Resolver::new(settings)?,
        };
        Ok(Names { resolver, hosts: hosts(&fs::read_to_string("/etc/hosts").unwrap_or_default()) })
    }

    /// The addresses that a name, in lower case, has in /etc/hosts or by definition.
    pub(super) fn local(&self, name: &str) -> Option<Vec<IpAddr>> {
        if let Some(addresses) = self.hosts.get(name) {
            return Some(addresses.clone());
        }
        // RFC 6761 section 6.3: never a question for DNS.
        let is_local = name == "localhost" || name.ends_with(".localhost");
        is_local.then(|| vec![Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()])
    }

    /// The addresses of one kind that a name has; there may be none. The question counts for a client, if it is one's.
    pub(super) async fn lookup(
        &self,
        client: Option<Network>,
        name: &str,
        kind: RecordType,
    ) -> Result<Vec<IpAddr>, Reason> {
        let mut owner = Name::from_ascii(name).map_err(|_| Reason::NoSuchName)?;
        owner.set_fqdn(true);
        let question = Question {
            name: owner,
            record_type: kind,
            class: DNSClass::IN,
            dnssec_ok: false,
            checking_disabled: false,
        };
        let answer =
            self.resolver.lookup_for(Asker::of(client), &question).await.map_err(|error| {
                match error {
                    LookupError::Timeout => Reason::NameTimeout,
                    LookupError::Unreachable | LookupError::Unusable => Reason::NameFailed,
                    LookupError::Busy => Reason::Busy,
                }
            })?;
        match answer.message.response_code {
            ResponseCode::NoError => {}
            ResponseCode::NXDomain => return Err(Reason::NoSuchName),
            _ => return Err(Reason::NameFailed),
        }
        let addresses = answer.message.answers.iter().filter_map(|record| match &record.data {
            RData::A(a) if kind == RecordType::A => Some(IpAddr::V4(a.0)),
            RData::AAAA(aaaa) if kind == RecordType::AAAA => Some(IpAddr::V6(aaaa.0)),
            _ => None,
        });
        Ok(addresses.take(MOST).collect())
    }
}

/// The servers of resolv.conf(5); none there: that of this host.
fn servers(path: &Path) -> Vec<Server> {
    let mut servers: Vec<Server> =
        resolv_conf::servers(path).into_iter().map(Server::udp).collect();
    if servers.is_empty() {
        servers.push(Server::udp((Ipv4Addr::LOCALHOST, 53).into()));
    }
    servers
}

/// The names of hosts(5).
fn hosts(text: &str) -> HashMap<String, Vec<IpAddr>> {
    let mut hosts: HashMap<String, Vec<IpAddr>> = HashMap::new();
    for line in text.lines() {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let Some(Ok(address)) = words.next().map(str::parse) else { continue };
        for name in words {
            hosts.entry(name.to_ascii_lowercase()).or_default().push(address);
        }
    }
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_several_names_and_addresses() {
        let hosts =
            hosts("192.0.2.1 a.example A # comment b\n2001:db8::1\ta.example\n# x\nbad c\n");
        let v4: IpAddr = "192.0.2.1".parse().unwrap();
        let v6: IpAddr = "2001:db8::1".parse().unwrap();
        assert_eq!(hosts["a.example"], [v4, v6]);
        assert_eq!(hosts["a"], [v4]);
        assert_eq!(hosts.len(), 2);
    }

    #[test]
    fn servers_of_the_system() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let servers_of = |text: &str| -> Vec<String> {
            fs::write(&file, text).unwrap();
            servers(file.path()).iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            servers_of("nameserver 192.0.2.53\nnameserver 2001:db8::53\noptions edns0\n"),
            ["192.0.2.53:53", "[2001:db8::53]:53"]
        );
        assert_eq!(servers_of(""), ["127.0.0.1:53"]);
    }
}
