//! A gateway that only speaks SNMP: version 2c by its community, version 3 by a user.
//!
//! Processors: UCD-SNMP's raw counters, or else HOST-RESOURCES' load of the last minute. Memory: UCD-SNMP, or else
//! HOST-RESOURCES' storage table. Interface: IF-MIB, with 64-bit counters where there are any.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

use snmp2::v3::{Auth, AuthProtocol, Cipher, Security};
use snmp2::{Oid, SyncSession, Value};

use super::{AVAILABLE, CPU, FREE, IN, OUT, Reading, Source, rate};
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
/// UCD-SNMP-MIB ssCpuRaw: User, Nice, System, Interrupt, SoftIRQ are busy.
const RAW_BUSY: [&str; 5] = [
    "1.3.6.1.4.1.2021.11.50.0",
    "1.3.6.1.4.1.2021.11.51.0",
    "1.3.6.1.4.1.2021.11.52.0",
    "1.3.6.1.4.1.2021.11.56.0",
    "1.3.6.1.4.1.2021.11.61.0",
];
/// The same: Idle, Wait, Steal are not.
const RAW_IDLE: [&str; 3] =
    ["1.3.6.1.4.1.2021.11.53.0", "1.3.6.1.4.1.2021.11.54.0", "1.3.6.1.4.1.2021.11.64.0"];
/// HOST-RESOURCES-MIB hrProcessorLoad.
const PROCESSOR_LOAD: &str = "1.3.6.1.2.1.25.3.3.1.2";
/// UCD-SNMP-MIB memTotalReal, memAvailReal (which is free memory), memSysAvail, all in KiB.
const MEMORY: [&str; 3] =
    ["1.3.6.1.4.1.2021.4.5.0", "1.3.6.1.4.1.2021.4.6.0", "1.3.6.1.4.1.2021.4.27.0"];
/// HOST-RESOURCES-MIB hrStorageType, and its value for physical memory.
const STORAGE_TYPE: &str = "1.3.6.1.2.1.25.2.3.1.2";
/// See [`STORAGE_TYPE`].
const STORAGE_RAM: &str = "1.3.6.1.2.1.25.2.1.2";
/// hrStorageSize and hrStorageUsed, in the same units.
const STORAGE_SIZE: &str = "1.3.6.1.2.1.25.2.3.1.5";
/// See [`STORAGE_SIZE`].
const STORAGE_USED: &str = "1.3.6.1.2.1.25.2.3.1.6";
/// IF-MIB ifName, ifDescr.
const INTERFACE_NAMES: [&str; 2] = ["1.3.6.1.2.1.31.1.1.1.1", "1.3.6.1.2.1.2.2.1.2"];
/// IF-MIB ifHCInOctets, ifHCOutOctets.
const OCTETS_64: [&str; 2] = ["1.3.6.1.2.1.31.1.1.1.6", "1.3.6.1.2.1.31.1.1.1.10"];
/// IF-MIB ifInOctets, ifOutOctets.
const OCTETS_32: [&str; 2] = ["1.3.6.1.2.1.2.2.1.10", "1.3.6.1.2.1.2.2.1.16"];

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

/// How the load of the processors is told.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Processors {
    /// Counters of ticks.
    Raw,
    /// Per cent of the last minute, one object per processor.
    Load(Vec<String>),
    /// Not at all.
    Absent,
}

/// How memory is told.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Memory {
    /// UCD-SNMP; whether it knows what programs could have.
    Ucd { available: bool },
    /// A row of the storage table: its size and what is used of it.
    Storage { size: String, used: String },
    /// Not at all.
    Absent,
}

/// What was read last of counters: when, ticks busy and idle, octets in and out.
#[derive(Debug, Clone, Copy)]
struct Counters {
    at: Instant,
    ticks: Option<(u64, u64)>,
    octets: Option<(u64, u64)>,
}

/// An agent.
pub(crate) struct Snmp {
    agent: String,
    session: SyncSession,
    /// What it says of itself.
    pub(crate) description: String,
    /// Objects that it does not have, by name.
    pub(crate) absent: Vec<String>,
    processors: Processors,
    memory: Memory,
    interface: Option<[String; 2]>,
    before: Option<Counters>,
}

/// A value that is kept after the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Kept {
    Number(u64),
    Text(String),
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

    fn number(&self) -> Option<u64> {
        if let Self::Number(n) = self { Some(*n) } else { None }
    }
}

