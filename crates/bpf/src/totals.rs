//! The counters of the programs, summed over the processors.

use fordway_xlat::counters::DirectionTotals;
use fordway_xlat::{Direction, DropReason};

use crate::PassReason;

/// What the programs counted since the kernel engine first started. Monotone; survives restarts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Totals {
    /// What was translated, by direction; `fragments` is always 0.
    pub directions: [DirectionTotals; 2],
    /// Dropped packets, by the number of their reason.
    pub drops: [u64; DropReason::COUNT],
    /// Packets passed to the user engine, by the number of the reason.
    pub passed_on: [u64; PassReason::COUNT],
    /// Packets that the programs in front of routing passed to the host's stack, which routes them to the TUN device
    /// and its program; by the number of the reason.
    pub left_to_stack: [u64; PassReason::COUNT],
    /// Packets that were not the translator's.
    pub unmatched: u64,
    /// Frames for other link-layer addresses that programs in front of routing saw; without group addresses.
    pub elsewhere: u64,
    /// Frames that programs in front of routing saw with a VLAN tag.
    pub tagged: u64,
    /// Direct forwarding: packets that programs have translated and the host's stack had to route.
    pub routed: u64,
    /// Packets of shards that other gateways of the cluster own, handed over to them.
    pub handed_over: u64,
    /// Packets whose translation was timed.
    pub measured_packets: u64,
    /// How long these took, in nanoseconds.
    pub measured_ns: u64,
    /// Events that were due and not written: rate limit, or a full buffer.
    pub trace_lost: u64,
    /// BIB entries that the programs have made, by protocol: TCP, UDP, ICMP.
    pub bibs_created: [u64; 3],
    /// Sessions that the programs have made, by protocol.
    pub sessions_created: [u64; 3],
}

impl Default for Totals {
    fn default() -> Self {
        Totals {
            directions: [DirectionTotals::default(); 2],
            drops: [0; DropReason::COUNT],
            passed_on: [0; PassReason::COUNT],
            left_to_stack: [0; PassReason::COUNT],
            unmatched: 0,
            elsewhere: 0,
            tagged: 0,
            routed: 0,
            handed_over: 0,
            measured_packets: 0,
            measured_ns: 0,
            trace_lost: 0,
            bibs_created: [0; 3],
            sessions_created: [0; 3],
        }
    }
}

impl Totals {
    /// What one direction carried.
    #[must_use]
    pub fn direction(&self, direction: Direction) -> DirectionTotals {
        self.directions[direction as usize]
    }

    /// Packets dropped for `reason`.
    #[must_use]
    pub fn drops(&self, reason: DropReason) -> u64 {
        self.drops[usize::from(reason.number())]
    }

    /// Packets passed to the user engine for `reason`.
    #[must_use]
    pub fn passed_on(&self, reason: PassReason) -> u64 {
        self.passed_on[usize::from(reason.number())]
    }

    /// Of the translator's packets, the share that was passed to the user engine: 0 to 1. `None`: no
    /// packet yet.
    #[must_use]
    pub fn passed_on_share(&self) -> Option<f64> {
        let passed_on: u64 = self.passed_on.iter().sum();
        let translated: u64 = self.directions.iter().map(|direction| direction.packets).sum();
        let all = passed_on + translated + self.drops.iter().sum::<u64>();
        (all > 0).then(|| passed_on as f64 / all as f64)
    }

    /// Nanoseconds per translated packet, where that was measured.
    #[must_use]
    pub fn ns_per_packet(&self) -> Option<f64> {
        (self.measured_packets > 0).then(|| self.measured_ns as f64 / self.measured_packets as f64)
    }
}
