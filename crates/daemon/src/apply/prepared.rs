//! A translator whose device is open and whose host is set up, but whose engines don't run yet.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use fordway_config::{Attach, Gro, Translator};
use fordway_engine::{Core, Gathered, Marks, Options, Unbound};
use fordway_net::Netlink;
use fordway_tun::{Device, OpenOptions, Queue};
use fordway_xlat::nat64::Nat64;
use tracing::{info, warn};

use super::cluster::Crossings;
use super::journal;
use super::no_checksum;
use super::running::Running;
use super::stateful::{self, Stateful, Tables};
use super::translators::Context;
use super::tunnels::{Tunnel, Waiting};
use super::upkeep::Upkeep;
use crate::failure::Failure;
use crate::pins;
use crate::plan::changes::{self, keep, last_of_each};
use crate::plan::placement::{self, Intent, Placement};
use crate::plan::pool4;
use crate::plan::resolve::{self, Facts};
use crate::plan::softwire;

/// The warning at each start of a NAT-PT.
const HISTORIC: &str = "NAT-PT is historic (RFC 4966): the DNS gateway breaks DNSSEC, each question of a stranger may \
                        take an address, and all of a name's traffic has to come this way; nat64 with dns64, \
                        or siit with explicit mappings, do without";

/// A translator whose host is set up and whose engines do not run yet.
pub(crate) struct Prepared {
    pub(crate) config: Translator,
    pub(crate) facts: Facts,
    pub(crate) device: Device,
    pub(crate) queues: Vec<Queue>,
    pub(crate) core: Core,
    /// Of a stateful translator.
    pub(crate) tables: Option<Tables>,
    /// What it wants of the host, if anything.
    pub(crate) host: Option<Upkeep>,
    pub(crate) intent: Intent,
    pub(crate) place: Placement,
    /// The interface is this program's own, and goes with the translator.
    pub(crate) own: bool,
    /// An earlier run's kernel engine goes on: whatever fails here must not stop it.
    pub(super) survivor: bool,
    /// Packets that the interface had dropped before its queues were opened.
    pub(crate) unread_before: u64,
    /// Of a tunnel end point: what is lent.
    pub(crate) tunnel: Option<Arc<Tunnel>>,
    /// Of a softwire's client whose address is lent: packets that wait for it.
    pub(crate) waiting: Option<Arc<Waiting>>,
    /// In a cluster: ways to the other gateways.
    pub(crate) crossings: Option<Crossings>,
}

/// What was set up for a translator that does not run.
pub(crate) struct SetUp {
    name: String,
    host: Option<Upkeep>,
    survivor: bool,
    /// Pins of tables that were made.
    made: Option<PathBuf>,
}

impl SetUp {
    /// Takes it back, unless an earlier run's kernel engine needs it.
    pub(crate) fn take_down(self) {
        match self.host {
            _ if self.survivor => {
                info!("{}: the set-up of an earlier run is kept", self.name);
            }
            Some(host) => host.take_back(),
            None => {}
        }
        Tables::discard(self.made.as_ref());
    }
}

impl Prepared {
    /// Opens the device, finds out what the configuration leaves open, and sets the host up.
    ///
    /// If it fails, the host is as it was.
    pub(crate) fn set_up(config: &Translator, context: &Context) -> Result<Prepared, Failure> {
        let name = config.name.as_str();
        let mut intent = Intent::of(config, &context.host)?;
        if config.nat_pt().is_some() {
            warn!("{name}: {HISTORIC}");
        }
        let options = OpenOptions {
            queues: resolve::queues(config),
            run_dir: context.run_dir.clone(),
            ..OpenOptions::default()
        };
        let (device, queues) = Device::open(name, &options)?;
        let (mut host, own) = open_host(config, &intent, &device, context)?;
        let survivor = match &mut host {
            Some(host) => host.manager().is_kept()?,
            None => false,
        };
        journal::device(&device, own, queues.len());
        let mut netlink = Netlink::open()?;
        let mut facts = resolve::resolve(&mut netlink, config, queues.len())?;
        let place = placement::find(&mut netlink, config, &facts, &intent)?;
        facts.resolved.attach = place.attach;
        journal::facts(config, &facts);
        if !config.manage && facts.own_icmp_source4 {
            pool4::check_believed(config, &netlink.addresses(Some(name))?)?;
        }
        let part = context.part.as_deref().filter(|_| config.nat64().is_some());
        let crossings =
            part.map(|part| part.cross(queues.len(), &context.run_dir, &facts)).transpose()?;
        let tables = Tables::open(config, &facts, &mut intent, part)?;
        let core = core(config, &facts, tables.as_ref().map(|tables| &tables.nat64), None);
        let core = core.inspect_err(|_| {
            Tables::discard(tables.as_ref().and_then(|tables| tables.made.as_ref()));
        })?;
        let mut prepared = Prepared {
            config: config.clone(),
            facts,
            device,
            queues,
            core,
            tables,
            host,
            intent,
            place,
            own,
            survivor,
            unread_before: netlink.tx_dropped(name)?,
            tunnel: is_tep(config).then(|| context.tunnels.of(name)),
            waiting: is_lent(config).then(Arc::default),
            crossings,
        };
        if config.manage {
            if let Err(failure) = prepared.change_host() {
                Tables::discard(prepared.made().as_ref());
                return Err(failure);
            }
        } else {
            info!("{name}: manage = false: addresses, routes and settings are left alone");
        }
        Ok(prepared)
    }

