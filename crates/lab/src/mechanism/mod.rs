//! The mechanisms under test: is it installed, put it on a network, read its counters.

mod bind;
mod command;
mod device;
mod dns;
mod fordway;
mod jool;
mod native;
mod nftables;
mod proxies;
mod softwire;
mod standby;
mod tayga;
mod tundra;
mod unbound;
mod xlat464;

use std::path::{Path, PathBuf};

use fordway_data::spec::{Kind, MechanismSpec, Processors};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::backend::{Backend, Place};
use crate::error::{LabError, Result};
use crate::host::affinity;
use crate::process::{Running, find_program, run_str};
use crate::state::Down;
use crate::topology::Network;

pub(crate) use dns::{Placement, as_resolver};
pub(crate) use fordway::locate as locate_fordway;

/// Whether a mechanism can run here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Availability {
    /// It can.
    Ready {
        /// Version for the record.
        version: String,
        /// The program, for its hash.
        program: Option<PathBuf>,
    },
    /// It cannot; a skip, never a failure.
    Missing {
        /// What to install.
        hint: String,
    },
}

impl Availability {
    /// By the programs of a Debian package; the first is the one that is measured.
    pub(crate) fn of_package(name: &str, package: &str, programs: &[&str]) -> Self {
        let found: Option<Vec<PathBuf>> =
            programs.iter().map(|program| find_program(program)).collect();
        let Some(found) = found else {
            return Self::Missing { hint: format!("apt-get install {package}") };
        };
        let version = package_version(package);
        let version = version.unwrap_or_else(|| "(not from a package)".into());
        Self::Ready { version: format!("{name} {version}"), program: found.into_iter().next() }
    }
}

/// Where and how to put a mechanism.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    /// Runs the commands.
    pub(crate) backend: &'a dyn Backend,
    /// The network, without the mechanism yet.
    pub(crate) network: &'a Network,
    /// The arm of the experiment.
    pub(crate) spec: &'a MechanismSpec,
    /// Unique name of this deployment, for files.
    pub(crate) name: &'a str,
    /// Folder for logs.
    pub(crate) logs: &'a Path,
    /// What it must have room for, when it keeps sessions.
    pub(crate) room: Room,
}

/// How large a mechanism's tables are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    /// Sessions.
    pub(crate) sessions: u32,
    /// No more than these; and UDP sessions, and TCP sessions that are closed, live for a second.
    pub(crate) recycles: bool,
}

impl Room {
    /// Room for so many sessions, which live as long as they do by default.
    pub(crate) fn of(sessions: u32) -> Self {
        Self { sessions, recycles: false }
    }
}

/// A mechanism on another host. Dropping it ends it.
pub(crate) trait Held: std::fmt::Debug {
    /// Whether one of its processes has ended.
    fn gone(&self) -> bool;

    /// What of it left these processors, in words.
    fn astray(&self, on: &Processors) -> Option<String>;

    /// Brings its logs to this machine.
    fn fetch_logs(&self);

    /// Its number there.
    fn handle(&self) -> u64;
}

/// A mechanism in place. Dropping it ends its process.
#[derive(Debug, Default)]
pub(crate) struct Deployed {
    /// Its process, when it has one on this machine.
    pub(crate) daemon: Option<Running>,
    /// Itself, when it is on another.
    pub(crate) far: Option<Box<dyn Held>>,
    /// Its configuration, in the mechanism's own form.
    pub(crate) config: String,
    /// Its command line.
    pub(crate) argv: Vec<String>,
    /// Folder of its locks and its control socket.
    pub(crate) run_dir: Option<PathBuf>,
    /// The program, to read counters with.
    pub(crate) program: Option<PathBuf>,
    /// The command that reads counters kept elsewhere.
    pub(crate) reader: Vec<String>,
    /// What takes down what would outlive its network; after its process.
    pub(crate) down: Option<Down>,
    /// What else belongs to it, in the order in which it was started.
    pub(crate) parts: Vec<Deployed>,
}

impl Deployed {
    /// Whether one of its processes has ended.
    pub(crate) fn gone(&mut self) -> bool {
        self.daemon.as_mut().is_some_and(|daemon| !daemon.alive())
            || self.far.as_ref().is_some_and(|held| held.gone())
            || self.parts.iter_mut().any(Self::gone)
    }

