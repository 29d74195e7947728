//! Ports that the host uses, and addresses that come and go.

use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};

use crate::common::{in_namespace, ip, ip_output};
use fordway_net::{AddressWatch, BoundSocket, Transport, bound_sockets};
use fordway_testhost::poll;
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

#[test]
fn addresses_and_interfaces_that_come_and_go_are_heard_of() {
    in_namespace(|| {
        let mut watch = AddressWatch::open().unwrap();
        assert!(!watch.changed().unwrap());
        let add_link = || {
            ip("link add veth0 type veth peer name veth1");
            // The kernel tells of a link once more when it has found out that it has no carrier.
            let is_down = |name| ip_output(&format!("link show {name}")).contains("state DOWN");
            poll("both are down", || (is_down("veth0") && is_down("veth1")).then_some(()));
        };
        add_link();
        assert!(watch.changed().unwrap());
        assert!(!watch.changed().unwrap());
        for line in [
            "address add 192.0.2.1/24 dev veth0",
            "address del 192.0.2.1/24 dev veth0",
            "link set veth0 name veth2",
            "link del veth2",
        ] {
            ip(line);
            assert!(watch.changed().unwrap(), "{line}");
            assert!(!watch.changed().unwrap(), "{line}");
        }
        // So many that the kernel can't keep them all.
        add_link();
        for _ in 0..300 {
            ip("link set veth0 mtu 1400");
            ip("link set veth0 mtu 1500");
        }
        assert!(watch.changed().unwrap());
        assert!(!watch.changed().unwrap());
    });
}
