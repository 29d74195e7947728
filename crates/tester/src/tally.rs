//! What became of the frames of one class in one direction.

use hdrhistogram::Histogram as Recorder;

use crate::frame::Tag;
use crate::plan::Plan;
use crate::{Class, Counts, Error, Histogram, Ipdv, Result};

/// Significant decimal digits of a time in a histogram.
const DIGITS: u8 = 3;
/// Longest time in a histogram, ns: an hour. Longer ones count as that.
const LONGEST: u64 = 3_600_000_000_000;
/// Seconds whose arrivals are counted one by one, at most.
const MOST_SECONDS: usize = 86_400;

/// A histogram of times in ns.
pub(crate) fn recorder() -> Result<Recorder<u64>> {
    Recorder::new_with_bounds(1, LONGEST, DIGITS)
        .map_err(|error| Error::Unfit(format!("a histogram: {error}")))
}

/// What a histogram holds.
pub(crate) fn histogram(recorder: &Recorder<u64>) -> Histogram {
    let values = recorder.iter_recorded();
    Histogram(values.map(|it| (it.value_iterated_to(), it.count_at_value())).collect())
}

/// One bit for each frame.
#[derive(Debug, Clone)]
struct Bits(Vec<u64>);

impl Bits {
    fn get(&self, at: u32) -> bool {
        self.0.get(at as usize / 64).is_some_and(|word| word >> (at % 64) & 1 != 0)
    }

    fn set(&mut self, at: u32) {
        if let Some(word) = self.0.get_mut(at as usize / 64) {
            *word |= 1 << (at % 64);
        }
    }

    /// The first of `count` frames whose bit is not set, and the last.
    fn unset(&self, count: u32) -> Option<(u32, u32)> {
        let holes = |(at, word): (usize, &u64)| {
            let mut left = !word;
            let behind = count as usize - at * 64;
            if behind < 64 {
                left &= (1 << behind) - 1;
            }
            (left != 0).then_some((at as u32 * 64, left))
        };
        let mut words = self.0.iter().enumerate().filter_map(holes);
        let (at, word) = words.next()?;
        let (last_at, last) = words.next_back().unwrap_or((at, word));
        Some((at + word.trailing_zeros(), last_at + 63 - last.leading_zeros()))
    }
}

/// When a frame is late, and whose delay is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    /// The trial's start, CLOCK_MONOTONIC, ns.
    pub(crate) start: u64,
    /// A frame that took longer is late, ns.
    pub(crate) timeout: u64,
    /// Delays of frames due so long after the start or later are measured, ns.
    pub(crate) delays_from: u64,
}

/// Counts of one class in one direction, as one thread sees them.
#[derive(Debug, Clone)]
pub(crate) struct Tally {
    clock: Clock,
    /// Number of frames that are sent.
    planned: u32,
    in_time: Bits,
    late: Bits,
    arrivals: u64,
    reordered: u64,
    extent: u32,
    /// For each pair of networks the highest sequence number so far, plus one, and the number of arrivals.
    streams: Vec<(u32, u64)>,
    seconds: Vec<u64>,
    delays: Recorder<u64>,
    /// Delay of each frame, ns, plus one; 0: none.
    kept: Vec<u32>,
}

impl Tally {
    /// Octets that a tally takes for each frame, in eighths: two bits, and the delay where it is kept.
    pub(crate) fn bits_per_frame(keep_delays: bool) -> u64 {
        if keep_delays { 34 } else { 2 }
    }

    /// For so many frames in so many pairs of networks.
    pub(crate) fn new(planned: u32, networks: u16, clock: Clock, keep: bool) -> Result<Self> {
        let bits = Bits(vec![0; planned.div_ceil(64) as usize]);
        Ok(Self {
            clock,
            planned,
            in_time: bits.clone(),
            late: bits,
            arrivals: 0,
            reordered: 0,
            extent: 0,
            streams: vec![(0, 0); networks.into()],
            seconds: Vec::new(),
            delays: recorder()?,
            kept: if keep { vec![0; planned as usize] } else { Vec::new() },
        })
    }