    /// What of it left these processors, to which it was bound, in words.
    pub(crate) fn astray(&self, on: &Processors) -> Option<String> {
        let parts = || self.parts.iter().find_map(|part| part.astray(on));
        let far = || self.far.as_ref().and_then(|held| held.astray(on));
        let own: Vec<u32> = self.daemon.iter().map(Running::pid).collect();
        affinity::astray(&own, on).or_else(far).or_else(parts)
    }

    /// Brings its logs from another host.
    pub(crate) fn fetch_logs(&self) {
        if let Some(held) = &self.far {
            held.fetch_logs();
        }
    }

    /// What it is called on another host.
    pub(crate) fn handles(&self) -> Vec<u64> {
        let parts = self.parts.iter().flat_map(Self::handles);
        self.far.iter().map(|held| held.handle()).chain(parts).collect()
    }

    /// Ends its processes, or takes down what has none here; whether there was any. One that has to be killed has not ended.
    pub(crate) fn end(&mut self) -> Result<bool> {
        let mut any = self.far.take().is_some();
        for part in &mut self.parts {
            any |= part.end()?;
        }
        if let Some(daemon) = &mut self.daemon {
            any = true;
            if daemon.stop() {
                return Err(LabError::Failed("it had to be killed, as it did not end".into()));
            }
        } else if let Some(down) = self.down.take() {
            any = true;
            down.run()?;
        }
        Ok(any)
    }

    /// Its processes on this machine.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let parts = self.parts.iter().flat_map(Self::pids);
        self.daemon.iter().map(Running::pid).chain(parts).collect()
    }
}

/// Memory of a mechanism that keeps sessions, in octets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Memory {
    /// What grows with the sessions.
    pub(crate) growing: u64,
    /// Tables that were made beforehand.
    pub(crate) tables: u64,
    /// Sessions that the tables have room for, when it says so.
    pub(crate) capacity: Option<u64>,
    /// Whether the tables are a part of what grows, as far as they are in use.
    pub(crate) within: bool,
}

impl Memory {
    /// Octets that each of `held` sessions takes: what was added for them, and their share of the tables.
    pub(crate) fn per_session(self, before: Self, held: u64) -> Option<f64> {
        if held == 0 {
            return None;
        }
        let added = self.growing.saturating_sub(before.growing) as f64 / held as f64;
        let room = self.capacity.filter(|room| *room > 0).unwrap_or(held);
        let share = self.tables as f64 / room as f64;
        // Tables that were touched beforehand do not grow; those that were not are counted once.
        Some(if self.within { added.max(share) } else { added + share })
    }
}

/// A start from nothing.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    /// The command line.
    pub(crate) argv: Vec<String>,
    /// Where the started process can be asked what it runs.
    pub(crate) ask: Option<PathBuf>,
}

