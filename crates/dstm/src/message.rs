//! Messages of the control protocol, and their authenticator.
//!
//! ```text
//!  0                   1                   2                   3
//! +---------------+---------------+---------------+---------------+
//! |      'D'      |      'S'      |      'T'      |      'M'      |
//! |  version = 1  |     kind      |            length             |
//! |                          transaction                          |
//! |                           (64 bits)                           |
//! |                            number                             |
//! |                           (64 bits)                           |
//! | options: code (1 octet), length (1 octet), value ...          |
//! | authenticator: code 0, length 32, HMAC-SHA-256                |
//! +---------------------------------------------------------------+
//! ```
//!
//! All numbers are in network byte order. `length` is the whole message's in octets. The authenticator is the last
//! option and covers everything before its value. Unknown options with codes from 128 on are skipped; other unknown
//! options, and repeated ones, make the message malformed.

mod body;
mod options;

use ring::hmac;

pub use body::{Body, Change, ClientId, Reason, WrongClientId};
use options::{Options, Writer};

/// Octets of a message at most: it fits into a packet of 1280 octets, IPv6's least MTU.
pub const LONGEST: usize = 1232;

/// Octets of a cookie.
pub(crate) const COOKIE: usize = 16;

const MAGIC: [u8; 4] = *b"DSTM";
const VERSION: u8 = 1;
const HEADER: usize = 24;
/// The authenticator as an option: code, length, value.
const AUTHENTICATOR: usize = 2 + 32;

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Random; an answer has that of its request.
    pub transaction: u64,
    /// Grows with each message that a client sends; an answer has that of its request.
    pub number: u64,
    /// What it says.
    pub body: Body,
}

/// Why a message is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Shorter than header and authenticator, or not as long as it says.
    #[error("the length is wrong")]
    Length,
    /// Not of this protocol, or of a version that is not known.
    #[error("it is no message of DSTM, version 1")]
    Version,
    /// A kind that is not known.
    #[error("the kind {0} is not known")]
    Kind(u8),
    /// An option is not known, twice there, or does not have its length or a possible value.
    #[error("the option {0} is wrong")]
    Option(u8),
    /// An option that this kind needs is missing.
    #[error("the option {0} is missing")]
    Missing(u8),
}

impl Message {
    /// Reads octets. Whether they are authentic is another question: [`Key::has_sealed`].
    pub fn parse(octets: &[u8]) -> Result<Message, Malformed> {
        if octets.len() < HEADER + AUTHENTICATOR || octets.len() > LONGEST {
            return Err(Malformed::Length);
        }
        let (header, rest) = octets.split_at(HEADER);
        if header[..4] != MAGIC || header[4] != VERSION {
            return Err(Malformed::Version);
        }
        if usize::from(u16::from_be_bytes([header[6], header[7]])) != octets.len() {
            return Err(Malformed::Length);
        }
        let (options, authenticator) = rest.split_at(rest.len() - AUTHENTICATOR);
        if authenticator[..2] != [options::AUTHENTICATOR, 32] {
            return Err(Malformed::Missing(options::AUTHENTICATOR));
        }
        let options = Options::parse(options)?;
        Ok(Message {
            transaction: number(&header[8..16]),
            number: number(&header[16..24]),
            body: Body::read(header[5], &options)?,
        })
    }

    /// Writes it, authenticated with `key`. At most [`LONGEST`] octets: a push has at most [`Body::MOST_CHANGES`]
    /// changes, of which what is more is left out.
    #[must_use]
    pub fn seal(&self, key: &Key) -> Vec<u8> {
        let mut octets = Vec::with_capacity(160);
        octets.extend(MAGIC);
        octets.extend([VERSION, self.body.kind(), 0, 0]);
        octets.extend(self.transaction.to_be_bytes());
        octets.extend(self.number.to_be_bytes());
        let mut writer = Writer(&mut octets);
        self.body.write(&mut writer);
        let len = octets.len() + AUTHENTICATOR;
        // Less than LONGEST.
        octets[6..8].copy_from_slice(&(len as u16).to_be_bytes());
        octets.extend([options::AUTHENTICATOR, 32]);
        let tag = key.authenticate(&octets);
        octets.extend(tag);
        octets
    }
}

fn number(octets: &[u8]) -> u64 {
    octets.iter().fold(0, |number, octet| number << 8 | u64::from(*octet))
}

/// A key that two sides share.
#[derive(Clone)]
pub struct Key(hmac::Key);

impl PartialEq for Key {
    /// Whether both authenticate alike.
    fn eq(&self, other: &Key) -> bool {
        self.authenticate(b"key") == other.authenticate(b"key")
    }
}

impl Eq for Key {}

/// Why a key is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key has 16 to 64 octets, written as 32 to 128 hexadecimal digits")]
pub struct WrongKey;

impl Key {
    /// Reads hexadecimal digits: 32 to 128 of them, for 16 to 64 octets.
    pub fn from_hex(digits: &str) -> Result<Key, WrongKey> {
        let digits = digits.trim().as_bytes();
        if !digits.len().is_multiple_of(2) || !(32..=128).contains(&digits.len()) {
            return Err(WrongKey);
        }
        let digit = |octet: u8| char::from(octet).to_digit(16);
        let pairs = digits.chunks_exact(2).map(|pair| {
            let octet = digit(pair[0])? << 4 | digit(pair[1])?;
            u8::try_from(octet).ok()
        });
        let octets: Option<Vec<u8>> = pairs.collect();
        let octets = octets.ok_or(WrongKey)?;
        Ok(Key(hmac::Key::new(hmac::HMAC_SHA256, &octets)))
    }

    /// The authenticator over `covered`, a message up to the place where it belongs.
    #[must_use]
    pub fn authenticate(&self, covered: &[u8]) -> [u8; 32] {
        let mut tag = [0; 32];
        tag.copy_from_slice(hmac::sign(&self.0, covered).as_ref());
        tag
    }

    /// Whether `octets`, a parsed message, were authenticated with this key.
    #[must_use]
    pub fn has_sealed(&self, octets: &[u8]) -> bool {
        octets.len() >= HEADER + AUTHENTICATOR && {
            let (covered, tag) = octets.split_at(octets.len() - 32);
            hmac::verify(&self.0, covered, tag).is_ok()
        }
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

#[cfg(test)]
mod tests;
