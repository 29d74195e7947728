//! Both ends of a client's connection, and the PROXY protocol, which tells them to servers and is told by proxies in
//! front of this one (the specification of HAProxy, versions 1 and 2).

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use proxy_header::{Error, ParseConfig, Protocol, ProxiedAddress, ProxyHeader};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::settings::SendProxy;

/// Longest header that is read, in octets: version 2 with some additions, of which none is used.
const LONGEST: usize = 1024;

/// The client's address and the one that it connected to, both without the form that IPv4 has in IPv6 sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) client: SocketAddr,
    pub(super) local: SocketAddr,
}

/// No header, or none of the specification.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoHeader;

impl Ends {
    /// Those of a socket; one whose client has gone meanwhile may have no address of its own.
    pub(super) fn of(stream: &TcpStream, peer: SocketAddr) -> Ends {
        let local = stream.local_addr().unwrap_or(peer);
        Ends { client: canonical(peer), local: canonical(local) }
    }

    pub(super) fn address(&self) -> IpAddr {
        self.client.ip()
    }

    /// What a server is told first; `None`: nothing.
    pub(super) fn header(&self, version: SendProxy) -> Option<Vec<u8>> {
        let (client, local) = match (self.client, self.local) {
            // One family for both, as the header has it.
            (SocketAddr::V4(_), SocketAddr::V6(_)) | (SocketAddr::V6(_), SocketAddr::V4(_)) => {
                (mapped(self.client), mapped(self.local))
            }
            same => same,
        };
        encode(&ProxyHeader::with_address(ProxiedAddress::stream(client, local)), version)
    }

    /// Reads the header at the beginning of a connection, and nothing behind it. One without addresses (`LOCAL`,
    /// `UNKNOWN`: the proxy in front has connected for itself) leaves the ends as they are.
    pub(super) async fn told(self, stream: &mut TcpStream) -> Result<Ends, NoHeader> {
        let mut header = Vec::new();
        loop {
            let mut seen = [0; LONGEST];
            let room = LONGEST - header.len();
            let count = stream.peek(&mut seen[..room]).await.map_err(|_| NoHeader)?;
            if count == 0 {
                return Err(NoHeader);
            }
            let before = header.len();
            header.extend_from_slice(&seen[..count]);
            let parsed = self.parse(&header)?;
            // What was seen is the header's, as far as it goes.
            let taken = parsed.map_or(count, |(_, len)| len - before);
            stream.read_exact(&mut seen[..taken]).await.map_err(|_| NoHeader)?;
            match parsed {
                Some((ends, _)) => return Ok(ends),
                None if header.len() >= LONGEST => return Err(NoHeader),
                None => {}
            }
        }
    }

    /// The ends that a header tells, and its length; `None`: more octets are needed.
    fn parse(self, octets: &[u8]) -> Result<Option<(Ends, usize)>, NoHeader> {
        let config = ParseConfig { include_tlvs: false, allow_v1: true, allow_v2: true };
        match ProxyHeader::parse(octets, config) {
            Ok((header, len)) => match header.proxied_address() {
                Some(told) if told.protocol == Protocol::Stream => {
                    let (client, local) = (canonical(told.source), canonical(told.destination));
                    Ok(Some((Ends { client, local }, len)))
                }
                Some(_) => Err(NoHeader),
                None => Ok(Some((self, len))),
            },
            Err(Error::BufferTooShort) => Ok(None),
            Err(_) => Err(NoHeader),
        }
    }
}

/// The header of a connection that this proxy makes for itself, such as a check of a server.
pub(super) fn own_header(version: SendProxy) -> Option<Vec<u8>> {
    encode(&ProxyHeader::with_local(), version)
}

fn encode(header: &ProxyHeader<'_>, version: SendProxy) -> Option<Vec<u8>> {
    let mut octets = Vec::new();
    match version {
        SendProxy::Off => return None,
        SendProxy::V1 => header.encode_v1(&mut octets),
        SendProxy::V2 => header.encode_v2(&mut octets),
    }
    .ok()?;
    Some(octets)
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn mapped(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) => SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0).into(),
        v6 => v6,
    }
}

#[cfg(test)]
mod tests;
