//! Servers of a site, as one writes them: `192.0.2.10`, `[2001:db8::10]:8080`, `www.example.net:80`.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use crate::value::{is_host, server_name};

/// The port of HTTP.
const PORT: u16 = 80;

/// A server of a site.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ProxyServer {
    /// By its address.
    Address(SocketAddr),
    /// By a name, in lower case, and a port.
    Name(String, u16),
}

/// Why a text names no server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyServerError {
    /// Servers are asked without TLS.
    #[error("\"{0}\" is a URL: a host and a port are wanted")]
    Url(String),
    /// Neither address nor name.
    #[error("\"{0}\" is neither an address nor a name, with a port or without")]
    Host(String),
    /// A server that can't be asked.
    #[error("{0} can't be a server's address")]
    NoHost(IpAddr),
    /// Port 0.
    #[error("port 0 can't be used")]
    Port,
}

impl FromStr for ProxyServer {
    type Err = ProxyServerError;

    fn from_str(text: &str) -> Result<ProxyServer, ProxyServerError> {
        if text.contains("://") {
            return Err(ProxyServerError::Url(text.to_owned()));
        }
        let alone = text.parse().map(|address: IpAddr| SocketAddr::new(address, PORT));
        if let Ok(address) = alone.or_else(|_| text.parse::<SocketAddr>()) {
            return match (is_host(address.ip()), address.port()) {
                (false, _) => Err(ProxyServerError::NoHost(address.ip())),
                (true, 0) => Err(ProxyServerError::Port),
                (true, _) => Ok(ProxyServer::Address(address)),
            };
        }
        let wrong = || ProxyServerError::Host(text.to_owned());
        let (name, port) = match text.split_once(':') {
            Some((name, port)) => (name, port.parse().map_err(|_| wrong())?),
            None => (text, PORT),
        };
        let name = server_name(name).ok_or_else(wrong)?;
        // An address that is written wrongly.
        let number =
            name.rsplit('.').next().is_some_and(|it| it.bytes().all(|c| c.is_ascii_digit()));
        match port {
            0 => Err(ProxyServerError::Port),
            _ if number => Err(wrong()),
            port => Ok(ProxyServer::Name(name, port)),
        }
    }
}

impl fmt::Display for ProxyServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProxyServer::Address(address) => write!(f, "{address}"),
            ProxyServer::Name(name, port) => write!(f, "{name}:{port}"),
        }
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
            ("[2001:db8::10]:81", "[2001:db8::10]:81"),
            ("WWW.Example.net", "www.example.net:80"),
            ("www.example.net:81", "www.example.net:81"),
        ] {
            let server: ProxyServer = text.parse().unwrap();
            assert_eq!(server.to_string(), written);
            assert_eq!(written.parse(), Ok(server));
        }
        for text in
            ["", ":80", "http://a", "0.0.0.0", "ff02::1", "a:0", "a:b", "192.0.2.256", "a b"]
        {
            assert!(text.parse::<ProxyServer>().is_err(), "{text}");
        }
    }
}
