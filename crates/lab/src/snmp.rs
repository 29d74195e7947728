//! Questions to an SNMP agent: version 2c by its community, version 3 by a user.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use snmp2::v3::{Auth, AuthProtocol, Cipher, Security};
use snmp2::{Oid, SyncSession, Value};

use crate::error::{LabError, Result};

/// The port of agents.
const PORT: u16 = 161;
/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often a question is asked.
const TRIES: usize = 3;
/// Most rows of a table.
const ROWS: usize = 4096;

/// SNMPv2-MIB sysDescr.0.
const SYS_DESCR: &str = "1.3.6.1.2.1.1.1.0";
/// IF-MIB ifName, ifDescr.
const INTERFACE_NAMES: [&str; 2] = ["1.3.6.1.2.1.31.1.1.1.1", "1.3.6.1.2.1.2.2.1.2"];
/// IF-MIB ifHCInUcastPkts, ifHCOutUcastPkts, ifHCOutOctets.
const PACKETS: [&str; 3] =
    ["1.3.6.1.2.1.31.1.1.1.7", "1.3.6.1.2.1.31.1.1.1.11", "1.3.6.1.2.1.31.1.1.1.10"];
/// IF-MIB ifInDiscards, ifInErrors, ifOutDiscards, ifOutErrors.
const DROPS: [&str; 4] = [
    "1.3.6.1.2.1.2.2.1.13",
    "1.3.6.1.2.1.2.2.1.14",
    "1.3.6.1.2.1.2.2.1.19",
    "1.3.6.1.2.1.2.2.1.20",
];

/// Who asks.
#[derive(Debug, Clone)]
pub(crate) enum Access {
    /// Version 2c.
    Community(String),
    /// Version 3, with authentication by SHA-1 or SHA-256.
    User {
        /// Its name.
        name: String,
        /// Its password.
        password: String,
        /// SHA-1 rather than SHA-256.
        sha1: bool,
        /// Password of AES-128 encryption; without one, nothing is encrypted.
        privacy: Option<String>,
    },
}

/// An agent.
pub(crate) struct Agent {
    name: String,
    access: Access,
    session: SyncSession,
    /// What it says of itself.
    pub(crate) description: String,
}

/// Packets of an interface since it came up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Packets {
    /// Received.
    pub(crate) received: u64,
    /// Sent.
    pub(crate) sent: u64,
    /// Octets sent.
    pub(crate) sent_octets: u64,
    /// Dropped or faulty, in either direction, as far as it is told.
    pub(crate) dropped: u64,
}

/// A value that is kept after the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kept {
    /// A number.
    Number(u64),
    /// A text.
    Text(String),
    /// The number of an object.
    Object(String),
}

impl Kept {
    fn of(value: &Value<'_>) -> Option<Self> {
        Some(match value {
            Value::Integer(n) => Self::Number(u64::try_from(*n).ok()?),
            Value::Counter32(n) | Value::Unsigned32(n) | Value::Timeticks(n) => {
                Self::Number(u64::from(*n))
            }
            Value::Counter64(n) => Self::Number(*n),
            Value::OctetString(text) => Self::Text(String::from_utf8_lossy(text).into_owned()),
            Value::ObjectIdentifier(oid) => Self::Object(oid.to_id_string()),
            // No such object, no such instance, end of the view.
            _ => return None,
        })
    }

    /// A number, if it is one.
    pub(crate) fn number(&self) -> Option<u64> {
        if let Self::Number(n) = self { Some(*n) } else { None }
    }
}

impl Agent {
    /// Asks the agent who it is.
    pub(crate) fn connect(agent: &str, access: &Access) -> Result<Self> {
        let address = address(agent)?;
        let session = match access {
            Access::Community(community) => {
                SyncSession::new_v2c(address, community.as_bytes(), Some(PATIENCE), 1)
            }
            Access::User { name, password, sha1, privacy } => SyncSession::new_v3(
                address,
                Some(PATIENCE),
                1,
                security(name, password, *sha1, privacy.as_deref()),
            ),
        };
        let mut own = Self {
            name: agent.to_owned(),
            access: access.clone(),
            session: session.map_err(|error| failed(agent, &error.to_string()))?,
            description: String::new(),
        };
        if matches!(access, Access::User { .. }) {
            own.session.init().map_err(|error| failed(agent, &in_words(&error, access)))?;
        }
        let found = own.get(&[SYS_DESCR]).map_err(|error| own.told(&error))?;
        if let Some(Some(Kept::Text(text))) = found.into_iter().next() {
            own.description = text;
        }
        Ok(own)
    }

