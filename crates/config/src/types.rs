//! The validated configuration.

use std::net::{Ipv4Addr, Ipv6Addr};

use fordway_xlat::addr::{Eam, Pool6};
use fordway_xlat::{IcmpErrors, TrafficClass, UdpChecksumZero};
use ipnet::Ipv4Net;

use crate::advertise::Advertise;
use crate::dns64::Dns64;
use crate::dstm::{DstmClient, DstmServer, DstmTep};
use crate::name::InterfaceName;
use crate::nat44::{DualStack, Nat44};
use crate::nat64::{Dynamic4, Nat64, NatPt};
use crate::proxy::Proxy;
use crate::sections::{Control, Log, Metrics};
use crate::softwire::Softwire;
use crate::trt::Trt;

/// One configuration file. Something is in it: a translator, a relay, a DNS64 server, router
/// advertisements, a proxy, or a part of DSTM.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Config {
    /// The translators, in the order of the file.
    pub translators: Vec<Translator>,
    /// Entries of mode `nat44`, in the order of the file.
    pub nat44: Vec<Nat44>,
    /// Entries of mode `dual-stack`, in the order of the file.
    pub dual_stack: Vec<DualStack>,
    /// `[dns64]`.
    pub dns64: Option<Dns64>,
    /// `[[advertise]]`, in the order of the file.
    pub advertise: Vec<Advertise>,
    /// `[[trt]]`, in the order of the file.
    pub trt: Vec<Trt>,
    /// `[[proxy]]`, in the order of the file.
    pub proxies: Vec<Proxy>,
    /// `[dstm_server]`.
    pub dstm_server: Option<DstmServer>,
    /// `[dstm_tep]`.
    pub dstm_tep: Option<DstmTep>,
    /// `[[dstm_client]]`, in the order of the file.
    pub dstm_clients: Vec<DstmClient>,
    /// `[control]`.
    pub control: Control,
    /// `[metrics]`.
    pub metrics: Metrics,
    /// `[log]`.
    pub log: Log,
}

/// One `[[translator]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Translator {
    /// Its name and its interface's.
    pub name: InterfaceName,
    /// What it does.
    pub mode: Mode,
    /// Which engine carries the packets.
    pub engine: Engine,
    /// Where packets are taken.
    pub attach: Attach,
    /// Devices whose packets are taken as they arrive; none unless `attach` is [`Attach::Ingress`] or
    /// [`Attach::Xdp`].
    pub devices: Vec<InterfaceName>,
    /// The kernel engine takes the time of each packet.
    pub measure: bool,
    /// Packets from IPv4 that the kernel engine leaves to the user engine for one reason, per second and processor;
    /// `None`: as many as come.
    pub pass_rate: Option<u32>,
    /// Explicit address mappings (RFC 7757), free of duplicates.
    pub eam: Vec<Eam>,
    /// IPv4 networks routed into the interface, beside those of `eam` in mode siit and of the bindings in mode
    /// softwire.
    pub routes4: Vec<Ipv4Net>,
    /// Metric of the routes into the interface.
    pub metric: u32,
    /// Source of ICMPv4 errors (RFC 6791); `None`: off.
    pub icmp_source4: Option<Ipv4Addr>,
    /// Translated ICMPv6 errors from `icmp_source4` carry their IPv6 source.
    pub icmp_node_id: bool,
    /// Source of ICMPv6 errors.
    pub icmp_source6: Source6,
    /// Whether and how often ICMP errors are sent.
    pub icmp_errors: IcmpErrors,
    /// UDP over IPv4 without a checksum.
    pub udp_checksum_zero: UdpChecksumZero,
    /// Type of Service and Traffic Class.
    pub traffic_class: TrafficClass,
    /// 64:ff9b::/96 may carry non-global IPv4 addresses (against RFC 6052 section 3.1).
    pub allow_private: bool,
    /// IPv6 hosts are numbered from `pool6`.
    pub ipv4_translatable: bool,
    /// Hairpinning (RFC 7757 section 4).
    pub hairpin: bool,
    /// The TCP MSS is clamped.
    pub mss_clamp: bool,
    /// IPv6 path MTU in octets; `None`: found on the host.
    pub mtu: Option<u32>,
    /// Longest IPv6 packet made of an IPv4 packet without DF, in octets.
    pub lowest_ipv6_mtu: u32,
    /// Queues (and threads); `None`: by the number of processors.
    pub queues: Option<usize>,
    /// Packets that wait in each queue at most.
    pub queue_length: u32,
    /// A busy queue's thread stays on one processor.
    pub pin_queues: bool,
    /// Addresses, routes, rules and sysctls are set up and taken down.
    pub manage: bool,
}

/// What a translator does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Stateless IP/ICMP translation (RFC 7915) between networks.
    Siit {
        /// Translation prefixes, routed into the interface.
        pool6: Vec<Pool6>,
        /// IPv6 hosts without a mapping get an IPv4 address on first use.
        dynamic4: Option<Dynamic4>,
    },
    /// The customer side of 464XLAT (RFC 6877).
    Clat(Clat),
    /// Stateful NAT64 (RFC 6146).
    Nat64(Box<Nat64>),
    /// One end of softwires (RFC 2473, RFC 7596).
    Softwire(Box<Softwire>),
}

/// What only a CLAT has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clat {
    /// The translation prefix of the PLAT.
    pub pref64: Pref64,
    /// With [`Pref64::Auto`]: goes on where the network has native IPv4.
    pub always: bool,
    /// The host's IPv4 address on the interface.
    pub v4: Ipv4Addr,
    /// Its IPv6 counterpart; `None`: made from the uplink's prefix.
    pub v6: Option<Ipv6Addr>,
    /// The device towards the IPv6 network; `None`: found by the route to `pref64`.
    pub uplink: Option<InterfaceName>,
}