    fn change_host(&mut self) -> Result<(), Failure> {
        let name = self.config.name.as_str();
        let Some(host) = &mut self.host else { return Ok(()) };
        if host.manager().has_inherited() {
            info!("{name}: an earlier run left its set-up; it is taken over");
        }
        let (ifindex, adopted) = (self.device.ifindex(), !self.own);
        let mut changes =
            changes::changes(&self.config, &self.facts, &self.intent, ifindex, adopted)?;
        if let Some(nat64) = self.core.tables() {
            let settings = stateful::with_added(nat64);
            changes.extend(pool4::changes(&self.config, &self.facts, &settings, ifindex)?);
        }
        changes.extend(self.crossings.iter().flat_map(|it| it.changes.clone()));
        // Placement the uplink the user engine is first, and IPv4 moves when the programs are there to take it;
        // those of an earlier run have it already.
        if self.place.attach != Attach::Uplink || !self.survivor {
            changes.extend(changes::routes_v4(&self.config, &self.facts, None));
        }
        // An interface that has been in use goes on as it is, without the steps on the way there.
        if self.own && self.device.adopted() {
            changes = last_of_each(changes);
        }
        // What only led there is not done again when the set-up is put back in order.
        let made = host.want(changes);
        if made.is_err()
            && !self.survivor
            && let Some(host) = self.host.take()
        {
            host.take_back();
        }
        made
    }

    /// The translator's name.
    pub(crate) fn name(&self) -> &str {
        self.config.name.as_str()
    }

    /// Gives the device up, and leaves what was set up to be taken down.
    pub(super) fn into_set_up(self) -> SetUp {
        let made = self.made();
        let name = self.config.name.to_string();
        SetUp { name, host: self.host, survivor: self.survivor, made }
    }

    /// Pins of tables that were made for this start.
    fn made(&self) -> Option<PathBuf> {
        self.tables.as_ref().and_then(|tables| tables.made.clone())
    }

    /// Whether there is something to take down at the end.
    pub(crate) fn manages(&self) -> bool {
        self.host.is_some()
    }

    /// Whether the kernel engine is to run.
    pub(crate) fn wants_kernel(&self) -> bool {
        self.intent.is_kernel()
    }

    /// Whether an earlier run's kernel engine may have to be taken down.
    pub(crate) fn may_have_pins(&self) -> bool {
        self.survivor || pins::dir(self.name()).is_ok_and(|pins| pins.exists())
    }

