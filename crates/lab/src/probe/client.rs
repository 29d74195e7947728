//! The near end of the probes.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use fordway_data::addresses::SITE_PORT;
use fordway_data::trial::Check;
use fordway_load::dns::message::{Name, Sort};
use fordway_load::web::resolve::resolve;
use sha2::{Digest, Sha256};

use super::dial::{SILENCE, Way, words};
use super::{CLOSED_PORT, http, payload};
use fordway_data::addresses::ECHO_PORT;

/// The IPv4 header and the UDP header leave this much of 65,535 octets.
const MAX_UDP: usize = 65_507;

/// Octets that are exchanged with a server found by its name.
const BY_NAME: usize = 65_536;
/// Names of this probe: no load's.
const SERIES: u16 = 0x0f0d;

/// What to probe.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// The server.
    pub(crate) target: IpAddr,
    /// Octets of the TCP payload, each way; 0 leaves TCP out.
    pub(crate) tcp_bytes: usize,
    /// Sizes of UDP payloads.
    pub(crate) udp_sizes: Vec<usize>,
    /// Whether to ask a closed port.
    pub(crate) refused: bool,
    /// How TCP gets there.
    pub(crate) way: Way,
}

/// Runs the probes.
pub(crate) fn run(wanted: &Wanted) -> Vec<Check> {
    let mut checks = Vec::new();
    if wanted.tcp_bytes > 0 {
        checks.push(Check::of("tcp payload", tcp(wanted.way, wanted.target, wanted.tcp_bytes)));
    }
    let (whole, fragments): (Vec<usize>, Vec<usize>) =
        wanted.udp_sizes.iter().partition(|size| **size <= 1400);
    for (name, sizes) in [("udp checksum", whole), ("udp fragments", fragments)] {
        if !sizes.is_empty() {
            checks.push(Check::of(name, udp(wanted.target, &sizes)));
        }
    }
    if wanted.refused {
        checks.push(Check::of("icmp port unreachable", refused(wanted.target)));
    }
    checks
}

/// Opens so many connections, one after the other, and exchanges an octet on each; says how many were whole, and
/// why the first that was not wasn't.
pub(crate) fn begin(way: Way, target: IpAddr, count: u32) -> Check {
    let target = target.to_string();
    let failed: Vec<String> =
        (0..count).filter_map(|_| exchange(way, &target, &target, 1).err()).collect();
    Check::of(
        "begin",
        match failed.first() {
            None => Ok(format!("{count} connections")),
            Some(why) => Err(format!("{} of {count} connections failed: {why}", failed.len())),
        },
    )
}

/// A server that is found by its name, of this number.
pub(crate) fn by_name(resolver: SocketAddr, way: Way, number: u32) -> Check {
    let name = Name { sort: Sort::Server, series: SERIES, number };
    let found = || match way {
        // Whoever is asked for the connection looks the name up.
        Way::Through(_) => {
            exchange(way, &name.text(), &name.text(), BY_NAME).map(|_| "proxy".into())
        }
        Way::Direct | Way::Site => {
            let address = resolve(resolver, name)?;
            exchange(way, &address.to_string(), &name.text(), BY_NAME).map(|_| address.to_string())
        }
    };
    let told = |by: String| match way {
        Way::Through(_) => format!("{}: found by the proxy, payload intact", name.text()),
        _ => format!("{} is {by}; payload intact", name.text()),
    };
    Check::of("name", found().map(told))
}

fn tcp(way: Way, target: IpAddr, length: usize) -> Result<String, String> {
    let started = Instant::now();
    let target = target.to_string();
    exchange(way, &target, &target, length)?;
    let ms = started.elapsed().as_millis();
    Ok(format!("{} KiB each way intact in {ms} ms", length >> 10))
}

/// Sends so many octets and compares what comes back; a site hears the name in its requests.
fn exchange(way: Way, host: &str, name: &str, length: usize) -> Result<(), String> {
    let seed = 0x0f0d_3a11;
    if way == Way::Site {
        let address: IpAddr = host.parse().map_err(|_| format!("{host}: no address"))?;
        let name = if name.contains(':') { format!("[{name}]") } else { name.to_owned() };
        return http::exchange((address, SITE_PORT).into(), &name, seed, length);
    }
    let mut stream = way.connect(host)?;
    let mut transfer = || -> std::io::Result<bool> {
        let sent = payload(seed, length);
        stream.write_all(&(length as u64).to_be_bytes())?;
        stream.write_all(&seed.to_be_bytes())?;
        stream.write_all(&sent)?;
        let mut hash = [0; 32];
        stream.read_exact(&mut hash)?;
        let mut back = vec![0; length];
        stream.read_exact(&mut back)?;
        Ok(hash == *Sha256::digest(&sent) && back == payload(seed + 1, length))
    };
    match transfer() {
        Ok(true) => Ok(()),
        Ok(false) => Err("payload changed on the way".into()),
        Err(error) => Err(words(&error)),
    }
}

