//! What must hold of every outcome, whatever came in.
//!
//! Used by property tests and by fuzzing: no expected packet is known here, only what all of them have
//! in common.

use std::time::Duration;

use fordway_xlat::{
    ChecksumState, Config, Gso, GsoKind, HEADROOM, Offload, Packet, State, Translator, Verdict,
};

use crate::checksum::{add, sum};
use crate::segment::{complete, segments};
use crate::view::View;

/// What the core made of a packet.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The verdict.
    pub verdict: Verdict,
    /// The packets that leave.
    pub packets: Vec<Vec<u8>>,
    /// Their offload state.
    pub offload: Offload,
}

/// Translates one packet with the core, with the usual headroom and some room behind.
pub fn translate(
    translator: &Translator,
    state: &mut State,
    input: &[u8],
    offload: Offload,
) -> Outcome {
    let mut buffer = vec![0xa5; HEADROOM + input.len() + HEADROOM];
    let range = HEADROOM..HEADROOM + input.len();
    buffer[range.clone()].copy_from_slice(input);
    let mut packet = Packet::new(&mut buffer, range, offload);
    let verdict = translator.translate(&mut packet, Duration::from_secs(1), state, &mut ());
    let packets = match verdict {
        Verdict::Forward => {
            packet.fragments().map(|piece| [piece.head(), piece.body].concat()).collect()
        }
        Verdict::Reply(_) | Verdict::Pass | Verdict::Elsewhere(_) => {
            vec![packet.bytes().to_vec()]
        }
        Verdict::Drop(_) | Verdict::Stored => Vec::new(),
    };
    Outcome { verdict, packets, offload: packet.offload }
}

/// Everything that is wrong with an outcome.
///
/// - A forwarded packet is of the other family, or hairpinned; its lengths and header checksum are
///   right; its transport checksum deviates from the right one exactly as it did before; it fits the
///   next hop's MTU; its offload state fits it. Its pieces join up where the packet was.
/// - A reply goes to the sender, is whole, right, and no longer than the RFCs allow.
/// - What is passed is untouched, but for what lay behind its length.
pub fn check(
    config: &Config,
    input: &[u8],
    offload: Offload,
    outcome: &Outcome,
) -> Result<(), String> {
    match outcome.verdict {
        Verdict::Drop(_) | Verdict::Stored => Ok(()),
        Verdict::Pass => {
            require(config.pass_unmatched, "passed without pass_unmatched")?;
            // What lies behind the packet's own length may be gone.
            let length = View::of(input).map_or(input.len(), |view| view.length.min(input.len()));
            require(outcome.packets == [&input[..length]], "a passed packet was changed")
        }
        Verdict::Elsewhere(_) => Err("it has no shards".into()),
        Verdict::Reply(_) => check_reply(input, outcome),
        Verdict::Forward => check_forward(config, input, offload, outcome),
    }
}

fn require(condition: bool, text: &str) -> Result<(), String> {
    if condition { Ok(()) } else { Err(text.to_owned()) }
}

pub(crate) fn check_reply(input: &[u8], outcome: &Outcome) -> Result<(), String> {
    let [reply] = &outcome.packets[..] else {
        return Err("not one reply".into());
    };
    let view = View::of(reply).ok_or("the reply is no packet")?;
    let asked = View::of(input).ok_or("a reply to what is no packet")?;
    require(view.v4 == asked.v4, "a reply of the other family")?;
    require(view.dst == asked.src, "the reply does not go to the sender")?;
    require(view.is_icmp_error(), "the reply is no ICMP error")?;
    require(!asked.is_icmp_error(), "an error about an error")?;
    require(!asked.v4 || asked.offset == 0, "an error about a later fragment")?;
    require(view.length == reply.len(), "the reply's length is wrong")?;
    require(reply.len() <= if view.v4 { 576 } else { 1280 }, "the reply is too long")?;
    require(view.header_checksum_is_right(), "the reply's header checksum is wrong")?;
    require(view.deviation() == Some(0), "the reply's checksum is wrong")?;
    require(outcome.offload == Offload::default(), "the reply has offload state")
}