/// A CLAT's translation prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pref64 {
    /// This one.
    Fixed(Pool6),
    /// The one that the network tells (RFC 7050, RFC 8781); without one, or where there is native IPv4, the
    /// CLAT waits.
    Auto,
}

impl Pref64 {
    /// The prefix, if it is known from the configuration.
    #[must_use]
    pub fn fixed(&self) -> Option<&Pool6> {
        match self {
            Pref64::Fixed(pool6) => Some(pool6),
            Pref64::Auto => None,
        }
    }
}

/// Source address of ICMPv6 errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source6 {
    /// The host's preferred address towards the IPv6 side.
    #[default]
    Auto,
    /// None: such errors are not sent.
    Off,
    /// This one.
    Address(Ipv6Addr),
}

/// Which engine carries the packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// The best that the host allows.
    #[default]
    Auto,
    /// The kernel engine (eBPF), with the user engine for what it leaves; refused where the host
    /// does not allow it.
    Kernel,
    /// The user engine, on a TUN device.
    User,
}

/// Where packets are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attach {
    /// At the uplink for a CLAT whose uplink is configured, where the kernel engine runs; else at the
    /// interface.
    #[default]
    Auto,
    /// What is routed into the translator's interface.
    Interface,
    /// A CLAT's packets in place, at the device towards the IPv6 network.
    Uplink,
    /// What arrives on [`Translator::devices`] and would be routed into the interface, before it is routed.
    Ingress,
    /// What arrives on [`Translator::devices`], before the host's own stack sees it.
    Xdp,
}

impl Config {
    /// The translation prefixes of the translators that stand between an IPv6-only network and IPv4, in the
    /// order of the file, each once: what DNS64 makes addresses of and hosts are told, unless the file says
    /// otherwise. A CLAT's is another gateway's.
    #[must_use]
    pub fn pool6(&self) -> Vec<Pool6> {
        let gateways = self.translators.iter().filter(|translator| translator.clat().is_none());
        let mut all: Vec<Pool6> = Vec::new();
        let relays = self.trt.iter().flat_map(|trt| &trt.pool6);
        for pool6 in gateways.flat_map(Translator::pool6).chain(relays) {
            if !all.contains(pool6) {
                all.push(*pool6);
            }
        }
        all
    }
}

impl Translator {
    /// The mode's name in the file.
    #[must_use]
    pub fn mode_name(&self) -> &'static str {
        match self.mode {
            Mode::Siit { .. } => "siit",
            Mode::Clat(_) => "clat",
            Mode::Nat64(ref nat64) if nat64.nat_pt.is_some() => "nat-pt",
            Mode::Nat64(_) => "nat64",
            Mode::Softwire(_) => "softwire",
        }
    }

    /// The translation prefixes: `pool6`, or a CLAT's `pref64`; none while that is to be discovered.
    #[must_use]
    pub fn pool6(&self) -> &[Pool6] {
        match &self.mode {
            Mode::Siit { pool6, .. } => pool6,
            Mode::Clat(clat) => clat.pref64.fixed().map_or(&[], std::slice::from_ref),
            Mode::Nat64(nat64) => &nat64.pool6,
            Mode::Softwire(_) => &[],
        }
    }

    /// The CLAT's part, if this is one.
    #[must_use]
    pub fn clat(&self) -> Option<&Clat> {
        match &self.mode {
            Mode::Clat(clat) => Some(clat),
            Mode::Siit { .. } | Mode::Nat64(_) | Mode::Softwire(_) => None,
        }
    }

    /// Whether this is a CLAT that discovers its prefix.
    #[must_use]
    pub fn is_automatic(&self) -> bool {
        self.clat().is_some_and(|clat| clat.pref64 == Pref64::Auto)
    }

    /// The part of NAT-PT, if this is mode `nat-pt`.
    #[must_use]
    pub fn nat_pt(&self) -> Option<&NatPt> {
        self.nat64()?.nat_pt.as_ref()
    }

    /// The stateful part, if this is mode `nat64` or `nat-pt`.
    #[must_use]
    pub fn nat64(&self) -> Option<&Nat64> {
        match &self.mode {
            Mode::Nat64(nat64) => Some(nat64),
            Mode::Siit { .. } | Mode::Clat(_) | Mode::Softwire(_) => None,
        }
    }

    /// The softwires' part, if this is mode `softwire`.
    #[must_use]
    pub fn softwire(&self) -> Option<&Softwire> {
        match &self.mode {
            Mode::Softwire(softwire) => Some(softwire),
            Mode::Siit { .. } | Mode::Clat(_) | Mode::Nat64(_) => None,
        }
    }

    /// Whether packets come from and go to other hosts than this one.
    #[must_use]
    pub fn serves_others(&self) -> bool {
        match &self.mode {
            Mode::Siit { .. } | Mode::Nat64(_) => true,
            Mode::Clat(_) => !self.eam.is_empty(),
            Mode::Softwire(softwire) => softwire.client().is_none(),
        }
    }

    /// The dynamic 1:1 mappings, if there are to be any.
    #[must_use]
    pub fn dynamic4(&self) -> Option<&Dynamic4> {
        match &self.mode {
            Mode::Siit { dynamic4, .. } => dynamic4.as_ref(),
            Mode::Clat(_) | Mode::Nat64(_) | Mode::Softwire(_) => None,
        }
    }
}
