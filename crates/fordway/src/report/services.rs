//! What runs beside the translators: the DNS64 server and the router advertisements.

pub(super) mod table;

use std::fmt::Write;
use std::net::{Ipv6Addr, SocketAddr};

use fordway_router::{DeviceStats, State};
use ipnet::{IpNet, Ipv6Net};
use serde::{Deserialize, Serialize};

pub(crate) use table::{advertise_table, dns64_table, rcodes};

use crate::output::{FAINT, GOOD, STRONG, WARNING};

/// A DNS64 server that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Dns64Status {
    /// Where it listens.
    pub(crate) listen: Vec<SocketAddr>,
    /// Its threads.
    pub(crate) threads: usize,
    /// Prefixes of synthesised addresses, where no policy says otherwise; empty: none are synthesised.
    pub(crate) pool6: Vec<String>,
    /// Policies of some clients.
    pub(crate) policies: usize,
    /// Whose questions are answered.
    pub(crate) allow: Vec<IpNet>,
    /// Answers of upstream servers are validated.
    pub(crate) validate: bool,
    /// The servers that it asks.
    pub(crate) upstream: Vec<UpstreamStatus>,
}

/// A server that a DNS64 server asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UpstreamStatus {
    /// As configured.
    pub(crate) server: String,
    /// Whether it answers.
    pub(crate) alive: bool,
    /// Its round-trip time in microseconds; none as long as it has not answered.
    pub(crate) rtt_us: Option<u32>,
}

/// A device with router advertisements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AdvertiseStatus {
    /// Its name.
    pub(crate) device: String,
    /// Whether it advertises.
    pub(crate) state: State,
    /// Packets that come in there are forwarded.
    pub(crate) forwarding: bool,
    /// Source of the advertisements.
    pub(crate) link_local: Option<Ipv6Addr>,
    /// Prefixes that are advertised.
    pub(crate) prefixes: Vec<Ipv6Net>,
    /// Prefixes that are advertised as going away.
    pub(crate) deprecated: Vec<Ipv6Net>,
    /// DNS servers that are advertised.
    pub(crate) rdnss: Vec<Ipv6Addr>,
    /// Translation prefixes that are advertised.
    pub(crate) pref64: Vec<Ipv6Net>,
    /// Advertisements of other routers that contradict these.
    pub(crate) inconsistent: u64,
}

impl From<&DeviceStats> for AdvertiseStatus {
    fn from(stats: &DeviceStats) -> AdvertiseStatus {
        AdvertiseStatus {
            device: stats.device.clone(),
            state: stats.state,
            forwarding: stats.forwarding,
            link_local: stats.link_local,
            prefixes: stats.prefixes.clone(),
            deprecated: stats.deprecated.clone(),
            rdnss: stats.rdnss.clone(),
            pref64: stats.pref64.clone(),
            inconsistent: stats.inconsistent,
        }
    }
}

impl Dns64Status {
    /// As text with styles.
    pub(crate) fn render(&self) -> String {
        let mut text = format!("{GOOD}dns64{GOOD:#} {STRONG}DNS64 server{STRONG:#}\n");
        let mut line = |label: &str, value: &str| line(&mut text, label, value);
        line("listening", &join(&self.listen));
        line("threads", &self.threads.to_string());
        let pool6 = match self.pool6.as_slice() {
            [] => "none: nothing is synthesised".to_owned(),
            pool6 => pool6.join(", "),
        };
        line("prefixes", &pool6);
        if self.policies > 0 {
            line("policies", &self.policies.to_string());
        }
        line("allowed", &join(&self.allow));
        line("validation", if self.validate { "on" } else { "off" });
        for server in &self.upstream {
            line("upstream", &server.render());
        }
        text
    }
}

impl UpstreamStatus {
    fn render(&self) -> String {
        let how = match (self.alive, self.rtt_us) {
            (true, Some(rtt)) => format!("answers in {:.1} ms", f64::from(rtt) / 1000.0),
            (true, None) => "no answer yet".to_owned(),
            (false, _) => format!("{WARNING}does not answer{WARNING:#}"),
        };
        format!("{} ({how})", self.server)
    }
}

impl AdvertiseStatus {
    /// As text with styles.
    pub(crate) fn render(&self) -> String {
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
        line("link", &join(&self.prefixes));
        line("going away", &join(&self.deprecated));
        line("DNS servers", &join(&self.rdnss));
        line("prefixes", &join(&self.pref64));
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

pub(super) fn join<T: ToString>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
