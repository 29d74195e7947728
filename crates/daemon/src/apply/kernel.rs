//! The kernel engine of a translator: whether it is taken, where it is attached, what it tells.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use fordway_bpf::{
    Accelerator, Error, Events, Hook, Host, Options, PassReason, Place, SoftwireMaps, Totals,
    Tunnels, Unsupported,
};
use fordway_config::{Attach, Engine as EngineChoice, Forwarding, Translator};
use fordway_engine::Core;
use fordway_softwire::{PATH_MTU_LIFETIME, Softwire};
use fordway_xlat::nat64::Settings;
use fordway_xlat::{Config, HopCount};

use crate::pins;
use crate::plan::placement::Devices;
use crate::plan::uplink::Way;
use fordway_control::{KernelStatus, KernelWarning, ProgramStatus};

pub(crate) mod routing;
mod warning;

/// Whether the host allows the kernel engine. Where it does, and a translator may want it, the file system
/// for its pins is seen to while there are privileges for that.
pub(crate) fn probe(translators: &[Translator]) -> Result<Host, Unsupported> {
    let host = fordway_bpf::probe()?;
    if translators.iter().any(|translator| translator.engine != EngineChoice::User) {
        fordway_bpf::mount_bpffs()?;
        pins::remove_stale();
    }
    Ok(host)
}

/// Where the programs of a translator are attached.
pub(crate) fn hook(attach: Attach, tun: u32, way: Option<&Way>, devices: &Devices) -> Hook {
    match (attach, way) {
        (Attach::Uplink, Some(way)) => Hook::Uplink { device: way.ifindex, tun },
        (Attach::Ingress, _) => Hook::Ingress { devices: devices.indices(), tun },
        (Attach::Xdp, _) => Hook::Xdp { devices: devices.indices(), tun },
        _ => Hook::Interface { tun },
    }
}

/// The programs' configuration, made of the user engine's.
pub(crate) fn config(core: &Config, attach: Attach) -> Config {
    // In place of routing the programs count the hop themselves, and see traffic that is not theirs.
    let in_place = matches!(attach, Attach::Uplink | Attach::Ingress | Attach::Xdp);
    Config {
        decrement_hop_limit: HopCount::from(in_place),
        pass_unmatched: in_place,
        ..core.clone()
    }
}

/// The configuration of the programs of a core; those of softwires have [`tunnels`] instead.
pub(super) fn config_of(core: &Core, attach: Attach) -> Config {
    core.translator().map_or_else(Config::default, |translator| config(translator.config(), attach))
}

/// What the programs of a softwire know: its settings, and its bindings in maps of their own. Programs of an earlier run
/// keep theirs until they are switched over.
pub(crate) fn tunnels(softwire: &Softwire) -> Result<Tunnels, Error> {
    let bindings = softwire.bindings();
    // Room for those that come while it runs; what is not used costs next to nothing.
    let capacity = bindings.len().saturating_mul(2).clamp(LEAST_BINDINGS, u32::MAX as usize);
    let settings = *softwire.settings();
    let maps = SoftwireMaps::make(settings.role, capacity as u32)?;
    maps.replace(bindings.iter().map(|entry| entry.binding))?;
    tell_paths(&maps, softwire)?;
    Ok(Tunnels { settings, maps: Arc::new(maps) })
}

/// Lets programs know what routers have told of paths.
fn tell_paths(maps: &SoftwireMaps, softwire: &Softwire) -> Result<(), Error> {
    let now = fordway_engine::monotonic();
    softwire.bindings().iter().try_for_each(|entry| match entry.path.known(now) {
        // Longer than the core believes it, so that at the end the core decides.
        Some(mtu) => maps.set_path_mtu(&entry.binding, mtu, PATH_MTU_LIFETIME),
        None => Ok(()),
    })
}

/// The least capacity of the maps of bindings.
const LEAST_BINDINGS: usize = 65_536;

