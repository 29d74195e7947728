//! What runs.

use std::fmt::Write;
use std::time::Duration;

use fordway_control::{
    KernelStatus, OffloadStatus, ProgramStatus, SoftwireStatus, Status, TranslatorStatus,
};
use fordway_daemon::output::{FAINT, GOOD, STRONG};

use super::{Lines, Render};
use crate::report::DIRECT;

impl Lines for SoftwireStatus {
    fn lines(&self) -> Vec<(&'static str, String)> {
        let local = self.local.map_or("none".to_owned(), |local| local.to_string());
        let tunnel = match (self.remote, self.v4) {
            (Some(remote), Some(v4)) => format!("{v4} by {local} to {remote}"),
            (Some(remote), None) => format!("{local} to {remote}, no IPv4 address yet"),
            (None, _) => format!("end point {local}"),
        };
        let paths = match self.lowered_paths {
            0 => String::new(),
            paths => format!(", {paths} with a narrower path"),
        };
        vec![("tunnel", tunnel), ("bindings", format!("{}{paths}", self.bindings))]
    }
}

impl Render for Status {
    fn render(&self) -> String {
        let mut text = format!(
            "{STRONG}fordway {}{STRONG:#}, process {}, up {}, configuration {}\n",
            self.version,
            self.pid,
            duration(self.uptime_seconds),
            self.config
        );
        let mut parts = Vec::new();
        add(&mut parts, &self.automatic);
        add(&mut parts, &self.translators);
        add(&mut parts, &self.nat44);
        add(&mut parts, &self.dual_stack);
        add(&mut parts, &self.dns64);
        add(&mut parts, &self.advertise);
        add(&mut parts, &self.trt);
        add(&mut parts, &self.proxies);
        add(&mut parts, &self.dstm_server);
        add(&mut parts, &self.dstm_tep);
        add(&mut parts, &self.dstm_clients);
        add(&mut parts, &self.cluster);
        for part in parts {
            text.push('\n');
            text.push_str(&part);
        }
        text
    }
}

fn add<'a, T: Render + 'a>(parts: &mut Vec<String>, all: impl IntoIterator<Item = &'a T>) {
    parts.extend(all.into_iter().map(Render::render));
}

impl Render for TranslatorStatus {
    fn render(&self) -> String {
        let mut text = format!(
            "{GOOD}{}{GOOD:#} {STRONG}{}{STRONG:#}, {} engine {FAINT}({}){FAINT:#}, up {}\n",
            self.name,
            self.mode,
            self.engine,
            self.engine_reason,
            duration(self.uptime_seconds)
        );
        let mut line = |label: &str, value: &str| {
            if !value.is_empty() {
                let _ = writeln!(text, "  {label:<13} {value}");
            }
        };
        let adopted = if self.adopted { ", existed before and stays" } else { "" };
        line("interface", &format!("{} (index {}){adopted}", self.interface, self.ifindex));
        let at = match &self.attach_reason {
            Some(reason) => format!("{} ({reason})", self.attach),
            None => self.attach.clone(),
        };
        line("attached", &at);
        match self.forward.as_deref() {
            Some("direct") => line("forwarding", DIRECT),
            other => line("forwarding", other.unwrap_or_default()),
        }
        if let Some(kernel) = &self.kernel {
            for (label, value) in kernel.lines() {
                line(label, &value);
            }
        }
        let processors: Vec<String> = self.processors.iter().map(ToString::to_string).collect();
        let pinned = match processors.as_slice() {
            [] => String::new(),
            [one] => format!(", on processor {one} when busy"),
            several => format!(", on processors {} when busy", several.join(", ")),
        };
        let each = if self.queues == 1 { "" } else { " each" };
        let held = format!(", up to {} packets{each}", self.queue_length);
        line("queues", &format!("{}{held}{pinned}", self.queues));
        if self.receive_queue_full > 0 {
            let text = "packets, because a queue was full (receive_queue_full)";
            line("lost", &format!("{} {text}", self.receive_queue_full));
        }
        line("offloads", &self.offloads.render());
        line("path MTU", &format!("{} octets, from {}", self.mtu, self.mtu_from));
        if let Some(clat) = &self.clat {
            let v6 = clat.v6.map_or("none".to_owned(), |v6| v6.to_string());
            let uplink = clat.uplink.as_deref().unwrap_or("none");
            line("CLAT", &format!("{} is {v6}, uplink {uplink}", clat.v4));
        }
        line("prefixes", &self.pool6.join(", "));
        match (&self.nat64, &self.softwire) {
            (_, Some(softwire)) => {
                for (label, value) in softwire.lines() {
                    line(label, &value);
                }
            }
            (Some(nat64), None) => {
                for (label, value) in nat64.lines() {
                    line(label, &value);
                }
            }
            (None, None) => line("mappings", &self.eam.to_string()),
        }
        let source4 = self.icmp_source4.map_or("off".to_owned(), |source| source.to_string());
        let source6 = self.icmp_source6.map_or("none".to_owned(), |source| source.to_string());
        line("ICMP sources", &format!("{source4}, {source6}"));
        if self.managed {
            line("addresses", &self.addresses.join(", "));
            line("routes", &self.routes.join(", "));
        } else {
            line("host", "not managed");
        }
        text
    }
}

impl Lines for KernelStatus {
    fn lines(&self) -> Vec<(&'static str, String)> {
        let program = |it: &ProgramStatus| {
            format!("{} at the {} of {} (program {})", it.kind, it.place, it.device, it.id)
        };
        let programs: Vec<String> = self.programs.iter().map(program).collect();
        let passed_on = match self.passed_on_share {
            Some(share) => {
                let causes = self.passed_on.iter().map(|(cause, count)| format!("{cause} {count}"));
                let causes = causes.collect::<Vec<_>>().join(", ");
                let causes = if causes.is_empty() { causes } else { format!(": {causes}") };
                format!("{:.4} % of the packets go on to the user engine{causes}", share * 100.0)
            }
            None => "no packet yet".to_owned(),
        };
        let mut lines = vec![("programs", programs.join(", ")), ("passed on", passed_on)];
        match (self.measure, self.ns_per_packet) {
            (_, Some(ns)) => lines.push(("time", format!("{ns:.0} ns per packet in the programs"))),
            (true, None) => lines.push(("time", "taken from the next packet on".to_owned())),
            (false, None) => {}
        }
        let warnings = self.warnings.iter();
        lines.extend(warnings.map(|it| ("warning", format!("{}; {}", it.text, it.advice))));
        lines
    }
}

impl Render for OffloadStatus {
    fn render(&self) -> String {
        let granted = match self.granted.as_slice() {
            [] => "none".to_owned(),
            granted => granted.join(", "),
        };
        match self.refused.as_slice() {
            [] => granted,
            refused => format!("{granted} (refused by the kernel: {})", refused.join(", ")),
        }
    }
}

pub(super) fn duration(seconds: u64) -> String {
    humantime::format_duration(Duration::from_secs(seconds)).to_string()
}
