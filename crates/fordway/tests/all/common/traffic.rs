//! Streams and datagrams whose content is verified.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use fordway_testhost::{PATIENCE, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::netns::Netns;

/// Octets that depend on their place, so that lost, doubled and reordered ones are found: blocks of 64, numbered.
pub(crate) fn pattern(len: usize, seed: u8) -> Vec<u8> {
    let mut block: [u8; 64] = std::array::from_fn(|at| (at as u8).wrapping_mul(37) ^ seed);
    let mut octets = Vec::with_capacity(len + block.len());
    for number in 0..len.div_ceil(block.len()) as u64 {
        block[..8].copy_from_slice(&number.to_be_bytes());
        octets.extend_from_slice(&block);
    }
    octets.truncate(len);
    octets
}

/// Sends `len` octets both ways over TCP, first up, then down. Gives the address that the server saw.
pub(crate) fn tcp_both_ways(client: &Netns, server: &Netns, to: IpAddr, len: usize) -> SocketAddr {
    let listener = server.inside(|| TcpListener::bind("[::]:0").unwrap());
    let port = listener.local_addr().unwrap().port();
    let (tell, told) = mpsc::channel();
    let serve = thread::spawn(move || {
        let mut stream = accept(&listener, &told);
        let mut received = vec![0; len];
        stream.read_exact(&mut received).unwrap();
        assert!(received == pattern(len, 1), "octets towards the server are damaged");
        stream.write_all(&pattern(len, 2)).unwrap();
        let peer = stream.peer_addr().unwrap();
        // A listener for both versions shows IPv4 addresses as IPv4-mapped ones.
        SocketAddr::new(peer.ip().to_canonical(), peer.port())
    });
    client.inside(|| {
        let address = SocketAddr::new(to, port);
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
        patient(&stream);
        stream.write_all(&pattern(len, 1)).unwrap();
        let mut received = vec![0; len];
        stream.read_exact(&mut received).unwrap();
        assert!(received == pattern(len, 2), "octets towards the client are damaged");
    });
    drop(tell);
    serve.join().unwrap()
}

/// Accepts one connection. The client's failure ends the wait.
fn accept(listener: &TcpListener, told: &Receiver<()>) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    let stream = poll("a connection comes in", || match listener.accept() {
        Ok((stream, _)) => Some(stream),
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            let gone = matches!(told.try_recv(), Err(mpsc::TryRecvError::Disconnected));
            assert!(!gone, "the client has failed");
            None
        }
        Err(error) => panic!("{error}"),
    });
    stream.set_nonblocking(false).unwrap();
    patient(&stream);
    stream
}

fn patient(stream: &TcpStream) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
}

/// A service that accepts connections; the kernel does so by itself.
pub(crate) fn listen(server: &Netns) -> TcpListener {
    server.inside(|| TcpListener::bind("[::]:0").unwrap())
}

/// A connection comes about.
#[track_caller]
pub(crate) fn assert_connects(client: &Netns, to: IpAddr, port: u16) {
    let to = SocketAddr::new(to, port);
    let connected = client.inside(|| TcpStream::connect_timeout(&to, PATIENCE));
    assert!(connected.is_ok(), "{} to {to}: {connected:?}", client.name());
}

/// A connection is refused.
#[track_caller]
pub(crate) fn assert_refused(client: &Netns, to: IpAddr, port: u16) {
    let to = SocketAddr::new(to, port);
    let connected = client.inside(|| TcpStream::connect_timeout(&to, PATIENCE));
    let refused = connected.as_ref().is_err_and(|it| it.kind() == ErrorKind::ConnectionRefused);
    assert!(refused, "{} to {to}: {connected:?}", client.name());
}

/// Nobody answers to what a connection begins with: `counter` counts packets where it ends.
#[track_caller]
pub(crate) fn assert_unanswered(client: &Netns, to: IpAddr, port: u16, counter: impl Fn() -> u64) {
    let before = counter();
    let attempt = Attempt::begin(client, SocketAddr::new(to, port));
    poll("the first segment has ended somewhere", || (counter() > before).then_some(()));
    assert!(attempt.is_waiting(), "{} to {to}, port {port}: {attempt:?}", client.name());
}

/// A connection whose first segment has been sent.
#[derive(Debug)]
pub(crate) struct Attempt(TcpStream);

impl Attempt {
    pub(crate) fn begin(client: &Netns, to: SocketAddr) -> Attempt {
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = client.inside(|| {
            let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None).unwrap();
            let begun = rustix::net::connect(&socket, &to);
            assert_eq!(begun, Err(rustix::io::Errno::INPROGRESS), "{to}");
            socket
        });
        Attempt(socket.into())
    }

    /// Whether there is neither a connection nor a refusal yet.
    pub(crate) fn is_waiting(&self) -> bool {
        self.0.peer_addr().is_err() && self.0.take_error().unwrap().is_none()
    }
}

/// Sends one datagram of `len` octets to `to`, which is `own` where the server has it, and has it
/// sent back. Gives the address that the server saw.
pub(crate) fn udp_echo(
    client: &Netns,
    server: &Netns,
    (to, own): (IpAddr, IpAddr),
    len: usize,
) -> SocketAddr {
    let here = match to {
        IpAddr::V4(_) => "0.0.0.0:0",
        IpAddr::V6(_) => "[::]:0",
    };
    // Bound to the address, so that the answer comes from it.
    let echo = server.inside(|| UdpSocket::bind((own, 0)).unwrap());
    echo.set_read_timeout(Some(PATIENCE)).unwrap();
    let port = echo.local_addr().unwrap().port();
    let socket = client.inside(|| UdpSocket::bind(here).unwrap());
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let sent = pattern(len, 3);
    socket.send_to(&sent, SocketAddr::new(to, port)).unwrap();
    let mut buffer = vec![0; 65_536];
    let (got, peer) = echo.recv_from(&mut buffer).unwrap();
    assert!(buffer[..got] == sent, "the datagram towards the server is damaged: {got} octets");
    echo.send_to(&buffer[..got], peer).unwrap();
    let mut buffer = vec![0; 65_536];
    let (got, from) = socket.recv_from(&mut buffer).unwrap();
    assert!(buffer[..got] == sent, "the datagram towards the client is damaged: {got} octets");
    assert_eq!(from, SocketAddr::new(to, port));
    peer
}
