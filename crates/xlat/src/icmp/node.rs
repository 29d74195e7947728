//! The IPv6 source of a translated ICMP error, for which there is no IPv4 address: a Node Identification Object
//! (draft-ietf-intarea-extended-icmp-nodeid section 3), as draft-ietf-v6ops-icmpext-xlat-v6only-source section 4 would
//! have it.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-------+-----------------------+-------------------------------+
//! | Ver 2 |       reserved        |           checksum            |  extension header (RFC 4884 section 7)
//! +-------+-----------------------+---------------+---------------+
//! |          length 24            |  Class-Num 5  |   C-Type 4    |  object: with an IP Address Sub-Object alone
//! +-------------------------------+---------------+---------------+
//! |            AFI 2              |           reserved            |
//! +-------------------------------+-------------------------------+
//! |                    IPv6 address, 16 octets                    |
//! +---------------------------------------------------------------+
//! ```

use core::net::Ipv6Addr;

use fordway_wire::checksum::{Sum, update};
use fordway_wire::icmp::{self, IcmpHeader, v4};
use fordway_wire::{get_u16, put_u8, put_u16};

use crate::packet::Packet;
use crate::trace::{Step, Trace};

use super::extension::{EXTENDED_V4, Layout, ORIGINAL_MIN, move_extension};

/// Octets of an extension header.
const HEADER_LEN: usize = 4;

/// Octets of the object.
const OBJECT_LEN: usize = 24;

const VERSION: u16 = 2 << 12;
const CLASS: u8 = 5;
/// Bit 5 of 8: IP Address Sub-Object.
const ADDRESS_ONLY: u8 = 4;
const AFI_IPV6: u8 = 2;

/// Where the length of the original datagram field stands, in 32-bit words (RFC 4884 section 4).
const LENGTH_AT: usize = 5;

fn object(source: Ipv6Addr) -> [u8; OBJECT_LEN] {
    let mut object = [0; OBJECT_LEN];
    object[1] = OBJECT_LEN as u8;
    (object[2], object[3]) = (CLASS, ADDRESS_ONLY);
    object[5] = AFI_IPV6;
    object[8..].copy_from_slice(&source.octets());
    object
}

/// Adds the object to the ICMPv4 error that the packet is, without its IP header; its checksum is still to be computed.
/// With extensions an error has at most 576 octets, so the original datagram may get shorter. An error that can't have
/// the object, or has no room for it, stays as it is.
pub(crate) fn add_node(packet: &mut Packet<'_>, source: Ipv6Addr, trace: &mut impl Trace) {
    let Some(header) = IcmpHeader::parse(packet.bytes()) else { return };
    if !matches!(header.kind, v4::UNREACHABLE | v4::TIME_EXCEEDED) {
        return;
    }
    let layout = Layout::of_v4(&header, packet.bytes());
    let before = layout.extension_len();
    let extension = before.max(HEADER_LEN) + OBJECT_LEN;
    let Some(room) = EXTENDED_V4.checked_sub(extension) else { return };
    let original = layout.original_len().max(ORIGINAL_MIN).next_multiple_of(4).min(room / 4 * 4);
    let (at, end) = (icmp::HEADER_LEN + original, icmp::HEADER_LEN + original + extension);
    let longest = end.max(packet.len());
    if original < ORIGINAL_MIN || !has_room(packet, longest) {
        return;
    }
    if before == 0 {
        packet.truncate(at);
        packet.pad_to(at + HEADER_LEN);
        put_u16(packet.bytes_mut(), at, VERSION);
        put_u16(packet.bytes_mut(), at + 2, Sum::ZERO.add_u16(VERSION).finish());
    } else if !move_extension(packet, 0, layout, at) {
        return;
    }
    packet.pad_to(end);
    let message = packet.bytes_mut();
    let object = object(source);
    message[end - OBJECT_LEN..end].copy_from_slice(&object);
    let checksum = get_u16(message, at + 2);
    // Zero says that there is none; a wrong one stays wrong.
    if checksum != 0 {
        let sum = Sum::ZERO.add_bytes(&object);
        put_u16(message, at + 2, update(checksum, Sum::ZERO, sum));
    }
    put_u8(message, LENGTH_AT, (original / 4) as u8);
    trace.step(Step::Extension { original, extension });
}

