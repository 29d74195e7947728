//! Scalability against connections and against processors (RFC 9693 section 5).

use super::{StatefulTester, Tuples};
use crate::error::Ended;
use crate::session::{Result, Session};

/// Numbers of processors: powers of two, and all that there are (section 5.2).
pub fn processor_counts(all: u32) -> Vec<u32> {
    let mut counts: Vec<u32> =
        (0..32).map(|power| 1 << power).take_while(|count| *count < all).collect();
    counts.push(all.max(1));
    counts
}

/// Ranges for a series of numbers of connections: a fixed range of source ports, and destination ports that grow tenfold up
/// to `most` (section 5.1).
pub fn connection_counts(source_ports: u32, first: u32, most: u32) -> Vec<Tuples> {
    let tens = std::iter::successors(Some(first.max(1)), |ports| ports.checked_mul(10));
    let of = |destination_ports| Tuples {
        source_addresses: 1,
        source_ports,
        destination_addresses: 1,
        destination_ports,
    };
    tens.take_while(|ports| *ports <= most).map(of).filter(Tuples::is_valid).collect()
}

/// Runs tests for each number of connections. Each test empties the table before it begins.
pub fn over_connections<T: StatefulTester, R>(
    session: &mut Session<'_, T>,
    series: &[Tuples],
    mut test: impl FnMut(&mut Session<'_, T>, Tuples) -> Result<R, T>,
) -> Result<Vec<(Tuples, R)>, T> {
    let each = series.iter().map(|tuples| Ok((*tuples, test(session, *tuples)?)));
    each.collect()
}

/// Runs tests with each number of processors, in rising order; the device has all of them again afterwards, also when a test
/// ends without a result.
pub fn over_processors<T: StatefulTester, R>(
    session: &mut Session<'_, T>,
    all: u32,
    mut test: impl FnMut(&mut Session<'_, T>, u32) -> Result<R, T>,
) -> Result<Vec<(u32, R)>, T> {
    let mut run = || {
        let each = processor_counts(all).into_iter().map(|count| {
            session.operate(0.0, |tester| tester.set_processors(count))?;
            Ok((count, test(session, count)?))
        });
        each.collect::<Result<Vec<_>, T>>()
    };
    let results = run();
    let restored = session.finish(|tester| tester.set_processors(all)).map_err(Ended::Tester);
    results.and_then(|results| restored.map(|()| results))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_powers_of_two_and_all() {
        assert_eq!(processor_counts(8), [1, 2, 4, 8]);
        assert_eq!(processor_counts(6), [1, 2, 4, 6]);
        assert_eq!(processor_counts(1), [1]);
    }

    #[test]
    fn destination_ports_grow_tenfold() {
        let series = connection_counts(40_000, 10, 10_000);
        let counts: Vec<u64> = series.iter().map(Tuples::count).collect();
        assert_eq!(counts, [400_000, 4_000_000, 40_000_000, 400_000_000]);
        assert!(series.iter().all(|tuples| tuples.source_ports == 40_000));
    }
}
