//! The header section of a server's response.

use std::mem::MaybeUninit;

use bytes::{BufMut, BytesMut};
use httparse::{Error, Status};

use super::fields::{self, Delimited, Gathered, Kind, Line, gather};
use super::head::MOST_FIELDS;
use super::reason::Reason;
use super::request::Method;

/// How the content of a response ends (RFC 9112 section 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    None,
    Length(u64),
    Chunked,
    /// With the connection.
    Close,
}

/// What a response answers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) method: Method,
    pub(super) upgrades: bool,
    /// The proxy's name in Via.
    pub(super) own: &'a str,
}

/// A response's header section.
pub(super) struct Response<'a> {
    pub(super) status: u16,
    reason: &'a str,
    minor: u8,
    lines: Vec<Line<'a>>,
    gathered: Gathered<'a>,
    pub(super) content: Content,
    own: &'a str,
}

/// The length of the header section at the beginning of `octets`; `None`: its end is not there yet. Servers may end
/// lines with a lone LF (RFC 9112 section 2.2): clients get CRLF.
pub(super) fn end(octets: &[u8], seen: &mut usize) -> Option<usize> {
    let start = *seen;
    *seen = octets.len();
    let mut ends = memchr::memchr_iter(b'\n', &octets[start..]).map(|at| start + at + 1);
    ends.find(|end| octets[..*end].ends_with(b"\n\n") || octets[..*end].ends_with(b"\n\r\n"))
}

/// Reads a whole header section.
pub(super) fn read<'a>(octets: &'a [u8], asked: Asked<'a>) -> Result<Response<'a>, Reason> {
    let mut room = [const { MaybeUninit::uninit() }; MOST_FIELDS];
    let mut parsed = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    match config.parse_response_with_uninit_headers(&mut parsed, octets, &mut room) {
        Ok(Status::Complete(len)) if len == octets.len() => {}
        Err(Error::TooManyHeaders) => return Err(Reason::ResponseTooLarge),
        // RFC 9112 section 5.2: obs-fold, too, is replaced by 502.
        _ => return Err(Reason::BadResponse),
    }
    let status =
        parsed.code.filter(|code| (100..=599).contains(code)).ok_or(Reason::BadResponse)?;
    let minor = parsed.version.unwrap_or(1);
    let lines: Vec<Line<'a>> =
        parsed.headers.iter().map(|field| (field.name.as_bytes(), field.value)).collect();
    let gathered =
        gather(lines.iter().copied(), asked.own, false).map_err(|_| Reason::BadResponse)?;
    // RFC 9112 section 6.1: with HTTP/1.0 its framing is faulty.
    if minor == 0 && gathered.delimited == Delimited::Chunked {
        return Err(Reason::BadResponse);
    }
    if status == 101 && !asked.upgrades {
        return Err(Reason::BadResponse);
    }
    let bare = matches!(status, 100..=199 | 204 | 304) || asked.method == Method::Head;
    let content = match gathered.delimited {
        _ if bare => Content::None,
        Delimited::Length(0) => Content::None,
        Delimited::Length(length) => Content::Length(length),
        Delimited::Chunked => Content::Chunked,
        Delimited::Not => Content::Close,
    };
    let reason = parsed.reason.unwrap_or("");
    Ok(Response { status, reason, minor, lines, gathered, content, own: asked.own })
}

