//! A translator that runs: its engines, and what it changed on the host.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use fordway_bpf::Options;
use fordway_config::{Attach, Engine as EngineChoice, Forwarding, Translator};
use fordway_control::KernelWarning;
use fordway_engine::{Engine, QueueCounters};
use fordway_net::{Change, Netlink};
use tracing::{debug, info, warn};

use super::cluster::Crossings;
use super::kernel::{self, Kernel, Tuning};
use super::prepared::core;
use super::stateful::Stateful;
use super::tracing::Tracing;
use super::tunnels::{Tunnel, Waiting};
use super::upkeep::Upkeep;
use crate::failure::Failure;
use crate::pins;
use crate::plan::changes::{self, keep};
use crate::plan::forwarding;
use crate::plan::placement::{self, Devices, Intent, Placement, refused};
use crate::plan::resolve::Facts;

/// A translator that runs.
pub(crate) struct Running {
    pub(crate) config: Translator,
    pub(crate) facts: Facts,
    pub(crate) place: Placement,
    pub(crate) intent: Intent,
    pub(crate) engine: Engine,
    pub(crate) queues: usize,
    pub(crate) own: bool,
    pub(super) survivor: bool,
    /// Packets that the interface had dropped before its queues were opened.
    pub(crate) unread_before: u64,
    pub(crate) kernel: Option<Kernel>,
    /// What a stateful translator has beside its engines.
    pub(crate) stateful: Option<Stateful>,
    /// What it wants of the host, if anything.
    pub(crate) host: Option<Upkeep>,
    pub(crate) started: Instant,
    /// Devices at which programs could not be put, and when.
    pub(crate) refused_devices: Option<(Devices, Instant)>,
    /// When the programs were looked at.
    pub(crate) looked_at_kernel: Option<Instant>,
    /// While there are trace listeners.
    pub(crate) tracing: Option<Tracing>,
    /// Of a tunnel end point: what is lent.
    pub(crate) tunnel: Option<Arc<Tunnel>>,
    /// Of a softwire's client whose address is lent: packets that wait for it.
    #[cfg_attr(not(feature = "dstm"), expect(dead_code, reason = "what sends them is left out"))]
    pub(crate) waiting: Option<Arc<Waiting>>,
    /// In a cluster: ways to the other gateways.
    pub(super) crossings: Option<Crossings>,
}

impl Running {
    /// The translator's name.
    pub(crate) fn name(&self) -> &str {
        self.config.name.as_str()
    }

    /// When the user engine started.
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// The counters of its queues.
    pub(crate) fn counters(&self) -> &[Arc<QueueCounters>] {
        self.engine.counters()
    }

    /// Whether the user engine has ended by itself.
    pub(crate) fn failed(&self) -> bool {
        self.engine.failed()
    }

    /// Starts the kernel engine in front of the user engine, if it is to run, and finishes the set-up.
    pub(super) fn accelerate(&mut self) -> Result<(), Failure> {
        match self.intent.clone() {
            Intent::Kernel => self.start_kernel()?,
            Intent::User(why) => self.user_only(&why)?,
        }
        self.begin_lending();
        self.renew()?;
        if let Some(host) = &mut self.host {
            host.settle("from an earlier run: ");
        }
        Ok(())
    }

    /// Adds the leased bindings to the engines, and accepts changes of them from now on.
    fn begin_lending(&self) {
        let Some(tunnel) = &self.tunnel else { return };
        let mut held = tunnel.hold();
        let core = self.engine.core();
        let core = held.with_lent(core.clone(), &self.written_bindings(), &core);
        let maps = self.kernel.as_ref().and_then(Kernel::maps);
        self.engine.replace(core.clone());
        if let (Some(maps), Some(softwire)) = (&maps, core.softwire())
            && let Err(error) = maps.replace(softwire.bindings().iter().map(|it| it.binding))
        {
            warn!("{}: the kernel engine lacks some bindings: {error}", self.name());
        }
        held.attach(self.engine.current(), maps);
    }

