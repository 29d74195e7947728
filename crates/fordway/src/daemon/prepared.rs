//! A translator whose device is open and whose host is set up, but whose engines don't run yet.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use fordway_config::{Attach, InterfaceName, Translator};
use fordway_dstmd::Waiting;
use fordway_engine::{Core, Marks, Options, Unbound};
use fordway_net::{Change, Link, Netlink, View};
use fordway_tun::{Device, OpenOptions, Queue};
use fordway_xlat::nat64::Nat64;
use tracing::{info, warn};

use super::Context;
use super::journal;
use super::kernel::{self, Intent};
use super::plan;
use super::pool4;
use super::resolve::{self, Facts};
use super::running::Running;
use super::softwire;
use super::stateful::{self, Beside, Tables};
use super::tunnels::Tunnel;
use super::unchecked;
use super::upkeep::{Upkeep, last_of_each};
use super::uplink::{self, Way};
use crate::failure::Failure;

/// What everybody who starts a NAT-PT is told.
const HISTORIC: &str = "NAT-PT is historic (RFC 4966): the DNS gateway breaks DNSSEC, each question of a stranger may \
                        take an address, and all of a name's traffic has to come this way; nat64 with dns64, \
                        or siit with explicit mappings, do without";

/// A translator whose host is set up and whose engines do not run yet.
pub(crate) struct Prepared {
    pub(super) config: Translator,
    pub(super) facts: Facts,
    pub(super) device: Device,
    pub(super) queues: Vec<Queue>,
    pub(super) core: Core,
    /// Of a stateful translator.
    pub(super) tables: Option<Tables>,
    /// What it wants of the host, if anything.
    pub(super) host: Option<Upkeep>,
    pub(super) intent: Intent,
    pub(super) place: At,
    /// The interface is this program's own, and goes with the translator.
    pub(super) own: bool,
    /// An earlier run's kernel engine goes on: whatever fails here must not stop it.
    pub(super) survivor: bool,
    /// Packets that the interface had dropped before its queues were opened.
    pub(super) unread_before: u64,
    /// Of a tunnel end point: what is lent.
    pub(super) tunnel: Option<Arc<Tunnel>>,
    /// Of a softwire's client whose address is lent: packets that wait for it.
    pub(super) waiting: Option<Arc<Waiting>>,
}

/// Where packets are to be taken.
#[derive(Clone, Debug, Default)]
pub(super) struct At {
    /// The attach point; never [`Attach::Auto`].
    pub(super) attach: Attach,
    /// Why not the one that was asked for.
    pub(super) reason: Option<String>,
    /// At the uplink: the way there.
    pub(super) way: Option<Way>,
    /// In front of routing: the devices.
    pub(super) devices: Devices,
}

impl At {
    /// The translator's interface, and why, where something else was asked for.
    pub(super) fn interface(reason: Option<String>) -> At {
        At { attach: Attach::Interface, reason, ..At::default() }
    }
}

/// Devices in front of whose routing programs are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Devices {
    /// Name, index, link-layer address.
    found: Vec<(String, u32, Vec<u8>)>,
    /// Link-layer addresses that they have beside their own.
    virtual_macs: Vec<(u32, [u8; 6])>,
}

impl Devices {
    /// Those of a configuration that are there.
    pub(super) fn find(view: &mut View<'_>, config: &Translator) -> Devices {
        let find = |name: &InterfaceName| {
            let link = view.find_link(name.as_str()).ok()??;
            Some((link.name.clone(), link.index, link.hardware_address.clone()))
        };
        let found: Vec<_> = config.devices.iter().filter_map(find).collect();
        let at = |index: u32| found.iter().any(|(_, at, _)| *at == index);
        let virtual_mac = |link: &Link| {
            let beneath = link.beneath.filter(|beneath| at(*beneath))?;
            // VRRP has its addresses at such devices. Those of virtual machines (macvtap) are not for this host, and
            // one that is part of another, or down, does not receive for it either.
            let receives = link.kind.as_deref() == Some("macvlan") && link.up && !link.is_part;
            receives.then_some((beneath, link.hardware_address.as_slice().try_into().ok()?))
        };
        let mut virtual_macs: Vec<_> = match config.attach {
            Attach::Xdp => view.links().map(|it| it.filter_map(virtual_mac).collect()),
            _ => Ok(Vec::new()),
        }
        .unwrap_or_default();
        virtual_macs.sort_unstable();
        Devices { found, virtual_macs }
    }

