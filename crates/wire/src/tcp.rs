//! The TCP header (RFC 9293 section 3.1): offsets of fields, flags and options.

use crate::{get_u8, get_u16};

/// Octets of a header without options.
pub const HEADER_LEN: usize = 20;

/// Offset of the sequence number (4 octets).
pub const SEQ_AT: usize = 4;

/// Offset of the acknowledgement number (4 octets).
pub const ACK_AT: usize = 8;

/// Offset of the data offset: the upper 4 bits, in 32-bit words.
pub const DATA_OFFSET_AT: usize = 12;

/// Offset of the flags (1 octet).
pub const FLAGS_AT: usize = 13;

/// Offset of the window (2 octets).
pub const WINDOW_AT: usize = 14;

/// Offset of the checksum (2 octets).
pub const CHECKSUM_AT: usize = 16;

/// Offset of the urgent pointer (2 octets).
pub const URGENT_AT: usize = 18;

/// Flags (RFC 9293 section 3.1).
pub mod flag {
    /// No more data from the sender.
    pub const FIN: u8 = 0x01;
    /// Synchronise sequence numbers.
    pub const SYN: u8 = 0x02;
    /// Reset the connection.
    pub const RST: u8 = 0x04;
    /// Push what was received to the application.
    pub const PSH: u8 = 0x08;
    /// The acknowledgement number is valid.
    pub const ACK: u8 = 0x10;
    /// The urgent pointer is valid.
    pub const URG: u8 = 0x20;
    /// Congestion Window Reduced (RFC 3168 section 6.1).
    pub const CWR: u8 = 0x80;
}

/// Kinds of options.
pub mod option {
    /// End of the option list (RFC 9293 section 3.2).
    pub const END: u8 = 0;
    /// No operation (RFC 9293 section 3.2).
    pub const NOP: u8 = 1;
    /// Maximum Segment Size (RFC 9293 section 3.2): 2 octets.
    pub const MSS: u8 = 2;
    /// Window Scale (RFC 7323 section 2.2): 1 octet.
    pub const WINDOW_SCALE: u8 = 3;
    /// Selective acknowledgements (RFC 2018 section 3): blocks of 8 octets.
    pub const SACK: u8 = 5;
}

/// Octets of the header at the start of `segment`, by its data offset. `None`: below 20, or beyond the segment.
#[inline]
pub fn header_len(segment: &[u8]) -> Option<usize> {
    let len = usize::from(get_u8(segment, DATA_OFFSET_AT) >> 4) * 4;
    (HEADER_LEN..=segment.len()).contains(&len).then_some(len)
}

/// The flags of the header at the start of `segment`; 0 if it does not reach so far.
#[inline]
pub fn flags(segment: &[u8]) -> u8 {
    get_u8(segment, FLAGS_AT)
}

/// Whether SYN is set.
#[inline]
pub fn is_syn(segment: &[u8]) -> bool {
    flags(segment) & flag::SYN != 0
}

/// An option other than END and NOP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpOption {
    /// Its kind, see [`option`].
    pub kind: u8,
    /// Offset of its value from the start of the header.
    pub at: usize,
    /// Octets of its value.
    pub len: usize,
}

/// The options of a header, in order. It ends at END and at an option whose length is wrong.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    header: &'a [u8],
    at: usize,
}

/// The options of the header at the start of `segment`; none if its length is wrong.
#[inline]
pub fn options(segment: &[u8]) -> Options<'_> {
    let header = header_len(segment).and_then(|len| segment.get(..len)).unwrap_or_default();
    Options { header, at: HEADER_LEN }
}

impl Iterator for Options<'_> {
    type Item = TcpOption;

    #[inline]
    fn next(&mut self) -> Option<TcpOption> {
        loop {
            match *self.header.get(self.at)? {
                option::END => return None,
                option::NOP => self.at += 1,
                kind => {
                    let len = usize::from(*self.header.get(self.at + 1)?);
                    if len < 2 || self.at + len > self.header.len() {
                        return None;
                    }
                    let at = self.at + 2;
                    self.at += len;
                    return Some(TcpOption { kind, at, len: len - 2 });
                }
            }
        }
    }
}

/// The Maximum Segment Size that the header at the start of `segment` announces, and the offset of the value (2 octets).
/// The first option of this kind counts; `None` if its length is wrong.
#[inline]
pub fn mss(segment: &[u8]) -> Option<(usize, u16)> {
    let found = options(segment).find(|it| it.kind == option::MSS)?;
    (found.len == 2).then(|| (found.at, get_u16(segment, found.at)))
}
