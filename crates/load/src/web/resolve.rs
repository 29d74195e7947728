//! Names as a stub resolver asks for them: A and AAAA at once, and no address before both are answered
//! (`getaddrinfo`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use crate::dns::message::{A, AAAA, Name, id, question, reply};

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// The address that an application connects to first: IPv6, where there is one (RFC 6724 section 2.1).
pub fn resolve(server: SocketAddr, name: Name) -> Result<IpAddr, String> {
    let words = |error: std::io::Error| format!("the name server: {error}");
    let any = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).map_err(words)?;
    socket.connect(server).map_err(words)?;
    let first: u16 = rand::random();
    let kinds = [(first, A), (first.wrapping_add(1), AAAA)];
    for (id, kind) in kinds {
        socket.send(&question(id, name, kind)).map_err(words)?;
    }
    let start = Instant::now();
    let mut open = kinds.to_vec();
    let (mut v4, mut v6) = (None, None);
    let mut buffer = [0; 2048];
    while !open.is_empty() {
        let left = PATIENCE.saturating_sub(start.elapsed()).max(Duration::from_millis(1));
        socket.set_read_timeout(Some(left)).map_err(words)?;
        let length = socket.recv(&mut buffer).map_err(|e| match e.kind() {
            std::io::ErrorKind::WouldBlock => "the name server does not answer".to_owned(),
            _ => words(e),
        })?;
        let message = &buffer[..length];
        let Some(place) = open.iter().position(|(own, _)| id(message) == Some(*own)) else {
            continue;
        };
        let said = reply(message).ok_or("the name server's reply is damaged")?;
        if said.code != 0 {
            return Err(format!("the name server says: response code {}", said.code));
        }
        for found in &said.answers {
            match found.record_type {
                A => v4 = <[u8; 4]>::try_from(found.data).ok().map(Ipv4Addr::from).or(v4),
                AAAA => v6 = <[u8; 16]>::try_from(found.data).ok().map(Ipv6Addr::from).or(v6),
                _ => {}
            }
        }
        open.remove(place);
    }
    v6.map(IpAddr::from).or(v4.map(IpAddr::from)).ok_or_else(|| "the name has no address".into())
}

/// A name server on the loopback whose names of servers have these addresses, for tests.
#[cfg(test)]
pub(super) fn local(server: crate::dns::message::Server) -> SocketAddr {
    use crate::dns::message::{LONGEST, answer};
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut buffer, mut to) = ([0; 512], [0; LONGEST]);
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let (told, _) = answer(&buffer[..length], server, &mut to).unwrap();
            socket.send_to(&to[..told], from).unwrap();
        }
    });
    address
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dns::message::{Server, Sort};

    #[test]
    fn ipv6_is_taken_where_there_is_any() {
        let name = Name { sort: Sort::Server, series: 1, number: 1 };
        let v4 = Ipv4Addr::new(192, 0, 2, 1);
        let v6: Ipv6Addr = "2001:db8::1".parse().unwrap();
        let of = |v4, v6| resolve(local(Server { v4, v6 }), name);
        assert_eq!(of(Some(v4), Some(v6)), Ok(v6.into()));
        assert_eq!(of(Some(v4), None), Ok(v4.into()));
        assert!(of(None, None).unwrap_err().contains("no address"));
    }
}