/// How long the answer to each of three datagrams is waited for. One may be lost by right; three of the same in a
/// row are not lost by chance, and a machine that does much else answers late.
const WAITS: [Duration; 3] =
    [Duration::from_millis(400), Duration::from_secs(1), Duration::from_secs(4)];

fn udp(target: IpAddr, sizes: &[usize]) -> Result<String, String> {
    let socket = connect(target, ECHO_PORT).map_err(|e| words(&e))?;
    let mut earlier = BTreeSet::new();
    for &size in sizes {
        let size = size.min(MAX_UDP);
        let mut last = SILENCE.to_owned();
        let answered = WAITS.iter().any(|wait| match echoed(&socket, size, &earlier, *wait) {
            Ok(()) => true,
            Err(why) => {
                last = why;
                false
            }
        });
        if !answered {
            return Err(format!("{size} octets: {last}"));
        }
        earlier.insert(size);
    }
    let sizes: Vec<String> = sizes.iter().map(ToString::to_string).collect();
    Ok(format!("echoed intact: {} octets", sizes.join(", ")))
}

/// Sends a datagram of this size and waits for it to come back, whole; those of earlier sizes that come late are not
/// its answer.
fn echoed(
    socket: &UdpSocket,
    size: usize,
    earlier: &BTreeSet<usize>,
    wait: Duration,
) -> Result<(), String> {
    let sent = of_size(size);
    let until = Instant::now() + wait;
    let mut buffer = vec![0; 65_536];
    socket.send(&sent).map_err(|e| words(&e))?;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(SILENCE.into());
        }
        socket.set_read_timeout(Some(left)).map_err(|e| words(&e))?;
        let length = socket.recv(&mut buffer).map_err(|e| words(&e))?;
        let found = &buffer[..length];
        if found == sent {
            return Ok(());
        }
        if !earlier.contains(&length) || found != of_size(length) {
            return Err(format!("{length} octets came back, not the same"));
        }
    }
}

fn of_size(size: usize) -> Vec<u8> {
    payload(size as u64, size)
}

/// A closed port's ICMP error must come back and reach the socket that caused it.
fn refused(target: IpAddr) -> Result<String, String> {
    let socket = connect(target, CLOSED_PORT).map_err(|e| words(&e))?;
    let mut last = String::new();
    for wait in WAITS {
        socket.set_read_timeout(Some(wait)).map_err(|e| words(&e))?;
        let outcome = socket.send(b"is anybody there?").and_then(|_| socket.recv(&mut [0; 64]));
        match outcome {
            Err(e) if e.kind() == ErrorKind::ConnectionRefused => {
                return Ok("ECONNREFUSED reached the sender".into());
            }
            Err(error) => last = words(&error),
            Ok(_) => return Err("a closed port answered".into()),
        }
    }
    Err(format!("the sender saw: {last}"))
}

fn connect(target: IpAddr, port: u16) -> std::io::Result<UdpSocket> {
    let any = if target.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any)?;
    socket.connect((target, port))?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_the_same_on_both_sides_and_differ_by_seed() {
        assert_eq!(payload(7, 100), payload(7, 100));
        assert_ne!(payload(7, 100), payload(8, 100));
        assert_eq!((payload(7, 99).len(), payload(7, 0).len()), (99, 0));
        assert!(payload(7, 100).starts_with(&payload(7, 99)));
        // Octets that are lost or come twice are noticed: no part is like another.
        let words: std::collections::BTreeSet<_> =
            payload(7, 80_000).chunks(8).map(<[u8]>::to_vec).collect();
        assert_eq!(words.len(), 10_000);
    }

    #[test]
    fn answers_that_come_late_are_not_taken_for_others() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(server.local_addr().unwrap()).unwrap();
        server.connect(client.local_addr().unwrap()).unwrap();
        let wait = Duration::from_secs(60);
        let echo = |earlier: &[usize], answers: &[Vec<u8>]| {
            for answer in answers {
                server.send(answer).unwrap();
            }
            echoed(&client, 300, &earlier.iter().copied().collect(), wait)
        };
        assert_eq!(echo(&[100, 200], &[of_size(200), of_size(100), of_size(300)]), Ok(()));
        let strange = |length| Err(format!("{length} octets came back, not the same"));
        assert_eq!(echo(&[100], &[of_size(200)]), strange(200));
        let mut spoilt = of_size(100);
        spoilt[99] ^= 1;
        assert_eq!(echo(&[100], &[spoilt.clone()]), strange(100));
        spoilt.resize(300, 0);
        assert_eq!(echo(&[100], &[spoilt]), strange(300));
        server.send(&of_size(100)).unwrap();
        let none = echoed(&client, 300, &[100].into(), Duration::ZERO);
        assert_eq!(none, Err(SILENCE.into()), "they do not make it wait longer");
    }

    #[test]
    fn a_closed_port_of_this_machine_refuses() {
        // Port 1 of the loopback: nobody listens there without being told to.
        let socket = connect("127.0.0.1".parse().unwrap(), 1).unwrap();
        let error = socket
            .send(b"x")
            .and_then(|_| socket.recv(&mut [0; 8]))
            .and_then(|_| socket.recv(&mut [0; 8]))
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    }
}
