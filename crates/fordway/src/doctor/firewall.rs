//! Rules of nftables in the way of packets.

mod ruleset;

use std::process::Command;

use super::finding::Findings;
use ruleset::{Fate, Ruleset};

pub(super) use ruleset::Flow;

/// A packet that has to get through.
pub(super) struct Wanted {
    /// What it is, for people: `IPv6 from lan0 into nat64`.
    pub(super) what: String,
    /// Where: `forward`, `input`, `output`.
    pub(super) hook: &'static str,
    pub(super) flow: Flow,
    /// Its source must stay.
    pub(super) keep_source: bool,
}

/// The rules of this host, or why they can't be looked at.
pub(super) struct Rules(Result<Ruleset, String>);

impl Rules {
    /// Has nft list them.
    pub(super) fn read() -> Rules {
        Rules(list())
    }

    /// Whether there is a table of this family and name; `None`: the rules could not be listed.
    pub(super) fn has_table(&self, family: &str, name: &str) -> Option<bool> {
        Some(self.0.as_ref().ok()?.has_table(family, name))
    }
}

/// Asks the ruleset about each.
pub(super) fn check(rules: &Rules, wanted: &[Wanted], findings: &mut Findings) {
    if wanted.is_empty() {
        return;
    }
    let ruleset = match &rules.0 {
        Ok(ruleset) => ruleset,
        Err(why) => return findings.skipped("firewall", why.as_str()),
    };
    let (mut clear, mut unclear) = (0, Vec::new());
    for one in wanted {
        match ruleset.fate("filter", one.hook, &one.flow) {
            Fate::Drop(by) => {
                let place = by.rsplit("chain ").next().unwrap_or_default().to_owned();
                findings.bad(
                    "firewall",
                    format!("{} is dropped by {by}", one.what),
                    format!("let it pass: nft insert rule {place} {} accept", rule(&one.flow)),
                );
            }
            Fate::Unclear => unclear.push(one.what.as_str()),
            Fate::Pass | Fate::Rewrite(_) => clear += 1,
        }
        if one.keep_source
            && let Fate::Rewrite(by) = ruleset.fate("nat", "postrouting", &one.flow)
        {
            findings.warning(
                "firewall",
                format!("{} gets another source by {by}: it is translated twice", one.what),
                "leave the translator's packets out of that rule (iifname), unless its IPv4 addresses are \
                 meant to be hidden",
            );
        }
    }
    if clear == wanted.len() {
        findings.good("firewall", "no rule of nftables is in the way");
    } else if !unclear.is_empty() {
        findings.skipped(
            "firewall",
            format!("it hangs on more than is known here: {}", unclear.join("; ")),
        );
    }
}

fn list() -> Result<Ruleset, String> {
    let output = Command::new("nft")
        .args(["--json", "list", "ruleset"])
        .output()
        .map_err(|error| format!("nft can't be started ({error}), so rules are not looked at"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("nft lists no rules: {}", said.lines().next().unwrap_or("no reason")));
    }
    Ruleset::parse(&output.stdout).ok_or_else(|| "nft's list can't be read".to_owned())
}

/// The matches of a rule for such packets.
fn rule(flow: &Flow) -> String {
    let name = |key: &str, name: &Option<String>| name.as_ref().map(|it| format!("{key} {it}"));
    let port = flow.port.map(|port| format!("{} dport {port}", flow.l4));
    let parts = [name("iifname", &flow.iif), name("oifname", &flow.oif), port];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
