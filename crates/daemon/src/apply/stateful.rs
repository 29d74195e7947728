//! The tables of stateful translators: where they are, their settings, and what sweeps them.
//!
//! With the kernel engine the tables are BPF maps that outlive the process: the next start of the translator adopts their
//! sessions. With the user engine alone they are on the heap and end with the process.

mod event_log;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use fordway_bpf::{GracePeriods, Origin, ShardGates, StateMaps, StateMemory};
use fordway_config::{Engine as EngineChoice, InterfaceName, NatLog, Translator};
use fordway_control::Clash;
use fordway_engine::{Sweeping, monotonic};
use fordway_xlat::nat64::memory::{keeps_prefixes, live_sessions, tell_prefixes};
use fordway_xlat::nat64::{
    Adopted, Binding, Memory, Nat64, Nat64Error, Protocol, Settings, StaticBib,
};
use rustix::thread::{MembarrierCommand, membarrier};
use tracing::{debug, info, warn};

use super::cluster::Part;
use super::privilege;
use super::running::Running;
use crate::failure::Failure;
use crate::natlog::Logs;
use crate::pins;
use crate::plan::placement::Intent;
use crate::plan::pool4;
use crate::plan::resolve::Facts;

use crate::handover::mappings::MappingWriter;
use crate::settings::nat_pt::{self, with_gateway};
use crate::tables::{bib_error, written};
use event_log::EventLog;

/// The tables of a translator that has any.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) nat64: Arc<Nat64>,
    /// Where they lie, if the kernel engine works on them too.
    pub(crate) maps: Option<Arc<StateMaps>>,
    /// In a cluster: which packets programs may translate.
    gates: Option<Arc<ShardGates>>,
    /// Pins that were made now, and that go if the start fails.
    pub(crate) made: Option<PathBuf>,
}

/// What the core is to do, by configuration and host; `None`: it is stateless.
/// `earlier`: those in whose place they come.
pub(crate) fn settings(
    config: &Translator,
    facts: &Facts,
    earlier: Option<&Settings>,
) -> Option<Settings> {
    let addresses =
        |device: &InterfaceName| facts.device_v4.get(device.as_str()).cloned().unwrap_or_default();
    match (config.nat64(), config.dynamic4()) {
        (Some(nat64), _) => Some(with_gateway(nat64.settings(addresses), config, earlier)),
        (None, Some(dynamic4)) => Some(dynamic4.settings()),
        (None, None) => None,
    }
}

impl Tables {
    /// Finds the tables that an earlier run has left, or makes new ones. `None`: the translator is
    /// stateless. Where the kernel has no room for them and the configuration leaves it open, the user
    /// engine is to run. `part`: that in a cluster.
    pub(crate) fn open(
        config: &Translator,
        facts: &Facts,
        intent: &mut Intent,
        part: Option<&Part>,
    ) -> Result<Option<Tables>, Failure> {
        let Some(mut settings) = settings(config, facts, None) else { return Ok(None) };
        settings.shards = part.map(Part::shards);
        let name = config.name.as_str();
        let secret = random_secret()?;
        let (mut maps, mut made) = (None, None);
        if intent.is_kernel() {
            let pins = pins::dir(name)?;
            match StateMaps::open(&pins, &settings.sizes, secret) {
                Ok((opened, origin)) => {
                    let adopted = origin == Origin::Adopted;
                    made = (!adopted).then(|| pins.clone());
                    if let Some(part) = part {
                        let kept = part.keep_gates(&pins, adopted);
                        kept.inspect_err(|_| Tables::discard(made.as_ref()))?;
                    }
                    maps = Some(Arc::new(opened));
                    if let Origin::Replaced(lost) = origin {
                        warn!(
                            "{name}: {lost} sessions of an earlier run are lost: an earlier version left them in tables \
                             that address-dependent filtering can't use any more"
                        );
                    }
                }
                // Sessions are not dropped for the sake of a start: the operator has to end them.
                Err(error @ fordway_bpf::Error::Unsupported(_)) => {
                    let hint = format!("fordway down {name} ends them; then start it again");
                    return Err(Failure::failed(format!("{name}: {error}")).hint(hint));
                }
                Err(error) if config.engine == EngineChoice::Kernel => {
                    return Err(Failure::from(error).prefix(&format!("{name}: ")));
                }
                Err(error) => {
                    let why = format!("engine = \"auto\": no tables in the kernel: {error}");
                    warn!("{name}: {why}");
                    *intent = Intent::User(why);
                }
            }
        }
        let memory: Arc<dyn Memory> = match &maps {
            Some(maps) => Arc::clone(maps) as Arc<dyn Memory>,
            None => Arc::new(StateMemory::new(&settings.sizes, secret).map_err(|error| {
                Failure::failed(format!("{name}: no memory for the tables: {error}"))
                    .hint("write smaller max_sessions, max_bib and max_subscribers")
            })?),
        };
        if maps.is_some() {
            // While there are privileges: the sweeper has none.
            prepare_grace();
        }
        let subscriber_len = settings.subscriber_len;
        let meta = memory.regions().meta;
        if config.nat64().is_some() && !keeps_prefixes(meta, config.pool6(), subscriber_len) {
            let text = format!("{name}: pool6 and subscriber_len stay while there are sessions");
            let hint = format!(
                "write pool6 with the prefixes of before, in their order, others behind them; or fordway down {name}, \
                 which ends the sessions"
            );
            return Err(Failure::failed(text).hint(hint));
        }
        tell_prefixes(meta, config.pool6(), subscriber_len);
        let nat64 = Nat64::new(settings, Arc::clone(&memory)).map_err(|error| {
            Tables::discard(made.as_ref());
            misfit(name, error)
        })?;
        let gates = part.and_then(Part::gates);
        let tables = Tables { nat64: Arc::new(nat64), maps, gates, made };
        if tables.maps.is_some() && tables.made.is_none() {
            let Adopted { counts, entries } = tables.nat64.adopt(&grace);
            if counts + entries > 0 {
                debug!(
                    "{name}: of a killed run, {counts} counts are mended and {entries} entries found"
                );
            }
            let sessions = live_sessions(tables.nat64.memory().regions().sessions);
            info!("{name}: {sessions} sessions of an earlier run go on");
        }
        let by_mark = |pool: &fordway_xlat::nat64::Pool| pool.mark.is_some();
        if tables.maps.is_none() && tables.nat64.settings().pools.iter().any(by_mark) {
            warn!("{name}: pools with a mark are unused: the user engine alone can't see marks");
        }
        make_static(name, &tables.nat64);
        Ok(Some(tables))
    }

