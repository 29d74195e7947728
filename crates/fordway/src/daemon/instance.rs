//! One translator: its device, its changes to the host, its engine.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use fordway_config::{Attach, Engine as EngineChoice, Translator};
use fordway_engine::{Engine, Options, QueueCounters};
use fordway_net::{Applied, Change, Manager, Netlink, Report};
use fordway_tun::{Device, OffloadReport, OpenOptions, Queue};
use tracing::{debug, info, warn};

use super::plan;
use super::resolve::{self, Facts};
use crate::failure::Failure;
use crate::report::{ClatStatus, OffloadStatus, TranslatorStatus};

/// A translator whose host is set up and whose engine does not run yet.
pub(crate) struct Prepared {
    config: Translator,
    facts: Facts,
    device: Device,
    queues: Vec<Queue>,
    translator: Arc<fordway_xlat::Translator>,
    manager: Option<Manager>,
    changes: Vec<Change>,
}

/// A translator that runs.
pub(crate) struct Running {
    status: TranslatorStatus,
    engine: Engine,
    manager: Option<Manager>,
    started: Instant,
}

/// What was set up for a translator that does not run.
pub(crate) struct SetUp {
    name: String,
    manager: Option<Manager>,
}

impl SetUp {
    /// Takes it back.
    pub(crate) fn take_down(mut self) {
        if let Some(manager) = &mut self.manager {
            take_back(&self.name, manager);
        }
    }
}

impl Prepared {
    /// Opens the device, finds out what the configuration leaves open, and sets the host up.
    ///
    /// If it fails, the host is as it was.
    pub(crate) fn set_up(config: &Translator, run_dir: &Path) -> Result<Prepared, Failure> {
        let name = config.name.as_str();
        let options = OpenOptions {
            queues: resolve::queues(config),
            run_dir: run_dir.to_owned(),
            ..OpenOptions::default()
        };
        let (device, queues) = Device::open(name, &options)?;
        log_device(&device, queues.len());
        let mut netlink = Netlink::open()?;
        let facts = resolve::resolve(&mut netlink, config, queues.len())?;
        log_facts(config, &facts);
        let failed = |error: String| Failure::failed(format!("{name}: {error}"));
        let core = config.core(&facts.resolved).map_err(|error| failed(error.to_string()))?;
        let translator =
            fordway_xlat::Translator::new(core).map_err(|error| failed(error.to_string()))?;
        let mut prepared = Prepared {
            config: config.clone(),
            device,
            queues,
            translator: Arc::new(translator),
            manager: None,
            changes: Vec::new(),
            facts,
        };
        if config.manage {
            prepared.change_host(run_dir)?;
        } else {
            info!("{name}: manage = false: addresses, routes and settings are left alone");
        }
        Ok(prepared)
    }

    fn change_host(&mut self, run_dir: &Path) -> Result<(), Failure> {
        let name = self.config.name.as_str();
        let mut manager = Manager::open(run_dir, name)?;
        if manager.has_inherited() {
            info!("{name}: an earlier run was killed; what it left is taken over");
        }
        let changes =
            plan::changes(&self.config, &self.facts, self.device.ifindex(), self.device.adopted())?;
        for change in &changes {
            match manager.apply(change) {
                Ok(Applied::Present) => debug!("{name}: {change}: it is so already"),
                Ok(applied) => debug!("{name}: {change}: {applied:?}"),
                Err(error) => {
                    take_back(name, &mut manager);
                    return Err(error.into());
                }
            }
        }
        match manager.settle() {
            Ok(report) if report.is_empty() => {}
            Ok(report) => log_report(name, "from an earlier run: ", &report),
            Err(error) => warn!("{name}: cannot take back what an earlier run left: {error}"),
        }
        self.manager = Some(manager);
        self.changes = changes;
        Ok(())
    }

    /// Gives the device up, and leaves what was set up to be taken down.
    pub(crate) fn into_set_up(self) -> SetUp {
        SetUp { name: self.config.name.to_string(), manager: self.manager }
    }

    /// Whether there is something to take down at the end.
    pub(crate) fn manages(&self) -> bool {
        self.manager.is_some()
    }

    /// Starts the engine. If it does not start, what was set up is returned to be taken down.
    /// `place`: the number of queues started before, for other translators.
    pub(crate) fn start(self, seed: u64, place: usize) -> Result<Running, Box<(Failure, SetUp)>> {
        let mut status = self.status();
        let manager = self.manager;
        let options = Options { seed, pin: self.config.pin_queues.then_some(place) };
        match fordway_engine::start(self.device, self.queues, self.translator, options) {
            Ok(engine) => {
                status.processors = engine.processors().to_vec();
                Ok(Running { status, engine, manager, started: Instant::now() })
            }
            Err(error) => {
                let failure = Failure::failed(format!("{}: {error}", status.name));
                Err(Box::new((failure, SetUp { name: status.name, manager })))
            }
        }
    }

