//! What runs.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    AdvertiseStatus, AutoStatus, ClusterState, Dns64Status, DstmClientStats, DstmServerStatus,
    DstmTepStatus, DualStackStatus, Nat44Status, Nat64Status, ProxyStatus, TrtStatus,
};

/// A daemon.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// Version of the program.
    pub version: String,
    /// Cargo features that the program was built with.
    #[serde(default)]
    pub features: Vec<String>,
    /// Process.
    pub pid: u32,
    /// Where the configuration came from.
    pub config: String,
    /// Seconds since it was ready.
    pub uptime_seconds: u64,
    /// CLATs that set themselves up; those that translate are among the translators too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub automatic: Vec<AutoStatus>,
    /// The translators, in the order of the configuration.
    pub translators: Vec<TranslatorStatus>,
    /// The DNS64 server, if one runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns64: Option<Dns64Status>,
    /// Devices with router advertisements.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub advertise: Vec<AdvertiseStatus>,
    /// Entries of mode nat44.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nat44: Vec<Nat44Status>,
    /// Entries of mode dual-stack.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dual_stack: Vec<DualStackStatus>,
    /// Transport relays.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trt: Vec<TrtStatus>,
    /// HTTP proxies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proxies: Vec<ProxyStatus>,
    /// The DSTM server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dstm_server: Option<DstmServerStatus>,
    /// The tunnel end point that a server on another host tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dstm_tep: Option<DstmTepStatus>,
    /// DSTM clients; their softwires are among the translators too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dstm_clients: Vec<DstmClientStats>,
    /// Where the daemon stands in its cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterState>,
}

/// A translator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TranslatorStatus {
    /// Its name.
    pub name: String,
    /// Its mode.
    pub mode: String,
    /// The engine that carries the packets.
    pub engine: String,
    /// Why that one.
    pub engine_reason: String,
    /// Where packets are taken.
    pub attach: String,
    /// Why not where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attach_reason: Option<String>,
    /// At the ingress of devices: `direct` if translated packets bypass the host's stack and its packet filters, else `stack`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward: Option<String>,
    /// The kernel engine, if it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KernelStatus>,
    /// Name of its interface.
    pub interface: String,
    /// Index of its interface.
    pub ifindex: u32,
    /// The interface existed before and stays.
    pub adopted: bool,
    /// Number of queues.
    pub queues: usize,
    /// Packets that wait in each queue at most.
    #[serde(default)]
    pub queue_length: u32,
    /// Packets dropped because a queue was full.
    #[serde(default)]
    pub receive_queue_full: u64,
    /// The processor on which each queue's thread stays while busy; empty if they roam.
    pub processors: Vec<usize>,
    /// Offloads of its device.
    pub offloads: OffloadStatus,
    /// IPv6 path MTU, in octets.
    pub mtu: u32,
    /// Where that comes from.
    pub mtu_from: String,
    /// Translation prefixes.
    pub pool6: Vec<String>,
    /// Number of explicit address mappings, a CLAT's own among them.
    pub eam: usize,
    /// Source of ICMPv4 errors; none: not sent.
    pub icmp_source4: Option<Ipv4Addr>,
    /// Source of ICMPv6 errors.
    pub icmp_source6: Option<Ipv6Addr>,
    /// Of a CLAT.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clat: Option<ClatStatus>,
    /// Of a stateful translator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nat64: Option<Nat64Status>,
    /// Of a softwire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub softwire: Option<SoftwireStatus>,
    /// Whether the host's set-up is managed.
    pub managed: bool,
    /// Addresses that have been added to the host.
    pub addresses: Vec<String>,
    /// Routes that have been added to the host.
    pub routes: Vec<String>,
    /// Kernel settings that have been changed.
    pub settings: Vec<String>,
    /// Seconds since its engine started.
    pub uptime_seconds: u64,
}

/// One end of softwires.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SoftwireStatus {
    /// `tep` or `client`.
    pub role: String,
    /// This end's own address.
    pub local: Option<Ipv6Addr>,
    /// A client's tunnel end point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<Ipv6Addr>,
    /// A client's IPv4 address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v4: Option<Ipv4Addr>,
    /// Bindings now.
    pub bindings: usize,
    /// Of these, those whose path a router has said to be narrower.
    pub lowered_paths: usize,
}

/// A kernel engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KernelStatus {
    /// By which means of the kernel it is attached: `tcx`, `clsact`, `xdp native`, `xdp generic`.
    pub hook: String,
    /// Each program.
    pub programs: Vec<ProgramStatus>,
    /// Of the translator's packets, the share that it left to the user engine, 0 to 1; none before the
    /// first packet.
    pub passed_on_share: Option<f64>,
    /// How many it left, by cause.
    pub passed_on: BTreeMap<String, u64>,
    /// Whether it takes the time.
    pub measure: bool,
    /// Mean of the time per translated packet, where it was taken.
    pub ns_per_packet: Option<f64>,
    /// What is attached as it was asked for, and does not do what was meant by it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<KernelWarning>,
}

/// What a kernel engine warns of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KernelWarning {
    /// Tells it from others.
    pub about: String,
    /// One sentence without a full stop.
    pub text: String,
    /// What to do, one sentence without a full stop.
    pub advice: String,
}

/// A program of a kernel engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProgramStatus {
    /// Name of the device.
    pub device: String,
    /// `egress`, `ingress` or `xdp`.
    pub place: String,
    /// By which means it is attached.
    pub kind: String,
    /// Its number in the kernel, as bpftool shows it.
    pub id: u32,
}

/// What only a CLAT has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClatStatus {
    /// Its IPv4 address.
    pub v4: Ipv4Addr,
    /// Its IPv6 address.
    pub v6: Option<Ipv6Addr>,
    /// Translation prefix.
    pub pref64: String,
    /// Name of the uplink, if there is one.
    pub uplink: Option<String>,
}

/// Offloads of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OffloadStatus {
    /// Offloads that the kernel has granted.
    pub granted: Vec<String>,
    /// Offloads that the kernel has refused.
    pub refused: Vec<String>,
}