    /// The bindings that the configuration has.
    pub(super) fn written_bindings(&self) -> Vec<fordway_softwire::Binding> {
        let softwire = self.config.softwire();
        softwire.map(|it| it.bindings(self.facts.resolved.clat_v6)).unwrap_or_default()
    }

    fn end_lending(&self) {
        if let Some(tunnel) = &self.tunnel {
            tunnel.hold().detach();
        }
    }

    /// Tries the attach point that is wanted, then the interface, as far as the configuration leaves it
    /// open.
    fn start_kernel(&mut self) -> Result<(), Failure> {
        let name = self.config.name.to_string();
        let must = self.config.engine == EngineChoice::Kernel;
        let mut error = match self.start_at() {
            Ok(kernel) => return self.kernel_runs(kernel),
            Err(error) => error,
        };
        let elsewhere = !must || self.config.attach == Attach::Auto;
        if self.place.attach != Attach::Interface && elsewhere {
            let why = first_line(&error);
            warn!("{name}: {why}");
            debug!("{name}: {error}");
            self.move_to_interface(refused(self.place.attach, &why))?;
            error = match self.start_at() {
                Ok(kernel) => return self.kernel_runs(kernel),
                Err(error) => error,
            };
        }
        if must {
            let failure = Failure::from(error);
            return Err(failure.prefix(&format!("{name}: ")).hint_if_none(placement::HINT));
        }
        if self.place.attach != Attach::Interface {
            self.move_to_interface(refused(self.place.attach, "the kernel engine does not run"))?;
        }
        debug!("{name}: {error}");
        let why = format!("engine = \"auto\": {}", first_line(&error));
        self.intent = Intent::User(why.clone());
        self.user_only(&why)?;
        // With the rules against loops, in the place of the programs.
        self.renew()
    }

    fn start_at(&self) -> Result<Kernel, fordway_bpf::Error> {
        let mut options = Options::new(self.pins(), self.hook());
        options = Tuning::of(&self.config, &self.place.devices).into_options(options);
        options.stateful = self.stateful_options();
        let core = self.engine.core();
        options.tunnels = core.softwire().map(|softwire| kernel::tunnels(softwire)).transpose()?;
        Kernel::start(kernel::config_of(&core, self.place.attach), options)
    }

    /// Copies path MTUs and leased bindings from a softwire's core to its programs.
    pub(crate) fn tell_paths(&self) {
        if let Some(tunnel) = &self.tunnel {
            tunnel.catch_up();
        }
        let core = self.engine.core();
        if let (Some(kernel), Some(softwire)) = (&self.kernel, core.softwire())
            && let Err(error) = kernel.tell_paths(softwire)
        {
            debug!("{}: {error}", self.name());
        }
    }

    /// What programs of a stateful translator need.
    fn stateful_options(&self) -> Option<fordway_bpf::Stateful> {
        let stateful = self.stateful.as_ref()?;
        let (maps, gates) = (Arc::clone(stateful.maps.as_ref()?), stateful.gates.clone());
        Some(fordway_bpf::Stateful { settings: self.kernel_settings()?, maps, gates })
    }

    /// In a cluster: the interfaces by which packets go to other gateways.
    #[cfg(feature = "cluster")]
    pub(crate) fn ways(&self) -> BTreeMap<fordway_cluster::Member, u32> {
        self.crossings.as_ref().map(|it| it.ways.clone()).unwrap_or_default()
    }

    /// Whether its tables are maps, which programs in the kernel change.
    #[cfg(feature = "cluster")]
    pub(crate) fn has_maps(&self) -> bool {
        self.stateful.as_ref().is_some_and(|stateful| stateful.maps.is_some())
    }

