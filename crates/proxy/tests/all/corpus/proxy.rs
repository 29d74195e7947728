//! What must hold of all that the HTTP proxy sends, whatever it was sent: nobody can read it in two ways.

use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroUsize;
use std::time::Duration;

use fordway_serve::Acl;
use fordway_proxy::{
    Authority, Backend, Eyeballs, Forward, Forwarded, Limits, Mode, OWN, Ports, Rehearsed, Reverse, Rules,
    SendProxy, Settings, rehearse, rehearse_response,
};

const CLIENT: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 5));

/// A proxy; the bits of `draw` say which.
fn settings(draw: u8) -> Settings {
    let all = || Ports(vec![1..=u16::MAX]);
    let mode = if draw & 1 == 0 {
        Mode::Forward(Forward { connect_ports: all(), ports: all(), rules: Rules::default() })
    } else {
        Mode::Reverse(Reverse {
            upstream: vec![Authority::from(std::net::SocketAddr::from(([192, 0, 2, 1], 80)))],
            host: (draw & 2 != 0).then(|| "site.example".to_owned()),
            backend: Backend {
                balance: false,
                pause: Duration::from_secs(1),
                send_proxy: SendProxy::Off,
                check: None,
            },
        })
    };
    let limits = Limits { body: (draw & 4 == 0).then_some(100), target: 300, ..Limits::default() };
    Settings {
        name: "fuzz".to_owned(),
        listen: vec![(Ipv6Addr::LOCALHOST, 0).into()],
        threads: NonZeroUsize::MIN,
        mode,
        allow: Acl::new([CLIENT.into()]),
        resolver: None,
        pref64: Vec::new(),
        translated: Vec::new(),
        eyeballs: Eyeballs::default(),
        tls: Vec::new(),
        accept_proxy: Acl::default(),
        http2: draw & 8 == 0,
        via: None,
        forwarded: [Forwarded::Off, Forwarded::Replace, Forwarded::Append]
            [usize::from(draw >> 4) % 3],
        upgrade: vec!["websocket".to_owned()],
        limits: if draw & 128 == 0 { limits } else { Limits { header: 1024, fields: 8, ..limits } },
        log: None,
    }
}

/// The first octet draws the proxy, the others are what a client sends.
pub(crate) fn request(data: &[u8]) {
    let Some((draw, octets)) = data.split_first() else { return };
    let settings = settings(*draw);
    let all = rehearse(&settings, CLIENT, octets);
    let mut sent = Vec::new();
    for (index, one) in all.iter().enumerate() {
        match one {
            Rehearsed::Forwarded { octets, whole: true } => {
                is_one_request(octets);
                sent.push(octets.clone());
            }
            // What is cut short ends the connection to the server; its beginning is one request's.
            Rehearsed::Forwarded { octets, whole: false } => {
                let end = octets.windows(4).position(|it| it == b"\r\n\r\n").unwrap() + 4;
                head(&octets[..end]);
                assert_eq!(index + 1, all.len(), "nothing follows on half a request");
            }
            Rehearsed::Answered => {}
            Rehearsed::Tunnel | Rehearsed::Refused(_) | Rehearsed::Http2 => {
                assert_eq!(index + 1, all.len(), "nothing follows on {one:?}");
            }
        }
    }
    // What has passed once passes again, but for this proxy's own name in it: it is what it was taken for.
    for mut octets in sent {
        let own = OWN.as_bytes();
        while let Some(at) = octets.windows(own.len()).position(|it| it == own) {
            octets[at..at + own.len()].fill(b'x');
        }
        let again = rehearse(&self::settings(1 | 4), CLIENT, &octets);
        assert!(
            !matches!(again.as_slice(), [Rehearsed::Refused("framing" | "coding"), ..])
                && again.len() <= 1,
            "{again:?}"
        );
    }
}

/// The first octet draws the request, the others are what a server sends.
pub(crate) fn response(data: &[u8]) {
    let Some((draw, octets)) = data.split_first() else { return };
    let (is_head, minor) = (draw & 1 != 0, draw >> 1 & 1);
    let Some((sent, whole)) = rehearse_response(octets, is_head, minor) else { return };
    let end = sent.windows(4).position(|it| it == b"\r\n\r\n").expect("a header section") + 4;
    let fields = head(&sent[..end]);
    let status: u16 = std::str::from_utf8(&sent[9..12]).unwrap().parse().unwrap();
    assert!((200..=599).contains(&status), "{status}");
    let content = &sent[end..];
    let (length, coding) = (one(&fields, "content-length"), one(&fields, "transfer-encoding"));
    assert!(length.is_none() || coding.is_none(), "two lengths");
    if is_head || matches!(status, 204 | 304) {
        assert!(content.is_empty() && whole);
    } else if let Some(length) = length {
        let length: u64 = length.parse().unwrap();
        assert!(if whole {
            content.len() as u64 == length
        } else {
            (content.len() as u64) < length
        });
    } else if let Some(coding) = coding {
        assert!(coding == "chunked" && minor == 1);
        if whole {
            dechunk(content, false);
        }
    } else {
        let closes = one(&fields, "connection") == Some("close".to_owned());
        assert!(closes || content.is_empty(), "its end is nowhere");
    }
}

