//! The frames of one direction of a trial: which one is sent when, and what it looks like. A frame follows from its number
//! alone, so that several threads can share a plan.

use std::sync::Arc;

use fordway_procedures::stateful::Permutation;

use crate::frame::{Stream, Tag, Template, Tuple};
use crate::trial::countable;
use crate::tuple::ports;
use crate::{Class, Direction, Enumeration, Error, Pace, Result, Step, Trial, Tuples};

/// Frames at one rate.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    /// Number of its first frame.
    first: u64,
    /// Time of its first frame, ns after the trial's start.
    start: u64,
    /// Time from frame to frame, ns.
    period: u64,
    /// What is beyond it, in parts of 2^32 of a nanosecond.
    fraction: u64,
    /// Pairs of networks that have started.
    networks: u16,
}

impl Stretch {
    /// Time of the frame with a number from the first one on, ns after the trial's start.
    fn due(&self, behind: u64) -> u64 {
        self.start + behind * self.period + ((behind * self.fraction) >> 32)
    }
}

/// The tuples that were noted, in the order in which reverse frames go there.
pub(crate) type Noted = Arc<Vec<Tuple>>;

/// The frames of one direction.
#[derive(Debug)]
pub(crate) struct Plan {
    direction: Direction,
    trial: u16,
    seed: u64,
    /// What the order of enumerated tuples follows from.
    order_seed: u64,
    /// Per cent of translated frames.
    share: u64,
    macs: [[u8; 6]; 2],
    payload: u16,
    /// By class and pair of networks.
    templates: [Vec<Template>; 2],
    enumerated: Option<(Enumeration, Permutation)>,
    noted: Option<Noted>,
    stretches: Vec<Stretch>,
    burst: bool,
    total: u64,
    /// From the start to the last frame, ns.
    length: u64,
}

/// A frame to be written.
#[derive(Debug)]
pub(crate) struct Frame<'a> {
    template: std::borrow::Cow<'a, Template>,
    ports: [u16; 2],
    tag: Tag,
}

impl Frame<'_> {
    /// Octets, without the check sequence.
    pub(crate) fn length(&self) -> usize {
        self.template.length()
    }

    /// See [`Template::write`].
    pub(crate) fn write(&self, octets: &mut [u8]) {
        self.template.write(self.ports, self.tag, octets);
    }

    /// Its class.
    pub(crate) fn class(&self) -> Class {
        self.tag.stream.class
    }
}

/// The steps of a pace, each with the pairs of networks that have started (RFC 8219 section 10.2.2).
fn started(steps: &[Step], trial: &Trial) -> Vec<(Step, u16)> {
    let all = trial.networks;
    let rising = if trial.start_s > 0.0 { 1..all } else { 0..0 };
    let share = |count: u16| f64::from(count) / f64::from(all);
    let before = steps.first().into_iter().flat_map(|first| {
        rising
            .clone()
            .map(|count| (Step { rate: first.rate * share(count), seconds: trial.start_s }, count))
    });
    before.chain(steps.iter().map(|step| (*step, all))).collect()
}

impl Plan {
    /// What `trial` sends in a direction, under a number of its own, from and to these link addresses. `None`: nothing.
    pub(crate) fn new(
        trial: &Trial,
        number: u16,
        direction: Direction,
        macs: [[u8; 6]; 2],
        noted: &Noted,
    ) -> Result<Option<Self>> {
        let payload = trial.payload()?;
        let (mut stretches, mut total, mut length) = (Vec::<Stretch>::new(), 0, 0);
        let burst = match trial.pace(direction) {
            Pace::Silent => return Ok(None),
            Pace::Burst(frames) => {
                total = countable(*frames as f64)?;
                true
            }
            Pace::Steps(steps) => {
                for (step, networks) in started(steps, trial) {
                    if !(1e-3..=1e9).contains(&step.rate) || !(1e-9..=1e9).contains(&step.seconds) {
                        return Err(Error::Unfit(format!(
                            "{step:?}: from 0.001 to 10^9 frames/s, and from 10^-9 to 10^9 seconds"
                        )));
                    }
                    let frames = countable(total as f64 + (step.rate * step.seconds).round())?;
                    let period = 1e9 / step.rate;
                    // Less than 2^32, as the quotient is below 1.
                    let fraction = (period.fract() * (1u64 << 32) as f64) as u64;
                    let period = period as u64;
                    let stretch =
                        Stretch { first: total, start: length, period, fraction, networks };
                    // Pairs of networks start on time, however few frames there are before.
                    length = match networks < trial.networks {
                        true => length + (step.seconds * 1e9) as u64,
                        false => stretch.due(frames - total),
                    };
                    stretches.push(stretch);
                    total = frames;
                }
                false
            }
        };
        let enumerated = match trial.tuples {
            Tuples::Enumerated(it) => {
                Some((it, Permutation::new(it.flows.into(), trial.order_seed())))
            }
            Tuples::Random => None,
        };
        let answers = enumerated.is_some() && direction == Direction::Reverse;
        if answers && trial.translated_share > 0 && noted.is_empty() {
            return Err(Error::Unfit("no tuple was noted to which reverse frames could go".into()));
        }
        let mut templates = [Vec::new(), Vec::new()];
        for (class, templates) in Class::ALL.into_iter().zip(&mut templates) {
            let Some(flow) = trial.flow(class, direction) else { continue };
            for network in 0..trial.networks {
                let ends = [flow.source, flow.target].map(|side| side.of(network));
                let [Some(source), Some(target)] = ends else {
                    return Err(Error::Unfit(format!("{flow:?} has no network {network}")));
                };
                templates.push(Template::new(macs, [source, target], payload)?);
            }
        }
        Ok(Some(Self {
            direction,
            trial: number,
            seed: trial.seed ^ (direction as u64) << 63,
            order_seed: trial.order_seed(),
            share: trial.translated_share.into(),
            macs,
            payload,
            templates,
            enumerated,
            noted: answers.then(|| noted.clone()),
            stretches,
            burst,
            total,
            length,
        }))
    }

