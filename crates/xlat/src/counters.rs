//! Counters of one queue of one translator.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::verdict::{DropReason, Verdict};

/// Direction of translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// IPv4 came in.
    V4ToV6,
    /// IPv6 came in.
    V6ToV4,
}

impl Direction {
    /// Both directions.
    pub const ALL: [Direction; 2] = [Direction::V4ToV6, Direction::V6ToV4];

    /// The direction's label in metrics and JSON.
    pub const fn label(self) -> &'static str {
        match self {
            Direction::V4ToV6 => "v4_to_v6",
            Direction::V6ToV4 => "v6_to_v4",
        }
    }

    /// The direction of a packet by its first octet; `None`: neither IPv4 nor IPv6.
    #[inline]
    pub fn of(packet: &[u8]) -> Option<Direction> {
        match packet.first()? >> 4 {
            4 => Some(Direction::V4ToV6),
            6 => Some(Direction::V6ToV4),
            _ => None,
        }
    }
}

/// Counters with one writer (the queue's thread) and any number of readers.
///
/// Each is monotone and wraps at 2^64. Reading is not a snapshot: a reader may see one counter of a
/// packet and not yet another.
#[derive(Debug, Default)]
pub struct Counters {
    directions: [DirectionCounters; 2],
    drops: DropCounters,
    /// ICMP errors sent, by the family of the error: IPv4, IPv6.
    icmp_errors: [Cell; 2],
    /// ICMP errors not sent: rate limit, switched off, or no source address configured.
    icmp_errors_suppressed: Cell,
    passed: Cell,
    handed_over: HandedOverCounters,
}

/// What a direction carried.
#[derive(Debug, Default)]
struct DirectionCounters {
    packets: Cell,
    segments: Cell,
    octets: Cell,
    fragments: Cell,
}

/// What was handed over to other gateways.
#[derive(Debug, Default)]
struct HandedOverCounters {
    packets: Cell,
    octets: Cell,
}

#[derive(Debug)]
struct DropCounters([Cell; DropReason::COUNT]);

impl Default for DropCounters {
    fn default() -> Self {
        DropCounters([const { Cell(AtomicU64::new(0)) }; DropReason::COUNT])
    }
}

/// A counter with a single writer: load and store cost no locked instruction.
#[derive(Debug, Default)]
struct Cell(AtomicU64);

impl Cell {
    #[inline]
    fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What one direction of translation carried, as read at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionTotals {
    /// Packets translated; a super-packet is one.
    pub packets: u64,
    /// Packets translated as they go over a wire: a super-packet counts its segments.
    pub segments: u64,
    /// Octets of the IP packets taken in and translated.
    pub octets: u64,
    /// Fragments made, by cutting packets that did not fit.
    pub fragments: u64,
}

/// What was handed over to the owners of shards, as read at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandedOver {
    /// Packets; a super-packet is one.
    pub packets: u64,
    /// Octets of these IP packets.
    pub octets: u64,
}

/// A packet as it came in, kept until its verdict is known.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Its direction; `None` for what is neither IPv4 nor IPv6.
    pub direction: Option<Direction>,
    /// Its length in octets.
    pub octets: usize,
    /// The packets it will be on a wire: 1, or the number of segments of a super-packet.
    pub segments: usize,
}

impl Counters {
    /// Counts a packet by its verdict. `fragments`: pieces in which it leaves.
    #[inline]
    pub fn record(&self, arrival: Arrival, verdict: Verdict, fragments: usize) {
        match verdict {
            Verdict::Forward => {
                let Some(direction) = arrival.direction else {
                    return;
                };
                let counters = &self.directions[direction as usize];
                counters.packets.add(1);
                counters.segments.add(arrival.segments as u64);
                counters.octets.add(arrival.octets as u64);
                // Of a super-packet the segments alone are none.
                if fragments > arrival.segments {
                    counters.fragments.add(fragments as u64);
                }
            }
            Verdict::Reply(error) => {
                self.drop(error.reason);
                if let Some(direction) = arrival.direction {
                    self.icmp_errors[direction as usize].add(1);
                }
            }
            Verdict::Drop(reason) => self.drop(reason),
            // Counted when its time is over.
            Verdict::Stored => {}
            Verdict::Pass => self.passed.add(1),
            Verdict::Elsewhere(_) => {
                self.handed_over.packets.add(1);
                self.handed_over.octets.add(arrival.octets as u64);
            }
        }
    }

    /// Counts a drop that happened outside translation (a full queue, a device error).
    #[inline]
    pub fn drop(&self, reason: DropReason) {
        self.drops.0[usize::from(reason.number())].add(1);
    }

    /// Counts ICMP errors that were not sent.
    #[inline]
    pub fn suppress(&self, errors: u64) {
        self.icmp_errors_suppressed.add(errors);
    }

    /// What a direction carried.
    pub fn direction(&self, direction: Direction) -> DirectionTotals {
        let counters = &self.directions[direction as usize];
        DirectionTotals {
            packets: counters.packets.get(),
            segments: counters.segments.get(),
            octets: counters.octets.get(),
            fragments: counters.fragments.get(),
        }
    }

    /// Packets dropped for a reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops.0[usize::from(reason.number())].get()
    }

    /// ICMP errors sent in answer to packets of a direction.
    pub fn icmp_errors(&self, direction: Direction) -> u64 {
        self.icmp_errors[direction as usize].get()
    }

    /// ICMP errors that were due and not sent: rate limit, switched off, or no source configured.
    pub fn icmp_errors_suppressed(&self) -> u64 {
        self.icmp_errors_suppressed.get()
    }

    /// Packets of other gateways' shards that were handed over to them.
    pub fn handed_over(&self) -> HandedOver {
        let HandedOverCounters { packets, octets } = &self.handed_over;
        HandedOver { packets: packets.get(), octets: octets.get() }
    }

    /// Packets passed on untouched.
    pub fn passed(&self) -> u64 {
        self.passed.get()
    }
}