/// Field names in lower case, and their values.
type Fields = Vec<(String, String)>;

/// The only value of a field, or none.
fn one(fields: &Fields, name: &str) -> Option<String> {
    let mut values = fields.iter().filter(|(own, _)| own == name).map(|(_, value)| value.clone());
    let value = values.next();
    assert!(values.next().is_none(), "{name} twice");
    value
}

/// Reads a header section by the letter of RFC 9112, in which there is nothing that a lenient reader would read
/// otherwise: no lone CR or LF, no folded line, no space in front of a colon.
fn head(octets: &[u8]) -> Fields {
    let text = octets.strip_suffix(b"\r\n\r\n").expect("an end");
    let lines = text.split(|octet| *octet == b'\n');
    let lines: Vec<&[u8]> = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line)).collect();
    assert_eq!(lines.len() - 1, text.windows(2).filter(|it| it == b"\r\n").count(), "a lone LF");
    let fields = lines[1..].iter().map(|line| {
        let colon = line.iter().position(|octet| *octet == b':').expect("a colon");
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        let token =
            |octet: &u8| octet.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(octet);
        assert!(!name.is_empty() && name.iter().all(token), "{:?}", String::from_utf8_lossy(line));
        let good = |octet: &u8| *octet == b'\t' || (*octet >= b' ' && *octet != 0x7f);
        assert!(value.iter().all(good), "{:?}", String::from_utf8_lossy(line));
        let value = String::from_utf8_lossy(value.trim_ascii()).into_owned();
        (String::from_utf8_lossy(name).to_ascii_lowercase(), value)
    });
    fields.collect()
}

/// Fields that are a connection's own affair, or a proxy's (RFC 9110 sections 7.6.1 and 11.7).
const HOP: [&str; 8] = [
    "keep-alive",
    "te",
    "trailer",
    "proxy-connection",
    "proxy-authorization",
    "proxy-authenticate",
    "proxy-authentication-info",
    "http2-settings",
];

/// Panics unless these octets are one request for a server, whole, with nothing behind it, however they are read.
pub(crate) fn is_one_request(octets: &[u8]) {
    let end = octets.windows(4).position(|it| it == b"\r\n\r\n").expect("a header section") + 4;
    let fields = head(&octets[..end]);
    let line = octets.split(|octet| *octet == b'\r').next().unwrap();
    let line = std::str::from_utf8(line).expect("a first line of ASCII");
    let words: Vec<&str> = line.split(' ').collect();
    let [method, target, "HTTP/1.1"] = words[..] else { panic!("{line}") };
    assert!(target.starts_with('/') || (method == "OPTIONS" && target == "*"), "{line}");
    assert!(target.bytes().all(|octet| (0x21..=0x7e).contains(&octet)), "{line}");
    assert!(one(&fields, "host").is_some(), "no Host");
    for name in HOP {
        assert!(one(&fields, name).is_none(), "{name} went on");
    }
    let upgrade = one(&fields, "upgrade");
    match one(&fields, "connection") {
        None => assert!(upgrade.is_none()),
        Some(options) => assert!(options == "upgrade" && upgrade.as_deref() == Some("websocket")),
    }
    let via: Vec<&str> =
        fields.iter().filter(|(name, _)| name == "via").map(|(_, value)| value.as_str()).collect();
    assert!(via.last().is_some_and(|last| last.ends_with(OWN)), "{via:?}");
    let content = &octets[end..];
    match (one(&fields, "content-length"), one(&fields, "transfer-encoding")) {
        (Some(_), Some(_)) => panic!("two lengths"),
        (Some(length), None) => {
            assert!(length.bytes().all(|octet| octet.is_ascii_digit()), "{length}");
            assert_eq!(length.parse(), Ok(content.len()));
        }
        (None, Some(coding)) => {
            assert_eq!(coding, "chunked");
            dechunk(content, true);
        }
        (None, None) => assert!(content.is_empty(), "octets behind a request without content"),
    }
}

/// Reads chunks by the letter: sizes alone, CRLF, a trailer section that says nothing about framing, nothing behind it.
fn dechunk(mut octets: &[u8], is_request: bool) {
    loop {
        let end = octets.windows(2).position(|it| it == b"\r\n").expect("a size");
        let (size, rest) = (&octets[..end], &octets[end + 2..]);
        assert!(!size.is_empty() && size.iter().all(u8::is_ascii_hexdigit), "{size:?}");
        let size = usize::from_str_radix(std::str::from_utf8(size).unwrap(), 16).unwrap();
        if size == 0 {
            if rest == b"\r\n" {
                return;
            }
            let trailer = head(&[b"x\r\n", rest].concat());
            let never =
                ["content-length", "transfer-encoding", "host", "connection", "te", "trailer"];
            for name in never {
                assert!(
                    one(&trailer, name).is_none(),
                    "{name} in a trailer section, of a request: {is_request}"
                );
            }
            return;
        }
        assert_eq!(&rest[size..size + 2], b"\r\n");
        octets = &rest[size + 2..];
    }
}
