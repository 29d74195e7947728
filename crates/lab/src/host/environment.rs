//! The environment record: what the numbers depend on.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::host::{clocksource, cpu};
use crate::hosts::record::HostsRecord;
use crate::mechanism::{self, Availability, package_version};
use crate::process::{find_program, run_str};
use crate::spec::{Experiment, Kind, Load};
use crate::trial::hash;

/// What a machine was like when a run began.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
pub(crate) struct Environment {
    /// When this was read (RFC 3339).
    pub(crate) started: String,
    /// Kernel release and version.
    pub(crate) kernel: String,
    /// Kernel command line.
    pub(crate) command_line: String,
    /// Distribution.
    pub(crate) system: String,
    /// Processor model.
    pub(crate) cpu_model: String,
    /// Processors that the kernel schedules on.
    pub(crate) processors: usize,
    /// Simultaneous multithreading: `on`, `off`, `notsupported`.
    pub(crate) smt: String,
    /// Frequency governor of the first processor.
    pub(crate) governor: String,
    /// Clock source in use.
    pub(crate) clocksource: String,
    /// Clock sources on offer.
    pub(crate) clocksources: Vec<String>,
    /// Virtualisation, as `systemd-detect-virt --vm` names it.
    pub(crate) virtualisation: String,
    /// Share of time stolen by the hypervisor since boot.
    pub(crate) steal_share: f64,
    /// Load average of the last minute.
    pub(crate) load_average: f64,
    /// Cores that other programs kept busy while the run was prepared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) other_cores: Option<f64>,
    /// Memory in MiB.
    pub(crate) memory_mib: u64,
    /// Mitigations by vulnerability.
    pub(crate) mitigations: BTreeMap<String, String>,
    /// Sysctls that change network results.
    pub(crate) sysctls: BTreeMap<String, String>,
    /// The machine's own nftables ruleset; namespaces begin empty.
    pub(crate) ruleset: String,
    /// Offloads, MTU and queues of a fresh veth device, as a run uses it.
    pub(crate) veth_features: Vec<String>,
    /// Version of every program used.
    pub(crate) versions: BTreeMap<String, String>,
    /// SHA-256 of every program used, by path.
    pub(crate) programs: BTreeMap<String, String>,
    /// Both hosts, where the run has two; all else here is that of the client's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hosts: Option<Box<HostsRecord>>,
}

impl Environment {
    /// What of this machine is no longer as it was, and changes results: numbers of before and after must not
    /// be mixed.
    pub(crate) fn changed(&self, now: &Self) -> Option<String> {
        for (what, was, is) in [
            ("kernel", &self.kernel, &now.kernel),
            ("processor", &self.cpu_model, &now.cpu_model),
            ("number of processors", &self.processors.to_string(), &now.processors.to_string()),
        ] {
            if was != is {
                return Some(format!("the {what} was {was} when the run began and is {is} now"));
            }
        }
        if let Some(why) = self.other_host_changed(now) {
            return Some(why);
        }
        let known = |hash: &String| self.programs.values().any(|h| h == hash);
        let other = now.programs.iter().find(|(_, hash)| !known(hash))?;
        Some(format!("{} is not the program that it was when the run began", other.0))
    }

    /// The same of the server's host, and of both hosts' devices on the wire.
    fn other_host_changed(&self, now: &Self) -> Option<String> {
        let (was, is) = self.hosts.as_ref().zip(now.hosts.as_ref())?;
        was.hosts.iter().find_map(|(name, was)| {
            let is = is.hosts.get(name)?;
            let of = |why: String| format!("host {name}: {why}");
            if was.uplink != is.uplink {
                return Some(of(format!("its device {} is not as it was", is.uplink.device)));
            }
            was.environment.as_ref()?.changed(is.environment.as_ref()?).map(of)
        })
    }
}

const SYSCTLS: &[&str] = &[
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.core.netdev_budget",
    "net.core.netdev_max_backlog",
    "net.core.default_qdisc",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_sack",
    "net.netfilter.nf_conntrack_max",
    "net.netfilter.nf_conntrack_buckets",
];

/// A program, its package, and whether an experiment uses it.
type Tool = (&'static str, &'static str, fn(&Experiment) -> bool);

