//! Connections in which an octet goes there and back all the time, more that are opened one after the other, and a steady flow of
//! datagrams: what becomes of them when a gateway dies.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

/// What to do.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// The echo.
    pub target: SocketAddr,
    /// Connections that are there from the beginning.
    pub connections: u32,
    /// How often an octet goes through each.
    pub period: Duration,
    /// How often another connection is begun.
    pub every: Duration,
    /// How often a datagram goes.
    pub datagrams: Duration,
    /// For how long.
    pub length: Duration,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pulsed {
    /// When it began, ms of CLOCK_MONOTONIC; all other moments are ms since then.
    pub began_ms: f64,
    /// What became of each connection that was opened, in the order of their beginning.
    pub connections: Vec<Fate>,
    /// Connections that were begun later and did not open.
    pub unopened: u64,
    /// The longest time between two datagrams that came back, and when it began.
    pub silence: Span,
}

/// A span of time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// When it began.
    pub from_ms: f64,
    /// How long it took.
    pub ms: f64,
}

/// What became of a connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fate {
    /// When it was open.
    pub opened_ms: f64,
    /// The longest time that an octet took there and back, to the end where it has not come back.
    pub longest: Span,
    /// When the last octet came back; none: never.
    pub last_ms: Option<f64>,
    /// For how long the next one was missing at the end; 0: none was.
    pub missing_ms: f64,
    /// Why it ended.
    pub ended: Option<String>,
}

/// A connection under way.
struct Connection {
    stream: TcpStream,
    is_open: bool,
    /// When the octet under way was sent.
    sent: Option<Instant>,
    /// When the next one is due.
    due: Instant,
    fate: Fate,
}

/// How long loops sleep at most.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
/// Events that are looked at together.
const EVENTS: usize = 256;
/// The word of the socket for datagrams among numbers of connections.
const DATAGRAMS: u64 = u64::MAX;

/// CLOCK_MONOTONIC now, in ms.
#[must_use]
pub fn monotonic_ms() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as f64 * 1e3 + now.tv_nsec as f64 * 1e-6
}

/// Does it.
pub fn measure(wanted: &Wanted) -> std::io::Result<Pulsed> {
    raise_descriptors()?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let (began, began_ms) = (Instant::now(), monotonic_ms());
    let mut all: Vec<Connection> = Vec::new();
    let begin = |all: &mut Vec<Connection>| -> std::io::Result<()> {
        let now = Instant::now();
        let connection = Connection::begin(wanted.target, now)?;
        let data = epoll::EventData::new_u64(all.len() as u64);
        epoll::add(&epoll, &connection.stream, data, epoll::EventFlags::OUT)?;
        all.push(connection);
        Ok(())
    };
    for _ in 0..wanted.connections {
        begin(&mut all)?;
    }
    let any = if wanted.target.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any)?;
    socket.connect(wanted.target)?;
    socket.set_nonblocking(true)?;
    epoll::add(&epoll, &socket, epoll::EventData::new_u64(DATAGRAMS), epoll::EventFlags::IN)?;
    let (mut heard, mut silence) = (began, Span::default());
    let (mut next, mut datagram) = (began + wanted.every, began);
    let mut events = Vec::with_capacity(EVENTS);
    while began.elapsed() < wanted.length {
        let now = Instant::now();
        if now >= next {
            begin(&mut all)?;
            next += wanted.every;
        }
        if now >= datagram {
            // What can't be sent is missing from what comes back.
            let _ = socket.send(&[0]);
            datagram = (datagram + wanted.datagrams).max(now);
        }
        for connection in all.iter_mut().filter(|it| it.is_due(now)) {
            connection.send(now);
        }
        events.clear();
        match epoll::wait(&epoll, spare_capacity(&mut events), Some(&TICK)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let now = Instant::now();
        for event in &events {
            if event.data.u64() == DATAGRAMS {
                let mut octets = [0; 8];
                // An error is that of an earlier datagram.
                while socket.recv(&mut octets).is_ok() {
                    silence.lengthen(heard, now, began);
                    heard = now;
                }
                continue;
            }
            let number = event.data.u64();
            let Some(connection) = all.get_mut(number as usize) else { continue };
            if connection.is_open {
                connection.receive(now, began, wanted.period);
            } else {
                connection.open(now, began);
                let data = epoll::EventData::new_u64(number);
                epoll::modify(&epoll, &connection.stream, data, epoll::EventFlags::IN)?;
            }
            if connection.fate.ended.is_some() {
                let _ = epoll::delete(&epoll, &connection.stream);
            }
        }
    }
    let end = Instant::now();
    silence.lengthen(heard, end, began);
    for connection in &mut all {
        if let Some(sent) = connection.sent {
            connection.fate.longest.lengthen(sent, end, began);
            connection.fate.missing_ms = ms(sent, end);
        }
    }
    let (opened, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|it| it.is_open);
    Ok(Pulsed {
        began_ms,
        connections: opened.into_iter().map(|it| it.fate).collect(),
        unopened: others.len() as u64,
        silence,
    })
}

