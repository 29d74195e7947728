//! One connection that fetches one thing after the other: what a socket that is ready lets it do.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};

/// A connection.
#[derive(Debug)]
pub(super) struct Fetch {
    stream: TcpStream,
    connected: bool,
    /// What was asked for and is not yet there whole.
    wanted: Option<String>,
    asked: bool,
    received: Vec<u8>,
    /// Where the body begins and ends in what was received.
    body: Option<(usize, usize)>,
}

impl Fetch {
    /// Begins to connect.
    pub(super) fn open(target: SocketAddr) -> std::io::Result<Self> {
        let family = if target.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        match connect(&socket, &target) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        let stream = TcpStream::from(socket);
        Ok(Self {
            stream,
            connected: false,
            wanted: None,
            asked: false,
            received: Vec::new(),
            body: None,
        })
    }

    /// Whether it has nothing to do.
    pub(super) fn idle(&self) -> bool {
        self.wanted.is_none()
    }

    /// Gives it something to fetch.
    pub(super) fn want(&mut self, path: String) {
        self.wanted = Some(path);
        self.asked = false;
        self.received.clear();
        self.body = None;
    }

    /// The socket.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// What it waits for.
    pub(super) fn interest(&self) -> PollFlags {
        if self.asked { PollFlags::IN } else { PollFlags::OUT }
    }

    /// Goes on as far as it can: path and body of what is now there whole.
    pub(super) fn go_on(&mut self) -> std::io::Result<Option<(String, Vec<u8>)>> {
        if !self.connected {
            sockopt::socket_error(&self.stream)??;
            self.connected = true;
        }
        if let (Some(path), false) = (&self.wanted, self.asked) {
            let request = format!("GET {path} HTTP/1.1\r\nHost: lab.example\r\n\r\n");
            // A request is far smaller than what an idle connection takes at once.
            self.stream.write_all(request.as_bytes())?;
            self.asked = true;
            return Ok(None);
        }
        let mut buffer = [0; 65_536];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(length) => self.received.extend_from_slice(&buffer[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
            if self.body.is_none() {
                self.body = head(&self.received)?;
            }
            if let Some((from, to)) = self.body.filter(|(_, to)| self.received.len() >= *to) {
                let path = self.wanted.take().unwrap_or_default();
                return Ok(Some((path, self.received[from..to].to_vec())));
            }
        }
    }
}

/// Where the body begins and ends, once the head is there; an error for anything but a success.
pub(super) fn head(received: &[u8]) -> std::io::Result<Option<(usize, usize)>> {
    let Some(end) = received.windows(4).position(|w| w == b"\r\n\r\n") else { return Ok(None) };
    let text = String::from_utf8_lossy(&received[..end]).to_ascii_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length = length.and_then(|length| length.trim().parse::<usize>().ok());
    let first = text.lines().next().unwrap_or_default();
    match length.filter(|_| first.split(' ').nth(1) == Some("200")) {
        Some(length) => Ok(Some((end + 4, end + 4 + length))),
        None => Err(std::io::Error::other(format!("the server said: {first}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_says_where_the_body_ends() {
        let said = b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\nabc";
        assert_eq!(head(said).unwrap(), Some((38, 45)));
        assert_eq!(head(&said[..30]).unwrap(), None);
        assert!(head(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").is_err());
        assert!(head(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }
}
