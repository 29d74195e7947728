//! Stateful NATxy gateways (RFC 9693): every connection is a four tuple, test phase 1 fills the device's connection tracking
//! table, test phase 2 measures over it.

mod capacity;
mod establishment;
mod filled;
mod tear_down;
mod tuples;

use serde::{Deserialize, Serialize};

pub use capacity::{Capacity, Step, capacity};
pub use establishment::{Established, Establishment, establishment, step};
pub use filled::{Filled, over_filled_table};
pub use tear_down::{TearDown, tear_down};
pub use tuples::{Permutation, Tuple, Tuples};

use crate::error::Ended;
use crate::session::{Result, Session, check};
use crate::tester::Tester;

/// A Tester for stateful gateways: an Initiator, and a Responder that keeps the four tuples it receives in a state table
/// (RFC 9693 section 3).
///
/// A trial that follows [`StatefulTester::fill`] is test phase 2 (section 4.7): the Initiator draws addresses and ports from the
/// ranges of the filling, the Responder sends by its state table, read pseudorandomly (section 4.10).
pub trait StatefulTester: Tester {
    /// Deletes all connections, whatever it takes, and the Responder's state table (RFC 9693 section 4.4).
    fn empty_table(&mut self) -> std::result::Result<(), Self::Error>;

    /// Makes the device keep connections without traffic for at least this many seconds (RFC 9693 section 4.4).
    fn require_timeout(&mut self, seconds: f64) -> std::result::Result<(), Self::Error>;

    /// Test phase 1 (RFC 9693 section 4.2): the Initiator sends one frame per four tuple in the order of
    /// [`Tuples::permutation`]; the Responder receives, writes its state table round robin, and sends nothing.
    fn fill(&mut self, order: &Filling) -> std::result::Result<Phase, Self::Error>;

    /// Validation (RFC 9693 section 4.6): the Responder sends one frame for each four tuple of its state table at `rate`
    /// frames/s, and the Initiator counts.
    fn validate(&mut self, rate: f64) -> std::result::Result<Phase, Self::Error>;

    /// Deletes all connections by the device's own means, and tells how many seconds that took (RFC 9693 section 4.8).
    fn delete_all(&mut self) -> std::result::Result<f64, Self::Error>;
}

/// An order for test phase 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Filling {
    /// Ranges of the four tuples.
    pub tuples: Tuples,
    /// Connections: so many combinations, the first ones in the order of the seed; all of them in front of test phase 2, so
    /// that none of its frames makes a new connection (section 4.4).
    pub connections: u64,
    /// Seed of the pseudorandom order of combinations.
    pub seed: u64,
    /// Frames/s.
    pub rate: f64,
}

/// Counts of a phase in which one frame is sent per connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// The device was there to the end.
    Counted {
        /// Frames sent.
        sent: u64,
        /// Frames received.
        received: u64,
    },
    /// The device collapsed: it forwards nothing any more (RFC 9693 section 4.9).
    Collapsed,
}

/// Parameters of all tests of RFC 9693.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// Error of the binary search for the maximum connection establishment rate, connections/s. That of rates below eight
    /// times this is an eighth of the rate, down to an eighth of this.
    pub rate_error: u64,
    /// alpha: rate of validation as a share of the rate of test phase 1 (section 4.6).
    pub alpha: f64,
    /// Rate that fills the table in front of test phase 2, as a share of the maximum connection establishment rate: safely
    /// below 1 (section 4.2).
    pub fill: f64,
    /// beta: a rate below this share of the last one ends the exponential search for the capacity (section 4.9).
    pub beta: f64,
    /// gamma: a rate below this share takes the lower half in the final search (section 4.9).
    pub gamma: f64,
    /// E: error of the capacity, connections.
    pub capacity_error: u64,
    /// Measurements (section 6).
    pub repetitions: u32,
    /// Seconds by which a timeout exceeds what it has to cover: gaps between phases.
    pub gap_s: f64,
}

impl Parameters {
    pub(crate) fn finest_rate_error(&self) -> u64 {
        self.rate_error / 8
    }
}

/// How often a table is filled until it is given up.
const FILLINGS: u32 = 3;

impl<T: StatefulTester> Session<'_, T> {
    /// Empties the table, then fills it.
    pub(crate) fn refill(&mut self, order: &Filling) -> Result<Phase, T> {
        self.operate(0.0, T::empty_table)?;
        let seconds = order.connections as f64 / order.rate;
        let phase = self.operate(seconds + self.waits().residual, |it| it.fill(order))?;
        plausible(phase, order.connections)
    }

    /// Empties the table and fills it without loss, as phase 2 requires. A filling that loses frames is not used: it is done anew, some
    /// times, since its rate is one at which the device has lost none.
    pub(crate) fn refill_whole(&mut self, order: &Filling) -> Result<(), T> {
        let mut fillings = 0;
        loop {
            fillings += 1;
            match self.refill(order)? {
                Phase::Counted { sent, received } if sent == received => return Ok(()),
                Phase::Counted { .. } if fillings < FILLINGS => self.done().refilled += 1,
                Phase::Counted { sent, received } => {
                    return Err(Ended::NotFilled { sent, received });
                }
                Phase::Collapsed => {
                    let sent = order.connections;
                    return Err(Ended::NotFilled { sent, received: 0 });
                }
            }
        }
    }

    pub(crate) fn validate(&mut self, rate: f64, connections: u64) -> Result<Phase, T> {
        let seconds = connections as f64 / rate + self.waits().residual;
        let phase = self.operate(seconds, |it| it.validate(rate))?;
        plausible(phase, connections)
    }

    pub(crate) fn require_timeout(&mut self, seconds: f64) -> Result<(), T> {
        self.operate(0.0, |it| it.require_timeout(seconds))
    }
}

/// A phase that sent a frame for every connection and received no more than that.
fn plausible<E>(phase: Phase, connections: u64) -> std::result::Result<Phase, Ended<E>> {
    if let Phase::Counted { sent, received } = phase {
        check(sent, received)?;
        if sent != connections {
            return Err(Ended::Generator { sent, intended: connections, attempts: 1 });
        }
    }
    Ok(phase)
}
