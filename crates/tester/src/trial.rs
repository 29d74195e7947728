//! What a trial sends, and how long it waits.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use crate::frame::payload;
use crate::tuple::mixed;
use crate::{Class, Direction, Enumeration, Error, Result};

/// Most pairs of networks.
const MOST_NETWORKS: u16 = 256;
/// Most frames of one class in one direction: their numbers have 32 bits.
const MOST_FRAMES: u64 = u32::MAX as u64;
/// Most frames that leave at once: more could overflow the ring of a veth (256) by themselves.
const MOST_BATCH: u32 = 128;

/// A stretch of time with one rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Frames per second, of both classes together.
    pub rate: f64,
    /// Seconds.
    pub seconds: f64,
}

/// When the frames of one direction are sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pace {
    /// There are none.
    Silent,
    /// Open loop: frame i of a step is due i / rate after the step's start, whatever becomes of the others.
    Steps(Vec<Step>),
    /// So many frames, one after the other as fast as they leave (RFC 9004). Each is due when it is sent.
    Burst(u64),
}

impl Pace {
    /// One rate throughout.
    pub fn steady(rate: f64, seconds: f64) -> Self {
        Self::Steps(vec![Step { rate, seconds }])
    }

    fn bursts(&self) -> bool {
        matches!(self, Self::Burst(_))
    }
}

/// The addresses of one side: network n has `first` plus n times 2^`shift`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Addresses {
    /// The address in network 0.
    pub first: IpAddr,
    /// Bits behind those that count networks: 8 for IPv4 networks of length 24, 64 for IPv6 networks of length 64. From the
    /// length of an address on, it is the same in all networks.
    pub shift: u8,
}

impl Addresses {
    /// The address in a network; `None` beyond the family's last address.
    pub(crate) fn of(&self, network: u16) -> Option<IpAddr> {
        let shift = u32::from(self.shift);
        Some(match self.first {
            IpAddr::V4(first) => {
                let added = u32::from(network).checked_mul(1u32.checked_shl(shift).unwrap_or(0))?;
                Ipv4Addr::from_bits(first.to_bits().checked_add(added)?).into()
            }
            IpAddr::V6(first) => {
                let added =
                    u128::from(network).checked_mul(1u128.checked_shl(shift).unwrap_or(0))?;
                Ipv6Addr::from_bits(first.to_bits().checked_add(added)?).into()
            }
        })
    }
}

/// Source and destination of the frames of one class in one direction, as they are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    /// Source.
    pub source: Addresses,
    /// Destination.
    pub target: Addresses,
}

/// The addresses of one class, in each direction as they are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pairs {
    /// From the client end.
    pub forward: Flow,
    /// From the server end. If tuples are enumerated, translated frames go to noted tuples instead.
    pub reverse: Flow,
}

/// Which ports frames have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tuples {
    /// Pseudorandom ones, drawn for each frame (RFC 4814 section 4.5): source ports 1024 to 65535, destination ports 1 to
    /// 49151.
    Random,
    /// For stateful translators (RFC 9693): the translated frames with the numbers i, i + n, i + 2 n ... have tuple i of n
    /// unique ones, whose order is a permutation by the seed and [`Trial::order`]. The server end notes what each tuple was
    /// translated to, and its own translated frames go to noted tuples.
    Enumerated(Enumeration),
}

/// One trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trial {
    /// What the client end sends.
    pub forward: Pace,
    /// What the server end sends.
    pub reverse: Pace,
    /// Octets of a frame over IPv6, its check sequence included; IPv4 frames are 20 octets shorter (RFC 8219 section 5.1).
    /// If all addresses are of IPv4: octets of every frame.
    pub frame_size: u16,
    /// Addresses of translated frames.
    pub translated: Pairs,
    /// Addresses of native frames; there must be some unless all frames are translated.
    pub native: Option<Pairs>,
    /// Per cent of the frames that are translated: 100, 90, 50 or 10 (RFC 8219 section 5.3).
    pub translated_share: u8,
    /// Pairs of networks that take turns, 1 to 256.
    pub networks: u16,
    /// Seconds from the start of one pair of networks to that of the next (RFC 8219 section 10.2.2); 0: all start at once. A pair
    /// has the same share of the rate before and after the others start. The steps of a pace begin when the last pair starts.
    #[serde(default)]
    pub start_s: f64,
    /// Which ports frames have.
    pub tuples: Tuples,
    /// Seed of ports and permutations. Print it.
    pub seed: u64,
    /// Number of the order of enumerated tuples. 0 (RFC 9693, test phase 1 and its validation): tuples are noted, and notes are
    /// read as they were written. Others (test phase 2): tuples are sent, and notes read, each in another pseudorandom order, and
    /// nothing is noted.
    #[serde(default)]
    pub order: u64,
    /// A frame that takes longer than so many seconds from the time at which it was to be sent is lost, and counted as late.
    pub timeout_s: f64,
    /// Learning frames that precede the trial, for each pair of networks of each class and direction (RFC 2544 section 23).
    pub learning: u16,
    /// Seconds from the last learning frame to the first one of the trial.
    pub settle_s: f64,
    /// Most frames that leave at once, 1 to 128.
    pub batch: u32,
    /// A trial in which a frame left later than so many seconds after its time is invalid.
    pub lateness_limit_s: f64,
    /// Only delays of frames to be sent so many seconds after the trial's start or later are measured (RFC 8219 section 7.2).
    pub delays_from_s: f64,
    /// Whether each frame's delay is kept, for IPDV: 4 octets of memory for each frame.
    pub keep_delays: bool,
    /// Octets of memory that a trial may take for what it knows of frames.
    pub memory_limit: u64,
}

