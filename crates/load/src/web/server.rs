//! The server: pages with objects on them, and one octet for who asks for no more. A thread per connection.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use super::{content, object};

/// Octets of a request's head at most.
const HEAD: usize = 4096;
/// Objects of a page, and octets of an object, at most.
const MOST: u32 = 1 << 20;

/// Serves until killed. Says `listening` when it does.
pub fn serve(port: u16) -> std::io::Result<()> {
    // Bound to the IPv6 wildcard, a socket takes IPv4 as well (RFC 4291 section 2.5.5.2).
    let listener = TcpListener::bind(("::", port))?;
    let mut out = std::io::stdout();
    writeln!(out, "listening")?;
    out.flush()?;
    answer_all(&listener);
    Ok(())
}

fn answer_all(listener: &TcpListener) {
    for stream in listener.incoming().flatten() {
        std::thread::spawn(move || {
            // A client that goes away midway is the client's failed session, not the server's end.
            let _ = answer(stream);
        });
    }
}

/// Answers request after request on one connection.
fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut head = Vec::new();
    let mut buffer = [0; HEAD];
    loop {
        while let Some(end) = head.windows(4).position(|w| w == b"\r\n\r\n") {
            let request: Vec<u8> = head.drain(..end + 4).collect();
            let said = String::from_utf8_lossy(&request);
            stream.write_all(&response(said.split(' ').nth(1).unwrap_or_default()))?;
        }
        let length = stream.read(&mut buffer)?;
        if length == 0 || head.len() + length > HEAD {
            return Ok(());
        }
        head.extend_from_slice(&buffer[..length]);
    }
}

fn response(path: &str) -> Vec<u8> {
    let (status, kind, body) = match body(path) {
        Some((kind, body)) => ("200 OK", kind, body),
        None => ("404 Not Found", "text/plain", b"no such thing\n".to_vec()),
    };
    let length = body.len();
    let mut octets =
        format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n")
            .into_bytes();
    octets.extend(body);
    octets
}

fn body(path: &str) -> Option<(&'static str, Vec<u8>)> {
    let words: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let number = |word: &str| word.parse().ok().filter(|n| *n <= MOST);
    match words[..] {
        ["octet"] => Some(("text/plain", b"x".to_vec())),
        ["object", which, size] => {
            Some(("application/octet-stream", content(number(which)?, number(size)?)))
        }
        ["page", objects, size] => {
            let (objects, size) = (number(objects)?, number(size)?);
            let mut page = "<!doctype html><title>page</title>\n".to_owned();
            for which in 0..objects {
                // Writing to a String cannot fail.
                let _ = writeln!(page, "<img src=\"{}\">", object(which, size));
            }
            Some(("text/html", page.into_bytes()))
        }
        _ => None,
    }
}

/// A server on the loopback, for tests.
#[cfg(test)]
pub(super) fn local() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || answer_all(&listener));
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_connection_carries_several_requests() {
        let mut stream = TcpStream::connect(local()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        for (path, status, body) in [("/octet", "200", "x"), ("/nothing", "404", "no such thing\n")]
        {
            // A head may come in pieces.
            stream.write_all(format!("GET {path} HTTP/1.1\r\nHo").as_bytes()).unwrap();
            stream.write_all(b"st: a\r\n\r\n").unwrap();
            let mut said = String::new();
            while !said.ends_with(&format!("\r\n\r\n{body}")) {
                let mut octet = [0];
                stream.read_exact(&mut octet).unwrap();
                said.push(char::from(octet[0]));
            }
            assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{said}");
        }
    }

    #[test]
    fn a_page_names_its_objects() {
        let (_, page) = body("/page/3/100").unwrap();
        let page = String::from_utf8(page).unwrap();
        assert_eq!(page.matches("src=\"/object/").count(), 3);
        assert_eq!(body("/object/2/100").unwrap().1, content(2, 100));
        assert!(body("/object/2/9999999999").is_none() && body("/object/2").is_none());
    }
}
