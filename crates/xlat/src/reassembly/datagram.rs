//! A packet whose fragments are being collected.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

use fordway_wire::ipv4;
use fordway_wire::ipv6::{self, FragmentHeader};
use fordway_wire::{get_u8, put_u8, put_u16};

use crate::packet::HEADROOM;
use crate::verdict::DropReason;

use super::piece::Piece;

/// ECN codepoints (RFC 3168 section 5).
const NOT_ECT: u8 = 0;
const CE: u8 = 3;

/// The fragments of a packet that have come.
#[derive(Debug, Default)]
pub(super) struct Datagram {
    /// In order of their offsets; none overlaps another.
    pieces: Vec<Stored>,
    /// What the first fragment has beside its data.
    first: Option<First>,
    /// Where the data ends, once the last fragment is there.
    end: Option<usize>,
    /// Octets of data that have come.
    received: usize,
    /// The ECN codepoints seen, a bit each.
    ecn: u8,
}

#[derive(Debug)]
struct Stored {
    offset: usize,
    data: Box<[u8]>,
}

#[derive(Debug)]
struct First {
    front: Box<[u8]>,
    protocol: u8,
    ecn: u8,
}

/// How a fragment fits those that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placed {
    /// It belongs between the others, at this index.
    At(usize),
    /// It is there.
    Duplicate,
    /// It overlaps another, or says something else of the packet's end.
    Contradiction,
}

impl Datagram {
    /// How many fragments there are.
    pub(super) fn fragments(&self) -> usize {
        self.pieces.len()
    }

    /// The place of a fragment among the others.
    pub(super) fn place(&self, piece: &Piece<'_>) -> Placed {
        let at = self.pieces.partition_point(|stored| stored.offset < piece.offset);
        if let Some(same) = self.pieces.get(at).filter(|stored| stored.offset == piece.offset) {
            let is_last = self.end == Some(piece.end());
            let equal = *same.data == *piece.data && is_last != piece.more;
            return if equal { Placed::Duplicate } else { Placed::Contradiction };
        }
        let before = at.checked_sub(1).and_then(|at| self.pieces.get(at));
        let overlaps = before.is_some_and(|stored| stored.end() > piece.offset)
            || self.pieces.get(at).is_some_and(|stored| stored.offset < piece.end());
        // The last fragment ends the packet: nothing lies behind it.
        let beyond = self.end.is_some_and(|end| piece.end() > end);
        let not_last = !piece.more && at < self.pieces.len();
        if overlaps || beyond || not_last { Placed::Contradiction } else { Placed::At(at) }
    }

    /// Adds a fragment in the place that [`Datagram::place`] gave.
    pub(super) fn add(&mut self, piece: &Piece<'_>, place: usize) {
        let stored = Stored { offset: piece.offset, data: piece.data.into() };
        self.pieces.insert(place.min(self.pieces.len()), stored);
        self.received += piece.data.len();
        self.ecn |= 1 << piece.ecn;
        if piece.offset == 0 {
            let Piece { protocol, ecn, .. } = *piece;
            self.first = Some(First { front: piece.front.into(), protocol, ecn });
        }
        if !piece.more {
            self.end = Some(piece.end());
        }
    }

    /// Whether no fragment is missing.
    pub(super) fn is_whole(&self) -> bool {
        // They don't overlap and none ends beyond the end, so their sum can't hide a gap.
        self.end == Some(self.received)
    }

    /// Writes the packet into `buffer`, behind headroom.
    pub(super) fn write(
        &self,
        identification: u32,
        buffer: &mut [u8],
    ) -> Result<Range<usize>, DropReason> {
        let first = self.first.as_ref().ok_or(DropReason::BadFragment)?;
        let ecn = self.ecn(first).ok_or(DropReason::FragmentOverlap)?;
        let fragment =
            FragmentHeader { next_header: first.protocol, offset: 0, more: false, identification }
                .to_bytes();
        let is_v4 = get_u8(&first.front, 0) >> 4 == 4;
        let between: &[u8] = if is_v4 { &[] } else { &fragment };
        let len = first.front.len() + between.len() + self.received;
        // The first fragment's header may be longer than those of the others.
        if len - if is_v4 { 0 } else { ipv6::HEADER_LEN } > ipv4::MAX_LEN {
            return Err(DropReason::BadFragment);
        }
        let range = HEADROOM..HEADROOM + len;
        let packet = buffer.get_mut(range.clone()).ok_or(DropReason::NoHeadroom)?;
        let (front, rest) = packet.split_at_mut(first.front.len());
        let (middle, data) = rest.split_at_mut(between.len());
        front.copy_from_slice(&first.front);
        middle.copy_from_slice(between);
        for piece in &self.pieces {
            data[piece.offset..piece.end()].copy_from_slice(&piece.data);
        }
        if is_v4 {
            set_v4(front, len, ecn);
        } else {
            set_v6(front, len, ecn);
        }
        Ok(range)
    }

    /// RFC 3168 section 5.3: the packet is CE if one fragment is, and invalid if another is Not-ECT.
    fn ecn(&self, first: &First) -> Option<u8> {
        let saw = |codepoint: u8| self.ecn & 1 << codepoint != 0;
        match (saw(CE), saw(NOT_ECT)) {
            (true, true) => None,
            (true, false) => Some(CE),
            (false, _) => Some(first.ecn),
        }
    }
}

impl Stored {
    fn end(&self) -> usize {
        self.offset + self.data.len()
    }
}

/// Total Length, ECN, neither DF nor MF, offset 0, checksum.
fn set_v4(header: &mut [u8], len: usize, ecn: u8) {
    put_u8(header, 1, get_u8(header, 1) & !3 | ecn);
    put_u16(header, 6, 0);
    ipv4::set_total_len(header, len as u16);
}

/// Payload Length and ECN. The header in front of the Fragment Header names it already.
fn set_v6(header: &mut [u8], len: usize, ecn: u8) {
    put_u8(header, 1, get_u8(header, 1) & !0x30 | ecn << 4);
    put_u16(header, 4, (len - ipv6::HEADER_LEN) as u16);
}