/// Programs that measure and are not the lab's own.
const TOOLS: &[Tool] = &[
    ("dnsperf", "dnsperf", |e| loads(e, |load| matches!(load, Load::Dnsperf(_)))),
    ("ab", "apache2-utils", |e| loads(e, |load| load == Load::Ab)),
    ("wrk", "wrk", |e| loads(e, |load| matches!(load, Load::Fetch(_)))),
    ("nginx", "nginx-light", |e| {
        loads(e, |load| matches!(load, Load::Fetch(_) | Load::Exchange(_) | Load::Ab))
    }),
    ("curl", "curl", |e| e.matrix || loads(e, |load| matches!(load, Load::Fetch(_)))),
    ("vsftpd", "vsftpd", |e| e.matrix),
    ("tcpdump", "tcpdump", |e| loads(e, |load| load == Load::Initiation)),
];

/// Whether one of an experiment's metrics needs a load of this kind.
fn loads(experiment: &Experiment, of: fn(Load) -> bool) -> bool {
    experiment.metrics.iter().filter_map(|metric| metric.load()).any(of)
}

/// Reads the environment; of an experiment with the choices of a run, only what that run uses.
pub(crate) fn record(experiment: &Experiment, fordway: Option<&Path>) -> Result<Environment> {
    let mut versions = BTreeMap::new();
    let mut programs = BTreeMap::new();
    let mut add = |path: &Path| {
        // Many arms share a program.
        if let Entry::Vacant(entry) = programs.entry(path.display().to_string())
            && let Ok(bytes) = std::fs::read(path)
        {
            entry.insert(hash(&bytes));
        }
    };
    let runs = |name: &String| experiment.run.as_ref().is_none_or(|r| r.mechanisms.contains(name));
    for arm in experiment.mechanisms.iter().filter(|arm| runs(&arm.name)) {
        let mut found =
            vec![(&arm.implementation, mechanism::of_arm(arm, fordway)?.availability(arm.kind))];
        if let Some(server) = &arm.resolver {
            found.push((server, mechanism::of(server, fordway)?.availability(Kind::Dns64)));
        }
        for (name, found) in found {
            if let Availability::Ready { version, program } = found {
                versions.insert(name.clone(), version);
                if let Some(program) = program {
                    add(&program);
                }
            }
        }
    }
    for (program, package, of) in TOOLS {
        let used = of(experiment);
        if let Some(path) = find_program(program).filter(|_| used) {
            add(&path);
            let version = package_version(package);
            let version = version.unwrap_or_else(|| "(not from a package)".into());
            versions.insert((*program).into(), version);
        }
    }
    for tool in ["iperf3", "ping", "ip"] {
        if let Some(path) = find_program(tool) {
            add(&path);
        }
        let flag = if tool == "iperf3" { "--version" } else { "-V" };
        let said = run_str(&[tool, flag]).map(|f| f.stdout).unwrap_or_default();
        versions.insert(tool.into(), said.lines().next().unwrap_or_default().trim().into());
    }
    if let Ok(own) = std::env::current_exe() {
        add(&own);
    }
    versions.insert("fordway-lab".into(), env!("CARGO_PKG_VERSION").into());
    Ok(Environment {
        started: crate::trials::now(),
        kernel: said(&["uname", "-srvm"]),
        command_line: without_identifiers(&read("/proc/cmdline")),
        system: os_release(),
        cpu_model: cpu_model(),
        processors: cpu::processors(),
        smt: or_unknown(read("/sys/devices/system/cpu/smt/control")),
        governor: or_unknown(read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
        clocksource: clocksource::current().unwrap_or_else(|_| "unknown".into()),
        clocksources: clocksource::available().unwrap_or_default(),
        virtualisation: or_unknown(said(&["systemd-detect-virt", "--vm"])),
        steal_share: cpu::steal_since_boot(),
        load_average: cpu::load_average().unwrap_or(0.0),
        other_cores: None,
        memory_mib: memory_mib(),
        mitigations: mitigations(),
        sysctls: sysctls(),
        ruleset: said(&["nft", "list", "ruleset"]),
        veth_features: veth_features()?,
        versions,
        programs,
        hosts: None,
    })
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).map(|t| t.trim().to_owned()).unwrap_or_default()
}

fn or_unknown(text: String) -> String {
    if text.is_empty() { "unknown".into() } else { text }
}

fn said(argv: &[&str]) -> String {
    run_str(argv).map(|f| f.stdout.trim().to_owned()).unwrap_or_default()
}

/// Identifiers of disks and machines do not change results and do not belong into a report.
fn without_identifiers(line: &str) -> String {
    let secret = |word: &str| {
        ["root=", "ip=", "systemd.machine_id=", "ds="].iter().any(|p| word.starts_with(p))
    };
    let words: Vec<&str> = line.split_whitespace().filter(|w| !secret(w)).collect();
    words.join(" ")
}

