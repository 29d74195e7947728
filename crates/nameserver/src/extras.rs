//! What an answer carries for its client alone, in the OPT record at its end.

use super::cookie::COOKIE;
use super::query::{MAX_MESSAGE, OPTION_COOKIE, OPTION_PADDING};

/// Answers are padded to a multiple of this (RFC 8467 section 4.1).
const PADDING_BLOCK: usize = 468;
/// Code and length of an option.
const OPTION_HEAD: usize = 4;

/// Options for one client.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Extras {
    /// The cookie for the client.
    pub(super) cookie: Option<[u8; COOKIE]>,
    /// The client hides lengths, and nobody on the way reads the answer (RFC 7830 section 4).
    pub(super) pads: bool,
}

impl Extras {
    /// Octets that are needed, without padding.
    pub(super) fn len(&self) -> usize {
        self.cookie.map_or(0, |cookie| OPTION_HEAD + cookie.len())
    }

    /// Adds the options to the message that begins at `start`, and whose OPT record has its length at `opt`.
    pub(super) fn write(&self, start: usize, opt: usize, out: &mut Vec<u8>) {
        if let Some(cookie) = &self.cookie {
            add_option(start, opt, OPTION_COOKIE, cookie, out);
        }
        if self.pads {
            let bare = out.len() - start + OPTION_HEAD;
            let padding = [0; PADDING_BLOCK];
            let padding = &padding[..bare.next_multiple_of(PADDING_BLOCK) - bare];
            add_option(start, opt, OPTION_PADDING, padding, out);
        }
    }
}

/// Adds an option to the OPT record, which is the end of the message that begins at `start`, and whose length stands at
/// `opt`. One that the longest message has no room for is left out.
pub(super) fn add_option(start: usize, opt: usize, code: u16, value: &[u8], out: &mut Vec<u8>) {
    let added = OPTION_HEAD + value.len();
    if out.len() - start + added > MAX_MESSAGE {
        return;
    }
    let Some(octets) = out.get_mut(opt..opt + 2) else { return };
    let sum = u16::from_be_bytes([octets[0], octets[1]]) + added as u16;
    octets.copy_from_slice(&sum.to_be_bytes());
    out.extend_from_slice(&code.to_be_bytes());
    out.extend_from_slice(&(value.len() as u16).to_be_bytes());
    out.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padded_to_whole_blocks_and_never_beyond_a_message() {
        for (bare, expected) in [
            (12, 468),
            (464, 468),
            (465, 936),
            (468, 936),
            (MAX_MESSAGE - 4, MAX_MESSAGE - 4),
            (65_000, 65_052),
            (65_520, 65_520),
        ] {
            let mut out = vec![0; 3 + bare];
            let extras = Extras { cookie: None, pads: true };
            extras.write(3, 3 + bare - 2, &mut out);
            assert_eq!(out.len() - 3, expected, "{bare}");
            let len = u16::from_be_bytes([out[3 + bare - 2], out[3 + bare - 1]]);
            assert_eq!(usize::from(len), expected - bare);
        }
    }
}
