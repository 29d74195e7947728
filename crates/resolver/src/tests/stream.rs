//! Connections: many questions at once, servers that close them, TLS.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::super::Protocol;
use super::fake::{Deed, Fake, Nobody, read_frame, respond, write_frame};
use super::tls::Authority;
use super::*;

fn by(protocol: Protocol, address: SocketAddr) -> Settings {
    Settings::new(vec![Server { address, protocol }])
}

fn questions(count: usize) -> Vec<Question> {
    (0..count).map(|number| question(&format!("n{number}.example.net."))).collect()
}

async fn all_answered(resolver: &Arc<Resolver>, questions: &[Question]) {
    let lookups = questions.iter().map(|question| resolver.lookup(question));
    for answer in futures_util::future::join_all(lookups).await {
        assert_eq!(addresses(&answer.unwrap()), [1]);
    }
}

#[tokio::test(start_paused = true)]
async fn questions_share_a_connection_and_are_answered_in_any_order() {
    let _still = Still::begin();
    const COUNT: usize = 50;
    // Answers when all have come, the last first.
    let held = Mutex::new(Vec::new());
    let fake = Fake::start(move |seen| {
        let mut held = held.lock().unwrap();
        held.push(respond(&seen.octets, answer_with(1)));
        if held.len() < COUNT { Vec::new() } else { held.drain(..).rev().map(Deed::Send).collect() }
    })
    .await;
    let resolver = Resolver::new(by(Protocol::Tcp, fake.address)).unwrap();
    all_answered(&resolver, &questions(COUNT)).await;
    let server = &resolver.stats().servers[0];
    assert_eq!((server.connections, server.queries, server.answers), (1, 50, 50));
    let ids: std::collections::HashSet<_> =
        fake.seen(|seen| [seen.octets[0], seen.octets[1]]).into_iter().collect();
    assert_eq!(ids.len(), COUNT);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_the_server_closes_is_made_again() {
    let _still = Still::begin();
    let fake =
        Fake::start(|seen| vec![Deed::Send(respond(&seen.octets, answer_with(1))), Deed::Close])
            .await;
    let resolver = Resolver::new(by(Protocol::Tcp, fake.address)).unwrap();
    for question in questions(4) {
        assert_eq!(addresses(&resolver.lookup(&question).await.unwrap()), [1]);
    }
    assert_eq!(fake.count(), 4);
    let server = &resolver.stats().servers[0];
    assert!(server.connections >= 4 && server.alive, "{server:?}");
}

#[tokio::test(start_paused = true)]
async fn a_question_whose_connection_is_closed_is_asked_by_another() {
    let _still = Still::begin();
    let fake = Fake::start(|seen| match seen.before {
        0 => vec![Deed::Close],
        _ => vec![Deed::Send(respond(&seen.octets, answer_with(1)))],
    })
    .await;
    let resolver = Resolver::new(by(Protocol::Tcp, fake.address)).unwrap();
    all_answered(&resolver, &questions(1)).await;
    assert_eq!(resolver.stats().servers[0].connections, 2);
}

#[tokio::test(start_paused = true)]
async fn nonsense_by_a_connection_is_an_error_at_once() {
    let _still = Still::begin();
    for nonsense in [&b"x"[..], &[0; 12]] {
        let fake = Fake::start(move |seen| {
            let mut octets = seen.octets[..2].to_vec();
            octets.extend(nonsense);
            vec![Deed::Send(octets)]
        })
        .await;
        let resolver = Resolver::new(by(Protocol::Tcp, fake.address)).unwrap();
        let error = resolver.lookup(&question("www.example.net.")).await.unwrap_err();
        assert_eq!(error, LookupError::Unusable);
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_there_is_known_at_once() {
    let _still = Still::begin();
    let nobody = Nobody::new();
    let resolver = Resolver::new(by(Protocol::Tcp, nobody.address)).unwrap();
    let error = resolver.lookup(&question("www.example.net.")).await.unwrap_err();
    assert_eq!(error, LookupError::Unreachable);
}

/// Serves TLS; how many connections it has had.
async fn serve_tls(authority: &Authority) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = authority.acceptor(&[]);
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let (acceptor, count) = (acceptor.clone(), Arc::clone(&count));
            tokio::spawn(async move {
                // A client that does not trust the certificate ends the handshake.
                let Ok(mut tls) = acceptor.accept(tcp).await else { return };
                count.fetch_add(1, Ordering::Relaxed);
                while let Some(query) = read_frame(&mut tls).await {
                    assert_eq!(query.len() % 128, 0, "padded");
                    write_frame(&mut tls, &respond(&query, answer_with(1))).await;
                }
            });
        }
    });
    (address, connections)
}

#[tokio::test(start_paused = true)]
async fn tls_is_spoken_with_who_shows_the_right_name() {
    let _still = Still::begin();
    let authority = Authority::new();
    let (address, connections) = serve_tls(&authority).await;
    let ca = Some(authority.file.path().to_owned());
    for name in [Some("dns.example.net".to_owned()), None] {
        let settings = Settings { ca: ca.clone(), ..by(Protocol::Tls { name }, address) };
        let resolver = Resolver::new(settings).unwrap();
        all_answered(&resolver, &questions(20)).await;
    }
    assert_eq!(connections.load(Ordering::Relaxed), 2);

    let name = Some("other.example.net".to_owned());
    let settings = Settings { ca, ..by(Protocol::Tls { name }, address) };
    let resolver = Resolver::new(settings).unwrap();
    let error = resolver.lookup(&question("www.example.net.")).await.unwrap_err();
    assert_eq!(error, LookupError::Unreachable, "another name");

    let other = Authority::new();
    let ca = Some(other.file.path().to_owned());
    let name = Some("dns.example.net".to_owned());
    let settings = Settings { ca, ..by(Protocol::Tls { name }, address) };
    let resolver = Resolver::new(settings).unwrap();
    let error = resolver.lookup(&question("www.example.net.")).await.unwrap_err();
    assert_eq!(error, LookupError::Unreachable, "another authority");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_in_pieces_is_understood() {
    let _still = Still::begin();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut tcp, _) = listener.accept().await.unwrap();
        let mut queries = VecDeque::new();
        while queries.len() < 3 {
            queries.push_back(read_frame(&mut tcp).await.unwrap());
        }
        let mut octets = Vec::new();
        for query in queries {
            write_frame(&mut octets, &respond(&query, answer_with(1))).await;
        }
        tcp.set_nodelay(true).unwrap();
        for piece in octets.chunks(7) {
            tcp.write_all(piece).await.unwrap();
            tokio::task::yield_now().await;
        }
        // Until the client closes.
        let _ = tcp.read_u8().await;
    });
    let resolver = Resolver::new(by(Protocol::Tcp, address)).unwrap();
    all_answered(&resolver, &questions(3)).await;
}
