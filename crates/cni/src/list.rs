//! The pods of the node, for people and for scripts.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv6Addr;

use fordway_bpf::{Pod, PodTotals, attached_pods};
use fordway_xlat::Direction;
use serde::Serialize;

use crate::Result;
use crate::node::Node;

/// All pods of the node.
#[derive(Clone, Debug, Serialize)]
pub struct List {
    /// The pods, in no particular order.
    pub pods: Vec<Listed>,
}

/// A pod, and what its CLAT has done.
#[derive(Clone, Debug, Serialize)]
pub struct Listed {
    /// The container's name.
    pub container: String,
    /// The interface.
    pub interface: String,
    /// The pod's own IPv6 address.
    pub address: Ipv6Addr,
    /// The CLAT's.
    pub clat: Ipv6Addr,
    /// Whether programs of the pod are at a device. If not, the pod is gone and nobody has called DEL, or somebody has taken
    /// the programs off.
    pub attached: bool,
    /// Packets from IPv4 to IPv6.
    pub v4_to_v6: u64,
    /// Packets from IPv6 to IPv4.
    pub v6_to_v4: u64,
    /// Packets to the CLAT's address that came from outside the prefix: dropped.
    pub foreign: u64,
    /// Packets dropped, by drop reason (docs/drop-reasons.md).
    pub drops: BTreeMap<&'static str, u64>,
    /// Packets dropped because only a user engine could translate or answer them (docs/kernel-engine.md).
    pub untranslatable: BTreeMap<&'static str, u64>,
}

impl Listed {
    fn of((pod, totals): (Pod, PodTotals), attached: &[u64]) -> Self {
        let [v4_to_v6, v6_to_v4] =
            Direction::ALL.map(|direction| totals.translated[direction as usize]);
        Listed {
            container: pod.container,
            interface: pod.interface,
            address: pod.address,
            clat: pod.clat,
            attached: attached.contains(&pod.key),
            v4_to_v6,
            v6_to_v4,
            foreign: totals.foreign,
            drops: totals
                .drops
                .into_iter()
                .map(|(reason, count)| (reason.label(), count))
                .collect(),
            untranslatable: totals
                .untranslatable
                .into_iter()
                .map(|(reason, count)| (reason.label(), count))
                .collect(),
        }
    }

    /// What was lost, such as `too_big 3`, or all.
    fn lost(&self) -> String {
        if !self.attached {
            return "not attached".to_owned();
        }
        let foreign = (self.foreign > 0).then_some(("foreign", self.foreign));
        let reasons =
            self.drops.iter().chain(&self.untranslatable).map(|(label, count)| (*label, *count));
        let lost: Vec<String> =
            reasons.chain(foreign).map(|(label, count)| format!("{label} {count}")).collect();
        if lost.is_empty() { "-".to_owned() } else { lost.join(", ") }
    }
}

/// Reads the entries of the node's pods.
///
/// # Errors
///
/// The kernel refuses, for instance without the privilege.
pub fn list() -> Result<List> {
    let pods = Node::current()?.pods()?;
    let entries = pods.map(|pods| pods.list()).transpose()?.unwrap_or_default();
    let keys: Vec<u64> = entries.iter().map(|(pod, _)| pod.key).collect();
    let attached = if keys.is_empty() { Vec::new() } else { attached_pods(&keys)? };
    Ok(List { pods: entries.into_iter().map(|entry| Listed::of(entry, &attached)).collect() })
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAME: usize = 13;
        writeln!(
            f,
            "{:NAME$}  {:9}  {:39}  {:39}  {:>12}  {:>12}  lost",
            "container", "interface", "address", "clat", "v4 to v6", "v6 to v4"
        )?;
        for pod in &self.pods {
            let name: String = pod.container.chars().take(NAME).collect();
            let Listed { interface, v4_to_v6, v6_to_v4, .. } = pod;
            let [address, clat] = [pod.address, pod.clat].map(|it| it.to_string());
            writeln!(
                f,
                "{name:NAME$}  {interface:9}  {address:39}  {clat:39}  {v4_to_v6:>12}  {v6_to_v4:>12}  {}",
                pod.lost()
            )?;
        }
        Ok(())
    }
}
