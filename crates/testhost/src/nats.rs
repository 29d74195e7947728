//! Servers of NATS with JetStream: their files, and requests to one.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv6Addr, TcpStream};
use std::path::{Path, PathBuf};

/// Where servers listen for clients; the next one at the next port.
pub const PORT: u16 = 4222;
/// Where they listen for each other.
const ROUTES: u16 = 6222;

/// Writes the files of so many servers at an address into a folder, where they store what they have in `nats0` and so on: one cluster,
/// or one server alone. `more` is added to each file.
///
/// # Panics
///
/// If a file can't be written.
#[must_use]
pub fn configure(folder: &Path, address: Ipv6Addr, number: u16, more: &str) -> Vec<PathBuf> {
    let route = |n| format!("127.0.0.1:{}", ROUTES + n);
    let routes: Vec<_> = (0..number).map(|n| format!("nats://{}", route(n))).collect();
    let file = |n| {
        let cluster = format!(
            "cluster {{ name: fordway, listen: \"{}\", routes: [{}] }}",
            route(n),
            routes.join(", ")
        );
        let text = format!(
            "server_name: nats{n}\nlisten: \"[{address}]:{}\"\njetstream {{ store_dir: \"{}\" }}\n{}\n{more}\n",
            PORT + n,
            folder.join(format!("nats{n}")).display(),
            if number > 1 { &cluster } else { "" }
        );
        let path = folder.join(format!("nats{n}.conf"));
        fs::write(&path, text).unwrap();
        path
    };
    (0..number).map(file).collect()
}

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
