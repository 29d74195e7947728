//! When the kernel's programs agree with the core.

use fordway_bpf::Outcome;
use fordway_testkit::checksum::checksum;
use fordway_testkit::oracle;
use fordway_xlat::{ChecksumState, Gso, Offload, Verdict};

/// Octets of an IPv4 header without options.
const V4_LEN: usize = 20;

/// What a program made of a packet: the packet itself, as it left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made<'a> {
    pub(crate) outcome: Outcome,
    pub(crate) packet: Option<&'a [u8]>,
    pub(crate) offload: Option<Offload>,
}

/// Holds what a program made of `input` against what the core made of it.
pub(crate) fn agree(input: &[u8], core: &oracle::Outcome, made: &Made<'_>) -> Result<(), String> {
    match made.outcome {
        Outcome::Translated => translated(input, core, made),
        Outcome::Dropped(reason) if core.verdict == Verdict::Drop(reason) => Ok(()),
        Outcome::Dropped(reason) => {
            Err(format!("the program dropped it ({reason:?}), the core says {:?}", core.verdict))
        }
        // Whatever it was, the user engine has it now, if it is as it came.
        Outcome::PassedOn(_) => unchanged(input, made),
        Outcome::Unmatched | Outcome::HandedOver => {
            Err("the program took it for somebody else's".into())
        }
    }
}

/// Holds what a program has left to others against how it came.
pub(crate) fn unchanged(input: &[u8], made: &Made<'_>) -> Result<(), String> {
    match made.packet {
        Some(packet) if packet != input => Err(format!("{:?}, but changed", made.outcome)),
        _ => Ok(()),
    }
}

fn translated(input: &[u8], core: &oracle::Outcome, made: &Made<'_>) -> Result<(), String> {
    if core.verdict != Verdict::Forward {
        return Err(format!("the program translated it, the core says {:?}", core.verdict));
    }
    let [expected] = &core.packets[..] else {
        return Err(format!("the core makes {} pieces of it, the program one", core.packets.len()));
    };
    let got = made.packet.ok_or("translated, and nothing came out")?;
    if !is_same(expected, got, input)? {
        return Err(format!("core    {}\nprogram {}", hex(expected), hex(got)));
    }
    match made.offload {
        Some(offload) if comparable(offload) != comparable(core.offload) => {
            Err(format!("offload: core {:?}, program {offload:?}", core.offload))
        }
        _ => Ok(()),
    }
}

/// Whether both engines made the same packet of `input`.
///
/// The generator of identifications is each engine's own: where there is no Fragment Header to take the
/// identification from, that of `expected` is put in place of `got`'s.
fn is_same(expected: &[u8], got: &[u8], input: &[u8]) -> Result<bool, String> {
    let generated =
        input[0] >> 4 == 6 && got.len() >= V4_LEN && got[0] == 0x45 && expected.len() >= V4_LEN;
    if !generated || has_fragment_header(input) {
        return Ok(got == expected);
    }
    let mut header = [0; V4_LEN];
    header.copy_from_slice(&got[..V4_LEN]);
    if checksum(&header) != 0 {
        return Err("the header checksum is wrong".into());
    }
    header[4..6].copy_from_slice(&expected[4..6]);
    header[10..12].fill(0);
    let value = checksum(&header);
    header[10..12].copy_from_slice(&value.to_be_bytes());
    Ok(header == expected[..V4_LEN] && got[V4_LEN..] == expected[V4_LEN..])
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
pub(crate) fn comparable(offload: Offload) -> Offload {
    let checksum = match offload.checksum {
        ChecksumState::Verified => ChecksumState::Complete,
        state => state,
    };
    Offload { checksum, gso: Gso { header_len: 0, ..offload.gso } }
}

/// The packet behind an Ethernet header, to the loopback device, where test runs arrive.
pub(crate) fn frame(packet: &[u8]) -> Vec<u8> {
    let kind: [u8; 2] = if packet[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xdd] };
    [&[0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 2], &kind[..], packet].concat()
}

/// Octets as a failed test shows them.
pub(crate) fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}
