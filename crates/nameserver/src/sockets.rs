//! The sockets of a server: of each address a UDP and a TCP socket for every thread (SO_REUSEPORT), so that the kernel
//! spreads clients over threads, and threads share nothing.

use std::io;
use std::mem;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::num::NonZeroUsize;

use nix::sys::socket::{setsockopt, sockopt};
use socket2::Type;

use super::error::Error;
use fordway_serve::listen;

/// How a query came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    Udp,
    Tcp,
    /// RFC 7858.
    Tls,
    /// RFC 8484.
    Https,
}

/// Room for datagrams that wait for a thread, in octets. The kernel counts some 800 for a query.
const RECEIVE_ROOM: usize = 4 << 20;
/// Octets of a connection that the kernel takes beyond those under way.
const UNSENT: u32 = 16 << 10;
/// Connections that wait to be taken.
const BACKLOG: i32 = 256;
/// How often another port is tried, where the system chooses it and another program has the same one of UDP.
const TRIES: usize = 16;

/// The sockets of one address for one thread.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) udp: UdpSocket,
    pub(super) tcp: TcpListener,
}

/// The sockets of one address, a pair for each thread, and the address: with the port that the system has chosen for 0.
pub(super) fn open(
    address: SocketAddr,
    threads: NonZeroUsize,
) -> Result<(SocketAddr, Vec<Pair>), Error> {
    let fails = |transport| move |source| Error::Listen { address, transport, source };
    let tries = if address.port() == 0 { TRIES } else { 1 };
    // TCP chooses the port: of UDP sockets with SO_REUSEPORT, the system gives two servers the same one.
    let mut first = tcp(address).map_err(fails("TCP"))?;
    // Held until the end, or the system could choose the same port again and again.
    let mut refused = Vec::new();
    let (chosen, udp_first) = loop {
        let chosen = first.local_addr().map_err(fails("TCP"))?;
        match udp(chosen) {
            Ok(socket) => break (chosen, socket),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && refused.len() + 1 < tries => {
                let other = tcp(address).map_err(fails("TCP"))?;
                refused.push(mem::replace(&mut first, other));
            }
            Err(error) => return Err(fails("UDP")(error)),
        }
    };
    let mut pairs = vec![Pair { udp: udp_first, tcp: first }];
    for _ in 1..threads.get() {
        let tcp = tcp(chosen).map_err(fails("TCP"))?;
        pairs.push(Pair { udp: udp(chosen).map_err(fails("UDP"))?, tcp });
    }
    Ok((chosen, pairs))
}

/// Listeners of one address for connections alone, one for each thread, and the address.
pub(super) fn open_streams(
    address: SocketAddr,
    threads: NonZeroUsize,
) -> Result<(SocketAddr, Vec<TcpListener>), Error> {
    let fails = |source| Error::Listen { address, transport: "TCP", source };
    let first = tcp(address).map_err(fails)?;
    let chosen = first.local_addr().map_err(fails)?;
    let mut all = vec![first];
    for _ in 1..threads.get() {
        all.push(tcp(chosen).map_err(fails)?);
    }
    Ok((chosen, all))
}

fn udp(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = listen::socket(address, Type::DGRAM)?;
    // Beyond net.core.rmem_max where that is allowed; what the system gives is enough otherwise.
    if setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_ROOM).is_err() {
        let _ = socket.set_recv_buffer_size(RECEIVE_ROOM);
    }
    if address.ip().is_unspecified() {
        // An answer comes from the address that was asked, which the kernel tells with the query.
        match address {
            SocketAddr::V4(_) => setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?,
            SocketAddr::V6(_) => setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?,
        }
    }
    socket.bind(&address.into())?;
    Ok(socket.into())
}

fn tcp(address: SocketAddr) -> io::Result<TcpListener> {
    // What a client does not take stays with the server, which counts it.
    listen::listener(address, BACKLOG, |socket| socket.set_tcp_notsent_lowat(UNSENT))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> NonZeroUsize {
        NonZeroUsize::new(2).unwrap()
    }

    #[test]
    fn all_threads_have_the_port_that_was_chosen() {
        let (address, pairs) = open("[::1]:0".parse().unwrap(), two()).unwrap();
        assert_ne!(address.port(), 0);
        assert_eq!(pairs.len(), 2);
        for pair in &pairs {
            assert_eq!(pair.udp.local_addr().unwrap(), address);
            assert_eq!(pair.tcp.local_addr().unwrap(), address);
        }
    }

    #[test]
    fn an_address_that_is_not_there_yet() {
        open("192.0.2.77:0".parse().unwrap(), two()).unwrap();
        open("[2001:db8::77]:0".parse().unwrap(), two()).unwrap();
    }

    #[test]
    fn wildcards_of_both_families_share_a_port() {
        let (v6, _v6) = open("[::]:0".parse().unwrap(), two()).unwrap();
        let v4 = SocketAddr::new([0, 0, 0, 0].into(), v6.port());
        match open(v4, two()) {
            Ok((v4, _)) => assert_eq!(v4.port(), v6.port()),
            // Another process's by chance.
            Err(error) => assert!(matches!(error, Error::Listen { .. }), "{error}"),
        }
    }

    #[test]
    fn a_port_of_somebody_else() {
        // An address of this process's own: on others, another process may have the port for TCP.
        let [_, b, c, d] = std::process::id().to_be_bytes();
        let other = UdpSocket::bind(SocketAddr::new([127, b, c, d].into(), 5353)).unwrap();
        let address = other.local_addr().unwrap();
        let Err(Error::Listen { address: at, transport, source }) = open(address, two()) else {
            panic!("it is in use");
        };
        assert_eq!((at, transport), (address, "UDP"));
        assert_eq!(source.kind(), io::ErrorKind::AddrInUse);
    }
}
