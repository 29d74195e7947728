//! What the kernel does by itself: modes `nat44` and `dual-stack`.

use std::fmt::Write;

use fordway_control::{COUNTERS, DualStackStats, DualStackStatus, Nat44Stats, Nat44Status};
use fordway_daemon::output::group;
use fordway_daemon::output::{FAINT, GOOD, STRONG, WARNING, joined};

use super::Render;
use super::services::line;

/// A share of the tracked connections that is close to all that there can be.
const NEARLY_FULL: f64 = 0.9;

impl Render for Nat44Status {
    fn render(&self) -> String {
        let mut text = format!(
            "{GOOD}{}{GOOD:#} {STRONG}nat44{STRONG:#} {FAINT}(by the kernel: nft list table ip {}){FAINT:#}\n",
            self.name, self.table
        );
        let mut line = |label: &str, value: &str| line(&mut text, label, value);
        line("clients", &joined(&self.clients));
        line("behind", &self.devices.join(", "));
        line("uplink", &self.uplinks.join(", "));
        line("not there", &self.absent.join(", "));
        let pool4 = match self.pool4.as_slice() {
            [] => "the uplink's address".to_owned(),
            pool4 => pool4.join(", "),
        };
        line("IPv4 pool", &pool4);
        line("mapped", &self.netmap.join(", "));
        for forward in &self.forwards {
            line("forwarded", forward);
        }
        line("addresses", &self.addresses.join(", "));
        line("settings", &self.settings.join(", "));
        text
    }
}

impl Render for DualStackStatus {
    fn render(&self) -> String {
        let mut text = format!("{GOOD}{}{GOOD:#} {STRONG}dual-stack{STRONG:#}\n", self.name);
        let mut line = |label: &str, value: &str| line(&mut text, label, value);
        line("devices", &self.devices.join(", "));
        line("not there", &self.absent.join(", "));
        line("addresses", &self.addresses.join(", "));
        line("settings", &self.settings.join(", "));
        text
    }
}

/// The counters of mode nat44, as text with styles.
pub(crate) fn nat44_table(stats: &Nat44Stats) -> String {
    let mut text = String::new();
    for (name, dropped, what) in COUNTERS {
        let count = stats.counters.get(name).copied().unwrap_or_default();
        if dropped && count.packets == 0 {
            continue;
        }
        let style = if dropped { WARNING } else { STRONG };
        let octets = match name {
            "out" | "in" => format!(", {} octets", group(count.octets)),
            _ => String::new(),
        };
        let _ = writeln!(
            text,
            "  {style}{name:<18}{style:#}{:>16}  {FAINT}{what}{octets}{FAINT:#}",
            group(count.packets)
        );
    }
    if let Some(conntrack) = &stats.conntrack {
        let full = conntrack.connections as f64 > NEARLY_FULL * conntrack.most as f64;
        let style = if full { WARNING } else { STRONG };
        let _ = writeln!(
            text,
            "  {style}{:<18}{style:#}{:>16}  {FAINT}connections that the host tracks, of {}{FAINT:#}",
            "conntrack",
            group(conntrack.connections),
            group(conntrack.most)
        );
    }
    text
}

/// The counters of mode dual-stack, as text with styles.
pub(crate) fn dual_stack_table(stats: &DualStackStats) -> String {
    let mut text = String::new();
    for (label, count) in [("IPv4", stats.v4), ("IPv6", stats.v6)] {
        let count = count.map_or("unknown".to_owned(), group);
        let what = "packets that the host has forwarded";
        let _ =
            writeln!(text, "  {STRONG}{label:<18}{STRONG:#}{count:>16}  {FAINT}{what}{FAINT:#}");
    }
    text
}

#[cfg(test)]
mod tests {
    use fordway_control::{ConntrackStats, Nat44Count};

    use super::*;

    #[test]
    fn drops_are_shown_where_there_were_some() {
        let count = |packets| Nat44Count { packets, octets: 40 * packets };
        let counters = [("out", 1200), ("invalid", 0), ("rate_limit", 3)];
        let counters = counters.map(|(name, packets)| (name.to_owned(), count(packets)));
        let stats = Nat44Stats {
            counters: counters.into(),
            conntrack: Some(ConntrackStats { connections: 7, most: 1000 }),
            ..Nat44Stats::default()
        };
        let text = nat44_table(&stats);
        assert!(text.contains("1,200") && text.contains("48,000 octets"), "{text}");
        assert!(text.contains("rate_limit") && !text.contains("invalid"), "{text}");
        assert!(text.contains("of 1,000"), "{text}");
    }
}
