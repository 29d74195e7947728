//! DSTM: server, tunnel end point, clients.

use std::fmt::Write;

use fordway_control::{DstmClientStats, DstmServerStatus, DstmTepStatus};
use fordway_dstmd::{ClientStats, LeaseView};

use super::Render;
use super::services::line;
use crate::output::group;
use crate::output::{FAINT, GOOD, STRONG, WARNING, joined};

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

/// Leases, a line each.
pub(crate) fn leases_table(leases: &[LeaseView]) -> String {
    let mut text = String::new();
    for LeaseView { client, v4, ports, remote, seconds, .. } in leases {
        let what = match ports {
            Some((low, high)) => format!("{v4}:{low}-{high}"),
            None => v4.to_string(),
        };
        let _ = writeln!(
            text,
            "{STRONG}{what:<27}{STRONG:#} {client:<24} {FAINT}at{FAINT:#} {remote}, {} s left",
            group(*seconds)
        );
    }
    if leases.is_empty() {
        text.push_str("nothing is lent\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use fordway_dstmd::Stats;

    use super::*;
    use crate::metrics::counters::{DSTM_SERVER, table};

    #[test]
    fn only_trouble_that_there_was_is_shown() {
        let text = table(DSTM_SERVER, &Stats { granted: 1234, forged: 2, ..Stats::default() });
        assert!(text.contains("1,234") && text.contains("is the key the same?"), "{text}");
        assert!(!text.contains("exhausted"), "{text}");
    }

    #[test]
    fn a_lease_is_a_line() {
        let lease = LeaseView {
            client: "laptop".to_owned(),
            v4: [192, 0, 2, 1].into(),
            ports: Some((4096, 8191)),
            remote: "2001:db8::1".parse().unwrap(),
            tep: "2001:db8:f::1".parse().unwrap(),
            seconds: 3600,
        };
        let text = anstream::adapter::strip_str(&leases_table(&[lease])).to_string();
        assert_eq!(
            text,
            "192.0.2.1:4096-8191         laptop                   at 2001:db8::1, 3,600 s left\n"
        );
        assert_eq!(leases_table(&[]), "nothing is lent\n");
    }
}
