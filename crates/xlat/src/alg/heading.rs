//! What of a TCP header belongs to the numbers of octets.

use fordway_wire::{get_u8, get_u16, get_u32, put_u16, put_u32, transport};

/// Flags of a TCP header (RFC 9293 section 3.1).
pub(super) mod flag {
    /// No more octets.
    pub(in crate::alg) const FIN: u8 = 0x01;
    /// The first segment.
    pub(in crate::alg) const SYN: u8 = 0x02;
    /// The connection is over.
    pub(in crate::alg) const RST: u8 = 0x04;
    /// The acknowledgement number counts.
    pub(in crate::alg) const ACK: u8 = 0x10;
    /// The urgent pointer counts.
    pub(in crate::alg) const URG: u8 = 0x20;
}

const SEQ_AT: usize = 4;
const ACK_AT: usize = 8;
const FLAGS_AT: usize = 13;
const WINDOW_AT: usize = 14;
const URGENT_AT: usize = 18;

/// Kinds of options: RFC 9293 section 3.2, RFC 7323, RFC 2018.
mod option {
    pub(super) const END: u8 = 0;
    pub(super) const NOP: u8 = 1;
    pub(super) const MSS: u8 = 2;
    pub(super) const WINDOW_SCALE: u8 = 3;
    pub(super) const SACK: u8 = 5;
}

/// Blocks of a SACK option, at most (RFC 2018 section 3).
const SACK_MAX: usize = 4;

/// The fields of a TCP header that an ALG's work changes, and those that it has to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heading {
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// Flags: the octet of RFC 9293 section 3.1.
    pub flags: u8,
    /// Window, not scaled.
    pub window: u16,
    /// Urgent pointer.
    pub urgent: u16,
    /// Blocks of the SACK option: left and right edge. `None`: there is no such block, or not any more.
    pub sack: [Option<(u32, u32)>; SACK_MAX],
    /// Of a SYN: the MSS option.
    pub mss: Option<u16>,
    /// Of a SYN: the window scale option.
    pub scale: Option<u8>,
}

impl Heading {
    /// Whether a flag is set.
    #[must_use]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Of the TCP header at the start of `segment`; its length comes with it. `None`: it is too short.
    #[must_use]
    pub fn parse(segment: &[u8]) -> Option<(Heading, usize)> {
        let len = transport::tcp_header_len(segment)?;
        let mut heading = Heading {
            seq: get_u32(segment, SEQ_AT),
            ack: get_u32(segment, ACK_AT),
            flags: get_u8(segment, FLAGS_AT),
            window: get_u16(segment, WINDOW_AT),
            urgent: get_u16(segment, URGENT_AT),
            ..Heading::default()
        };
        each_option(&segment[..len], |kind, at, value_len| match (kind, value_len) {
            (option::MSS, 2) => heading.mss = Some(get_u16(segment, at)),
            // RFC 7323 section 2.3: more than 14 counts as 14.
            (option::WINDOW_SCALE, 1) => heading.scale = Some(get_u8(segment, at).min(14)),
            (option::SACK, _) => {
                for (block, slot) in heading.sack.iter_mut().enumerate().take(value_len / 8) {
                    let at = at + 8 * block;
                    *slot = Some((get_u32(segment, at), get_u32(segment, at + 4)));
                }
            }
            _ => {}
        });
        Some((heading, len))
    }

    /// Writes it into the header that it was read from; the checksum is another's matter.
    pub fn write(&self, segment: &mut [u8]) {
        let Some(len) = transport::tcp_header_len(segment) else { return };
        put_u32(segment, SEQ_AT, self.seq);
        put_u32(segment, ACK_AT, self.ack);
        segment[FLAGS_AT] = self.flags;
        put_u16(segment, WINDOW_AT, self.window);
        put_u16(segment, URGENT_AT, self.urgent);
        let mut sack = None;
        each_option(&segment[..len], |kind, at, value_len| {
            if kind == option::SACK {
                sack = Some((at, value_len / 8));
            }
        });
        if let Some((at, blocks)) = sack {
            self.write_sack(segment, at, blocks.min(SACK_MAX));
        }
    }

    /// Blocks that are gone make room at the end, which is filled with NOP.
    fn write_sack(&self, segment: &mut [u8], at: usize, blocks: usize) {
        let mut next = at;
        for (left, right) in self.sack.iter().take(blocks).flatten() {
            put_u32(segment, next, *left);
            put_u32(segment, next + 4, *right);
            next += 8;
        }
        let from = if next == at { at - 2 } else { next };
        segment[from..at + 8 * blocks].fill(option::NOP);
        if next != at {
            segment[at - 1] = (next - at + 2) as u8;
        }
    }
}

/// Tells of each option: kind, where its value starts, how long that is.
fn each_option(header: &[u8], mut tell: impl FnMut(u8, usize, usize)) {
    let mut at = transport::TCP_HEADER_LEN;
    while let Some(kind) = header.get(at) {
        match *kind {
            option::END => return,
            option::NOP => at += 1,
            kind => {
                let Some(len) = header.get(at + 1).map(|len| usize::from(*len)) else { return };
                if len < 2 || at + len > header.len() {
                    return;
                }
                tell(kind, at + 2, len - 2);
                at += len;
            }
        }
    }
}
