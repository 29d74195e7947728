//! Test traffic: what is sent, apart from its rate (RFC 8219 section 5).

use serde::{Deserialize, Serialize};

use crate::frame::Frame;

/// Per cent of translated or encapsulated traffic in the four traffic setups; the rest is native (RFC 8219 section 5.3).
pub const MIXES: [u8; 4] = [100, 90, 50, 10];
/// Destination networks: one address pair first, then 256 networks (RFC 2544 section 12, RFC 5180 section 5.2.2).
pub const NETWORKS: [u16; 2] = [1, 256];
/// Source ports (RFC 4814 section 4.5), pseudorandom and uniform.
pub const SOURCE_PORTS: (u16, u16) = (1024, 65535);
/// Destination ports (RFC 4814 section 4.5), pseudorandom and uniform.
pub const DESTINATION_PORTS: (u16, u16) = (1, 49151);

/// Who sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Initiator to Responder alone.
    Forward,
    /// Responder to Initiator alone.
    Reverse,
    /// Both at the same rate.
    Both,
}

/// How several flows start (RFC 8219 section 10.2).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Start {
    /// All at once (section 10.2.1).
    Simultaneous,
    /// One after the other, this many seconds apart (section 10.2.2).
    Incremental(f64),
}

/// Network flows: each is a pair of addresses of its own, and all share the rate equally.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Flows {
    /// How many.
    pub count: u32,
    /// How they start.
    pub start: Start,
}

impl Flows {
    /// The single flow that every benchmark begins with.
    pub const ONE: Self = Self { count: 1, start: Start::Simultaneous };

    /// Seconds until the last flow has started: (n - 1) t.
    pub fn ramp_s(&self) -> f64 {
        match self.start {
            Start::Simultaneous => 0.0,
            Start::Incremental(step) => f64::from(self.count.saturating_sub(1)) * step,
        }
    }
}

/// Test traffic, apart from its rate. UDP throughout (RFC 8219 section 5.3).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// Frame size.
    pub frame: Frame,
    /// Per cent of the frames that are translated or encapsulated.
    pub translated: u8,
    /// Networks over which destination addresses are uniformly distributed.
    pub networks: u16,
    /// Who sends.
    pub direction: Direction,
    /// Flows and their start.
    pub flows: Flows,
}

impl Traffic {
    /// Bidirectional translated traffic between one pair of addresses: the first setup of each benchmark.
    pub fn of(frame: Frame) -> Self {
        Self {
            frame,
            translated: MIXES[0],
            networks: NETWORKS[0],
            direction: Direction::Both,
            flows: Flows::ONE,
        }
    }

    /// The directions in which frames are sent.
    pub fn directions(&self) -> &'static [Direction] {
        match self.direction {
            Direction::Forward => &[Direction::Forward],
            Direction::Reverse => &[Direction::Reverse],
            Direction::Both => &[Direction::Forward, Direction::Reverse],
        }
    }
}

/// Where the highest rate of a benchmark comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// The medium (RFC 8219 appendix A).
    Theoretical,
    /// The generator without a device under test: a medium such as veth has no line rate.
    Calibrated,
}

/// 100 % of the rate, for one frame size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Maximum {
    /// Frames/s in each direction.
    pub rate: f64,
    /// What limits it.
    pub limit: Limit,
}

/// A traffic setup with the highest rate at which it is sent: what one row of a result table is measured at.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Traffic.
    pub traffic: Traffic,
    /// 100 %.
    pub maximum: Maximum,
}

/// The traffic setups of a plan: every frame size with every mix and every number of networks, one pair of addresses first.
pub fn setups(frames: &[Frame], mixes: &[u8], networks: &[u16]) -> Vec<Traffic> {
    let mut all = Vec::new();
    for networks in networks {
        for translated in mixes {
            all.extend(frames.iter().map(|frame| Traffic {
                translated: *translated,
                networks: *networks,
                ..Traffic::of(*frame)
            }));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Technology, frames};

    #[test]
    fn one_pair_of_addresses_and_translated_traffic_come_first() {
        let (frames, _) = frames(Technology::SingleTranslation, 1500);
        let all = setups(&frames, &MIXES, &NETWORKS);
        assert_eq!(all.len(), 8 * 4 * 2);
        assert_eq!((all[0].networks, all[0].translated, all[0].frame.size), (1, 100, 64));
        assert!(all[..32].iter().all(|t| t.networks == 1) && all[32].networks == 256);
        assert!(all.iter().all(|t| t.direction == Direction::Both && t.flows == Flows::ONE));
    }

    #[test]
    fn incremental_flows_take_n_minus_1_steps_to_start() {
        let flows = |count, start| Flows { count, start }.ramp_s();
        assert_eq!(flows(8, Start::Incremental(0.5)), 3.5);
        assert_eq!((flows(1, Start::Incremental(0.5)), flows(8, Start::Simultaneous)), (0.0, 0.0));
    }
}