    /// Takes the pins back that were made for a start that failed, and the folders that are empty then.
    pub(super) fn discard(pins: Option<&PathBuf>) {
        let Some(pins) = pins else { return };
        if let Err(error) = StateMaps::discard(pins) {
            debug!("{}: {error}", pins.display());
        }
        // A folder in which there is something, such as an earlier run's programs, stays by itself.
        for folder in pins.ancestors().take(2) {
            let _ = std::fs::remove_dir(folder);
        }
    }
}

fn random_secret() -> Result<[u64; 2], Failure> {
    Ok([getrandom::u64()?, getrandom::u64()?])
}

fn misfit(name: &str, error: Nat64Error) -> Failure {
    let hint = match error {
        Nat64Error::Memory => {
            "max_sessions, max_bib, max_subscribers and filtering stay while it runs"
        }
        Nat64Error::Filtering => "filtering stays while there are sessions",
    };
    Failure::failed(format!("{name}: {error}"))
        .hint(format!("{hint}; fordway down {name} ends them, and the next start may have others"))
}

/// Puts the configuration's BIB entries in, in the place of those of an earlier one.
fn make_static(name: &str, nat64: &Nat64) {
    for (binding, error) in nat_pt::bind_fixed(nat64, monotonic()) {
        let (v4, v6) = (binding.v4.0, binding.v6.0);
        warn!("{name}: {v4} is not bound to {v6}: {}", bib_error(error));
    }
    let (now, wanted) = (monotonic(), set_of(&nat64.settings().bib));
    let earlier = nat64.bib(now).filter(|entry| entry.is_static && !entry.is_added);
    for Binding { protocol, v6, v4 } in earlier.map(|entry| entry.binding) {
        if let Some(protocol) = protocol
            && !wanted.contains(&(protocol, v6, v4))
        {
            // Gone already is as good.
            let _ = nat64.remove_bib(protocol, v4, now);
        }
    }
    for (entry, error) in nat64.make_static_bib(monotonic()) {
        warn!("{name}: no BIB entry {}: {}", written(&entry), bib_error(error));
    }
}

/// Protocol and both ends of an entry.
type Ends = (Protocol, (Ipv6Addr, u16), (Ipv4Addr, u16));

/// For questions whether an entry is among many.
fn set_of(entries: &[StaticBib]) -> HashSet<Ends> {
    entries.iter().map(|it| (it.protocol, it.v6, it.v4)).collect()
}

/// Sessions and 1:1 mappings: how many there are, and how many of them have no place in other settings and will end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entries {
    pub(crate) all: u64,
    pub(crate) unfit: u64,
}

impl Entries {
    /// Looks at whole tables.
    fn count(nat64: &Nat64, fits: impl Fn(&Binding) -> bool) -> Entries {
        let now = monotonic();
        let dynamic = nat64.bib(now).map(|bib| bib.binding).filter(|it| it.protocol.is_none());
        let bindings = nat64.sessions(now).map(|session| session.binding).chain(dynamic);
        bindings.fold(Entries::default(), |Entries { all, unfit }, binding| Entries {
            all: all + 1,
            unfit: unfit + u64::from(!fits(&binding)),
        })
    }

