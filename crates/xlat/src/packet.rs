//! A packet in a buffer with headroom, and the state of its offloads.

use core::ops::Range;

use fordway_wire::checksum::Sum;

use crate::fragment::{Fragments, Plan};
use crate::offload::segment_header_len;
use crate::verdict::DropReason;

pub use crate::offload::{ChecksumState, Gso, GsoKind, Offload};

/// Octets that must lie free in front of a packet so that every outcome fits in place.
///
/// The longest growth is an IPv4 ICMP error that becomes ICMPv6 (two headers of 20 more octets and an inner Fragment
/// Header of 8), or an ICMPv6 error of 48 octets put in front of an IPv6 packet.
pub const HEADROOM: usize = 64;

/// Octets that should lie free behind a packet. An ICMP error grows there when its extensions move back (RFC 4884) or
/// it gets some; without room it leaves without them.
pub const TAILROOM: usize = 256;

/// A packet that lies in a buffer with room in front of it.
///
/// The packet starts at the IP header; there is no link-layer header. Translation moves the start.
#[derive(Debug)]
pub struct Packet<'a> {
    buffer: &'a mut [u8],
    start: usize,
    end: usize,
    /// Offload state; translation keeps it true.
    pub offload: Offload,
    /// The packet's mark, as the host has set it; 0 where it is not known. It picks a pool of pool4.
    pub mark: u32,
    pub(crate) plan: Option<Plan>,
}

impl<'a> Packet<'a> {
    /// The packet in `buffer[range]`. `range.start` is the headroom: give at least [`HEADROOM`] octets, else outcomes
    /// that need more are dropped as `NoHeadroom`.
    ///
    /// A range outside the buffer is cut to it.
    pub fn new(buffer: &'a mut [u8], range: Range<usize>, offload: Offload) -> Packet<'a> {
        let end = range.end.min(buffer.len());
        let start = range.start.min(end);
        Packet { buffer, start, end, offload, mark: 0, plan: None }
    }

    /// The octets of the packet, from its IP header.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// The octets of the packet, to be changed.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.end]
    }

    /// Length in octets.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "an empty packet has no meaning of its own")]
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Where the packet lies in its buffer now.
    #[inline]
    pub fn range(&self) -> Range<usize> {
        self.start..self.end
    }

    /// The buffer whole, for a caller that puts its own header in front of the packet.
    #[inline]
    pub fn buffer_mut(&mut self) -> &mut [u8] {
        self.buffer
    }

