//! Counters.

use std::collections::BTreeMap;

use fordway_counters::{dns64, dstm, proxy, router};
use fordway_xlat::{Counters, Direction, DropReason};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    AutoStatus, ClusterStats, DstmClientStats, DualStackStats, Nat44Stats, Nat64Stats, TrtStats,
};

/// All counters of a daemon.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stats {
    /// CLATs that set themselves up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub automatic: Vec<AutoStatus>,
    /// In the order of the configuration.
    pub translators: Vec<TranslatorStats>,
    /// Of the DNS64 server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns64: Option<dns64::Stats>,
    /// Of the router advertisements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router: Option<router::Stats>,
    /// Of entries of mode nat44.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nat44: Vec<Nat44Stats>,
    /// Of entries of mode dual-stack.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dual_stack: Vec<DualStackStats>,
    /// Of the transport relays.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trt: Vec<TrtStats>,
    /// Of the proxies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proxies: Vec<proxy::Stats>,
    /// Of the DSTM server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dstm_server: Option<dstm::ServerStats>,
    /// Of the tunnel end point that a server on another host tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dstm_tep: Option<dstm::TepStats>,
    /// Of DSTM clients.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dstm_clients: Vec<DstmClientStats>,
    /// Of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterStats>,
}

/// The counters of a translator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TranslatorStats {
    /// Its name.
    pub name: String,
    /// Its mode.
    pub mode: String,
    /// The sums over its queues and its kernel engine.
    #[serde(flatten)]
    pub totals: Totals,
    /// Each queue's, in the order of their numbers: what the user engine did.
    pub queues: Vec<Totals>,
    /// What the kernel engine did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KernelStats>,
    /// Of a stateful translator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nat64: Option<Nat64Stats>,
}

/// The counters of a kernel engine. They go on when the daemon is started anew.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KernelStats {
    /// IPv4 in, IPv6 out.
    pub v4_to_v6: DirectionStats,
    /// IPv6 in, IPv4 out.
    pub v6_to_v4: DirectionStats,
    /// Packets dropped, by the label of the reason; every reason is there.
    pub drops: BTreeMap<String, u64>,
    /// Packets left to the user engine, by the label of the cause.
    pub passed_on: BTreeMap<String, u64>,
    /// Packets that programs in front of routing (`ingress`, XDP) left to the host's stack, by the label of the cause.
    pub left_to_stack: BTreeMap<String, u64>,
    /// Packets seen that were none of the translator's.
    pub unmatched: u64,
    /// Frames that programs in front of routing saw for other link-layer addresses; not those for many.
    #[serde(default)]
    pub elsewhere: u64,
    /// Frames that programs in front of routing saw with a VLAN tag.
    #[serde(default)]
    pub tagged: u64,
    /// Direct forwarding: packets that programs translated and the host's stack had to route, because no neighbour was
    /// known, or the packet was too long, or its route led elsewhere than out of a device.
    #[serde(default)]
    pub routed: u64,
    /// Packets whose shard another gateway of the cluster owns, handed over to it.
    #[serde(default)]
    pub handed_over: u64,
    /// Packets whose time was taken.
    pub measured_packets: u64,
    /// That time, in nanoseconds.
    pub measured_ns: u64,
    /// Trace events that were not told, since there were too many.
    pub trace_lost: u64,
}

impl KernelStats {
    /// What it shares with the user engine.
    pub fn as_totals(&self) -> Totals {
        Totals {
            v4_to_v6: self.v4_to_v6,
            v6_to_v4: self.v6_to_v4,
            drops: self.drops.clone(),
            handed_over: self.handed_over,
            ..Totals::default()
        }
    }
}

/// One set of counters: a queue's, or sums of several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Totals {
    /// IPv4 in, IPv6 out.
    pub v4_to_v6: DirectionStats,
    /// IPv6 in, IPv4 out.
    pub v6_to_v4: DirectionStats,
    /// Packets dropped, by the label of the reason; every reason is there.
    pub drops: BTreeMap<String, u64>,
    /// ICMP errors sent.
    pub icmp_errors: IcmpErrorStats,
    /// Packets left untouched.
    pub passed: u64,
    /// Packets whose shard another gateway of the cluster owns, handed over to it.
    #[serde(default)]
    pub handed_over: u64,
    /// Errors of the device's queues.
    pub io: IoStats,
}

/// What a direction carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DirectionStats {
    /// Packets translated; a super-packet is one.
    pub packets: u64,
    /// Packets translated as they are on a wire.
    pub segments: u64,
    /// Octets of the IP packets taken in and translated.
    pub octets: u64,
    /// Fragments made.
    pub fragments: u64,
}

