//! A TCP connection that stays open while something happens.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use super::netns::Netns;

/// Time without progress after which a test has failed.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Connection {
    client: TcpStream,
    server: TcpStream,
    /// The client as the server sees it.
    pub(crate) peer: SocketAddr,
}

impl Connection {
    /// Opens a connection, over which octets have gone both ways.
    pub(crate) fn open(client: &Netns, server: &Netns, to: IpAddr) -> Connection {
        let listener = server.inside(|| TcpListener::bind("[::]:0").unwrap());
        let to = SocketAddr::new(to, listener.local_addr().unwrap().port());
        let client = client.inside(|| TcpStream::connect_timeout(&to, PATIENCE).unwrap());
        let (server, peer) = listener.accept().unwrap();
        for stream in [&client, &server] {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.set_write_timeout(Some(PATIENCE)).unwrap();
        }
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        let mut connection = Connection { client, server, peer };
        connection.check();
        connection
    }

    /// Sends octets both ways, which must arrive.
    pub(crate) fn check(&mut self) {
        assert!(self.is_open(), "a connection has broken");
    }

    /// Whether octets that are sent both ways arrive.
    pub(crate) fn is_open(&mut self) -> bool {
        let mut buffer = [0; 4];
        let mut there = |from: &mut TcpStream, to: &mut TcpStream, octets: &[u8; 4]| {
            from.write_all(octets).is_ok()
                && to.read_exact(&mut buffer).is_ok()
                && buffer == *octets
        };
        there(&mut self.client, &mut self.server, b"ping")
            && there(&mut self.server, &mut self.client, b"pong")
    }

    /// Shortens the time after which it counts as broken.
    pub(crate) fn impatient(&self) {
        for stream in [&self.client, &self.server] {
            stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        }
    }
}