    /// Counts a frame that arrived. `None` if no such frame was sent; otherwise whether it is the first of its number.
    pub(crate) fn note(&mut self, tag: Tag, arrival: u64) -> Option<bool> {
        let sequence = tag.sequence;
        let (highest, arrivals) = self.streams.get_mut(usize::from(tag.stream.pair))?;
        if sequence >= self.planned {
            return None;
        }
        *arrivals += 1;
        self.arrivals += 1;
        let second = (arrival.saturating_sub(self.clock.start) / 1_000_000_000) as usize;
        if second < MOST_SECONDS {
            self.seconds.resize(self.seconds.len().max(second + 1), 0);
            self.seconds[second] += 1;
        }
        if self.in_time.get(sequence) || self.late.get(sequence) {
            return Some(false);
        }
        // RFC 4737 section 3.3: reordered is what comes behind a later one of its stream.
        if sequence + 1 < *highest {
            self.reordered += 1;
            self.extent = self.extent.max(*highest - 1 - sequence);
        } else {
            *highest = sequence + 1;
        }
        let delay = arrival.saturating_sub(tag.time);
        if delay > self.clock.timeout {
            self.late.set(sequence);
            return Some(true);
        }
        self.in_time.set(sequence);
        if tag.time >= self.clock.start + self.clock.delays_from {
            self.delays.saturating_record(delay);
            if let Some(kept) = self.kept.get_mut(sequence as usize) {
                *kept = u32::try_from(delay + 1).unwrap_or(u32::MAX);
            }
        }
        Some(true)
    }

    /// Adds what another thread saw of the same frames. What came behind a frame that the other thread saw does not count
    /// as reordered: queues have no common order.
    pub(crate) fn add(&mut self, other: &Self) {
        for (own, other) in [(&mut self.in_time, &other.in_time), (&mut self.late, &other.late)] {
            own.0.iter_mut().zip(&other.0).for_each(|(own, other)| *own |= other);
        }
        for (own, other) in self.streams.iter_mut().zip(&other.streams) {
            *own = (own.0.max(other.0), own.1 + other.1);
        }
        self.seconds.resize(self.seconds.len().max(other.seconds.len()), 0);
        self.seconds.iter_mut().zip(&other.seconds).for_each(|(own, other)| *own += other);
        self.kept.iter_mut().zip(&other.kept).for_each(|(own, other)| *own = (*own).max(*other));
        self.arrivals += other.arrivals;
        self.reordered += other.reordered;
        self.extent = self.extent.max(other.extent);
        // The bounds of both are the same.
        let _ = self.delays.add(&other.delays);
    }

    /// The counts, of so many frames that were sent, by a plan that says when.
    pub(crate) fn counts(&self, sent: u64, class: Class, plan: &Plan) -> Counts {
        let ones = |words: &[u64]| words.iter().map(|word| u64::from(word.count_ones())).sum();
        let received: u64 = ones(&self.in_time.0);
        let both: Vec<u64> =
            self.in_time.0.iter().zip(&self.late.0).map(|(in_time, late)| in_time | late).collect();
        let arrived: u64 = ones(&both);
        // A trial that was ended early does not tell what would have been lost.
        let holes = self.in_time.unset(self.planned).filter(|_| sent == u64::from(self.planned));
        let due = |sequence| plan.due(plan.frame_number(class, sequence)) as f64 / 1e9;
        Counts {
            sent,
            received,
            lost: sent.saturating_sub(received),
            late: arrived - received,
            duplicates: self.arrivals - arrived,
            reordered: self.reordered,
            reordering_extent: self.extent,
            first_loss_s: holes.map(|(first, _)| due(first)),
            last_loss_s: holes.map(|(_, last)| due(last)),
            arrivals_by_second: self.seconds.clone(),
            arrivals_by_pair: self.streams.iter().map(|(_, arrivals)| *arrivals).collect(),
            delays: histogram(&self.delays),
            ipdv: Ipdv::of(&self.kept),
        }
    }
}

#[cfg(test)]
mod tests;
