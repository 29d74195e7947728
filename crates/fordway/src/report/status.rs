//! What runs.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    AdvertiseStatus, AutoStatus, Dns64Status, DstmClientStats, DstmServerStatus, DstmTepStatus,
    DualStackStatus, Nat44Status, Nat64Status, ProxyStatus, TrtStatus,
};
use crate::output::{FAINT, GOOD, STRONG};

/// A daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Status {
    /// Version of the program.
    pub(crate) version: String,
    /// Process.
    pub(crate) pid: u32,
    /// Where the configuration came from.
    pub(crate) config: String,
    /// Seconds since it was ready.
    pub(crate) uptime_seconds: u64,
    /// CLATs that set themselves up; those that translate are among the translators too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) automatic: Vec<AutoStatus>,
    /// The translators, in the order of the configuration.
    pub(crate) translators: Vec<TranslatorStatus>,
    /// The DNS64 server, if one runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) dns64: Option<Dns64Status>,
    /// Devices with router advertisements.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) advertise: Vec<AdvertiseStatus>,
    /// Entries of mode nat44.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) nat44: Vec<Nat44Status>,
    /// Entries of mode dual-stack.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) dual_stack: Vec<DualStackStatus>,
    /// Transport relays.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) trt: Vec<TrtStatus>,
    /// HTTP proxies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) proxies: Vec<ProxyStatus>,
    /// The DSTM server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) dstm_server: Option<DstmServerStatus>,
    /// The tunnel end point that a server on another host tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) dstm_tep: Option<DstmTepStatus>,
    /// DSTM clients; their softwires are among the translators too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) dstm_clients: Vec<DstmClientStats>,
}

/// A translator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TranslatorStatus {
    pub(crate) name: String,
    pub(crate) mode: String,
    /// The engine that carries the packets.
    pub(crate) engine: String,
    /// Why that one.
    pub(crate) engine_reason: String,
    /// Where packets are taken.
    pub(crate) attach: String,
    /// Why not where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) attach_reason: Option<String>,
    /// The kernel engine, if it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kernel: Option<KernelStatus>,
    pub(crate) interface: String,
    pub(crate) ifindex: u32,
    /// The interface existed before and stays.
    pub(crate) adopted: bool,
    pub(crate) queues: usize,
    /// Packets that wait in each queue at most.
    #[serde(default)]
    pub(crate) queue_length: u32,
    /// Packets dropped because a queue was full.
    #[serde(default)]
    pub(crate) receive_queue_full: u64,
    /// The processor on which each queue's thread stays while busy; empty if they roam.
    pub(crate) processors: Vec<usize>,
    pub(crate) offloads: OffloadStatus,
    /// IPv6 path MTU, in octets.
    pub(crate) mtu: u32,
    pub(crate) mtu_from: String,
    pub(crate) pool6: Vec<String>,
    /// Number of explicit address mappings, a CLAT's own among them.
    pub(crate) eam: usize,
    pub(crate) icmp_source4: Option<Ipv4Addr>,
    pub(crate) icmp_source6: Option<Ipv6Addr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) clat: Option<ClatStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) nat64: Option<Nat64Status>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) softwire: Option<SoftwireStatus>,
    /// Whether the host's set-up is managed.
    pub(crate) managed: bool,
    pub(crate) addresses: Vec<String>,
    pub(crate) routes: Vec<String>,
    pub(crate) settings: Vec<String>,
    /// Seconds since its engine started.
    pub(crate) uptime_seconds: u64,
}

/// One end of softwires.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SoftwireStatus {
    /// `tep` or `client`.
    pub(crate) role: String,
    /// This end's own address.
    pub(crate) local: Option<Ipv6Addr>,
    /// A client's tunnel end point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) remote: Option<Ipv6Addr>,
    /// A client's IPv4 address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) v4: Option<Ipv4Addr>,
    /// Bindings now.
    pub(crate) bindings: usize,
    /// Of these, those whose path a router has said to be narrower.
    pub(crate) lowered_paths: usize,
}