/// What deletes all sessions of a mechanism at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Forget<'a> {
    /// A command in a box.
    By(&'a Place, Vec<String>),
    /// The end of its processes; after that, connection tracking in a box is flushed.
    AtItsEnd(Option<&'a Place>),
}

/// One implementation.
pub(crate) trait Mechanism {
    /// Whether it can do this on this machine.
    fn availability(&self, kind: Kind) -> Availability;

    /// Puts it on the network and starts it; readiness is polled by the caller.
    fn deploy(&self, context: Context<'_>) -> Result<Deployed>;

    /// What starts it from nothing, when one command does all.
    fn start(&self, _context: Context<'_>) -> Option<Start> {
        None
    }

    /// What really runs, in words, when it can be asked; an error when it is not what the arm of the
    /// experiment is about.
    fn runs(&self, _deployed: &Deployed, _spec: &MechanismSpec) -> Result<Option<String>> {
        Ok(None)
    }

    /// The same, from a status that was read elsewhere.
    fn ran(&self, _status: &Value, _spec: &MechanismSpec) -> Result<()> {
        Ok(())
    }

    /// Its own counters, in its own form; `None` when it has none. That it has some which cannot be read is
    /// an error: then nothing would be held against the generator's.
    fn counters(&self, _deployed: &Deployed) -> Result<Option<Value>> {
        Ok(None)
    }

    /// What two readings of its counters say about packets that it turned into IPv6, or into IPv4.
    fn read(&self, _before: &Value, _after: &Value, _to_v6: bool) -> Option<Counted> {
        None
    }

    /// Sessions that it made between two readings of its counters.
    fn created(&self, _before: &Value, _after: &Value) -> Option<u64> {
        None
    }

    /// Questions that a name server was asked between two readings of its counters.
    fn asked(&self, _before: &Value, _after: &Value) -> Option<u64> {
        None
    }

    /// Requests, or tunnels, that a proxy was asked for between two readings of its counters.
    fn requests(&self, _before: &Value, _after: &Value) -> Option<u64> {
        None
    }

    /// Whether it needs the kernel's connection tracking, whose limits hold for the whole machine.
    fn tracks_connections(&self, _kind: Kind) -> bool {
        false
    }

    /// The box whose connection tracking holds its sessions; `None`: it keeps them itself, or has none.
    fn tracks_at<'a>(&self, _spec: &MechanismSpec, _network: &'a Network) -> Option<&'a Place> {
        None
    }

    /// Sessions to which its own tables are limited with such room; `None`: it has none, or does not limit them.
    fn table_limit(&self, _kind: Kind, _room: Room) -> Option<u64> {
        None
    }

    /// How all of its sessions are deleted at once, by its own means.
    fn forget<'a>(&self, context: Context<'a>) -> Forget<'a> {
        match self.tracks_at(context.spec, context.network) {
            Some(place) => Forget::By(place, vec!["conntrack".into(), "-F".into()]),
            None => Forget::AtItsEnd(None),
        }
    }

    /// What it takes of the memory, when it can be told.
    fn memory(&self, _deployed: &Deployed) -> Option<Memory> {
        None
    }
}

/// A mechanism's own account of a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Counted {
    /// IP octets translated in the flow's direction.
    pub(crate) octets: u64,
    /// Packets translated in the flow's direction; a super-packet counts as one.
    pub(crate) packets: u64,
    /// Packets dropped, by reason; only reasons with drops.
    pub(crate) drops: Vec<(String, u64)>,
}

impl Counted {
    /// The account of two that a flow passes one after the other.
    fn and(self, other: Self) -> Self {
        Self {
            octets: self.octets.min(other.octets),
            packets: self.packets.min(other.packets),
            drops: self.drops.into_iter().chain(other.drops).collect(),
        }
    }
}

/// The implementation of this arm. `fordway` is the gateway's program, when it was found.
pub(crate) fn of_arm(arm: &MechanismSpec, fordway: Option<&Path>) -> Result<Box<dyn Mechanism>> {
    if let Some(commands) = &arm.command {
        return Ok(Box::new(command::Command { commands: commands.clone() }));
    }
    if let Some(spec) = arm.device.clone() {
        return Ok(Box::new(device::Device { spec, kind: arm.kind }));
    }
    if arm.kind == Kind::Xlat464 {
        return Ok(Box::new(xlat464::Xlat464::new(&arm.implementation, fordway)?));
    }
    if let Some(role) = arm.standby {
        return Ok(match arm.implementation.as_str() {
            "nftables" => Box::new(standby::Pair),
            "jool" => Box::new(standby::Joold),
            _ => Box::new(standby::Standby::new(fordway, role)),
        });
    }
    if matches!(arm.kind, Kind::Softwire | Kind::Dstm) {
        return Ok(Box::new(softwire::Softwire::new(fordway)));
    }
    of(&arm.implementation, fordway)
}

/// The implementation of a part of an arm: the arm itself, or the name server beside it.
pub(crate) fn of_part(
    arm: &MechanismSpec,
    spec: &MechanismSpec,
    fordway: Option<&Path>,
) -> Result<Box<dyn Mechanism>> {
    if spec.kind == Kind::Dns64 && arm.kind != Kind::Dns64 {
        return of(&spec.implementation, fordway);
    }
    of_arm(spec, fordway)
}

