//! Transport relays.

use std::fmt::Write;

use fordway_control::TrtStatus;
use fordway_daemon::output::group;
use fordway_daemon::output::{GOOD, STRONG, WARNING, joined};

use super::Render;
use super::services::line;

impl Render for TrtStatus {
    fn render(&self) -> String {
        let mut text =
            format!("{GOOD}{}{GOOD:#} {STRONG}transport relay (TRT){STRONG:#}\n", self.name);
        if !self.whole {
            let _ = writeln!(text, "  {WARNING}a thread has failed: restart it{WARNING:#}");
        }
        line(&mut text, "prefixes", &self.pool6.join(", "));
        let protocols = match (self.tcp, self.udp) {
            (true, true) => "TCP, UDP",
            (true, false) => "TCP",
            _ => "UDP",
        };
        line(&mut text, "protocols", protocols);
        line(&mut text, "threads", &self.threads.to_string());
        line(&mut text, "allowed", &joined(&self.allow));
        let source = match self.source4.as_slice() {
            [] => "as routing chooses".to_owned(),
            addresses => joined(addresses),
        };
        line(&mut text, "source", &source);
        let of = |now: u64, most: u64| format!("{} of {}", group(now), group(most));
        line(&mut text, "connections", &of(self.connections, self.max_connections));
        line(&mut text, "UDP sessions", &of(self.sessions, self.max_sessions));
        text
    }
}

#[cfg(test)]
mod tests {
    use fordway_counters::trt;

    use fordway_daemon::metrics::counters::{TRT, table};

    #[test]
    fn only_trouble_that_there_was_is_shown() {
        let stats = trt::Stats { tcp_accepted: 1234, failed_timeout: 7, ..trt::Stats::default() };
        let text = table(TRT, &stats);
        assert!(text.contains("1,234") && text.contains("did not answer"), "{text}");
        assert!(!text.contains("own address"), "{text}");
    }
}
