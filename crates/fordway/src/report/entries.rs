//! Entries of a stateful translator's tables.

use std::fmt::Write;
use std::net::{SocketAddrV4, SocketAddrV6};
use std::time::Duration;

use fordway_control::{
    BibRow, BlockRow, CacheRow, DeterministicRow, Entries, ReverseReport, SessionRow,
    SubscriberRow, Table,
};
use fordway_daemon::output::{FAINT, STRONG};

use super::Render;

/// The heading of a table.
pub(crate) fn heading(table: Table) -> String {
    let text = match table {
        Table::Bib => format!(
            "{:<5} {:<47} {:<21} {:>8} {:>10}  ",
            "proto", "IPv6 host", "IPv4", "sessions", "age"
        ),
        Table::Sessions => format!(
            "{:<5} {:<47} {:<21} {:<21} {:<18} {:>9} {:>12} {:>12}",
            "proto", "IPv6 host", "IPv4", "remote", "state", "remaining", "from IPv6", "from IPv4"
        ),
        Table::Dns64Cache => {
            format!("{:<40} {:<10} {:>7} {:<9}  {}", "name", "type", "seconds", "code", "answer")
        }
        Table::Subscribers => format!(
            "{:<43} {:>4} {:>7} {:>7} {:>7} {:>8} {:>9}  {}",
            "subscriber", "pool", "tcp", "udp", "icmp", "sessions", "idle", "blocks"
        ),
    };
    format!("{STRONG}{}{STRONG:#}\n", text.trim_end())
}

impl Render for Entries {
    fn render(&self) -> String {
        match self {
            Entries::Bib(rows) => rows.iter().map(Render::render).collect(),
            Entries::Sessions(rows) => rows.iter().map(Render::render).collect(),
            Entries::Subscribers(rows) => rows.iter().map(Render::render).collect(),
            Entries::Dns64Cache(rows) => rows.iter().map(Render::render).collect(),
        }
    }
}

fn seconds(seconds: u64) -> String {
    let text = humantime::format_duration(Duration::from_secs(seconds)).to_string();
    // Two units say enough.
    text.split(' ').take(2).collect::<Vec<_>>().join("")
}

impl Render for CacheRow {
    fn render(&self) -> String {
        let CacheRow { name, record_type, code, failure, security, records, .. } = self;
        let seconds = self.seconds.map_or("expired".to_owned(), |seconds| seconds.to_string());
        let code = code.as_deref().unwrap_or("none");
        let flags = [("DO", self.dnssec_ok), ("CD", self.checking_disabled)];
        let flags = flags.into_iter().filter(|(_, set)| *set).map(|(flag, _)| flag);
        let checked = Some(security.as_str()).filter(|it| !["", "unchecked"].contains(it));
        let notes: Vec<&str> = flags.chain(checked).chain(failure.as_deref()).collect();
        let mut text = format!(
            "{name:<40} {record_type:<10} {seconds:>7} {code:<9}  {FAINT}{}{FAINT:#}\n",
            notes.join(", ")
        );
        for record in records {
            // Strangers have written it: it must not command the terminal.
            let plain = record.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c });
            text.push_str("    ");
            text.extend(plain);
            text.push('\n');
        }
        text
    }
}

impl Render for BibRow {
    fn render(&self) -> String {
        let note = match (self.is_static, self.resting) {
            (true, _) => "static",
            (_, true) => "resting",
            _ if self.held => "held",
            _ => "",
        };
        let (v6, v4) = match self.protocol.as_str() {
            "all" => (self.v6.to_string(), self.v4.to_string()),
            _ => (
                SocketAddrV6::new(self.v6, self.v6_port, 0, 0).to_string(),
                SocketAddrV4::new(self.v4, self.v4_port).to_string(),
            ),
        };
        format!(
            "{:<5} {v6:<47} {v4:<21} {:>8} {:>10}  {FAINT}{note}{FAINT:#}\n",
            self.protocol,
            self.sessions,
            seconds(self.age_seconds),
        )
    }
}

impl Render for SessionRow {
    fn render(&self) -> String {
        let remote = match self.protocol.as_str() {
            "icmp" => self.remote.to_string(),
            _ => SocketAddrV4::new(self.remote, self.remote_port).to_string(),
        };
        format!(
            "{:<5} {:<47} {:<21} {remote:<21} {:<18} {:>9} {:>12} {:>12}\n",
            self.protocol,
            SocketAddrV6::new(self.v6, self.v6_port, 0, 0).to_string(),
            SocketAddrV4::new(self.v4, self.v4_port).to_string(),
            self.state.as_deref().unwrap_or("-"),
            seconds(self.remaining_seconds),
            self.packets_from_v6,
            self.packets_from_v4,
        )
    }
}

impl Render for SubscriberRow {
    fn render(&self) -> String {
        let blocks: Vec<String> = self.blocks.iter().map(ToString::to_string).collect();
        format!(
            "{:<43} {:>4} {:>7} {:>7} {:>7} {:>8} {:>9}  {}\n",
            self.subscriber.to_string(),
            self.pool,
            self.tcp_ports,
            self.udp_ports,
            self.icmp_ids,
            self.sessions,
            seconds(self.idle_seconds),
            blocks.join(" ")
        )
    }
}

impl Render for ReverseReport {
    fn render(&self) -> String {
        let mut text = String::new();
        for row in &self.deterministic {
            let _ = writeln!(
                text,
                "{} is {STRONG}{}{STRONG:#}: {} of {}, by computation (RFC 7422)",
                self.v4, row.subscriber, row.block, row.translator
            );
        }
        let named = |it: &SubscriberRow| {
            let same = |row: &DeterministicRow| row.subscriber == it.subscriber;
            self.deterministic.iter().any(same)
        };
        for row in self.subscribers.iter().filter(|row| !named(row)) {
            let port = self.v4.port();
            let holds = |block: &&BlockRow| {
                block.v4 == *self.v4.ip() && (block.low..=block.high).contains(&port)
            };
            let block = row.blocks.iter().find(holds);
            let block = block.map_or_else(String::new, ToString::to_string);
            let _ = writeln!(
                text,
                "{} is {STRONG}{}{STRONG:#} now: {block} of {}",
                self.v4, row.subscriber, row.translator
            );
        }
        for row in &self.bib {
            let _ = writeln!(
                text,
                "{} is bound to {STRONG}[{}]:{}{STRONG:#} now ({}, {} sessions)",
                self.v4, row.v6, row.v6_port, row.protocol, row.sessions
            );
        }
        if text.is_empty() {
            let _ = writeln!(text, "{} has no known host", self.v4);
        }
        text
    }
}
