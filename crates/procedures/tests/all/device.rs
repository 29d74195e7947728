//! A simulated device under test with a Tester around it: a forwarding function behind a buffer, and a connection tracking
//! table. It is deterministic; noise comes from a seeded sequence.

use fordway_procedures::distribution::Distribution;
use fordway_procedures::frame::{Frame, Technology};
use fordway_procedures::stateful::{Filling, Phase, StatefulTester};
use fordway_procedures::tester::{Load, Losses, Order, Outcome, Record, Stream, Tester, Waits};
use fordway_procedures::traffic::{Direction, Limit, Maximum, Point, Traffic};

/// Rate of the simulated medium, frames/s in each direction.
pub(crate) const MAXIMUM: f64 = 1e6;

/// What a full table does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// New connections are not stored, though their frames are forwarded.
    KeepsOld,
    /// The oldest connections are replaced.
    Replaces,
    /// The device collapses.
    Collapses,
}

#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) capacity: u64,
    pub(crate) full: Full,
    /// Connections/s up to which no frame of test phase 1 is lost.
    pub(crate) rate: f64,
    /// Connections beyond which the rate is this share of itself.
    pub(crate) slower: (u64, f64),
    /// Connections/s above which the frame is forwarded, but the connection not stored.
    pub(crate) store_rate: f64,
    /// Connections deleted per second.
    pub(crate) tear_down_rate: f64,
    /// So many fillings lose a frame, whatever their rate.
    pub(crate) unlucky: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the cable is out")]
pub(crate) struct Broken;

#[derive(Debug, Clone)]
pub(crate) struct Device {
    /// Frames/s forwarded in each direction.
    pub(crate) rate: f64,
    /// Share of the rate that each further flow costs.
    pub(crate) flow_cost: f64,
    /// Frames that its buffer holds.
    pub(crate) buffer: f64,
    /// One-way delays run evenly from `delay_ns` up to `jitter_ns` more.
    pub(crate) delay_ns: i64,
    pub(crate) jitter_ns: i64,
    /// Every so many frames one is lost, over all trials.
    pub(crate) every_lost: Option<u64>,
    /// Seconds of loss after an overload.
    pub(crate) recovery_s: f64,
    /// Seconds of loss after a reset; none: the device never comes back.
    pub(crate) reset_s: Option<f64>,
    /// Probability that a trial suffers a disturbance, and the share of frames that it costs.
    pub(crate) noise: (f64, f64),
    pub(crate) seed: u64,
    /// The generator's limit, frames/s in each direction.
    pub(crate) generator: f64,
    pub(crate) table: Table,
    /// The trial, from 1, at which the Tester breaks.
    pub(crate) breaks_at: Option<u64>,
    /// Each order that was run.
    pub(crate) orders: Vec<Order>,
    /// Steps of stateful tests, by name.
    pub(crate) steps: Vec<&'static str>,
    pub(crate) fillings: Vec<Filling>,
    pub(crate) timeout_s: f64,
    pub(crate) stored: Vec<u64>,
    pub(crate) sent: Vec<u64>,
    pub(crate) frames: u64,
    pub(crate) is_down: bool,
}

impl Default for Device {
    fn default() -> Self {
        Self {
            rate: f64::INFINITY,
            flow_cost: 0.0,
            buffer: 0.0,
            delay_ns: 100_000,
            jitter_ns: 0,
            every_lost: None,
            recovery_s: 0.0,
            reset_s: Some(0.0),
            noise: (0.0, 0.0),
            seed: 1,
            generator: f64::INFINITY,
            table: Table {
                capacity: u64::MAX,
                full: Full::KeepsOld,
                rate: f64::INFINITY,
                slower: (u64::MAX, 1.0),
                store_rate: f64::INFINITY,
                tear_down_rate: 1e6,
                unlucky: 0,
            },
            breaks_at: None,
            orders: Vec::new(),
            steps: Vec::new(),
            fillings: Vec::new(),
            timeout_s: 0.0,
            stored: Vec::new(),
            sent: Vec::new(),
            frames: 0,
            is_down: false,
        }
    }
}

