//! Requests to a server of NATS.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

/// The answer to a request, of somebody who listens to the subject.
///
/// # Panics
///
/// If there is none.
#[must_use]
pub fn request(mut server: TcpStream, subject: &str, body: &str) -> String {
    let lines = format!(
        "CONNECT {{\"verbose\":false}}\r\nSUB answer 1\r\nPUB {subject} answer {}\r\n{body}\r\n",
        body.len()
    );
    server.write_all(lines.as_bytes()).unwrap();
    let answer = BufReader::new(server).lines().map(Result::unwrap);
    // INFO, then what the answer is, then itself.
    let mut rest = answer.skip_while(|line| !line.starts_with("MSG "));
    rest.nth(1).expect("an answer")
}
