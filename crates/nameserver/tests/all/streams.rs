//! TCP (RFC 7766).

use std::io::Write;
use std::net::Shutdown;
use std::time::Duration;

use fordway_testhost::poll;
use hickory_proto::rr::RecordType;

use super::world::*;

fn octets(text: &str, id: u16) -> Vec<u8> {
    let mut message = query(text, RecordType::AAAA);
    message.metadata.id = id;
    message.to_vec().unwrap()
}

#[test]
fn answers_come_as_they_are_found() {
    let upstream = Upstream::start();
    let server = serve(&settings(&upstream));
    let mut stream = connect(server.local_addrs()[0]);
    send(&mut stream, &octets("slow.example.net.", 1));
    send(&mut stream, &octets("fast.example.net.", 2));
    let first = receive(&mut stream).unwrap();
    assert_eq!(first.metadata.id, 2);
    upstream.release();
    let second = receive(&mut stream).unwrap();
    assert_eq!(second.metadata.id, 1);
    assert_eq!(addresses(&second), synthetic(POOL6));
}

#[test]
fn many_in_one_piece_and_one_in_many_pieces() {
    let upstream = Upstream::start();
    let server = serve(&settings(&upstream));
    let mut stream = connect(server.local_addrs()[0]);
    let mut all = Vec::new();
    for id in 0..500u16 {
        let octets = octets(&format!("host{}.example.net.", id % 10), id);
        all.extend((octets.len() as u16).to_be_bytes());
        all.extend(octets);
    }
    let mut reader = stream.try_clone().unwrap();
    let reading = std::thread::spawn(move || {
        let mut ids: Vec<u16> =
            (0..500).map(|_| receive(&mut reader).unwrap().metadata.id).collect();
        ids.sort_unstable();
        ids
    });
    stream.write_all(&all).unwrap();
    assert_eq!(reading.join().unwrap(), (0..500).collect::<Vec<_>>());

    stream.set_nodelay(true).unwrap();
    let octets = octets("host1.example.net.", 7);
    for octet in (octets.len() as u16).to_be_bytes().iter().chain(&octets) {
        stream.write_all(&[*octet]).unwrap();
    }
    assert_eq!(receive(&mut stream).unwrap().metadata.id, 7);
}

#[test]
fn a_client_that_has_said_all_still_hears_the_answers() {
    let upstream = Upstream::start();
    let server = serve(&settings(&upstream));
    let mut stream = connect(server.local_addrs()[0]);
    send(&mut stream, &octets("slow.example.net.", 1));
    poll("it waits", || (server.stats().waiting == 1).then_some(()));
    stream.shutdown(Shutdown::Write).unwrap();
    upstream.release();
    assert_eq!(receive(&mut stream).unwrap().metadata.id, 1);
    assert!(receive(&mut stream).is_none(), "and then it ends");
    poll("it is gone", || (server.stats().connections == 0).then_some(()));
}

/// How long it takes, and what does not count as silence, is in `src/dns64/stream/tests.rs`.
#[test]
fn silence_ends_a_connection() {
    let upstream = Upstream::start();
    let mut settings = settings(&upstream);
    settings.limits.idle = Duration::from_millis(20);
    let server = serve(&settings);
    let address = server.local_addrs()[0];
    let mut silent = connect(address);
    assert!(receive(&mut silent).is_none(), "closed by the server");
    let mut half = connect(address);
    half.write_all(&[0, 30, 1, 2, 3]).unwrap();
    assert!(receive(&mut half).is_none(), "a message that does not end");
    poll("both are gone", || (server.stats().connections == 0).then_some(()));
}

#[test]
fn a_length_that_no_message_has() {
    let upstream = Upstream::start();
    let server = serve(&settings(&upstream));
    for len in [0, 1, 11] {
        let mut stream = connect(server.local_addrs()[0]);
        send(&mut stream, &vec![0; len]);
        assert!(receive(&mut stream).is_none(), "{len}");
    }
}

#[test]
fn so_many_connections() {
    let upstream = Upstream::start();
    let mut settings = settings(&upstream);
    settings.limits.connections_per_client = 3;
    let server = serve(&settings);
    let address = server.local_addrs()[0];
    let mut open: Vec<_> = (0..3).map(|_| connect(address)).collect();
    poll("they are there", || (server.stats().connections == 3).then_some(()));
    assert!(receive(&mut connect(address)).is_none(), "one too many");
    assert_eq!(server.stats().connections_refused, 1);
    drop(open.pop());
    poll("one has gone", || (server.stats().connections == 2).then_some(()));
    assert_eq!(
        addresses(&ask_tcp(address, &query("host.example.net.", RecordType::AAAA))),
        synthetic(POOL6)
    );
    for stream in &mut open {
        send(stream, &octets("host.example.net.", 9));
        assert_eq!(receive(stream).unwrap().metadata.id, 9);
    }
}

/// The length of an answer's option edns-tcp-keepalive.
fn keepalive(answer: &hickory_proto::op::Message) -> Option<u16> {
    let options = &answer.edns.as_ref()?.options().options;
    options.iter().find(|(code, _)| u16::from(*code) == 11).map(|(_, option)| option.len())
}

#[test]
fn how_long_it_may_be_silent_is_told_to_who_asks() {
    let upstream = Upstream::start();
    let server = serve(&settings(&upstream));
    let mut message = with_edns(query("host.example.net.", RecordType::AAAA), 1232);
    let option = hickory_proto::rr::rdata::opt::EdnsOption::Unknown(11, Vec::new());
    message.edns.as_mut().unwrap().options_mut().insert(option);
    // Fresh and from the cache.
    for _ in 0..2 {
        let answer = ask_tcp(server.local_addrs()[0], &message);
        assert_eq!(keepalive(&answer), Some(2), "the octets of a time");
        assert_eq!(addresses(&answer), synthetic(POOL6));
    }
    let answer = ask(&client(server.local_addrs()[0]), &message);
    assert_eq!(keepalive(&answer), None, "by UDP it has no meaning");
}
