//! The payload check by HTTP, for what carries nothing else: as content of a request, and of its response.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use fordway_data::addresses::SITE_PORT;
use sha2::{Digest, Sha256};

use super::dial::{PATIENCE, open, words};
use super::payload;

/// Largest content that a client may send.
const MOST: usize = 64 << 20;
/// Octets of a head at most.
const HEAD: usize = 8192;

/// Serves until killed, one request on each connection.
pub(super) fn serve(listener: &TcpListener) {
    for mut stream in listener.incoming().flatten() {
        std::thread::spawn(move || {
            // A client that goes away midway is the client's failed check.
            let _ = answer(&mut stream);
        });
    }
}

/// `POST /payload/SEED`: the response has the SHA-256 of the content, and as many octets made from the seed
/// plus one.
fn answer(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let Some((head, mut content)) = message(stream)? else { return Ok(()) };
    let seed = head.split(' ').nth(1).and_then(|path| path.strip_prefix("/payload/")?.parse().ok());
    let length = field(&head, "content-length").and_then(|value| value.parse().ok());
    let (Some(seed), Some(length)) = (seed, length.filter(|length| *length <= MOST)) else {
        return stream
            .write_all(b"HTTP/1.1 400 What?\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    };
    fill(stream, &mut content, length)?;
    let seed: u64 = seed;
    let body = [&Sha256::digest(&content)[..], &payload(seed.wrapping_add(1), length)].concat();
    let head =
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    stream.write_all(head.as_bytes())?;
    stream.write_all(&body)
}

/// Sends so many octets to a site and compares what comes back.
pub(super) fn exchange(
    site: SocketAddr,
    host: &str,
    seed: u64,
    length: usize,
) -> Result<(), String> {
    let mut stream = open(site)?;
    let sent = payload(seed, length);
    let head = format!(
        "POST /payload/{seed} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    let mut talk = || -> std::io::Result<Option<(String, Vec<u8>)>> {
        stream.write_all(head.as_bytes())?;
        stream.write_all(&sent)?;
        let Some((head, mut content)) = message(&mut stream)? else { return Ok(None) };
        if let Some(length) = field(&head, "content-length").and_then(|text| text.parse().ok()) {
            fill(&mut stream, &mut content, usize::min(length, MOST))?;
        }
        Ok(Some((head, content)))
    };
    let (head, content) =
        talk().map_err(|error| words(&error))?.ok_or("the answer is no HTTP message")?;
    let line = head.lines().next().unwrap_or_default();
    if line.split(' ').nth(1) != Some("200") {
        return Err(format!("the site says: {line}"));
    }
    let wanted = [&Sha256::digest(&sent)[..], &payload(seed + 1, length)].concat();
    if content == wanted { Ok(()) } else { Err("payload changed on the way".into()) }
}

/// The head of a message, and what came of its content with it; `None`: there was no whole head.
fn message(stream: &mut TcpStream) -> std::io::Result<Option<(String, Vec<u8>)>> {
    let mut octets = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        if let Some(end) = octets.windows(4).position(|w| w == b"\r\n\r\n") {
            let content = octets.split_off(end + 4);
            return Ok(Some((String::from_utf8_lossy(&octets).into_owned(), content)));
        }
        let length = stream.read(&mut buffer)?;
        if length == 0 || octets.len() > HEAD {
            return Ok(None);
        }
        octets.extend_from_slice(&buffer[..length]);
    }
}

/// Reads content to this length.
fn fill(stream: &mut TcpStream, content: &mut Vec<u8>, length: usize) -> std::io::Result<()> {
    let at = content.len().min(length);
    content.resize(length, 0);
    stream.read_exact(&mut content[at..])
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let named =
        |line: &'a str| line.split_once(':').filter(|(own, _)| own.eq_ignore_ascii_case(name));
    head.lines().find_map(named).map(|(_, value)| value.trim())
}

/// The listener of a site, if this process may have its port.
pub(super) fn listener() -> std::io::Result<TcpListener> {
    // Bound to the IPv6 wildcard, a socket takes IPv4 as well (RFC 4291 section 2.5.5.2).
    TcpListener::bind(("::", SITE_PORT))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || serve(&listener));
        address
    }

    #[test]
    fn content_is_compared_both_ways() {
        let site = site();
        for length in [0, 1, 100_000] {
            assert_eq!(exchange(site, "site.example", 7, length), Ok(()), "{length}");
        }
    }

    #[test]
    fn what_is_no_check_is_refused() {
        let mut stream = open(site()).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let (head, _) = message(&mut stream).unwrap().unwrap();
        assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
    }

    #[test]
    fn a_site_whose_server_is_gone_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = message(&mut stream);
            stream.write_all(b"HTTP/1.1 502 Bad Gateway\r\n\r\n").unwrap();
        });
        let error = exchange(address, "site.example", 1, 0).unwrap_err();
        assert_eq!(error, "the site says: HTTP/1.1 502 Bad Gateway");
    }
}
