//! DSTM: server, tunnel end point, clients.

use std::fmt::Write;

use fordway_control::{DstmClientStats, DstmServerStatus, DstmTepStatus};
use fordway_counters::dstm::ClientStats;
use fordway_daemon::output::group;
use fordway_daemon::output::{GOOD, STRONG, WARNING, joined};

use super::Render;
use super::services::line;

impl Render for DstmServerStatus {
    fn render(&self) -> String {
        let mut text = format!("{GOOD}dstm-server{GOOD:#} {STRONG}DSTM server{STRONG:#}\n");
        line(&mut text, "listening", &joined(&self.listen));
        let ports = self.ports_per_client;
        let ports = ports.map_or(String::new(), |ports| format!(", {ports} ports for each client"));
        line(&mut text, "lends", &format!("{}{ports}", joined(&self.pool)));
        line(
            &mut text,
            "leases",
            &format!("{}, {} more can be", group(self.leases), group(self.free)),
        );
        line(&mut text, "end point", &self.tep.to_string());
        if !self.tep_up {
            let _ = writeln!(
                text,
                "  {WARNING}the tunnel end point does not answer: nothing new is lent{WARNING:#}"
            );
        }
        text
    }
}

impl Render for DstmTepStatus {
    fn render(&self) -> String {
        let mut text = format!("{GOOD}dstm-tep{GOOD:#} {STRONG}DSTM tunnel end point{STRONG:#}\n");
        line(&mut text, "listening", &self.listen.to_string());
        let bindings = format!("{} of {}", group(self.bindings), group(self.max_bindings));
        line(&mut text, "bindings", &bindings);
        text
    }
}

impl Render for DstmClientStats {
    fn render(&self) -> String {
        let ClientStats { state, v4, ports, tep, own, seconds, refused, .. } = &self.stats;
        let mut text =
            format!("{GOOD}{}{GOOD:#} {STRONG}DSTM client{STRONG:#}, {state}\n", self.name);
        if let Some(v4) = v4 {
            let ports = ports.map_or(String::new(), |(low, high)| format!(", ports {low}-{high}"));
            let seconds = seconds.unwrap_or_default();
            line(&mut text, "address", &format!("{v4}{ports}, for {seconds} s"));
        }
        if let (Some(own), Some(tep)) = (own, tep) {
            line(&mut text, "tunnel", &format!("{own} to {tep}"));
        }
        if let Some(refused) = refused {
            let _ = writeln!(text, "  {WARNING}no address: {refused}{WARNING:#}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use fordway_counters::dstm::ServerStats;

    use fordway_daemon::metrics::counters::{DSTM_SERVER, table};

    #[test]
    fn only_trouble_that_there_was_is_shown() {
        let text =
            table(DSTM_SERVER, &ServerStats { granted: 1234, forged: 2, ..ServerStats::default() });
        assert!(text.contains("1,234") && text.contains("is the key the same?"), "{text}");
        assert!(!text.contains("exhausted"), "{text}");
    }
}
