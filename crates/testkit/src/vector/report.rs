//! What differs, for people.

use std::fmt::{self, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr};

use super::case::{Case, CaseStep};
use super::format::CounterMap;
use super::run::{Observation, Sent};

/// All that a subject did differently from a vector; it prints field by field and in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch(String);

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Mismatch {
    pub(super) fn new(text: String) -> Mismatch {
        Mismatch(text)
    }

    /// The differences between what a case demands and what was seen.
    pub fn find(case: &Case, seen: &[Observation]) -> Option<Mismatch> {
        let mut text = String::new();
        if seen.len() != case.steps.len() {
            let _ = writeln!(text, "{} packets fed, {} observed", case.steps.len(), seen.len());
        }
        for (index, (step, seen)) in case.steps.iter().zip(seen).enumerate() {
            let difference = compare(step, seen);
            if !difference.is_empty() {
                if case.steps.len() > 1 {
                    let _ = writeln!(text, "step {index}:");
                }
                text.push_str(&difference);
            }
        }
        (!text.is_empty()).then(|| {
            Mismatch(format!(
                "{}\n{} ({})\n{text}",
                case.name, case.vector.title, case.vector.source
            ))
        })
    }
}

pub(super) fn compare(step: &CaseStep, seen: &Observation) -> String {
    let mut text = String::new();
    let expected = &step.expected;
    if let Some(verdict) = seen.verdict.filter(|verdict| *verdict != expected.verdict) {
        let _ = writeln!(
            text,
            "  verdict: expected {:?}\n           got      {verdict:?}",
            expected.verdict
        );
    }
    if seen.sent.len() != expected.packets.len() {
        let _ = writeln!(
            text,
            "  packets: expected {}, got {}",
            expected.packets.len(),
            seen.sent.len()
        );
        if let (0, Some(sent)) = (expected.packets.len(), seen.sent.first()) {
            text.push_str(&side_by_side(&[], &sent.bytes));
        }
    }
    for (index, (packet, Sent { bytes, offload })) in
        expected.packets.iter().zip(&seen.sent).enumerate()
    {
        if packet != bytes {
            let _ = writeln!(text, "  packet {index} (input was {} octets):", step.input.len());
            text.push_str(&side_by_side(packet, bytes));
        }
        if let Some(offload) = offload.filter(|offload| *offload != expected.offload) {
            let _ = writeln!(
                text,
                "  offload of packet {index}: expected {:?}\n    got {offload:?}",
                expected.offload
            );
        }
    }
    if let Some(counters) = &seen.counters {
        text.push_str(&compare_counters(&expected.counters, counters));
    }
    text
}

fn compare_counters(expected: &CounterMap, got: &CounterMap) -> String {
    let mut text = String::new();
    let mut names: Vec<&String> = expected.keys().chain(got.keys()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let (want, have) = (expected.get(name).unwrap_or(&0), got.get(name).unwrap_or(&0));
        if want != have {
            let _ = writeln!(text, "  counter {name}: expected {want}, got {have}");
        }
    }
    text
}

/// Fields of both packets, `-` expected and `+` got where they differ, then the octets.
pub(super) fn side_by_side(expected: &[u8], got: &[u8]) -> String {
    let mut text = String::new();
    let (want, have) = (dissect(expected), dissect(got));
    for index in 0..want.len().max(have.len()) {
        match (want.get(index), have.get(index)) {
            (Some(want), Some(have)) if want == have => {
                let _ = writeln!(text, "      {want}");
            }
            (want, have) => {
                for (mark, line) in [('-', want), ('+', have)] {
                    if let Some(line) = line {
                        let _ = writeln!(text, "    {mark} {line}");
                    }
                }
            }
        }
    }
    for at in (0..expected.len().max(got.len())).step_by(16) {
        let row = |bytes: &[u8]| -> String {
            let row = bytes.get(at..bytes.len().min(at + 16)).unwrap_or(&[]);
            row.iter().map(|octet| format!("{octet:02x} ")).collect()
        };
        let (want, have) = (row(expected), row(got));
        if want != have {
            let _ = writeln!(text, "    - {at:04x}: {want}\n    + {at:04x}: {have}");
        }
    }
    text
}

/// The fields of a packet, one line each, as far as they can be made out.
pub fn dissect(bytes: &[u8]) -> Vec<String> {
    let mut lines = vec![format!("length {}", bytes.len())];
    packet(bytes, "", &mut lines);
    lines
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from(u16_at(bytes, at)?) << 16 | u32::from(u16_at(bytes, at + 2)?))
}

fn packet(bytes: &[u8], indent: &str, lines: &mut Vec<String>) {
    match bytes.first().map(|octet| octet >> 4) {
        Some(4) if bytes.len() >= 20 => ipv4(bytes, indent, lines),
        Some(6) if bytes.len() >= 40 => ipv6(bytes, indent, lines),
        _ => lines.push(format!("{indent}no IP header")),
    }
}

