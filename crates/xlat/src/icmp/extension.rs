//! The original datagram field and the extension structure behind it (RFC 4884).
//!
//! An error with extensions says in its header how long its original datagram field is; the field is
//! padded with zeros to at least 128 octets and to a multiple of 4 (ICMPv4) or 8 (ICMPv6).

use core::ops::Range;

use fordway_wire::icmp::{self, IcmpHeader, v4, v6};

use crate::packet::Packet;

use super::inner::Translated;
use super::maps::ErrorHeader;

/// RFC 4884 section 5: least octets of the original datagram field when extensions follow it.
const ORIGINAL_MIN: usize = 128;

/// Where in an ICMP error its parts lie, counted from its ICMP header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// End of the original datagram field.
    original_end: usize,
    /// End of the message; beyond `original_end` when there are extensions.
    end: usize,
}

/// The original datagram field of the new message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    /// Octets, padding included.
    pub(super) original: usize,
}

/// What the new message has to be.
#[derive(Clone, Copy, Debug)]
pub(super) enum Family {
    /// ICMPv4.
    V4,
    /// ICMPv6, with so many octets for original datagram and extensions.
    V6 { room: usize, new: ErrorHeader },
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

    /// Octets of the extension structure.
    pub(super) fn extension_len(&self) -> usize {
        self.end - self.original_end
    }
}

/// Makes original datagram and extensions fit the new message, whose inner header `inner` replaces
/// the one that is still in the packet. Returns the new original datagram field if extensions remain.
pub(super) fn refit(
    packet: &mut Packet<'_>,
    at: usize,
    layout: Layout,
    inner: &Translated,
    family: Family,
) -> Option<Field> {
    let payload_at = at + icmp::HEADER_LEN + inner.old_len;
    let payload_len = (at + layout.original_end).saturating_sub(payload_at);
    let plain = inner.header_len + payload_len;
    let extension_len = layout.extension_len();
    let (unit, room, extensible) = match family {
        Family::V4 => (4, usize::MAX, true),
        Family::V6 { room, new } => {
            (8, room, matches!(new.kind, v6::UNREACHABLE | v6::TIME_EXCEEDED))
        }
    };
    let fitting = room.saturating_sub(extension_len) / unit * unit;
    let original = plain.max(ORIGINAL_MIN).next_multiple_of(unit).min(fitting);
    // The length field has 8 bits.
    let representable = original / unit <= 255;
    if extension_len == 0 || !extensible || original < ORIGINAL_MIN || !representable {
        packet.truncate(payload_at + payload_len.min(room.saturating_sub(inner.header_len)));
        return None;
    }
    move_extension(packet, at, layout, payload_at + original - inner.header_len)
        .then_some(Field { original })
}

/// Moves the extension structure to octet `to` of the packet; a gap is filled with zeros. Without
/// room behind the packet the extensions are cut off and `false` is returned.
fn move_extension(packet: &mut Packet<'_>, at: usize, layout: Layout, to: usize) -> bool {
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
