//! Domain names in options: labels as RFC 1035 section 3.1 has them, without compression.

use core::fmt::{self, Write as _};

/// Longest label, in octets (RFC 1035 section 3.1).
pub(super) const MAX_LABEL: usize = 63;
/// Longest name, in octets, with the lengths of its labels and the last zero (RFC 1035 section 3.1).
pub(super) const MAX_NAME: usize = 255;

/// One domain name; its octets have been checked.
///
/// Shown as text without the last dot; octets that would not be read back as they are become `\DDD`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DomainName<'a> {
    /// Labels, each behind its length, without the last zero.
    labels: &'a [u8],
}

impl<'a> DomainName<'a> {
    /// The labels, from the left; none is empty.
    pub fn labels(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = self.labels;
        core::iter::from_fn(move || {
            let (&len, behind) = rest.split_first()?;
            let (label, behind) = behind.split_at_checked(usize::from(len))?;
            rest = behind;
            Some(label)
        })
    }

    /// Reads the name at the start of `bytes`, and what comes behind it; `None` when there is none, or a label is too
    /// long, compressed or cut off.
    pub(super) fn read(bytes: &'a [u8]) -> Option<(DomainName<'a>, &'a [u8])> {
        let mut at = 0;
        loop {
            let len = usize::from(*bytes.get(at)?);
            if len == 0 {
                let (labels, rest) = (bytes.get(..at)?, bytes.get(at + 1..)?);
                return (at != 0).then_some((DomainName { labels }, rest));
            }
            // The two high bits are those of compression and of label types that never came.
            at += 1 + len;
            if len > MAX_LABEL || at + 1 > MAX_NAME {
                return None;
            }
        }
    }
}

impl fmt::Display for DomainName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, label) in self.labels().enumerate() {
            if i > 0 {
                f.write_char('.')?;
            }
            for &octet in label {
                match octet {
                    // A resolver's configuration is where such names end: nothing but what a host name may hold goes
                    // there unescaped.
                    b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => {
                        f.write_char(char::from(octet))?;
                    }
                    _ => write!(f, "\\{octet:03}")?,
                }
            }
        }
        Ok(())
    }
}
