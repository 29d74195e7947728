//! Pages by `ab`, ApacheBench: the load of study B.

use std::time::Duration;

use fordway_data::addresses::SITE_PORT;

use crate::backend::Backend;
use crate::error::{LabError, Result};
use crate::process::{Finished, Output, last_lines};
use crate::topology::Network;

/// Octets of the study's page.
pub(crate) const PAGE: u64 = 173_225;
/// The slowest path that is waited for, octets per second.
const SLOWEST: f64 = 1e6;

/// What one `ab` says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Fetched {
    /// Octets of content that the server says a page has.
    pub(crate) page: u64,
    /// Time taken for all, s.
    pub(crate) seconds: f64,
    /// Requests that came to an end.
    pub(crate) requests: u64,
    /// Of them, those that failed: connections broken off, other lengths, other answers than 200.
    pub(crate) failed: u64,
    /// Requests after which the connection was kept.
    pub(crate) kept: u64,
    /// Octets that came, heads included.
    pub(crate) octets: u64,
    /// Requests per second.
    pub(crate) per_s: f64,
    /// Time per request as `ab` gives it "across all concurrent requests", ms.
    pub(crate) per_request_ms: f64,
    /// What came, in units of 1024 octets per second, as `ab` counts.
    pub(crate) kib_s: f64,
}

/// Programs of this load that are not installed, with the line that installs them.
pub(crate) fn missing() -> Option<String> {
    super::to_install(&[("ab", "apache2-utils"), ("nginx", "nginx-light")])
}

/// The command line: so many requests over so many kept connections. A connection that is broken off is a failed
/// request, and not the end (`-r`).
pub(crate) fn argv(network: &Network, requests: u64, connections: u64) -> Vec<String> {
    let target = network.target;
    let host = if target.is_ipv6() { format!("[{target}]") } else { target.to_string() };
    let (requests, connections) = (requests.to_string(), connections.to_string());
    let url = format!("http://{host}:{SITE_PORT}/study");
    ["ab", "-q", "-k", "-r", "-n", &requests, "-c", &connections, &url].map(str::to_owned).into()
}

/// Fetches.
pub(crate) fn measure(
    backend: &dyn Backend,
    network: &Network,
    requests: u64,
    connections: u64,
) -> Result<(Finished, Fetched)> {
    let limit = Duration::from_secs_f64(30.0 + (requests * PAGE) as f64 / SLOWEST);
    let argv = argv(network, requests, connections);
    let finished = backend.run(Some(&network.app), &argv, Output::Keep)?.wait(limit)?;
    // In spite of `-r`, some errors of a connection end it.
    if finished.code() != 0 && finished.stderr.contains("apr_") {
        return Err(LabError::Failed(format!("ab: {}", last_lines(&finished.stderr, 1))));
    }
    let finished = finished.ok()?;
    let fetched = parse(&finished.stdout)?;
    Ok((finished, fetched))
}

/// Reads what `ab` prints.
pub(crate) fn parse(said: &str) -> Result<Fetched> {
    let bad = |what: &str| LabError::Parse { tool: "ab", why: format!("no `{what}`") };
    let text = |head: &str, tail: &str| {
        said.lines()
            .filter_map(|line| line.strip_prefix(head))
            .find(|rest| rest.contains(tail))
            .and_then(|rest| rest.split_whitespace().next())
    };
    let real = |head: &str, tail: &str| -> Result<f64> {
        text(head, tail).and_then(|word| word.parse().ok()).ok_or_else(|| bad(head))
    };
    let whole = |head: &str| -> Result<u64> {
        text(head, "").and_then(|word| word.parse().ok()).ok_or_else(|| bad(head))
    };
    Ok(Fetched {
        page: whole("Document Length:")?,
        seconds: real("Time taken for tests:", "seconds")?,
        requests: whole("Complete requests:")?,
        // The line of answers other than 200 is there only when there were some.
        failed: whole("Failed requests:")? + whole("Non-2xx responses:").unwrap_or(0),
        kept: whole("Keep-Alive requests:")?,
        octets: whole("Total transferred:")?,
        per_s: real("Requests per second:", "(mean)")?,
        per_request_ms: real("Time per request:", "across all concurrent requests")?,
        kib_s: real("Transfer rate:", "received")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "Server Software:        nginx/1.22.1\nDocument Path:          /study\n\
        Document Length:        173225 bytes\n\nConcurrency Level:      10\n\
        Time taken for tests:   0.412 seconds\nComplete requests:      1000\nFailed requests:        3\n\
        \x20  (Connect: 0, Receive: 1, Length: 2, Exceptions: 0)\nKeep-Alive requests:    990\n\
        Total transferred:      173474010 bytes\nHTML transferred:       173225000 bytes\n\
        Requests per second:    2427.62 [#/sec] (mean)\nTime per request:       4.119 [ms] (mean)\n\
        Time per request:       0.412 [ms] (mean, across all concurrent requests)\n\
        Transfer rate:          411257.59 [Kbytes/sec] received\n";

    #[test]
    fn what_ab_says_is_read_in_the_studys_quantities() {
        let fetched = parse(SAID).unwrap();
        assert_eq!((fetched.page, fetched.requests, fetched.failed), (PAGE, 1000, 3));
        assert_eq!((fetched.kept, fetched.octets, fetched.seconds), (990, 173_474_010, 0.412));
        assert_eq!((fetched.per_s, fetched.per_request_ms), (2427.62, 0.412));
        assert_eq!(fetched.kib_s, 411_257.59);
        let refused =
            SAID.replace("Total transferred", "Non-2xx responses:      40\nTotal transferred");
        assert_eq!(parse(&refused).unwrap().failed, 43);
        let said = parse("apr_socket_connect(): Connection refused (111)").unwrap_err().to_string();
        assert!(said.contains("Document Length"), "{said}");
    }
}
