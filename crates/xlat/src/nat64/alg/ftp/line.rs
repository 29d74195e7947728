//! Lines of the control connection, and what stands in them.

use core::net::{IpAddr, Ipv4Addr};

/// The end of the first line: behind its line feed.
pub(super) fn end(octets: &[u8]) -> Option<usize> {
    octets.iter().position(|octet| *octet == b'\n').map(|place| place + 1)
}

/// A line without its end.
pub(super) fn text(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// A command's verb and its argument, without the space between them (RFC 959 section 5.3).
pub(super) fn command(text: &[u8]) -> (&[u8], &[u8]) {
    let verb = text.iter().position(|octet| !octet.is_ascii_alphabetic()).unwrap_or(text.len());
    let (verb, rest) = text.split_at(verb);
    (verb, rest.trim_ascii())
}

/// Decimal digits as a number.
fn number<T: core::str::FromStr>(digits: &[u8]) -> Option<T> {
    let digits = core::str::from_utf8(digits).ok()?;
    // `+5` is a number to the library.
    digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

/// Address and port of PORT and of 227: `h1,h2,h3,h4,p1,p2`, which ends where they end.
fn six(text: &[u8]) -> Option<(Ipv4Addr, u16)> {
    let len = text.iter().position(|octet| !octet.is_ascii_digit() && *octet != b',');
    let mut parts = text[..len.unwrap_or(text.len())].split(|octet| *octet == b',');
    let mut next = || number::<u8>(parts.next()?);
    let addr = Ipv4Addr::new(next()?, next()?, next()?, next()?);
    let port = u16::from_be_bytes([next()?, next()?]);
    (port != 0 && parts.next().is_none()).then_some((addr, port))
}

/// The argument of PORT.
pub(super) fn port(argument: &[u8]) -> Option<(Ipv4Addr, u16)> {
    let all = |octet: &u8| octet.is_ascii_digit() || *octet == b',';
    argument.iter().all(all).then(|| six(argument)).flatten()
}

/// Address and port in the text of a 227. RFC 1123 section 4.1.2.6: they are to be searched for, since not all
/// servers write parentheses.
pub(super) fn passive(text: &[u8]) -> Option<(Ipv4Addr, u16)> {
    let starts = (0..text.len()).filter(|at| {
        let before = at.checked_sub(1).map(|at| text[at]);
        text[*at].is_ascii_digit() && before.is_none_or(|octet| !octet.is_ascii_digit())
    });
    starts.into_iter().find_map(|at| six(&text[at..]))
}

/// What stands between delimiters: `<d>net-prt<d>net-addr<d>tcp-port<d>` (RFC 2428 section 2).
fn delimited(argument: &[u8]) -> Option<(&[u8], &[u8], u16)> {
    let (delimiter, rest) = argument.split_first()?;
    // RFC 2428: any of ASCII 33 to 126.
    if !delimiter.is_ascii_graphic() || delimiter.is_ascii_digit() {
        return None;
    }
    let mut parts = rest.split(|octet| octet == delimiter);
    let (protocol, addr, port) = (parts.next()?, parts.next()?, number(parts.next()?)?);
    let ended = parts.next() == Some(b"") && parts.next().is_none();
    (ended && port != 0).then_some((protocol, addr, port))
}

/// The argument of EPRT. An address that is not of the protocol that it says is none.
pub(super) fn eprt(argument: &[u8]) -> Option<(IpAddr, u16)> {
    let (protocol, addr, port) = delimited(argument)?;
    let addr: IpAddr = core::str::from_utf8(addr).ok()?.parse().ok()?;
    let right = matches!((protocol, addr), (b"1", IpAddr::V4(_)) | (b"2", IpAddr::V6(_)));
    right.then_some((addr, port))
}

/// The port in the text of a 229: `(<d><d><d>tcp-port<d>)` (RFC 2428 section 3).
pub(super) fn extended_passive(text: &[u8]) -> Option<u16> {
    let open = text.iter().position(|octet| *octet == b'(')?;
    let inside = &text[open + 1..];
    let close = inside.iter().position(|octet| *octet == b')')?;
    let (_, _, port) = delimited(&inside[..close])?;
    Some(port)
}

/// The code at the start of a reply's line, and whether it is the last line of that code.
pub(super) fn code(line: &[u8]) -> Option<([u8; 3], bool)> {
    let code: [u8; 3] = line.get(..3)?.try_into().ok()?;
    let sound = matches!(code[0], b'1'..=b'5') && code.iter().all(u8::is_ascii_digit);
    match line.get(3) {
        _ if !sound => None,
        Some(b'-') => Some((code, false)),
        Some(b' ' | b'\r' | b'\n') => Some((code, true)),
        _ => None,
    }
}