    fn status(&self) -> TranslatorStatus {
        let (config, core) = (&self.config, self.translator.config());
        let applied = |wanted: fn(&Change) -> bool| -> Vec<String> {
            let wanted = self.changes.iter().filter(|change| wanted(change));
            wanted.map(|change| without_verb(&change.to_string())).collect()
        };
        TranslatorStatus {
            name: config.name.to_string(),
            mode: config.mode_name().to_owned(),
            engine: "user".to_owned(),
            engine_reason: match config.engine {
                EngineChoice::User => "configured".to_owned(),
                EngineChoice::Auto => NO_KERNEL_ENGINE.to_owned(),
            },
            attach: match config.attach {
                Attach::Interface => "interface".to_owned(),
            },
            interface: self.device.name().to_owned(),
            ifindex: self.device.ifindex(),
            adopted: self.device.adopted(),
            queues: self.queues.len(),
            processors: Vec::new(),
            offloads: offload_status(self.device.offloads()),
            mtu: self.facts.resolved.mtu6,
            mtu_from: self.facts.mtu_from.clone(),
            pool6: core.pool6.iter().map(ToString::to_string).collect(),
            eam: core.eam.entries().len(),
            icmp_source4: core.icmp_source4,
            icmp_source6: core.icmp_source6,
            clat: config.clat().map(|clat| ClatStatus {
                v4: clat.v4,
                v6: self.facts.resolved.clat_v6,
                pref64: clat.pref64.to_string(),
                uplink: self.facts.uplink.as_ref().map(|uplink| uplink.name.clone()),
            }),
            managed: config.manage,
            addresses: applied(|change| matches!(change, Change::Address(_))),
            routes: applied(|change| matches!(change, Change::Route(_))),
            settings: applied(|change| matches!(change, Change::Sysctl { .. })),
            uptime_seconds: 0,
        }
    }
}

const NO_KERNEL_ENGINE: &str = "engine = \"auto\": this version has no kernel engine";

impl Running {
    /// The translator's name.
    pub(crate) fn name(&self) -> &str {
        &self.status.name
    }

    /// What is known of it, except the time that goes by.
    pub(crate) fn status(&self) -> &TranslatorStatus {
        &self.status
    }

    /// When the engine started.
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// The counters of its queues.
    pub(crate) fn counters(&self) -> Vec<Arc<QueueCounters>> {
        self.engine.counters().to_vec()
    }

    /// Whether the engine has ended by itself.
    pub(crate) fn failed(&self) -> bool {
        self.engine.failed()
    }

    /// Takes the host's set-up back, then stops the engine and with it gives the device up. Gives
    /// the reason if the engine had ended by itself.
    pub(crate) fn take_down(mut self) -> Result<(), Failure> {
        let failed = self.engine.failed();
        if let Some(manager) = &mut self.manager {
            take_back(&self.status.name, manager);
        }
        match self.engine.stop() {
            Err(error) if failed => Err(Failure::failed(format!("{}: {error}", self.status.name))),
            _ => Ok(()),
        }
    }
}

fn take_back(name: &str, manager: &mut Manager) {
    match manager.restore() {
        Ok(report) => log_report(name, "", &report),
        Err(error) => warn!("{name}: cannot take the set-up back: {error}; the next start tries"),
    }
}

/// What was taken back in one line, and a warning for each change that was not.
pub(super) fn log_report(name: &str, what: &str, report: &Report) {
    let gone = |reason: &str| reason.ends_with("is gone");
    let went = report.left.iter().filter(|(_, reason)| gone(reason)).count();
    let mut line = format!("{} changes taken back", report.undone.len());
    if went > 0 {
        line += &format!(", {went} went with the interface");
    }
    if !report.shared.is_empty() {
        line += &format!(", {} stay for other translators", report.shared.len());
    }
    info!("{name}: {what}{line}");
    for (change, reason) in report.left.iter().filter(|(_, reason)| !gone(reason)) {
        warn!("{name}: left alone, since somebody changed it: {change} ({reason})");
    }
    for (change, error) in &report.failed {
        warn!("{name}: cannot take back: {change}: {error}; the next start tries again");
    }
}

fn log_device(device: &Device, queues: usize) {
    let name = device.name();
    let kind = if device.adopted() { "existing" } else { "new" };
    info!("{name}: {kind} interface, {queues} queues, offloads: {}", device.offloads().granted);
    if !device.offloads().refused().is_empty() {
        warn!(
            "{name}: the kernel refuses some offloads ({}); packets come in smaller pieces, and \
             throughput is lower",
            device.offloads().refused()
        );
    }
    if device.single_queue() {
        warn!(
            "{name}: the interface was made with one queue, so one thread translates; for more, \
             make it with: ip tuntap add dev {name} mode tun multi_queue vnet_hdr"
        );
    }
}

fn log_facts(config: &Translator, facts: &Facts) {
    let name = config.name.as_str();
    if config.engine == EngineChoice::Auto {
        info!("{name}: user engine ({NO_KERNEL_ENGINE})");
    }
    info!("{name}: IPv6 path MTU {} ({})", facts.resolved.mtu6, facts.mtu_from);
    let Some(clat) = config.clat() else { return };
    let v6 = facts.resolved.clat_v6.map_or("none".to_owned(), |v6| v6.to_string());
    let from = if clat.v6.is_some() { "configured" } else { "made from the uplink's /64" };
    match &facts.uplink {
        Some(uplink) => info!("{name}: CLAT {} is {v6} ({from}) on {}", clat.v4, uplink.name),
        None => warn!(
            "{name}: CLAT {} is {v6} ({from}); no uplink is known, so neighbours are not answered: \
             the address must be routed here",
            clat.v4
        ),
    }
}

fn offload_status(report: OffloadReport) -> OffloadStatus {
    let names = |text: String| match text.as_str() {
        "none" => Vec::new(),
        text => text.split(", ").map(str::to_owned).collect(),
    };
    OffloadStatus {
        granted: names(report.granted.to_string()),
        refused: names(report.refused().to_string()),
    }
}

/// "add route ..." as the route alone.
fn without_verb(text: &str) -> String {
    let verbs = ["add address ", "add route ", "set sysctl "];
    let stripped = verbs.iter().find_map(|verb| text.strip_prefix(verb));
    stripped.unwrap_or(text).to_owned()
}