pub(crate) fn frame() -> Frame {
    Frame::of(Technology::SingleTranslation, 64)
}

pub(crate) fn point() -> Point {
    let maximum = Maximum { rate: MAXIMUM, limit: Limit::Theoretical };
    Point { traffic: Traffic::of(frame()), maximum }
}

pub(crate) const NO_WAITS: Waits = Waits { learning: 0.0, residual: 0.0, settle: 0.0 };

pub(crate) fn never() -> bool {
    false
}

impl Device {
    pub(crate) fn limited(rate: f64) -> Self {
        Self { rate, ..Self::default() }
    }

    /// A number from 0 to 1.
    fn draw(&mut self) -> f64 {
        self.seed = self.seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.seed >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Frames lost of a stream at a rate for some seconds, by the buffer model.
    fn overflow(&self, offered: f64, seconds: f64, flows: u32) -> f64 {
        let rate = self.rate * (1.0 - self.flow_cost * f64::from(flows - 1)).max(0.01);
        if offered <= rate {
            0.0
        } else {
            ((offered - rate) * seconds - self.buffer).max(0.0).floor()
        }
    }

    fn stream(&mut self, direction: Direction, order: &Order) -> Stream {
        let flows = order.traffic.flows.count;
        let short = match order.load {
            Load::Constant { rate, .. } | Load::Burst { rate, .. } => self.generator / rate,
            Load::Step { first, .. } => self.generator / first,
        };
        let sent = (order.frames() as f64 * short.min(1.0)) as u64;
        let (mut lost, mut losses) = match order.load {
            Load::Constant { rate, seconds } => {
                (self.overflow(rate.min(self.generator), seconds, flows), None)
            }
            Load::Burst { frames, rate } => {
                (self.overflow(rate, frames as f64 / rate, flows), None)
            }
            Load::Step { first, seconds, then, rest } => {
                let mut lost = self.overflow(first, seconds, flows);
                let change = order.traffic.flows.ramp_s() + seconds;
                let mut times = (lost > 0.0).then_some(Losses { first: 0.0, last: change });
                if lost > 0.0 && self.recovery_s > 0.0 {
                    let recovery = self.recovery_s.min(rest);
                    lost += (then * recovery / 2.0).floor();
                    times = Some(Losses { first: 0.0, last: change + recovery });
                }
                (lost, times)
            }
        };
        if let (Some(at), Load::Constant { rate, .. }) = (order.reset, order.load) {
            let down = self.reset_s.unwrap_or(f64::INFINITY).min(order.seconds() - at);
            if down > 0.0 {
                lost += (down * rate).round();
                losses = Some(Losses { first: at, last: at + down });
            }
        }
        let (probability, share) = self.noise;
        if probability > 0.0 && self.draw() < probability {
            lost += (share * sent as f64).ceil();
        }
        if let Some(every) = self.every_lost {
            lost += ((self.frames + sent) / every - self.frames / every) as f64;
        }
        self.frames += sent;
        let received = sent - (lost as u64).min(sent);
        let (delays, variations) = self.delays(order, received);
        let whole = Losses { first: 0.0, last: order.seconds() };
        let losses = losses.or((lost > 0.0).then_some(whole));
        let losses = losses.filter(|_| order.record == Record::Losses);
        Stream { delays, variations, losses, ..Stream::counted(direction, sent, received) }
    }

    /// Delays rise in a thousand steps and fall back: so do their differences.
    fn delays(&self, order: &Order, received: u64) -> (Option<Distribution>, Option<Distribution>) {
        let count = match order.record {
            Record::Tags { frames, .. } => frames.min(received),
            Record::Every => received,
            _ => return (None, None),
        };
        let delay = |step: i64| self.delay_ns + self.jitter_ns * step / 999;
        let each = |step: u64| count / 1000 + u64::from(step < count % 1000);
        let delays = (0..1000).map(|step| (delay(step as i64), each(step))).collect::<Vec<_>>();
        if order.record != Record::Every {
            return (Some(delays.into()), None);
        }
        let up = |step: u64| (delay(step as i64 + 1) - delay(step as i64), each(step + 1));
        let mut differences: Vec<(i64, u64)> = (0..999).map(up).collect();
        differences.push((delay(0) - delay(999), (count.saturating_sub(1)) / 1000));
        (Some(delays.into()), Some(differences.into()))
    }

    fn trial(&mut self) -> Result<(), Broken> {
        let now = self.orders.len() + self.steps.len();
        if self.breaks_at.is_some_and(|at| now as u64 >= at) { Err(Broken) } else { Ok(()) }
    }
}

impl Tester for Device {
    type Error = Broken;

