//! Requests over connections that are kept, each asking for the next thing when it has got the one before; timed from
//! a request's first octet to its answer's last.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::net::sockopt;
use serde::{Deserialize, Serialize};

use super::fetch::head;
use super::session::PATIENCE;
use crate::echo::{PRECISION, rounded};

/// What to do.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The server, or the proxy in front of it.
    pub target: SocketAddr,
    /// What stands in the request line: a path, or for a proxy the whole address.
    pub request: String,
    /// The server's name in the request.
    pub host: String,
    /// Octets of content that go up with each request; 0 asks by GET, else by POST.
    pub up: usize,
    /// Connections at a time.
    pub connections: usize,
    /// Requests of each connection, one after the other.
    pub requests: u64,
    /// For how long at most.
    pub limit: Duration,
}

/// What was answered.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Exchanged {
    /// Requests that were answered whole.
    pub answered: u64,
    /// Connections that failed, with all requests they had left.
    pub failed: u64,
    /// Connections that the other end closed between two requests, and that were opened again, as browsers do.
    pub reopened: u64,
    /// Why, the first time.
    pub why: Option<String>,
    /// Octets of content that came.
    pub octets: u64,
    /// From the first request to the last answer.
    pub seconds: f64,
    /// Processor time of the tester.
    pub cpu_s: f64,
    /// Round-trip times in ns, to 0.05 %, and how often each came; in ascending order.
    pub histogram: Vec<(u64, u64)>,
    /// The path as TCP saw it at the end: least over all connections.
    pub path: Option<Path>,
}

/// A path as TCP sees it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Path {
    /// Octets of a segment that is sent.
    pub mss: u32,
    /// Path MTU.
    pub mtu: u32,
    /// Segments sent again, over all connections.
    pub again: u64,
}

/// A connection with its request under way.
struct Connection {
    stream: TcpStream,
    left: u64,
    began: Instant,
    received: Vec<u8>,
    /// Whether it has had an answer since it was opened.
    answered: bool,
    /// Where the answer's content begins and ends, once its head is there.
    body: Option<(usize, usize)>,
}

/// Does it.
pub fn measure(wanted: &Wanted) -> std::io::Result<Exchanged> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    // All stay open to the end, so that `ss` tells of their path.
    exchange(wanted, epoll.as_fd(), &mut BTreeMap::new())
}

/// Opens the connections, and has their requests answered. A connection leaves `epoll` with its last answer, or its failure: a server
/// that closes it then wakes nobody.
fn exchange(
    wanted: &Wanted,
    epoll: BorrowedFd<'_>,
    open: &mut BTreeMap<u64, Connection>,
) -> std::io::Result<Exchanged> {
    let request = request(wanted);
    let mut told = Exchanged::default();
    for number in 0..wanted.connections as u64 {
        let stream = connect(wanted.target, request.len())?;
        epoll::add(epoll, &stream, epoll::EventData::new_u64(number), epoll::EventFlags::IN)?;
        let connection = Connection {
            stream,
            left: wanted.requests,
            began: Instant::now(),
            received: Vec::new(),
            body: None,
            answered: false,
        };
        open.insert(number, connection);
    }
    let mut times: BTreeMap<u64, u64> = BTreeMap::new();
    let (cpu, start) = (crate::own_cpu(), Instant::now());
    for connection in open.values_mut().filter(|c| c.left > 0) {
        connection.ask(&request)?;
    }
    let mut under_way = if wanted.requests > 0 { open.len() } else { 0 };
    let mut events = Vec::with_capacity(wanted.connections.max(1));
    while under_way > 0 && start.elapsed() < wanted.limit {
        events.clear();
        let timeout = rustix::event::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        match epoll::wait(epoll, spare_capacity(&mut events), Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            let number = event.data.u64();
            let Some(connection) = open.get_mut(&number).filter(|c| c.left > 0) else { continue };
            let went = connection.go_on(&request, |took, octets| {
                told.answered += 1;
                told.octets += octets;
                *times.entry(rounded(took.as_nanos() as u64, PRECISION)).or_default() += 1;
            });
            let went = went.or_else(|error| -> std::io::Result<()> {
                connection.reopen(wanted, error, &request)?;
                let data = epoll::EventData::new_u64(number);
                epoll::add(epoll, &connection.stream, data, epoll::EventFlags::IN)?;
                told.reopened += 1;
                Ok(())
            });
            if let Err(error) = went {
                told.failed += 1;
                told.why.get_or_insert(format!("{}: {error}", wanted.target));
                connection.left = 0;
            }
            if connection.left == 0 {
                // A connection that could not be opened again is not there.
                let _ = epoll::delete(epoll, &connection.stream);
                under_way -= 1;
            }
        }
    }
    told.seconds = start.elapsed().as_secs_f64();
    told.cpu_s = crate::own_cpu() - cpu;
    told.histogram = times.into_iter().collect();
    told.path = path(wanted.target);
    if under_way > 0 {
        told.failed += under_way as u64;
        let limit = wanted.limit.as_secs();
        told.why.get_or_insert(format!("{under_way} connections were not done after {limit} s"));
    }
    Ok(told)
}