fn os_release() -> String {
    let text = read("/etc/os-release");
    let line = text.lines().find_map(|l| l.strip_prefix("PRETTY_NAME="));
    or_unknown(line.unwrap_or_default().trim_matches('"').to_owned())
}

fn cpu_model() -> String {
    let text = read("/proc/cpuinfo");
    let line = text.lines().find_map(|l| l.strip_prefix("model name")?.split_once(':'));
    or_unknown(line.map(|(_, model)| model.trim().to_owned()).unwrap_or_default())
}

/// What tells this machine from another: model and number of its processors.
pub(crate) fn machine() -> (String, usize) {
    (cpu_model(), cpu::processors())
}

fn memory_mib() -> u64 {
    let text = read("/proc/meminfo");
    let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"));
    let kib = line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

fn mitigations() -> BTreeMap<String, String> {
    let Ok(entries) = std::fs::read_dir("/sys/devices/system/cpu/vulnerabilities") else {
        return BTreeMap::new();
    };
    entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let name = entry.file_name().into_string().ok()?;
            Some((name, std::fs::read_to_string(entry.path()).ok()?.trim().to_owned()))
        })
        .collect()
}

fn sysctls() -> BTreeMap<String, String> {
    let read_one = |name: &&str| {
        let value = read(&format!("/proc/sys/{}", name.replace('.', "/")));
        (!value.is_empty()).then(|| ((*name).to_owned(), value.replace('\t', " ")))
    };
    SYSCTLS.iter().filter_map(read_one).collect()
}

/// Reads them from a veth pair in a namespace that exists for this moment only.
fn veth_features() -> Result<Vec<String>> {
    let guard = crate::state::Guard::new(Path::new("(features)"))?;
    let name = format!("{}features", guard.prefix());
    let run = |argv: &[&str]| run_str(argv).ok().filter(|f| f.status.success());
    if run(&["ip", "netns", "add", &name]).is_none() {
        return Ok(Vec::new());
    }
    let net = format!("--net=/run/netns/{name}");
    let mut features = Vec::new();
    let add = ["ip", "-n", &name, "link", "add", "v0", "type", "veth", "peer", "name", "v1"];
    if let Some(out) = run(&add).and_then(|_| run(&["nsenter", &net, "ethtool", "-k", "v0"])) {
        features = out
            .stdout
            .lines()
            .filter(|l| l.contains(": on"))
            .map(|l| l.trim().split(':').next().unwrap_or_default().to_owned())
            .collect();
    }
    if let Some(out) = run(&["ip", "-n", &name, "-d", "-j", "link", "show", "v0"]) {
        let links: serde_json::Value = serde_json::from_str(&out.stdout).unwrap_or_default();
        for (key, label) in
            [("mtu", "MTU"), ("num_tx_queues", "send queues"), ("num_rx_queues", "receive queues")]
        {
            if let Some(number) = links[0][key].as_u64() {
                features.push(format!("{number} {label}"));
            }
        }
    }
    Ok(features)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_program_or_kernel_is_noticed_and_another_path_is_not() {
        let of = |kernel: &str, path: &str, hash: &str| {
            let empty = serde_json::json!({
                "started": "", "kernel": kernel, "command_line": "", "system": "", "cpu_model": "",
                "processors": 2, "smt": "", "governor": "", "clocksource": "", "clocksources": [],
                "virtualisation": "", "steal_share": 0.0, "load_average": 0.0, "memory_mib": 1,
                "mitigations": {}, "sysctls": {}, "ruleset": "", "veth_features": [],
                "versions": {}, "programs": {path: hash}
            });
            serde_json::from_value::<Environment>(empty).unwrap()
        };
        let then = of("Linux 6.1", "/opt/fordway", "aa");
        assert_eq!(then.changed(&of("Linux 6.1", "/usr/bin/fordway", "aa")), None);
        let why = then.changed(&of("Linux 6.1", "/opt/fordway", "bb")).unwrap();
        assert!(why.starts_with("/opt/fordway is not the program"), "{why}");
        let why = then.changed(&of("Linux 6.2", "/opt/fordway", "aa")).unwrap();
        assert!(why.contains("was Linux 6.1") && why.contains("is Linux 6.2"), "{why}");
    }

    #[test]
    fn the_command_line_keeps_settings_and_loses_identifiers() {
        let line = "console=ttyS0 root=UUID=1234 mitigations=off ip=192.0.2.1";
        assert_eq!(without_identifiers(line), "console=ttyS0 mitigations=off");
    }
}