/// The implementation of this name. `fordway` is the gateway's program, when it was found.
pub(crate) fn of(implementation: &str, fordway: Option<&Path>) -> Result<Box<dyn Mechanism>> {
    Ok(match implementation {
        "bind" => Box::new(bind::Bind),
        "native" => Box::new(native::Native),
        "nftables" => Box::new(nftables::Nftables),
        "fordway" => Box::new(fordway::Fordway { program: fordway.map(Path::to_path_buf) }),
        "tayga" => Box::new(tayga::Tayga),
        "tundra" => Box::new(tundra::Tundra),
        "unbound" => Box::new(unbound::Unbound),
        "jool" => Box::new(jool::Jool),
        "nginx" => Box::new(proxies::Proxy::Nginx),
        "apache" => Box::new(proxies::Proxy::Apache),
        "squid" => Box::new(proxies::Proxy::Squid),
        other => {
            return Err(LabError::Usage(format!("no implementation is called `{other}`")));
        }
    })
}

/// A folder of its own: who serves this machine must not share locks and sockets with the lab's.
fn run_dir(context: Context<'_>) -> PathBuf {
    crate::state::notes().join(context.name)
}

/// Whether this is the part of a name server beside what the arm is about: see [`as_resolver`].
fn is_resolver(spec: &MechanismSpec) -> bool {
    spec.resolver.as_deref() == Some(&spec.implementation)
}

/// The error of an arm whose network has no box in the middle.
fn no_middle(spec: &MechanismSpec) -> LabError {
    LabError::Usage(format!("{} needs a box in the middle", spec.name))
}

/// Version of an installed Debian package.
pub(crate) fn package_version(package: &str) -> Option<String> {
    let out = run_str(&["dpkg-query", "-W", "-f", "${Version}", package]).ok()?.ok().ok()?;
    let version = out.stdout.trim();
    (!version.is_empty()).then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use fordway_data::spec::{IMPLEMENTATIONS, RESOLVERS, kinds};

    #[test]
    fn every_implementation_of_an_experiment_file_is_a_mechanism_and_has_kinds() {
        for name in IMPLEMENTATIONS {
            // Command lines and other machines make a mechanism of the arm's own.
            assert!(["command", "device"].contains(name) || of(name, None).is_ok(), "{name}");
            assert!(kinds(name).is_some_and(|kinds| !kinds.is_empty()), "{name}");
        }
        assert!(RESOLVERS.iter().all(|name| kinds(name).is_some_and(|k| k.contains(&Kind::Dns64))));
        assert!(of("nothing", None).is_err() && kinds("nothing").is_none());
    }

    #[test]
    fn tables_are_limited_by_fordway_s_settings_or_by_connection_tracking() {
        let experiment = fordway_data::spec::Experiment::find("rfc9693").unwrap();
        for arm in &experiment.mechanisms {
            let mechanism = of_arm(arm, None).unwrap();
            let limit = |sessions| mechanism.table_limit(arm.kind, Room::of(sessions));
            let own = limit(300_000);
            let tracked = mechanism.tracks_connections(arm.kind);
            let expected = match (arm.implementation.as_str(), arm.kind) {
                // Nothing limits Jool's.
                ("jool", _) => (None, false),
                ("fordway", Kind::Nat64 | Kind::NatPt | Kind::Xlat464) => (Some(1 << 19), false),
                _ => (None, true),
            };
            assert_eq!((own, tracked), expected, "{}", arm.name);
            assert!(own.is_none() || limit(10) == Some(262_144));
        }
    }

    #[test]
    fn memory_of_a_session_is_what_grew_and_a_share_of_the_tables() {
        let (before, held) = (Memory { growing: 1000, ..Memory::default() }, 100);
        let grown = Memory { growing: 31_000, ..Memory::default() };
        assert_eq!(grown.per_session(before, held), Some(300.0));
        // Tables are made for more sessions than are held.
        let tables =
            Memory { growing: 1000, tables: 30_400, capacity: Some(200), ..Memory::default() };
        assert_eq!(tables.per_session(before, held), Some(152.0));
        assert_eq!(Memory { capacity: None, ..tables }.per_session(before, held), Some(304.0));
        assert_eq!(tables.per_session(before, 0), None);
        let own = Memory { growing: 31_000, within: true, ..tables };
        assert_eq!(own.per_session(before, held), Some(300.0));
        assert_eq!(Memory { growing: 1000, ..own }.per_session(before, held), Some(152.0));
    }
}