impl Connection {
    /// Sends a request. The socket's buffer is empty between two requests and holds a whole one.
    fn ask(&mut self, request: &[u8]) -> std::io::Result<()> {
        self.received.clear();
        self.body = None;
        self.began = Instant::now();
        if self.stream.write(request)? == request.len() {
            return Ok(());
        }
        Err(std::io::Error::other("the socket does not take a request at once"))
    }

    /// Opens it again and repeats the request, if the other end has closed it before it began to answer, and after
    /// another answer (RFC 9112 section 9.3.1). The time goes on from when the request was first sent.
    fn reopen(
        &mut self,
        wanted: &Wanted,
        error: std::io::Error,
        request: &[u8],
    ) -> std::io::Result<()> {
        let closed = [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
        if !(closed.contains(&error.kind()) && self.answered && self.received.is_empty()) {
            return Err(error);
        }
        let began = self.began;
        self.stream = connect(wanted.target, request.len())?;
        self.answered = false;
        self.ask(request)?;
        self.began = began;
        Ok(())
    }

    /// Reads what is there; at the end of each answer `done` is told how long it took and how many octets of content
    /// it had, and the next request is sent.
    fn go_on(
        &mut self,
        request: &[u8],
        mut done: impl FnMut(Duration, u64),
    ) -> std::io::Result<()> {
        let mut buffer = [0; 65_536];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(length) => self.received.extend_from_slice(&buffer[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
            if self.body.is_none() {
                self.body = head(&self.received)?;
            }
            let whole = self.body.filter(|(_, end)| self.received.len() >= *end);
            let Some((begin, end)) = whole else { continue };
            done(self.began.elapsed(), (end - begin) as u64);
            self.answered = true;
            self.left -= 1;
            if self.left == 0 {
                return Ok(());
            }
            self.ask(request)?;
        }
    }
}

/// A connection whose socket takes a whole request at once.
fn connect(target: SocketAddr, request: usize) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&target, PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    sockopt::set_socket_send_buffer_size(&stream, 4 * request)?;
    Ok(stream)
}

fn request(wanted: &Wanted) -> Vec<u8> {
    let (request, host, up) = (&wanted.request, &wanted.host, wanted.up);
    let head = match up {
        0 => format!("GET {request} HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        _ => format!("POST {request} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {up}\r\n\r\n"),
    };
    let mut all = head.into_bytes();
    all.resize(all.len() + up, b'x');
    all
}

/// What `ss` says of the connections to the server; nothing where it says nothing.
fn path(target: SocketAddr) -> Option<Path> {
    let out = std::process::Command::new("ss")
        .args(["-Htin", "dst", &target.to_string()])
        .output()
        .ok()?;
    parse_path(&String::from_utf8_lossy(&out.stdout))
}

/// Words as `mss:1428`, `pmtu:1500`, and `retrans:0/3`, the second of which counts all.
fn parse_path(text: &str) -> Option<Path> {
    let of = |head: &'static str| {
        let words = text.split_whitespace().filter_map(move |word| word.strip_prefix(head));
        words.filter_map(|number| number.rsplit('/').next()?.parse::<u64>().ok())
    };
    let least = |head| of(head).min().and_then(|number| u32::try_from(number).ok());
    Some(Path { mss: least("mss:")?, mtu: least("pmtu:")?, again: of("retrans:").sum() })
}

#[cfg(test)]
mod tests {
    use super::super::server::local as web;
    use super::*;