    /// How packets that were taken at the ingress of devices are forwarded, if that is where programs are.
    pub(crate) fn forwarding(&self) -> Option<Forwarding> {
        let at_ingress = self.place.attach == Attach::Ingress && self.kernel.is_some();
        at_ingress.then_some(self.config.forward)
    }

    /// What speaks against it, on the host as it is now.
    pub(crate) fn objection(&self) -> Option<KernelWarning> {
        self.forwarding().and_then(|_| forwarding::objection(&self.config))
    }

    /// Where its programs belong.
    pub(crate) fn hook(&self) -> fordway_bpf::Hook {
        let tun = self.engine.device().ifindex();
        kernel::hook(self.place.attach, tun, self.place.way.as_ref(), &self.place.devices)
    }

    /// Makes the interface persistent and, at the uplink, routes IPv4 to the programs.
    fn kernel_runs(&mut self, kernel: Kernel) -> Result<(), Failure> {
        let name = self.config.name.to_string();
        let what = kernel.describe();
        self.kernel = Some(kernel);
        // The ledger first: an interface that outlives a killed process unlisted would be taken for
        // somebody else's.
        if let Some(host) = &mut self.host
            && self.own
        {
            host.manager().apply(&keep(&name))?;
        }
        if self.own {
            self.engine.device().set_persistent(true)?;
        }
        if let Some(host) = &mut self.host {
            host.keep()?;
        }
        if self.place.attach == Attach::Uplink {
            self.renew()?;
        }
        let where_ = match (&self.place.attach, &self.place.way) {
            (Attach::Uplink, Some(way)) => format!("the uplink {}", way.device),
            (Attach::Ingress, _) => match self.config.forward {
                Forwarding::Stack => "the ingress of the devices",
                Forwarding::InPlace => "the ingress of the devices, in place",
                Forwarding::Direct => {
                    "the ingress of the devices, with direct forwarding past nftables"
                }
            }
            .to_owned(),
            (Attach::Xdp, _) => "XDP".to_owned(),
            _ => "the interface".to_owned(),
        };
        info!("{name}: kernel engine at {where_} ({what}); the user engine takes what it leaves");
        self.watch_kernel(Instant::now());
        Ok(())
    }

    /// Runs without a kernel engine; that of an earlier run is taken down.
    fn user_only(&mut self, why: &str) -> Result<(), Failure> {
        let name = self.config.name.as_str();
        // Packets cost several times as much, so `auto` warns.
        if self.config.engine == EngineChoice::Auto {
            warn!(
                "{name}: the kernel engine does not run; the user engine takes all packets ({why})"
            );
        } else {
            info!("{name}: user engine ({why})");
        }
        match fordway_bpf::take_down(&self.pins()) {
            Ok(false) => {}
            Ok(true) => info!("{name}: the kernel engine of an earlier run is taken down"),
            Err(error) => debug!("{name}: {error}"),
        }
        if let Some(host) = &mut self.host {
            host.manager().keep(None)?;
        }
        Ok(())
    }

    /// Packets are taken at the interface instead.
    fn move_to_interface(&mut self, reason: Option<String>) -> Result<(), Failure> {
        let routes_missing = self.place.attach == Attach::Uplink;
        self.place = Placement::interface(reason);
        self.facts.resolved.attach = Attach::Interface;
        let before = self.engine.core();
        let tables = before.tables();
        let core = core(&self.config, &self.facts, tables, Some(&before))?;
        self.engine.replace(core);
        if routes_missing { self.renew() } else { Ok(()) }
    }

    /// Applies what is wanted of the host now. What was wanted before stays until it is settled.
    pub(crate) fn renew(&mut self) -> Result<(), Failure> {
        self.renew_by(Upkeep::want)
    }

    /// As [`Running::renew`], where [`Running::settle`] follows shortly.
    pub(super) fn renew_unsettled(&mut self) -> Result<(), Failure> {
        self.renew_by(Upkeep::want_unsettled)
    }

