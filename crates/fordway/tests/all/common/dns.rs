//! A name server that a test fills and breaks as it likes, and the questions to one.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use fordway_testhost::PATIENCE;
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME, NULL, PTR, SOA, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use hickory_proto::serialize::binary::BinEncodable;

use super::netns::Netns;

/// TTL of all records, and of negative answers, seconds.
pub(crate) const TTL: u32 = 300;
pub(crate) const NEGATIVE_TTL: u32 = 60;

/// What the server knows.
#[derive(Clone, Default)]
pub(crate) struct Zone {
    apex: Name,
    records: Vec<Record>,
    odd: Vec<(Name, Option<RecordType>, Odd)>,
    dead: Vec<Name>,
}

/// What a server does instead of answering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Odd {
    /// Another RCODE, and nothing else.
    Code(ResponseCode),
    /// Nothing.
    Silence,
    /// No SOA in a negative answer.
    NoSoa,
    /// Only the first alias, as a server does that is not in charge of its target.
    FirstAlias,
    /// Half of the answer's octets.
    Cut,
    /// First a good answer to another id, which is somebody else's, then the right one.
    WrongId,
    /// By UDP, first an error that does not say what it answers, of somebody who has guessed port and id; then the
    /// right one.
    ForgedError,
}

pub(crate) fn name(text: &str) -> Name {
    let mut name = Name::from_str(text).unwrap();
    name.set_fqdn(true);
    name
}

impl Zone {
    pub(crate) fn new(apex: &str) -> Zone {
        Zone { apex: name(apex), ..Zone::default() }
    }

    pub(crate) fn record(mut self, owner: &str, data: RData) -> Zone {
        self.records.push(Record::from_rdata(name(owner), TTL, data));
        self
    }

    pub(crate) fn a(self, owner: &str, address: &str) -> Zone {
        self.record(owner, RData::A(A(address.parse().unwrap())))
    }

    pub(crate) fn aaaa(self, owner: &str, address: &str) -> Zone {
        self.record(owner, RData::AAAA(AAAA(address.parse().unwrap())))
    }

    pub(crate) fn cname(self, owner: &str, target: &str) -> Zone {
        self.record(owner, RData::CNAME(CNAME(name(target))))
    }

    pub(crate) fn ptr(self, owner: &str, target: &str) -> Zone {
        self.record(owner, RData::PTR(PTR(name(target))))
    }

    pub(crate) fn txt(self, owner: &str, text: &str) -> Zone {
        self.record(owner, RData::TXT(TXT::new(vec![text.to_owned()])))
    }

    /// A record of a type that the message library does not know: DNAME is one.
    pub(crate) fn unknown(self, owner: &str, code: u16, octets: &[u8]) -> Zone {
        let rdata = NULL::with(octets.to_vec());
        self.record(owner, RData::Unknown { code: RecordType::from(code), rdata })
    }

    pub(crate) fn dname(self, owner: &str, target: &str) -> Zone {
        self.unknown(owner, 39, &name(target).to_bytes().unwrap())
    }

    /// Lets questions for a name, of a type or of any, go wrong.
    pub(crate) fn odd(mut self, owner: &str, record_type: Option<RecordType>, odd: Odd) -> Zone {
        self.odd.push((name(owner), record_type, odd));
        self
    }

    /// Leaves questions for names below one without an answer.
    pub(crate) fn silent_below(mut self, owner: &str) -> Zone {
        self.dead.push(name(owner));
        self
    }

    fn odd_for(&self, question: &Query) -> Option<Odd> {
        let fits = |(name, record_type, _): &&(Name, Option<RecordType>, Odd)| {
            *name == question.name && record_type.is_none_or(|it| it == question.query_type)
        };
        self.odd.iter().find(fits).map(|(_, _, odd)| *odd)
    }

    fn exists(&self, name: &Name) -> bool {
        self.apex == *name || self.records.iter().any(|record| name.zone_of(&record.name))
    }

