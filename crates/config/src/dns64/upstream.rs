//! Upstream servers, as one writes them: `192.0.2.53`, `tcp://[2001:db8::53]:5353`,
//! `tls://192.0.2.53#dns.example`, `https://192.0.2.53/dns-query#dns.example`.

use std::net::{IpAddr, SocketAddr};

use fordway_resolver::{Protocol, Server};

use crate::value::{is_host, server_name};

/// The path that servers usually have (RFC 8484 section 4.1.1 has it in its examples).
const USUAL_PATH: &str = "/dns-query";

/// Reads a server; the error is a sentence.
pub(crate) fn parse(text: &str) -> Result<Server, String> {
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
        other => {
            return Err(format!("\"{other}://\" is none of udp://, tcp://, tls:// and https://"));
        }
    };
    let address = address(host, port)?;
    let no_name = |name| format!("\"{name}\" is no name that a certificate could have");
    let name = name.map(|name| server_name(name).ok_or_else(|| no_name(name))).transpose()?;
    let is_tls = matches!(scheme, "tls" | "https");
    if name.is_some() && !is_tls {
        let text = "a name behind # is for tls:// and https://, which show a certificate";
        return Err(text.to_owned());
    }
    if name.is_none() && scheme == "https" && address.is_ipv6() {
        let text = "https:// to an IPv6 address needs the server's name behind #";
        return Err(text.to_owned());
    }
    if path.is_some() && scheme != "https" {
        return Err("a path is for https:// alone".to_owned());
    }
    let protocol = match scheme {
        "udp" => Protocol::Udp,
        "tcp" => Protocol::Tcp,
        "tls" => Protocol::Tls { name },
        _ => {
            let path = path.filter(|path| *path != "/").unwrap_or(USUAL_PATH);
            if !path.bytes().all(|octet| octet.is_ascii_graphic()) {
                return Err(format!("\"{path}\" is no path of a URL"));
            }
            Protocol::Https { name, path: path.to_owned() }
        }
    };
    Ok(Server { address, protocol })
}

/// An address with its port in the usual form, or an address alone.
fn address(text: &str, port: u16) -> Result<SocketAddr, String> {
    let bad = || format!("\"{text}\" is no address, with a port or without");
    let bracketed = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let address = match bracketed.unwrap_or(text).parse::<IpAddr>() {
        Ok(address) if bracketed.is_none() || address.is_ipv6() => SocketAddr::new(address, port),
        _ => text.parse().map_err(|_| bad())?,
    };
    if address.port() == 0 {
        return Err("port 0 can't be used".to_owned());
    }
    if !is_host(address.ip()) {
        return Err(format!("{} can't be a server's address", address.ip()));
    }
    Ok(address)
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
            let upstream = parse(text).unwrap();
            assert_eq!(upstream.to_string(), written);
            assert_eq!(parse(written).unwrap(), upstream);
        }
    }

    #[test]
    fn what_is_no_server() {
        let bad = |text: &str| parse(text).unwrap_err();
        assert!(bad("quic://192.0.2.53").starts_with("\"quic://\" is none of "));
        for text in ["dns.example", "", "tls://", "[192.0.2.53]", "192.0.2.53:x", "[2001:db8::53"] {
            assert!(bad(text).ends_with(" is no address, with a port or without"), "{text}");
        }
        assert_eq!(bad("192.0.2.53:0"), "port 0 can't be used");
        for text in ["0.0.0.0", "::", "ff02::fb", "224.0.0.251", "255.255.255.255"] {
            assert!(bad(text).ends_with(" can't be a server's address"), "{text}");
        }
        assert!(bad("192.0.2.53#dns.example").starts_with("a name behind # is for tls://"));
        assert!(bad("https://2001:db8::53").ends_with("needs the server's name behind #"));
        assert_eq!(bad("tls://192.0.2.53/dns-query"), "a path is for https:// alone");
        assert_eq!(bad("https://192.0.2.53/a b"), "\"/a b\" is no path of a URL");
        for text in ["tls://192.0.2.53#", "tls://192.0.2.53#a..b", "tls://192.0.2.53#a b"] {
            assert!(bad(text).ends_with(" is no name that a certificate could have"), "{text}");
        }
    }
}
