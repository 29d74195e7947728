//! The name in a ClientHello, whatever else its client can do: the server that gets it judges the rest.

use rustls_pki_types::DnsName;

/// First octets of a record with handshake messages: its type (RFC 8446 section 5.1), and what all versions of TLS have behind
/// it.
const HANDSHAKE: [u8; 2] = [22, 3];
/// Octets of the header of a record.
const RECORD_HEADER: usize = 5;
/// Longest record without protection, in octets.
const LONGEST_RECORD: usize = 1 << 14;
/// Type of the message (RFC 8446 section 4).
const CLIENT_HELLO: u8 = 1;
/// Octets of version and random number, which it begins with.
const FIXED: usize = 2 + 32;
/// The extension, and the kind of names in it (RFC 6066 section 3).
const SERVER_NAME: [u8; 2] = [0, 0];
const HOST_NAME: [u8; 1] = [0];

/// What a connection begins with.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Hello {
    /// A part of a ClientHello, or nothing yet.
    Partial,
    /// A ClientHello that asks for this name, in lower case; `None`: for none, or for one that DNS can't have.
    Whole(Option<String>),
}

/// The connection does not begin with a ClientHello.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Reads records of TLS, of which a ClientHello may take several. What is behind it is not looked at.
pub(super) fn read(octets: &[u8]) -> Result<Hello, Malformed> {
    let (mut message, mut rest) = (Vec::new(), octets);
    loop {
        if let Some(body) = body(&message)? {
            return name(body).map(Hello::Whole);
        }
        if rest.iter().zip(HANDSHAKE).any(|(octet, expected)| *octet != expected) {
            return Err(Malformed);
        }
        let Some((header, behind)) = rest.split_at_checked(RECORD_HEADER) else {
            return Ok(Hello::Partial);
        };
        let len = number(&header[RECORD_HEADER - 2..]);
        if !(1..=LONGEST_RECORD).contains(&len) {
            return Err(Malformed);
        }
        let Some((fragment, behind)) = behind.split_at_checked(len) else {
            return Ok(Hello::Partial);
        };
        message.extend_from_slice(fragment);
        rest = behind;
    }
}

/// What a ClientHello has behind its type and length; `None`: it is not whole.
fn body(message: &[u8]) -> Result<Option<&[u8]>, Malformed> {
    match message {
        [CLIENT_HELLO, len @ ..] if len.len() < 3 => Ok(None),
        [CLIENT_HELLO, a, b, c, behind @ ..] => Ok(behind.get(..number(&[*a, *b, *c]))),
        [] => Ok(None),
        _ => Err(Malformed),
    }
}

/// The name that the body of a ClientHello asks for (RFC 8446 section 4.1.2).
fn name(body: &[u8]) -> Result<Option<String>, Malformed> {
    let mut rest = Fields(body);
    rest.take(FIXED)?;
    // Session, cipher suites, compression methods.
    for octets in [1, 2, 1] {
        rest.sized(octets)?;
    }
    if rest.0.is_empty() {
        // TLS 1.2 and before it may have no extensions.
        return Ok(None);
    }
    let mut extensions = Fields(rest.sized(2)?);
    let mut found = None;
    while !extensions.0.is_empty() {
        let (kind, content) = (extensions.take(2)?, extensions.sized(2)?);
        if kind == SERVER_NAME && found.replace(host_name(content)?).is_some() {
            return Err(Malformed);
        }
    }
    Ok(found.flatten())
}

/// The name of a host in the extension of names.
fn host_name(content: &[u8]) -> Result<Option<String>, Malformed> {
    let mut names = Fields(Fields(content).sized(2)?);
    while !names.0.is_empty() {
        let (kind, name) = (names.take(1)?, names.sized(2)?);
        if kind == HOST_NAME {
            return Ok(DnsName::try_from(name).ok().map(|it| it.as_ref().to_ascii_lowercase()));
        }
    }
    Ok(None)
}

/// A number of up to three octets.
fn number(octets: &[u8]) -> usize {
    octets.iter().fold(0, |number, octet| number << 8 | usize::from(*octet))
}

/// The rest of a message.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// So many octets.
    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    /// A field whose length stands in front of it, in `octets` octets.
    fn sized(&mut self, octets: usize) -> Result<&'a [u8], Malformed> {
        let count = number(self.take(octets)?);
        self.take(count)
    }
}

#[cfg(test)]
mod tests;