impl SoftwireStatus {
    fn lines(&self) -> Vec<(&'static str, String)> {
        let local = self.local.map_or("none".to_owned(), |local| local.to_string());
        let tunnel = match (self.remote, self.v4) {
            (Some(remote), Some(v4)) => format!("{v4} by {local} to {remote}"),
            (Some(remote), None) => format!("{local} to {remote}, no IPv4 address yet"),
            (None, _) => format!("end point {local}"),
        };
        let paths = match self.lowered_paths {
            0 => String::new(),
            paths => format!(", {paths} with a narrower path"),
        };
        vec![("tunnel", tunnel), ("bindings", format!("{}{paths}", self.bindings))]
    }
}

/// A kernel engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct KernelStatus {
    /// By which means of the kernel it is attached: `tcx`, `clsact`, `xdp native`, `xdp generic`.
    pub(crate) hook: String,
    /// Each program.
    pub(crate) programs: Vec<ProgramStatus>,
    /// Of the translator's packets, the share that it left to the user engine, 0 to 1; none before the
    /// first packet.
    pub(crate) passed_on_share: Option<f64>,
    /// How many it left, by cause.
    pub(crate) passed_on: BTreeMap<String, u64>,
    /// Whether it takes the time.
    pub(crate) measure: bool,
    /// Mean of the time per translated packet, where it was taken.
    pub(crate) ns_per_packet: Option<f64>,
    /// What is attached as it was asked for, and does not do what was meant by it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) warnings: Vec<KernelWarning>,
}

/// What a kernel engine warns of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KernelWarning {
    /// Tells it from others.
    pub(crate) about: String,
    /// One sentence without a full stop.
    pub(crate) text: String,
    /// What to do, likewise.
    pub(crate) advice: String,
}

/// A program of a kernel engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProgramStatus {
    pub(crate) device: String,
    /// `egress`, `ingress` or `xdp`.
    pub(crate) place: String,
    /// By which means it is attached.
    pub(crate) kind: String,
    /// Its number in the kernel, as bpftool shows it.
    pub(crate) id: u32,
}

/// What only a CLAT has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClatStatus {
    pub(crate) v4: Ipv4Addr,
    pub(crate) v6: Option<Ipv6Addr>,
    pub(crate) pref64: String,
    pub(crate) uplink: Option<String>,
}

/// Offloads of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OffloadStatus {
    pub(crate) granted: Vec<String>,
    pub(crate) refused: Vec<String>,
}

impl Status {
    /// The status as text with styles.
    pub(crate) fn render(&self) -> String {
        let mut text = format!(
            "{STRONG}fordway {}{STRONG:#}, process {}, up {}, configuration {}\n",
            self.version,
            self.pid,
            duration(self.uptime_seconds),
            self.config
        );
        for automatic in &self.automatic {
            text.push('\n');
            text.push_str(&automatic.render());
        }
        for translator in &self.translators {
            text.push('\n');
            text.push_str(&translator.render());
        }
        let of_kernel = self.nat44.iter().map(Nat44Status::render);
        let of_kernel = of_kernel.chain(self.dual_stack.iter().map(DualStackStatus::render));
        let services = of_kernel.chain(self.dns64.iter().map(Dns64Status::render));
        let services = services.chain(self.advertise.iter().map(AdvertiseStatus::render));
        let services = services.chain(self.trt.iter().map(TrtStatus::render));
        let services = services.chain(self.proxies.iter().map(ProxyStatus::render));
        let services = services.chain(self.dstm_server.iter().map(DstmServerStatus::render));
        let services = services.chain(self.dstm_tep.iter().map(DstmTepStatus::render));
        for service in services.chain(self.dstm_clients.iter().map(DstmClientStats::render)) {
            text.push('\n');
            text.push_str(&service);
        }
        text
    }
}

