//! A translated packet of a watched connection: its octets and numbers as they are on the other side.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use fordway_wire::checksum::{Sum, pseudo_v4, pseudo_v6};
use fordway_wire::ipv4::{self, Ipv4Header};
use fordway_wire::ipv6::{self, Ipv6Header};
use fordway_wire::tcp::{self, flag};
use fordway_wire::{protocol, put_u16, set_ip_len};

use crate::config::Config;
use crate::nat64::{Nat64, Side};
use crate::packet::{ChecksumState, Gso, GsoKind, Packet};
use crate::trace::{Step, Trace};

use super::connection::{Connection, Passed};
use super::counters::Event;
use super::fields::TcpFields;
use super::store::Entry;
use super::{Context, Ends, Mappings};

/// A packet of a connection that an ALG may watch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watched {
    /// Index of the ALG; `None`: the settings no longer have it.
    pub(crate) alg: Option<usize>,
    /// The session's ends.
    pub(crate) ends: Ends,
    /// Where the packet comes from.
    pub(crate) from: Side,
    /// The session has not been established yet.
    pub(crate) opening: bool,
}

/// Where the TCP header of a translated packet lies, and the sum of the pseudo-header without its length.
struct Place {
    at: usize,
    pseudo: Sum,
}

fn place(packet: &[u8]) -> Option<Place> {
    if let Ok(header) = Ipv4Header::parse(packet) {
        let pseudo = pseudo_v4(header.src, header.dst, protocol::TCP, 0);
        return Some(Place { at: header.header_len, pseudo });
    }
    let header = Ipv6Header::parse(packet).ok()?;
    let extensions = ipv6::walk(packet, header.next_header).ok()?;
    let pseudo = pseudo_v6(header.src, header.dst, protocol::TCP, 0);
    Some(Place { at: extensions.header_len, pseudo })
}

/// Passes a translated packet through the ALG that watches its connection.
#[allow(clippy::too_many_arguments, reason = "what a packet meets on its way, once")]
pub(crate) fn apply(
    config: &Config,
    nat: &Nat64,
    watched: &Watched,
    packet: &mut Packet<'_>,
    mappings: &mut dyn Mappings,
    now: Duration,
    out: &mut Vec<u8>,
    trace: &mut impl Trace,
) {
    let Some(place) = place(packet.bytes()) else { return };
    let segment = &packet.bytes()[place.at..];
    let Some((before, header_len)) = TcpFields::parse(segment) else { return };
    let sum = place.pseudo.add_u32(segment.len() as u32);
    if packet.offload.checksum == ChecksumState::Complete && sum.add_bytes(segment).finish() != 0 {
        // The receiver will discard it, so the connection's state must not follow it.
        return;
    }
    begin(nat, watched, &before);
    let Watched { ends, from, .. } = *watched;
    let (mut fields, mut mss) = (before, 0);
    let key = (ends.local, ends.remote);
    let passed = nat.alg_store().with(&key, |entry, may_keep| {
        let payload = &segment[header_len..];
        let connection = &mut entry.connection;
        if watched.alg.is_none() {
            // The configuration no longer has the ALG.
            connection.release();
        }
        let shift = connection.shift();
        let mut context = Context::new(ends, now, &entry.counters, mappings);
        let passed = connection.pass(from, &mut fields, payload, may_keep, out, &mut context);
        mss = usize::from(connection.mss_towards(from));
        if connection.shift() != shift {
            nat.keep_shift(key, connection.shift());
        }
        (passed, entry.label)
    });
    let Some((passed, alg)) = passed else { return };
    let payload = place.at + header_len;
    let octets = packet.len() - payload;
    let same = passed == Passed::Same || packet.bytes()[payload..] == out[..];
    if same && fields == before {
        return;
    }
    if !same {
        let options = header_len - tcp::HEADER_LEN;
        replace_payload(config, packet, payload, out, &mut fields, mss.saturating_sub(options));
    }
    let octets = (octets, packet.len() - payload);
    trace.step(Step::Alg { alg, octets, seq: (before.seq, fields.seq) });
    fields.write(&mut packet.bytes_mut()[place.at..]);
    finish(packet, &place);
}

