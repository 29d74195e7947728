//! What runs beside the translators: the DNS64 server and the router advertisements.

mod table;

use std::fmt::Write;

use fordway_control::{AdvertiseStatus, Dns64Status, ForwardStatus, UpstreamStatus};
use fordway_router::State;

pub(crate) use table::{advertise_table, dns64_table};

use super::Render;
use fordway_daemon::output::{FAINT, GOOD, STRONG, WARNING, joined};

impl Render for Dns64Status {
    fn render(&self) -> String {
        let mut text = format!("{GOOD}dns64{GOOD:#} {STRONG}DNS64 server{STRONG:#}\n");
        let mut line = |label: &str, value: &str| line(&mut text, label, value);
        line("listening", &joined(&self.listen));
        for (how, listen) in [("TLS", &self.listen_tls), ("HTTPS", &self.listen_https)] {
            if !listen.is_empty() {
                line(how, &joined(listen));
            }
        }
        line("threads", &self.threads.to_string());
        let pool6 = match self.pool6.as_slice() {
            [] => "none: nothing is synthesised".to_owned(),
            pool6 => pool6.join(", "),
        };
        line("prefixes", &pool6);
        if self.policies > 0 {
            line("policies", &self.policies.to_string());
        }
        line("allowed", &joined(&self.allow));
        line("validation", if self.validate { "on" } else { "off" });
        for server in &self.upstream {
            line("upstream", &server.render());
        }
        for forward in &self.forward {
            line("forward", &forward.render());
        }
        text
    }
}

impl Render for ForwardStatus {
    fn render(&self) -> String {
        let synthesis = match self.synthesise {
            Some(true) => ", with synthesis",
            Some(false) => ", without synthesis",
            None => "",
        };
        format!("{} to {}{synthesis}", self.domains.join(", "), self.upstream.join(", "))
    }
}

impl Render for UpstreamStatus {
    fn render(&self) -> String {
        let how = match (self.alive, self.rtt_us) {
            (true, Some(rtt)) => format!("answers in {:.1} ms", f64::from(rtt) / 1000.0),
            (true, None) => "no answer yet".to_owned(),
            (false, _) => format!("{WARNING}does not answer{WARNING:#}"),
        };
        format!("{} ({how})", self.server)
    }
}

impl Render for AdvertiseStatus {
    fn render(&self) -> String {
        let state = match self.state {
            State::Absent => "there is no such interface",
            State::Down => "the interface is down",
            State::NoLinkLocal => "it waits for a link-local address",
            State::Advertising => "advertising",
        };
        let style = if self.state == State::Advertising { FAINT } else { WARNING };
        let mut text = format!(
            "{GOOD}{}{GOOD:#} {STRONG}router advertisements{STRONG:#}, {style}{state}{style:#}\n",
            self.device
        );
        let mut line = |label: &str, value: &str| line(&mut text, label, value);
        let source = self.link_local.map(|address| address.to_string()).unwrap_or_default();
        line("router", &source);
        if self.state == State::Advertising && !self.forwarding {
            line("forwarding", "off: no default router, packets that come in go nowhere");
        }
        line("link", &joined(&self.prefixes));
        line("going away", &joined(&self.deprecated));
        line("DNS servers", &joined(&self.rdnss));
        line("prefixes", &joined(&self.pref64));
        line("encrypted DNS", &self.dnr.join(", "));
        line("portal", self.captive_portal.as_deref().unwrap_or_default());
        if self.inconsistent > 0 {
            let number = self.inconsistent;
            line("conflict", &format!("{number} advertisements of other routers say otherwise"));
        }
        text
    }
}

/// Writes a value with its label; an empty one is left out.
pub(super) fn line(text: &mut String, label: &str, value: &str) {
    if !value.is_empty() {
        let _ = writeln!(text, "  {label:<13} {value}");
    }
}
