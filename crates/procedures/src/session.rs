//! A Tester in use: cancellation, plausibility of counts, and what has been run so far.

use serde::{Deserialize, Serialize};

use crate::error::Ended;
use crate::tester::{Load, Order, Outcome, Record, Tester, Waits};
use crate::traffic::Traffic;

/// A generator that sends less than this share of the ordered frames has not offered the rate.
pub const OFFERED: f64 = 0.99;
/// Attempts at a trial that the generator has to carry.
const ATTEMPTS: u32 = 3;

/// A result of procedures over a Tester `T`.
pub type Result<R, T> = std::result::Result<R, Ended<<T as Tester>::Error>>;

/// A trial that was run, and what was intended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Frames that were ordered, all directions.
    pub intended: u64,
    /// What came of it.
    pub outcome: Outcome,
}

impl Trial {
    /// Whether the generator sent fewer frames than it takes to say that the rate was offered.
    pub fn is_short(&self) -> bool {
        (self.outcome.sent() as f64) < OFFERED * self.intended as f64
    }

    /// Whether the rate was offered and every frame came back.
    pub fn is_lossless(&self) -> bool {
        !self.is_short() && self.outcome.received() == self.outcome.sent()
    }

    /// Share of the frames that were lost: of those sent, or of those ordered where the rate was not offered, as RFC 9971
    /// section 4.9.1 recommends.
    pub fn loss_ratio(&self) -> f64 {
        let of = if self.is_short() { self.intended } else { self.outcome.sent() };
        1.0 - self.outcome.received() as f64 / of.max(1) as f64
    }
}

/// A Tester in use by procedures.
pub struct Session<'a, T: Tester> {
    tester: &'a mut T,
    waits: Waits,
    cancelled: &'a dyn Fn() -> bool,
    done: Done,
}

/// What was run.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Done {
    pub(crate) trials: u64,
    pub(crate) seconds: f64,
    /// Fillings that lost frames.
    pub(crate) refilled: u64,
}

impl<'a, T: Tester> Session<'a, T> {
    /// Begins. `cancelled` is asked before every trial and every operation on the device.
    pub fn new(tester: &'a mut T, waits: Waits, cancelled: &'a dyn Fn() -> bool) -> Self {
        Self { tester, waits, cancelled, done: Done::default() }
    }

    /// Trials and operations so far.
    pub fn trials(&self) -> u64 {
        self.done.trials
    }

    /// Seconds that these take by their orders, with waits.
    pub fn seconds(&self) -> f64 {
        self.done.seconds
    }

    /// How often a table was filled anew because a filling had lost frames.
    pub fn refilled(&self) -> u64 {
        self.done.refilled
    }

    /// What was run so far.
    pub(crate) fn done(&mut self) -> &mut Done {
        &mut self.done
    }

    /// Waits of every trial.
    pub fn waits(&self) -> Waits {
        self.waits
    }

    /// An order with the waits of this session.
    pub fn order(&self, traffic: &Traffic, load: Load, record: Record) -> Order {
        Order { traffic: *traffic, load, record, reset: None, waits: self.waits }
    }

    /// Runs a trial whose rate the generator may fail to reach: the device did not pass it then.
    pub fn run(&mut self, order: &Order) -> Result<Trial, T> {
        let outcome = self.operate(order.seconds() + order.waits.total(), |it| it.run(order))?;
        for stream in &outcome.streams {
            check(stream.sent, stream.received)?;
        }
        let directions = order.traffic.directions();
        let all = directions.iter().all(|it| outcome.streams.iter().any(|s| s.direction == *it));
        if !all || outcome.streams.len() != directions.len() {
            return Err(Ended::Missing("a stream for each direction"));
        }
        Ok(Trial { intended: order.frames() * directions.len() as u64, outcome })
    }

    /// Runs a trial at a rate that the generator has to reach, in up to three attempts.
    pub fn measure(&mut self, order: &Order) -> Result<Outcome, T> {
        let mut attempts = 0;
        loop {
            let trial = self.run(order)?;
            attempts += 1;
            if !trial.is_short() {
                return Ok(trial.outcome);
            }
            if attempts == ATTEMPTS {
                let (sent, intended) = (trial.outcome.sent(), trial.intended);
                return Err(Ended::Generator { sent, intended, attempts });
            }
        }
    }

    /// Runs a trial at a constant rate and tells whether no frame was lost.
    pub fn passes(&mut self, traffic: &Traffic, rate: f64, seconds: f64) -> Result<bool, T> {
        let order = self.order(traffic, Load::Constant { rate, seconds }, Record::Counts);
        Ok(self.run(&order)?.is_lossless())
    }

    /// Brings back a device that collapsed.
    pub fn restore(&mut self) -> Result<(), T> {
        self.operate(0.0, T::restore)
    }

    /// Lends the Tester to a procedure that puts something in front of each trial, and counts what that runs.
    pub(crate) fn lend<R>(
        &mut self,
        use_it: impl FnOnce(&mut T, Waits, &dyn Fn() -> bool) -> (R, Done),
    ) -> R {
        let (result, done) = use_it(self.tester, self.waits, self.cancelled);
        self.done.trials += done.trials;
        self.done.seconds += done.seconds;
        self.done.refilled += done.refilled;
        result
    }

    /// One operation of the Tester.
    pub(crate) fn operate<R>(
        &mut self,
        seconds: f64,
        operation: impl FnOnce(&mut T) -> std::result::Result<R, T::Error>,
    ) -> Result<R, T> {
        if (self.cancelled)() {
            return Err(Ended::Cancelled);
        }
        self.done.trials += 1;
        self.done.seconds += seconds;
        operation(self.tester).map_err(Ended::Tester)
    }
}

/// Counts that can be.
pub(crate) fn check<E>(sent: u64, received: u64) -> std::result::Result<(), Ended<E>> {
    if received > sent { Err(Ended::Counts { sent, received }) } else { Ok(()) }
}
