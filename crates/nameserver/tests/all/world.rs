//! An upstream server, the server under test, and clients.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use fordway_dns64::{Policies, Policy};
use fordway_nameserver::{Cookies, Limits, Server, Settings};
use fordway_resolver as upstream;
use fordway_serve::Acl;
use fordway_serve::Service as _;
use fordway_testhost::{PATIENCE, poll};
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, SOA};
use hickory_proto::rr::{Name, RData, Record, RecordType};

use fordway_testhost::namespace::{add_address, in_namespace};

/// The prefix of [`settings`].
pub(crate) const POOL6: &str = "2001:db8:64::/96";
pub(crate) fn name(text: &str) -> Name {
    let mut name = Name::from_ascii(text).expect("a name");
    name.set_fqdn(true);
    name
}

/// A server that knows every name, by the first label:
///
/// - `native...`: an AAAA record, 2001:db8::80, and an A record;
/// - `many...`: 100 A records;
/// - `slow...`: as others, but not before [`Upstream::release`];
/// - `half...`: as `native...`, but the A record as `slow...`;
/// - `brief...`: a TTL of 1 s;
/// - `none...`: NXDOMAIN;
/// - others: an A record, 192.0.2.1.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    ended: AtomicBool,
    asked: Mutex<HashMap<(String, RecordType), usize>>,
    released: Mutex<bool>,
    is_released: Condvar,
}

impl Upstream {
    pub(crate) fn start() -> Upstream {
        let (udp, tcp) = poll("one port for UDP and TCP", || {
            let tcp = TcpListener::bind("127.0.0.1:0").ok()?;
            Some((UdpSocket::bind(tcp.local_addr().ok()?).ok()?, tcp))
        });
        let address = udp.local_addr().expect("bound");
        let state = Arc::new(State::default());
        let udp = Arc::new(udp);
        let (at_udp, at_tcp) = (Arc::clone(&state), Arc::clone(&state));
        thread::spawn(move || {
            let mut octets = [0; 4096];
            while let Ok((len, client)) = udp.recv_from(&mut octets) {
                if at_udp.ended.load(Ordering::Acquire) {
                    return;
                }
                let Ok(query) = Message::from_vec(&octets[..len]) else { continue };
                let (state, socket) = (Arc::clone(&at_udp), Arc::clone(&udp));
                thread::spawn(move || {
                    let mut octets = state.answer(&query).to_vec().expect("encodes");
                    if octets.len() > 1232 {
                        octets = state.cut(&query).to_vec().expect("encodes");
                    }
                    let _ = socket.send_to(&octets, client);
                });
            }
        });
        thread::spawn(move || {
            for stream in tcp.incoming().flatten() {
                if at_tcp.ended.load(Ordering::Acquire) {
                    return;
                }
                let state = Arc::clone(&at_tcp);
                thread::spawn(move || {
                    let mut stream = stream;
                    while let Some(query) = receive(&mut stream) {
                        send(&mut stream, &state.answer(&query).to_vec().expect("encodes"));
                    }
                });
            }
        });
        Upstream { address, state }
    }

    /// How often it was asked.
    pub(crate) fn count(&self, name: &str, record_type: RecordType) -> usize {
        let asked = self.state.asked.lock().expect("no test has failed");
        asked.get(&(name.to_owned(), record_type)).copied().unwrap_or(0)
    }

    /// Lets the slow answers go.
    pub(crate) fn release(&self) {
        *self.state.released.lock().expect("no test has failed") = true;
        self.state.is_released.notify_all();
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.state.ended.store(true, Ordering::Release);
        self.state.is_released.notify_all();
        let _ = UdpSocket::bind("127.0.0.1:0").and_then(|it| it.send_to(b"end", self.address));
        let _ = TcpStream::connect(self.address);
    }
}

impl State {
    fn cut(&self, query: &Message) -> Message {
        let mut message = query.clone().into_response();
        message.metadata.truncation = true;
        message
    }

    fn answer(&self, query: &Message) -> Message {
        let asked = &query.queries[0];
        let text = asked.name.to_string().to_ascii_lowercase();
        let key = (text.clone(), asked.query_type);
        *self.asked.lock().expect("no test has failed").entry(key).or_default() += 1;
        let is_half = text.starts_with("half");
        if text.starts_with("slow") || is_half && asked.query_type == RecordType::A {
            let mut released = self.released.lock().expect("no test has failed");
            while !*released && !self.ended.load(Ordering::Acquire) {
                released = self.is_released.wait(released).expect("no test has failed");
            }
        }
        let ttl = if text.starts_with("brief") { 1 } else { 3600 };
        let mut message = query.clone().into_response();
        message.metadata.recursion_available = true;
        let mut add = |data| {
            message.add_answer(Record::from_rdata(asked.name.clone(), ttl, data));
        };
        match asked.query_type {
            _ if text.starts_with("none") => {}
            RecordType::A if text.starts_with("many") => {
                (1..=100).for_each(|last| add(RData::A(A(Ipv4Addr::new(198, 51, 100, last)))));
            }
            RecordType::A => add(RData::A(A(Ipv4Addr::new(192, 0, 2, 1)))),
            RecordType::AAAA if text.starts_with("native") || is_half => {
                add(RData::AAAA(AAAA(NATIVE)));
            }
            _ => {}
        }
        if message.answers.is_empty() {
            let zone = name("example.net.");
            let soa = SOA::new(zone.clone(), zone.clone(), 1, 2, 3, 4, ttl);
            message.add_authority(Record::from_rdata(zone, ttl, RData::SOA(soa)));
        }
        if text.starts_with("none") {
            message.metadata.response_code = ResponseCode::NXDomain;
        }
        message
    }
}

