//! A TCP connection that stays open while something happens.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

use fordway_testhost::{PATIENCE, poll};

use super::netns::Netns;

/// Both ends of it.
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
        let mut buffer = [0; 4];
        let mut there = |from: &mut TcpStream, to: &mut TcpStream, octets: &[u8; 4]| {
            from.write_all(octets).is_ok()
                && to.read_exact(&mut buffer).is_ok()
                && buffer == *octets
        };
        let is_open = there(&mut self.client, &mut self.server, b"ping")
            && there(&mut self.server, &mut self.client, b"pong");
        assert!(is_open, "a connection has broken");
    }

    /// Sends octets from the client, which must not arrive. `counter` counts packets where they end.
    pub(crate) fn assert_cut(mut self, counter: impl Fn() -> u64) {
        let before = counter();
        self.client.write_all(b"ping").unwrap();
        poll("what the client sends has ended somewhere", || (counter() > before).then_some(()));
        self.server.set_nonblocking(true).unwrap();
        let read = self.server.read(&mut [0; 4]).map_err(|error| error.kind());
        assert_eq!(read, Err(ErrorKind::WouldBlock), "a connection is still open");
    }
}