    /// Number of frames.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Number of frames of a class.
    pub(crate) fn of_class(&self, class: Class) -> u64 {
        let translated = self.translated_before(self.total);
        if class == Class::Translated { translated } else { self.total - translated }
    }

    /// From the start to the end of the last frame's turn, ns.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Whether frames are due when they are sent.
    pub(crate) fn is_burst(&self) -> bool {
        self.burst
    }

    /// When a frame is due, ns after the start.
    pub(crate) fn due(&self, frame: u64) -> u64 {
        self.stretch(frame).map_or(0, |it| it.due(frame - it.first))
    }

    /// The stretch of a frame; a burst has none.
    fn stretch(&self, frame: u64) -> Option<&Stretch> {
        let later = self.stretches.partition_point(|stretch| stretch.first <= frame);
        self.stretches.get(later.checked_sub(1)?)
    }

    /// The number in the plan of the frame of a class with a sequence number.
    pub(crate) fn frame_number(&self, class: Class, sequence: u32) -> u64 {
        // Among i frames, i * share / 100 are translated, rounded down.
        let sequence = u64::from(sequence);
        let share = if class == Class::Translated { self.share } else { 100 - self.share };
        match class {
            _ if share == 0 => 0,
            Class::Translated => ((sequence + 1) * 100).div_ceil(share) - 1,
            Class::Native => sequence * 100 / share,
        }
    }

    fn translated_before(&self, frame: u64) -> u64 {
        frame * self.share / 100
    }

    /// The frame with a number, with a time in its tag.
    pub(crate) fn frame(&self, number: u64, time: u64) -> Frame<'_> {
        let before = self.translated_before(number);
        let translated = self.translated_before(number + 1) > before;
        let (class, sequence) = if translated {
            (Class::Translated, before as u32)
        } else {
            (Class::Native, (number - before) as u32)
        };
        let templates = &self.templates[class as usize];
        let tag = |pair| {
            let stream = Stream { class, direction: self.direction, pair };
            Tag { trial: self.trial, stream, sequence, time }
        };
        if translated && let Some(noted) = &self.noted {
            let tuple = noted[sequence as usize % noted.len()].reversed();
            if let Ok(template) =
                Template::new(self.macs, [tuple.source, tuple.target], self.payload)
            {
                let ports = [tuple.source_port, tuple.target_port];
                return Frame { template: std::borrow::Cow::Owned(template), ports, tag: tag(0) };
            }
        }
        let (pair, ports) = match &self.enumerated {
            Some((enumeration, permutation)) if translated => {
                enumeration.tuple(permutation.at((sequence % enumeration.flows).into()) as u32)
            }
            _ => {
                let all = templates.len();
                let started = self.stretch(number).map_or(all, |it| it.networks.into()).min(all);
                ((sequence as usize % started) as u16, ports(self.seed, number))
            }
        };
        let template = std::borrow::Cow::Borrowed(&templates[usize::from(pair)]);
        Frame { template, ports, tag: tag(pair) }
    }
}

mod order;

pub(crate) use order::{Key, TEMPLATE, Tables};

#[cfg(test)]
mod tests;
