//! What the fuzz targets do with their octets.
//!
//! The targets in `fuzz/` and the replay of their corpora in this crate's tests run the same functions.
//! Each panics when the core breaks what [`oracle`](crate::oracle) demands.

mod configs;
mod dns64;
mod dns_gateway;
mod dstm;
mod ftp;
mod router;
mod softwire;
mod stateful;
mod structured;

pub use configs::{CONFIGS, translator};
pub use dns_gateway::dns_gateway;
pub use dns64::dns64;
pub use dstm::dstm;
pub use ftp::ftp;
pub use router::router;
pub use softwire::softwire;
pub use stateful::stateful;
pub use structured::{Body, ErrorPlan, Offloading, Plan, structured};

use fordway_xlat::{ChecksumState, Gso, GsoKind, Offload, State, Translator};

use crate::checksum::{Endpoints, add, checksum, sum};
use crate::oracle::{check, translate};

/// Octets in front of the packet that choose configuration and offload state.
pub const CONTROL: usize = 8;

/// The control octets that mean: this configuration, no offload.
pub fn control(config: u8) -> [u8; CONTROL] {
    [config, 0, 0, 0, 0, 0, 0, 0]
}

/// The control octets for this configuration and offload state.
pub fn control_for(config: u8, offload: &Offload) -> [u8; CONTROL] {
    let (state, start, offset) = match offload.checksum {
        ChecksumState::Complete => (0, 0, 0),
        ChecksumState::Verified => (1, 0, 0),
        ChecksumState::Partial { start, offset } => (2, start, offset),
    };
    let kind = match offload.gso.kind {
        GsoKind::None => 0,
        GsoKind::TcpV4 => 1,
        GsoKind::TcpV6 => 2,
        GsoKind::Udp => 3,
    };
    let [start_high, start_low] = start.to_be_bytes();
    let [size_high, size_low] = offload.gso.size.to_be_bytes();
    let flags = state | kind << 2 | u8::from(offload.gso.ecn) << 4;
    [
        config,
        flags,
        start_high,
        start_low,
        offset as u8,
        size_high,
        size_low,
        offload.gso.header_len as u8,
    ]
}

fn offload(control: &[u8]) -> Offload {
    let word = |at: usize| u16::from_be_bytes([control[at], control[at + 1]]);
    let checksum = match control[1] & 3 {
        0 => ChecksumState::Complete,
        1 => ChecksumState::Verified,
        _ => ChecksumState::Partial { start: word(2), offset: u16::from(control[4]) },
    };
    let kind = match control[1] >> 2 & 3 {
        0 => GsoKind::None,
        1 => GsoKind::TcpV4,
        2 => GsoKind::TcpV6,
        _ => GsoKind::Udp,
    };
    let gso = match kind {
        GsoKind::None => Gso::default(),
        kind => Gso {
            kind,
            ecn: control[1] & 16 != 0,
            size: word(5),
            header_len: u16::from(control[7]),
        },
    };
    Offload { checksum, gso }
}

/// Any octets as an IPv4 packet: [`CONTROL`] octets, then the packet, whose version is forced to 4 and
/// whose header checksum is made right unless the top bit of the second control octet is set.
pub fn core_v4(data: &[u8]) {
    let Some((control, packet)) = data.split_at_checked(CONTROL) else {
        return;
    };
    let mut packet = packet.to_vec();
    if let Some(first) = packet.first_mut() {
        *first = 0x40 | *first & 15;
        let header = usize::from(*first & 15) * 4;
        if control[1] & 0x80 == 0 && header >= 20 && packet.len() >= header {
            packet[10..12].fill(0);
            let value = checksum(&packet[..header]);
            packet[10..12].copy_from_slice(&value.to_be_bytes());
        }
    }
    try_packet(translator(control[0]), &packet, offload(control));
}

/// Any octets as an IPv6 packet: [`CONTROL`] octets, then the packet, whose version is forced to 6.
pub fn core_v6(data: &[u8]) {
    let Some((control, packet)) = data.split_at_checked(CONTROL) else {
        return;
    };
    let mut packet = packet.to_vec();
    if let Some(first) = packet.first_mut() {
        *first = 0x60 | *first & 15;
    }
    try_packet(translator(control[0]), &packet, offload(control));
}

/// An ICMP error around any octets: one octet for the configuration, one whose lowest bit chooses IPv4
/// (0) or IPv6 (1), then the ICMP message, whose checksum is made right.
pub fn icmp_error(data: &[u8]) {
    let [config, family, message @ ..] = data else {
        return;
    };
    if message.len() < 8 || message.len() > 60_000 {
        return;
    }
    let mut message = message.to_vec();
    message[2..4].fill(0);
    let len = message.len() as u16;
    let mut packet;
    if family & 1 == 0 {
        let value = checksum(&message);
        message[2..4].copy_from_slice(&value.to_be_bytes());
        let [high, low] = (len + 20).to_be_bytes();
        packet = vec![0x45, 0, high, low, 0, 1, 0, 0, 64, 1, 0, 0, 203, 0, 113, 9, 198, 51, 100, 2];
        let value = checksum(&packet);
        packet[10..12].copy_from_slice(&value.to_be_bytes());
    } else {
        let (src, dst) = configs::ICMP_ENDS;
        let pseudo = Endpoints::V6(src, dst).pseudo_header(58, message.len());
        let value = !add(pseudo, sum(&message));
        message[2..4].copy_from_slice(&value.to_be_bytes());
        let [high, low] = len.to_be_bytes();
        packet = vec![0x60, 0, 0, 0, high, low, 58, 64];
        packet.extend(src.octets());
        packet.extend(dst.octets());
    }
    packet.extend(message);
    try_packet(translator(*config), &packet, Offload::default());
}

/// Translates, and panics when the outcome breaks the rules; what was forwarded must not make the way
/// back panic either.
pub(crate) fn try_packet(translator: &Translator, packet: &[u8], offload: Offload) {
    let mut state = State::new(7);
    let outcome = translate(translator, &mut state, packet, offload);
    if let Err(wrong) = check(translator.config(), packet, offload, &outcome) {
        panic!("{wrong}: {outcome:?} of {packet:02x?} with {offload:?}");
    }
    for packet in &outcome.packets {
        let back = translate(translator, &mut state, packet, outcome.offload);
        if let Err(wrong) = check(translator.config(), packet, outcome.offload, &back) {
            panic!(
                "on the way back: {wrong}: {back:?} of {packet:02x?} with {:?}",
                outcome.offload
            );
        }
    }
}
