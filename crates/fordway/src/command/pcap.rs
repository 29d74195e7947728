//! `fordway pcap`.

use std::path::Path;

use fordway_control::Totals;
use fordway_daemon::failure::Failure;
use fordway_daemon::output::{self, STRONG};
use fordway_xlat::Verdict;
use serde::Serialize;

use crate::capture::{Frame, Reader, Writer};
use crate::cli::PcapArgs;
use crate::offline::Offline;
use crate::report::totals_table;

/// `--json`.
#[derive(Serialize)]
struct Translated {
    /// Frames read.
    frames: u64,
    /// Frames without an IP packet; they are left out.
    not_ip: u64,
    /// Packets that were captured only in part; they can't be translated.
    cut: u64,
    /// Frames written.
    written: u64,
    #[serde(flatten)]
    totals: Totals,
}

pub(crate) fn run(args: &PcapArgs) -> Result<(), Failure> {
    let source = args.source.load()?;
    let mut offline = Offline::new(&source)?;
    let mut reader = Reader::open(&args.input)?;
    if same_file(&args.input, &args.output) {
        let why = "it is the input too, and would be overwritten while it is read";
        let text = format!("cannot write to {}: {why}", args.output.display());
        return Err(Failure::usage(text, "name another output file"));
    }
    let mut writer = Writer::create(&args.output)?;
    let (mut frames, mut not_ip, mut cut, mut written) = (0u64, 0u64, 0u64, 0u64);
    while let Some(captured) = reader.next()? {
        frames += 1;
        let Some(frame) = Frame::parse(captured.link, &captured.bytes) else {
            not_ip += 1;
            continue;
        };
        cut += u64::from(captured.bytes.len() < captured.original_len as usize);
        let outcome = offline.translate(frame.packet, captured.time, &mut ());
        let answer = matches!(outcome.verdict, Verdict::Reply(_));
        for packet in &outcome.packets {
            writer.write(captured.link, captured.time, &frame.carry(packet, answer))?;
            written += 1;
        }
    }
    writer.finish()?;
    let totals = Totals::read(offline.counters());
    if args.json {
        return output::print_json(&Translated { frames, not_ip, cut, written, totals });
    }
    let mut text = format!(
        "{STRONG}{}{STRONG:#}: {frames} frames read, {not_ip} without IP, {written} written to {}\n",
        args.input.display(),
        args.output.display()
    );
    if cut > 0 {
        text += &format!("  {cut} packets were captured in part only (tcpdump -s 0 keeps all)\n");
    }
    text += &totals_table(&totals);
    output::print(&text)
}

/// Whether both names lead to one existing file, by whatever links.
fn same_file(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}