fn ipv4(bytes: &[u8], indent: &str, lines: &mut Vec<String>) {
    let word = |at| u16_at(bytes, at).unwrap_or(0);
    let address = |at: usize| Ipv4Addr::from_bits(u32_at(bytes, at).unwrap_or(0));
    let header = usize::from(bytes[0] & 15) * 4;
    let fragment = word(6);
    lines.extend([
        format!("{indent}ipv4 {} > {}", address(12), address(16)),
        format!("{indent}  ihl {} tos {:#04x} total length {}", bytes[0] & 15, bytes[1], word(2)),
        format!("{indent}  identification {:#06x}", word(4)),
        format!(
            "{indent}  flags {}{}{} offset {}",
            if fragment & 0x8000 != 0 { "reserved " } else { "" },
            if fragment & 0x4000 != 0 { "DF " } else { "" },
            if fragment & 0x2000 != 0 { "MF" } else { "" },
            (fragment & 0x1fff) * 8
        ),
        format!("{indent}  ttl {} protocol {}", bytes[8], bytes[9]),
        format!("{indent}  header checksum {:#06x}", word(10)),
    ]);
    if header > 20 {
        lines.push(format!("{indent}  options {:02x?}", bytes.get(20..header)));
    }
    let body = bytes.get(header.max(20)..).unwrap_or(&[]);
    upper(bytes[9], fragment & 0x1fff == 0, body, indent, lines);
}

fn ipv6(bytes: &[u8], indent: &str, lines: &mut Vec<String>) {
    let address = |at: usize| {
        let octets: [u8; 16] = bytes[at..at + 16].try_into().unwrap_or_default();
        Ipv6Addr::from(octets)
    };
    let word = u32_at(bytes, 0).unwrap_or(0);
    lines.extend([
        format!("{indent}ipv6 {} > {}", address(8), address(24)),
        format!("{indent}  class {:#04x} flow {:#07x}", word >> 20 & 0xff, word & 0xf_ffff),
        format!("{indent}  payload length {}", u16_at(bytes, 4).unwrap_or(0)),
        format!("{indent}  next header {} hop limit {}", bytes[6], bytes[7]),
    ]);
    let (mut next, mut at, mut first) = (bytes[6], 40, true);
    while matches!(next, 0 | 43 | 44 | 60) && at + 8 <= bytes.len() {
        if next == 44 {
            let field = u16_at(bytes, at + 2).unwrap_or(0);
            first = field & 0xfff8 == 0;
            lines.push(format!(
                "{indent}  fragment offset {} more {} identification {:#010x}",
                field & 0xfff8,
                field & 1,
                u32_at(bytes, at + 4).unwrap_or(0)
            ));
            (next, at) = (bytes[at], at + 8);
        } else {
            let len = (usize::from(bytes[at + 1]) + 1) * 8;
            lines.push(format!("{indent}  extension header {next} of {len} octets"));
            (next, at) = (bytes[at], at + len);
        }
    }
    lines.push(format!("{indent}  upper protocol {next}"));
    upper(next, first, bytes.get(at..).unwrap_or(&[]), indent, lines);
}

fn upper(protocol: u8, first: bool, body: &[u8], indent: &str, lines: &mut Vec<String>) {
    let word = |at| u16_at(body, at).unwrap_or(0);
    let long = |at| u32_at(body, at).unwrap_or(0);
    let mut payload = 0;
    match protocol {
        6 if first && body.len() >= 20 => {
            payload = (usize::from(body[12] >> 4) * 4).max(20);
            lines.extend([
                format!("{indent}  tcp {} > {}", word(0), word(2)),
                format!("{indent}    seq {:#x} ack {:#x}", long(4), long(8)),
                format!("{indent}    flags {:#04x} window {}", body[13], word(14)),
                format!("{indent}    checksum {:#06x} urgent {}", word(16), word(18)),
                format!("{indent}    options {:02x?}", body.get(20..payload).unwrap_or(&[])),
            ]);
        }
        17 | 136 if first && body.len() >= 8 => {
            payload = 8;
            lines.extend([
                format!("{indent}  udp {} > {} length {}", word(0), word(2), word(4)),
                format!("{indent}    checksum {:#06x}", word(6)),
            ]);
        }
        4 if first && !body.is_empty() && indent.len() < 8 => {
            packet(body, &format!("{indent}    "), lines);
            return;
        }
        1 | 58 if first && body.len() >= 8 => {
            lines.extend([
                format!("{indent}  icmp type {} code {}", body[0], body[1]),
                format!("{indent}    checksum {:#06x}", word(2)),
                format!("{indent}    rest {:#010x}", long(4)),
            ]);
            payload = 8;
            let error =
                if protocol == 1 { matches!(body[0], 3 | 4 | 5 | 11 | 12) } else { body[0] < 128 };
            if error && indent.len() < 8 {
                packet(&body[8..], &format!("{indent}    "), lines);
                return;
            }
        }
        _ => {}
    }
    lines.push(format!("{indent}  data {} octets", body.len().saturating_sub(payload)));
}
