//! Times of transactions at a given rate, by `hey`.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::Serialize;

use super::{PACED, PATIENCE_S};
use crate::backend::Backend;
use crate::error::{LabError, Result};
use crate::load::fetch::host_of;
use crate::process::{Finished, Output};
use crate::topology::Network;

/// Transactions that `hey` remembers.
const REMEMBERED: f64 = 1e6;

/// Least, mean and greatest of some times, µs (RFC 9411 section 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Times {
    pub(crate) min: f64,
    pub(crate) mean: f64,
    pub(crate) max: f64,
}

impl Times {
    fn of(all: &[f64]) -> Option<Self> {
        let max = all.iter().copied().reduce(f64::max)?;
        let min = all.iter().copied().fold(max, f64::min);
        Some(Self { min, mean: all.iter().sum::<f64>() / all.len() as f64, max })
    }
}

/// What transactions at a given rate took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Timed {
    /// Transactions that were to be made.
    pub(crate) due: u64,
    /// Transactions that were complete.
    pub(crate) done: u64,
    /// Transactions that were answered with another status than 200.
    pub(crate) failed: u64,
    /// To the first octet of the answer.
    pub(crate) first: Times,
    /// To the last one.
    pub(crate) last: Times,
}

/// Times transactions at so many per second.
pub(crate) fn timed(
    (backend, network): (&dyn Backend, &Network),
    (size, close): (u64, bool),
    rate: f64,
    seconds: f64,
) -> Result<(Finished, Timed)> {
    let argv = hey(network.target, network.proxy()?, (size, close), rate, seconds);
    let limit = Duration::from_secs_f64(seconds + PATIENCE_S as f64 + 20.0);
    let finished = backend.run(Some(&network.app), &argv, Output::Keep)?.wait(limit)?.ok()?;
    let due = (rate * length(rate, seconds)).floor() as u64;
    let timed = of_hey(&finished.stdout, due)?;
    Ok((finished, timed))
}

/// Seconds for which `hey` runs: it forgets what is beyond a million transactions.
fn length(rate: f64, seconds: f64) -> f64 {
    seconds.min(REMEMBERED / rate)
}

fn hey(
    target: IpAddr,
    proxy: Option<SocketAddr>,
    (size, close): (u64, bool),
    rate: f64,
    seconds: f64,
) -> Vec<String> {
    let (length, workers) = (format!("{:.3}s", length(rate, seconds)), PACED.to_string());
    let (each, patience) = (format!("{:.3}", rate / PACED as f64), PATIENCE_S.to_string());
    let url = format!("http://{}/o{size}", host_of(target));
    let mut argv: Vec<String> =
        ["hey", "-z", &length, "-c", &workers, "-q", &each, "-t", &patience, "-o", "csv"]
            .map(str::to_owned)
            .into();
    argv.push("-disable-compression".into());
    if close {
        argv.push("-disable-keepalive".into());
    }
    if let Some(proxy) = proxy {
        argv.extend(["-x".to_owned(), format!("http://{proxy}")]);
    }
    argv.push(url);
    argv
}

/// A line for each transaction: `response-time,DNS+dialup,DNS,Request-write,Response-delay,Response-read,status-code,offset`,
/// times in seconds. The time to the first octet is the whole without that of reading. Connections that fail have no line.
fn of_hey(said: &str, due: u64) -> Result<Timed> {
    let bad = |why: String| LabError::Parse { tool: "hey", why };
    let (mut first, mut last, mut failed) = (Vec::new(), Vec::new(), 0);
    for line in said.lines().skip_while(|line| !line.starts_with("response-time,")).skip(1) {
        let fields: Vec<f64> = line.split(',').filter_map(|field| field.parse().ok()).collect();
        let [all, _, _, _, _, read, status, _] = fields[..] else {
            return Err(bad(format!("not understood: {line}")));
        };
        if status == 200.0 {
            first.push(1e6 * (all - read));
            last.push(1e6 * all);
        } else {
            failed += 1;
        }
    }
    let both = Times::of(&first).zip(Times::of(&last));
    let (first_octet, last_octet) =
        both.ok_or_else(|| LabError::Failed(format!("none of {due} transactions was complete")))?;
    Ok(Timed { due, done: last.len() as u64, failed, first: first_octet, last: last_octet })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_count_from_the_start_of_the_connection() {
        let said = "response-time,DNS+dialup,DNS,Request-write,Response-delay,Response-read,status-code,offset\n\
                    0.0031,0.0005,0.0000,0.0001,0.0024,0.0001,200,0.0295\n\
                    0.0011,0.0000,0.0000,0.0001,0.0004,0.0006,200,0.0326\n\
                    0.0001,0.0000,0.0000,0.0000,0.0001,0.0000,502,0.0330\n";
        let timed = of_hey(said, 3).unwrap();
        assert_eq!((timed.due, timed.done, timed.failed), (3, 2, 1));
        assert!((timed.first.mean - 1750.0).abs() < 1e-6 && (timed.first.min - 500.0).abs() < 1e-6);
        assert!((timed.last.mean - 2100.0).abs() < 1e-6 && (timed.last.max - 3100.0).abs() < 1e-6);
        assert!(of_hey(said.lines().next().unwrap(), 3).unwrap_err().is_the_mechanisms());
        assert!(!of_hey("response-time,x\nnonsense\n", 3).unwrap_err().is_the_mechanisms());
    }

    #[test]
    fn a_million_transactions_are_remembered() {
        assert_eq!((length(5000.0, 60.0), length(5000.0, 300.0)), (60.0, 200.0));
        let argv = hey("192.0.2.1".parse().unwrap(), None, (1024, true), 4000.0, 3.0);
        assert!(argv.windows(2).any(|two| two == ["-q", "250.000"]), "{argv:?}");
        assert!(argv.windows(2).any(|two| two == ["-z", "3.000s"]), "{argv:?}");
        assert!(argv.contains(&"-disable-keepalive".to_owned()));
    }
}
