//! The objects of one translator, loaded for a hook.

use std::os::fd::AsFd;
use std::sync::Arc;

use fordway_softwire::Role;
use fordway_xlat::Config;
use fordway_xlat::config::HopCount;
use libbpf_rs::MapHandle;

use crate::abi::{ABI_VERSION, MAX_DEVICES};
use crate::attach::Wanted;
use crate::convert::{
    Extra, convert, convert_stateful, convert_tunnels, eam_in_maps, relevant, softwire_config,
};
use crate::counters::Layout;
use crate::device::{Device, mac_number};
use crate::object::{Programs, Request};
use crate::pins::{Counted, Pin, Pins};
use crate::program::ObjectFile;
use crate::{
    Error, Forwarding, Hook, Options, Place, Program, Result, RoutingNews, Stateful, Totals,
    Tunnels, Unsupported, counters, sys,
};

/// The loaded objects.
#[derive(Debug)]
pub(crate) struct Engine {
    tc: Programs,
    /// Programs at the hooks of tc: where they belong.
    places: Vec<(Program, Place, u32)>,
    /// The programs in front of routing.
    front: Option<Front>,
    routing: Option<Arc<RoutingNews>>,
    is_stateful: bool,
    is_shared: bool,
    /// Counters of earlier programs in front of routing.
    former_counters: Vec<MapHandle>,
    /// Counters that were pinned now.
    fresh: Vec<Pin>,
}

/// A program at a gateway's devices, in front of routing. Packets that it passes on are routed to the programs behind it.
#[derive(Debug)]
struct Front {
    program: Program,
    place: Place,
    devices: Vec<u32>,
    virtual_macs: Vec<(u32, [u8; 6])>,
    loaded: Programs,
}

impl Engine {
    /// Loads what `options` ask for, with the counters under `pins`, and with the ring buffer of
    /// `earlier`, so that its readers go on.
    pub(crate) fn load(
        config: &Config,
        options: &Options,
        pins: &Pins,
        earlier: Option<&Engine>,
    ) -> Result<Engine> {
        let mut fresh = Vec::new();
        let loaded = load(config, options, pins, earlier, &mut fresh);
        if loaded.is_err() {
            discard(pins, &fresh);
        }
        Ok(Engine { fresh, ..loaded? })
    }

    /// Takes back what loading has pinned.
    pub(crate) fn discard(self, pins: &Pins) {
        discard(pins, &self.fresh);
    }

    /// What has to be attached where.
    pub(crate) fn wanted(&self) -> Vec<Wanted<'_>> {
        let mut wanted = Vec::new();
        for &(program, place, ifindex) in &self.places {
            wanted.push(Wanted { ifindex, place, program, from: &self.tc });
        }
        if let Some(Front { program, place, devices, loaded, .. }) = &self.front {
            for &ifindex in devices {
                wanted.push(Wanted { ifindex, place: *place, program: *program, from: loaded });
            }
        }
        wanted
    }

    /// The loaded programs.
    pub(crate) fn programs(&self) -> Vec<&Programs> {
        [&self.tc].into_iter().chain(self.front.iter().map(|front| &front.loaded)).collect()
    }

    /// Whether the programs have tables of state.
    pub(crate) fn is_stateful(&self) -> bool {
        self.is_stateful
    }

    /// Whether the programs have the gates of a cluster's shards.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Whether a program was loaded.
    pub(crate) fn has(&self, program: Program) -> bool {
        self.programs().iter().any(|programs| programs.program(program).is_some())
    }

    /// Pins the programs, so that a later process can go back to them.
    pub(crate) fn pin_programs(&self, pins: &Pins) -> Result<()> {
        for programs in self.programs() {
            for (program, descriptor) in programs.all() {
                pins.put(Pin::Program(program), descriptor)?;
            }
        }
        Ok(())
    }

    /// Tells the XDP program which devices take redirected frames; has to be done again after
    /// attaching, which makes drivers ready for them.
    pub(crate) fn fill_devices(&self) -> Result<()> {
        let Some(Front { place: Place::Xdp, devices, virtual_macs, loaded: xdp, .. }) = &self.front
        else {
            return Ok(());
        };
        let states: Vec<_> = devices.iter().map(|&device| sys::xdp_state(device)).collect();
        // In front of the stack every device takes a frame.
        let all_generic =
            states.iter().all(|state| state.as_ref().is_ok_and(|state| state.generic));
        for (device, state) in devices.iter().zip(&states) {
            let found = Device::by_index(*device)?;
            let takes = state.as_ref().is_ok_and(|state| {
                let untold = || !state.generic && is_known_to_take_redirected(&found.name);
                all_generic || state.takes_redirected.unwrap_or_else(untold)
            });
            if let Some(mac) = found.mac_number() {
                xdp.take_address(*device, mac)?;
            }
            if takes {
                xdp.take_redirected(*device)?;
            } else {
                xdp.take_no_redirected(*device);
            }
        }
        virtual_macs
            .iter()
            .filter(|(device, _)| devices.contains(device))
            .try_for_each(|&(device, mac)| xdp.take_virtual(device, mac_number(mac)))?;
        // Which devices take frames is part of what programs remember.
        if let Some(routing) = &self.routing {
            routing.changed();
        }
        Ok(())
    }

    /// What the programs counted.
    pub(crate) fn totals(&self) -> Result<Totals> {
        let mut totals = Totals::default();
        counters::add(&mut totals, &counters::read(&self.tc.counters)?, false);
        let front = self.front.iter().map(|front| &front.loaded.counters);
        for map in front.chain(&self.former_counters) {
            counters::add(&mut totals, &counters::read(map)?, true);
        }
        Ok(totals)
    }

    /// What the programs in front of routing counted.
    pub(crate) fn front_totals(&self) -> Result<Option<Totals>> {
        let Some(front) = &self.front else { return Ok(None) };
        let mut totals = Totals::default();
        counters::add(&mut totals, &counters::read(&front.loaded.counters)?, true);
        Ok(Some(totals))
    }

    /// The ring buffer of events.
    pub(crate) fn trace(&self) -> Option<&MapHandle> {
        self.tc.trace.as_ref()
    }
}