impl TranslatorStatus {
    fn render(&self) -> String {
        let mut text = format!(
            "{GOOD}{}{GOOD:#} {STRONG}{}{STRONG:#}, {} engine {FAINT}({}){FAINT:#}, up {}\n",
            self.name,
            self.mode,
            self.engine,
            self.engine_reason,
            duration(self.uptime_seconds)
        );
        let mut line = |label: &str, value: &str| {
            if !value.is_empty() {
                let _ = writeln!(text, "  {label:<13} {value}");
            }
        };
        let adopted = if self.adopted { ", existed before and stays" } else { "" };
        line("interface", &format!("{} (index {}){adopted}", self.interface, self.ifindex));
        let at = match &self.attach_reason {
            Some(reason) => format!("{} ({reason})", self.attach),
            None => self.attach.clone(),
        };
        line("attached", &at);
        if let Some(kernel) = &self.kernel {
            for (label, value) in kernel.lines() {
                line(label, &value);
            }
        }
        let processors: Vec<String> = self.processors.iter().map(ToString::to_string).collect();
        let pinned = match processors.as_slice() {
            [] => String::new(),
            [one] => format!(", on processor {one} when busy"),
            several => format!(", on processors {} when busy", several.join(", ")),
        };
        let each = if self.queues == 1 { "" } else { " each" };
        let held = format!(", up to {} packets{each}", self.queue_length);
        line("queues", &format!("{}{held}{pinned}", self.queues));
        if self.receive_queue_full > 0 {
            let text = "packets, because a queue was full (receive_queue_full)";
            line("lost", &format!("{} {text}", self.receive_queue_full));
        }
        line("offloads", &self.offloads.render());
        line("path MTU", &format!("{} octets, from {}", self.mtu, self.mtu_from));
        if let Some(clat) = &self.clat {
            let v6 = clat.v6.map_or("none".to_owned(), |v6| v6.to_string());
            let uplink = clat.uplink.as_deref().unwrap_or("none");
            line("CLAT", &format!("{} is {v6}, uplink {uplink}", clat.v4));
        }
        line("prefixes", &self.pool6.join(", "));
        match (&self.nat64, &self.softwire) {
            (_, Some(softwire)) => {
                for (label, value) in softwire.lines() {
                    line(label, &value);
                }
            }
            (Some(nat64), None) => {
                for (label, value) in nat64.lines() {
                    line(label, &value);
                }
            }
            (None, None) => line("mappings", &self.eam.to_string()),
        }
        let source4 = self.icmp_source4.map_or("off".to_owned(), |source| source.to_string());
        let source6 = self.icmp_source6.map_or("none".to_owned(), |source| source.to_string());
        line("ICMP sources", &format!("{source4}, {source6}"));
        if self.managed {
            line("addresses", &self.addresses.join(", "));
            line("routes", &self.routes.join(", "));
        } else {
            line("host", "not managed");
        }
        text
    }
}

impl KernelStatus {
    /// What to show, with labels.
    fn lines(&self) -> Vec<(&'static str, String)> {
        let program = |it: &ProgramStatus| {
            format!("{} at the {} of {} (program {})", it.kind, it.place, it.device, it.id)
        };
        let programs: Vec<String> = self.programs.iter().map(program).collect();
        let passed_on = match self.passed_on_share {
            Some(share) => {
                let causes = self.passed_on.iter().map(|(cause, count)| format!("{cause} {count}"));
                let causes = causes.collect::<Vec<_>>().join(", ");
                let causes = if causes.is_empty() { causes } else { format!(": {causes}") };
                format!("{:.4} % of the packets go on to the user engine{causes}", share * 100.0)
            }
            None => "no packet yet".to_owned(),
        };
        let mut lines = vec![("programs", programs.join(", ")), ("passed on", passed_on)];
        match (self.measure, self.ns_per_packet) {
            (_, Some(ns)) => lines.push(("time", format!("{ns:.0} ns per packet in the programs"))),
            (true, None) => lines.push(("time", "taken from the next packet on".to_owned())),
            (false, None) => {}
        }
        let warnings = self.warnings.iter();
        lines.extend(warnings.map(|it| ("warning", format!("{}; {}", it.text, it.advice))));
        lines
    }
}

impl OffloadStatus {
    fn render(&self) -> String {
        let granted = match self.granted.as_slice() {
            [] => "none".to_owned(),
            granted => granted.join(", "),
        };
        match self.refused.as_slice() {
            [] => granted,
            refused => format!("{granted} (refused by the kernel: {})", refused.join(", ")),
        }
    }
}

pub(super) fn duration(seconds: u64) -> String {
    humantime::format_duration(Duration::from_secs(seconds)).to_string()
}