    fn wanted(target: SocketAddr) -> Wanted {
        Wanted {
            target,
            request: "/object/1/5000".into(),
            host: "lab.example".into(),
            up: 0,
            connections: 7,
            requests: 20,
            limit: Duration::from_secs(20),
        }
    }

    #[test]
    fn every_connection_sends_its_requests_one_after_the_other() {
        let told = measure(&wanted(web())).unwrap();
        assert_eq!((told.answered, told.failed, told.octets), (140, 0, 700_000), "{:?}", told.why);
        assert_eq!(told.histogram.iter().map(|h| h.1).sum::<u64>(), 140);
        assert!(told.histogram.windows(2).all(|w| w[0].0 < w[1].0));
        assert!(told.seconds > 0.0);
        assert!(told.path.is_some_and(|path| path.mtu > 1280), "{:?}", told.path);
    }

    #[test]
    fn a_connection_that_is_closed_between_requests_is_opened_again() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let target = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            // Two answers per connection, then it is closed.
            for _ in 0..3 {
                let (mut stream, _) = listener.accept().unwrap();
                for _ in 0..2 {
                    assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
                    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx").unwrap();
                }
            }
        });
        let told = measure(&Wanted { connections: 1, requests: 6, ..wanted(target) }).unwrap();
        server.join().unwrap();
        assert_eq!((told.answered, told.reopened, told.failed), (6, 2, 0), "{:?}", told.why);
    }

    #[test]
    fn a_server_that_closes_a_finished_connection_wakes_nobody() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let target = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx").unwrap();
        });
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let mut open = BTreeMap::new();
        let wanted = Wanted { connections: 1, requests: 1, ..wanted(target) };
        let told = exchange(&wanted, epoll.as_fd(), &mut open).unwrap();
        assert_eq!((told.answered, told.failed), (1, 0), "{:?}", told.why);
        // The end of the stream is there once the server's thread is gone: the connection is still open at this end.
        server.join().unwrap();
        assert_eq!(open[&0].stream.peek(&mut [0]).unwrap(), 0);
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut events = Vec::with_capacity(1);
        assert_eq!(epoll::wait(&epoll, spare_capacity(&mut events), Some(&now)), Ok(0));
    }

    #[test]
    fn an_answer_that_is_none_ends_its_connection_with_the_reason() {
        let nowhere = Wanted { request: "/nothing".into(), ..wanted(web()) };
        let told = measure(&nowhere).unwrap();
        assert_eq!((told.answered, told.failed), (0, 7));
        assert!(told.why.is_some_and(|why| why.contains("404")));
        assert!(measure(&wanted(([127, 0, 0, 1], 1).into())).is_err());
    }

    #[test]
    fn what_goes_up_is_as_long_as_it_says() {
        let text = request(&Wanted { up: 3, ..wanted(([127, 0, 0, 1], 80).into()) });
        let text = String::from_utf8(text).unwrap();
        assert!(text.starts_with("POST /object/1/5000 HTTP/1.1\r\n"), "{text}");
        assert!(text.contains("Content-Length: 3\r\n") && text.ends_with("\r\n\r\nxxx"), "{text}");
    }

    #[test]
    fn the_path_is_the_narrowest_of_all_connections() {
        let said = "0 0 [2001:db8::1]:4 [2001:db8::2]:80\n\t cubic mss:1428 pmtu:1500 rcvmss:536 retrans:0/3\n\
                    0 0 [2001:db8::1]:5 [2001:db8::2]:80\n\t cubic mss:1208 pmtu:1280 rcvmss:536\n";
        assert_eq!(parse_path(said), Some(Path { mss: 1208, mtu: 1280, again: 3 }));
        assert_eq!(parse_path(""), None);
    }
}
