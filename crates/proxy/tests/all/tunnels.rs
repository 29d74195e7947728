//! CONNECT and Upgrade.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

use fordway_proxy::{Limits, Settings};
use fordway_testhost::poll;

use super::world::{RawServer, World, forward, reverse};

/// A server that gives everything back, and says goodbye behind it.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("[::1]:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut buffer = vec![0; 65536];
                while let Ok(len @ 1..) = stream.read(&mut buffer) {
                    if stream.write_all(&buffer[..len]).is_err() {
                        return;
                    }
                }
                let _ = stream.write_all(b"bye");
            });
        }
    });
    address
}

#[test]
fn octets_pass_both_ways_and_ends_apart() {
    let world = World::forward();
    let mut client = world.client();
    // What comes behind the request is the tunnel's, even if it comes with it.
    client.send(format!("CONNECT {} HTTP/1.1\r\nHost: a\r\n\r\nearly", echo()));
    let got = client.until(|it| it.ends_with("early"));
    assert_eq!(got, "HTTP/1.1 200 Connection established\r\n\r\nearly");
    let stats = world.server.stats();
    assert_eq!((stats.tunnels, stats.tunnels_open), (1, 1));
    let sent: Vec<u8> = (0..3_000_000).map(|at| b'a' + (at % 23) as u8).collect();
    let mut writer = client.0.try_clone().unwrap();
    let octets = sent.clone();
    let writing = thread::spawn(move || {
        writer.write_all(&octets).unwrap();
        // Half-close: the answer still comes.
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let got = client.all();
    writing.join().unwrap();
    assert_eq!(got.len(), sent.len() + 3);
    assert!(got.as_bytes()[..sent.len()] == sent && got.ends_with("bye"));
    poll("the tunnel is closed", || (world.server.stats().tunnels_open == 0).then_some(()));
    let stats = world.server.stats();
    assert_eq!((stats.octets_in, stats.octets_out), (3_000_005, 3_000_008));
}

#[test]
fn urgent_data_among_much_holds_nothing_up() {
    let world = World::forward();
    let mut client = world.client();
    client.send(format!("CONNECT {} HTTP/1.1\r\nHost: a\r\n\r\n", echo()));
    client.until(|it| it.ends_with("\r\n\r\n"));
    let mut writer = client.0.try_clone().unwrap();
    let writing = thread::spawn(move || {
        for _ in 0..20 {
            writer.write_all(&[b'a'; 200_000]).unwrap();
            rustix::net::send(&writer, b"!", rustix::net::SendFlags::OOB).unwrap();
        }
        writer.write_all(b"end").unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let got = client.all();
    writing.join().unwrap();
    // The kernel keeps one mark at a time; of two that come together the first octet is ordinary data.
    let sent = got.strip_suffix("endbye").expect("all comes");
    assert_eq!(sent.replace('!', "").len(), 20 * 200_000);
}

#[test]
fn much_and_little_take_turns() {
    let world = World::forward();
    let mut client = world.client();
    client.send(format!("CONNECT {} HTTP/1.1\r\nHost: a\r\n\r\n", echo()));
    client.until(|it| it.ends_with("\r\n\r\n"));
    let pattern: Vec<u8> = (0..1_500_000).map(|at| b'a' + (at % 23) as u8).collect();
    for len in [1, 700_000, 3, 20_000, 1_500_000, 1, 1, 16_384, 16_385, 262_144, 5] {
        let mut writer = client.0.try_clone().unwrap();
        let octets = pattern[..len].to_vec();
        let writing = thread::spawn(move || writer.write_all(&octets).unwrap());
        let got = client.until(|it| it.len() == len);
        writing.join().unwrap();
        assert!(got.as_bytes() == &pattern[..len], "{len} octets are damaged");
    }
}

#[test]
fn silence_ends_a_tunnel() {
    let limits = Limits { idle_time: Duration::from_millis(50), ..forward().limits };
    let world = World::new(&Settings { limits, ..forward() });
    let mut client = world.client();
    client.send(format!("CONNECT {} HTTP/1.1\r\nHost: a\r\n\r\n", echo()));
    assert!(client.all().starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_protocol_that_is_allowed_takes_over() {
    let server = RawServer::start(|n, head| {
        assert!(
            n > 0 || head.contains("\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"),
            "{head}"
        );
        Some(if n == 0 {
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nhello".to_vec()
        } else {
            b"again".to_vec()
        })
    });
    let world = World::new(&reverse(&[server.address]));
    let mut client = world.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    let got = client.until(|it| it.ends_with("hello"));
    assert!(got.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{got}");
    assert!(got.contains("\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"), "{got}");
    // What follows is no HTTP to the proxy.
    client.send("anything HTTP/\r\n\r\n");
    assert_eq!(client.until(|it| it.ends_with("again")), "again");
    assert_eq!(world.server.stats().tunnels, 1);
}
