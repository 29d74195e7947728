//! How a probe's TCP gets to the server: by itself, through a proxy that it knows, or as a request to a site.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use super::TCP_PORT;

/// How long a connection, or an answer, may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(4);

/// What is said of who says nothing.
pub(super) const SILENCE: &str = "no answer";

/// Octets of a proxy's answer at most.
const HEAD: usize = 4096;

/// The way to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// To its address.
    Direct,
    /// Through this proxy, by CONNECT (RFC 9110 section 9.3.6).
    Through(SocketAddr),
    /// By HTTP, to whoever answers for it.
    Site,
}

impl Way {
    /// By what the options say.
    pub(crate) fn of(proxy: Option<SocketAddr>, site: bool) -> Self {
        match proxy {
            Some(proxy) => Self::Through(proxy),
            None if site => Self::Site,
            None => Self::Direct,
        }
    }

    /// Connects to the payload check of a host: by address, or where a proxy is asked, by name.
    pub(super) fn connect(self, host: &str) -> Result<TcpStream, String> {
        match self {
            Self::Through(proxy) => tunnel(proxy, host, TCP_PORT),
            Self::Direct | Self::Site => {
                let address: IpAddr = host.parse().map_err(|_| format!("{host}: no address"))?;
                open((address, TCP_PORT).into())
            }
        }
    }
}

/// A connection with time limits.
pub(super) fn open(to: SocketAddr) -> Result<TcpStream, String> {
    let connect = || -> std::io::Result<TcpStream> {
        let stream = TcpStream::connect_timeout(&to, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(stream)
    };
    connect().map_err(|error| match words(&error) {
        silent if silent == SILENCE => format!("{silent} within {} s", PATIENCE.as_secs()),
        said => said,
    })
}

fn tunnel(proxy: SocketAddr, host: &str, port: u16) -> Result<TcpStream, String> {
    let mut stream = open(proxy).map_err(|error| format!("the proxy: {error}"))?;
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let request = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(|error| words(&error))?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut octet = [0];
        stream.read_exact(&mut octet).map_err(|error| format!("the proxy: {}", words(&error)))?;
        head.push(octet[0]);
        if head.len() > HEAD {
            return Err("the proxy's answer has no end".into());
        }
    }
    let said = String::from_utf8_lossy(&head);
    let line = said.lines().next().unwrap_or_default();
    if line.split(' ').nth(1).is_some_and(|status| status.starts_with('2')) {
        Ok(stream)
    } else {
        Err(format!("the proxy says: {line}"))
    }
}

/// What a socket's error means to who reads a table.
pub(super) fn words(error: &std::io::Error) -> String {
    use std::io::ErrorKind::{ConnectionRefused, NetworkUnreachable, TimedOut, WouldBlock};
    match error.kind() {
        WouldBlock | TimedOut => SILENCE.into(),
        ConnectionRefused => "connection refused".into(),
        NetworkUnreachable => "network unreachable".into(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// A proxy on the loopback that gives one answer, and what it was asked.
    fn proxy(answer: &'static str) -> (SocketAddr, std::thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut buffer = [0; 512];
            let length = stream.read(&mut buffer).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8_lossy(&buffer[..length]).into_owned()
        });
        (address, asked)
    }

    #[test]
    fn a_tunnel_is_asked_for_and_what_follows_belongs_to_it() {
        let (address, asked) = proxy("HTTP/1.1 200 Well\r\nVia: a\r\n\r\nx");
        let mut stream = Way::of(Some(address), false).connect("2001:db8::1").unwrap();
        let mut octet = [0];
        stream.read_exact(&mut octet).unwrap();
        assert_eq!(octet, *b"x");
        assert!(asked.join().unwrap().starts_with("CONNECT [2001:db8::1]:5301 HTTP/1.1\r\n"));
    }

    #[test]
    fn a_proxy_that_refuses_is_quoted() {
        let (address, asked) = proxy("HTTP/1.1 403 Forbidden\r\n\r\n");
        let error = Way::Through(address).connect("www.example").unwrap_err();
        assert_eq!(error, "the proxy says: HTTP/1.1 403 Forbidden");
        assert!(asked.join().unwrap().contains("www.example:5301"));
    }
}
