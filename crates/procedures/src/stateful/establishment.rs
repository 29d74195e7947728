//! Maximum connection establishment rate with validation (RFC 9693 sections 4.5 and 4.6).

use serde::{Deserialize, Serialize};

use super::{Filling, Parameters, Phase, StatefulTester, Tuples};
use crate::bisect::{Bisected, Bisection};
use crate::session::{Result, Session};
use crate::summary::Repeated;

/// What an elementary step showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Established {
    /// Every frame of test phase 1 and every frame of the validation arrived.
    All,
    /// Frames of test phase 1 were lost.
    LostInPhase1,
    /// So many connections were not there when they were validated.
    Unvalidated(u64),
    /// The device collapsed.
    Collapsed,
}

/// Maximum connection establishment rate: a column of table 1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Establishment {
    /// Ranges of addresses and ports.
    pub tuples: Tuples,
    /// Connections.
    pub connections: u64,
    /// Connections/s.
    pub rate: Repeated,
    /// Bounds of each search; `None`: the device collapsed, and the rate counts as 0.
    pub searches: Vec<Option<Bisected>>,
    /// Highest rate that was tried.
    pub maximum: u64,
    /// Parameters, with the error of the binary search.
    pub parameters: Parameters,
}

/// Measures the rate for a number of connections by a binary search up to `maximum`, each repetition by a search of its own.
/// 0 where nothing is established at any rate, or the device collapses.
pub fn establishment<T: StatefulTester>(
    session: &mut Session<'_, T>,
    tuples: Tuples,
    maximum: u64,
    parameters: &Parameters,
    seed: u64,
) -> Result<Establishment, T> {
    let connections = tuples.count();
    let mut searches = Vec::new();
    for repetition in 0..u64::from(parameters.repetitions.max(1)) {
        let seed = seed.wrapping_add(repetition);
        let filling = Filling { tuples, connections, seed, rate: 0.0 };
        searches.push(search(session, &filling, maximum, 0, parameters)?);
    }
    let rates = searches.iter().map(|it| it.map_or(0.0, |found| found.value as f64)).collect();
    let rate = Repeated::of(rates).expect("at least one search");
    Ok(Establishment { tuples, connections, rate, searches, maximum, parameters: *parameters })
}

/// An elementary step: empty table, test phase 1 at the rate of the order, validation at alpha times that rate.
pub fn step<T: StatefulTester>(
    session: &mut Session<'_, T>,
    filling: &Filling,
    parameters: &Parameters,
) -> Result<Established, T> {
    let n = filling.connections as f64;
    let validation = filling.rate * parameters.alpha;
    // No connection may time out before it is validated (section 4.4).
    session.require_timeout(n / filling.rate + n / validation + parameters.gap_s)?;
    let Phase::Counted { sent, received } = session.refill(filling)? else {
        return Ok(Established::Collapsed);
    };
    if received < sent {
        return Ok(Established::LostInPhase1);
    }
    Ok(match session.validate(validation, filling.connections)? {
        Phase::Collapsed => Established::Collapsed,
        Phase::Counted { sent, received } if received < sent => {
            Established::Unvalidated(sent - received)
        }
        Phase::Counted { .. } => Established::All,
    })
}

/// Why a search stops before its end.
enum Stop<E> {
    Collapsed,
    Ended(E),
}

/// The binary search of section 4.5. It ends early when a rate up to `floor` fails, and with `None` when the device collapses.
pub(super) fn search<T: StatefulTester>(
    session: &mut Session<'_, T>,
    filling: &Filling,
    maximum: u64,
    floor: u64,
    parameters: &Parameters,
) -> Result<Option<Bisected>, T> {
    let (error, finest) = (parameters.rate_error, parameters.finest_rate_error());
    let search = Bisection { most: maximum, error, finest, floor };
    let found = search.run(|rate| {
        let filling = Filling { rate: rate as f64, ..*filling };
        match step(session, &filling, parameters).map_err(Stop::Ended)? {
            Established::Collapsed => Err(Stop::Collapsed),
            established => Ok(established == Established::All),
        }
    });
    match found {
        Ok(found) => Ok(Some(found)),
        Err(Stop::Ended(ended)) => Err(ended),
        Err(Stop::Collapsed) => {
            session.restore()?;
            Ok(None)
        }
    }
}