/// Starts to watch a connection at its first segment.
fn begin(nat: &Nat64, watched: &Watched, fields: &TcpFields) {
    let Watched { ends, from, opening, .. } = *watched;
    let Some((alg, counters)) = watched.alg.and_then(|number| nat.algs().nth(number)) else {
        return;
    };
    let (key, store) = ((ends.local, ends.remote), nat.alg_store());
    let entry = |connection| {
        // A host mostly has all addresses of its 64-bit prefix.
        let len = u32::from(nat.settings().subscriber_len.clamp(1, 64));
        let network = (ends.host.0.to_bits() >> (128 - len)) as u64;
        Entry { connection, label: alg.label(), counters: Arc::clone(counters), network }
    };
    let known = store.with(&key, |entry, _| {
        let connection = &entry.connection;
        (connection.is_begun_by(from, fields), connection.is_over())
    });
    // A SYN may be forged; the session's state says whether it opens a connection.
    let may_begin = opening || known.is_some_and(|(_, is_over)| is_over);
    let is_first = fields.has(flag::SYN) && !fields.has(flag::ACK) && may_begin;
    if is_first && known.is_none_or(|(is_own, _)| !is_own) {
        let connection = Connection::new(alg.open(&ends));
        let entry = entry(connection);
        let event = if store.put(key, entry) { Event::Session } else { Event::Refused };
        counters.count(event);
    } else if known.is_none() && !fields.has(flag::SYN) {
        let Some(shift) = nat.kept_shift(key).filter(|shift| *shift != [0, 0]) else {
            counters.count(Event::Unknown);
            return;
        };
        let connection = Connection::resumed(alg.open(&ends), shift);
        let entry = entry(connection);
        let event = if store.put(key, entry) { Event::Resumed } else { Event::Refused };
        counters.count(event);
    }
}

/// Replaces a segment's octets. Those without room are left out, and the sender retransmits them. If they exceed the
/// MSS, the packet becomes a super-packet.
fn replace_payload(
    config: &Config,
    packet: &mut Packet<'_>,
    at: usize,
    out: &[u8],
    fields: &mut TcpFields,
    mss: usize,
) {
    let before = packet.len() - at;
    let most = ipv4::MAX_LEN.min(packet.room()).saturating_sub(at);
    let len = out.len().min(most);
    if len < out.len() {
        fields.flags &= !flag::FIN;
    }
    packet.truncate(at + len);
    if !packet.pad_to(at + len) {
        return;
    }
    packet.bytes_mut()[at..].copy_from_slice(&out[..len]);
    let is_v4 = packet.bytes()[0] >> 4 == 4;
    let mtu = if is_v4 { config.mtu4 } else { config.mtu6 } as usize;
    let gso = &mut packet.offload.gso;
    let size = match gso.kind {
        GsoKind::None => mss.min(mtu.saturating_sub(at)).max(1),
        _ => usize::from(gso.size),
    };
    if len <= size.max(if gso.kind == GsoKind::None { before } else { 0 }) {
        *gso = Gso::default();
    } else if packet.plan.is_none() {
        let kind = if is_v4 { GsoKind::TcpV4 } else { GsoKind::TcpV6 };
        let ecn = gso.ecn || fields.has(flag::CWR);
        *gso = Gso { kind, ecn, size: size as u16, header_len: at as u16 };
        // The device would send the pointer with each segment.
        fields.flags &= !flag::URG;
        fields.urgent = 0;
    }
}

/// Writes lengths and checksums.
fn finish(packet: &mut Packet<'_>, place: &Place) {
    let was_partial = matches!(packet.offload.checksum, ChecksumState::Partial { .. });
    let bytes = packet.bytes_mut();
    set_ip_len(bytes, place.at);
    let pseudo = place.pseudo.add_u32((bytes.len() - place.at) as u32).fold();
    put_u16(bytes, place.at + tcp::CHECKSUM_AT, pseudo);
    let (start, offset) = (place.at as u16, tcp::CHECKSUM_AT as u16);
    packet.offload.checksum = ChecksumState::Partial { start, offset };
    if packet.offload.gso.kind == GsoKind::None && !was_partial {
        packet.complete_checksum();
    }
}
