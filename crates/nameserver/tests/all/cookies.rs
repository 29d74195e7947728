//! DNS cookies (RFC 7873) as clients see them.

use std::io::Write;
use std::num::NonZeroU32;

use fordway_nameserver::{Cookies, Rate, Settings};
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::RecordType;
use hickory_proto::rr::rdata::opt::{EdnsCode, EdnsOption};

use super::world::*;

fn with_cookie(mut query: Message, cookie: &[u8]) -> Message {
    query = with_edns(query, 1232);
    let option = EdnsOption::Unknown(10, cookie.to_vec());
    query.edns.as_mut().expect("set").options_mut().insert(option);
    query
}

fn cookie(message: &Message) -> Option<Vec<u8>> {
    match message.edns.as_ref()?.options().get(EdnsCode::Cookie)? {
        EdnsOption::Unknown(_, cookie) => Some(cookie.clone()),
        _ => None,
    }
}

#[test]
fn a_server_cookie_is_given_and_known_again() {
    let upstream = Upstream::start();
    let server = serve(&settings(&upstream));
    let address = server.local_addrs()[0];
    let socket = client(address);
    for text in ["www.example.net.", "www.example.net.", "other.example.net."] {
        let query = query(text, RecordType::AAAA);
        let first = ask(&socket, &with_cookie(query.clone(), &[7; 8]));
        let given = cookie(&first).expect("a cookie");
        assert_eq!((given.len(), &given[..8]), (24, &[7; 8][..]));
        assert_eq!(addresses(&first), synthetic(POOL6));
        let second = ask(&socket, &with_cookie(query.clone(), &given));
        assert_eq!(cookie(&second), Some(given.clone()));
        let by_tcp = ask_tcp(address, &with_cookie(query.clone(), &given));
        assert_eq!(cookie(&by_tcp), Some(given));
        assert_eq!(cookie(&ask(&socket, &with_edns(query.clone(), 1232))), None);
        assert_eq!(ask(&socket, &query).edns, None);
    }
    let stats = server.stats();
    assert_eq!((stats.cookies_first, stats.cookies_valid, stats.cookies_invalid), (3, 6, 0));
}

#[test]
fn answers_with_a_cookie_fit_like_others() {
    let upstream = Upstream::start();
    let server = serve(&Settings { udp_size: 4096, ..settings(&upstream) });
    let socket = client(server.local_addrs()[0]);
    for (size, fits) in [(512, false), (1232, false), (4096, true)] {
        let mut query = with_cookie(query("many.example.net.", RecordType::A), &[7; 8]);
        query.edns.as_mut().expect("set").set_max_payload(size);
        let octets = exchange(&socket, &query.to_vec().expect("encodes"));
        assert!(octets.len() <= size.into(), "{}", octets.len());
        let answer = Message::from_vec(&octets).expect("a message");
        assert_eq!(answer.metadata.truncation, !fits, "{size}");
        assert_eq!(cookie(&answer).expect("a cookie").len(), 24);
    }
}

#[test]
fn a_cookie_alone_can_be_asked_for_and_one_of_another_length_is_an_error() {
    let upstream = Upstream::start();
    let server = serve(&settings(&upstream));
    let socket = client(server.local_addrs()[0]);
    let mut bare = with_cookie(query("www.example.net.", RecordType::A), &[7; 8]);
    bare.queries.clear();
    let answer = ask(&socket, &bare);
    assert_eq!(answer.metadata.response_code, ResponseCode::NoError);
    assert_eq!(cookie(&answer).expect("a cookie").len(), 24);
    assert!(answer.queries.is_empty());
    for len in [0, 7, 9, 15, 41] {
        let wrong = with_cookie(query("www.example.net.", RecordType::A), &vec![7; len]);
        let answer = ask(&socket, &wrong);
        assert_eq!((answer.metadata.response_code, cookie(&answer)), (ResponseCode::FormErr, None));
    }
    assert_eq!(server.stats().cookies_invalid, 5);
}

#[test]
fn who_shows_it_is_not_limited_and_who_might_be_forged_is_told_it() {
    on_own_host(|| {
        let upstream = Upstream::start();
        let one = NonZeroU32::MIN;
        // Loopback is not limited.
        let listen = vec!["192.0.2.1:0".parse().expect("an address")];
        let rate = Some(Rate { per_second: one, burst: one });
        let server = serve(&Settings { rate, listen, ..settings(&upstream) });
        let socket = client_at(server.local_addrs()[0], [192, 0, 2, 2].into());
        let query = || query("www.example.net.", RecordType::AAAA);
        ask(&socket, &query());
        // Over the rate every other query is answered, without any record.
        let first = with_cookie(query(), &[7; 8]).to_vec().expect("encodes");
        for _ in 0..100 {
            socket.send(&first).expect("sent");
        }
        let refused = (0..50).map(|_| {
            let mut octets = vec![0; 4096];
            let len = socket.recv(&mut octets).expect("an answer");
            Message::from_vec(&octets[..len]).expect("a message")
        });
        let mut refused = refused.filter(|it| it.metadata.response_code == ResponseCode::BADCOOKIE);
        let refused = refused.next().expect("a refusal");
        assert!(refused.answers.is_empty() && !refused.metadata.truncation);
        let given = cookie(&refused).expect("a cookie");
        let socket = client_at(server.local_addrs()[0], [192, 0, 2, 2].into());
        for _ in 0..50 {
            let answer = ask(&socket, &with_cookie(query(), &given));
            assert_eq!(addresses(&answer), synthetic(POOL6));
        }
        assert_eq!(server.stats().cookies_valid, 50);
        // A malformed cookie shows nothing: over the rate it is answered by TC, and not by FORMERR.
        let malformed = with_cookie(query(), &[7; 9]).to_vec().expect("encodes");
        for _ in 0..100 {
            socket.send(&malformed).expect("sent");
        }
        let limited = (0..50).find(|_| {
            let mut octets = vec![0; 4096];
            let len = socket.recv(&mut octets).expect("an answer");
            let answer = Message::from_vec(&octets[..len]).expect("a message");
            answer.metadata.truncation
        });
        assert!(limited.is_some());
    });
}

#[test]
fn servers_with_one_secret_know_each_others_cookies() {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    writeln!(file, "e5e973e5a6b2a43f48e7dc849e37bfcf").expect("written");
    let upstream = Upstream::start();
    let shared = Settings { cookies: Cookies::File(file.path().to_owned()), ..settings(&upstream) };
    let [one, other, stranger] = [&shared, &shared, &settings(&upstream)].map(serve);
    let query = || query("www.example.net.", RecordType::AAAA);
    let given = cookie(&ask(&client(one.local_addrs()[0]), &with_cookie(query(), &[7; 8])));
    let given = given.expect("a cookie");
    ask(&client(other.local_addrs()[0]), &with_cookie(query(), &given));
    assert_eq!(other.stats().cookies_valid, 1);
    let answer = ask(&client(stranger.local_addrs()[0]), &with_cookie(query(), &given));
    assert_eq!((stranger.stats().cookies_valid, stranger.stats().cookies_invalid), (0, 1));
    // It gives one of its own, and answers all the same.
    assert_eq!(addresses(&answer), synthetic(POOL6));
    assert_ne!(cookie(&answer).expect("a cookie"), given);
    // Without cookies the option is nothing.
    let off = serve(&Settings { cookies: Cookies::Off, ..settings(&upstream) });
    assert_eq!(cookie(&ask(&client(off.local_addrs()[0]), &with_cookie(query(), &given))), None);
}
