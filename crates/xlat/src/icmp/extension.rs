//! The original datagram field and the extension structure behind it (RFC 4884).
//!
//! An error with extensions says in its header how long its original datagram field is; the field is
//! padded with zeros to at least 128 octets and to a multiple of 4 (ICMPv4) or 8 (ICMPv6).

use core::ops::Range;

use fordway_wire::icmp::{self, IcmpHeader, v4, v6};
use fordway_wire::{ipv4, ipv6};

use crate::packet::Packet;

use super::inner::Translated;
use super::{ERROR_MAX_V4, ERROR_MAX_V6};

/// RFC 4884 section 4: least octets of the original datagram field when extensions follow it.
pub(super) const ORIGINAL_MIN: usize = 128;

/// Octets for original datagram and extensions in an ICMPv4 error that has extensions: with them it must
/// fit the smallest reassembly buffer (RFC 4884 section 7). One without is not cut.
pub(super) const EXTENDED_V4: usize = ERROR_MAX_V4 - ipv4::HEADER_LEN - icmp::HEADER_LEN;

/// Octets behind the header of an ICMPv6 error.
const ROOM_V6: usize = ERROR_MAX_V6 - ipv6::HEADER_LEN - icmp::HEADER_LEN;

/// Where in an ICMP error its parts lie, counted from its ICMP header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// End of the original datagram field.
    original_end: usize,
    /// End of the message; beyond `original_end` when there are extensions.
    end: usize,
}

/// What the new message is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Message {
    /// ICMPv4; every error that is made can have extensions.
    V4,
    /// ICMPv6, of this type.
    V6(u8),
}

impl Message {
    /// RFC 4884 section 4: the length of the original datagram field, as it stands in the rest of the header: in 32-bit
    /// words in the second octet, or in 64-bit words in the first.
    pub(super) fn length(self, original: usize) -> u32 {
        match self {
            Message::V4 => ((original / 4) as u32) << 16,
            Message::V6(_) => ((original / 8) as u32) << 24,
        }
    }
}

impl Layout {
    /// RFC 4884 section 4: types 3, 11 and 12 give the length in 32-bit words in octet 5.
    pub(super) fn of_v4(header: &IcmpHeader, message: &[u8]) -> Layout {
        let extensible =
            matches!(header.kind, v4::UNREACHABLE | v4::TIME_EXCEEDED | v4::PARAMETER_PROBLEM);
        let words = (header.rest >> 16) as usize & 0xff;
        Layout::new(if extensible { words * 4 } else { 0 }, message)
    }

    /// RFC 4884 section 4: types 1 and 3 give the length in 64-bit words in octet 4.
    pub(super) fn of_v6(header: &IcmpHeader, message: &[u8]) -> Layout {
        let extensible = matches!(header.kind, v6::UNREACHABLE | v6::TIME_EXCEEDED);
        let words = (header.rest >> 24) as usize;
        Layout::new(if extensible { words * 8 } else { 0 }, message)
    }

    /// A length of zero, or one that leaves no room for an extension header, means no extensions.
    fn new(original: usize, message: &[u8]) -> Layout {
        let end = message.len();
        let original_end = icmp::HEADER_LEN + original;
        let extended = original != 0 && original_end + 4 <= end;
        Layout { original_end: if extended { original_end } else { end }, end }
    }

    /// The original datagram field of a message at `at`.
    pub(super) fn original_range(&self, at: usize) -> Range<usize> {
        at + icmp::HEADER_LEN..at + self.original_end
    }

    /// Octets of the original datagram field.
    pub(super) fn original_len(&self) -> usize {
        self.original_end - icmp::HEADER_LEN
    }

    /// Octets of the extension structure.
    pub(super) fn extension_len(&self) -> usize {
        self.end - self.original_end
    }
}

