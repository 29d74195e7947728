//! `fordway explain`.

use std::fmt::Write;
use std::time::Duration;

use fordway_daemon::failure::Failure;
use fordway_daemon::output::{self, FAINT, STRONG};
use serde::Serialize;

use crate::capture::{Frame, Reader};
use crate::cli::ExplainArgs;
use crate::explain::{Explanation, hop_note};
use crate::offline::Offline;

/// `--json`: one element per packet.
#[derive(Serialize)]
struct Explained {
    /// Its place in the capture, from 1.
    packet: u64,
    #[serde(flatten)]
    explanation: Explanation,
}

pub(crate) fn run(args: &ExplainArgs) -> Result<(), Failure> {
    let source = args.source.load()?;
    let mut offline = Offline::new(&source)?;
    let mut explained = Vec::new();
    let mut skipped = 0u64;
    match (&args.hex, &args.pcap) {
        (Some(hex), _) => {
            let bytes = parse_hex(hex)?;
            let explanation = Explanation::of(&mut offline, &bytes, Duration::ZERO);
            explained.push(Explained { packet: 1, explanation });
        }
        (None, Some(path)) => {
            let mut reader = Reader::open(path)?;
            let mut number = 0u64;
            while let Some(captured) = reader.next()? {
                number += 1;
                let wanted = args.packet.is_none_or(|packet| packet == number);
                match Frame::parse(captured.link, &captured.bytes) {
                    Some(frame) => {
                        // Packets before the wanted one still use up the rate limit.
                        let explanation =
                            Explanation::of(&mut offline, frame.packet, captured.time);
                        if wanted {
                            explained.push(Explained { packet: number, explanation });
                        }
                    }
                    None if wanted => skipped += 1,
                    None => {}
                }
            }
            missing_packet(args.packet, number)?;
        }
        (None, None) => {}
    }
    if args.json {
        return output::print_json(&explained);
    }
    let mut text = String::new();
    for Explained { packet, explanation } in &explained {
        if args.pcap.is_some() {
            let _ = writeln!(text, "{STRONG}packet {packet}{STRONG:#}");
        }
        let _ = writeln!(text, "{}", explanation.render());
    }
    if skipped > 0 {
        let _ = writeln!(text, "Left out, since they carry no IP packet: {skipped}");
    }
    let _ = writeln!(text, "{FAINT}{}{FAINT:#}", hop_note(offline.hop_count()));
    output::print(&text)
}

fn missing_packet(wanted: Option<u64>, last: u64) -> Result<(), Failure> {
    match wanted {
        Some(packet) if packet == 0 || packet > last => Err(Failure::usage(
            format!("there is no packet {packet}"),
            format!("the capture has packets 1 to {last}"),
        )),
        _ => Ok(()),
    }
}

/// Octets in hexadecimal, however they are laid out.
fn parse_hex(text: &str) -> Result<Vec<u8>, Failure> {
    let wrong = |what: String| {
        Failure::usage(
            format!("--hex: {what}"),
            "write the octets of an IP packet, two digits each, such as 4500001c...",
        )
    };
    let mut digits = Vec::new();
    for word in text.split(|c: char| c.is_whitespace() || matches!(c, ':' | ',' | '-')) {
        let word = word.strip_prefix("0x").or(word.strip_prefix("\\x")).unwrap_or(word);
        for c in word.chars() {
            let digit = c.to_digit(16).ok_or_else(|| wrong(format!("{c:?} is no digit")))?;
            // A hexadecimal digit is below 16.
            digits.push(digit as u8);
        }
    }
    if digits.is_empty() {
        return Err(wrong("there are no octets".to_owned()));
    }
    if !digits.len().is_multiple_of(2) {
        return Err(wrong(format!("{} digits make no whole octets", digits.len())));
    }
    Ok(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::parse_hex;

    #[test]
    fn hexadecimal_in_many_layouts() {
        for text in ["4500ff", "45 00 FF", "45:00:ff", "0x45 0x00 0xff", "4500\n ff", "45,00,ff"] {
            assert_eq!(parse_hex(text).unwrap(), [0x45, 0x00, 0xff], "{text}");
        }
        for text in ["", "450", "45 0g", "xyz"] {
            assert!(parse_hex(text).is_err(), "{text}");
        }
    }
}
