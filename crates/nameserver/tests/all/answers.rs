//! Answers, fresh and from the cache, by UDP and TCP.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;

use fordway_nameserver::{Error, Settings};
use fordway_serve::Service as _;
use fordway_testhost::{PATIENCE, poll};
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;

use super::world::*;
use fordway_testhost::namespace::in_namespace;

#[test]
fn synthesised_once_and_given_again() {
    let upstream = Upstream::start();
    let server = serve(&settings(&upstream));
    let address = server.local_addrs()[0];
    let query = query("host.example.net.", RecordType::AAAA);
    let client = client(address);
    for _ in 0..5 {
        let answer = ask(&client, &query);
        assert_eq!(addresses(&answer), synthetic(POOL6));
        assert_eq!(answer.queries, query.queries);
        assert!(answer.metadata.recursion_available && answer.metadata.recursion_desired);
        assert!(!answer.metadata.authentic_data && !answer.metadata.truncation);
        assert!(answer.edns.is_none(), "the client has not sent any");
    }
    assert_eq!(upstream.count("host.example.net.", RecordType::A), 1);
    // An answer is on its way before it is counted.
    let stats = poll("all is counted", || {
        Some(server.stats()).filter(|stats| stats.latency.iter().sum::<u64>() == 5)
    });
    assert_eq!((stats.synthesised, stats.cached, stats.answers.noerror), (1, 4, 5));
    assert_eq!(stats.udp_queries, 5);
    assert_eq!((stats.waiting, stats.dropped.unsent), (0, 0));
}

/// The kernel assigns clients to threads by their ports: of 64, each of four threads gets some.
#[test]
fn all_threads_have_one_cache_and_one_answer_serves_both_questions() {
    let upstream = Upstream::start();
    let threads = NonZeroUsize::new(4).unwrap();
    let server = serve(&Settings { threads, ..settings(&upstream) });
    let clients: Vec<_> = (0..64).map(|_| client(server.local_addrs()[0])).collect();
    for client in &clients {
        let aaaa = ask(client, &query("host.example.net.", RecordType::AAAA));
        assert_eq!(addresses(&aaaa), synthetic(POOL6));
    }
    let stats = server.stats();
    assert_eq!((stats.synthesised, stats.cached), (1, 63));
    let before = stats.upstream;
    for client in &clients {
        let a = ask(client, &query("host.example.net.", RecordType::A));
        assert_eq!(addresses(&a), ["192.0.2.1".parse::<std::net::IpAddr>().unwrap()]);
    }
    let stats = server.stats();
    // Made once, of the answer that the synthesis was made of.
    assert_eq!((stats.forwarded, stats.cached), (1, 126));
    assert_eq!(stats.upstream.cache_hits, before.cache_hits + 1);
    assert_eq!(stats.upstream.cache_misses, before.cache_misses);
    assert_eq!(upstream.count("host.example.net.", RecordType::A), 1);
    // The other way round: of what came for a client, the synthesis is made.
    ask(&clients[0], &query("other.example.net.", RecordType::A));
    let aaaa = ask(&clients[1], &query("other.example.net.", RecordType::AAAA));
    assert_eq!(addresses(&aaaa), synthetic(POOL6));
    assert_eq!(upstream.count("other.example.net.", RecordType::A), 1);
}

#[test]
fn what_upstream_says_is_passed_on() {
    let upstream = Upstream::start();
    let server = serve(&settings(&upstream));
    let client = client(server.local_addrs()[0]);
    let native = ask(&client, &query("native.example.net.", RecordType::AAAA));
    assert_eq!(addresses(&native), [std::net::IpAddr::V6(NATIVE)]);
    let v4 = ask(&client, &query("host.example.net.", RecordType::A));
    assert_eq!(addresses(&v4), ["192.0.2.1".parse::<std::net::IpAddr>().unwrap()]);
    let none = ask(&client, &query("none.example.net.", RecordType::AAAA));
    assert_eq!(none.metadata.response_code, ResponseCode::NXDomain);
    assert_eq!(none.authorities.len(), 1);
    assert_eq!(server.stats().answers.nxdomain, 1);
    assert_eq!(server.stats().forwarded, 3);
}

