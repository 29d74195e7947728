//! Thousands of requests by many connections: all are answered, and nothing stays open.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread;

use fordway_testhost::{can_use_tun, has_programs, poll};

use super::world::{FORWARD, Network};

/// Connections at once, requests of each, and how often each connection is opened anew.
const CONNECTIONS: usize = 32;
const REQUESTS: usize = 40;
const ROUNDS: usize = 4;

/// Sockets that the resolver keeps for questions to come: two for each name that 16 connections ask for at once.
const SOCKETS: usize = 32;

#[test]
fn thousands_of_requests_and_no_descriptor_left() {
    if !can_use_tun() || !has_programs(&["curl"]) {
        return;
    }
    let network = Network::new();
    let daemon = network.start(&format!("{FORWARD}pool_time = '1s'\n"));
    let descriptors = || fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count();
    // What is opened at the first request stays: the resolver's cache, the poller.
    assert_eq!(network.status_of("http://v4only.example.net/"), "200");
    poll("the first connection is let go", || (network.count(&daemon, "idle") == 0).then_some(()));
    let before = descriptors();
    thread::scope(|scope| {
        for number in 0..CONNECTIONS {
            let client = &network.client;
            scope.spawn(move || client.inside(move || (0..ROUNDS).for_each(|_| ask(number))));
        }
    });
    let wanted = (CONNECTIONS * REQUESTS * ROUNDS) as u64 + 1;
    network.until_count(&daemon, "requests_http1", wanted);
    network.until_count(&daemon, "responses/0", wanted);
    // A client of its own making, as real ones are: each name and connection again and again.
    let said = network.through(
        "--parallel --parallel-max 16 -w %{http_code}\\n -o /dev/null http://dual.example.net/size/[1-1000]",
    );
    assert_eq!(said.lines().filter(|line| *line == "200").count(), 1000);
    poll("descriptors are back", || (descriptors() <= before + SOCKETS).then_some(()));
    poll("all connections have ended", || {
        (network.count(&daemon, "connections") == 0).then_some(())
    });
    daemon.stop();
}

/// Sends requests in bunches, and reads each answer whole.
fn ask(number: usize) {
    let mut stream = TcpStream::connect("[2001:db8:1::1]:3128").unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut sent = 0;
    while sent < REQUESTS {
        let bunch = 1 + (number + sent) % 5;
        let bunch = bunch.min(REQUESTS - sent);
        let sizes: Vec<usize> =
            (sent..sent + bunch).map(|it| (it * 977 + number * 131) % 40_000).collect();
        let requests = sizes.iter().map(|size| {
            format!("GET http://203.0.113.10/size/{size} HTTP/1.1\r\nHost: 203.0.113.10\r\n\r\n")
        });
        stream.write_all(requests.collect::<String>().as_bytes()).unwrap();
        for size in sizes {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                assert!(reader.read_line(&mut head).unwrap() > 0, "cut off: {head}");
            }
            assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
            assert!(head.contains(&format!("\r\nContent-Length: {size}\r\n")), "{head}");
            let mut content = vec![0; size];
            reader.read_exact(&mut content).unwrap();
            assert!(content == vec![b'x'; size]);
        }
        sent += bunch;
    }
}
