//! What a subject's tables hold, in a form of our own, and what a step says of it.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use super::bind::Bindings;
use super::flow::{Flow, Transport};
use super::spec::StepSpec;
use super::time::Time;

/// A BIB entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BibRow {
    /// `tcp`, `udp` or `icmp`.
    pub protocol: String,
    /// (X',x).
    pub v6: (Ipv6Addr, u16),
    /// (T,t).
    pub v4: (Ipv4Addr, u16),
    /// It rests.
    pub is_resting: bool,
}

/// A session.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionRow {
    /// `tcp`, `udp` or `icmp`.
    pub protocol: String,
    /// (X',x).
    pub v6: (Ipv6Addr, u16),
    /// (T,t).
    pub v4: (Ipv4Addr, u16),
    /// (Z,z); of ICMP, z is 0.
    pub remote: (Ipv4Addr, u16),
    /// The state of TCP in snake case; else `open`.
    pub state: String,
    /// What is left of its lifetime.
    pub left: Duration,
}

/// A subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriberRow {
    /// Its prefix.
    pub prefix: Ipv6Addr,
    /// Blocks of ports.
    pub blocks: usize,
    /// BIB entries of TCP, UDP, ICMP.
    pub ports: [u32; 3],
    /// Sessions.
    pub sessions: u32,
}

/// Everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// The BIB.
    pub bibs: Vec<BibRow>,
    /// The sessions.
    pub sessions: Vec<SessionRow>,
    /// The subscribers.
    pub subscribers: Vec<SubscriberRow>,
}

/// Lifetimes are counted in ticks of 2^27 ns and rounded up: so much more than is said may be left.
const GRAIN: Duration = Duration::from_millis(300);

impl Tables {
    /// What differs from what a step says.
    pub(super) fn compare(
        &self,
        step: &StepSpec,
        flow: Option<&Flow>,
        bindings: &Bindings,
        ahead: Duration,
    ) -> Result<String, String> {
        let mut text = String::new();
        let in_use = self.bibs.iter().filter(|row| !row.is_resting).count();
        for (name, wanted, got) in [
            ("BIB entries", step.bibs, in_use),
            ("resting BIB entries", step.resting, self.bibs.len() - in_use),
            ("sessions", step.sessions, self.sessions.len()),
        ] {
            if wanted.is_some_and(|wanted| wanted != got) {
                let _ = writeln!(text, "  {name}: expected {}, got {got}", wanted.unwrap_or(0));
                let _ = writeln!(text, "    {:#?}\n    {:#?}", self.bibs, self.sessions);
            }
        }
        if let Some(rows) = &step.bib {
            text.push_str(&self.compare_bib(rows, bindings)?);
        }
        if let Some(flow) = flow.filter(|_| step.state.is_some() || step.left.is_some()) {
            text.push_str(&self.compare_session(step, flow, bindings, ahead)?);
        }
        for wanted in &step.subscriber {
            let row = self.subscribers.iter().find(|row| row.prefix == wanted.prefix);
            let ports = row.map_or([0; 3], |row| row.ports);
            let sessions = row.map_or(0, |row| row.sessions);
            let blocks = row.map_or(0, |row| row.blocks);
            if wanted.ports.is_some_and(|wanted| wanted != ports)
                || wanted.sessions.is_some_and(|wanted| wanted != sessions)
                || wanted.blocks.is_some_and(|wanted| wanted != blocks)
            {
                let _ = writeln!(text, "  subscriber: expected {wanted:?}\n    got {row:?}");
            }
        }
        Ok(text)
    }

    fn compare_bib(&self, rows: &[toml::Value], bindings: &Bindings) -> Result<String, String> {
        type Row = (String, (Ipv6Addr, u16), (Ipv4Addr, u16));
        let mut wanted = Vec::new();
        for row in rows {
            let row = bindings.resolve(row).map_err(|name| format!("`${name}` has no value"))?;
            let (protocol, v6, v4): Row =
                row.try_into().map_err(|error| format!("bib: {error}"))?;
            wanted.push(BibRow { protocol, v6, v4, is_resting: false });
        }
        wanted.sort();
        let mut got: Vec<BibRow> =
            self.bibs.iter().filter(|row| !row.is_resting).cloned().collect();
        got.sort();
        Ok(if wanted == got {
            String::new()
        } else {
            format!("  BIB: expected {wanted:#?}\n  got {got:#?}\n")
        })
    }

    fn compare_session(
        &self,
        step: &StepSpec,
        flow: &Flow,
        bindings: &Bindings,
        ahead: Duration,
    ) -> Result<String, String> {
        let end4 = |end: &[toml::Value; 2]| -> Result<(Ipv4Addr, u16), String> {
            let end = bindings.resolve(&toml::Value::Array(end.to_vec()));
            let end = end.map_err(|name| format!("`${name}` has no value"))?;
            end.try_into().map_err(|error| format!("flow: {error}"))
        };
        // Ends that nobody has seen yet belong to no session.
        let ends = bindings.knows(&flow.v4) && bindings.knows(&flow.remote);
        let ends = if ends { Some((end4(&flow.v4)?, end4(&flow.remote)?)) } else { None };
        let row = self.sessions.iter().find(|row| {
            ends.is_some_and(|(local, (remote, port))| {
                let port = if flow.protocol == Transport::Icmp { 0 } else { port };
                row.protocol == flow.protocol.label()
                    && row.v4 == local
                    && row.remote == (remote, port)
            })
        });
        let state = row.map_or("closed", |row| row.state.as_str());
        let mut text = String::new();
        if step.state.as_ref().is_some_and(|wanted| wanted != state) {
            let wanted = step.state.as_deref().unwrap_or_default();
            let _ = writeln!(text, "  state: expected {wanted}, got {state}");
        }
        if let Some(Time(wanted)) = step.left {
            let left = row.map_or(Duration::ZERO, |row| row.left);
            if left + ahead < wanted || left > wanted + GRAIN {
                let _ = writeln!(text, "  left of the lifetime: expected {wanted:?}, got {left:?}");
            }
        }
        Ok(text)
    }
}