/// What `native...` has.
pub(crate) const NATIVE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x80);

/// Two threads on a port of loopback; everybody may ask, at any rate.
pub(crate) fn settings(upstream: &Upstream) -> Settings {
    let server = upstream::Server { address: upstream.address, protocol: upstream::Protocol::Udp };
    let mut upstream = upstream::Settings::new(vec![server]);
    // A slow answer comes when the test says so.
    upstream.timeout = Duration::from_secs(30);
    upstream.deadline = Duration::from_secs(60);
    upstream.attempts = 1;
    Settings {
        listen: vec!["127.0.0.1:0".parse().expect("an address")],
        threads: NonZeroUsize::new(2).expect("not zero"),
        upstream,
        policies: policies(POOL6),
        allow: acl(&["0.0.0.0/0", "::/0"]),
        rate: None,
        cache_octets: 1 << 20,
        listen_tls: Vec::new(),
        listen_https: Vec::new(),
        tls: None,
        cookies: Cookies::Drawn,
        prefetch: true,
        udp_size: 1232,
        limits: Limits::default(),
    }
}

pub(crate) fn acl(networks: &[&str]) -> Acl {
    Acl::new(networks.iter().map(|text| text.parse().expect("a network")))
}

pub(crate) fn policies(pool6: &str) -> Policies {
    let pool6 = vec![pool6.parse().expect("a prefix")];
    Policies::new(Policy { pool6, ..Policy::default() }, Vec::new()).expect("policies")
}

pub(crate) fn serve(settings: &Settings) -> Server {
    Server::start(Server::bind(settings).expect("sockets")).expect("a server")
}

/// A query with RD.
pub(crate) fn query(text: &str, record_type: RecordType) -> Message {
    let mut message = Message::new(0x1001, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(name(text), record_type));
    message
}

pub(crate) fn with_edns(mut message: Message, size: u16) -> Message {
    let mut edns = Edns::new();
    edns.set_max_payload(size);
    message.set_edns(edns);
    message
}

/// A socket that talks to the server only; waits for answers with patience.
pub(crate) fn client(server: SocketAddr) -> UdpSocket {
    client_at(
        server,
        if server.is_ipv4() { [127, 0, 0, 1].into() } else { IpAddr::from([0u16; 8]) },
    )
}

pub(crate) fn client_at(server: SocketAddr, address: IpAddr) -> UdpSocket {
    let socket = UdpSocket::bind((address, 0)).expect("a socket");
    socket.connect(server).expect("a way");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket
}

/// The answer by UDP, in octets.
pub(crate) fn exchange(socket: &UdpSocket, octets: &[u8]) -> Vec<u8> {
    socket.send(octets).expect("sent");
    let mut answer = vec![0; 65_535];
    let len = socket.recv(&mut answer).expect("an answer");
    answer.truncate(len);
    answer
}

/// The answer by UDP.
pub(crate) fn ask(socket: &UdpSocket, query: &Message) -> Message {
    let octets = exchange(socket, &query.to_vec().expect("encodes"));
    let answer = Message::from_vec(&octets).expect("a message");
    assert_eq!(answer.metadata.id, query.metadata.id);
    assert_eq!(answer.metadata.message_type, MessageType::Response);
    answer
}

pub(crate) fn connect(server: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(server).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

/// Sends a message with its length.
pub(crate) fn send(stream: &mut TcpStream, octets: &[u8]) {
    let mut framed = (octets.len() as u16).to_be_bytes().to_vec();
    framed.extend(octets);
    let _ = stream.write_all(&framed);
}

/// The next message. None: the other end has closed.
pub(crate) fn receive(stream: &mut TcpStream) -> Option<Message> {
    let mut len = [0; 2];
    stream.read_exact(&mut len).ok()?;
    let mut octets = vec![0; u16::from_be_bytes(len).into()];
    stream.read_exact(&mut octets).ok()?;
    Some(Message::from_vec(&octets).expect("a message"))
}

/// The answer by TCP.
pub(crate) fn ask_tcp(server: SocketAddr, query: &Message) -> Message {
    let mut stream = connect(server);
    send(&mut stream, &query.to_vec().expect("encodes"));
    receive(&mut stream).expect("an answer")
}

/// The addresses in an answer.
pub(crate) fn addresses(message: &Message) -> Vec<IpAddr> {
    let address = |record: &Record| match &record.data {
        RData::A(v4) => Some(IpAddr::V4(v4.0)),
        RData::AAAA(v6) => Some(IpAddr::V6(v6.0)),
        _ => None,
    };
    message.answers.iter().filter_map(address).collect()
}

/// Where the one synthetic record of a name leads, under a prefix of 96 bits.
pub(crate) fn synthetic(pool6: &str) -> Vec<IpAddr> {
    let net: ipnet::Ipv6Net = pool6.parse().expect("a prefix");
    vec![Ipv6Addr::from(net.addr().to_bits() | 0xc000_0201).into()]
}

/// Extended errors of an answer.
pub(crate) fn ede(message: &Message) -> Vec<u16> {
    fordway_dns64::Ede::of(message).iter().map(|ede| ede.code).collect()
}

/// Runs a test in a network namespace of its own, in which 192.0.2.1, 192.0.2.2, 198.51.100.1, 2001:db8::1 and
/// 2001:db8::2 are the host's.
pub(crate) fn on_own_host(test: impl FnOnce() + Send + 'static) {
    in_namespace(move || {
        let v4 = ["192.0.2.1/32", "192.0.2.2/32", "198.51.100.1/32"];
        let v6 = ["2001:db8::1/128", "2001:db8::2/128"];
        v4.into_iter().chain(v6).for_each(|address| add_address(address, "lo"));
        test();
    });
}