/// ICMP errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IcmpErrorStats {
    /// ICMPv4 errors sent.
    pub v4: u64,
    /// ICMPv6 errors sent.
    pub v6: u64,
    /// Not sent: rate limit, switched off, or no source address.
    pub suppressed: u64,
}

/// Errors of queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IoStats {
    /// Reads that failed.
    pub receive_errors: u64,
    /// Packets that a full queue did not take.
    pub send_full: u64,
    /// Packets that an interface that is down did not take.
    pub send_down: u64,
    /// Packets for which the kernel had no memory.
    pub send_no_buffers: u64,
    /// Packets that the kernel found malformed.
    pub send_refused: u64,
}

impl IoStats {
    /// Each counter with its label.
    pub fn labelled(&self) -> [(&'static str, u64); 5] {
        [
            ("receive_errors", self.receive_errors),
            ("send_full", self.send_full),
            ("send_down", self.send_down),
            ("send_no_buffers", self.send_no_buffers),
            ("send_refused", self.send_refused),
        ]
    }
}

impl Totals {
    /// The counters as they stand.
    pub fn read(counters: &Counters) -> Totals {
        let direction = |direction| {
            let totals = counters.direction(direction);
            DirectionStats {
                packets: totals.packets,
                segments: totals.segments,
                octets: totals.octets,
                fragments: totals.fragments,
            }
        };
        let drops = DropReason::ALL
            .iter()
            .map(|reason| (reason.label().to_owned(), counters.dropped(*reason)));
        Totals {
            v4_to_v6: direction(Direction::V4ToV6),
            v6_to_v4: direction(Direction::V6ToV4),
            drops: drops.collect(),
            icmp_errors: IcmpErrorStats {
                v4: counters.icmp_errors(Direction::V4ToV6),
                v6: counters.icmp_errors(Direction::V6ToV4),
                suppressed: counters.icmp_errors_suppressed(),
            },
            passed: counters.passed(),
            handed_over: counters.handed_over().packets,
            io: IoStats::default(),
        }
    }

    /// Packets dropped for any reason.
    pub fn dropped(&self) -> u64 {
        self.drops.values().fold(0, |sum, count| sum.wrapping_add(*count))
    }

    /// Each direction with its label.
    pub fn directions(&self) -> [(&'static str, DirectionStats); 2] {
        [(Direction::V4ToV6.label(), self.v4_to_v6), (Direction::V6ToV4.label(), self.v6_to_v4)]
    }

    /// Adds the counters of another queue.
    pub fn add(&mut self, other: &Totals) {
        self.zip(other, u64::wrapping_add);
    }

    /// What has been counted since `earlier`.
    pub fn since(&self, earlier: &Totals) -> Totals {
        let mut difference = self.clone();
        difference.zip(earlier, u64::wrapping_sub);
        difference
    }

    fn zip(&mut self, other: &Totals, join: impl Fn(u64, u64) -> u64) {
        let mut other = other.clone();
        for (mine, others) in self.numbers().zip(other.numbers()) {
            *mine = join(*mine, *others);
        }
        for (label, count) in other.drops {
            let mine = self.drops.entry(label).or_default();
            *mine = join(*mine, count);
        }
    }

    /// All numbers but those of drops.
    fn numbers(&mut self) -> impl Iterator<Item = &mut u64> {
        let Totals {
            v4_to_v6: to6,
            v6_to_v4: to4,
            icmp_errors: icmp,
            passed,
            handed_over,
            io,
            drops: _,
        } = self;
        [
            [&mut to6.packets, &mut to6.segments, &mut to6.octets, &mut to6.fragments],
            [&mut to4.packets, &mut to4.segments, &mut to4.octets, &mut to4.fragments],
            [&mut icmp.v4, &mut icmp.v6, &mut icmp.suppressed, passed],
            [&mut io.receive_errors, &mut io.send_full, &mut io.send_down, &mut io.send_no_buffers],
        ]
        .into_iter()
        .flatten()
        .chain([&mut io.send_refused, handed_over])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_differences_are_inverse() {
        let counters = Counters::default();
        counters.drop(DropReason::Loop);
        let mut one = Totals::read(&counters);
        one.v4_to_v6.octets = u64::MAX;
        one.io.send_full = 3;
        let mut sum = one.clone();
        sum.add(&one);
        assert_eq!(sum.drops["loop"], 2);
        assert_eq!(sum.dropped(), 2);
        assert_eq!(sum.since(&one), one);
        assert_eq!(one.since(&one), Totals::read(&Counters::default()));
    }

    #[test]
    fn every_reason_is_listed() {
        let totals = Totals::read(&Counters::default());
        assert_eq!(totals.drops.len(), DropReason::ALL.len());
    }
}
