//! What is counted of the machine during a trial: packets of devices, time of processors.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The kernel counts in steps of 10 ms, for each processor and program: less than this is no work of others, s.
const LEAST_OTHER_S: f64 = 0.1;

/// Counters of one device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LinkCounters {
    /// Octets received.
    pub rx_bytes: u64,
    /// Packets received; a super-packet counts as one.
    pub rx_packets: u64,
    /// Packets dropped or in error on receipt.
    pub rx_lost: u64,
    /// Octets sent.
    pub tx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Packets dropped or in error on sending; a full TUN queue counts here.
    pub tx_lost: u64,
}

impl LinkCounters {
    /// What was counted since `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            rx_bytes: self.rx_bytes.saturating_sub(before.rx_bytes),
            rx_packets: self.rx_packets.saturating_sub(before.rx_packets),
            rx_lost: self.rx_lost.saturating_sub(before.rx_lost),
            tx_bytes: self.tx_bytes.saturating_sub(before.tx_bytes),
            tx_packets: self.tx_packets.saturating_sub(before.tx_packets),
            tx_lost: self.tx_lost.saturating_sub(before.tx_lost),
        }
    }
}

/// Counters by `role/device`.
pub type Snapshot = BTreeMap<String, LinkCounters>;

/// What was counted between two snapshots.
pub fn difference(before: &Snapshot, after: &Snapshot) -> Snapshot {
    let get = |name: &String| before.get(name).copied().unwrap_or_default();
    after.iter().map(|(name, c)| (name.clone(), c.since(get(name)))).collect()
}

/// Processor use during one trial.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
pub struct CpuUse {
    /// Share of the whole machine's time that was busy, 0 to 1.
    pub busy_share: f64,
    /// Share spent in software interrupts: forwarding of the kernel.
    pub softirq_share: f64,
    /// Share that the hypervisor took away.
    pub steal_share: f64,
    /// Processors worth of time that the mechanism's processes used; 1.0 is one core full.
    pub mechanism_cores: Option<f64>,
    /// Threads of the mechanism's processes.
    pub mechanism_threads: Option<u32>,
    /// Busy time of all processors, s.
    #[serde(default)]
    pub busy_s: f64,
    /// Of it in programs.
    #[serde(default)]
    pub user_s: f64,
    /// Of it in system calls.
    #[serde(default)]
    pub system_s: f64,
    /// Of it in software interrupts.
    #[serde(default)]
    pub softirq_s: f64,
    /// Time of the mechanism's own processes, s.
    #[serde(default)]
    pub mechanism_s: Option<f64>,
    /// Processors worth of time of the lab and all that it has started: generators, servers, the mechanism.
    #[serde(default)]
    pub lab_cores: f64,
    /// Length of the measurement, s.
    #[serde(default)]
    pub seconds: f64,
    /// Whether this is one of two hosts: the one on which the mechanism runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_two: bool,
}

impl CpuUse {
    /// Cores that were busy with neither what the lab has started nor forwarding.
    pub fn other_cores(&self) -> f64 {
        let other = self.busy_s - self.softirq_s - self.lab_cores * self.seconds;
        if other < LEAST_OTHER_S { 0.0 } else { other / self.seconds }
    }
}
