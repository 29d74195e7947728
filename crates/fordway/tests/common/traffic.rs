//! Streams and datagrams whose content is verified.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use super::netns::Netns;
use super::poll;

/// Time without progress after which a test has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// Octets that depend on their place, so that lost, doubled and reordered ones are found.
fn pattern(len: usize, seed: u32) -> Vec<u8> {
    let mut state = seed | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 8) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
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

/// Whether a connection comes about within some time that is enough for one repetition.
pub(crate) fn connects(client: &Netns, to: IpAddr, port: u16) -> bool {
    let to = SocketAddr::new(to, port);
    client.inside(|| TcpStream::connect_timeout(&to, Duration::from_millis(1500)).is_ok())
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
