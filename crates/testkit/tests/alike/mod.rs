//! When the kernel's programs agree with the core.

use fordway_bpf::Outcome;
use fordway_testkit::checksum::checksum;
use fordway_testkit::oracle;
use fordway_xlat::{ChecksumState, Gso, Offload, Verdict};

/// What a program made of a packet: the packet itself, as it left.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) outcome: Outcome,
    pub(crate) packet: Option<Vec<u8>>,
    pub(crate) offload: Option<Offload>,
}

/// Holds what a program made of `input` against what the core made of it.
pub(crate) fn agree(input: &[u8], core: &oracle::Outcome, made: &Made) -> Result<(), String> {
    match made.outcome {
        Outcome::Translated => translated(input, core, made),
        Outcome::Dropped(reason) if core.verdict == Verdict::Drop(reason) => Ok(()),
        Outcome::Dropped(reason) => {
            Err(format!("the program dropped it ({reason:?}), the core says {:?}", core.verdict))
        }
        // Whatever it was, the user engine has it now, if it is as it came.
        Outcome::PassedOn(reason) => match &made.packet {
            Some(packet) if packet != input => Err(format!("passed on ({reason:?}), but changed")),
            _ => Ok(()),
        },
        Outcome::Unmatched => Err("the program took it for somebody else's".into()),
    }
}

fn translated(input: &[u8], core: &oracle::Outcome, made: &Made) -> Result<(), String> {
    if core.verdict != Verdict::Forward {
        return Err(format!("the program translated it, the core says {:?}", core.verdict));
    }
    let [expected] = &core.packets[..] else {
        return Err(format!("the core makes {} pieces of it, the program one", core.packets.len()));
    };
    let got = made.packet.as_ref().ok_or("translated, and nothing came out")?;
    let got = with_identification_of(expected, got, input)?;
    if got != *expected {
        let text = |octets: &[u8]| -> String {
            octets.iter().take(200).map(|octet| format!("{octet:02x}")).collect()
        };
        return Err(format!("core    {}\nprogram {}", text(expected), text(&got)));
    }
    match made.offload {
        Some(offload) if comparable(offload) != comparable(core.offload) => {
            Err(format!("offload: core {:?}, program {offload:?}", core.offload))
        }
        _ => Ok(()),
    }
}

/// The generator of identifications is each engine's own: where there is no Fragment Header to take it
/// from, that of `expected` is put in place of `got`'s.
fn with_identification_of(expected: &[u8], got: &[u8], input: &[u8]) -> Result<Vec<u8>, String> {
    let mut got = got.to_vec();
    let generated = input[0] >> 4 == 6 && got.len() >= 20 && got[0] == 0x45 && expected.len() >= 20;
    if !generated || has_fragment_header(input) {
        return Ok(got);
    }
    if checksum(&got[..20]) != 0 {
        return Err("the header checksum is wrong".into());
    }
    got[4..6].copy_from_slice(&expected[4..6]);
    got[10..12].fill(0);
    let value = checksum(&got[..20]);
    got[10..12].copy_from_slice(&value.to_be_bytes());
    Ok(got)
}

/// Whether an IPv6 packet has a Fragment Header behind its Hop-by-Hop, Routing and Destination Options.
fn has_fragment_header(packet: &[u8]) -> bool {
    let (mut next, mut at) = (packet[6], 40);
    while matches!(next, 0 | 43 | 60) && packet.len() > at + 1 {
        next = packet[at];
        at += (usize::from(packet[at + 1]) + 1) * 8;
    }
    next == 44
}

/// What the kernel keeps of an offload state.
fn comparable(offload: Offload) -> Offload {
    let checksum = match offload.checksum {
        ChecksumState::Verified => ChecksumState::Complete,
        state => state,
    };
    Offload { checksum, gso: Gso { header_len: 0, ..offload.gso } }
}
