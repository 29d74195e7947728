//! The start of a session: name, connection, first octet of the answer. And pages, which begin in the
//! same way.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::page;
use super::resolve::resolve;
use crate::dns::message::{Name, Sort};

/// How long a connection, or an answer, may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

/// How the server's address is found.
#[derive(Debug, Clone, Copy)]
pub enum Way {
    /// It is known.
    Literal(IpAddr),
    /// By a name that nobody has asked for before.
    Fresh(SocketAddr),
    /// By a name that the name server knows.
    Known(SocketAddr),
}

/// What to do.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// How the server's address is found.
    pub way: Way,
    /// TCP port of the server.
    pub port: u16,
    /// Series of the names.
    pub series: u16,
    /// How often, one after the other.
    pub count: u32,
    /// Objects of a page; 0: no page, one octet.
    pub objects: u32,
    /// Octets of an object.
    pub size: u32,
}

/// How long it took.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Timed {
    /// From the beginning to the first octet, or to a page's last, ms; one per success, in order.
    pub ms: Vec<f64>,
    /// Of it until the address was known.
    pub name_ms: Vec<f64>,
    /// How many went to an IPv6 address.
    pub over_v6: u64,
    /// How many failed.
    pub failed: u64,
    /// Why, the first time.
    pub why: Option<String>,
}

/// Measures.
pub fn measure(wanted: &Wanted) -> Timed {
    let mut timed = Timed::default();
    // The first one resolves neighbours and makes the one name known: it does not count.
    for number in 0..=wanted.count {
        let start = Instant::now();
        match once(wanted, number, start) {
            Ok((address, named)) if number > 0 => {
                timed.ms.push(start.elapsed().as_secs_f64() * 1e3);
                timed.name_ms.push(named.as_secs_f64() * 1e3);
                timed.over_v6 += u64::from(address.is_ipv6());
            }
            Ok(_) => {}
            Err(why) => {
                timed.failed += 1;
                timed.why.get_or_insert(why);
            }
        }
    }
    timed
}

/// The address, and how long it took to know it.
fn once(wanted: &Wanted, number: u32, start: Instant) -> Result<(IpAddr, Duration), String> {
    let name = |number| Name { sort: Sort::Server, series: wanted.series, number };
    let address = match wanted.way {
        Way::Literal(address) => address,
        Way::Fresh(server) => resolve(server, name(number))?,
        Way::Known(server) => resolve(server, name(0))?,
    };
    let named = start.elapsed();
    let target = SocketAddr::new(address, wanted.port);
    if wanted.objects > 0 {
        page::load(target, wanted.objects, wanted.size)?;
    } else {
        first_octet(target).map_err(|e| format!("{target}: {e}"))?;
    }
    Ok((address, named))
}

fn first_octet(target: SocketAddr) -> std::io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&target, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    stream.write_all(b"GET /octet HTTP/1.1\r\nHost: lab.example\r\n\r\n")?;
    stream.read_exact(&mut [0])
}

#[cfg(test)]
mod tests {
    use super::super::{resolve::local as names, server::local as web};
    use super::*;
    use crate::dns::message::Server;

    #[test]
    fn sessions_and_pages_come_by_name_and_by_address() {
        let web = web();
        let v4 = Some(std::net::Ipv4Addr::LOCALHOST);
        let names = names(Server { v4, v6: None });
        for way in [Way::Literal(web.ip()), Way::Fresh(names), Way::Known(names)] {
            for objects in [0, 9] {
                let port = web.port();
                let wanted = Wanted { way, port, series: 1, count: 3, objects, size: 5000 };
                let timed = measure(&wanted);
                assert_eq!((timed.ms.len(), timed.failed), (3, 0), "{way:?} {:?}", timed.why);
                assert!(timed.ms.iter().zip(&timed.name_ms).all(|(all, name)| all >= name));
                assert_eq!(timed.over_v6, 0);
            }
        }
    }

    #[test]
    fn what_fails_is_counted_with_its_reason() {
        // Port 1 of the loopback: nobody listens there without being told to.
        let way = Way::Literal([127, 0, 0, 1].into());
        let timed = measure(&Wanted { way, port: 1, series: 1, count: 2, objects: 0, size: 0 });
        assert_eq!((timed.ms.len(), timed.failed), (0, 3));
        assert!(timed.why.is_some_and(|why| why.contains("127.0.0.1:1")));
    }
}