    fn respond(&self, query: &Message) -> Option<Message> {
        let question = query.queries.first()?;
        if self.dead.iter().any(|dead| dead.zone_of(&question.name)) {
            return None;
        }
        let odd = self.odd_for(question);
        let mut message = Message::response(query.metadata.id, OpCode::Query);
        message.metadata.recursion_desired = query.metadata.recursion_desired;
        message.metadata.recursion_available = true;
        message.queries.push(question.clone());
        if query.edns.is_some() {
            message.edns = Some(Edns::new());
        }
        match odd {
            Some(Odd::Silence) => return None,
            Some(Odd::Code(code)) => {
                message.metadata.response_code = code;
                return Some(message);
            }
            _ => {}
        }
        let mut end = question.name.clone();
        let mut aliases = 0;
        loop {
            let of_end = self.records.iter().filter(|record| record.name == end);
            let asked = question.query_type;
            let data: Vec<Record> = (of_end.clone())
                .filter(|record| asked.is_any() || record.record_type() == asked)
                .cloned()
                .collect();
            if !data.is_empty() {
                message.answers.extend(data.into_iter().map(|mut record| {
                    // As a server does whose names are compressed: in the letters of the question.
                    record.name = end.clone();
                    record
                }));
                return Some(message);
            }
            let alias = of_end.into_iter().find_map(|record| match &record.data {
                RData::CNAME(CNAME(target)) => Some(target.clone()),
                _ => None,
            });
            let target = alias.or_else(|| self.redirected(&end, &mut message));
            let Some(target) = target.filter(|_| aliases < 8) else {
                break;
            };
            let cname = RData::CNAME(CNAME(target.clone()));
            message.answers.push(Record::from_rdata(end, TTL, cname));
            end = target;
            aliases += 1;
            if odd == Some(Odd::FirstAlias) {
                return Some(message);
            }
        }
        if !self.exists(&end) {
            message.metadata.response_code = ResponseCode::NXDomain;
        }
        if odd != Some(Odd::NoSoa) {
            let (server, admin) = (name("ns.example.net"), name("admin.example.net"));
            let soa = SOA::new(server, admin, 1, 3600, 600, 86400, NEGATIVE_TTL);
            message.authorities.push(Record::from_rdata(self.apex.clone(), TTL, RData::SOA(soa)));
        }
        Some(message)
    }

    /// Where a DNAME leads, which is put into the answer.
    fn redirected(&self, end: &Name, message: &mut Message) -> Option<Name> {
        self.records.iter().find_map(|record| match &record.data {
            RData::Unknown { code: RecordType::DNAME, rdata }
                if record.name != *end && record.name.zone_of(end) =>
            {
                message.answers.push(record.clone());
                let target = hickory_proto::serialize::binary::BinDecodable::from_bytes;
                let target: Name = target(&rdata.anything).unwrap();
                let kept = end.iter().count() - record.name.iter().count();
                let front = Name::from_labels(end.iter().take(kept)).unwrap();
                Some(front.append_name(&target).unwrap())
            }
            _ => None,
        })
    }
}

/// A question that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) name: Name,
    pub(crate) record_type: RecordType,
    pub(crate) tcp: bool,
}

/// A name server by UDP and TCP that ends when dropped.
pub(crate) struct Upstream {
    shared: Arc<Shared>,
    udp: Arc<UdpSocket>,
    listener: Arc<TcpListener>,
    threads: Vec<thread::JoinHandle<()>>,
}

struct Shared {
    zone: Mutex<Zone>,
    asked: Mutex<Vec<Asked>>,
    ended: AtomicBool,
}

impl Upstream {
    /// Starts a server at `ADDRESS:PORT` in a namespace.
    pub(crate) fn start(netns: &Netns, address: &str, zone: Zone) -> Upstream {
        let address: SocketAddr = address.parse().unwrap();
        let (udp, tcp) = netns.inside(|| {
            let told = |error| panic!("{address}: {error}");
            let udp = UdpSocket::bind(address).unwrap_or_else(told);
            let told = |error| panic!("{address}: {error}");
            (udp, TcpListener::bind(address).unwrap_or_else(told))
        });
        let udp = Arc::new(udp);
        let listener = Arc::new(tcp);
        let shared = Arc::new(Shared {
            zone: Mutex::new(zone),
            asked: Mutex::default(),
            ended: AtomicBool::new(false),
        });
        let (of_udp, udp_served) = (Arc::clone(&shared), Arc::clone(&udp));
        let (of_tcp, tcp) = (Arc::clone(&shared), Arc::clone(&listener));
        let threads = vec![
            thread::spawn(move || serve_udp(&of_udp, &udp_served)),
            thread::spawn(move || serve_tcp(&of_tcp, &tcp)),
        ];
        Upstream { shared, udp, listener, threads }
    }

    /// Puts another zone in place.
    pub(crate) fn replace(&self, zone: Zone) {
        *self.shared.zone.lock().unwrap() = zone;
    }