    /// An error about it.
    pub(crate) fn failed(&self, why: &str) -> LabError {
        failed(&self.name, why)
    }

    /// An error of the protocol, in words.
    pub(crate) fn told(&self, error: &snmp2::Error) -> LabError {
        self.failed(&in_words(error, &self.access))
    }

    /// The row of an interface, by its name as the agent gives it.
    pub(crate) fn row(&mut self, name: &str) -> Result<String> {
        let mut known = Vec::new();
        for column in INTERFACE_NAMES {
            for (oid, value) in self.walk(column).map_err(|error| self.told(&error))? {
                let Kept::Text(own) = value else { continue };
                match oid.rsplit('.').next() {
                    Some(index) if own == name => return Ok(index.to_owned()),
                    _ => known.push(own),
                }
            }
        }
        known.sort();
        known.dedup();
        let hint = match known.is_empty() {
            true => "it shows no interface at all (IF-MIB ifName, ifDescr)".to_owned(),
            false => format!("it has {}", known.join(", ")),
        };
        Err(LabError::Usage(format!("{} has no interface {name}: {hint}", self.name)))
    }

    /// Packets of an interface so far. Counters of packets of 32 bits may wrap within a trial: they are refused. Those of drops have
    /// no more.
    pub(crate) fn packets(&mut self, interface: &str) -> Result<Packets> {
        let row = self.row(interface)?;
        let of = |column: &str| format!("{column}.{row}");
        let (counts, drops) = (PACKETS.map(of), DROPS.map(of));
        let counts = self.numbers(counts.each_ref().map(String::as_str));
        let counts = counts.map_err(|error| self.told(&error))?;
        let drops = self.numbers(drops.each_ref().map(String::as_str));
        let drops = drops.map_err(|error| self.told(&error))?;
        let [Some(received), Some(sent), Some(sent_octets)] = counts else {
            let why = format!("it has no 64-bit counters of {interface} (IF-MIB ifHCInUcastPkts)");
            return Err(self.failed(&why));
        };
        let dropped = drops.into_iter().flatten().sum();
        Ok(Packets { received, sent, sent_octets, dropped })
    }

    /// Values of these objects; `None` for those that the agent does not have.
    pub(crate) fn get(
        &mut self,
        oids: &[&str],
    ) -> std::result::Result<Vec<Option<Kept>>, snmp2::Error> {
        let parsed: Vec<Oid<'static>> =
            oids.iter().map(|oid| parse(oid)).collect::<std::result::Result<_, _>>()?;
        let wanted: Vec<&Oid<'static>> = parsed.iter().collect();
        self.ask(|session| {
            let answer = session.get_many(&wanted)?;
            let mut found: Vec<Option<Kept>> =
                answer.varbinds.map(|(_, value)| Kept::of(&value)).collect();
            found.resize(oids.len(), None);
            Ok(found)
        })
    }

    /// All rows of a column.
    pub(crate) fn walk(
        &mut self,
        column: &str,
    ) -> std::result::Result<Vec<(String, Kept)>, snmp2::Error> {
        let (mut at, below) = (column.to_owned(), format!("{column}."));
        let mut rows = Vec::new();
        while rows.len() < ROWS {
            let oid = parse(&at)?;
            let next = self.ask(|session| {
                let mut answer = session.getnext(&oid)?;
                let next = answer.varbinds.next();
                Ok(next.and_then(|(oid, value)| Some((oid.to_id_string(), Kept::of(&value)?))))
            })?;
            let Some((oid, value)) = next.filter(|(oid, _)| oid.starts_with(&below)) else { break };
            // An agent that does not go on would be asked for ever.
            if oid == at {
                break;
            }
            at.clone_from(&oid);
            rows.push((oid, value));
        }
        Ok(rows)
    }