    /// Starts the user engine. If it does not start, what was set up is returned to be taken down.
    /// `place`: the number of queues started before, for other translators.
    pub(crate) fn start(
        mut self,
        seed: u64,
        place: usize,
    ) -> Result<Running, Box<(Failure, SetUp)>> {
        let pin = self.config.pin_queues.then_some(place);
        let maps = self.tables.as_ref().and_then(|tables| tables.maps.clone());
        // A TUN does not tell marks; programs that leave a packet remember them.
        let marks = maps.map(|maps| Marks(Arc::new(move |host| maps.mark(host))));
        let by_mark = self.config.nat64().is_some_and(fordway_config::Nat64::has_marks);
        let unbound = self
            .waiting
            .clone()
            .map(|waiting| Unbound(Arc::new(move |packet, partial| waiting.push(packet, partial))));
        let unchecked = Some(no_checksum::log(self.config.name.as_str()));
        let marks = marks.filter(|_| by_mark);
        let hand_over = self.crossings.as_ref().map(|it| Arc::clone(&it.hand_over));
        let gro = match self.config.gro {
            Gro::Off => Gathered::Nothing,
            Gro::Tcp => Gathered::Tcp,
            Gro::TcpUdp => Gathered::TcpUdp,
        };
        let options = Options { seed, pin, gro, marks, unbound, unchecked, hand_over };
        let (queues, made) = (self.queues.len(), self.made());
        let stateful = match self.tables.take() {
            None => Ok(None),
            Some(tables) => Stateful::open(&self.config, &self.facts, tables).map(Some),
        };
        let started = stateful.and_then(|stateful| {
            let failed = |error| Failure::failed(format!("{}: {error}", self.config.name));
            let mut engine = fordway_engine::start(self.device, self.queues, self.core, options)
                .map_err(failed)?;
            if let Some(stateful) = &stateful {
                let sweeping = stateful::sweeping(&stateful.events, stateful.maps.is_some());
                engine.sweep(sweeping).map_err(failed)?;
            }
            Ok((engine, stateful))
        });
        match started {
            Ok((engine, stateful)) => Ok(Running {
                config: self.config,
                facts: self.facts,
                place: self.place,
                intent: self.intent,
                engine,
                queues,
                own: self.own,
                survivor: self.survivor,
                unread_before: self.unread_before,
                kernel: None,
                stateful,
                host: self.host,
                started: Instant::now(),
                refused_devices: None,
                looked_at_kernel: None,
                tracing: None,
                tunnel: self.tunnel,
                waiting: self.waiting,
                crossings: self.crossings,
            }),
            Err(failure) => {
                let (name, survivor) = (self.config.name.to_string(), self.survivor);
                let set_up = SetUp { name, host: self.host, survivor, made };
                Err(Box::new((failure, set_up)))
            }
        }
    }
}

/// Whether it is the tunnel end point of softwires.
fn is_tep(config: &Translator) -> bool {
    config.softwire().is_some_and(|softwire| softwire.client().is_none())
}

/// Whether it is a softwire's client whose address is lent.
fn is_lent(config: &Translator) -> bool {
    let client = config.softwire().and_then(|softwire| softwire.client());
    client.is_some_and(|client| client.early.is_some())
}

/// The owner's part of the ledger, where there is anything for it to hold, and whether the interface is
/// this program's own.
fn open_host(
    config: &Translator,
    intent: &Intent,
    device: &Device,
    context: &Context,
) -> Result<(Option<Upkeep>, bool), Failure> {
    let name = config.name.as_str();
    if !config.manage && !intent.is_kernel() && !device.adopted() {
        return Ok((None, true));
    }
    let mut host = Upkeep::open(&context.run_dir, name, name)?;
    let yielding = context.yielding.iter().map(|owner| (owner.clone(), [].as_slice()));
    host.manager().take_over_from(yielding);
    let own = !device.adopted() || host.manager().has_made(&keep(name))?;
    // An operator's interface, and nothing to do about it.
    let needed = config.manage || intent.is_kernel() || (own && device.adopted());
    Ok((needed.then_some(host), own))
}

/// The core for the user engine. `before`: what runs.
pub(crate) fn core(
    config: &Translator,
    facts: &Facts,
    nat64: Option<&Arc<Nat64>>,
    before: Option<&Core>,
) -> Result<Core, Failure> {
    if config.softwire().is_some() {
        return softwire::core(config, facts, before.and_then(Core::softwire).map(|it| &**it));
    }
    let failed = |error: String| Failure::failed(format!("{}: {error}", config.name));
    let core = config.core(&facts.resolved).map_err(|error| failed(error.to_string()))?;
    let made = match nat64 {
        None => fordway_xlat::Translator::new(core),
        Some(nat64) if config.dynamic4().is_some() => {
            fordway_xlat::Translator::dynamic4(core, Arc::clone(nat64))
        }
        Some(nat64) => fordway_xlat::Translator::nat64(core, Arc::clone(nat64)),
    };
    made.map(|made| Arc::new(made).into()).map_err(|error| failed(error.to_string()))
}
