//! Upstream servers, as one writes them: `192.0.2.53`, `tcp://[2001:db8::53]:5353`,
//! `tls://192.0.2.53#dns.example`, `https://192.0.2.53/dns-query#dns.example`.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use crate::value::{is_host, server_name};

/// A server to which questions are passed on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Upstream {
    /// Its address and port.
    pub address: SocketAddr,
    /// How it is asked.
    pub protocol: UpstreamProtocol,
}

/// How an upstream server is asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum UpstreamProtocol {
    /// UDP, and TCP where an answer is truncated.
    Udp,
    /// TCP alone.
    Tcp,
    /// TLS (RFC 7858).
    Tls {
        /// The name in its certificate; `None`: its address has to be there.
        name: Option<String>,
    },
    /// HTTPS (RFC 8484).
    Https {
        /// The name in its certificate; `None`, with an IPv4 address: that has to be there.
        name: Option<String>,
        /// The path in the URL, which begins with `/`.
        path: String,
    },
}

/// Why a text names no upstream server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// The word in front.
    #[error("\"{0}://\" is none of udp://, tcp://, tls:// and https://")]
    Scheme(String),
    /// The address.
    #[error("\"{0}\" is no address, with a port or without")]
    Address(String),
    /// A server that can't be asked.
    #[error("{0} can't be a server's address")]
    NoHost(IpAddr),
    /// Port 0.
    #[error("port 0 can't be used")]
    Port,
    /// A name where no certificate is shown.
    #[error("a name behind # is for tls:// and https://, which show a certificate")]
    NameWithoutTls,
    /// What is no name.
    #[error("\"{0}\" is no name that a certificate could have")]
    Name(String),
    /// HTTPS has no name to ask for.
    #[error("https:// to an IPv6 address needs the server's name behind #")]
    NameNeeded,
    /// A path where there is none.
    #[error("a path is for https:// alone")]
    PathWithoutHttps,
    /// What is no path.
    #[error("\"{0}\" is no path of a URL")]
    Path(String),
}

/// The path that servers usually have (RFC 8484 section 4.1.1 has it in its examples).
const USUAL_PATH: &str = "/dns-query";

impl FromStr for Upstream {
    type Err = UpstreamError;

    fn from_str(text: &str) -> Result<Upstream, UpstreamError> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("udp", text));
        let (rest, name) = match rest.split_once('#') {
            Some((rest, name)) => (rest, Some(name)),
            None => (rest, None),
        };
        let (host, path) = match rest.find('/') {
            Some(at) => (&rest[..at], Some(&rest[at..])),
            None => (rest, None),
        };
        let port = match scheme {
            "udp" | "tcp" => 53,
            "tls" => 853,
            "https" => 443,
            other => return Err(UpstreamError::Scheme(other.to_owned())),
        };
        let address = address(host, port)?;
        let name = name
            .map(|name| server_name(name).ok_or_else(|| UpstreamError::Name(name.to_owned())))
            .transpose()?;
        let is_tls = matches!(scheme, "tls" | "https");
        if name.is_some() && !is_tls {
            return Err(UpstreamError::NameWithoutTls);
        }
        if name.is_none() && scheme == "https" && address.is_ipv6() {
            return Err(UpstreamError::NameNeeded);
        }
        if path.is_some() && scheme != "https" {
            return Err(UpstreamError::PathWithoutHttps);
        }
        let protocol = match scheme {
            "udp" => UpstreamProtocol::Udp,
            "tcp" => UpstreamProtocol::Tcp,
            "tls" => UpstreamProtocol::Tls { name },
            _ => {
                let path = path.filter(|path| *path != "/").unwrap_or(USUAL_PATH);
                if !path.bytes().all(|octet| octet.is_ascii_graphic()) {
                    return Err(UpstreamError::Path(path.to_owned()));
                }
                UpstreamProtocol::Https { name, path: path.to_owned() }
            }
        };
        Ok(Upstream { address, protocol })
    }
}

/// An address with its port in the usual form, or an address alone.
fn address(text: &str, port: u16) -> Result<SocketAddr, UpstreamError> {
    let bad = || UpstreamError::Address(text.to_owned());
    let bracketed = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let address = match bracketed.unwrap_or(text).parse::<IpAddr>() {
        Ok(address) if bracketed.is_none() || address.is_ipv6() => SocketAddr::new(address, port),
        _ => text.parse().map_err(|_| bad())?,
    };
    if address.port() == 0 {
        return Err(UpstreamError::Port);
    }
    if !is_host(address.ip()) {
        return Err(UpstreamError::NoHost(address.ip()));
    }
    Ok(address)
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.address;
        let (scheme, path, name) = match &self.protocol {
            UpstreamProtocol::Udp => return write!(f, "{address}"),
            UpstreamProtocol::Tcp => return write!(f, "tcp://{address}"),
            UpstreamProtocol::Tls { name } => ("tls", "", name),
            UpstreamProtocol::Https { name, path } => ("https", path.as_str(), name),
        };
        write!(f, "{scheme}://{address}{path}")?;
        match name {
            Some(name) => write!(f, "#{name}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_read_as_they_are_written() {
        for (text, written) in [
            ("192.0.2.53", "192.0.2.53:53"),
            ("udp://192.0.2.53", "192.0.2.53:53"),
            ("2001:db8::53", "[2001:db8::53]:53"),
            ("[2001:db8::53]", "[2001:db8::53]:53"),
            ("[2001:db8::53]:5353", "[2001:db8::53]:5353"),
            ("tcp://192.0.2.53", "tcp://192.0.2.53:53"),
            ("tls://192.0.2.53", "tls://192.0.2.53:853"),
            ("tls://2001:db8::53#DNS.example.", "tls://[2001:db8::53]:853#dns.example"),
            ("https://192.0.2.53", "https://192.0.2.53:443/dns-query"),
            ("https://192.0.2.53/q#dns.example", "https://192.0.2.53:443/q#dns.example"),
            ("https://[2001:db8::53]:8443/a/b#a.b", "https://[2001:db8::53]:8443/a/b#a.b"),
        ] {
            let upstream: Upstream = text.parse().unwrap();
            assert_eq!(upstream.to_string(), written);
            assert_eq!(written.parse::<Upstream>().unwrap(), upstream);
        }
    }

    #[test]
    fn what_is_no_server() {
        let bad = |text: &str| text.parse::<Upstream>().unwrap_err();
        assert_eq!(bad("quic://192.0.2.53"), UpstreamError::Scheme("quic".to_owned()));
        for text in ["dns.example", "", "tls://", "[192.0.2.53]", "192.0.2.53:x", "[2001:db8::53"] {
            assert!(matches!(bad(text), UpstreamError::Address(_)), "{text}");
        }
        assert_eq!(bad("192.0.2.53:0"), UpstreamError::Port);
        for text in ["0.0.0.0", "::", "ff02::fb", "224.0.0.251", "255.255.255.255"] {
            assert!(matches!(bad(text), UpstreamError::NoHost(_)), "{text}");
        }
        assert_eq!(bad("192.0.2.53#dns.example"), UpstreamError::NameWithoutTls);
        assert_eq!(bad("https://2001:db8::53"), UpstreamError::NameNeeded);
        assert_eq!(bad("tls://192.0.2.53/dns-query"), UpstreamError::PathWithoutHttps);
        assert!(matches!(bad("https://192.0.2.53/a b"), UpstreamError::Path(_)));
        for text in ["tls://192.0.2.53#", "tls://192.0.2.53#a..b", "tls://192.0.2.53#a b"] {
            assert!(matches!(bad(text), UpstreamError::Name(_)), "{text}");
        }
    }
}