    /// All questions so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().unwrap().clone()
    }

    /// How often a name was asked for, by type.
    pub(crate) fn count(&self, owner: &str, record_type: RecordType) -> usize {
        let owner = name(owner);
        let asked = self.shared.asked.lock().unwrap();
        asked.iter().filter(|it| it.name == owner && it.record_type == record_type).count()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        // Who waits for connections or datagrams wakes up; for a socket without a peer it is called an error as well.
        let _ = rustix::net::shutdown(&*self.listener, rustix::net::Shutdown::Both);
        let _ = rustix::net::shutdown(&*self.udp, rustix::net::Shutdown::Both);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// The responses to a query, in the order in which they are sent.
    fn respond(&self, octets: &[u8], tcp: bool) -> Vec<Vec<u8>> {
        let Ok(query) = Message::from_vec(octets) else { return Vec::new() };
        let zone = self.zone.lock().unwrap().clone();
        let Some(question) = query.queries.first() else { return Vec::new() };
        let (name, record_type) = (question.name.clone(), question.query_type);
        self.asked.lock().unwrap().push(Asked { name, record_type, tcp });
        let Some(message) = zone.respond(&query) else { return Vec::new() };
        let mut octets = message.to_vec().unwrap();
        let limit = if tcp { usize::from(u16::MAX) } else { usize::from(query.max_payload()) };
        if octets.len() > limit {
            octets = message.truncate().to_vec().unwrap();
        }
        match zone.odd_for(question) {
            Some(Odd::Cut) => octets.truncate(octets.len() / 2),
            Some(Odd::ForgedError) if !tcp => {
                // A header alone: a response, NXDOMAIN.
                let forged = [&octets[..2], &[0x81, 0x83, 0, 0, 0, 0, 0, 0, 0, 0]].concat();
                return vec![forged, octets];
            }
            Some(Odd::WrongId) => {
                let mut forged = octets.clone();
                forged[0] ^= 0x5a;
                return vec![forged, octets];
            }
            _ => {}
        }
        vec![octets]
    }
}

fn serve_udp(shared: &Shared, socket: &UdpSocket) {
    let mut buffer = [0; 4096];
    while !shared.ended() {
        let Ok((len, client)) = socket.recv_from(&mut buffer) else { continue };
        for octets in shared.respond(&buffer[..len], false) {
            let _ = socket.send_to(&octets, client);
        }
    }
}

fn serve_tcp(shared: &Arc<Shared>, listener: &TcpListener) {
    for stream in listener.incoming() {
        let Ok(stream) = stream else { return };
        if shared.ended() {
            return;
        }
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            let _ = serve_stream(&shared, stream);
        });
    }
}

fn serve_stream(shared: &Shared, mut stream: TcpStream) -> std::io::Result<()> {
    loop {
        let octets = read_message(&mut stream)?;
        for octets in shared.respond(&octets, true) {
            write_message(&mut stream, &octets)?;
        }
    }
}

fn read_message(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut octets = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut octets)?;
    Ok(octets)
}

fn write_message(stream: &mut TcpStream, octets: &[u8]) -> std::io::Result<()> {
    let length = u16::try_from(octets.len()).unwrap().to_be_bytes();
    stream.write_all(&[&length, octets].concat())
}

/// A query with RD, and EDNS if there is a size.
pub(crate) fn query(owner: &str, record_type: RecordType, payload: Option<u16>) -> Message {
    let id = getrandom::u32().unwrap() as u16;
    let mut message = Message::new(id, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(name(owner), record_type));
    if let Some(payload) = payload {
        let mut edns = Edns::new();
        edns.set_max_payload(payload);
        message.edns = Some(edns);
    }
    message
}

/// Asks a server from within a namespace, from a given address or any, by UDP; repeats the question as a host
/// would that gets no answer.
pub(crate) fn ask_udp(
    netns: &Netns,
    from: Option<IpAddr>,
    server: SocketAddr,
    query: &Message,
) -> Vec<u8> {
    let from = from.unwrap_or(match server {
        SocketAddr::V4(_) => IpAddr::from([0; 4]),
        SocketAddr::V6(_) => IpAddr::from([0; 16]),
    });
    let socket = netns.inside(|| {
        let socket = UdpSocket::bind((from, 0)).unwrap();
        socket.connect(server).unwrap();
        socket
    });
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let octets = query.to_vec().unwrap();
    let mut buffer = vec![0; 65535];
    for _ in 0..6 {
        socket.send(&octets).unwrap();
        if let Ok(len) = socket.recv(&mut buffer) {
            return buffer[..len].to_vec();
        }
    }
    panic!("{server} does not answer {query}");
}

/// Asks a server from within a namespace by TCP.
pub(crate) fn ask_tcp(netns: &Netns, server: SocketAddr, query: &Message) -> Vec<u8> {
    let mut stream = netns.inside(|| TcpStream::connect(server).unwrap());
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write_message(&mut stream, &query.to_vec().unwrap()).unwrap();
    read_message(&mut stream).unwrap()
}
