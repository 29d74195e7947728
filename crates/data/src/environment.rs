//! What a run's numbers depend on: the machine, or both.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::spec::{Processors, Role};

/// What a machine was like when a run began.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Environment {
    /// When this was read (RFC 3339).
    pub started: String,
    /// Kernel release and version.
    pub kernel: String,
    /// Kernel command line.
    pub command_line: String,
    /// Distribution.
    pub system: String,
    /// Processor model.
    pub cpu_model: String,
    /// Processors that the kernel schedules on.
    pub processors: usize,
    /// Simultaneous multithreading: `on`, `off`, `notsupported`.
    pub smt: String,
    /// Frequency governor of the first processor.
    pub governor: String,
    /// Clock source in use.
    pub clocksource: String,
    /// Clock sources on offer.
    pub clocksources: Vec<String>,
    /// Virtualisation, as `systemd-detect-virt --vm` names it.
    pub virtualisation: String,
    /// Share of time stolen by the hypervisor since boot.
    pub steal_share: f64,
    /// Load average of the last minute.
    pub load_average: f64,
    /// Cores that other programs kept busy while the run was prepared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_cores: Option<f64>,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Mitigations by vulnerability.
    pub mitigations: BTreeMap<String, String>,
    /// Sysctls that change network results.
    pub sysctls: BTreeMap<String, String>,
    /// The machine's own nftables ruleset; namespaces begin empty.
    pub ruleset: String,
    /// Offloads, MTU and queues of a fresh veth device, as a run uses it.
    pub veth_features: Vec<String>,
    /// Version of every program used.
    pub versions: BTreeMap<String, String>,
    /// SHA-256 of every program used, by path.
    pub programs: BTreeMap<String, String>,
    /// On which processors what is done, as it was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// What the run bound to processors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<Pinned>,
    /// Both hosts, where the run has two; all else here is that of the client's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Box<HostsRecord>>,
}

impl Environment {
    /// What of this machine is no longer as it was, and changes results: numbers of before and after must not
    /// be mixed.
    pub fn changed(&self, now: &Self) -> Option<String> {
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

    /// Calls `change` with the record of each machine of a run: this one, and that of the server's host, where there are two.
    pub fn each_machine(&mut self, mut change: impl FnMut(&mut Self, bool)) {
        change(self, false);
        let hosts = self.hosts.iter_mut().flat_map(|record| record.hosts.values_mut());
        hosts.filter_map(|host| host.environment.as_mut()).for_each(|server| change(server, true));
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

/// What of a machine decides on which processors work is done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Affinity {
    /// Processors that the lab and all that it starts may use.
    pub allowed: Processors,
    /// Processors that the scheduler uses only for what is bound to them (`isolcpus`).
    #[serde(default, skip_serializing_if = "Processors::is_empty")]
    pub isolated: Processors,
    /// Frequency governors, each with its processors; empty: the kernel sets no frequencies.
    pub governors: BTreeMap<String, Processors>,
    /// Whether irqbalance runs, which moves interrupts.
    pub irqbalance: bool,
    /// Interrupts of the device on the wire, by number and name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub interrupts: BTreeMap<String, String>,
    /// Processors, as a mask, that its receive queues hand packets on to (RPS); zeros: none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rps: BTreeMap<String, String>,
    /// Processors, as a mask, that send by each of its queues (XPS); zeros: any.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub xps: BTreeMap<String, String>,
}

/// What a run bound to processors of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pinned {
    /// What was asked for.
    pub asked: String,
    /// The processors of each role on this machine.
    pub roles: BTreeMap<Role, Processors>,
    /// What was in force while the run measured.
    pub in_force: Affinity,
    /// What was no longer so at its end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moved: Vec<String>,
}

impl Affinity {
    /// Settings as text, by name: for a table, and to see what has changed.
    pub fn settings(&self) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        for (governor, on) in &self.governors {
            for cpu in on.iter() {
                all.insert(format!("governor of processor {cpu}"), governor.clone());
            }
        }
        for (what, of) in [("interrupt", &self.interrupts), ("RPS", &self.rps), ("XPS", &self.xps)]
        {
            all.extend(of.iter().map(|(name, on)| (format!("{what} {name}"), on.clone())));
        }
        all
    }

    /// What is not as it is here in `now`, in words.
    pub fn moved(&self, now: &Self) -> Vec<String> {
        let now = now.settings();
        let differs = |(name, was): (String, String)| {
            let is = now.get(&name).map_or("gone", String::as_str);
            (is != was).then(|| format!("{name}: {was} at first, {is} at the end"))
        };
        self.settings().into_iter().filter_map(differs).collect()
    }
}

/// Both hosts of a run.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct HostsRecord {
    /// Round-trip times between them over the wire before the run, with no box in between: ms.
    pub rtt_ms: Option<Rtt>,
    /// By name.
    pub hosts: BTreeMap<String, HostRecord>,
}

/// Round-trip times.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
pub struct Rtt {
    /// Least.
    pub min: f64,
    /// Mean.
    pub mean: f64,
    /// Greatest.
    pub max: f64,
    /// Replies.
    pub n: usize,
}

/// One host.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct HostRecord {
    /// `client` or `server`.
    pub role: String,
    /// Its device on the wire.
    pub uplink: Nic,
    /// Its environment; the client's is the record that this stands in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment: Option<Environment>,
}

/// A network device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Nic {
    /// Its name.
    pub device: String,
    /// Its driver, with version and firmware.
    pub driver: String,
    /// Mbit/s, as the driver says: `1000Mb/s`, `Unknown!`.
    pub speed: String,
    /// Its MTU.
    pub mtu: u64,
    /// Queues for sending, for receiving.
    pub queues: (u64, u64),
    /// Offloads that are on.
    pub offloads: Vec<String>,
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
}