    /// Asks again where an answer got lost, was that to an earlier question, or the agent's clock had to be learnt.
    fn ask<T>(
        &mut self,
        mut question: impl FnMut(&mut SyncSession) -> std::result::Result<T, snmp2::Error>,
    ) -> std::result::Result<T, snmp2::Error> {
        use snmp2::Error::{AuthUpdated, Receive, RequestIdMismatch};
        let mut last = Receive;
        for _ in 0..TRIES {
            match question(&mut self.session) {
                Err(error @ (Receive | RequestIdMismatch | AuthUpdated)) => last = error,
                done => return done,
            }
        }
        Err(last)
    }

    /// Numbers of these objects.
    pub(crate) fn numbers<const N: usize>(
        &mut self,
        oids: [&str; N],
    ) -> std::result::Result<[Option<u64>; N], snmp2::Error> {
        let found = self.get(&oids)?;
        Ok(std::array::from_fn(|at| found.get(at)?.as_ref()?.number()))
    }
}

fn security(name: &str, password: &str, sha1: bool, privacy: Option<&str>) -> Security {
    let hash = if sha1 { AuthProtocol::Sha1 } else { AuthProtocol::Sha256 };
    let auth = match privacy {
        Some(own) => {
            Auth::AuthPriv { cipher: Cipher::Aes128, privacy_password: own.as_bytes().to_vec() }
        }
        None => Auth::AuthNoPriv,
    };
    Security::new(name.as_bytes(), password.as_bytes()).with_auth_protocol(hash).with_auth(auth)
}

fn parse(oid: &str) -> std::result::Result<Oid<'static>, snmp2::Error> {
    oid.parse().map_err(|_| snmp2::Error::AsnParse)
}

fn failed(agent: &str, why: &str) -> LabError {
    LabError::Watched(format!("SNMP agent {agent}: {why}"))
}

fn in_words(error: &snmp2::Error, access: &Access) -> String {
    match (error, access) {
        (snmp2::Error::Receive, Access::Community(_)) => format!(
            "no answer within {} s, asked {TRIES} times: the address is wrong, the community is (agents do not answer \
             a wrong one), or the agent does not listen there or not to this machine",
            PATIENCE.as_secs()
        ),
        (snmp2::Error::Receive, Access::User { .. }) => format!(
            "no answer within {} s, asked {TRIES} times: the address is wrong, or the agent does not listen there or \
             does not know the user",
            PATIENCE.as_secs()
        ),
        (snmp2::Error::AuthFailure(_), _) => {
            format!(
                "{error}: the user, a password or the hash (SHA-256; --snmp-sha1 for SHA-1) is wrong"
            )
        }
        _ => error.to_string(),
    }
}

/// The agent's address, with or without a port.
fn address(agent: &str) -> Result<SocketAddr> {
    let bad = |why: String| LabError::Usage(format!("SNMP agent {agent}: {why}"));
    if let Ok(address) = agent.parse::<std::net::IpAddr>() {
        return Ok(SocketAddr::new(address, PORT));
    }
    let found = match agent.parse::<SocketAddr>() {
        Ok(address) => return Ok(address),
        Err(_) if agent.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) => {
            agent.to_socket_addrs()
        }
        Err(_) => (agent, PORT).to_socket_addrs(),
    };
    let first = found.map_err(|e| bad(e.to_string()))?.next();
    first.ok_or_else(|| bad("the name has no address".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_has_the_usual_port_unless_it_says_another() {
        let of = |text: &str| address(text).unwrap().to_string();
        assert_eq!(of("192.0.2.1"), "192.0.2.1:161");
        assert_eq!(of("2001:db8::1"), "[2001:db8::1]:161");
        assert_eq!(of("192.0.2.1:1161"), "192.0.2.1:1161");
        assert_eq!(of("[2001:db8::1]:1161"), "[2001:db8::1]:1161");
        assert!(address("no such name").is_err());
    }

    #[test]
    fn silence_is_explained() {
        let said = in_words(&snmp2::Error::Receive, &Access::Community("x".into()));
        assert!(said.contains("community") && !said.contains('x'), "{said}");
    }

    #[test]
    fn every_object_has_a_number() {
        for oid in [&[SYS_DESCR][..], &INTERFACE_NAMES, &PACKETS, &DROPS].concat() {
            assert_eq!(parse(oid).unwrap().to_id_string(), oid);
        }
    }
}