/// What a configuration says of the programs beside what they do with packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tuning {
    pub(crate) measure: bool,
    pub(super) pass_rate: Option<u32>,
    /// Link-layer addresses that devices have beside their own.
    pub(crate) virtual_macs: Vec<(u32, [u8; 6])>,
    pub(crate) forward: Forwarding,
}

impl Tuning {
    pub(crate) fn of(config: &Translator, devices: &Devices) -> Tuning {
        Tuning {
            measure: config.measure,
            pass_rate: config.pass_rate,
            virtual_macs: devices.virtual_macs().to_vec(),
            forward: config.forward,
        }
    }

    pub(super) fn into_options(self, options: Options) -> Options {
        let Tuning { measure, pass_rate, virtual_macs, forward } = self;
        let is_in_front = matches!(options.hook, Hook::Ingress { .. } | Hook::Xdp { .. });
        let routing = if is_in_front { routing::news() } else { None };
        let forward = onward(forward);
        Options { measure, pass_rate, virtual_macs, forward, routing, ..options }
    }

    fn is_of(&self, options: &Options) -> bool {
        self.measure == options.measure
            && self.pass_rate == options.pass_rate
            && self.virtual_macs == options.virtual_macs
            && onward(self.forward) == options.forward
    }
}

/// How programs at the ingress of devices are to forward.
fn onward(forward: Forwarding) -> fordway_bpf::Forwarding {
    match forward {
        Forwarding::Stack => fordway_bpf::Forwarding::Stack,
        Forwarding::InPlace => fordway_bpf::Forwarding::InPlace,
        Forwarding::Direct => fordway_bpf::Forwarding::Direct,
    }
}

/// A kernel engine that runs. Dropping it leaves it running.
#[derive(Debug)]
pub(crate) struct Kernel {
    accelerator: Accelerator,
    config: Config,
    options: Options,
    front: warning::Front,
    /// What was warned of, by what it is about.
    told: BTreeSet<String>,
}

impl Kernel {
    pub(crate) fn start(config: Config, options: Options) -> Result<Kernel, Error> {
        let accelerator = Accelerator::start(&config, &options)?;
        let (front, told) = (warning::Front::default(), BTreeSet::new());
        Ok(Kernel { accelerator, config, options, front, told })
    }

    /// Another configuration, and perhaps another device, without a gap. On error the old one goes on.
    pub(crate) fn replace(
        &mut self,
        config: Config,
        hook: Hook,
        tuning: Tuning,
        settings: Option<Settings>,
        tunnels: Option<Tunnels>,
    ) -> Result<(), Error> {
        let options = Options { hook, tunnels, ..self.options.clone() };
        let mut options = tuning.into_options(options);
        if let (Some(stateful), Some(settings)) = (&mut options.stateful, settings) {
            stateful.settings = settings;
        }
        self.accelerator.replace(&config, &options)?;
        (self.config, self.options) = (config, options);
        Ok(())
    }

    /// Whether its pins can be moved.
    pub(super) fn can_move(&self) -> bool {
        self.accelerator.can_move().unwrap_or(false)
    }

    /// Moves its pins to another folder.
    pub(super) fn move_to(&mut self, pins: &Path) -> Result<(), Error> {
        if self.options.pins == pins {
            return Ok(());
        }
        self.accelerator.move_to(pins)?;
        pins.clone_into(&mut self.options.pins);
        Ok(())
    }

    /// The bindings of a softwire, as its programs see them.
    pub(crate) fn maps(&self) -> Option<Arc<SoftwireMaps>> {
        Some(Arc::clone(&self.options.tunnels.as_ref()?.maps))
    }

    /// Whether its programs can do with other bindings alone. They are given by [`Kernel::rebind`].
    pub(super) fn can_rebind(&self, softwire: &Softwire, hook: &Hook, tuning: &Tuning) -> bool {
        let options = &self.options;
        let same = |tunnels: &Tunnels| tunnels.settings == *softwire.settings();
        options.tunnels.as_ref().is_some_and(same) && options.hook == *hook && tuning.is_of(options)
    }

