//! What must hold of sound packets with an ordinary configuration.

use fordway_xlat::{ChecksumState, DropReason, GsoKind, Offload, State, Verdict};

use crate::checksum::checksum;
use crate::fuzz::{Body, Plan, translator};
use crate::oracle::{Outcome, translate};
use crate::segment::{complete, segments};
use crate::view::View;

/// Every property of this module.
pub fn all(plan: &Plan) -> Result<(), String> {
    never_dropped(plan)?;
    partial_equals_complete(plan)?;
    super_equals_segments(plan)?;
    round_trip(plan)
}

fn run(packet: &[u8], offload: Offload) -> Outcome {
    translate(translator(0), &mut State::new(7), packet, offload)
}

/// A sound packet between mapped hosts is forwarded.
pub fn never_dropped(plan: &Plan) -> Result<(), String> {
    let (packet, offload) = plan.build();
    let outcome = run(&packet, offload);
    match outcome.verdict {
        _ if !plan.is_ordinary() => Ok(()),
        Verdict::Forward => Ok(()),
        verdict => Err(format!("an ordinary packet got {verdict:?}")),
    }
}

/// It is the same whether a checksum is completed before translation or after it.
pub fn partial_equals_complete(plan: &Plan) -> Result<(), String> {
    let (packet, offload) = plan.build();
    if offload.gso.kind != GsoKind::None
        || !matches!(offload.checksum, ChecksumState::Partial { .. })
    {
        return Ok(());
    }
    let later = run(&packet, offload);
    let before = run(&complete(&packet, &offload), Offload::default());
    if later.verdict != before.verdict {
        return Err(format!(
            "{:?} with a partial checksum, else {:?}",
            later.verdict, before.verdict
        ));
    }
    let later: Vec<_> = later.packets.iter().map(|bytes| complete(bytes, &later.offload)).collect();
    if later == before.packets {
        Ok(())
    } else {
        Err(format!("completed later {later:02x?}, before {:02x?}", before.packets))
    }
}

/// It is the same whether a super-packet is segmented before translation or after it.
pub fn super_equals_segments(plan: &Plan) -> Result<(), String> {
    let (packet, offload) = plan.build();
    if offload.gso.kind == GsoKind::None || plan.hop < 2 {
        return Ok(());
    }
    let whole = run(&packet, offload);
    // With DF clear, TCP segments that do not fit get smaller, which is another sequence of packets.
    let resized = whole.offload.gso.size != offload.gso.size;
    let cut = segments(&packet, &offload).ok_or("a plan that can't be segmented")?;
    let mut state = State::new(7);
    let each =
        cut.iter().map(|segment| translate(translator(0), &mut state, segment, Offload::default()));
    let each: Vec<Outcome> = each.collect();
    // Those that exceed even the next hop leave one by one, as they would have come.
    if offload.gso.kind == GsoKind::Udp && whole.offload.gso.kind == GsoKind::None {
        let each: Vec<Vec<u8>> = each.into_iter().flat_map(|outcome| outcome.packets).collect();
        return if whole.packets == each {
            Ok(())
        } else {
            Err(format!("cut: {:02x?}\nsegmented before: {each:02x?}", whole.packets))
        };
    }
    // UDP datagrams with DF clear that exceed lowest_ipv6_mtu are fragmented one by one, whole not.
    if resized || each.iter().any(|outcome| outcome.packets.len() > 1) {
        return payload_survives(&cut, &whole);
    }
    let mut each: Vec<Vec<u8>> = each.into_iter().flat_map(|outcome| outcome.packets).collect();
    let mut whole =
        segments(&whole.packets[0], &whole.offload).ok_or("made what can't be segmented")?;
    // DF goes by the size of the segments; the last one may be shorter, and alone have DF clear.
    for last in [each.last_mut(), whole.last_mut()].into_iter().flatten() {
        clear_dont_fragment(last);
    }
    if whole == each {
        Ok(())
    } else {
        Err(format!("segmented after: {whole:02x?}\nbefore: {each:02x?}"))
    }
}

fn clear_dont_fragment(packet: &mut [u8]) {
    if packet.len() >= 20 && packet[0] == 0x45 {
        packet[6] &= !0x40;
        packet[10..12].fill(0);
        let value = checksum(&packet[..20]);
        packet[10..12].copy_from_slice(&value.to_be_bytes());
    }
}

/// Segments of another size carry the same octets.
fn payload_survives(before: &[Vec<u8>], whole: &Outcome) -> Result<(), String> {
    let after =
        segments(&whole.packets[0], &whole.offload).ok_or("made what can't be segmented")?;
    let payload = |packets: &[Vec<u8>]| -> Option<Vec<u8>> {
        let mut all = Vec::new();
        for packet in packets {
            let view = View::of(packet)?;
            let header = match view.protocol {
                6 => usize::from(view.payload().get(12)? >> 4) * 4,
                _ => 8,
            };
            all.extend(view.payload().get(header..)?);
        }
        Some(all)
    };
    if payload(before) == payload(&after) {
        Ok(())
    } else {
        Err("segments of another size lost octets".into())
    }
}

/// There and back again a packet is the same, but for what has no counterpart.
///
/// Hop limit minus 2; options and extension headers gone; flow label zero; DF by size; identification by
/// the generator, or its low 16 bits in a fragment. Transport header and payload are the same octets.
pub fn round_trip(plan: &Plan) -> Result<(), String> {
    let (packet, offload) = plan.build();
    let computed = matches!(plan.body, Body::Udp { zero: true, .. });
    if offload != Offload::default() || !plan.is_ordinary() || plan.hop < 3 || computed {
        return Ok(());
    }
    let there = run(&packet, offload);
    let mut back = Vec::new();
    for piece in &there.packets {
        let outcome = run(piece, Offload::default());
        if outcome.verdict == Verdict::Drop(DropReason::FragmentedIcmp) {
            // An echo that had to be fragmented: no translator can take its pieces back.
            return Ok(());
        }
        back.extend(outcome.packets);
    }
    let before = View::of(&packet).ok_or("no packet")?;
    let mut payload: Vec<u8> = Vec::new();
    for piece in &back {
        let after = View::of(piece).ok_or("came back unreadable")?;
        let same = after.v4 == before.v4
            && (after.src, after.dst) == (before.src, before.dst)
            && (after.class, after.protocol) == (before.class, before.protocol)
            && after.hop == before.hop - 2;
        let kept = !before.is_fragment() || after.identification == before.identification & 0xffff;
        let place = after.offset == before.offset + payload.len();
        if !(same && kept && place) {
            return Err(format!("came back as {after:?}, was {before:?}"));
        }
        payload.extend(after.payload());
    }
    if payload == before.payload() {
        Ok(())
    } else {
        Err(format!("payload came back as {payload:02x?}, was {:02x?}", before.payload()))
    }
}
