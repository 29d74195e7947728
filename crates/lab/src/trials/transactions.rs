//! Transactions by HTTP: the tests of RFC 9411 sections 7.2 to 7.5.

use std::path::PathBuf;

use fordway_data::spec::{Axis, Metric, Point, Transact};
use fordway_data::trial::Trial;

use super::{Before, Lack, Measured, Values, now};
use crate::error::{LabError, Result};
use crate::load::transactions::{self as load, CONNECTIONS, Count, KEPT, MIXED, PACED, Site};

/// The object of many connections (RFC 9411 section 7.5).
const SMALL: u64 = 1024;
/// A larger share of failed transactions makes a trial a failure (RFC 9411 section 7.2.3.3).
const MAX_FAILED: f64 = 0.000_01;
/// A rate should stay within this share of its mean in the sustain phase.
const STEADY: f64 = 0.05;
/// Times are taken at this share of the highest rate (RFC 9411 section 7.4).
const HALF: f64 = 0.5;
/// A generator that makes a smaller share of the transactions that are due does not keep the rate.
const KEEPS: f64 = 0.8;

/// Makes transactions of this kind; the size of an object is the point's.
pub(super) fn measure(
    at: &Measured<'_>,
    what: Transact,
    point: Option<&Point>,
    trial: &mut Trial,
    values: &mut Values,
) -> Result<()> {
    let octets = point.and_then(|point| point.at(Axis::Octets)).unwrap_or(SMALL);
    let sizes: &[u64] = if what == Transact::Mixed { &MIXED } else { &[octets] };
    let suffix = point.map_or_else(String::new, |point| format!("-{}", point.file_name()));
    let label = format!("transactions-{}{suffix}", what.name());
    let log: PathBuf = at.raw.join(format!("{}-{label}-server.log", at.name));
    let close = what == Transact::Single;
    let kept = if close { 1 } else { KEPT };
    let mut site = Site::open(at.backend, at.network, sizes, kept, &log)?;
    trial.started = now();
    if what == Transact::Held {
        return held(at, &mut site, &label, trial, values);
    }
    let (ends, phases) = ((at.backend, at.network), (at.profile.ramp_s, at.profile.sustain_s));
    let before = Before::read(at)?;
    let name = format!("{}-{label}.lua", at.name);
    let peak = load::peak(ends, &mut site, (sizes, close), phases, &name)?;
    before.finish(at, trial)?;
    let whole = site.count()?;
    at.keep(&format!("{label}.txt"), &peak.finished.stdout)?;
    keep_counts(at, &label, &peak.counts)?;
    trial.exit_status = Some(peak.finished.code());
    trial.argv = peak.finished.argv;
    let (done, failed) = (peak.told.requests, peak.told.failed);
    trial.sent = Some(done + failed);
    trial.arrived = Some(done);
    trial.failed.extend(fault(failed, done + failed));
    trial.invalid.extend(disagreement(whole.requests, done, failed));
    let rate = sustained(&peak.counts)?;
    trial.flags.extend(unsteady(&peak.counts, rate));
    let mean = sizes.iter().sum::<u64>() as f64 / sizes.len() as f64;
    let gbit_s = rate * mean * 8.0 / 1e9;
    match what {
        Transact::Single => drop(values.insert(Metric::WebConnectionRate, Ok(rate / 1e3))),
        Transact::Kept => {
            values.insert(Metric::WebThroughput, Ok(gbit_s));
            values.insert(Metric::WebTransactionRate, Ok(rate / 1e3));
        }
        Transact::Mixed | Transact::Held => {
            values.insert(Metric::WebThroughputMixed, Ok(gbit_s));
            values.insert(Metric::WebTransactionRateMixed, Ok(rate / 1e3));
        }
    }
    let times = match what {
        Transact::Single => [Metric::WebFirstByte, Metric::WebLastByte],
        _ => [Metric::WebFirstByteKept, Metric::WebLastByteKept],
    };
    // While calibrating, nobody asks for times; those at half of a rate that does not count would not count either.
    let wanted = what != Transact::Mixed
        && at.mechanism.is_some()
        && rate > 0.0
        && trial.failed.is_empty()
        && trial.invalid.is_empty()
        && times.iter().any(|metric| at.metrics.contains(metric));
    if wanted {
        half(at, &mut site, (octets, close), HALF * rate, &label, (times, values))?;
    }
    Ok(())
}