impl Response<'_> {
    /// Whether the connection to the server can take another request afterwards.
    pub(super) fn is_reusable(&self) -> bool {
        let persists = match self.minor {
            0 => self.gathered.keep_alive && !self.gathered.close,
            _ => !self.gathered.close,
        };
        persists && self.content != Content::Close && self.status != 101
    }

    /// Whether it asks the client to authenticate the whole connection.
    pub(super) fn binds(&self) -> bool {
        self.gathered.binds
    }

    /// The field lines for the client but for those about framing and connection.
    fn copy(&self, out: &mut BytesMut, date: &str) {
        let keeps = |kind| {
            matches!(
                kind,
                Kind::Other
                    | Kind::Date
                    | Kind::Via
                    | Kind::Referer
                    | Kind::UserAgent
                    | Kind::Credentials
                    | Kind::Forwarded
            )
        };
        self.gathered.copy(self.lines.iter().copied(), keeps, out);
        // RFC 9110 section 6.6.1: a recipient with a clock adds it.
        if !self.gathered.has_date && self.status >= 200 {
            fields::put(out, b"Date", date.as_bytes());
        }
        let version = if self.minor == 0 { "1.0" } else { "1.1" };
        fields::put(out, b"Via", format!("{version} {}", self.own).as_bytes());
    }

    /// A length that is told though there is no content: that of GET (RFC 9110 section 8.6).
    fn told_length(&self) -> Option<u64> {
        match (self.content, self.gathered.delimited) {
            (Content::Length(length), _) => Some(length),
            (Content::None, Delimited::Length(length))
                if !matches!(self.status, 100..=199 | 204) =>
            {
                Some(length)
            }
            _ => None,
        }
    }

    /// Writes the header section for an HTTP/1.x client with this minor version, and tells whether its connection goes
    /// on as `persists` would have it.
    pub(super) fn http1(&self, minor: u8, persists: bool, date: &str, out: &mut BytesMut) -> bool {
        let unknown = matches!(self.content, Content::Chunked | Content::Close);
        let persists = persists && !(minor == 0 && unknown) && self.status != 101;
        out.reserve(512);
        out.put_slice(b"HTTP/1.1 ");
        out.put_slice(self.status.to_string().as_bytes());
        out.put_u8(b' ');
        out.put_slice(self.reason.as_bytes());
        out.put_slice(b"\r\n");
        self.copy(out, date);
        if let Some(length) = self.told_length() {
            fields::put(out, b"Content-Length", length.to_string().as_bytes());
        } else if unknown && minor > 0 {
            out.put_slice(b"Transfer-Encoding: chunked\r\n");
        }
        match self.status {
            101 => {
                out.put_slice(b"Connection: upgrade\r\n");
                let upgrade = self.lines.iter().filter(|(name, _)| Kind::of(name) == Kind::Upgrade);
                upgrade.for_each(|(name, value)| fields::put(out, name, value));
            }
            100..=199 => {}
            _ if !persists => out.put_slice(b"Connection: close\r\n"),
            _ if minor == 0 => out.put_slice(b"Connection: keep-alive\r\n"),
            _ => {}
        }
        out.put_slice(b"\r\n");
        persists
    }

    /// The header section for an HTTP/2 client.
    pub(super) fn http2(&self, date: &str) -> Option<http::response::Builder> {
        let mut lines = BytesMut::new();
        self.copy(&mut lines, date);
        let mut builder = http::Response::builder().status(self.status);
        let headers = builder.headers_mut()?;
        for line in lines[..].split(|c| *c == b'\n') {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let Some(colon) = memchr::memchr(b':', line) else { continue };
            let name = http::HeaderName::from_bytes(&line[..colon]).ok()?;
            let value = http::HeaderValue::from_bytes(line.get(colon + 2..)?).ok()?;
            headers.append(name, value);
        }
        if let Some(length) = self.told_length() {
            headers.insert(http::header::CONTENT_LENGTH, length.into());
        }
        Some(builder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: &str = "Thu, 01 Jan 1970 00:00:00 GMT";

    fn asked(method: Method) -> Asked<'static> {
        Asked { method, upgrades: false, own: "me" }
    }

    fn for_client(
        octets: &str,
        method: Method,
        minor: u8,
    ) -> Result<(String, Content, bool), Reason> {
        let response = read(octets.as_bytes(), asked(method))?;
        let mut out = BytesMut::new();
        let persists = response.http1(minor, true, DATE, &mut out);
        Ok((String::from_utf8(out.to_vec()).unwrap(), response.content, persists))
    }

    #[test]
    fn lengths_are_written_anew() {
        let (head, content, persists) =
            for_client("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX: y\r\n\r\n", Method::Get, 1)
                .unwrap();
        assert_eq!(
            head,
            format!(
                "HTTP/1.1 200 OK\r\nX: y\r\nDate: {DATE}\r\nVia: 1.1 me\r\nContent-Length: 3\r\n\r\n"
            )
        );
        assert_eq!((content, persists), (Content::Length(3), true));
        let (head, content, persists) = for_client("HTTP/1.0 200 \n\n", Method::Get, 1).unwrap();
        assert!(
            head.contains("Transfer-Encoding: chunked") && head.contains("Via: 1.0 me"),
            "{head}"
        );
        assert_eq!((content, persists), (Content::Close, true));
        let (head, _, persists) =
            for_client("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", Method::Get, 0)
                .unwrap();
        assert!(
            !head.contains("Transfer-Encoding") && head.contains("Connection: close"),
            "{head}"
        );
        assert!(!persists);
    }

    #[test]
    fn responses_without_content() {
        for (octets, method) in [
            ("HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", Method::Get),
            ("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", Method::Get),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", Method::Head),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", Method::Head),
        ] {
            let (head, content, persists) = for_client(octets, method, 1).unwrap();
            assert_eq!((content, persists), (Content::None, true), "{octets}");
            let told = octets.contains("Content-Length") && !octets.contains("204");
            assert_eq!(head.contains("Content-Length: 5"), told, "{head}");
            assert!(!head.contains("Transfer-Encoding"), "{head}");
        }
    }

    #[test]
    fn responses_that_could_be_read_in_two_ways() {
        for octets in [
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip\r\n\r\n",
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n",
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
            "HTTP/1.1 999 What\r\n\r\n",
            "HTTP/2.0 200 OK\r\n\r\n",
            "hello\r\n\r\n",
        ] {
            assert_eq!(for_client(octets, Method::Get, 1), Err(Reason::BadResponse), "{octets}");
        }
    }
}
