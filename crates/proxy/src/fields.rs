//! Header fields as an intermediary sees them: those of this connection, and those that are forwarded.

use bytes::{BufMut, BytesMut};

use super::reason::Reason;

/// Octets of the longest name that has a [`Kind`].
const LONGEST_KNOWN: usize = 25;

/// A field line: name and value.
pub(super) type Line<'a> = (&'a [u8], &'a [u8]);

/// The meaning of a field for an intermediary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Host,
    ContentLength,
    TransferEncoding,
    Connection,
    Upgrade,
    Expect,
    Via,
    MaxForwards,
    /// About one connection, whether Connection says so or not (RFC 9110 section 7.6.1), or for a proxy alone
    /// (section 11.7).
    Hop,
    /// The client's address according to a proxy in front: `X-Forwarded-*`, `Forwarded`, `X-Real-IP`, and others that
    /// servers trust.
    Forwarded,
    /// Such a name, or one of those that delimit messages, with `_` in the place of `-`: CGI and its successors do not
    /// distinguish the two (RFC 3875 section 4.1.18).
    Disguised,
    /// Authentication of a client, and challenges.
    Credentials,
    Date,
    Referer,
    UserAgent,
    Other,
}

impl Kind {
    pub(super) fn of(name: &[u8]) -> Kind {
        let mut room = [0; LONGEST_KNOWN];
        let Some(lower) = lower(name, &mut room) else { return Kind::Other };
        if !name.contains(&b'_') {
            return Kind::known(lower);
        }
        lower.iter_mut().filter(|c| **c == b'_').for_each(|c| *c = b'-');
        match Kind::known(lower) {
            Kind::Forwarded
            | Kind::Host
            | Kind::ContentLength
            | Kind::TransferEncoding
            | Kind::Connection
            | Kind::Hop => Kind::Disguised,
            _ => Kind::Other,
        }
    }

    /// The kind of a name in lower case.
    fn known(name: &[u8]) -> Kind {
        match name {
            b"host" => Kind::Host,
            b"content-length" => Kind::ContentLength,
            b"transfer-encoding" => Kind::TransferEncoding,
            b"connection" => Kind::Connection,
            b"upgrade" => Kind::Upgrade,
            b"expect" => Kind::Expect,
            b"via" => Kind::Via,
            b"max-forwards" => Kind::MaxForwards,
            b"te" | b"trailer" | b"keep-alive" | b"http2-settings" | b"proxy-connection" => {
                Kind::Hop
            }
            b"proxy-authenticate" | b"proxy-authorization" | b"proxy-authentication-info" => {
                Kind::Hop
            }
            b"forwarded" | b"client-ip" | b"x-real-ip" | b"x-client-ip" | b"true-client-ip"
            | b"x-forwarded-by" | b"x-forwarded-for" | b"cf-connecting-ip"
            | b"fastly-client-ip" | b"x-forwarded-host" | b"x-forwarded-port"
            | b"x-forwarded-proto" => Kind::Forwarded,
            b"x-cluster-client-ip" => Kind::Forwarded,
            b"authorization" | b"www-authenticate" => Kind::Credentials,
            b"date" => Kind::Date,
            b"referer" => Kind::Referer,
            b"user-agent" => Kind::UserAgent,
            _ => Kind::Other,
        }
    }
}

/// How a message's content is delimited by its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Delimited {
    /// No field says so.
    #[default]
    Not,
    /// Content-Length.
    Length(u64),
    /// Transfer-Encoding: chunked, and nothing else.
    Chunked,
}

/// What an intermediary reads from a header section.
#[derive(Debug, Default)]
pub(super) struct Gathered<'a> {
    pub(super) host: Option<&'a [u8]>,
    pub(super) delimited: Delimited,
    pub(super) close: bool,
    pub(super) keep_alive: bool,
    /// Connection has the option `upgrade`.
    upgrade_option: bool,
    upgrade: Vec<&'a [u8]>,
    pub(super) expects_continue: bool,
    pub(super) max_forwards: Option<u64>,
    pub(super) has_date: bool,
    /// A client authenticates once for a whole connection, or is asked to: NTLM, Negotiate (RFC 4559).
    pub(super) binds: bool,
    /// This proxy has forwarded the message before.
    pub(super) looped: bool,
    /// Fields that Connection names.
    named: Vec<&'a [u8]>,
}