    /// Those of tables of which all or none stay.
    pub(super) fn of(nat64: &Nat64, stay: bool) -> Entries {
        Entries::count(nat64, |_| stay)
    }

    /// Those of tables that get other settings.
    fn under(nat64: &Nat64, settings: &Settings) -> Entries {
        let bib = set_of(&settings.bib);
        Entries::count(nat64, |binding| fits(binding, settings, &bib))
    }
}

/// Whether a session or BIB entry has a place in other settings, which have these entries.
fn fits(binding: &Binding, settings: &Settings, bib: &HashSet<Ends>) -> bool {
    let Binding { protocol, v6, v4 } = *binding;
    if let Some(addresses) = settings.addresses.as_ref().filter(|it| it.contains(v4.0)) {
        return addresses.fits(v4.0, v6.0);
    }
    match (protocol, &settings.dynamic4) {
        (None, Some(pool)) => pool.contains(v4.0),
        (None, None) => false,
        (Some(protocol), _) => {
            settings.pools.iter().any(|pool| pool.contains(v4.0, v4.1))
                || bib.contains(&(protocol, v6, v4))
        }
    }
}

/// Ports of pool4 that the host uses itself; each is told in the log.
fn clashes(name: &str, facts: &Facts, nat64: &Nat64) -> Vec<Clash> {
    let found = pool4::clashes(facts, &with_added(nat64));
    for sentence in Clash::sentences(&found) {
        warn!("{name}: {sentence}");
    }
    found
}

/// What a stateful translator has beside its engines.
#[derive(Debug)]
pub(crate) struct Stateful {
    /// The tables, where the kernel engine is to work on them too.
    pub(crate) maps: Option<Arc<StateMaps>>,
    /// In a cluster: which packets its programs may translate.
    pub(crate) gates: Option<Arc<ShardGates>>,
    /// Where events of the tables go.
    pub(crate) events: EventLog,
    /// Keeps dynamic 1:1 mappings across restarts.
    keeper: Option<MappingWriter>,
    /// What the host's own use of ports is in the way of.
    pub(crate) clashes: Vec<Clash>,
    /// Pins that were made for this start; without a kernel engine they are removed.
    made: Option<PathBuf>,
    /// Addresses that could not be taken up, and when: to try again at each look would only fill the log.
    pub(crate) refused: Option<(HostV4, Instant)>,
    /// What a change brings when it is final.
    pub(super) unsettled: Option<Unsettled>,
}

/// What waits until a change of the configuration is final.
#[derive(Debug)]
pub(super) struct Unsettled {
    /// Sessions and mappings that do not fit any more.
    pub(super) unfit: u64,
    /// `None`: they stay.
    pub(super) logs: Option<Logs>,
}

/// The IPv4 addresses of devices in pool4, and the host's own.
type HostV4 = (BTreeMap<String, Vec<Ipv4Addr>>, BTreeSet<Ipv4Addr>);

impl Stateful {
    /// Opens the logs and the file of mappings. Makes threads, which get the caller's privileges.
    pub(crate) fn open(
        config: &Translator,
        facts: &Facts,
        tables: Tables,
    ) -> Result<Stateful, Failure> {
        let name = config.name.as_str();
        // A start ends draining.
        tables.nat64.drain(false);
        let logs = config.nat64().map(|nat64| nat64.logs.as_slice()).unwrap_or_default();
        let events =
            EventLog::new(Logs::start(name, logs)?, tables.nat64.settings().subscriber_len);
        let file = config.dynamic4().and_then(|dynamic4| dynamic4.file.as_deref());
        let keeper =
            file.map(|file| MappingWriter::start(name, file, &tables.nat64)).transpose()?;
        let clashes = clashes(name, facts, &tables.nat64);
        Ok(Stateful {
            maps: tables.maps,
            gates: tables.gates,
            events,
            keeper,
            clashes,
            made: tables.made,
            refused: None,
            unsettled: None,
        })
    }

    /// Notes that pins are in another folder now.
    pub(super) fn moved_to(&mut self, pins: PathBuf) {
        self.made = self.made.take().map(|_| pins);
    }
}

/// What the engine's sweeper needs of the daemon.
pub(super) fn sweeping(events: &EventLog, in_kernel: bool) -> Sweeping {
    let events = events.clone();
    Sweeping {
        tell: Some(Box::new(move |event| events.tell(event))),
        kernel_grace: in_kernel.then(|| Box::new(grace) as Box<dyn Fn() + Send>),
    }
}

/// Created while there are privileges to create maps; waiting needs none.
static PERIODS: OnceLock<Result<GracePeriods, fordway_bpf::Error>> = OnceLock::new();