    /// As [`Running::renew_unsettled`], for a lease that a packet waits for.
    pub(super) fn renew_leased(&mut self) -> Result<(), Failure> {
        self.renew_by(Upkeep::want_leased)
    }

    fn renew_by(
        &mut self,
        want: fn(&mut Upkeep, Vec<Change>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let wanted = self.wanted()?;
        match &mut self.host {
            Some(host) if host.wanted() != wanted => want(host, wanted),
            _ => Ok(()),
        }
    }

    /// Warns of programs that are attached but take no packets, or not in the intended order.
    pub(crate) fn watch_kernel(&mut self, now: Instant) {
        self.looked_at_kernel = Some(now);
        let mut names: BTreeMap<u32, String> = self.place.devices.names().collect();
        names.extend(self.place.way.as_ref().map(|way| (way.ifindex, way.device.clone())));
        let mut name = |index| names.get(&index).cloned().unwrap_or(format!("device {index}"));
        let objection = self.objection();
        let found = self.kernel.as_mut().map(|kernel| kernel.new_warnings(&mut name, objection));
        for warning in found.into_iter().flatten() {
            warn!("{}: {}; {}", self.config.name, warning.text, warning.advice);
        }
    }

    /// The folder of its pins; one that can't be there if the namespace is not known.
    pub(crate) fn pins(&self) -> std::path::PathBuf {
        pins::dir(self.name()).unwrap_or_default()
    }

    /// Takes everything down: routes to the programs, programs, the host's set-up, then the user engine with its device.
    /// Returns the error if the user engine had already failed.
    pub(crate) fn take_down(mut self) -> Result<(), Failure> {
        let failed = self.engine.failed();
        let name = self.config.name.to_string();
        self.tracing = None;
        self.end_lending();
        self.end_keeping();
        if let Some(kernel) = self.kernel.take() {
            if let (Attach::Uplink, Some(host)) = (self.place.attach, &mut self.host) {
                host.give_up(&changes::routes_v4(
                    &self.config,
                    &self.facts,
                    self.place.way.as_ref(),
                ));
            }
            if let Err(error) = kernel.detach() {
                warn!("{name}: cannot take the kernel engine down: {error}");
            }
        }
        if let Some(host) = self.host.take() {
            host.take_back();
        }
        match self.engine.stop() {
            Err(error) if failed => Err(Failure::failed(format!("{name}: {error}"))),
            _ => Ok(()),
        }
    }

    /// Undoes its start, because another translator has failed to start.
    pub(crate) fn give_up(mut self) {
        let ended = if self.survivor {
            info!("{}: the set-up of an earlier run is kept", self.name());
            self.tracing = None;
            self.end_lending();
            self.end_keeping();
            self.engine.leave().map_err(|error| Failure::failed(error.to_string()))
        } else {
            self.take_down()
        };
        if let Err(failure) = ended {
            debug!("{}", failure.line());
        }
    }

    /// Ends the user engine and leaves a kernel engine and the host's set-up to the next start. A
    /// translator without a kernel engine is taken down.
    pub(crate) fn leave(mut self) -> Result<(), Failure> {
        let name = self.config.name.to_string();
        self.tracing = None;
        self.end_lending();
        self.end_keeping();
        if self.kernel.is_none() {
            info!("{name}: there is no kernel engine that could go on, so it is taken down");
            return self.take_down();
        }
        let link = Netlink::open().and_then(|mut netlink| netlink.find_link(&name));
        if link.is_ok_and(|link| link.is_none()) {
            info!("{name}: its interface is gone, so it is taken down");
            return self.take_down();
        }
        info!(
            "{name}: the kernel engine goes on; the next start, or fordway down {name}, takes it over"
        );
        self.engine.leave().map_err(|error| Failure::failed(format!("{name}: {error}")))
    }
}

/// What an error says, without the verifier's log behind it.
fn first_line(error: &fordway_bpf::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}