/// What makes a header section unusable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wrong {
    Host,
    Framing,
    Coding,
    Expectation,
}

impl From<Wrong> for Reason {
    /// For requests.
    fn from(wrong: Wrong) -> Reason {
        match wrong {
            Wrong::Host => Reason::Host,
            Wrong::Framing => Reason::Framing,
            Wrong::Coding => Reason::Coding,
            Wrong::Expectation => Reason::Expectation,
        }
    }
}

/// Reads what is for this intermediary. `own`: its name in Via.
pub(super) fn gather<'a>(
    lines: impl Iterator<Item = Line<'a>>,
    own: &str,
    is_request: bool,
) -> Result<Gathered<'a>, Wrong> {
    let mut all = Gathered::default();
    let (mut length, mut codings) = (None, Vec::new());
    for (name, value) in lines {
        match Kind::of(name) {
            // RFC 9112 section 3.2: a request with more than one is refused.
            Kind::Host if is_request && all.host.is_some() => return Err(Wrong::Host),
            Kind::Host => all.host = Some(value.trim_ascii()),
            Kind::ContentLength => {
                let read = digits(value).ok_or(Wrong::Framing)?;
                // RFC 9110 section 8.6: the same value again might be taken; in a request it is a sign of something
                // else.
                if length.is_some_and(|before| is_request || before != read) {
                    return Err(Wrong::Framing);
                }
                length = Some(read);
            }
            Kind::TransferEncoding => codings.extend(tokens(value)),
            Kind::Connection => {
                for option in tokens(value) {
                    match option {
                        it if it.eq_ignore_ascii_case(b"close") => all.close = true,
                        it if it.eq_ignore_ascii_case(b"keep-alive") => all.keep_alive = true,
                        it if it.eq_ignore_ascii_case(b"upgrade") => all.upgrade_option = true,
                        it => all.named.push(it),
                    }
                }
            }
            Kind::Upgrade => all.upgrade.extend(tokens(value)),
            Kind::Expect if is_request => {
                if !value.trim_ascii().eq_ignore_ascii_case(b"100-continue") {
                    return Err(Wrong::Expectation);
                }
                all.expects_continue = true;
            }
            Kind::MaxForwards => all.max_forwards = digits(value),
            Kind::Via => all.looped |= tokens(value).any(|it| is_by(it, own)),
            Kind::Date => all.has_date = true,
            Kind::Credentials => all.binds |= is_of_connection(value),
            Kind::Expect
            | Kind::Hop
            | Kind::Forwarded
            | Kind::Disguised
            | Kind::Referer
            | Kind::UserAgent
            | Kind::Other => {}
        }
    }
    all.delimited = delimited(length, &codings)?;
    Ok(all)
}

/// Whether credentials, or a challenge, are for a connection instead of a request.
fn is_of_connection(value: &[u8]) -> bool {
    let scheme = value.trim_ascii_start().split(|c| *c == b' ' || *c == b',').next();
    let schemes: [&[u8]; 2] = [b"ntlm", b"negotiate"];
    scheme.is_some_and(|scheme| schemes.iter().any(|it| it.eq_ignore_ascii_case(scheme)))
}

/// RFC 9112 section 6.3. A message with both fields might be read differently by another recipient: it is refused.
fn delimited(length: Option<u64>, codings: &[&[u8]]) -> Result<Delimited, Wrong> {
    let is_chunked = |coding: &&[u8]| coding.eq_ignore_ascii_case(b"chunked");
    match (length, codings) {
        (None, []) => Ok(Delimited::Not),
        (Some(length), []) => Ok(Delimited::Length(length)),
        (Some(_), _) => Err(Wrong::Framing),
        (None, [coding]) if is_chunked(coding) => Ok(Delimited::Chunked),
        // Chunked must be last, and once.
        (None, [front @ .., last]) if is_chunked(last) && !front.iter().any(is_chunked) => {
            Err(Wrong::Coding)
        }
        (None, _) => Err(Wrong::Framing),
    }
}

