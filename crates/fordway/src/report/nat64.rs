//! Stateful translation in numbers.

use fordway_control::{Clash, Nat64Status, NatPtStatus};
use fordway_daemon::output::joined;

use super::Lines;

impl Lines for NatPtStatus {
    fn lines(&self) -> Vec<(&'static str, String)> {
        let use_of = match self.outgoing {
            true => "for what begins on either side",
            false => "for what IPv4 hosts begin",
        };
        let addresses = match self.addresses.as_slice() {
            [] => "none but those that are bound for ever".to_owned(),
            nets => format!("{}, {use_of}", nets.join(" ")),
        };
        let initiators = match self.initiators.as_slice() {
            [] => "every IPv4 host".to_owned(),
            nets => nets.join(" "),
        };
        vec![
            ("addresses", addresses),
            ("bindings", self.fixed.to_string()),
            ("may begin", initiators),
            ("historic", "NAT-PT has faults that can't be mended (RFC 4966)".to_owned()),
        ]
    }
}

impl Lines for Nat64Status {
    fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines: Vec<(&str, String)> =
            self.pools.iter().map(|pool| ("pool4", pool.clone())).collect();
        if let Some(nat_pt) = &self.nat_pt {
            lines.extend(nat_pt.lines());
        }
        if self.static_bib > 0 {
            lines.push(("static BIB", self.static_bib.to_string()));
        }
        let survives = match self.survives {
            true => "in the kernel, sessions outlive the daemon",
            false => "in the daemon",
        };
        let mebibytes = self.table_octets.div_ceil(1 << 20);
        lines.push(("tables", format!("{mebibytes} MiB when full, {survives}")));
        for (alg, ports) in &self.algs {
            lines.push(("gateway", format!("{alg}, servers on port {}", joined(ports))));
        }
        if let Some(file) = &self.file {
            lines.push(("kept in", file.clone()));
        }
        if self.draining {
            lines.push(("draining", "no new sessions".to_owned()));
        }
        lines.extend(Clash::sentences(&self.clashes).into_iter().map(|clash| ("clash", clash)));
        lines
    }
}
