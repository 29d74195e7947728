//! Interfaces with engines that vectors of one configuration share: making one takes longer than all of its vectors.

use std::collections::HashMap;

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
    if is_plain(from) {
        set_identification(to, u16::from_be_bytes([from[4], from[5]]));
    }
}

fn is_plain(packet: &[u8]) -> bool {
    packet.len() >= 20 && packet[0] == 0x45
}

/// The identifications that an engine begins with for each source, destination and protocol, less those of a generator
/// that begins with another number.
#[derive(Default)]
pub(crate) struct Shifts(HashMap<[u8; 9], u16>);

impl Shifts {
    /// Gives a packet that may be fragmented the identification of a generator that begins with `first`, which has
    /// given as many to these ends.
    pub(crate) fn shift(&mut self, packet: &mut [u8], first: u16) {
        if !is_plain(packet) || packet[6] & 0x40 != 0 {
            return;
        }
        let mut ends = [packet[9]; 9];
        ends[1..].copy_from_slice(&packet[12..20]);
        let found = u16::from_be_bytes([packet[4], packet[5]]);
        let shift = *self.0.entry(ends).or_insert(found.wrapping_sub(first));
        set_identification(packet, found.wrapping_sub(shift));
    }
}

/// If the header is sound.
fn set_identification(to: &mut [u8], identification: u16) {
    if is_plain(to) && checksum(&to[..20]) == 0 {
        to[4..6].copy_from_slice(&identification.to_be_bytes());
        to[10..12].fill(0);
        let value = checksum(&to[..20]);
        to[10..12].copy_from_slice(&value.to_be_bytes());
    }
}
