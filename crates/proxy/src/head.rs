//! The header section of an HTTP/1.x request, as octets.

use std::mem::MaybeUninit;

use httparse::{Error, Status};

use super::access::About;
use super::reason::Reason;
use super::request::{FirstLine, Method, Request, RequestContext, Target, make};
use super::settings::Limits;

/// The most field lines that settings may allow.
pub const MOST_FIELDS: usize = 256;
/// What an HTTP/2 client sends first (RFC 9113 section 3.4).
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The length of the header section at the beginning of `octets`, with the empty line; `None`: its end is not there
/// yet. `seen` is how many octets have been looked at, 0 at first.
///
/// RFC 9112 section 2.2 lets a recipient take a lone LF for the end of a line. Recipients that do and recipients that
/// do not would read different messages: it is refused.
pub(super) fn end(octets: &[u8], seen: &mut usize) -> Result<Option<usize>, Reason> {
    let start = *seen;
    *seen = octets.len();
    for at in memchr::memchr_iter(b'\n', &octets[start..]) {
        let line = &octets[..start + at + 1];
        if !line.ends_with(b"\r\n") {
            return Err(Reason::Malformed);
        }
        if line.ends_with(b"\r\n\r\n") {
            return Ok(Some(line.len()));
        }
    }
    Ok(None)
}

/// As [`end`], within the limits.
pub(super) fn whole(
    octets: &[u8],
    seen: &mut usize,
    limits: &Limits,
) -> Result<Option<usize>, Reason> {
    match end(octets, seen)? {
        Some(len) if len > limits.header => Err(Reason::FieldsTooLarge),
        None if octets.len() > limits.header => Err(too_large(octets)),
        // Only the target can make the first line so long.
        None if octets.get(..limits.target + 32).is_some_and(|it| !it.contains(&b'\n')) => {
            Err(Reason::TargetTooLong)
        }
        found => Ok(found),
    }
}

/// What is wrong with a header section that does not end within the limit.
fn too_large(octets: &[u8]) -> Reason {
    match memchr::memchr(b'\n', octets) {
        Some(_) => Reason::FieldsTooLarge,
        None => Reason::TargetTooLong,
    }
}

/// Makes the server's request of the header section `octets`, which is whole. `about` gets what is known of it, even
/// if there is no request.
pub(super) fn request(
    octets: &[u8],
    context: RequestContext<'_>,
    about: &mut Option<About>,
) -> Result<Request, Reason> {
    let limits = &context.settings.limits;
    let mut room = [const { MaybeUninit::uninit() }; MOST_FIELDS];
    let room = &mut room[..limits.fields.min(MOST_FIELDS)];
    let mut parsed = httparse::Request::new(&mut []);
    let status = parsed.parse_with_uninit_headers(octets, room);
    let (method, path) = (parsed.method.unwrap_or(""), parsed.path.unwrap_or(""));
    let minor = parsed.version.unwrap_or(1).min(1);
    if context.settings.log.is_some() {
        let version = if minor == 0 { "HTTP/1.0" } else { "HTTP/1.1" };
        *about = Some(About::new(context.client, method, path, version));
    }
    match status {
        Ok(Status::Complete(len)) if len == octets.len() => {}
        Ok(_) => return Err(Reason::Malformed),
        Err(Error::TooManyHeaders) => return Err(Reason::FieldsTooLarge),
        Err(Error::Version) => return Err(Reason::Version),
        Err(_) => return Err(Reason::Malformed),
    }
    if path.len() > limits.target {
        return Err(Reason::TargetTooLong);
    }
    let lines = parsed.headers.iter().map(|field| (field.name.as_bytes(), field.value));
    if let Some(about) = about {
        about.fields(lines.clone());
    }
    let target = Target::parse(Method::of(method.as_bytes()), path)?;
    let line = FirstLine { method, target, minor: Some(minor), content: false };
    make(context, &line, &lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_however_it_comes() {
        let octets = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nrest";
        for cut in 0..octets.len() {
            let mut seen = 0;
            let early = end(&octets[..cut], &mut seen).unwrap();
            assert_eq!(early, (cut >= 27).then_some(27), "{cut}");
            if early.is_none() {
                assert_eq!(end(octets, &mut seen), Ok(Some(27)), "{cut}");
            }
        }
    }

    #[test]
    fn a_lone_lf_is_no_end_of_a_line() {
        for octets in
            [&b"GET / HTTP/1.1\nHost: a\n\n"[..], b"GET / HTTP/1.1\r\nA: b\nHost: a\r\n\r\n", b"\n"]
        {
            assert_eq!(end(octets, &mut 0), Err(Reason::Malformed));
        }
    }

    #[test]
    fn what_is_too_long() {
        assert_eq!(too_large(b"GET /aaaaaaaaaaaaaa"), Reason::TargetTooLong);
        assert_eq!(too_large(b"GET / HTTP/1.1\r\nA: aaaa"), Reason::FieldsTooLarge);
    }
}