    /// Gives programs the bindings of a softwire, whose core has them already.
    pub(super) fn rebind(&self, softwire: &Softwire) -> Result<(), Error> {
        let Some(tunnels) = &self.options.tunnels else { return Ok(()) };
        tunnels.maps.replace(softwire.bindings().iter().map(|entry| entry.binding))?;
        tell_paths(&tunnels.maps, softwire)
    }

    /// Lets the programs of a softwire know what its core has learnt of paths since.
    pub(crate) fn tell_paths(&self, softwire: &Softwire) -> Result<(), Error> {
        self.options.tunnels.as_ref().map_or(Ok(()), |tunnels| tell_paths(&tunnels.maps, softwire))
    }

    /// Switches tracing on, with so many events per second and processor, or off.
    pub(super) fn set_trace(&mut self, rate: Option<u32>) -> Result<(), Error> {
        let options = Options { trace: rate, ..self.options.clone() };
        self.accelerator.replace(&self.config, &options)?;
        self.options = options;
        Ok(())
    }

    /// Looks whether the programs do what was meant, and gives what is not known yet.
    pub(super) fn new_warnings(
        &mut self,
        name: &mut impl FnMut(u32) -> String,
        objection: Option<KernelWarning>,
    ) -> Vec<KernelWarning> {
        if let Some(seen) = warning::seen(&self.accelerator).ok().flatten() {
            self.front.look(seen);
        }
        let all = warning::warnings(&self.accelerator, self.front, name, objection);
        let before: BTreeSet<String> = all.iter().map(|warning| warning.about.clone()).collect();
        let before = std::mem::replace(&mut self.told, before);
        all.into_iter().filter(|warning| !before.contains(&warning.about)).collect()
    }

    /// The events, while tracing is on. A reader is good until the next change of any kind.
    pub(crate) fn events(&self) -> Result<Option<Events>, Error> {
        self.accelerator.events()
    }

    pub(crate) fn totals(&self) -> Result<Totals, Error> {
        self.accelerator.totals()
    }

    /// What is attached, in a few words.
    pub(crate) fn describe(&self) -> String {
        let mut kinds: Vec<&str> =
            self.accelerator.attachments().iter().map(|it| it.kind.label()).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds.join(", ")
    }

    pub(crate) fn status(
        &self,
        name: &mut impl FnMut(u32) -> String,
        objection: Option<KernelWarning>,
    ) -> KernelStatus {
        let warnings = warning::warnings(&self.accelerator, self.front, name, objection);
        let programs = self.accelerator.attachments().iter().map(|it| ProgramStatus {
            device: name(it.ifindex),
            place: match it.place {
                Place::Egress => "egress",
                Place::Ingress => "ingress",
                Place::Xdp => "xdp",
            }
            .to_owned(),
            kind: it.kind.label().to_owned(),
            id: it.program_id,
        });
        let programs: Vec<ProgramStatus> = programs.collect();
        // XDP comes first where there is some: it is what was asked for.
        let main = programs.iter().find(|program| program.place == "xdp").or(programs.first());
        let totals = self.totals().unwrap_or_default();
        KernelStatus {
            hook: main.map_or_else(String::new, |program| program.kind.clone()),
            programs,
            passed_on_share: totals.passed_on_share(),
            passed_on: causes(&totals.passed_on),
            measure: self.options.measure,
            ns_per_packet: totals.ns_per_packet(),
            warnings,
        }
    }

    /// Takes everything down.
    pub(super) fn detach(self) -> Result<(), Error> {
        self.accelerator.detach()
    }
}

/// Numbers by cause, under their labels; causes that never occurred are left out.
pub(crate) fn causes(counts: &[u64]) -> BTreeMap<String, u64> {
    let count = |reason: &PassReason| counts.get(usize::from(reason.number())).copied();
    PassReason::ALL
        .iter()
        .filter_map(|reason| Some((reason.label().to_owned(), count(reason).filter(|n| *n > 0)?)))
        .collect()
}
