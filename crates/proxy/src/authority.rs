//! The host and port of a request-target or a Host field.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The longest name, without the dot at its end (RFC 1035 section 2.3.4).
const MAX_NAME: usize = 253;
/// The longest label.
const MAX_LABEL: usize = 63;

/// A host as a request or the configuration names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// A name in lower case, without a dot at its end.
    Name(String),
    /// An address.
    Address(IpAddr),
}

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Authority {
    /// The host.
    pub host: Host,
    /// The port.
    pub port: u16,
}

impl Host {
    /// Reads `reg-name`, `IPv4address` or `IP-literal` (RFC 3986 section 3.2.2); `None` if it is none that can be
    /// asked. Strict: whatever others may read as an address, such as `0x7f.1` or `2130706433`, is no name here.
    pub fn parse(text: &str) -> Option<Host> {
        if let Some(literal) = text.strip_prefix('[') {
            // No zone (RFC 6874): it would mean something on this host only.
            let address: Ipv6Addr = literal.strip_suffix(']')?.parse().ok()?;
            return Some(Host::Address(address.into()));
        }
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Some(Host::Address(address.into()));
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        let good = |label: &str| {
            let octets = label.as_bytes();
            (1..=MAX_LABEL).contains(&octets.len())
                && octets.iter().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_'))
        };
        if name.len() > MAX_NAME || !name.split('.').all(good) {
            return None;
        }
        let last = name.rsplit('.').next().unwrap_or_default();
        let number = last.bytes().all(|c| c.is_ascii_digit());
        let hexadecimal = last.get(..2).is_some_and(|front| front.eq_ignore_ascii_case("0x"));
        (!number && !hexadecimal).then(|| Host::Name(name.to_ascii_lowercase()))
    }
}

impl Authority {
    /// Reads `host [ ":" port ]`; without a port it is `default`. Port 0 is none.
    pub fn parse(text: &str, default: Option<u16>) -> Option<Authority> {
        // The colons of an IPv6 address lie in brackets.
        let end = text.rfind(']').map_or(0, |at| at + 1);
        let (host, port) = match text.get(end..)?.find(':') {
            Some(colon) => (&text[..end + colon], Some(&text[end + colon + 1..])),
            None => (text, None),
        };
        let port = match port {
            // RFC 3986 section 3.2.3: an empty port is the default one.
            None | Some("") => default?,
            Some(digits) if digits.len() <= 5 && digits.bytes().all(|c| c.is_ascii_digit()) => {
                digits.parse().ok().filter(|port| *port > 0)?
            }
            Some(_) => return None,
        };
        Some(Authority { host: Host::parse(host)?, port })
    }

    /// As a Host field has it: without the port, if it is this one.
    pub fn field(&self, default: u16) -> String {
        if self.port == default { self.host.to_string() } else { self.to_string() }
    }
}

impl From<SocketAddr> for Authority {
    fn from(address: SocketAddr) -> Authority {
        Authority { host: Host::Address(address.ip()), port: address.port() }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Name(name) => f.write_str(name),
            Host::Address(IpAddr::V4(address)) => write!(f, "{address}"),
            Host::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<String> {
        Authority::parse(text, Some(80)).map(|it| it.to_string())
    }

    #[test]
    fn hosts_and_ports() {
        for (text, expected) in [
            ("example.net", "example.net:80"),
            ("Example.NET.", "example.net:80"),
            ("example.net:", "example.net:80"),
            ("example.net:8080", "example.net:8080"),
            ("192.0.2.1:81", "192.0.2.1:81"),
            ("[2001:DB8::1]", "[2001:db8::1]:80"),
            ("[2001:db8::1]:443", "[2001:db8::1]:443"),
            ("under_score.example", "under_score.example:80"),
        ] {
            assert_eq!(read(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_host_or_could_be_read_as_another() {
        for text in [
            "",
            ".",
            ":80",
            "a..b",
            "user@example.net",
            "example.net:0",
            "example.net:65536",
            "example.net:+80",
            "example.net:80:80",
            "exa mple.net",
            "example.net/",
            "ex%61mple.net",
            "2001:db8::1",
            "[2001:db8::1",
            "[fe80::1%25eth0]",
            "[fe80::1%eth0]",
            "[2001:db8::1]x:80",
            "[192.0.2.1]",
            // Ways of writing 127.0.0.1 (and the like) that some resolvers know.
            "127.1",
            "2130706433",
            "0x7f000001",
            "0x7f.1",
            "0177.0.0.1",
            "127.0.0.0x1",
            "192.0.2.256",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(read(&format!("{}.example", "a".repeat(64))), None);
        assert_eq!(read(&["a"; 128].join(".")), None);
        assert_eq!(Authority::parse("example.net", None), None);
    }

    #[test]
    fn the_field_leaves_the_usual_port_out() {
        let field = |text: &str| Authority::parse(text, Some(80)).unwrap().field(80);
        assert_eq!(field("example.net:80"), "example.net");
        assert_eq!(field("[2001:db8::1]:81"), "[2001:db8::1]:81");
    }
}
