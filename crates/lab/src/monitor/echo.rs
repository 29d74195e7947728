//! Round trips: one echo request to every target per sample.

use std::time::Duration;

use super::{RTT, Reading, Source};
use crate::error::Result;
use crate::load::ping;
use crate::process::{Output, Running, last_lines, start};

/// Longer than `ping` itself waits.
const PATIENCE: Duration = Duration::from_secs(5);

/// Targets of echo requests.
#[derive(Debug)]
pub(crate) struct Echo {
    /// What begins the command, such as `nsenter --net=...`; empty: from this machine.
    via: Vec<String>,
    /// Names, and addresses.
    targets: Vec<(String, String)>,
    /// How long an answer may take, s.
    wait_s: f64,
    under_way: Vec<(String, Running)>,
}

impl Echo {
    /// An answer is waited for as long as a sample lasts, and a second at most.
    pub(crate) fn new(via: Vec<String>, targets: Vec<(String, String)>, every_s: f64) -> Self {
        Self { via, targets, wait_s: every_s.clamp(0.1, 1.0), under_way: Vec::new() }
    }
}

impl Source for Echo {
    fn begin(&mut self) -> Result<()> {
        for (name, target) in &self.targets {
            let wait = self.wait_s.to_string();
            let own = ["ping", "-n", "-c", "1", "-W", &wait, "--", target].map(str::to_owned);
            let ping = start(&[&self.via[..], &own].concat(), Output::Keep)?;
            self.under_way.push((name.clone(), ping));
        }
        Ok(())
    }

    fn read(&mut self) -> Result<Reading> {
        let mut reading = Reading::default();
        for (name, ping) in self.under_way.drain(..) {
            let done = ping.wait(PATIENCE)?;
            let replies =
                ping::parse(&done.stdout).map(|pings| pings.replies_ms).unwrap_or_default();
            let why = || match last_lines(&done.stderr, 1) {
                said if said.is_empty() => format!("no answer within {} s", self.wait_s),
                said => said,
            };
            reading.put(&format!("{RTT}{name}"), replies.first().copied().ok_or_else(why));
        }
        Ok(reading)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_answers_and_a_name_that_is_none_is_told() {
        if !fordway_testhost::has_programs(&["ping"]) {
            return;
        }
        let targets = ["127.0.0.1", "no such name"].map(|t| (t.to_owned(), t.to_owned())).to_vec();
        let mut echo = Echo::new(Vec::new(), targets, 10.0);
        echo.begin().unwrap();
        let reading = echo.read().unwrap();
        assert!(reading.values["rtt 127.0.0.1"] > 0.0, "{reading:?}");
        assert!(reading.missing.contains_key("rtt no such name"), "{reading:?}");
    }
}