    fn run(&mut self, order: &Order) -> Result<Outcome, Broken> {
        self.orders.push(*order);
        self.trial()?;
        let directions = order.traffic.directions();
        Ok(Outcome { streams: directions.iter().map(|it| self.stream(*it, order)).collect() })
    }

    fn restore(&mut self) -> Result<(), Broken> {
        self.steps.push("restore");
        self.is_down = false;
        self.stored.clear();
        Ok(())
    }
}

impl StatefulTester for Device {
    fn empty_table(&mut self) -> Result<(), Broken> {
        self.steps.push("empty");
        self.stored.clear();
        self.sent.clear();
        Ok(())
    }

    fn require_timeout(&mut self, seconds: f64) -> Result<(), Broken> {
        self.timeout_s = seconds;
        Ok(())
    }

    fn fill(&mut self, order: &Filling) -> Result<Phase, Broken> {
        self.steps.push("fill");
        self.fillings.push(*order);
        self.trial()?;
        assert!(!self.is_down, "a collapsed device has to be restored first");
        assert!(self.timeout_s >= order.connections as f64 / order.rate, "connections time out");
        let table = self.table.clone();
        self.sent =
            order.tuples.permutation(order.seed).iter().take(order.connections as usize).collect();
        let mut distinct = self.sent.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), self.sent.len(), "a four tuple was sent twice");
        let sent = self.sent.len() as u64;
        if sent > table.capacity && table.full == Full::Collapses {
            self.is_down = true;
            return Ok(Phase::Collapsed);
        }
        let slower = if sent > table.slower.0 { table.slower.1 } else { 1.0 };
        let rate = table.rate * slower;
        let kept = sent.min(table.capacity) as usize;
        self.stored = match table.full {
            Full::Replaces => self.sent[self.sent.len() - kept..].to_vec(),
            _ => self.sent[..kept].to_vec(),
        };
        if order.rate > table.store_rate {
            self.stored.pop();
        }
        let lost =
            if order.rate > rate { (sent as f64 * (1.0 - rate / order.rate)).ceil() } else { 0.0 };
        let by_chance = u64::from(self.fillings.len() <= table.unlucky);
        Ok(Phase::Counted { sent, received: sent - (lost as u64).max(by_chance) })
    }

    fn validate(&mut self, rate: f64) -> Result<Phase, Broken> {
        self.steps.push("validate");
        let n = self.sent.len() as f64;
        let phase_1 = n / self.fillings.last().map_or(1.0, |filling| filling.rate);
        assert!(self.timeout_s >= phase_1 + n / rate, "connections time out before validation");
        // What is stored was sent, each of it once.
        let received = self.stored.len() as u64;
        Ok(Phase::Counted { sent: self.sent.len() as u64, received })
    }

    fn delete_all(&mut self) -> Result<f64, Broken> {
        self.steps.push("delete");
        let seconds = self.stored.len() as f64 / self.table.tear_down_rate;
        self.stored.clear();
        Ok(seconds)
    }
}
