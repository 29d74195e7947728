//! Test phase 2: the classic benchmarks over a filled table (RFC 9693 section 4.7).

use super::{Filling, StatefulTester};
use crate::error::Ended;
use crate::session::{Done, Result, Session};
use crate::tester::{Order, Outcome, Tester};

/// A Tester that empties and fills the table in front of every trial, so that each starts from the same state.
pub struct Filled<'a, T: StatefulTester> {
    session: Session<'a, T>,
    filling: Filling,
    gap_s: f64,
}

impl<T: StatefulTester> Tester for Filled<'_, T> {
    type Error = Ended<T::Error>;

    fn run(&mut self, order: &Order) -> std::result::Result<Outcome, Self::Error> {
        let phase_1 = self.filling.connections as f64 / self.filling.rate;
        let phase_2 = order.seconds() + order.waits.total();
        // Neither phase nor the gap between them may end a connection (section 4.4).
        self.session.require_timeout(phase_1 + self.gap_s + phase_2)?;
        self.session.refill_whole(&self.filling)?;
        self.session.operate(0.0, |tester| tester.run(order))
    }

    fn restore(&mut self) -> std::result::Result<(), Self::Error> {
        self.session.restore()
    }
}

/// Runs benchmarks over a filled table. The rate of the filling must be safely below the maximum connection establishment
/// rate, which has to be measured first (section 4.2); a filling that loses frames is done anew, and the third in a row ends the
/// benchmark.
pub fn over_filled_table<T: StatefulTester, R>(
    session: &mut Session<'_, T>,
    filling: &Filling,
    gap_s: f64,
    benchmarks: impl FnOnce(
        &mut Session<'_, Filled<'_, T>>,
    ) -> std::result::Result<R, Ended<Ended<T::Error>>>,
) -> Result<R, T> {
    if filling.connections != filling.tuples.count() {
        return Err(Ended::Precondition("test phase 1 must enumerate all four tuples"));
    }
    session.lend(|tester, waits, cancelled| {
        let inner = Session::new(tester, waits, cancelled);
        let mut tester = Filled { session: inner, filling: *filling, gap_s };
        let mut outer = Session::new(&mut tester, waits, cancelled);
        let result = benchmarks(&mut outer).map_err(Ended::flatten);
        let done = *outer.done();
        let inner = *tester.session.done();
        (result, Done { seconds: done.seconds + inner.seconds, refilled: inner.refilled, ..done })
    })
}