fn check_forward(
    config: &Config,
    input: &[u8],
    offload: Offload,
    outcome: &Outcome,
) -> Result<(), String> {
    let before = View::of(input).ok_or("translated what is no packet")?;
    require(!outcome.packets.is_empty(), "forwarded nothing")?;
    let first = View::of(&outcome.packets[0]).ok_or("made what is no packet")?;
    require(first.v4 != before.v4 || !first.v4, "IPv4 became IPv4")?;
    let hairpinned = first.v4 == before.v4;
    let mtu = if first.v4 { config.mtu4 } else { config.mtu6 };
    // 65,535 and more: unknown.
    let mtu = if mtu >= 65_535 { usize::MAX } else { mtu as usize };
    for packet in &outcome.packets {
        let piece = View::of(packet).ok_or("made a piece that is no packet")?;
        require(piece.length == packet.len(), "a length field is wrong")?;
        require(piece.header_checksum_is_right(), "a header checksum is wrong")?;
        require(!piece.v4 || packet[0] == 0x45, "IPv4 options were made")?;
        require(piece.hop != 0, "a hop limit of 0 leaves")?;
        if outcome.offload.gso.kind == GsoKind::None {
            require(packet.len() <= mtu, "a packet exceeds the next hop's MTU")?;
        }
    }
    // The whole packet as it was on the wire, without what lay behind its length.
    let input = &input[..before.length.min(input.len())];
    if offload.gso.kind == GsoKind::Udp && outcome.offload.gso.kind == GsoKind::None {
        return check_datagrams(input, offload, outcome);
    }
    check_pieces(&before, &outcome.packets)?;
    check_offload(&first, &outcome.packets, outcome.offload, mtu)?;
    if outcome.packets.len() == 1 {
        check_checksums(config, input, offload, &outcome.packets[0], outcome.offload)?;
        bounds(&before, input.len(), outcome.packets[0].len(), hairpinned)?;
    }
    Ok(())
}

/// The pieces of a packet, or it alone, begin and end where it did, and nothing is left out between them.
fn check_pieces(before: &View<'_>, packets: &[Vec<u8>]) -> Result<(), String> {
    let pieces: Vec<View<'_>> = packets.iter().filter_map(|packet| View::of(packet)).collect();
    let mut offset = before.offset;
    for (index, piece) in pieces.iter().enumerate() {
        let last = index + 1 == pieces.len();
        require(piece.offset == offset, "a piece does not begin where the one before ends")?;
        require(piece.more == if last { before.more } else { true }, "M is wrong")?;
        require(last || piece.payload().len() % 8 == 0, "a piece is no multiple of 8")?;
        require(piece.identification == pieces[0].identification, "pieces of two packets")?;
        offset += piece.payload().len();
    }
    Ok(())
}

/// The datagrams of a super-packet that leave one by one: each is whole, or in pieces of its own, and its checksum is right.
fn check_datagrams(input: &[u8], offload: Offload, outcome: &Outcome) -> Result<(), String> {
    require(outcome.offload == Offload::default(), "datagrams with offload state")?;
    let cut = segments(input, &offload).ok_or("made datagrams of what can't be segmented")?;
    let mut rest = &outcome.packets[..];
    for datagram in &cut {
        let before = View::of(datagram).ok_or("a datagram is no packet")?;
        let (mut payload, mut own) = (Vec::new(), 0);
        let mut first = None;
        while payload.len() < before.payload().len() {
            let piece = rest.get(own).and_then(|packet| View::of(packet));
            let piece = piece.ok_or("a datagram is missing")?;
            require(!piece.payload().is_empty(), "a piece without octets")?;
            payload.extend_from_slice(piece.payload());
            first = first.or(Some(piece));
            own += 1;
        }
        check_pieces(&before, &rest[..own])?;
        rest = &rest[own..];
        let same = payload.get(8..) == before.payload().get(8..);
        require(same, "the payload of a datagram was changed")?;
        let view = first.ok_or("a datagram without octets")?;
        let ends = add(sum(view.src), sum(view.dst));
        let pseudo = add(ends, add(17, payload.len() as u16));
        require(add(pseudo, sum(&payload)) == 0xffff, "a datagram's checksum is wrong")?;
    }
    require(rest.is_empty(), "more datagrams than there were")
}