impl Snmp {
    /// Asks the agent who it is and what it has. `interface` is a name as the agent gives it.
    pub(crate) fn connect(agent: &str, access: &Access, interface: Option<&str>) -> Result<Self> {
        let address = address(agent)?;
        let unreachable = |why: String| failed(agent, &why);
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
        let mut snmp = Self {
            agent: agent.to_owned(),
            session: session.map_err(|e| unreachable(e.to_string()))?,
            description: String::new(),
            absent: Vec::new(),
            processors: Processors::Absent,
            memory: Memory::Absent,
            interface: None,
            before: None,
        };
        if matches!(access, Access::User { .. }) {
            snmp.session.init().map_err(|e| unreachable(in_words(&e, access)))?;
        }
        match snmp.get(&[SYS_DESCR]) {
            Ok(found) => {
                if let Some(Some(Kept::Text(text))) = found.into_iter().next() {
                    snmp.description = text;
                }
            }
            Err(error) => return Err(unreachable(in_words(&error, access))),
        }
        let asked = |e: snmp2::Error| failed(agent, &in_words(&e, access));
        snmp.processors = snmp.find_processors().map_err(asked)?;
        snmp.memory = snmp.find_memory().map_err(asked)?;
        if let Some(name) = interface {
            snmp.interface = Some(snmp.find_interface(name, access)?);
        }
        if snmp.processors == Processors::Absent
            && snmp.memory == Memory::Absent
            && snmp.interface.is_none()
        {
            return Err(failed(
                agent,
                &format!(
                    "it answers, but shows none of {}: its view is too narrow for this user or community \
                 (net-snmp: `view` and `rocommunity` in snmpd.conf); or name an interface",
                    snmp.absent.join(", ")
                ),
            ));
        }
        Ok(snmp)
    }

    fn find_processors(&mut self) -> std::result::Result<Processors, snmp2::Error> {
        if self.get(&[RAW_IDLE[0]])?[0].is_some() {
            return Ok(Processors::Raw);
        }
        self.absent.push("UCD-SNMP-MIB ssCpuRawIdle".into());
        let loads = self.walk(PROCESSOR_LOAD)?;
        if loads.is_empty() {
            self.absent.push("HOST-RESOURCES-MIB hrProcessorLoad".into());
            return Ok(Processors::Absent);
        }
        Ok(Processors::Load(loads.into_iter().map(|(oid, _)| oid).collect()))
    }

    fn find_memory(&mut self) -> std::result::Result<Memory, snmp2::Error> {
        let found = self.get(&MEMORY)?;
        if found[0].is_some() && found[1].is_some() {
            let available = found[2].is_some();
            if !available {
                self.absent.push("UCD-SNMP-MIB memSysAvail".into());
            }
            return Ok(Memory::Ucd { available });
        }
        self.absent.push("UCD-SNMP-MIB memTotalReal, memAvailReal".into());
        let kinds = self.walk(STORAGE_TYPE)?;
        let ram = Kept::Object(STORAGE_RAM.into());
        let row = kinds.into_iter().find(|(_, kind)| *kind == ram);
        let Some(index) = row.and_then(|(oid, _)| oid.rsplit('.').next().map(str::to_owned)) else {
            self.absent.push("HOST-RESOURCES-MIB hrStorageRam".into());
            return Ok(Memory::Absent);
        };
        let of = |column: &str| format!("{column}.{index}");
        Ok(Memory::Storage { size: of(STORAGE_SIZE), used: of(STORAGE_USED) })
    }

    fn find_interface(&mut self, name: &str, access: &Access) -> Result<[String; 2]> {
        let agent = self.agent.clone();
        let asked = |e: snmp2::Error| failed(&agent, &in_words(&e, access));
        let mut known = Vec::new();
        for column in INTERFACE_NAMES {
            for (oid, value) in self.walk(column).map_err(asked)? {
                let Kept::Text(own) = value else { continue };
                if own != name {
                    known.push(own);
                    continue;
                }
                let Some(index) = oid.rsplit('.').next() else { continue };
                let wide = OCTETS_64.map(|column| format!("{column}.{index}"));
                let found = self.get(&[&wide[0]]).map_err(asked)?;
                if found[0].is_some() {
                    return Ok(wide);
                }
                self.absent.push("IF-MIB ifHCInOctets".into());
                return Ok(OCTETS_32.map(|column| format!("{column}.{index}")));
            }
        }
        known.sort();
        known.dedup();
        let hint = match known.is_empty() {
            true => "it shows no interface at all (IF-MIB ifName, ifDescr)".to_owned(),
            false => format!("it has {}", known.join(", ")),
        };
        Err(LabError::Usage(format!("{agent} has no interface {name}: {hint}")))
    }

