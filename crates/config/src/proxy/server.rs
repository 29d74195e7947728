//! Servers of a site, as one writes them: `192.0.2.10`, `[2001:db8::10]:8080`, `www.example.net:80`.

use std::net::{IpAddr, SocketAddr};

use fordway_proxy::{Authority, Host};

use crate::value::{is_host, server_name};

const PORT_ZERO: &str = "port 0 can't be used";

/// Reads a server of a site, with this `port` unless another is written; the error is a sentence.
pub(crate) fn parse(text: &str, port: u16) -> Result<Authority, String> {
    if text.contains("://") {
        return Err(format!("\"{text}\" is a URL: a host and a port are wanted"));
    }
    let alone = match text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(v6) => v6.parse().map(IpAddr::V6),
        None => text.parse(),
    };
    let alone = alone.map(|address| SocketAddr::new(address, port));
    if let Ok(address) = alone.or_else(|_| text.parse::<SocketAddr>()) {
        return match (is_host(address.ip()), address.port()) {
            (false, _) => Err(format!("{} can't be a server's address", address.ip())),
            (true, 0) => Err(PORT_ZERO.to_owned()),
            (true, _) => Ok(address.into()),
        };
    }
    let wrong = || format!("\"{text}\" is neither an address nor a name, with a port or without");
    let (name, port) = match text.split_once(':') {
        Some((name, port)) => (name, port.parse().map_err(|_| wrong())?),
        None => (text, port),
    };
    let name = server_name(name).ok_or_else(wrong)?;
    // An address that is written wrongly.
    let number = name.rsplit('.').next().is_some_and(|it| it.bytes().all(|c| c.is_ascii_digit()));
    match port {
        0 => Err(PORT_ZERO.to_owned()),
        _ if number => Err(wrong()),
        port => Ok(Authority { host: Host::Name(name), port }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names() {
        for (text, written) in [
            ("192.0.2.10", "192.0.2.10:80"),
            ("192.0.2.10:8080", "192.0.2.10:8080"),
            ("2001:db8::10", "[2001:db8::10]:80"),
            ("[2001:db8::10]", "[2001:db8::10]:80"),
            ("[2001:db8::10]:81", "[2001:db8::10]:81"),
            ("WWW.Example.net", "www.example.net:80"),
            ("www.example.net:81", "www.example.net:81"),
        ] {
            let server = parse(text, 80).unwrap();
            assert_eq!(server.to_string(), written);
            assert_eq!(parse(written, 443), Ok(server));
        }
        for text in [
            "",
            ":80",
            "http://a",
            "0.0.0.0",
            "ff02::1",
            "[192.0.2.1]",
            "a:0",
            "a:b",
            "192.0.2.256",
            "a b",
        ] {
            assert!(parse(text, 80).is_err(), "{text}");
        }
    }
}
