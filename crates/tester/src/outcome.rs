//! What a trial found. All of it can be written as JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Direction, Sending};

/// A histogram of times: upper ends of ranges, ns, to three significant digits, and how often each came; ascending.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Histogram(pub Vec<(u64, u64)>);

impl Histogram {
    /// Number of times.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|(_, count)| count).sum()
    }

    /// The time, ns, that a share (0 to 1) of all do not exceed: that of the nearest rank. `None` if there are none.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        // The slack takes back what binary fractions add.
        let rank = ((self.count() as f64 * share - 1e-6).ceil() as u64).max(1);
        let mut passed = 0;
        self.0.iter().find_map(|(ns, count)| {
            passed += count;
            (passed >= rank).then_some(*ns)
        })
    }
}

/// Differences between the delays of consecutive frames, ns, and how often each came; ascending (RFC 5481; RFC 8219 section
/// 7.3.2). From 1024 ns on they are cut to their ten highest bits, towards zero: by less than 1/512. Pairs of which one frame is missing do not count.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ipdv(pub Vec<(i64, u64)>);

impl Ipdv {
    /// Of delays in ns, plus one; 0 means that a frame is missing.
    pub(crate) fn of(delays: &[u32]) -> Self {
        let pairs = delays.windows(2).filter(|pair| pair[0] != 0 && pair[1] != 0);
        let mut counts = BTreeMap::new();
        for pair in pairs {
            let difference = cut(i64::from(pair[1]) - i64::from(pair[0]));
            *counts.entry(difference).or_default() += 1;
        }
        Self(counts.into_iter().collect())
    }

    /// Number of pairs.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|(_, count)| count).sum()
    }
}

/// A number without what is below its ten highest bits.
fn cut(value: i64) -> i64 {
    let rest = (u64::BITS - value.unsigned_abs().leading_zeros()).saturating_sub(10);
    value.signum() * ((value.abs() >> rest) << rest)
}

/// A fault of the tester, for which a trial does not count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// Somebody stopped it.
    #[error("the trial was stopped")]
    Stopped,
    /// It took longer than it could.
    #[error("the trial reached its deadline")]
    Deadline,
    /// Frames were lost at full sockets or at queues without one.
    #[error("the tester itself lost frames, at full sockets or queues without one: {0}")]
    Lost(u64),
    /// Not all frames were sent.
    #[error("{direction}: {sent} of {planned} frames were sent")]
    Unsent {
        /// The direction.
        direction: Direction,
        /// Frames that were sent.
        sent: u64,
        /// Frames that were to be.
        planned: u64,
    },
    /// Frames left too late.
    #[error("{direction}: a frame left {worst_ns} ns late, more than {limit_ns} ns")]
    Late {
        /// The direction.
        direction: Direction,
        /// The most that one was late.
        worst_ns: u64,
        /// The most that one may be.
        limit_ns: u64,
    },
}

impl Fault {
    /// Whether it says no more than that the rate was too high for the tester.
    pub fn is_of_rate(&self) -> bool {
        matches!(self, Self::Unsent { .. } | Self::Late { .. })
    }
}

/// What became of the frames of one class in one direction.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Frames sent.
    pub sent: u64,
    /// Frames that arrived in time, each counted once.
    pub received: u64,
    /// Frames that did not arrive in time: `sent` less `received`, late ones included.
    pub lost: u64,
    /// Frames that arrived after their time-out.
    pub late: u64,
    /// Arrivals of frames that had arrived before.
    pub duplicates: u64,
    /// Frames that arrived behind a later one of their pair of networks (RFC 4737 section 3.3).
    pub reordered: u64,
    /// By how many sequence numbers at most.
    pub reordering_extent: u32,
    /// When the first lost frame was due, s after the trial's start. None without one, and in trials that were ended early.
    pub first_loss_s: Option<f64>,
    /// When the last lost frame was due.
    pub last_loss_s: Option<f64>,
    /// Arrivals in each second since the start.
    pub arrivals_by_second: Vec<u64>,
    /// Arrivals by pair of networks.
    pub arrivals_by_pair: Vec<u64>,
    /// One-way delays, from the time at which a frame was due to its arrival, of frames that arrived in time.
    pub delays: Histogram,
    /// Differences between them, where each was kept; else none.
    pub ipdv: Ipdv,
}

/// Frames that arrived and count as lost, or belong to nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wrong {
    /// With a wrong UDP checksum.
    pub checksum: u64,
    /// With a payload of another length.
    pub length: u64,
    /// With a tag of a frame that was not sent, or headers that contradict each other.
    pub tag: u64,
    /// Of another trial.
    pub foreign: u64,
}

/// How frames left.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sender {
    /// Frames that were to be sent.
    pub planned: u64,
    /// Frames that were.
    pub sent: u64,
    /// From the start to the last frame, s.
    pub seconds: f64,
    /// How much later than due each frame was given to the kernel, together with its batch.
    pub lateness: Histogram,
    /// The most of it, ns.
    pub worst_lateness_ns: u64,
}

/// One direction of a trial.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// How frames left.
    pub sender: Sender,
    /// Frames that were to be translated.
    pub translated: Counts,
    /// Native frames.
    pub native: Counts,
    /// Others that arrived.
    pub wrong: Wrong,
    /// Frames that came without the program's time of arrival, and got the time at which the socket was read.
    pub unstamped: u64,
}

/// How frames pass between device and tester.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The device reads and writes the tester's memory.
    ZeroCopy,
    /// The kernel copies.
    Copy,
}

/// What a trial found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Number of the trial, in every tag.
    pub trial: u16,
    /// The seed.
    pub seed: u64,
    /// How frames passed, at the client end and at the server end.
    pub modes: [Mode; 2],
    /// What sent, at the client end and at the server end.
    pub sending: [Sending; 2],
    /// Why sockets sent, where the program was to.
    pub refusal: Option<String>,
    /// From the client end to the server end.
    pub forward: Side,
    /// From the server end to the client end.
    pub reverse: Side,
    /// Tuples noted so far: connections that the server end knows.
    pub noted: u64,
    /// Processor time of the tester's threads, s. It includes what the kernel does for their frames in their place: on a veth, all
    /// the way to the next process.
    pub processor_s: f64,
    /// Why the trial does not count: faults of the tester. Empty: it does.
    pub invalid: Vec<Fault>,
}

impl Outcome {
    /// Whether the trial counts.
    pub fn is_valid(&self) -> bool {
        self.invalid.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_nearest_rank() {
        let histogram = Histogram((1..=1000).map(|ns| (ns, 1)).collect());
        assert_eq!(histogram.quantile(0.5), Some(500));
        assert_eq!(histogram.quantile(0.999), Some(999));
        assert_eq!(histogram.quantile(1.0), Some(1000));
        assert_eq!(histogram.quantile(0.0), Some(1));
        assert_eq!(Histogram::default().quantile(0.5), None);
    }

    #[test]
    fn delay_variation_skips_missing_frames() {
        // Delays 9, 14, (missing), 3, 5, 4: differences 5, 2, -1.
        let found = Ipdv::of(&[10, 15, 0, 4, 6, 5]);
        assert_eq!(found, Ipdv(vec![(-1, 1), (2, 1), (5, 1)]));
        assert_eq!(Ipdv::of(&[10, 0, 5]).count(), 0);
        assert_eq!(Ipdv::of(&[]).count(), 0);
        // Exact up to ten bits, then within 1/512.
        assert_eq!(
            [cut(1023), cut(-1023), cut(1025), cut(-1_000_999)],
            [1023, -1023, 1024, -1_000_448]
        );
    }
}
