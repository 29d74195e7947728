//! Requests: from what a client sends to what a server gets.

use std::net::IpAddr;
use std::str;

use bytes::{BufMut, BytesMut};

use super::authority::{Authority, Host};
use super::fields::{self, Delimited, Kind, Line, gather};
use super::reason::Reason;
use super::settings::{Forwarded, Mode, Settings};

/// Methods that matter to an intermediary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Get,
    Head,
    Options,
    Trace,
    Connect,
    /// Others that may be repeated: PUT, DELETE.
    Idempotent,
    Other,
}

impl Method {
    pub(super) fn of(name: &[u8]) -> Method {
        match name {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"OPTIONS" => Method::Options,
            b"TRACE" => Method::Trace,
            b"CONNECT" => Method::Connect,
            b"PUT" | b"DELETE" => Method::Idempotent,
            _ => Method::Other,
        }
    }

    /// RFC 9110 section 9.2.2: may be sent again without knowing what became of the first.
    pub(super) fn is_idempotent(self) -> bool {
        !matches!(self, Method::Connect | Method::Other)
    }
}

/// Where and for whom a request is read.
#[derive(Clone, Copy)]
pub(super) struct RequestContext<'a> {
    pub(super) settings: &'a Settings,
    /// The proxy's name in Via.
    pub(super) own: &'a str,
    pub(super) client: IpAddr,
    /// The client's side is encrypted.
    pub(super) tls: bool,
}

/// A request that may go on.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: Method,
    /// The destination; `None` in reverse mode.
    pub(super) to: Option<Authority>,
    /// The header section for the server, whole. Empty for [`Method::Connect`].
    pub(super) head: BytesMut,
    pub(super) delimited: Delimited,
    /// The client's connection may go on afterwards.
    pub(super) keep_alive: bool,
    /// The client's minor version: 1 for HTTP/2, too.
    pub(super) minor: u8,
    /// The server may go over to another protocol.
    pub(super) upgrades: bool,
    /// The client authenticates the whole connection.
    pub(super) binds: bool,
    /// OPTIONS for the proxy itself.
    pub(super) for_us: bool,
}

impl Request {
    /// Whether no content follows.
    pub(super) fn is_bare(&self) -> bool {
        matches!(self.delimited, Delimited::Not | Delimited::Length(0))
    }

    /// Whether it says that its content has more octets than `most`.
    pub(super) fn exceeds(&self, most: Option<u64>) -> bool {
        matches!((self.delimited, most), (Delimited::Length(length), Some(most)) if length > most)
    }

    /// Whether it may be sent to a server that may have seen it already (RFC 9110 section 9.2.2).
    pub(super) fn can_be_repeated(&self) -> bool {
        self.delimited == Delimited::Not && self.method.is_idempotent()
    }
}