/// Makes original datagram and extensions fit the new message, whose inner header `inner` replaces the one that is still in
/// the packet. Returns the octets of the new original datagram field, padding included, if extensions remain.
pub(super) fn refit(
    packet: &mut Packet<'_>,
    at: usize,
    layout: Layout,
    inner: &Translated,
    message: Message,
) -> Option<usize> {
    let payload_at = at + icmp::HEADER_LEN + inner.old_len;
    let payload_len = (at + layout.original_end).saturating_sub(payload_at);
    let plain = inner.header_len + payload_len;
    let (unit, extended, room) = match message {
        Message::V4 => (4, Some(EXTENDED_V4), usize::MAX),
        Message::V6(v6::UNREACHABLE | v6::TIME_EXCEEDED) => (8, Some(ROOM_V6), ROOM_V6),
        // RFC 4884 section 4.6: others must not have any.
        Message::V6(_) => (8, None, ROOM_V6),
    };
    let extension_len = layout.extension_len();
    let original = extended.filter(|_| extension_len > 0).map(|extended| {
        let fitting = extended.saturating_sub(extension_len) / unit * unit;
        plain.max(ORIGINAL_MIN).next_multiple_of(unit).min(fitting)
    });
    let Some(original) = original.filter(|&original| original >= ORIGINAL_MIN) else {
        packet.truncate(payload_at + payload_len.min(room.saturating_sub(inner.header_len)));
        return None;
    };
    move_extension(packet, at, layout, payload_at + original - inner.header_len).then_some(original)
}

/// Moves the extension structure to octet `to` of the packet; a gap is filled with zeros. Without
/// room behind the packet the extensions are cut off and `false` is returned.
pub(super) fn move_extension(
    packet: &mut Packet<'_>,
    at: usize,
    layout: Layout,
    to: usize,
) -> bool {
    let from = at + layout.original_end;
    let len = layout.extension_len();
    if !packet.pad_to((to + len).max(from + len)) {
        packet.truncate(from);
        return false;
    }
    let bytes = packet.bytes_mut();
    bytes.copy_within(from..from + len, to);
    if to > from {
        bytes[from..to].fill(0);
    }
    packet.truncate(to + len);
    true
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use core::time::Duration;

    use fordway_wire::checksum::pseudo_v6;
    use fordway_wire::ipv4::{self, Ipv4Header};
    use fordway_wire::ipv6::{self, Ipv6Header};
    use fordway_wire::{protocol, put_u8, put_u16};

    use crate::{Config, HEADROOM, Offload, Packet, State, Translator, Verdict};

    /// The longest ICMPv6 error there can be, nearly all of it extension: padding its original datagram
    /// must not make an IPv4 packet that is longer than Total Length can say.
    #[test]
    fn an_extension_too_long_for_ipv4_is_left_out() {
        let config = Config { pool6: vec!["2001:db8::/96".parse().unwrap()], ..Config::default() };
        let translator = Translator::new(config).unwrap();
        let header = |src: &str, dst: &str, next_header, payload_len| Ipv6Header {
            traffic_class: 0,
            flow_label: 0,
            payload_len,
            next_header,
            hop_limit: 64,
            src: src.parse().unwrap(),
            dst: dst.parse().unwrap(),
        };
        let (host, server) = ("2001:db8::198.51.100.1", "2001:db8::192.0.2.1");
        let outer = header(host, server, protocol::ICMPV6, u16::MAX);
        let inner = header(server, host, protocol::UDP, 8);
        let message = ipv6::HEADER_LEN + usize::from(u16::MAX);
        let range = HEADROOM..HEADROOM + message;
        let mut buffer = vec![0u8; range.end + 256];
        let octets = &mut buffer[range.clone()];
        octets[..40].copy_from_slice(&outer.to_bytes());
        octets[48..88].copy_from_slice(&inner.to_bytes());
        put_u8(octets, 40, 1);
        // 6 words of 8 octets: the inner header and 8 octets of UDP.
        put_u8(octets, 44, 6);
        let pseudo = pseudo_v6(outer.src, outer.dst, protocol::ICMPV6, u32::from(u16::MAX));
        let checksum = pseudo.add_bytes(&octets[40..]).finish();
        put_u16(octets, 42, checksum);

        let mut packet = Packet::new(&mut buffer, range, Offload::default());
        let (now, state) = (Duration::ZERO, &mut State::new(1));
        let verdict = translator.translate(&mut packet, now, state, &mut ());
        assert_eq!(verdict, Verdict::Forward);
        let translated = Ipv4Header::parse(packet.bytes()).unwrap();
        assert_eq!(usize::from(translated.total_len), packet.len());
        // IPv4, ICMP, the inner IPv4 header, 8 octets of UDP; the length attribute says: no extension.
        assert_eq!(packet.len(), ipv4::HEADER_LEN + 8 + ipv4::HEADER_LEN + 8);
        assert_eq!(packet.bytes()[24..28], [0; 4]);
    }
}
