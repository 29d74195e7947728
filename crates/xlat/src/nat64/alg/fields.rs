//! The fields of a TCP header that depend on sequence numbers.

use fordway_wire::tcp::{self, ACK_AT, FLAGS_AT, SEQ_AT, TcpOption, URGENT_AT, WINDOW_AT, option};
use fordway_wire::{get_u8, get_u16, get_u32, put_u16, put_u32};

/// Blocks of a SACK option, at most (RFC 2018 section 3).
const SACK_MAX: usize = 4;

/// The fields of a TCP header that an ALG reads or changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpFields {
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

impl TcpFields {
    /// Whether a flag is set.
    #[must_use]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Reads the TCP header at the start of `segment`, and gives its length in octets. `None`: the segment is too short.
    #[must_use]
    pub fn parse(segment: &[u8]) -> Option<(TcpFields, usize)> {
        let len = tcp::header_len(segment)?;
        let mut fields = TcpFields {
            seq: get_u32(segment, SEQ_AT),
            ack: get_u32(segment, ACK_AT),
            flags: tcp::flags(segment),
            window: get_u16(segment, WINDOW_AT),
            urgent: get_u16(segment, URGENT_AT),
            ..TcpFields::default()
        };
        for TcpOption { kind, at, len } in tcp::options(segment) {
            match (kind, len) {
                (option::MSS, 2) => fields.mss = Some(get_u16(segment, at)),
                // RFC 7323 section 2.3: more than 14 counts as 14.
                (option::WINDOW_SCALE, 1) => fields.scale = Some(get_u8(segment, at).min(14)),
                (option::SACK, _) => {
                    for (block, slot) in fields.sack.iter_mut().enumerate().take(len / 8) {
                        let at = at + 8 * block;
                        *slot = Some((get_u32(segment, at), get_u32(segment, at + 4)));
                    }
                }
                _ => {}
            }
        }
        Some((fields, len))
    }

    /// Writes the fields into the header that they were read from. The checksum is left as it is.
    pub fn write(&self, segment: &mut [u8]) {
        if tcp::header_len(segment).is_none() {
            return;
        }
        put_u32(segment, SEQ_AT, self.seq);
        put_u32(segment, ACK_AT, self.ack);
        segment[FLAGS_AT] = self.flags;
        put_u16(segment, WINDOW_AT, self.window);
        put_u16(segment, URGENT_AT, self.urgent);
        let sack = tcp::options(segment).filter(|it| it.kind == option::SACK).last();
        if let Some(TcpOption { at, len, .. }) = sack {
            self.write_sack(segment, at, (len / 8).min(SACK_MAX));
        }
    }

    /// Writes the remaining SACK blocks, and fills the rest of the option with NOP.
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
