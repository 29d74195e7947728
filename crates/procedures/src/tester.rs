//! What a Tester can do (RFC 2544 section 6, RFC 8219 section 4).

use serde::{Deserialize, Serialize};

use crate::distribution::Distribution;
use crate::traffic::{Direction, Traffic};

/// Sends test frames through the device under test, or a system of several, and counts what comes back.
pub trait Tester {
    /// Why a trial could not be run. What the device does to frames is no error.
    type Error;

    /// Runs one trial, in the phases of RFC 2544 section 23 with the waits of the order.
    fn run(&mut self, order: &Order) -> Result<Outcome, Self::Error>;

    /// Brings a device back that no longer forwards, outside of any trial.
    fn restore(&mut self) -> Result<(), Self::Error>;
}

/// Frames over time, in each direction in use.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// A constant rate.
    Constant {
        /// Frames/s.
        rate: f64,
        /// Seconds in which all flows send.
        seconds: f64,
    },
    /// A rate that changes at Timestamp A (RFC 2544 section 26.5).
    Step {
        /// Frames/s before the change.
        first: f64,
        /// Seconds before the change in which all flows send.
        seconds: f64,
        /// Frames/s after the change.
        then: f64,
        /// Seconds after the change.
        rest: f64,
    },
    /// A burst after idle time (RFC 9004 section 6.2).
    Burst {
        /// Frames.
        frames: u64,
        /// Frames/s: the back-to-back rate.
        rate: f64,
    },
}

/// What is recorded besides counts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Record {
    /// Nothing.
    Counts,
    /// Delays of tagged frames. The tag stands after the UDP header (RFC 8219 section 7.2).
    Tags {
        /// Seconds after which tags begin.
        after: f64,
        /// Tagged frames in each direction, evenly spread over the rest of the stream.
        frames: u64,
    },
    /// One-way delays of all frames, and differences of delays between successive frames (RFC 8219 section 7.3).
    Every,
    /// When the first and the last lost frame were due.
    Losses,
}

/// Waits around a trial in seconds (RFC 2544 section 23).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Waits {
    /// After routing updates and learning frames.
    pub learning: f64,
    /// For residual frames. A frame that takes longer is lost, whenever in the trial it was sent.
    pub residual: f64,
    /// For the device to restabilise.
    pub settle: f64,
}

impl Waits {
    /// Those of RFC 2544 section 23.
    pub const RFC2544: Self = Self { learning: 2.0, residual: 2.0, settle: 5.0 };

    /// All of them.
    pub fn total(&self) -> f64 {
        self.learning + self.residual + self.settle
    }
}

/// One trial.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// What is sent.
    pub traffic: Traffic,
    /// How much of it, when.
    pub load: Load,
    /// What is recorded.
    pub record: Record,
    /// Seconds after which the device is reset while frames flow (RFC 6201 section 4).
    pub reset: Option<f64>,
    /// Waits.
    pub waits: Waits,
}

impl Order {
    /// Frames in each direction. Flows that start one after the other send part of the rate until all have started.
    pub fn frames(&self) -> u64 {
        let of = |rate: f64, seconds: f64| (rate * seconds).round() as u64;
        let ramp = self.traffic.flows.ramp_s() / 2.0;
        match self.load {
            Load::Constant { rate, seconds } => of(rate, seconds + ramp).max(1),
            Load::Step { first, seconds, then, rest } => of(first, seconds + ramp) + of(then, rest),
            Load::Burst { frames, .. } => frames,
        }
    }

    /// Seconds in which frames are sent.
    pub fn seconds(&self) -> f64 {
        let ramp = self.traffic.flows.ramp_s();
        match self.load {
            Load::Constant { seconds, .. } => ramp + seconds,
            Load::Step { seconds, rest, .. } => ramp + seconds + rest,
            Load::Burst { frames, rate } => frames as f64 / rate,
        }
    }
}

/// When frames were due that got lost, seconds after the first frame of the trial.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Losses {
    /// The first of them.
    pub first: f64,
    /// The last of them.
    pub last: f64,
}

/// Test frames of one direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stream {
    /// Direction: `Forward` or `Reverse`.
    pub direction: Direction,
    /// Frames sent.
    pub sent: u64,
    /// Test frames received in time, duplicates not counted (RFC 2544 section 10).
    pub received: u64,
    /// Frames received more than once.
    pub duplicates: u64,
    /// Frames received after a later one.
    pub reordered: u64,
    /// Delays in ns: of tagged frames or of all, as ordered.
    pub delays: Option<Distribution>,
    /// Differences of delays between successive frames in ns, if all were recorded.
    pub variations: Option<Distribution>,
    /// Losses, if they were recorded and there were any.
    pub losses: Option<Losses>,
}

impl Stream {
    /// A stream with counts alone.
    pub fn counted(direction: Direction, sent: u64, received: u64) -> Self {
        Self {
            direction,
            sent,
            received,
            duplicates: 0,
            reordered: 0,
            delays: None,
            variations: None,
            losses: None,
        }
    }
}

/// What came of a trial: one stream per direction in use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Streams.
    pub streams: Vec<Stream>,
}

impl Outcome {
    /// Frames sent in all directions.
    pub fn sent(&self) -> u64 {
        self.streams.iter().map(|stream| stream.sent).sum()
    }

    /// Frames received in all directions.
    pub fn received(&self) -> u64 {
        self.streams.iter().map(|stream| stream.received).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Frame, Technology};
    use crate::traffic::{Flows, Start};

    #[test]
    fn incremental_flows_send_half_the_rate_until_all_have_started() {
        let frame = Frame::of(Technology::SingleTranslation, 64);
        let flows = Flows { count: 5, start: Start::Incremental(1.0) };
        let order = Order {
            traffic: Traffic { flows, ..Traffic::of(frame) },
            load: Load::Constant { rate: 1000.0, seconds: 60.0 },
            record: Record::Counts,
            reset: None,
            waits: Waits::RFC2544,
        };
        // Flow i sends 200 frames/s and starts at i s: 200 (64 + 63 + 62 + 61 + 60).
        assert_eq!((order.seconds(), order.frames()), (64.0, 62_000));
        let load = Load::Burst { frames: 500, rate: 1000.0 };
        assert_eq!(Order { load, ..order }.seconds(), 0.5);
    }
}
