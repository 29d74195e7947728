//! Explains what a translator does with a packet, step by step.

mod dissect;
mod sentence;

use std::fmt::Write;
use std::time::Duration;

use fordway_daemon::output::{ERROR, FAINT, GOOD, STRONG, WARNING};
use fordway_xlat::trace::Step;
use fordway_xlat::{Direction, HopCount, Verdict};
use serde::Serialize;

use crate::offline::Offline;

/// One packet's way through the translator.
#[derive(Debug, Serialize)]
pub(crate) struct Explanation {
    /// The packet that came in.
    before: PacketText,
    /// What was done, in order.
    steps: Vec<StepText>,
    /// The end: `forward`, `reply`, `drop` or `pass`.
    verdict: &'static str,
    /// Label of the reason of a drop or reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    /// The verdict as a sentence.
    sentence: String,
    /// What leaves: one packet, or its fragments.
    after: Vec<PacketText>,
}

/// A packet in readable form.
#[derive(Debug, Serialize)]
struct PacketText {
    octets: usize,
    /// One line per header; the packet inside an ICMP error is indented.
    headers: Vec<String>,
    hex: String,
}

/// A step in words.
#[derive(Debug, Serialize)]
struct StepText {
    /// The step concerns the packet inside an ICMP error.
    inner: bool,
    text: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    section: &'static str,
}

impl Explanation {
    /// Translates a packet and tells how.
    pub(crate) fn of(offline: &mut Offline, bytes: &[u8], now: Duration) -> Explanation {
        let mut trace: Vec<Step> = Vec::new();
        let outcome = offline.translate(bytes, now, &mut trace);
        let hops = offline.hop_count();
        let counted = Direction::of(bytes).is_some_and(|direction| hops.counts(direction));
        let mut depth = 0u32;
        let mut steps = Vec::new();
        for step in &trace {
            if matches!(step, Step::InnerEnd) {
                depth = depth.saturating_sub(1);
            }
            if let Some(text) = sentence::of(step, counted) {
                steps.push(StepText { inner: depth > 0, text, section: step.section() });
            }
            if matches!(step, Step::Inner) {
                depth += 1;
            }
        }
        let (verdict, reason, sentence) = verdict_text(outcome.verdict, outcome.packets.len());
        Explanation {
            before: PacketText::of(bytes),
            steps,
            verdict,
            reason,
            sentence,
            after: outcome.packets.iter().map(|packet| PacketText::of(packet)).collect(),
        }
    }

    /// The explanation as text with styles.
    pub(crate) fn render(&self) -> String {
        let mut text = self.before.render("in");
        for (number, step) in self.steps.iter().enumerate() {
            let indent = if step.inner { "    " } else { "" };
            let left = format!("{:>4}. {indent}{}", number + 1, step.text);
            let _ = if step.section.is_empty() {
                writeln!(text, "{left}")
            } else {
                writeln!(text, "{left:<72} {FAINT}[{}]{FAINT:#}", step.section)
            };
        }
        let style = match self.verdict {
            "forward" => GOOD,
            "drop" => ERROR,
            _ => WARNING,
        };
        let _ = writeln!(text, "   => {style}{}{style:#}: {}", self.verdict, self.sentence);
        for packet in &self.after {
            text.push_str(&packet.render("out"));
        }
        text
    }
}

impl PacketText {
    fn of(bytes: &[u8]) -> PacketText {
        let hex = bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut hex, octet| {
            let _ = write!(hex, "{octet:02x}");
            hex
        });
        PacketText { octets: bytes.len(), headers: dissect::packet(bytes), hex }
    }

    fn render(&self, label: &str) -> String {
        let mut text = String::new();
        for (index, line) in self.headers.iter().enumerate() {
            let label = if index == 0 { label } else { "" };
            let _ = writeln!(text, " {STRONG}{label:<4}{STRONG:#} {line}");
        }
        text
    }
}

fn verdict_text(verdict: Verdict, pieces: usize) -> (&'static str, Option<&'static str>, String) {
    match verdict {
        Verdict::Forward if pieces > 1 => {
            ("forward", None, format!("translated; leaves in {pieces} fragments"))
        }
        Verdict::Forward => ("forward", None, "translated".to_owned()),
        Verdict::Reply(error) => {
            let text = format!("the sender gets an ICMP error. {}", error.reason.text());
            ("reply", Some(error.reason.label()), text)
        }
        Verdict::Drop(reason) => ("drop", Some(reason.label()), reason.text().to_owned()),
        Verdict::Stored => {
            ("stored", None, "kept until the host answers, or the other fragments come".to_owned())
        }
        Verdict::Pass => ("pass", None, "not for this translator; left untouched".to_owned()),
        Verdict::Elsewhere(shard) => {
            ("elsewhere", None, format!("handed over to the gateway that owns shard {shard}"))
        }
    }
}

/// What the hop limit does at this attach point, for the end of an explanation.
pub(crate) fn hop_note(hops: HopCount) -> &'static str {
    match hops {
        HopCount::NONE => {
            "The hop limit is left alone here: routing into the interface and out of it are the two \
             hops that the host counts."
        }
        _ => "The translator counts as one hop.",
    }
}
