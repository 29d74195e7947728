//! Queries by UDP, by connected sockets (RFC 5452 section 9.2).
//!
//! A connected socket receives from the server's address and port alone. The kernel draws its port at random from the
//! range that it is allowed to (`net.ipv4.ip_local_port_range`), and so stays out of the ports of a translator's pool.
//! A socket serves a few questions one after the other, within a second, and only while each got its answer: making one
//! costs more than a question does.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hickory_proto::op::{Message, ResponseCode};
use rustix::net::{RecvFlags, recv};
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;

use super::cookie::{self, Returned};
use super::error::AttemptError;
use super::peer::Peer;
use super::query::{Match, Query};
use super::random;

/// How many questions a socket serves at most.
const MOST_USES: u32 = 16;
/// How long.
const LONGEST_USE: Duration = Duration::from_secs(1);
/// How many sockets wait for their next question.
const MOST_IDLE: usize = 256;
/// Datagrams that do not answer the query after which it is repeated by TCP.
const MOST_MISMATCHES: usize = 8;
/// The header's octet with the bit TC, and the bit.
const TRUNCATION: (usize, u8) = (2, 0x02);

thread_local! {
    static RECEIVED: RefCell<[u8; 65_535]> = const { RefCell::new([0; 65_535]) };
}

/// A socket between two questions.
#[derive(Debug)]
pub(super) struct Idle {
    socket: UdpSocket,
    /// The address that it sends from.
    local: IpAddr,
    made: Instant,
    uses: u32,
}

/// Sends the query once, and waits for the answer without a timeout.
pub(super) async fn ask(
    peer: &Peer,
    sockets: &Mutex<Vec<Idle>>,
    query: &Query,
    now: Instant,
) -> Result<Message, AttemptError> {
    let mut idle = take(sockets, peer.server.address, now)?;
    let own = cookie::of_client(idle.local, peer.server.address.ip());
    let carries = peer.jar.as_ref().and_then(|jar| query.with_cookie(&jar.cookie(own)));
    let shown = carries.is_some().then_some(own);
    let query = carries.as_ref().unwrap_or(query);
    peer.counters.queries.count();
    idle.socket.send(query.as_octets()).await?;
    let mut mismatches = 0;
    loop {
        // An ICMP error makes a socket ready, but not readable.
        let ready = idle.socket.ready(Interest::READABLE | Interest::ERROR).await?;
        let interest = if ready.is_readable() { Interest::READABLE } else { Interest::ERROR };
        let received = RECEIVED.with_borrow_mut(|buffer| {
            let receive = || Ok(recv(&idle.socket, &mut buffer[..], RecvFlags::empty())?);
            let (_, len) = idle.socket.try_io(interest, receive)?;
            io::Result::Ok(read(peer, query, shown, &mut buffer[..len]))
        });
        match received {
            Ok(Some(answer)) => {
                idle.uses += 1;
                give_back(sockets, idle);
                return answer;
            }
            Ok(None) => {
                mismatches += 1;
                if mismatches == MOST_MISMATCHES {
                    return Err(AttemptError::Suspicious);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // An ICMP error, nearly always: the port is closed.
            Err(error) => return Err(error.into()),
        }
    }
}

/// What a datagram means for the query; `None`: nothing.
fn read(
    peer: &Peer,
    query: &Query,
    shown: Option<[u8; 8]>,
    octets: &mut [u8],
) -> Option<Result<Message, AttemptError>> {
    match query.matches(octets) {
        Match::Answers if octets[TRUNCATION.0] & TRUNCATION.1 != 0 => {
            Some(Err(AttemptError::Truncated))
        }
        // One that can't be parsed is ignored: it may be forged, and the answer may follow.
        Match::Answers => {
            let message = peer.read(query, octets).ok()?;
            let (Some(jar), Some(own)) = (&peer.jar, shown) else { return Some(Ok(message)) };
            match jar.take(own, &message) {
                Returned::Good if message.response_code == ResponseCode::BADCOOKIE => {
                    Some(Err(AttemptError::BadCookie))
                }
                Returned::Good => Some(Ok(message)),
                Returned::Missing => Some(Err(AttemptError::NoCookie)),
                // RFC 7873 section 5.3: it is not the server's.
                Returned::Foreign => {
                    peer.counters.mismatches.count();
                    None
                }
            }
        }
        Match::ErrorWithoutQuestion => Some(Err(AttemptError::NoQuestion)),
        Match::OtherCase => Some(Err(AttemptError::OtherCase)),
        Match::Mismatch => {
            peer.counters.mismatches.count();
            None
        }
        Match::Malformed => {
            peer.counters.malformed.count();
            None
        }
    }
}

/// A socket drawn at random from those that wait, or a new one.
fn take(sockets: &Mutex<Vec<Idle>>, server: SocketAddr, now: Instant) -> io::Result<Idle> {
    let mut waiting = lock(sockets);
    while !waiting.is_empty() {
        let drawn = usize::from(u16::from_ne_bytes(random::octets()?)) % waiting.len();
        let idle = waiting.swap_remove(drawn);
        if now.saturating_duration_since(idle.made) < LONGEST_USE {
            return Ok(idle);
        }
    }
    drop(waiting);
    let socket = connect(server)?;
    let local = socket.local_addr()?.ip();
    Ok(Idle { socket, local, made: now, uses: 0 })
}

fn give_back(sockets: &Mutex<Vec<Idle>>, idle: Idle) {
    if idle.uses < MOST_USES {
        let mut waiting = lock(sockets);
        if waiting.len() < MOST_IDLE {
            waiting.push(idle);
        }
    }
}

fn connect(server: SocketAddr) -> io::Result<UdpSocket> {
    let kind = Type::DGRAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(server), kind, None)?;
    socket.connect(&SockAddr::from(server))?;
    UdpSocket::from_std(socket.into())
}

/// Locks; the data behind these locks is consistent even if a thread has panicked.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[tokio::test]
    async fn a_socket_serves_so_many_questions_and_not_for_long() {
        let server = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = server.local_addr().unwrap();
        let sockets = Mutex::default();
        let start = Instant::now();
        let mut idle = take(&sockets, address, start).unwrap();
        for uses in 1..MOST_USES {
            idle.uses = uses;
            give_back(&sockets, idle);
            idle = take(&sockets, address, start + LONGEST_USE / 2).unwrap();
            assert_eq!((idle.uses, idle.made), (uses, start));
        }
        idle.uses = MOST_USES;
        give_back(&sockets, idle);
        assert!(lock(&sockets).is_empty(), "it has served enough");

        give_back(&sockets, take(&sockets, address, start).unwrap());
        let later = take(&sockets, address, start + LONGEST_USE).unwrap();
        assert_eq!(later.made, start + LONGEST_USE, "the one that waited was too old");
        assert!(lock(&sockets).is_empty());
    }
}
