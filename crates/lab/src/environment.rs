//! Reads the environment that goes into a run's record.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;

use fordway_data::environment::Environment;
use fordway_data::spec::{Experiment, Kind, Load, Transact};
use fordway_data::trial::hash;

use crate::error::Result;
use crate::host::{affinity, clocksource, cpu};
use crate::mechanism::{self, Availability, package_version};
use crate::process::{find_program, run_str};

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
    ("wrk", "wrk", |e| loads(e, |load| matches!(load, Load::Fetch(_) | Load::Transactions(_)))),
    ("hey", "hey", |e| loads(e, |load| matches!(load, Load::Transactions(_)))),
    ("h2load", "nghttp2-client", |e| loads(e, |load| load == Load::Transactions(Transact::Held))),
    ("nginx", "nginx-light", |e| {
        let of = |load| {
            matches!(load, Load::Fetch(_) | Load::Exchange(_) | Load::Ab | Load::Transactions(_))
        };
        loads(e, of)
    }),
    ("curl", "curl", |e| {
        e.matrix || loads(e, |load| matches!(load, Load::Fetch(_) | Load::Transactions(_)))
    }),
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
        started: crate::host::now(),
        kernel: said(&["uname", "-srvm"]),
        command_line: without_identifiers(&read("/proc/cmdline")),
        system: os_release(),
        cpu_model: cpu_model(),
        processors: cpu::processors(),
        smt: or_unknown(read("/sys/devices/system/cpu/smt/control")),
        governor: or_unknown(read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
        clocksource: clocksource::current().unwrap_or_else(|_| "unknown".into()),
        clocksources: clocksource::available().unwrap_or_default(),
        virtualisation: match crate::guest::around() {
            Some(guest) => guest.words(),
            None => or_unknown(said(&["systemd-detect-virt", "--vm"])),
        },
        steal_share: cpu::steal_since_boot(),
        load_average: cpu::load_average().unwrap_or(0.0),
        other_cores: None,
        memory_mib: memory_mib(),
        mitigations: mitigations(),
        sysctls: sysctls(),
        ruleset: said(&["nft", "list", "ruleset"]),
        veth_features: veth_features()?,
        affinity: Some(affinity::found(None)),
        pinned: None,
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
    fn the_command_line_keeps_settings_and_loses_identifiers() {
        let line = "console=ttyS0 root=UUID=1234 mitigations=off ip=192.0.2.1";
        assert_eq!(without_identifiers(line), "console=ttyS0 mitigations=off");
    }
}