/// Times transactions at a given rate. What goes wrong here says nothing of the highest rate.
fn half(
    at: &Measured<'_>,
    site: &mut Site<'_>,
    object: (u64, bool),
    rate: f64,
    label: &str,
    ([first, last], values): ([Metric; 2], &mut Values),
) -> Result<()> {
    let mut timed = || -> Result<_> {
        let before = site.count()?;
        let timed = load::timed((at.backend, at.network), object, rate, at.profile.sustain_s)?;
        Ok((timed, site.count()?.requests.saturating_sub(before.requests)))
    };
    let ((finished, timed), asked) = match timed() {
        Err(error) if error.ends_the_run() => return Err(error),
        Err(error) => {
            let lack = match error.is_the_mechanisms() {
                true => Lack::Failed(error.to_string()),
                false => Lack::Unmeasured(error.to_string()),
            };
            values.extend([first, last].map(|metric| (metric, Err(lack.clone()))));
            return Ok(());
        }
        Ok(done) => done,
    };
    let kept = serde_json::json!({"rate": rate, "argv": finished.argv, "times": timed});
    at.keep(&format!("{label}-times.json"), &kept.to_string())?;
    // What the mechanism has failed to do comes before what the generator has.
    let lack = fault(timed.failed, timed.done + timed.failed)
        .map(Lack::Failed)
        .or_else(|| incomplete(asked, timed.done + timed.failed))
        .or_else(|| slow(timed.due, timed.done + timed.failed));
    for (metric, times) in [(first, timed.first), (last, timed.last)] {
        values.insert(metric, lack.clone().map_or(Ok(times.mean), Err));
    }
    Ok(())
}

/// Opens many connections and counts those that stay open.
fn held(
    at: &Measured<'_>,
    site: &mut Site<'_>,
    label: &str,
    trial: &mut Trial,
    values: &mut Values,
) -> Result<()> {
    let wanted = at.profile.web_connections;
    let phases = (at.profile.ramp_s, at.profile.sustain_s);
    let before = Before::read(at)?;
    let held = load::held((at.backend, at.network), site, SMALL, wanted, phases)?;
    before.finish(at, trial)?;
    at.keep(&format!("{label}.txt"), &held.finished.stdout)?;
    keep_counts(at, label, &held.counts)?;
    trial.exit_status = Some(held.finished.code());
    trial.argv = held.finished.argv;
    trial.cap = Some(f64::from(wanted) / 1e3);
    trial.sent = Some(held.due);
    trial.arrived = Some(held.due - held.failed);
    trial.failed.extend(fault(held.failed, held.due));
    let open = held.counts.iter().map(|count| count.open).min();
    let open = open.ok_or_else(|| LabError::Usage("nothing was counted".into()))?;
    if open < u64::from(wanted) {
        trial.flags.push(format!("{open} of {wanted} connections were open all the time"));
    }
    values.insert(Metric::WebConnectionsHeld, Ok(open as f64 / 1e3));
    Ok(())
}

fn keep_counts(at: &Measured<'_>, label: &str, counts: &[Count]) -> Result<()> {
    let lines: Vec<String> =
        counts.iter().filter_map(|count| serde_json::to_string(count).ok()).collect();
    at.keep(&format!("{label}-counts.jsonl"), &lines.join("\n"))
}

/// Transactions per second from the first count to the last.
fn sustained(counts: &[Count]) -> Result<f64> {
    let ends = counts.first().zip(counts.last());
    ends.and_then(|(first, last)| between(first, last)).ok_or_else(|| LabError::Parse {
        tool: "nginx",
        why: "the generator ended before the sustain phase".into(),
    })
}