#[test]
fn what_was_asked_in_advance_is_asked_once_although_it_is_not_needed() {
    let upstream = Upstream::start();
    let mut settings = settings(&upstream);
    // However slow this host is, there is one try.
    settings.upstream.attempts = 1;
    (settings.upstream.timeout, settings.upstream.deadline) = (PATIENCE, PATIENCE);
    let server = serve(&settings);
    let client = client(server.local_addrs()[0]);
    let both = ask(&client, &query("half.example.net.", RecordType::AAAA));
    assert_eq!(addresses(&both), [std::net::IpAddr::V6(NATIVE)]);
    let asked = || upstream.count("half.example.net.", RecordType::A);
    poll("A is asked for as well", || (asked() == 1).then_some(()));
    // Most clients ask for A, too.
    client.send(&query("half.example.net.", RecordType::A).to_vec().unwrap()).unwrap();
    poll("it waits", || (server.stats().waiting == 1).then_some(()));
    upstream.release();
    let mut octets = [0; 512];
    let len = client.recv(&mut octets).expect("an answer");
    let answer = hickory_proto::op::Message::from_vec(&octets[..len]).unwrap();
    assert_eq!(addresses(&answer).len(), 1);
    assert_eq!((asked(), server.stats().upstream.merged), (1, 1));
}

#[test]
fn the_clients_case_comes_back_and_does_not_matter() {
    let upstream = Upstream::start();
    let server = serve(&settings(&upstream));
    let client = client(server.local_addrs()[0]);
    for text in ["hOsT.exAMPle.NET.", "HOST.example.net.", "host.example.net."] {
        let query = query(text, RecordType::AAAA).to_vec().unwrap();
        let answer = exchange(&client, &query);
        assert_eq!(answer[12..query.len()], query[12..], "octet for octet");
        let answer = hickory_proto::op::Message::from_vec(&answer).unwrap();
        assert_eq!(answer.answers[0].name.to_string(), text);
    }
    assert_eq!(upstream.count("host.example.net.", RecordType::A), 1);
    assert_eq!(server.stats().cached, 2);
}

#[test]
fn ttls_go_down_and_nothing_outlives_them() {
    let upstream = Upstream::start();
    let server = serve(&settings(&upstream));
    let client = client(server.local_addrs()[0]);
    let long = query("host.example.net.", RecordType::A);
    let ttl = ask(&client, &long).answers[0].ttl;
    assert_eq!(ttl, 3600);
    poll("a lower TTL", || (ask(&client, &long).answers[0].ttl < ttl).then_some(()));
    let brief = query("brief.example.net.", RecordType::A);
    poll("asked upstream again", || {
        assert_eq!(ask(&client, &brief).answers[0].ttl, 1, "never 0: it has expired by then");
        (upstream.count("brief.example.net.", RecordType::A) > 1).then_some(())
    });
    assert_eq!(upstream.count("host.example.net.", RecordType::A), 1);
}

#[test]
fn a_long_answer_is_cut_by_udp_and_whole_by_tcp() {
    let upstream = Upstream::start();
    let server = serve(&settings(&upstream));
    let address = server.local_addrs()[0];
    let client = client(address);
    let query = query("many.example.net.", RecordType::AAAA);
    // Twice: the second time it comes from the cache.
    for _ in 0..2 {
        let plain = exchange(&client, &query.to_vec().unwrap());
        assert!(plain.len() <= 512, "{}", plain.len());
        let plain = hickory_proto::op::Message::from_vec(&plain).unwrap();
        assert!(plain.metadata.truncation && plain.answers.is_empty());
        let large = with_edns(query.clone(), 65_535);
        let answer = exchange(&client, &large.to_vec().unwrap());
        assert!(answer.len() <= 1232, "whatever the client says: {}", answer.len());
        let answer = hickory_proto::op::Message::from_vec(&answer).unwrap();
        assert!(answer.metadata.truncation);
        assert_eq!(answer.edns.unwrap().max_payload(), 1232);
        assert_eq!(addresses(&ask_tcp(address, &query)).len(), 100);
    }
    let stats = server.stats();
    assert_eq!((stats.truncated, stats.tcp_queries, stats.connections_accepted), (4, 2, 2));
}

#[test]
fn any_is_answered_by_tcp_alone() {
    let upstream = Upstream::start();
    let server = serve(&settings(&upstream));
    let address = server.local_addrs()[0];
    let any = with_edns(query("host.example.net.", RecordType::ANY), 1232);
    let answer = ask(&client(address), &any);
    assert!(answer.metadata.truncation && answer.answers.is_empty());
    assert_eq!(upstream.count("host.example.net.", RecordType::ANY), 0);
    assert!(!ask_tcp(address, &any).metadata.truncation);
}