/// A request-target (RFC 9112 section 3.2), or what HTTP/2 has for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target<'a> {
    Origin(&'a str),
    Absolute { scheme: &'a str, authority: &'a str, path: &'a str },
    Authority(&'a str),
    Asterisk,
}

impl<'a> Target<'a> {
    /// Reads the target of an HTTP/1.1 request.
    pub(super) fn parse(method: Method, text: &'a str) -> Result<Target<'a>, Reason> {
        // Neither spaces nor what is no ASCII, and no fragment (RFC 9112 section 3.2).
        if !text.bytes().all(|c| matches!(c, 0x21..=0x7e) && c != b'#') {
            return Err(Reason::Malformed);
        }
        if method == Method::Connect {
            return Ok(Target::Authority(text));
        }
        if text.starts_with('/') {
            return Ok(Target::Origin(text));
        }
        if text == "*" {
            return if method == Method::Options {
                Ok(Target::Asterisk)
            } else {
                Err(Reason::Malformed)
            };
        }
        let (scheme, rest) = text.split_once("://").ok_or(Reason::Malformed)?;
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        Ok(Target::Absolute { scheme, authority: &rest[..end], path: &rest[end..] })
    }
}

/// What the first line says, whatever the version.
pub(super) struct FirstLine<'a> {
    pub(super) method: &'a str,
    pub(super) target: Target<'a>,
    /// The minor version; `None`: HTTP/2.
    pub(super) minor: Option<u8>,
    /// HTTP/2: content follows, whether a field says so or not.
    pub(super) content: bool,
}

/// Makes the server's request of a client's.
pub(super) fn make<'a, L>(
    context: RequestContext<'_>,
    line: &FirstLine<'_>,
    lines: &L,
) -> Result<Request, Reason>
where
    L: Iterator<Item = Line<'a>> + Clone,
{
    let method = Method::of(line.method.as_bytes());
    let mut gathered = gather(lines.clone(), context.own, true)?;
    if line.content && gathered.delimited == Delimited::Not {
        gathered.delimited = Delimited::Chunked;
    }
    if gathered.looped {
        return Err(Reason::Loop);
    }
    if line.minor == Some(0) && gathered.delimited == Delimited::Chunked {
        // RFC 9112 section 6.1: its framing is faulty.
        return Err(Reason::Framing);
    }
    let (to, path, host) = destination(context, line, method, gathered.host)?;
    let is_forward = matches!(context.settings.mode, Mode::Forward(_));
    let persists = match line.minor {
        // RFC 9112 section 9.3: HTTP/1.0 persists where it is asked to, but not with a proxy.
        Some(0) => gathered.keep_alive && !gathered.close && !is_forward,
        _ => !gathered.close,
    };
    let mut request = Request {
        method,
        to,
        head: BytesMut::new(),
        delimited: gathered.delimited,
        keep_alive: persists,
        minor: line.minor.unwrap_or(1),
        upgrades: false,
        binds: gathered.binds,
        for_us: false,
    };
    match method {
        Method::Trace => return Err(Reason::Method),
        Method::Connect => {
            // RFC 9110 section 9.3.6: content of CONNECT means nothing; with a length it could be anything.
            let is_valid = request.is_bare() || line.minor.is_none();
            return if is_valid { Ok(request) } else { Err(Reason::Framing) };
        }
        _ => {}
    }
    let mut forwards = gathered.max_forwards.filter(|_| method == Method::Options);
    if is_forward && matches!(line.target, Target::Asterisk) || forwards == Some(0) {
        request.for_us = true;
        return Ok(request);
    }
    forwards = forwards.map(|left| left - 1);
    let out = &mut request.head;
    out.reserve(1024);
    out.put_slice(line.method.as_bytes());
    out.put_u8(b' ');
    match path {
        // RFC 9112 section 3.2.4: the last proxy of an OPTIONS request without a path.
        "" if method == Method::Options => out.put_u8(b'*'),
        "" => out.put_u8(b'/'),
        path => {
            if !path.starts_with(['/', '*']) {
                out.put_u8(b'/');
            }
            out.put_slice(path.as_bytes());
        }
    }
    out.put_slice(b" HTTP/1.1\r\n");
    fields::put(out, b"Host", host.as_bytes());
    let forwarded = context.settings.forwarded;
    // RFC 9110 section 10.1.1: an expectation of HTTP/1.0 is none.
    let expects = gathered.expects_continue && line.minor != Some(0);
    gathered.copy(
        lines.clone(),
        |kind| match kind {
            Kind::Other | Kind::Date | Kind::Referer | Kind::UserAgent | Kind::Via => true,
            Kind::Credentials => true,
            Kind::Expect => expects,
            Kind::MaxForwards => forwards.is_none(),
            Kind::Forwarded => forwarded != Forwarded::Replace,
            _ => false,
        },
        out,
    );
    let version = match line.minor {
        None => "2",
        Some(0) => "1.0",
        Some(_) => "1.1",
    };
    put_text(out, "Via", &format!("{version} {}", context.own));
    if let Some(left) = forwards {
        put_text(out, "Max-Forwards", &left.to_string());
    }
    if forwarded != Forwarded::Off {
        let asked = gathered.host.and_then(|it| str::from_utf8(it).ok()).unwrap_or(&host);
        put_forwarded(context, asked, out);
    }
    if line.minor == Some(1)
        && let Some(protocol) = gathered.upgrade(&context.settings.upgrade)
    {
        request.upgrades = true;
        put_text(out, "Connection", "upgrade");
        put_text(out, "Upgrade", protocol);
    }
    match gathered.delimited {
        Delimited::Not => {}
        Delimited::Length(length) => put_text(out, "Content-Length", &length.to_string()),
        Delimited::Chunked => put_text(out, "Transfer-Encoding", "chunked"),
    }
    out.put_slice(b"\r\n");
    Ok(request)
}

/// The destination of a request, the path for the server, and its Host.
fn destination<'a>(
    context: RequestContext<'_>,
    line: &FirstLine<'a>,
    method: Method,
    host: Option<&[u8]>,
) -> Result<(Option<Authority>, &'a str, String), Reason> {
    let default = if context.tls { 443 } else { 80 };
    let host = match host {
        Some(host) => {
            let text = str::from_utf8(host).map_err(|_| Reason::Host)?;
            // RFC 9112 section 3.2: an invalid value is refused, used or not; an empty one is for a target without
            // an authority.
            let read = Authority::parse(text, Some(default));
            if read.is_none() && !(text.is_empty() && method != Method::Connect) {
                return Err(Reason::Host);
            }
            read
        }
        None if line.minor == Some(1) => return Err(Reason::Host),
        None => None,
    };
    match &context.settings.mode {
        Mode::Forward(_) => match line.target {
            Target::Absolute { scheme, authority, path } => {
                if !scheme.eq_ignore_ascii_case("http") {
                    return Err(Reason::Scheme);
                }
                // RFC 9112 section 3.2.2: Host is what the target says, whatever the client's Host said.
                let to = Authority::parse(authority, Some(80)).ok_or(Reason::Host)?;
                let host = to.field(80);
                Ok((Some(to), path, host))
            }
            Target::Authority(authority) => {
                let to = Authority::parse(authority, None).ok_or(Reason::Host)?;
                Ok((Some(to), "", String::new()))
            }
            Target::Asterisk => Ok((None, "*", String::new())),
            // As a server's client would ask: it takes this proxy for the server.
            Target::Origin(_) => Err(Reason::Malformed),
        },
        // A connection that has outlived a reload.
        Mode::Passthrough(_) => Err(Reason::Host),
        Mode::Reverse(reverse) => {
            let (asked, path) = match line.target {
                Target::Origin(path) => (host, path),
                Target::Asterisk => (host, "*"),
                Target::Authority(_) => return Err(Reason::Method),
                Target::Absolute { scheme, authority, path } => {
                    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https")
                    {
                        return Err(Reason::Scheme);
                    }
                    (Some(Authority::parse(authority, Some(default)).ok_or(Reason::Host)?), path)
                }
            };
            let host = match (&reverse.host, asked) {
                (Some(set), _) => set.clone(),
                (None, Some(asked)) => asked.field(default),
                (None, None) => reverse.upstream.first().map(|it| it.field(80)).unwrap_or_default(),
            };
            Ok((None, path, host))
        }
    }
}

fn put_text(out: &mut BytesMut, name: &str, value: &str) {
    fields::put(out, name.as_bytes(), value.as_bytes());
}

/// RFC 7239, and the fields before it.
fn put_forwarded(context: RequestContext<'_>, host: &str, out: &mut BytesMut) {
    let client = context.client;
    let proto = if context.tls { "https" } else { "http" };
    // RFC 7239 section 6: an IPv6 address is in brackets, and quoted.
    let node = match client {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => format!("\"[{v6}]\""),
    };
    put_text(out, "Forwarded", &format!("for={node};proto={proto};host=\"{}\"", host_only(host)));
    put_text(out, "X-Forwarded-For", &client.to_string());
    put_text(out, "X-Forwarded-Proto", proto);
    put_text(out, "X-Forwarded-Host", &host_only(host));
}

/// The normal form of a Host field; empty if it is invalid.
fn host_only(host: &str) -> String {
    Authority::parse(host, Some(80)).map_or_else(String::new, |it| match it.host {
        Host::Name(_) | Host::Address(_) => it.field(80),
    })
}

#[cfg(test)]
mod tests;
