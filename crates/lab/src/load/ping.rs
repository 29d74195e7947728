//! Round-trip time by `ping`: every reply is read.

use std::time::Duration;

use crate::backend::{Backend, Place};
use crate::error::{LabError, Result};
use crate::process::{Finished, Output};

/// What one `ping` saw.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pings {
    /// Requests sent.
    pub(crate) sent: u32,
    /// Round-trip time of each reply in ms, in order of arrival.
    pub(crate) replies_ms: Vec<f64>,
}

/// One echo request with a chosen size, hop count, or do-not-fragment rule.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Single<'a> {
    /// Payload octets.
    pub(crate) size: u32,
    /// Hop count, when not the default.
    pub(crate) ttl: Option<u8>,
    /// Refuse fragmentation.
    pub(crate) whole: bool,
    /// Number of requests.
    pub(crate) count: &'a str,
}

/// Command line of a measurement.
pub(crate) fn argv(target: std::net::IpAddr, count: u32, interval_s: f64) -> Vec<String> {
    let interval = format!("{interval_s}");
    let count = count.to_string();
    ["ping", "-n", "-c", &count, "-i", &interval, "-W", "1", &target.to_string()]
        .map(str::to_owned)
        .into()
}

/// Measures.
pub(crate) fn measure(
    backend: &dyn Backend,
    place: &Place,
    argv: &[String],
    expected: Duration,
) -> Result<(Finished, Pings)> {
    let limit = expected + Duration::from_secs(10);
    let finished = backend.run(Some(place), argv, Output::Keep)?.wait(limit)?;
    let pings = parse(&finished.stdout)?;
    Ok((finished, pings))
}

/// Sends single probes; the output is left to the caller, as errors are what it looks for.
pub(crate) fn single(
    backend: &dyn Backend,
    place: &Place,
    target: std::net::IpAddr,
    probe: Single<'_>,
) -> Result<Finished> {
    let size = probe.size.to_string();
    let mut argv = vec!["ping", "-n", "-c", probe.count, "-i", "0.05", "-W", "0.5", "-s", &size];
    let ttl = probe.ttl.map(|t| t.to_string());
    if let Some(ttl) = &ttl {
        argv.extend(["-t", ttl]);
    }
    if probe.whole {
        argv.extend(["-M", "do"]);
    }
    let target = target.to_string();
    argv.push(&target);
    let argv: Vec<String> = argv.into_iter().map(str::to_owned).collect();
    backend.run(Some(place), &argv, Output::Keep)?.wait(Duration::from_secs(8))
}

/// Reads `ping`'s output (iputils).
pub(crate) fn parse(text: &str) -> Result<Pings> {
    let bad = |why: &str| LabError::Parse { tool: "ping", why: why.to_owned() };
    let mut replies_ms = Vec::new();
    let mut sent = None;
    for line in text.lines() {
        if let Some((_, rest)) = line.split_once(" time=") {
            // A duplicate is no second measurement.
            if !line.contains("DUP!") {
                let number = rest.split_whitespace().next().unwrap_or("");
                replies_ms.push(number.parse().map_err(|_| bad(line))?);
            }
        } else if let Some((count, _)) = line.split_once(" packets transmitted") {
            sent = Some(count.trim().parse().map_err(|_| bad(line))?);
        }
    }
    Ok(Pings { sent: sent.ok_or_else(|| bad("no summary line"))?, replies_ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "PING 192.0.0.171 (192.0.0.171) 56(84) bytes of data.\n\
        64 bytes from 192.0.0.171: icmp_seq=1 ttl=61 time=0.425 ms\n\
        64 bytes from 192.0.0.171: icmp_seq=1 ttl=61 time=0.430 ms (DUP!)\n\
        64 bytes from 192.0.0.171: icmp_seq=2 ttl=61 time=12 ms\n\
        \n--- 192.0.0.171 ping statistics ---\n\
        3 packets transmitted, 2 received, 33% packet loss, time 407ms\n\
        rtt min/avg/max/mdev = 0.166/0.259/0.425/0.117 ms\n";

    #[test]
    fn every_reply_is_read_and_duplicates_are_not() {
        let pings = parse(SAMPLE).unwrap();
        assert_eq!(pings, Pings { sent: 3, replies_ms: vec![0.425, 12.0] });
    }

    #[test]
    fn output_without_a_summary_is_an_error() {
        assert!(parse("ping: connect: Network is unreachable\n").is_err());
    }
}