fn between(first: &Count, last: &Count) -> Option<f64> {
    let seconds = last.at_s - first.at_s;
    (seconds > 0.0).then(|| last.requests.saturating_sub(first.requests) as f64 / seconds)
}

/// Whether a rate rose or fell further than it should.
fn unsteady(counts: &[Count], rate: f64) -> Option<String> {
    let rates = counts.windows(2).filter_map(|two| between(&two[0], &two[1]));
    let most = rates.map(|one| (one - rate).abs() / rate).fold(0.0, f64::max);
    (most > STEADY).then(|| {
        format!(
            "the rate changed by up to {:.0} % in the sustain phase; RFC 9411 allows {:.0} %",
            100.0 * most,
            100.0 * STEADY
        )
    })
}

/// Why too many transactions failed.
fn fault(failed: u64, all: u64) -> Option<String> {
    (failed as f64 > MAX_FAILED * all as f64).then(|| {
        format!("{failed} of {all} transactions failed; RFC 9411 allows {} %", 100.0 * MAX_FAILED)
    })
}

/// Why the server's count of transactions can't be right: those under way at the end were asked for and not answered.
fn disagreement(asked: u64, done: u64, failed: u64) -> Option<String> {
    (!(done..=done + failed + CONNECTIONS).contains(&asked)).then(|| {
        format!("counters disagree: {done} transactions were complete, nginx counted {asked}")
    })
}

/// Why times are not those at the rate.
fn slow(due: u64, done: u64) -> Option<Lack> {
    ((done as f64) < KEEPS * due as f64).then(|| {
        Lack::Unmeasured(format!("hey made {done} of {due} transactions: the rate was not kept"))
    })
}

/// Why transactions that the server answered are missing: `hey` says nothing of connections that break.
fn incomplete(asked: u64, done: u64) -> Option<Lack> {
    let missing = asked.saturating_sub(done + PACED);
    (missing as f64 > MAX_FAILED * asked as f64)
        .then(|| Lack::Failed(format!("{missing} of {asked} transactions were not complete")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(all: &[(f64, u64)]) -> Vec<Count> {
        let of = |(at_s, requests): &(f64, u64)| Count {
            at_s: *at_s,
            requests: *requests,
            ..Count::default()
        };
        all.iter().map(of).collect()
    }

    #[test]
    fn a_rate_is_that_of_the_sustain_phase() {
        let steady = counts(&[(10.0, 500), (11.0, 1500), (12.0, 2520)]);
        assert_eq!(sustained(&steady).unwrap(), 1010.0);
        assert_eq!(unsteady(&steady, 1010.0), None);
        let falls = counts(&[(10.0, 0), (11.0, 1000), (12.0, 1800)]);
        assert!(unsteady(&falls, 900.0).is_some_and(|why| why.contains("up to 11 %")));
        assert!(sustained(&steady[..1]).is_err());
    }

    #[test]
    fn one_transaction_in_a_hundred_thousand_may_fail() {
        assert_eq!((fault(0, 10), fault(1, 100_000)), (None, None));
        assert!(fault(1, 99_000).is_some() && fault(2, 100_000).is_some());
    }

    #[test]
    fn the_server_counts_what_was_complete_and_what_was_under_way() {
        assert_eq!((disagreement(1000, 1000, 0), disagreement(1032, 1000, 0)), (None, None));
        assert!(disagreement(999, 1000, 0).is_some() && disagreement(1033, 1000, 0).is_some());
        assert_eq!(disagreement(1036, 1000, 4), None);
    }

    #[test]
    fn times_need_their_rate_and_all_their_transactions() {
        assert_eq!((slow(1000, 800), incomplete(1016, 1000)), (None, None));
        assert!(matches!(slow(1000, 799), Some(Lack::Unmeasured(_))));
        assert!(matches!(incomplete(1017, 1000), Some(Lack::Failed(_))));
    }
}