/// Whether the packet could be so long. It stays as long as it is.
fn has_room(packet: &mut Packet<'_>, len: usize) -> bool {
    let before = packet.len();
    let has_room = packet.pad_to(len);
    packet.truncate(before);
    has_room
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;
    use crate::{HEADROOM, Offload};

    const SOURCE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 9);

    /// An ICMPv4 error with so many octets of original datagram and this extension structure, after the object was to
    /// be added, with so many octets of room behind it.
    fn with_node(kind: u8, original: usize, extension: &[u8], room: usize) -> Vec<u8> {
        let mut message = vec![kind, 0, 0, 0, 0, 0, 0, 0];
        if !extension.is_empty() {
            message[LENGTH_AT] = (original / 4) as u8;
        }
        message.extend((0..original).map(|octet| octet as u8));
        message.extend(extension);
        let range = HEADROOM..HEADROOM + message.len();
        let mut buffer = vec![0xa5; range.end + room];
        buffer[range.clone()].copy_from_slice(&message);
        let mut packet = Packet::new(&mut buffer, range, Offload::default());
        add_node(&mut packet, SOURCE, &mut ());
        packet.bytes().to_vec()
    }

    /// An extension structure with an MPLS label.
    fn label() -> Vec<u8> {
        let mut extension = vec![0x20, 0, 0, 0, 0, 8, 1, 1, 0, 6, 0x51, 0x40];
        let checksum = Sum::ZERO.add_bytes(&extension).finish();
        put_u16(&mut extension, 2, checksum);
        extension
    }

    fn is_right(extension: &[u8]) -> bool {
        Sum::ZERO.add_bytes(extension).fold() == 0xffff
    }

    #[test]
    fn an_error_without_extensions_gets_a_structure() {
        for (original, field) in [(28, 128), (128, 128), (130, 132), (520, 520), (1200, 520)] {
            let message = with_node(v4::TIME_EXCEEDED, original, &[], 256);
            assert_eq!(message.len(), 8 + field + 28, "{original}");
            assert_eq!(usize::from(message[LENGTH_AT]) * 4, field);
            let extension = &message[8 + field..];
            assert_eq!(extension[..2], [0x20, 0]);
            assert_eq!(extension[4..], object(SOURCE));
            assert!(is_right(extension));
            let kept = original.min(field);
            assert!(message[8..8 + kept].iter().zip(0..).all(|(it, at)| *it == at as u8));
            assert!(message[8 + kept..8 + field].iter().all(|octet| *octet == 0), "padding");
        }
    }

    #[test]
    fn an_error_with_extensions_gets_one_object_more() {
        for (original, field) in [(128, 128), (160, 160), (536, 512)] {
            let message = with_node(v4::UNREACHABLE, original, &label(), 256);
            assert_eq!(usize::from(message[LENGTH_AT]) * 4, field);
            let extension = &message[8 + field..];
            assert_eq!(extension[4..12], label()[4..]);
            assert_eq!(extension[12..], object(SOURCE));
            assert!(is_right(extension));
        }
    }

    #[test]
    fn a_checksum_of_extensions_stays_wrong_or_absent() {
        let mut wrong = label();
        wrong[3] ^= 1;
        let message = with_node(v4::UNREACHABLE, 128, &wrong, 256);
        assert!(!is_right(&message[8 + 128..]) && message.len() == 8 + 128 + 36);
        let mut absent = label();
        put_u16(&mut absent, 2, 0);
        let message = with_node(v4::UNREACHABLE, 128, &absent, 256);
        assert_eq!(message[8 + 128 + 2..][..2], [0, 0]);
    }

    #[test]
    fn what_has_no_room_or_may_have_no_object_stays() {
        for (kind, original, extension, room) in [
            (v4::PARAMETER_PROBLEM, 28, Vec::new(), 256),
            (v4::UNREACHABLE, 28, Vec::new(), 127),
            (v4::UNREACHABLE, 128, label(), 23),
            // An extension that leaves no room for 128 octets of the original datagram within 576.
            (v4::UNREACHABLE, 128, vec![0; 400], 256),
        ] {
            let message = with_node(kind, original, &extension, room);
            assert_eq!(message.len(), 8 + original + extension.len());
        }
        assert_eq!(with_node(v4::UNREACHABLE, 28, &[], 128).len(), 8 + 128 + 28);
    }
}