    pub(super) fn virtual_macs(&self) -> &[(u32, [u8; 6])] {
        &self.virtual_macs
    }

    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Their names, by index.
    pub(super) fn names(&self) -> impl Iterator<Item = (u32, String)> {
        self.found.iter().map(|(name, index, _)| (*index, name.clone()))
    }

    pub(super) fn indices(&self) -> Vec<u32> {
        self.found.iter().map(|(_, index, _)| *index).collect()
    }
}

impl fmt::Display for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.found.iter().map(|(name, ..)| name.as_str()).collect();
        f.write_str(&names.join(", "))
    }
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
                info!("{}: what an earlier run left is left as it is", self.name);
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
        let place = place(&mut netlink, config, &facts, &intent)?;
        facts.resolved.attach = place.attach;
        journal::facts(config, &facts);
        if !config.manage && facts.own_icmp_source4 {
            pool4::check_believed(config, &netlink.addresses(Some(name))?)?;
        }
        let tables = Tables::open(config, &facts, &mut intent)?;
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
        let mut changes = plan::changes(&self.config, &self.facts, ifindex, adopted)?;
        if let Some(nat64) = self.core.tables() {
            let settings = stateful::with_added(nat64);
            changes.extend(pool4::changes(&self.config, &self.facts, &settings, ifindex)?);
        }
        // At the uplink the user engine is first, and IPv4 moves when the programs are there to take it;
        // those of an earlier run have it already.
        if self.place.attach != Attach::Uplink || !self.survivor {
            changes.extend(plan::routes_v4(&self.config, &self.facts, None));
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
    pub(crate) fn into_set_up(self) -> SetUp {
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
        self.survivor || kernel::pins(self.name()).is_ok_and(|pins| pins.exists())
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
        let unchecked = Some(unchecked::log(self.config.name.as_str()));
        let options = Options { seed, pin, marks: marks.filter(|_| by_mark), unbound, unchecked };
        let (queues, made) = (self.queues.len(), self.made());
        let stateful = match self.tables.take() {
            None => Ok(None),
            Some(tables) => Beside::open(&self.config, &self.facts, tables).map(Some),
        };
        let started = stateful.and_then(|stateful| {
            let failed = |error| Failure::failed(format!("{}: {error}", self.config.name));
            let mut engine = fordway_engine::start(self.device, self.queues, self.core, options)
                .map_err(failed)?;
            if let Some(beside) = &stateful {
                let sweeping = stateful::sweeping(&beside.telling, beside.maps.is_some());
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
    let own = !device.adopted() || host.manager().has_made(&keep(name))?;
    // An operator's interface, and nothing to do about it.
    let needed = config.manage || intent.is_kernel() || (own && device.adopted());
    Ok((needed.then_some(host), own))
}

/// The interface outlives the process, for the kernel engine goes on.
pub(super) fn keep(name: &str) -> Change {
    Change::Interface { device: name.to_owned() }
}

/// Where packets are to be taken.
pub(super) fn place(
    netlink: &mut Netlink,
    config: &Translator,
    facts: &Facts,
    intent: &Intent,
) -> Result<At, Failure> {
    let attach = config.attach;
    if !intent.is_kernel() {
        let why = "it is the kernel engine's, which does not run";
        return Ok(At::interface(refused(attach, why)));
    }
    let configured = config.clat().is_some_and(|clat| clat.uplink.is_some());
    match attach {
        Attach::Uplink => {}
        Attach::Auto if configured => {}
        Attach::Auto | Attach::Interface => return Ok(At::interface(None)),
        Attach::Ingress | Attach::Xdp => {
            let mut view = View::new(netlink);
            config.devices.iter().try_for_each(|name| view.link(name.as_str()).map(drop))?;
            let devices = Devices::find(&mut view, config);
            return Ok(At { attach, devices, ..At::default() });
        }
    }
    Ok(match uplink::find(netlink, config, facts)? {
        Ok(way) => At { attach: Attach::Uplink, way: Some(way), ..At::default() },
        Err(why) => {
            warn!("{}: not at the uplink: {why}", config.name);
            At::interface(Some(format!("not at the uplink: {why}")))
        }
    })
}

/// Why an attach point that was asked for is not taken.
pub(super) fn refused(attach: Attach, why: &str) -> Option<String> {
    match attach {
        Attach::Auto | Attach::Interface => None,
        Attach::Uplink => Some(format!("not at the uplink: {why}")),
        Attach::Ingress => Some(format!("not at the ingress of the devices: {why}")),
        Attach::Xdp => Some(format!("not at XDP: {why}")),
    }
}

/// The core for the user engine. `before`: what runs.
pub(super) fn core(
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
