//! Other settings while it runs.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use fordway_nameserver::Error;
use fordway_serve::Service as _;
use fordway_testhost::poll;
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;

use super::world::*;

const OTHER: &str = "2001:db8:6464::/96";

#[test]
fn another_prefix_under_load() {
    let upstream = Upstream::start();
    let settings = settings(&upstream);
    let server = serve(&settings);
    let address = server.local_addrs()[0];
    let (end, round) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (end, round) = (Arc::clone(&end), Arc::clone(&round));
            std::thread::spawn(move || {
                let (client, mut asked) = (client(address), 0);
                while !end.load(Ordering::Acquire) {
                    // Even: settled on one prefix. What is asked while it changes may get either.
                    let before = round.load(Ordering::Acquire);
                    let text = format!("host{}.example.net.", asked % 8);
                    let found = addresses(&ask(&client, &query(&text, RecordType::AAAA)));
                    let after = round.load(Ordering::Acquire);
                    if before == after && before % 2 == 0 {
                        let pool6 = if before % 4 == 0 { POOL6 } else { OTHER };
                        assert_eq!(found, synthetic(pool6), "round {before}");
                    }
                    asked += 1;
                }
                asked
            })
        })
        .collect();
    for change in 0..100 {
        let mut next = settings.clone();
        next.policies = policies(if change % 2 == 0 { OTHER } else { POOL6 });
        round.fetch_add(1, Ordering::AcqRel);
        server.replace(next).unwrap();
        round.fetch_add(1, Ordering::AcqRel);
        let answered = server.stats().answers.noerror;
        poll("some answers", || (server.stats().answers.noerror > answered + 20).then_some(()));
    }
    end.store(true, Ordering::Release);
    for client in clients {
        assert!(client.join().unwrap() > 0);
    }
    assert_eq!(upstream.count("host1.example.net.", RecordType::A), 1, "upstream data stay");
}

#[test]
fn what_waits_is_answered_by_the_new_ones() {
    let upstream = Upstream::start();
    let settings = settings(&upstream);
    let server = serve(&settings);
    let client = client(server.local_addrs()[0]);
    client.send(&query("slow.example.net.", RecordType::AAAA).to_vec().unwrap()).unwrap();
    poll("it waits", || (server.stats().waiting == 1).then_some(()));
    let mut next = settings.clone();
    next.policies = policies(OTHER);
    server.replace(next).unwrap();
    upstream.release();
    let mut octets = [0; 512];
    let len = client.recv(&mut octets).expect("an answer");
    let answer = hickory_proto::op::Message::from_vec(&octets[..len]).unwrap();
    assert_eq!(addresses(&answer), synthetic(OTHER));
}

#[test]
fn who_may_ask_changes() {
    let upstream = Upstream::start();
    let settings = settings(&upstream);
    let server = serve(&settings);
    let client = client(server.local_addrs()[0]);
    let asked = query("host.example.net.", RecordType::AAAA);
    assert_eq!(addresses(&ask(&client, &asked)), synthetic(POOL6));
    let mut next = settings.clone();
    next.allow = acl(&["2001:db8::/32"]);
    server.replace(next).unwrap();
    assert_eq!(ask(&client, &asked).metadata.response_code, ResponseCode::Refused);
    server.replace(settings).unwrap();
    assert_eq!(addresses(&ask(&client, &asked)), synthetic(POOL6));
}

#[test]
fn another_upstream_server_knows_nothing_of_the_first() {
    let (first, second) = (Upstream::start(), Upstream::start());
    let one = settings(&first);
    let server = serve(&one);
    let client = client(server.local_addrs()[0]);
    let asked = query("host.example.net.", RecordType::A);
    ask(&client, &asked);
    let mut other = settings(&second);
    other.listen = one.listen;
    server.replace(other).unwrap();
    ask(&client, &asked);
    assert_eq!(first.count("host.example.net.", RecordType::A), 1);
    assert_eq!(second.count("host.example.net.", RecordType::A), 1);
}

#[test]
fn sockets_and_threads_stay() {
    let upstream = Upstream::start();
    let settings = settings(&upstream);
    let server = serve(&settings);
    let mut next = settings.clone();
    next.listen.push(SocketAddr::from(([127, 0, 0, 1], 0)));
    assert!(matches!(server.replace(next), Err(Error::Fixed("listen"))));
    let mut next = settings.clone();
    next.threads = NonZeroUsize::new(7).unwrap();
    assert!(matches!(server.replace(next), Err(Error::Fixed("threads"))));
    let mut next = settings.clone();
    next.upstream.servers.clear();
    assert!(matches!(server.replace(next), Err(Error::Upstream(_))));
    let answer =
        ask(&client(server.local_addrs()[0]), &query("host.example.net.", RecordType::AAAA));
    assert_eq!(addresses(&answer), synthetic(POOL6), "all is as it was");
}