#[test]
fn answers_differ_by_what_changes_them() {
    let upstream = Upstream::start();
    let server = serve(&settings(&upstream));
    let client = client(server.local_addrs()[0]);
    let plain = query("host.example.net.", RecordType::A);
    assert!(ask(&client, &plain).edns.is_none());
    let edns = with_edns(plain.clone(), 1232);
    assert!(!ask(&client, &edns).edns.unwrap().flags().dnssec_ok);
    let mut dnssec = edns.clone();
    dnssec.edns.as_mut().unwrap().set_dnssec_ok(true);
    assert!(ask(&client, &dnssec).edns.unwrap().flags().dnssec_ok, "DO comes back");
    let mut unchecked = edns.clone();
    unchecked.metadata.checking_disabled = true;
    assert!(ask(&client, &unchecked).metadata.checking_disabled, "CD comes back");
    let mut idle = plain.clone();
    idle.metadata.recursion_desired = false;
    let refused = ask(&client, &idle);
    assert_eq!(refused.metadata.response_code, ResponseCode::Refused, "no RD, nothing of ours");
    assert!(!refused.metadata.recursion_desired);
    assert_eq!(server.stats().cached, 0);
}

#[test]
fn many_threads_and_many_clients() {
    let upstream = Upstream::start();
    let mut settings = settings(&upstream);
    settings.threads = NonZeroUsize::new(4).unwrap();
    let server = serve(&settings);
    let address = server.local_addrs()[0];
    let clients: Vec<_> = (0..8)
        .map(|number| {
            std::thread::spawn(move || {
                for round in 0..50 {
                    // A socket of its own each time: another thread of the server.
                    let client = client(address);
                    let text = format!("host{}.example.net.", (number + round) % 16);
                    let answer = ask(&client, &query(&text, RecordType::AAAA));
                    assert_eq!(addresses(&answer), synthetic(POOL6));
                }
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
    for number in 0..16 {
        let text = format!("host{number}.example.net.");
        assert_eq!(upstream.count(&text, RecordType::A), 1, "one cache behind all threads");
    }
    assert_eq!(server.stats().answers.noerror, 400);
}

#[test]
fn its_end_is_the_end_of_all_of_it() {
    in_namespace(|| {
        let upstream = Upstream::start();
        let mut settings = settings(&upstream);
        let server = serve(&settings);
        let address = server.local_addrs()[0];
        let mut silent = connect(address);
        let waiting = client(address);
        waiting.send(&query("slow.example.net.", RecordType::AAAA).to_vec().unwrap()).unwrap();
        poll("a query that waits", || (server.stats().waiting == 1).then_some(()));
        drop(server);
        assert!(receive(&mut silent).is_none(), "closed");
        let socket = std::net::UdpSocket::bind(address).expect("the port is free");
        settings.listen = vec![address];
        match bind_error(&settings) {
            Error::Listen { address: at, source, .. } => {
                assert_eq!((at, source.kind()), (address, std::io::ErrorKind::AddrInUse));
            }
            other => panic!("{other}"),
        }
        drop(socket);
        drop(serve(&settings));
    });
}

#[test]
fn a_port_that_the_system_chooses_is_nobody_elses() {
    in_namespace(|| {
        let threads = NonZeroUsize::MIN;
        let settings = Settings { threads, ..settings(&Upstream::start()) };
        // Ports that nothing before has had.
        std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", "20000 20007").unwrap();
        let servers: Vec<_> = (0..4).map(|_| serve(&settings)).collect();
        let ports: BTreeSet<_> = servers.iter().map(|it| it.local_addrs()[0].port()).collect();
        assert_eq!(ports.len(), servers.len());
        // Ports that other programs have of UDP alone, of which the system prefers some for TCP.
        let free = (20000..=20007).filter(|port| !ports.contains(port)).collect::<Vec<_>>();
        let taken = |port: &u16| std::net::UdpSocket::bind(("127.0.0.1", *port));
        let others = free[..3].iter().map(taken).collect::<Result<Vec<_>, _>>();
        assert_eq!(serve(&settings).local_addrs()[0].port(), free[3], "{others:?}");
    });
}

fn bind_error(settings: &Settings) -> Error {
    match fordway_nameserver::Server::bind(settings) {
        Ok(_) => panic!("the port is somebody else's"),
        Err(error) => error,
    }
}
