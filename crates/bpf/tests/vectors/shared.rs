//! Interfaces with engines that vectors of one configuration share: making one takes longer than all of its vectors.

use fordway_testkit::checksum::checksum;
use fordway_testkit::vector::{Case, CaseStep};
use fordway_testkit::view::View;
use fordway_xlat::Verdict;

/// Next Header of ICMPv6.
const ICMPV6: u8 = 58;

/// What cases have to have in common to share an interface. An engine begins with the case's identification.
pub(crate) fn key(case: &Case) -> String {
    format!("{:?} {:?} {}", case.config, case.softwire, case.vector.identification)
}

/// Whether an engine is not what it was after this case: fragments wait, the MTU of a path was learnt, or no more
/// ICMP errors may be sent for now.
pub(crate) fn leaves_traces(case: &Case) -> bool {
    let limited = |step: &CaseStep| step.expected.counters.contains_key("suppressed");
    let waits = |step: &CaseStep| step.expected.verdict == Verdict::Stored;
    let learns = |step: &CaseStep| {
        View::of(&step.input).is_none_or(|view| !view.v4 && view.protocol == ICMPV6)
    };
    case.steps.iter().any(limited)
        || (case.softwire.is_some() && case.steps.iter().any(|step| waits(step) || learns(step)))
}

/// Puts the identification of an IPv4 packet in the place of another's, if the header of that is sound.
pub(crate) fn take_identification(from: &[u8], to: &mut [u8]) {
    let plain = |packet: &[u8]| packet.len() >= 20 && packet[0] == 0x45;
    if plain(from) && plain(to) && checksum(&to[..20]) == 0 {
        to[4..6].copy_from_slice(&from[4..6]);
        to[10..12].fill(0);
        let value = checksum(&to[..20]);
        to[10..12].copy_from_slice(&value.to_be_bytes());
    }
}