    /// Values of these objects; `None` for those that the agent does not have.
    fn get(&mut self, oids: &[&str]) -> std::result::Result<Vec<Option<Kept>>, snmp2::Error> {
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
    fn walk(&mut self, column: &str) -> std::result::Result<Vec<(String, Kept)>, snmp2::Error> {
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

    fn numbers<const N: usize>(
        &mut self,
        oids: [&str; N],
    ) -> std::result::Result<[Option<u64>; N], snmp2::Error> {
        let found = self.get(&oids)?;
        Ok(std::array::from_fn(|at| found.get(at)?.as_ref()?.number()))
    }

    fn look(&mut self) -> std::result::Result<Reading, snmp2::Error> {
        let mut reading = Reading::default();
        let mut now = Counters { at: Instant::now(), ticks: None, octets: None };
        match self.processors.clone() {
            Processors::Raw => {
                let busy = self.numbers(RAW_BUSY)?.into_iter().flatten().sum();
                let idle = self.numbers(RAW_IDLE)?.into_iter().flatten().sum();
                now.ticks = Some((busy, idle));
                if let Some((before, after)) = self.before.and_then(|b| b.ticks).zip(now.ticks) {
                    reading.put(CPU, busy_share(before, after));
                }
            }
            Processors::Load(objects) => {
                let objects: Vec<&str> = objects.iter().map(String::as_str).collect();
                let all: Vec<f64> = self
                    .get(&objects)?
                    .iter()
                    .filter_map(|v| Some(v.as_ref()?.number()? as f64))
                    .collect();
                let mean = (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64);
                reading.put(CPU, mean.ok_or_else(|| "hrProcessorLoad is gone".into()));
            }
            Processors::Absent => reading.put(CPU, Err("the agent has no processor load".into())),
        }
        let share = |part: Option<u64>, total: Option<u64>| {
            let (part, total) =
                part.zip(total.filter(|t| *t > 0)).ok_or("the agent does not say")?;
            Ok(100.0 * part as f64 / total as f64)
        };
        match self.memory.clone() {
            Memory::Ucd { available } => {
                let [total, free, could] = self.numbers(MEMORY)?;
                reading.put(FREE, share(free, total));
                if available {
                    reading.put(AVAILABLE, share(could, total));
                }
            }
            Memory::Storage { size, used } => {
                let [size, used] = self.numbers([size.as_str(), used.as_str()])?;
                let free = size.zip(used).map(|(size, used)| size.saturating_sub(used));
                reading.put(FREE, share(free, size));
            }
            Memory::Absent => reading.put(FREE, Err("the agent has no account of memory".into())),
        }
        if let Some([into, out]) = self.interface.clone() {
            let [into, out] = self.numbers([into.as_str(), out.as_str()])?;
            now.octets = into.zip(out);
            if let Some(before) = self.before {
                let seconds = (now.at - before.at).as_secs_f64();
                let of = |pick: fn((u64, u64)) -> u64| {
                    let gone = "the interface is gone";
                    let (old, new) = before.octets.zip(now.octets).ok_or(gone)?;
                    Ok(rate(pick(old), pick(new), seconds)? * 8.0 / 1e6)
                };
                reading.put(IN, of(|octets| octets.0));
                reading.put(OUT, of(|octets| octets.1));
            }
        }
        self.before = Some(now);
        Ok(reading)
    }
}

impl Source for Snmp {
    fn read(&mut self) -> Result<Reading> {
        let agent = self.agent.clone();
        self.look().map_err(|e| failed(&agent, &format!("no sample: {e}")))
    }
}

/// Per cent of the ticks between two looks that were busy. Counters have 32 bits and start over (RFC 2578 section 7.1.6).
fn busy_share(before: (u64, u64), after: (u64, u64)) -> std::result::Result<f64, String> {
    if after.0 < before.0 || after.1 < before.1 {
        return Err("a counter has started over".into());
    }
    let (busy, idle) = (after.0 - before.0, after.1 - before.1);
    // net-snmp looks every few seconds alone, and not at all at first.
    if busy + idle == 0 || before == (0, 0) {
        return Err("the agent's counters have not moved".into());
    }
    Ok(100.0 * busy as f64 / (busy + idle) as f64)
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
    let bad = |why: String| LabError::Usage(format!("--snmp {agent}: {why}"));
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
mod tests;
