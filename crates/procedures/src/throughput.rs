//! Throughput (RFC 8219 section 7.1, RFC 2544 section 26.1).

use serde::{Deserialize, Serialize};

use crate::search::{Found, Length, Search};
use crate::session::{Result, Session};
use crate::summary::Repeated;
use crate::tester::Tester;
use crate::traffic::Point;

/// How throughput is searched for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// Seconds of trials that lead the way (RFC 2544 section 24 allows them).
    pub short_s: f64,
    /// Seconds of the trials that count.
    pub full_s: f64,
    /// The rate found and the rate not passed differ by this ratio at most.
    pub precision: f64,
    /// Nothing is tried below this share of the maximum.
    pub least: f64,
    /// Searches.
    pub repetitions: u32,
}

/// Throughput of a device at one point: a row of the table, a point of the graph (RFC 2544 section 26.1).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// Traffic, with the theoretical or calibrated maximum: the graph's other line.
    pub point: Point,
    /// Frames/s in each direction; 0 where not even the least rate passed (RFC 2544 section 9.4).
    pub rate: Repeated,
    /// Bits/s of the median in each direction, with FCS, on the segment where frames are largest.
    pub bits_per_second: f64,
    /// Bounds of each search.
    pub searches: Vec<Option<Found>>,
    /// Whether a search ended at the maximum, so that the device may be faster.
    pub at_maximum: bool,
}

impl Parameters {
    /// The search from a first rate.
    pub fn search(&self, maximum: f64, guess: f64) -> Search {
        let least = (maximum * self.least).max(f64::MIN_POSITIVE);
        Search { guess, least, most: maximum, precision: self.precision }
    }
}

/// Finds the fastest rate at which as many frames are received as were sent. Each repetition is a search of its own.
pub fn throughput<T: Tester>(
    session: &mut Session<'_, T>,
    point: &Point,
    parameters: &Parameters,
) -> Result<Throughput, T> {
    let maximum = point.maximum.rate;
    let search = parameters.search(maximum, maximum);
    let mut searches = Vec::new();
    for _ in 0..parameters.repetitions.max(1) {
        searches.push(search.run(|rate, length| {
            let seconds = match length {
                Length::Short => parameters.short_s,
                Length::Full => parameters.full_s,
            };
            session.passes(&point.traffic, rate, seconds)
        })?);
    }
    let rates: Vec<f64> = searches.iter().map(|it| it.map_or(0.0, |found| found.rate)).collect();
    let rate = Repeated::of(rates).expect("at least one search");
    Ok(Throughput {
        point: *point,
        bits_per_second: rate.median * 8.0 * f64::from(point.traffic.frame.widest),
        at_maximum: searches.iter().flatten().any(|found| found.above.is_none()),
        rate,
        searches,
    })
}