impl Gathered<'_> {
    /// The protocol that both sides may go over to: the first one that is asked for and allowed.
    pub(super) fn upgrade<'s>(&self, allowed: &'s [String]) -> Option<&'s str> {
        let asked = self.upgrade.iter().filter(|_| self.upgrade_option);
        let mut found = asked.filter_map(|protocol| {
            allowed.iter().find(|it| it.as_bytes().eq_ignore_ascii_case(protocol))
        });
        found.next().map(String::as_str)
    }

    /// Writes the fields that are forwarded: those of a [`Kind`] that `keeps` allows, without those that Connection
    /// names.
    pub(super) fn copy<'a>(
        &self,
        lines: impl Iterator<Item = Line<'a>>,
        keeps: impl Fn(Kind) -> bool,
        out: &mut BytesMut,
    ) {
        for (name, value) in lines {
            if keeps(Kind::of(name)) && !self.named.iter().any(|it| it.eq_ignore_ascii_case(name)) {
                put(out, name, value);
            }
        }
    }
}

/// Writes a field line.
pub(super) fn put(out: &mut BytesMut, name: &[u8], value: &[u8]) {
    out.reserve(name.len() + value.len() + 4);
    out.put_slice(name);
    out.put_slice(b": ");
    out.put_slice(value);
    out.put_slice(b"\r\n");
}

/// A name in lower case; `None`: it is longer than any that is known here.
fn lower<'a>(name: &[u8], room: &'a mut [u8; LONGEST_KNOWN]) -> Option<&'a mut [u8]> {
    let lower = room.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    Some(lower)
}

/// Fields that mean nothing, or harm, behind the content (RFC 9110 section 6.5.1).
pub(super) fn may_trail(name: &[u8]) -> bool {
    let mut room = [0; LONGEST_KNOWN];
    match lower(name, &mut room).as_deref().unwrap_or_default() {
        b"content-encoding" | b"content-type" | b"content-range" | b"content-location" => false,
        b"cookie" | b"set-cookie" | b"cache-control" | b"pragma" | b"age" | b"expires"
        | b"vary" | b"warning" | b"location" | b"retry-after" => false,
        b"range" | b"if-match" | b"if-none-match" | b"if-modified-since" | b"if-range" => false,
        b"if-unmodified-since" => false,
        _ => Kind::of(name) == Kind::Other,
    }
}

/// `1*DIGIT` that fits.
fn digits(value: &[u8]) -> Option<u64> {
    let value = value.trim_ascii();
    let good = (1..=19).contains(&value.len()) && value.iter().all(u8::is_ascii_digit);
    good.then(|| value.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}

/// The elements of a list (RFC 9110 section 5.6.1); empty ones are left out.
fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|c| *c == b',').map(<[u8]>::trim_ascii).filter(|it| !it.is_empty())
}

