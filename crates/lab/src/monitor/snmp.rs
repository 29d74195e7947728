//! A gateway that only speaks SNMP.
//!
//! Processors: UCD-SNMP's raw counters, or else HOST-RESOURCES' load of the last minute. Memory: UCD-SNMP, or else
//! HOST-RESOURCES' storage table. Interface: IF-MIB, with 64-bit counters where there are any.

use std::time::Instant;

use super::{AVAILABLE, CPU, FREE, IN, OUT, Reading, Source, rate};
use crate::error::Result;
use crate::snmp::{Access, Agent, Kept};

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
/// IF-MIB ifHCInOctets, ifHCOutOctets.
const OCTETS_64: [&str; 2] = ["1.3.6.1.2.1.31.1.1.1.6", "1.3.6.1.2.1.31.1.1.1.10"];
/// IF-MIB ifInOctets, ifOutOctets.
const OCTETS_32: [&str; 2] = ["1.3.6.1.2.1.2.2.1.10", "1.3.6.1.2.1.2.2.1.16"];

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
    pub(crate) agent: Agent,
    /// Objects that it does not have, by name.
    pub(crate) absent: Vec<String>,
    processors: Processors,
    memory: Memory,
    interface: Option<[String; 2]>,
    before: Option<Counters>,
}

impl Snmp {
    /// Asks the agent who it is and what it has. `interface` is a name as the agent gives it.
    pub(crate) fn connect(agent: &str, access: &Access, interface: Option<&str>) -> Result<Self> {
        let agent = Agent::connect(agent, access)?;
        let mut snmp = Self {
            agent,
            absent: Vec::new(),
            processors: Processors::Absent,
            memory: Memory::Absent,
            interface: None,
            before: None,
        };
        snmp.processors = snmp.find_processors().map_err(|error| snmp.agent.told(&error))?;
        snmp.memory = snmp.find_memory().map_err(|error| snmp.agent.told(&error))?;
        if let Some(name) = interface {
            snmp.interface = Some(snmp.find_interface(name)?);
        }
        if snmp.processors == Processors::Absent
            && snmp.memory == Memory::Absent
            && snmp.interface.is_none()
        {
            return Err(snmp.agent.failed(&format!(
                "it answers, but shows none of {}: its view is too narrow for this user or community \
                 (net-snmp: `view` and `rocommunity` in snmpd.conf); or name an interface",
                snmp.absent.join(", ")
            )));
        }
        Ok(snmp)
    }

    fn find_processors(&mut self) -> std::result::Result<Processors, snmp2::Error> {
        if self.agent.get(&[RAW_IDLE[0]])?[0].is_some() {
            return Ok(Processors::Raw);
        }
        self.absent.push("UCD-SNMP-MIB ssCpuRawIdle".into());
        let loads = self.agent.walk(PROCESSOR_LOAD)?;
        if loads.is_empty() {
            self.absent.push("HOST-RESOURCES-MIB hrProcessorLoad".into());
            return Ok(Processors::Absent);
        }
        Ok(Processors::Load(loads.into_iter().map(|(oid, _)| oid).collect()))
    }

    fn find_memory(&mut self) -> std::result::Result<Memory, snmp2::Error> {
        let found = self.agent.get(&MEMORY)?;
        if found[0].is_some() && found[1].is_some() {
            let available = found[2].is_some();
            if !available {
                self.absent.push("UCD-SNMP-MIB memSysAvail".into());
            }
            return Ok(Memory::Ucd { available });
        }
        self.absent.push("UCD-SNMP-MIB memTotalReal, memAvailReal".into());
        let kinds = self.agent.walk(STORAGE_TYPE)?;
        let ram = Kept::Object(STORAGE_RAM.into());
        let row = kinds.into_iter().find(|(_, kind)| *kind == ram);
        let Some(index) = row.and_then(|(oid, _)| oid.rsplit('.').next().map(str::to_owned)) else {
            self.absent.push("HOST-RESOURCES-MIB hrStorageRam".into());
            return Ok(Memory::Absent);
        };
        let of = |column: &str| format!("{column}.{index}");
        Ok(Memory::Storage { size: of(STORAGE_SIZE), used: of(STORAGE_USED) })
    }

    fn find_interface(&mut self, name: &str) -> Result<[String; 2]> {
        let index = self.agent.row(name)?;
        let wide = OCTETS_64.map(|column| format!("{column}.{index}"));
        let found = self.agent.get(&[&wide[0]]).map_err(|error| self.agent.told(&error))?;
        if found[0].is_some() {
            return Ok(wide);
        }
        self.absent.push("IF-MIB ifHCInOctets".into());
        Ok(OCTETS_32.map(|column| format!("{column}.{index}")))
    }

    fn look(&mut self) -> std::result::Result<Reading, snmp2::Error> {
        let mut reading = Reading::default();
        let mut now = Counters { at: Instant::now(), ticks: None, octets: None };
        match self.processors.clone() {
            Processors::Raw => {
                let busy = self.agent.numbers(RAW_BUSY)?.into_iter().flatten().sum();
                let idle = self.agent.numbers(RAW_IDLE)?.into_iter().flatten().sum();
                now.ticks = Some((busy, idle));
                if let Some((before, after)) = self.before.and_then(|b| b.ticks).zip(now.ticks) {
                    reading.put(CPU, busy_share(before, after));
                }
            }
            Processors::Load(objects) => {
                let objects: Vec<&str> = objects.iter().map(String::as_str).collect();
                let all: Vec<f64> = self
                    .agent
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
                let [total, free, could] = self.agent.numbers(MEMORY)?;
                reading.put(FREE, share(free, total));
                if available {
                    reading.put(AVAILABLE, share(could, total));
                }
            }
            Memory::Storage { size, used } => {
                let [size, used] = self.agent.numbers([size.as_str(), used.as_str()])?;
                let free = size.zip(used).map(|(size, used)| size.saturating_sub(used));
                reading.put(FREE, share(free, size));
            }
            Memory::Absent => reading.put(FREE, Err("the agent has no account of memory".into())),
        }
        if let Some([into, out]) = self.interface.clone() {
            let [into, out] = self.agent.numbers([into.as_str(), out.as_str()])?;
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
        self.look().map_err(|error| self.agent.failed(&format!("no sample: {error}")))
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

#[cfg(test)]
mod tests;
