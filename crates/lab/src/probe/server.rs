//! The far end of the probes.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::{TCP_PORT, payload};
use fordway_data::addresses::ECHO_PORT;

/// Largest transfer that a client may ask for.
const MAX_TRANSFER: u64 = 64 << 20;

/// Serves until killed. Says `listening` when all ports are open.
///
/// The echo has one socket per own address: a socket on the wildcard would answer from whichever
/// address the route prefers, and a translator rightly ignores answers from a stranger.
pub(crate) fn serve(own: &[IpAddr]) -> std::io::Result<()> {
    // Bound to the IPv6 wildcard, a socket takes IPv4 as well (RFC 4291 section 2.5.5.2).
    let tcp = TcpListener::bind(("::", TCP_PORT))?;
    for address in own {
        let udp = UdpSocket::bind((*address, ECHO_PORT))?;
        fordway_load::widen(&udp);
        std::thread::spawn(move || echo(&udp));
    }
    // Only who may have the port is a site, too: the lab's own runs are root's.
    if let Ok(listener) = super::http::listener() {
        std::thread::spawn(move || super::http::serve(&listener));
    }
    println!("listening");
    for stream in tcp.incoming() {
        // A client that goes away midway is the client's failed check, not the server's end.
        let _ = stream.and_then(answer);
    }
    Ok(())
}

fn echo(udp: &UdpSocket) {
    let mut buffer = vec![0; 65_536];
    loop {
        if let Ok((length, from)) = udp.recv_from(&mut buffer) {
            // A reply that cannot be sent is a missing reply at the client.
            let _ = udp.send_to(&buffer[..length], from);
        }
    }
}

/// Request: length and seed (both 8 octets, big-endian), then the payload.
/// Reply: SHA-256 of what arrived, then as many octets made from the seed plus one.
fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.set_write_timeout(Some(Duration::from_secs(5)))?;
    let mut word = [0; 8];
    stream.read_exact(&mut word)?;
    let length = u64::from_be_bytes(word).min(MAX_TRANSFER);
    stream.read_exact(&mut word)?;
    let seed = u64::from_be_bytes(word);
    let mut hash = Sha256::new();
    let mut left = length;
    let mut buffer = vec![0; 65_536];
    while left > 0 {
        let take = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        stream.read_exact(&mut buffer[..take])?;
        hash.update(&buffer[..take]);
        left -= take as u64;
    }
    stream.write_all(&hash.finalize())?;
    let length = usize::try_from(length).unwrap_or(0);
    stream.write_all(&payload(seed.wrapping_add(1), length))
}