/// Whether an element of Via was written by `own`.
fn is_by(element: &[u8], own: &str) -> bool {
    let mut words = element.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    words.nth(1).is_some_and(|by| by.eq_ignore_ascii_case(own.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<'a>(lines: &'a [(&'a str, &'a str)]) -> Result<Gathered<'a>, Wrong> {
        gather(octets(lines), "me", true)
    }

    fn octets<'a>(lines: &'a [(&'a str, &'a str)]) -> impl Iterator<Item = Line<'a>> {
        lines.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()))
    }

    #[test]
    fn lengths() {
        let one = |name, value| read(&[(name, value)]).map(|it| it.delimited);
        assert_eq!(one("content-length", "42"), Ok(Delimited::Length(42)));
        assert_eq!(one("Transfer-Encoding", "Chunked"), Ok(Delimited::Chunked));
        assert_eq!(one("Accept", "*/*"), Ok(Delimited::Not));
        for value in ["", "+1", "-1", "1 1", "1,1", "0x1", "1.0", "18446744073709551616", "\u{b2}"]
        {
            assert_eq!(one("Content-Length", value), Err(Wrong::Framing), "{value}");
        }
        for value in
            ["", ",", "identity", "chunked, gzip", "chunked, chunked", "xchunked", "chunked;q=1"]
        {
            let expected = if value.trim_matches(',').is_empty() {
                Ok(Delimited::Not)
            } else {
                Err(Wrong::Framing)
            };
            assert_eq!(one("Transfer-Encoding", value), expected, "{value}");
        }
        assert_eq!(one("Transfer-Encoding", "gzip, chunked"), Err(Wrong::Coding));
        let both = [("Content-Length", "4"), ("Transfer-Encoding", "chunked")];
        assert_eq!(read(&both).map(|_| ()), Err(Wrong::Framing));
        let twice = [("Content-Length", "4"), ("Content-Length", "4")];
        assert_eq!(read(&twice).map(|_| ()), Err(Wrong::Framing));
        let response = gather(octets(&twice), "me", false).unwrap();
        assert_eq!(response.delimited, Delimited::Length(4));
        let two = [("Transfer-Encoding", "chunked"), ("Transfer-Encoding", "chunked")];
        assert_eq!(read(&two).map(|_| ()), Err(Wrong::Framing));
    }

    #[test]
    fn what_concerns_a_connection_stays_there() {
        let lines = [
            ("Connection", "close, X-Mine,upgrade"),
            ("Keep-Alive", "timeout=5"),
            ("TE", "trailers"),
            ("Proxy-Authorization", "Basic eDp5"),
            ("x-mine", "1"),
            ("X-Yours", "2"),
            ("Upgrade", "h2c, WebSocket"),
        ];
        let gathered = read(&lines).unwrap();
        assert!(gathered.close && !gathered.keep_alive);
        assert_eq!(gathered.upgrade(&["websocket".to_owned()]), Some("websocket"));
        assert_eq!(gathered.upgrade(&[]), None);
        let mut out = BytesMut::new();
        gathered.copy(octets(&lines), |kind| kind == Kind::Other, &mut out);
        assert_eq!(out, "X-Yours: 2\r\n");
        // Without the option, Upgrade means nothing (RFC 9110 section 7.8).
        let alone = [("Upgrade", "websocket")];
        assert_eq!(read(&alone).unwrap().upgrade(&["websocket".to_owned()]), None);
    }

    #[test]
    fn loops_hosts_and_expectations() {
        assert!(read(&[("Via", "1.1 other, HTTP/1.1 ME (comment)")]).unwrap().looped);
        assert!(!read(&[("Via", "1.1 mean, 1.0 other")]).unwrap().looped);
        assert_eq!(read(&[("Host", "a"), ("host", "a")]).map(|_| ()), Err(Wrong::Host));
        assert!(read(&[("Expect", "100-Continue")]).unwrap().expects_continue);
        assert_eq!(read(&[("Expect", "200-ok")]).map(|_| ()), Err(Wrong::Expectation));
        assert_eq!(read(&[("Max-Forwards", "3")]).unwrap().max_forwards, Some(3));
    }

    #[test]
    fn who_the_client_is_has_many_names() {
        for name in
            ["X-Forwarded-For", "X_Forwarded_For", "x_forwarded-for", "X_REAL_IP", "client_ip"]
        {
            assert!(matches!(kind(name), Kind::Forwarded | Kind::Disguised), "{name}");
        }
        for name in ["CF-Connecting-IP", "True-Client-IP", "X-Client-IP", "X-Cluster-Client-IP"] {
            assert_eq!(kind(name), Kind::Forwarded, "{name}");
        }
        for name in ["Content_Length", "Transfer_Encoding", "Host", "proxy_authorization"] {
            assert_ne!(kind(name), Kind::Other, "{name}");
        }
        for name in ["X_Forwarded_Nonsense", "my_field", "_", ""] {
            assert_eq!(kind(name), Kind::Other, "{name}");
        }
    }

    fn kind(name: &str) -> Kind {
        Kind::of(name.as_bytes())
    }
}