fn prepare_grace() {
    if let Err(error) = PERIODS.get_or_init(GracePeriods::new) {
        debug!("no grace periods by maps: {error}");
    }
}

/// Waits until every program in the kernel that runs now has ended: an RCU grace period.
pub(crate) fn grace() {
    let by_map = matches!(PERIODS.get(), Some(Ok(periods)) if periods.wait().is_ok());
    // Kernels before 5.19 let only threads update maps that may create them.
    if by_map || membarrier(MembarrierCommand::Global).is_ok() {
        return;
    }
    // Such a kernel on a host with `nohz_full`, where membarrier is refused. Programs run for microseconds, and entries
    // wait for two sweeps.
    std::thread::sleep(Duration::from_millis(100));
}

/// The settings for the kernel programs, with BIB entries that were added by hand: packets to any BIB entry hairpin.
pub(super) fn with_added(nat64: &Nat64) -> Settings {
    let mut settings = nat64.settings().clone();
    let added = nat64.bib(monotonic()).filter(|entry| entry.is_added);
    settings.bib.extend(added.filter_map(|entry| {
        let Binding { protocol, v6, v4 } = entry.binding;
        Some(StaticBib { protocol: protocol?, v6, v4 })
    }));
    settings
}

fn start_logs(name: &str, logs: &[NatLog]) -> Result<Logs, Failure> {
    let started = privilege::without((), |()| Logs::start(name, logs));
    started.unwrap_or_else(|(failure, _)| Err(failure))
}

impl Running {
    /// The settings for its programs; `None`: it is stateless.
    pub(crate) fn kernel_settings(&self) -> Option<Settings> {
        self.engine.core().tables().map(|nat64| with_added(nat64))
    }

    /// The tables for another configuration, and how much of what is in them has no place there; `None` is stateless.
    pub(super) fn other_tables(
        &self,
        new: &Translator,
        facts: &Facts,
        old: Option<&Arc<Nat64>>,
    ) -> Result<Option<(Arc<Nat64>, Entries)>, Failure> {
        let settings = old.and_then(|old| settings(new, facts, Some(old.settings())));
        let Some((old, mut settings)) = old.zip(settings) else { return Ok(None) };
        settings.shards.clone_from(&old.settings().shards);
        let entries = Entries::under(old, &settings);
        let nat64 = old.reconfigured(settings).map_err(|error| misfit(self.name(), error))?;
        Ok(Some((Arc::new(nat64), entries)))
    }

    /// The logs of another configuration; `None`: they are the same.
    pub(super) fn other_logs(&self, new: &Translator) -> Result<Option<Logs>, Failure> {
        let logs = |it: &Translator| it.nat64().map(|nat64| nat64.logs.clone());
        match logs(new) != logs(&self.config) {
            true => logs(new).map(|wanted| start_logs(self.name(), &wanted)).transpose(),
            false => Ok(None),
        }
    }

    /// Its logs under another name; `None`: it has none.
    pub(super) fn logs_under(&self, name: &str) -> Result<Option<Logs>, Failure> {
        self.config.nat64().map(|nat64| start_logs(name, &nat64.logs)).transpose()
    }

    /// Writes what is kept across restarts a last time, and gives tables up for which no kernel engine came.
    pub(super) fn end_keeping(&mut self) {
        let Some(stateful) = &mut self.stateful else { return };
        stateful.keeper = None;
        if self.kernel.is_none() {
            Tables::discard(stateful.made.take().as_ref());
        }
    }

    /// After the engines have taken other tables up.
    pub(super) fn after_other_tables(&mut self) {
        let translator = self.engine.core();
        let Some(nat64) = translator.tables() else { return };
        let meta = nat64.memory().regions().meta;
        tell_prefixes(meta, self.config.pool6(), nat64.settings().subscriber_len);
        let clashes = clashes(self.name(), &self.facts, nat64);
        if let Some(stateful) = &mut self.stateful {
            stateful.clashes = clashes;
        }
    }

    /// Does what ends connections, or is told of them, when a change is final: logs of another configuration, the review of
    /// the sweeper, static BIB entries.
    pub(super) fn settle_tables(&mut self) {
        let unsettled = self.stateful.as_mut().and_then(|stateful| stateful.unsettled.take());
        if let (Some(Unsettled { unfit, logs }), Some(stateful)) = (unsettled, &self.stateful) {
            stateful.events.add_unfit(unfit);
            logs.into_iter().for_each(|logs| stateful.events.set_logs(logs));
            if unfit > 0 {
                info!("{}: {unfit} sessions or mappings do not fit any more and end", self.name());
            }
        }
        if let Some(nat64) = self.engine.core().tables() {
            nat64.settle();
            make_static(self.name(), nat64);
        }
    }
}
