//! Options beside the translator's configuration.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;

use fordway_xlat::nat64::Settings;

use crate::{RoutingNews, ShardGates, SoftwireMaps, StateMaps};

/// Where the programs are attached. Numbers are interface indices in the calling thread's namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hook {
    /// At the egress of the translator's own TUN device, for packets that were routed to the translator.
    Interface {
        /// The TUN device.
        tun: u32,
    },
    /// In place at egress (IPv4 to IPv6) and ingress (IPv6 to IPv4) of a host's uplink.
    Uplink {
        /// The uplink: an Ethernet device, or one without link-layer header.
        device: u32,
        /// The TUN device, which receives packets that the programs pass on.
        tun: u32,
    },
    /// At the ingress of named devices, all Ethernet ones or all without link-layer header, in front of
    /// routing; and the programs of `Interface` at the TUN device.
    Ingress {
        /// The devices.
        devices: Vec<u32>,
        /// The TUN device.
        tun: u32,
    },
    /// XDP on named Ethernet devices, and the programs of `Interface` at the TUN device.
    Xdp {
        /// The devices.
        devices: Vec<u32>,
        /// The TUN device.
        tun: u32,
    },
}

impl Hook {
    /// The name in configuration and status.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Hook::Interface { .. } => "interface",
            Hook::Uplink { .. } => "uplink",
            Hook::Ingress { .. } => "ingress",
            Hook::Xdp { .. } => "xdp",
        }
    }

    /// The TUN device.
    #[must_use]
    pub const fn tun(&self) -> u32 {
        match *self {
            Hook::Interface { tun }
            | Hook::Uplink { tun, .. }
            | Hook::Ingress { tun, .. }
            | Hook::Xdp { tun, .. } => tun,
        }
    }
}

/// How a packet goes on that was translated at the ingress of devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Forwarding {
    /// It arrives from the TUN device.
    #[default]
    Stack,
    /// It arrives from the device that it came by, as a packet of the other family.
    InPlace,
    /// From devices with Ethernet headers: it leaves at once by the device to which the kernel routes it, past the stack and its
    /// packet filters. What has no such route arrives from the TUN device.
    Direct,
}

/// How the programs are loaded and attached.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder of this translator's pins, below a BPF file system; see [`pins_dir`](crate::pins_dir). It is made if
    /// it is missing, and so is the file system at `/sys/fs/bpf`.
    pub pins: PathBuf,
    /// Where to attach.
    pub hook: Hook,
    /// Take the time that each translation needs.
    pub measure: bool,
    /// Write events, at most so many per second and processor.
    pub trace: Option<u32>,
    /// Packets from IPv4 that the programs pass to the user engine for one reason, at most so many per second and
    /// processor; [`PassReason`](crate::PassReason) has the reasons, and `pass_rate.h` those that have a rate.
    pub pass_rate: Option<u32>,
    /// At XDP: link-layer addresses that devices have beside their own, as VRRP has them.
    pub virtual_macs: Vec<(u32, [u8; 6])>,
    /// At the ingress of devices: how a translated packet goes on.
    pub forward: Forwarding,
    /// In front of routing: what programs hear of changes of routes. `None`: they ask the kernel again with each tick of its
    /// clock.
    pub routing: Option<Arc<RoutingNews>>,
    /// Attach by clsact filters even where the kernel has tcx links.
    pub force_clsact: bool,
    /// Of a stateful translator: its settings and tables.
    pub stateful: Option<Stateful>,
    /// Of softwires: settings and bindings.
    pub tunnels: Option<Tunnels>,
}

/// What the programs of softwires need, in the place of a translator's configuration.
#[derive(Clone, Debug)]
pub struct Tunnels {
    /// The settings.
    pub settings: fordway_softwire::Settings,
    /// The bindings.
    pub maps: Arc<SoftwireMaps>,
}

/// What the programs of a stateful translator need beside its configuration.
#[derive(Clone, Debug)]
pub struct Stateful {
    /// The settings.
    pub settings: Settings,
    /// The tables; the user engine works on the same.
    pub maps: Arc<StateMaps>,
    /// In a cluster: the words of the settings' shards.
    pub gates: Option<Arc<ShardGates>>,
}

impl Stateful {
    pub(crate) fn gates(&self) -> Option<BorrowedFd<'_>> {
        self.gates.as_ref().map(|gates| gates.map())
    }
}

impl Options {
    /// Options for `hook` with pins in `pins`: nothing measured, traced or limited, tcx where the kernel has it.
    #[must_use]
    pub fn new(pins: impl Into<PathBuf>, hook: Hook) -> Self {
        Options {
            pins: pins.into(),
            hook,
            measure: false,
            trace: None,
            pass_rate: None,
            virtual_macs: Vec::new(),
            forward: Forwarding::default(),
            routing: None,
            force_clsact: false,
            stateful: None,
            tunnels: None,
        }
    }
}
