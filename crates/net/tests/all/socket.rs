//! Ports that the host uses.

use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};

use crate::common::in_namespace;
use fordway_net::{BoundSocket, Transport, bound_sockets};
use rustix::net::{AddressFamily, SocketType, bind, listen, socket, sockopt};

#[test]
fn sockets_that_wait_for_ipv4_are_listed() {
    in_namespace(|| {
        assert_eq!(bound_sockets().unwrap(), []);
        let loopback = Ipv4Addr::LOCALHOST;
        let listener = TcpListener::bind((loopback, 0)).unwrap();
        let waiting = UdpSocket::bind("0.0.0.0:0").unwrap();
        let dual = UdpSocket::bind("[::]:0").unwrap();
        let mapped = TcpListener::bind("[::ffff:127.0.0.1]:0").unwrap();
        // None of these takes IPv4 from anybody.
        let _v6 = TcpListener::bind("[::1]:0").unwrap();
        let only_v6 = socket(AddressFamily::INET6, SocketType::STREAM, None).unwrap();
        sockopt::set_ipv6_v6only(&only_v6, true).unwrap();
        bind(&only_v6, &"[::]:0".parse::<std::net::SocketAddr>().unwrap()).unwrap();
        listen(&only_v6, 1).unwrap();
        let connected = UdpSocket::bind("127.0.0.1:0").unwrap();
        connected.connect((loopback, 9)).unwrap();
        let _connection = TcpStream::connect(listener.local_addr().unwrap()).unwrap();

        let bound = |transport, address, port: std::io::Result<std::net::SocketAddr>| BoundSocket {
            transport,
            address,
            port: port.unwrap().port(),
        };
        let mut wanted = vec![
            bound(Transport::Tcp, loopback, listener.local_addr()),
            bound(Transport::Tcp, loopback, mapped.local_addr()),
            bound(Transport::Udp, Ipv4Addr::UNSPECIFIED, waiting.local_addr()),
            bound(Transport::Udp, Ipv4Addr::UNSPECIFIED, dual.local_addr()),
        ];
        wanted.sort_unstable();
        assert_eq!(bound_sockets().unwrap(), wanted);
    });
}