/// Lets this process have as many descriptors as it may: each connection has one, and 1,024 are the default.
fn raise_descriptors() -> std::io::Result<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    Ok(setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
}

fn ms(from: Instant, until: Instant) -> f64 {
    until.duration_since(from).as_secs_f64() * 1e3
}

impl Span {
    /// Becomes this one, if that is longer.
    fn lengthen(&mut self, from: Instant, until: Instant, began: Instant) {
        let took = ms(from, until);
        if took > self.ms {
            *self = Self { from_ms: ms(began, from), ms: took };
        }
    }
}

impl Connection {
    /// Begins one, without waiting for it.
    fn begin(target: SocketAddr, now: Instant) -> std::io::Result<Self> {
        let family = if target.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket: OwnedFd = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        match rustix::net::connect(&socket, &target) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        let fate = Fate {
            opened_ms: 0.0,
            longest: Span::default(),
            last_ms: None,
            missing_ms: 0.0,
            ended: None,
        };
        Ok(Self { stream: socket.into(), is_open: false, sent: None, due: now, fate })
    }

    /// Its handshake is over, one way or the other.
    fn open(&mut self, now: Instant, began: Instant) {
        match self.stream.take_error() {
            Ok(None) => {
                self.is_open = true;
                self.fate.opened_ms = ms(began, now);
            }
            Ok(Some(error)) | Err(error) => self.fate.ended = Some(error.to_string()),
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        self.is_open && self.sent.is_none() && self.fate.ended.is_none() && now >= self.due
    }

    fn send(&mut self, now: Instant) {
        match self.stream.write_all(&[0]) {
            Ok(()) => self.sent = Some(now),
            Err(error) => self.fate.ended = Some(error.to_string()),
        }
    }

    fn receive(&mut self, now: Instant, began: Instant, period: Duration) {
        match self.stream.read(&mut [0; 8]) {
            Ok(0) => self.fate.ended = Some("the other end has closed it".into()),
            Ok(_) => {
                if let Some(sent) = self.sent.take() {
                    self.fate.longest.lengthen(sent, now, began);
                    self.due = sent + period;
                }
                self.fate.last_ms = Some(ms(began, now));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => self.fate.ended = Some(error.to_string()),
        }
    }
}

/// Answers on a port, by TCP and UDP, for ever.
pub fn serve(port: u16) -> std::io::Result<()> {
    raise_descriptors()?;
    let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    let (listener, socket) = (TcpListener::bind(any)?, UdpSocket::bind(any)?);
    answer(&listener, &socket)
}

fn answer(listener: &TcpListener, socket: &UdpSocket) -> std::io::Result<()> {
    listener.set_nonblocking(true)?;
    socket.set_nonblocking(true)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let of = epoll::EventData::new_u64;
    epoll::add(&epoll, listener, of(DATAGRAMS - 1), epoll::EventFlags::IN)?;
    epoll::add(&epoll, socket, of(DATAGRAMS), epoll::EventFlags::IN)?;
    let mut all: Vec<Option<TcpStream>> = Vec::new();
    let mut events = Vec::with_capacity(EVENTS);
    loop {
        events.clear();
        match epoll::wait(&epoll, spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            let mut octets = [0; 64];
            match event.data.u64() {
                DATAGRAMS => {
                    while let Ok((length, from)) = socket.recv_from(&mut octets) {
                        // Whoever can't be answered hears nothing.
                        let _ = socket.send_to(&octets[..length], from);
                    }
                }
                number if number == DATAGRAMS - 1 => {
                    while let Ok((stream, _)) = listener.accept() {
                        stream.set_nonblocking(true)?;
                        stream.set_nodelay(true)?;
                        epoll::add(&epoll, &stream, of(all.len() as u64), epoll::EventFlags::IN)?;
                        all.push(Some(stream));
                    }
                }
                number => {
                    let Some(place) = all.get_mut(number as usize) else { continue };
                    let Some(stream) = place else { continue };
                    let went = stream.read(&mut octets).and_then(|length| match length {
                        0 => Err(ErrorKind::UnexpectedEof.into()),
                        length => stream.write_all(&octets[..length]),
                    });
                    if went.is_err_and(|error| error.kind() != ErrorKind::WouldBlock) {
                        *place = None;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(target: SocketAddr) -> Wanted {
        Wanted {
            target,
            connections: 3,
            period: Duration::from_millis(1),
            every: Duration::from_millis(20),
            datagrams: Duration::from_millis(1),
            length: Duration::from_millis(300),
        }
    }

    #[test]
    fn octets_and_datagrams_come_back_to_every_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = listener.local_addr().unwrap();
        let socket = UdpSocket::bind(target).unwrap();
        std::thread::spawn(move || answer(&listener, &socket));
        let told = measure(&wanted(target)).unwrap();
        assert!(told.connections.len() > 3, "{told:?}");
        for fate in &told.connections[..3] {
            let last = fate.last_ms.unwrap();
            assert!(fate.ended.is_none() && last >= fate.opened_ms, "{fate:?}");
            assert!(fate.longest.ms > 0.0 && fate.longest.from_ms <= last, "{fate:?}");
        }
        assert!(told.silence.ms > 0.0 && told.began_ms <= monotonic_ms());
    }

    #[test]
    fn connections_may_take_all_descriptors_that_this_process_may_have() {
        let maximum = getrlimit(Resource::Nofile).maximum;
        // One fewer, so that other tests of this process miss nothing.
        let current = maximum.map_or(Some(1 << 20), |most| Some(most - 1));
        setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
        raise_descriptors().unwrap();
        assert_eq!(getrlimit(Resource::Nofile).current, maximum);
    }

    #[test]
    fn who_gets_no_answer_waits_until_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = listener.local_addr().unwrap();
        // The kernel opens connections, and nobody reads.
        let _socket = UdpSocket::bind(target).unwrap();
        let told = measure(&wanted(target)).unwrap();
        let first = &told.connections[0];
        assert_eq!((first.last_ms, &first.ended), (None, &None));
        assert!(first.longest.ms + first.longest.from_ms >= 300.0, "{first:?}");
        assert_eq!(first.missing_ms, first.longest.ms);
        assert!(told.silence.from_ms < 1.0 && told.silence.ms >= 300.0, "{told:?}");
    }

    #[test]
    fn a_connection_that_is_refused_or_closed_says_so() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let told = measure(&wanted(free)).unwrap();
        assert!(told.connections.is_empty() && told.unopened >= 3, "{told:?}");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = listener.local_addr().unwrap();
        std::thread::spawn(move || while listener.accept().is_ok() {});
        let told = measure(&wanted(target)).unwrap();
        assert!(told.connections.iter().any(|fate| fate.ended.is_some()), "{told:?}");
    }
}
