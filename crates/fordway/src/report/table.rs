//! Counters as a text for people.

use std::fmt::Write;

use fordway_bpf::PassReason;
use fordway_control::{KernelStats, Totals};
use fordway_daemon::output::{FAINT, STRONG, WARNING, group};
use fordway_xlat::DropReason;

/// The counters as indented lines; counters at zero are left out where that says enough.
pub(crate) fn totals_table(totals: &Totals) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "  {STRONG}{:<12}{:>16}{:>16}{:>20}{:>14}{STRONG:#}",
        "direction", "packets", "segments", "octets", "fragments"
    );
    for (label, direction) in totals.directions() {
        let _ = writeln!(
            text,
            "  {:<12}{:>16}{:>16}{:>20}{:>14}",
            label.replace('_', " "),
            group(direction.packets),
            group(direction.segments),
            group(direction.octets),
            group(direction.fragments)
        );
    }
    let _ = writeln!(text, "  {STRONG}dropped{STRONG:#}     {:>16}", group(totals.dropped()));
    for reason in DropReason::ALL {
        let count = totals.drops.get(reason.label()).copied().unwrap_or(0);
        if count > 0 {
            let _ = writeln!(
                text,
                "    {WARNING}{:<24}{WARNING:#}{:>16}  {FAINT}{}{FAINT:#}",
                reason.label(),
                group(count),
                reason.text()
            );
        }
    }
    if totals.handed_over > 0 {
        let _ = writeln!(
            text,
            "  {STRONG}{:<12}{STRONG:#}{:>16}  to the owners of their shards",
            "handed over",
            group(totals.handed_over)
        );
    }
    let errors = totals.icmp_errors;
    let _ = writeln!(
        text,
        "  {STRONG}ICMP errors{STRONG:#} {:>16} sent ({} ICMPv4, {} ICMPv6), {} suppressed",
        group(errors.v4.wrapping_add(errors.v6)),
        group(errors.v4),
        group(errors.v6),
        group(errors.suppressed)
    );
    for (label, count) in totals.io.labelled() {
        if count > 0 {
            let _ = writeln!(text, "  {WARNING}{:<26}{WARNING:#}{:>16}", label, group(count));
        }
    }
    text
}

/// What of it the kernel engine did, and what it left.
pub(crate) fn kernel_table(kernel: &KernelStats) -> String {
    let mut text = String::new();
    let of_kernel = kernel.as_totals();
    for (label, direction) in of_kernel.directions() {
        let _ = writeln!(
            text,
            "  {STRONG}of these in the kernel{STRONG:#}, {}: {} packets, {} segments",
            label.replace('_', " "),
            group(direction.packets),
            group(direction.segments)
        );
    }
    if kernel.routed > 0 {
        let packets = group(kernel.routed);
        let _ = writeln!(
            text,
            "  {STRONG}not forwarded directly{STRONG:#}: {packets} packets, which the stack routed"
        );
    }
    for (what, causes) in
        [("passed on", &kernel.passed_on), ("left to the stack", &kernel.left_to_stack)]
    {
        if causes.is_empty() {
            continue;
        }
        let _ = writeln!(text, "  {STRONG}{what}{STRONG:#}");
        for reason in PassReason::ALL {
            if let Some(count) = causes.get(reason.label()) {
                let _ = writeln!(
                    text,
                    "    {:<24}{:>16}  {FAINT}{}{FAINT:#}",
                    reason.label(),
                    group(*count),
                    reason.text()
                );
            }
        }
    }
    text
}