fn load(
    config: &Config,
    options: &Options,
    pins: &Pins,
    earlier: Option<&Engine>,
    fresh: &mut Vec<Pin>,
) -> Result<Engine> {
    let config = &*relevant(config, options.stateful.as_ref());
    let tun = options.hook.tun();
    let tun_device = Device::by_index(tun)?;
    let programs = tc_programs(options)?;
    let (places, link_layer_len) = match (&options.hook, programs) {
        (Hook::Uplink { device, .. }, [_, at_tun, at_egress, at_ingress]) => {
            let places = vec![
                (at_egress, Place::Egress, *device),
                (at_ingress, Place::Ingress, *device),
                (at_tun, Place::Egress, tun),
            ];
            (places, Device::by_index(*device)?.link_layer_len()?)
        }
        (_, [at_tun, ..]) => (vec![(at_tun, Place::Egress, tun)], tun_device.link_layer_len()?),
    };
    let extra = Extra {
        tun,
        link_layer_len,
        decrement_hop_limit: behind_routing(config, &options.hook),
        measure: options.measure,
        trace: options.trace,
        pass_rate: options.pass_rate,
        keep_order: true,
        forward: Forwarding::Stack,
    };
    let stateful = options.stateful.as_ref();
    let tunnels = options.tunnels.as_ref();
    let routing = options.routing.as_deref();
    let mut loader = Loader { config, stateful, tunnels, routing, pins, fresh };
    let tc_programs: Vec<Program> = places.iter().map(|place| place.0).collect();
    let earlier_trace = earlier.and_then(Engine::trace);
    let tc = loader.load(programs[0].file(), Counted::Tc, &tc_programs, extra, earlier_trace)?;
    let front = load_front(&mut loader, options, extra, tc.trace.as_ref())?;
    let mut former_counters = Vec::new();
    for (place, counted) in [(Place::Ingress, Counted::Ingress), (Place::Xdp, Counted::Xdp)] {
        if front.as_ref().is_none_or(|front| front.place != place) {
            former_counters.extend(pins.open_map(Pin::Counters(counted, ABI_VERSION))?);
        }
    }
    let is_stateful = stateful.is_some();
    let is_shared = stateful.is_some_and(|it| it.gates.is_some());
    let (routing, fresh) = (options.routing.clone(), Vec::new());
    Ok(Engine { tc, places, front, routing, is_stateful, is_shared, former_counters, fresh })
}

