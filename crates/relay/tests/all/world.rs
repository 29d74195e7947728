//! Three hosts: client, relay and server, each in a network namespace of its own.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv6Addr, Shutdown, SocketAddrV6, TcpListener, TcpStream, UdpSocket};
use std::num::NonZeroUsize;
use std::time::Duration;

use fordway_net::Manager;
use fordway_relay::{self as relay, Limits, Settings, Stats, Urgent};
use fordway_serve::{Acl, Service as _};
use fordway_testhost::{PATIENCE, poll};
use fordway_xlat::{IcmpErrors, TrafficClass};

use fordway_testhost::namespace::Namespace;

/// The prefix of the relay.
pub(crate) const PREFIX: &str = "2001:db8:64::/96";

/// The relay's IPv4 addresses.
pub(crate) const RELAY4: &str = "192.0.2.1";

pub(crate) struct World {
    pub(crate) client: Namespace,
    pub(crate) relay: Namespace,
    pub(crate) server: Namespace,
    running: Option<relay::Server>,
}

/// What most tests run with.
pub(crate) fn settings() -> Settings {
    Settings {
        name: "relay".to_owned(),
        pool6: vec![PREFIX.parse().unwrap()],
        threads: NonZeroUsize::new(2).unwrap(),
        tcp: true,
        udp: true,
        allow: Acl::new(["2001:db8:1::/48".parse().unwrap()]),
        refuse4: Acl::default(),
        allow_private: false,
        allow_own: false,
        own4: [RELAY4.parse().unwrap()].into(),
        source4: Vec::new(),
        class: TrafficClass::Copy,
        urgent: Urgent::Carry,
        keepalive: Some(Duration::from_secs(60)),
        icmp: IcmpErrors::Limited { per_second: 1000, burst: 1000 },
        limits: Limits::default(),
    }
}

impl World {
    /// The hosts, and a relay that runs.
    pub(crate) fn new(settings: Settings) -> World {
        let (client, relay, server) =
            (Namespace::create(), Namespace::create(), Namespace::create());
        relay.ip(&format!("link add lan0 type veth peer name up0 netns {}", client.path));
        relay.ip(&format!("link add wan0 type veth peer name eth0 netns {}", server.path));
        for (host, device) in
            [(&client, "up0"), (&relay, "lan0"), (&relay, "wan0"), (&server, "eth0")]
        {
            host.ip(&format!("link set {device} up"));
        }
        client.add_address("2001:db8:1::5/64", "up0");
        client.ip("-6 route add default via 2001:db8:1::1");
        relay.add_address("2001:db8:1::1/64", "lan0");
        relay.add_address("192.0.2.1/24", "wan0");
        relay.add_address("192.0.2.2/24", "wan0");
        server.add_address("192.0.2.7/24", "eth0");
        let run = tempfile::tempdir().unwrap();
        let running = relay.run(move || {
            let bound = relay::Server::bind(&settings).unwrap();
            let mut manager = Manager::open(run.path(), "transport-relay.relay").unwrap();
            for change in bound.intercept(0x7472_0000, 7472, true).changes() {
                manager.apply(&change).unwrap();
            }
            relay::Server::start(bound).unwrap()
        });
        World { client, relay, server, running: Some(running) }
    }

    pub(crate) fn running(&self) -> &relay::Server {
        self.running.as_ref().expect("it runs")
    }

    /// Ends the relay.
    pub(crate) fn stop(&mut self) {
        self.running = None;
    }

    pub(crate) fn stats(&self) -> Stats {
        self.running().stats()
    }

    /// Waits until the counters are so. What else they say is read after that: a connection is gone by the time its end
    /// is counted.
    pub(crate) fn counted(&self, what: &str, ready: impl Fn(&Stats) -> bool) -> Stats {
        poll(what, || ready(&self.stats()).then_some(()));
        self.stats()
    }

    /// Waits for connections on a port of the server's.
    pub(crate) fn listen(&self, port: u16) -> TcpListener {
        self.server.run(move || TcpListener::bind(("192.0.2.7", port)).unwrap())
    }

    /// Connects a client.
    pub(crate) fn connect(&self, port: u16) -> TcpStream {
        self.connect_to(to(port))
    }

    pub(crate) fn connect_to(&self, to: SocketAddrV6) -> TcpStream {
        let stream = self.client.run(move || TcpStream::connect(to).unwrap());
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Waits until a connection is reset: in front of the client's eyes, or so soon that it never sees it open.
    pub(crate) fn is_reset(&self, to: SocketAddrV6) -> bool {
        let opened = self.client.run(move || TcpStream::connect(to));
        let kind = match opened {
            Ok(mut stream) => {
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                read_all(&mut stream).1
            }
            Err(error) => Some(error.kind()),
        };
        kind == Some(ErrorKind::ConnectionReset)
    }

    /// A client's connection and the server's end of it.
    pub(crate) fn pair(&self, listener: &TcpListener) -> (TcpStream, TcpStream) {
        let client = self.connect(listener.local_addr().unwrap().port());
        let (server, _) = listener.accept().unwrap();
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        (client, server)
    }

    /// A client's socket for datagrams.
    pub(crate) fn client_udp(&self) -> UdpSocket {
        let socket = self.client.run(|| UdpSocket::bind("[2001:db8:1::5]:0").unwrap());
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }

    /// A server's.
    pub(crate) fn server_udp(&self, port: u16) -> UdpSocket {
        let socket = self.server.run(move || UdpSocket::bind(("192.0.2.7", port)).unwrap());
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }
}

/// The server behind the prefix.
pub(crate) fn to(port: u16) -> SocketAddrV6 {
    behind("192.0.2.7", port)
}

/// An IPv4 address behind the prefix.
pub(crate) fn behind(v4: &str, port: u16) -> SocketAddrV6 {
    let address: Ipv6Addr = format!("2001:db8:64::{v4}").parse().unwrap();
    SocketAddrV6::new(address, port, 0, 0)
}

/// Octets that differ from place to place.
pub(crate) fn pattern(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect()
}

/// Sends octets and ends the direction, in a thread of its own.
pub(crate) fn send_all(mut stream: TcpStream, octets: Vec<u8>) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        stream.write_all(&octets).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
    })
}

/// Reads up to the end, or up to an error.
pub(crate) fn read_all(stream: &mut TcpStream) -> (Vec<u8>, Option<ErrorKind>) {
    let mut all = Vec::new();
    let mut room = [0; 65_536];
    loop {
        match stream.read(&mut room) {
            Ok(0) => return (all, None),
            Ok(count) => all.extend(&room[..count]),
            Err(error) => return (all, Some(error.kind())),
        }
    }
}