    /// The pieces in which the packet has to leave: itself, or its fragments when it does not fit (RFC 7915 sections
    /// 4.1 and 5.1.1). Empty only when the packet is.
    pub fn fragments(&self) -> Fragments<'_> {
        Fragments::new(self.bytes(), self.plan)
    }

    /// Whether [`Packet::fragments`] gives more than one piece.
    #[inline]
    pub fn is_split(&self) -> bool {
        self.plan.is_some()
    }

    /// The packets that this one will be on a wire: 1, or the number of segments of a super-packet.
    ///
    /// Counted from the headers themselves: what a TUN says in `header_len` is the length of the kernel's linear
    /// buffer, which may hold payload too.
    #[inline]
    pub fn segments(&self) -> usize {
        let Gso { kind, size, .. } = self.offload.gso;
        let ChecksumState::Partial { start, .. } = self.offload.checksum else { return 1 };
        if kind == GsoKind::None || size == 0 {
            return 1;
        }
        let segment = self.bytes().get(usize::from(start)..).unwrap_or_default();
        let payload = segment.len().saturating_sub(segment_header_len(kind, segment));
        payload.div_ceil(usize::from(size)).max(1)
    }

    /// Makes the packet one that leaves in pieces: its checksum must be complete before it is cut.
    pub(crate) fn split(&mut self, plan: Plan) {
        self.complete_checksum();
        self.plan = Some(plan);
    }

    /// Lets a packet that begins with an IPv6 header of 40 octets and has an IPv4 packet in it leave in as many pieces
    /// as are needed: of a super-packet its segments, and of each packet of more than `limit` octets IPv6 fragments,
    /// which have identifications from `identification` on (RFC 2473 section 7.2).
    pub fn cut_tunnelled(&mut self, limit: usize, identification: u32) {
        if self.offload.gso.kind == GsoKind::None {
            self.complete_checksum();
        }
        let gso = core::mem::take(&mut self.offload).gso;
        self.plan = Some(Plan::tunnel(gso, limit, identification));
    }

    /// Lets a super-packet of UDP that begins with an IPv6 header of 40 octets leave as its datagrams, and those of
    /// more than `limit` octets as fragments, which have identifications from `identification` on (RFC 7915 section
    /// 4.1).
    pub(crate) fn cut_datagrams(&mut self, limit: usize, identification: u32) {
        self.cut_tunnelled(limit, identification);
    }

    /// Completes a partial checksum in software, as the device would have.
    pub fn complete_checksum(&mut self) {
        let ChecksumState::Partial { start, offset } = self.offload.checksum else {
            return;
        };
        let covered = self.bytes_mut().get_mut(usize::from(start)..).unwrap_or_default();
        let checksum = match Sum::ZERO.add_bytes(covered).finish() {
            // RFC 768 for UDP; for TCP both are zero.
            0 => 0xffff,
            checksum => checksum,
        };
        fordway_wire::put_u16(covered, usize::from(offset), checksum);
        self.offload.checksum = ChecksumState::Complete;
    }

    /// Keeps the offload state true when the transport header moves from octet `old` of the packet to octet `new`.
    #[inline]
    fn move_transport(&mut self, old: usize, new: usize) {
        let moved = |at: u16| u16::try_from((usize::from(at) + new).saturating_sub(old));
        if let ChecksumState::Partial { start, .. } = &mut self.offload.checksum {
            *start = moved(*start).unwrap_or(*start);
        }
        let header_len = &mut self.offload.gso.header_len;
        if *header_len != 0 {
            *header_len = moved(*header_len).unwrap_or(*header_len);
        }
    }

    /// Puts an IP header of the other family in the place of the first `old_len` octets; the offload state follows.
    #[inline]
    pub(crate) fn replace_header(&mut self, old_len: usize, new: &[u8]) -> Result<(), DropReason> {
        // A header that shrinks needs the octets of the old one, so both steps can fail.
        if !(self.shrink_front(old_len) && self.grow_front(new.len())) {
            return Err(DropReason::NoHeadroom);
        }
        self.bytes_mut()[..new.len()].copy_from_slice(new);
        self.move_transport(old_len, new.len());
        self.offload.gso.kind = match self.offload.gso.kind {
            GsoKind::TcpV4 => GsoKind::TcpV6,
            GsoKind::TcpV6 => GsoKind::TcpV4,
            kind => kind,
        };
        Ok(())
    }

    /// Moves the start forward by `n` octets (a shorter packet). `false`: the packet is shorter.
    #[inline]
    pub fn shrink_front(&mut self, n: usize) -> bool {
        let fits = n <= self.len();
        if fits {
            self.start += n;
        }
        fits
    }

    /// Moves the start back by `n` octets (a longer packet). `false`: not enough headroom.
    #[inline]
    pub fn grow_front(&mut self, n: usize) -> bool {
        let fits = n <= self.start;
        if fits {
            self.start -= n;
        }
        fits
    }

    /// Cuts the packet to at most `len` octets.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        self.end = self.end.min(self.start + len);
    }

    /// How long the packet can be.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// Lengthens the packet to `len` octets, the new ones zero. `false`: no room behind it.
    #[inline]
    pub(crate) fn pad_to(&mut self, len: usize) -> bool {
        let end = self.start + len;
        if end > self.buffer.len() {
            return false;
        }
        if end > self.end {
            self.buffer[self.end..end].fill(0);
            self.end = end;
        }
        true
    }
}

#[cfg(test)]
mod tests;