/// RFC 7915: 20 octets more or less, 8 for a Fragment Header, and so inside ICMP errors as well; the
/// padding of RFC 4884 on top.
fn bounds(before: &View<'_>, from: usize, to: usize, hairpinned: bool) -> Result<(), String> {
    let more = match (before.is_icmp_error(), before.v4 || hairpinned) {
        // RFC 4884: an original datagram shorter than 128 octets is padded, whatever its length was.
        (true, true) => 20 + 128 + 8,
        (true, false) => 128,
        (false, true) => 20 + 8,
        (false, false) => 0,
    };
    require(to <= from + more, "the packet grew by more than its headers")
}

fn check_offload(
    first: &View<'_>,
    packets: &[Vec<u8>],
    offload: Offload,
    mtu: usize,
) -> Result<(), String> {
    if packets.len() > 1 {
        let partial = matches!(offload.checksum, ChecksumState::Partial { .. });
        return require(!partial && offload.gso == Gso::default(), "pieces with offload state");
    }
    let packet = &packets[0];
    if let ChecksumState::Partial { start, offset } = offload.checksum {
        let end = usize::from(start) + usize::from(offset) + 2;
        require(usize::from(start) >= first.transport, "a partial checksum starts in a header")?;
        require(end <= packet.len(), "a partial checksum ends behind the packet")?;
    }
    if offload.gso.kind == GsoKind::None {
        return Ok(());
    }
    require(
        matches!(offload.checksum, ChecksumState::Partial { .. }),
        "a super-packet without partial checksum",
    )?;
    let cut = segments(packet, &offload).ok_or("a super-packet that can't be segmented")?;
    for segment in &cut {
        require(segment.len() <= mtu, "a segment exceeds the next hop's MTU")?;
        let view = View::of(segment).ok_or("a segment is no packet")?;
        require(view.deviation() == Some(0), "a segment's checksum is wrong")?;
    }
    Ok(())
}

fn check_checksums(
    config: &Config,
    input: &[u8],
    offload: Offload,
    output: &[u8],
    now: Offload,
) -> Result<(), String> {
    let (input, output) = (complete(input, &offload), complete(output, &now));
    let (Some(before), Some(after)) = (View::of(&input), View::of(&output)) else {
        return Err("a packet became unreadable".into());
    };
    if before.is_icmp_error() {
        require(after.deviation() == Some(0), "an ICMP error's checksum is wrong")?;
        return check_inner(&before, &after);
    }
    if before.protocol == 17 && before.v4 && before.checksum() == Some(0) {
        let computed = after.checksum() != Some(0);
        let pass = config.udp_checksum_zero == fordway_xlat::UdpChecksumZero::Pass;
        return require(computed || pass, "UDP over IPv6 without checksum");
    }
    if before.protocol == 17 && !before.v4 && before.checksum() == Some(0) {
        // A hairpinned datagram comes from IPv4 in between, and may have got one there.
        return require(!after.v4 || after.checksum() == Some(0), "UDP without checksum got one");
    }
    require(before.deviation() == after.deviation(), "the transport checksum went wrong")
}

/// Inside an ICMP error only addresses, ports and checksum field are compared: the rest may be cut off.
fn check_inner(before: &View<'_>, after: &View<'_>) -> Result<(), String> {
    let (Some(before), Some(after)) = (before.inner(), after.inner()) else {
        return Err("an ICMP error lost its packet in error".into());
    };
    require(before.hop == after.hop, "an inner hop limit was changed")?;
    require(before.offset == after.offset, "an inner fragment offset was changed")?;
    let zero = before.protocol == 17 && before.checksum() == Some(0);
    if before.is_icmp() || zero {
        return Ok(());
    }
    let (Some(old), Some(new)) = (before.checksum(), after.checksum()) else {
        return Ok(());
    };
    let total = |view: &View<'_>, checksum: u16| {
        // A stateful translator changes ports, too.
        let ports = view.payload().get(..4).filter(|_| matches!(view.protocol, 6 | 17));
        let ends = add(sum(view.src), sum(view.dst));
        add(checksum, add(ends, ports.map_or(0, sum))) % 0xffff
    };
    require(total(&before, old) == total(&after, new), "an inner checksum went wrong")
}