/// The program at the TUN device; and of a translator at an uplink those at the TUN device, and at egress and ingress of the
/// uplink.
fn tc_programs(options: &Options) -> Result<[Program; 4]> {
    let Some(Tunnels { settings, .. }) = &options.tunnels else {
        return Ok([
            Program::Interface,
            Program::UplinkInterface,
            Program::UplinkEgress,
            Program::UplinkIngress,
        ]);
    };
    let reason = match (&options.hook, settings.role) {
        (Hook::Interface { .. } | Hook::Ingress { .. }, _)
        | (Hook::Uplink { .. }, Role::Client) => {
            return Ok([
                Program::SoftwireInterface,
                Program::SoftwireUplinkInterface,
                Program::SoftwireUplinkEgress,
                Program::SoftwireUplinkIngress,
            ]);
        }
        (Hook::Uplink { .. }, Role::Tep) => {
            "attach = \"uplink\" is for a softwire's client".to_owned()
        }
        (hook, _) => format!("softwires can't be attached at {}", hook.label()),
    };
    Err(Unsupported::with_hint(reason, "use attach = \"interface\"").into())
}

/// If programs in front of routing decrement the hop limit in its place, those behind it don't.
fn behind_routing(config: &Config, hook: &Hook) -> HopCount {
    match hook {
        Hook::Ingress { .. } | Hook::Xdp { .. } => HopCount::NONE,
        Hook::Interface { .. } | Hook::Uplink { .. } => config.decrement_hop_limit,
    }
}

/// The program that stands in front of routing, if one does.
fn load_front(
    loader: &mut Loader<'_>,
    options: &Options,
    behind: Extra,
    trace: Option<&MapHandle>,
) -> Result<Option<Front>> {
    let (program, counted, place, devices, link_layer_len) = match &options.hook {
        Hook::Interface { .. } | Hook::Uplink { .. } => return Ok(None),
        Hook::Ingress { devices, .. } => {
            let len = link_layer_of(devices)?;
            if options.forward == Forwarding::Direct && len != ETHERNET_LEN {
                let reason = "direct forwarding needs Ethernet devices";
                let hint = "use forward = \"stack\"";
                return Err(Unsupported::with_hint(reason, hint).into());
            }
            let tunnels = loader.tunnels.is_some();
            let program = if tunnels { Program::SoftwireIngress } else { Program::Ingress };
            (program, Counted::Ingress, Place::Ingress, devices, len)
        }
        Hook::Xdp { devices, .. } => {
            check_xdp_devices(devices)?;
            let stateful = loader.stateful.is_some_and(|it| it.settings.dynamic4.is_none());
            let program = if stateful { Program::XdpNat64 } else { Program::Xdp };
            (program, Counted::Xdp, Place::Xdp, devices, ETHERNET_LEN)
        }
    };
    let decrement_hop_limit = loader.config.decrement_hop_limit;
    // At XDP packets are always forwarded directly, without this.
    let forward = if place == Place::Ingress { options.forward } else { Forwarding::Stack };
    let extra = Extra { link_layer_len, decrement_hop_limit, forward, ..behind };
    let loaded = loader.load(program.file(), counted, &[program], extra, trace)?;
    let mut devices = devices.clone();
    devices.sort_unstable();
    devices.dedup();
    let virtual_macs = options.virtual_macs.clone();
    Ok(Some(Front { program, place, devices, virtual_macs, loaded }))
}

/// Octets of the link-layer header, which all devices must have in common.
fn link_layer_of(devices: &[u32]) -> Result<u32> {
    check_number("ingress", devices)?;
    let mut common = None;
    for &ifindex in devices {
        let device = Device::by_index(ifindex)?;
        device.check_in_front(false)?;
        let len = device.link_layer_len()?;
        if *common.get_or_insert(len) != len {
            let reason =
                format!("{} has another kind of link-layer header than the others", device.name);
            return Err(Unsupported::with_hint(reason, "name devices of one kind").into());
        }
    }
    Ok(common.unwrap_or(ETHERNET_LEN))
}

fn check_number(attach: &str, devices: &[u32]) -> Result<()> {
    if devices.is_empty() {
        let reason = format!("attach = \"{attach}\" needs the names of devices");
        return Err(Unsupported::with_hint(reason, "set devices").into());
    }
    if devices.len() > MAX_DEVICES {
        let reason =
            format!("{attach} works on {MAX_DEVICES} devices at most, not on {}", devices.len());
        return Err(Unsupported::new(reason).into());
    }
    Ok(())
}

const ETHERNET_LEN: u32 = 14;

/// Drivers that could send redirected frames by Linux 5.15, whatever their other end does. Kernels before
/// 6.3 don't report this, and frames that a driver can't send are lost.
const DRIVERS_THAT_TAKE_REDIRECTED: [&str; 13] = [
    "bnxt_en",
    "ena",
    "i40e",
    "ice",
    "igb",
    "igc",
    "ixgbe",
    "mlx5_core",
    "mvneta",
    "mvpp2",
    "qede",
    "sfc",
    "virtio_net",
];