impl Trial {
    /// A trial in which all frames are translated, with random ports, between one pair of networks; the client end sends.
    pub fn new(translated: Pairs, frame_size: u16, forward: Pace) -> Self {
        Self {
            forward,
            reverse: Pace::Silent,
            frame_size,
            translated,
            native: None,
            translated_share: 100,
            networks: 1,
            start_s: 0.0,
            tuples: Tuples::Random,
            seed: 1,
            order: 0,
            timeout_s: 1.0,
            learning: 0,
            settle_s: 0.0,
            batch: 32,
            lateness_limit_s: 0.01,
            delays_from_s: 0.0,
            keep_delays: false,
            memory_limit: 1 << 30,
        }
    }

    /// When the frames of a direction are sent.
    pub(crate) fn pace(&self, direction: Direction) -> &Pace {
        match direction {
            Direction::Forward => &self.forward,
            Direction::Reverse => &self.reverse,
        }
    }

    /// The addresses of a class in a direction.
    pub(crate) fn flow(&self, class: Class, direction: Direction) -> Option<Flow> {
        let pairs = match class {
            Class::Translated => Some(self.translated),
            Class::Native => self.native,
        };
        pairs.map(|pairs| match direction {
            Direction::Forward => pairs.forward,
            Direction::Reverse => pairs.reverse,
        })
    }

    /// What the order of enumerated tuples follows from.
    pub(crate) fn order_seed(&self) -> u64 {
        self.seed ^ mixed(self.order)
    }

    /// Octets of payload, the same in all frames.
    pub(crate) fn payload(&self) -> Result<u16> {
        let pairs = [Some(self.translated), self.native];
        let flows = pairs.into_iter().flatten().flat_map(|pairs| [pairs.forward, pairs.reverse]);
        let v6 = flows.into_iter().any(|flow| flow.source.first.is_ipv6());
        payload(self.frame_size, v6)
    }

    /// Why the trial can't be, apart from what [`crate::plan`] finds.
    pub(crate) fn check(&self) -> Result<()> {
        let is_time = |seconds: f64| seconds.is_finite() && (0.0..=86_400.0).contains(&seconds);
        let unfit = if !(1..=MOST_NETWORKS).contains(&self.networks) {
            format!("{} networks: there are 1 to {MOST_NETWORKS}", self.networks)
        } else if self.translated_share > 100 {
            format!("{} per cent of the frames are translated", self.translated_share)
        } else if self.translated_share < 100 && self.native.is_none() {
            "native frames have no addresses".to_owned()
        } else if !(1..=MOST_BATCH).contains(&self.batch) {
            format!("a batch of {} frames: it has 1 to {MOST_BATCH}", self.batch)
        } else if ![
            self.timeout_s,
            self.settle_s,
            self.lateness_limit_s,
            self.delays_from_s,
            self.start_s,
        ]
        .into_iter()
        .all(is_time)
        {
            "a time is not within 0 to 86400 s".to_owned()
        } else if self.start_s > 0.0 && self.tuples != Tuples::Random {
            "pairs of networks that start one after the other have random ports".to_owned()
        } else if self.start_s > 0.0 && [&self.forward, &self.reverse].iter().any(|it| it.bursts())
        {
            "a burst has no time in which pairs of networks start one after the other".to_owned()
        } else {
            return match self.tuples {
                Tuples::Enumerated(enumeration) => enumeration.check(self.networks),
                Tuples::Random => Ok(()),
            };
        };
        Err(Error::Unfit(unfit))
    }
}

/// Refuses numbers of frames that can't be counted.
pub(crate) fn countable(frames: f64) -> Result<u64> {
    if frames.is_finite() && (0.0..=MOST_FRAMES as f64).contains(&frames) {
        return Ok(frames as u64);
    }
    Err(Error::Unfit(format!(
        "{frames} frames in one direction: at most {MOST_FRAMES} can be counted"
    )))
}