fn is_known_to_take_redirected(device: &str) -> bool {
    fordway_net::device_driver(device)
        .is_some_and(|driver| DRIVERS_THAT_TAKE_REDIRECTED.contains(&driver.as_str()))
}

fn check_xdp_devices(devices: &[u32]) -> Result<()> {
    check_number("xdp", devices)?;
    for &ifindex in devices {
        let device = Device::by_index(ifindex)?;
        if device.link_layer_len() != Ok(ETHERNET_LEN) {
            let reason = format!("XDP needs Ethernet, and {} is no Ethernet device", device.name);
            return Err(Unsupported::with_hint(reason, "use attach = \"interface\"").into());
        }
        device.check_in_front(true)?;
    }
    Ok(())
}

/// Loads objects with their pinned counters.
struct Loader<'a> {
    config: &'a Config,
    stateful: Option<&'a Stateful>,
    tunnels: Option<&'a Tunnels>,
    routing: Option<&'a RoutingNews>,
    pins: &'a Pins,
    fresh: &'a mut Vec<Pin>,
}

impl Loader<'_> {
    fn load(
        &mut self,
        file: ObjectFile,
        counted: Counted,
        programs: &[Program],
        extra: Extra,
        trace: Option<&MapHandle>,
    ) -> Result<Programs> {
        let pin = Pin::Counters(counted, ABI_VERSION);
        let pinned = self.pins.open_map(pin)?;
        let usable = pinned.as_ref().filter(|map| counters::is_usable(map));
        let state = self
            .stateful
            .map(|stateful| convert_stateful(stateful).map(|config| (&*stateful.maps, config)));
        let state = state.transpose()?;
        let (tunnels, config) = match self.tunnels {
            Some(Tunnels { settings, maps }) => {
                let mut settings = *settings;
                // The hop that routing into the interface would have counted.
                settings.hop_count.v4_to_v6 |= counted == Counted::Ingress;
                // And that of routing out of it.
                settings.hop_count.v6_to_v4 |= extra.forward == Forwarding::Direct;
                (Some((&**maps, softwire_config(&settings))), convert_tunnels(&settings, extra))
            }
            None => (None, convert(self.config, extra)?),
        };
        let loaded = Programs::load(Request {
            file,
            programs,
            config: &config,
            eam: eam_in_maps(self.config).then(|| self.config.eam.entries()),
            state: state.as_ref().map(|(maps, config)| (*maps, config)),
            gates: self.stateful.and_then(Stateful::gates),
            routing: self.routing.map(|routing| routing.map()),
            tunnels: tunnels.as_ref().map(|(maps, config)| (*maps, config)),
            pods: None,
            counters: usable.map(AsFd::as_fd),
            trace: trace.map(AsFd::as_fd),
        })?;
        if usable.is_none() {
            self.carry_over(counted, &loaded)?;
            self.pin_layout()?;
            self.pins.put(pin, loaded.counters.as_fd())?;
            self.fresh.push(pin);
        }
        Ok(loaded)
    }

    /// Goes on with the totals of another version's counters, if there are some that can be read.
    fn carry_over(&self, counted: Counted, new: &Programs) -> Result<()> {
        for pin in self.pins.list()?.unwrap_or_default() {
            let Pin::Counters(whose, version) = pin else { continue };
            if whose != counted || version == ABI_VERSION {
                continue;
            }
            let layout = self.pins.open_map(Pin::Layout(version))?;
            if let (Some(old), Some(layout)) =
                (self.pins.open_map(pin)?, layout.as_ref().and_then(Layout::from_map))
            {
                counters::carry_over(&old, &layout, &new.counters).map_err(|source| {
                    Error::Map { operation: "carry over", map: "counters", source }
                })?;
                break;
            }
        }
        Ok(())
    }

    fn pin_layout(&mut self) -> Result<()> {
        let pin = Pin::Layout(ABI_VERSION);
        let map = Layout::own().to_map()?;
        if !self.pins.exists(pin) {
            self.fresh.push(pin);
        }
        self.pins.put(pin, map.as_fd())
    }
}

fn discard(pins: &Pins, fresh: &[Pin]) {
    for &pin in fresh {
        // The first error is the one to report.
        let _ = pins.remove(pin);
    }
}
