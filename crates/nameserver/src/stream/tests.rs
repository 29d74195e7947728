//! Connections in memory, whose time passes when nothing else can.

use std::num::NonZeroUsize;

use fordway_dns64::{Policies, Policy};
use fordway_resolver as upstream;
use fordway_serve::{Acl, ClientLen};
use fordway_xlat::addr::Pool6;
use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};
use tokio::io::DuplexStream;
use tokio::task::{JoinHandle, LocalSet};
use tokio::time::Instant;

use super::super::settings::{Cookies, Limits, Settings};
use super::super::shared::{Active, Shared};
use super::*;

const IDLE: Duration = Duration::from_secs(1);

/// A server whose upstream server never answers.
struct World {
    worker: Rc<Worker>,
    _silent: std::net::UdpSocket,
}

impl World {
    fn new() -> World {
        World::with(vec!["2001:db8:64::/96".parse().unwrap()])
    }

    /// One that synthesises behind these prefixes.
    fn with(pool6: Vec<Pool6>) -> World {
        let silent = std::net::UdpSocket::bind("[::1]:0").unwrap();
        let server = upstream::Server::udp(silent.local_addr().unwrap());
        let policy = Policy { pool6, ..Policy::default() };
        let settings = Settings {
            listen: Vec::new(),
            threads: NonZeroUsize::MIN,
            upstream: upstream::Settings::new(vec![server]),
            policies: Policies::new(policy, Vec::new()).unwrap(),
            allow: Acl::new(["::1/128".parse().unwrap()]),
            rate: None,
            cache_octets: 1 << 20,
            listen_tls: Vec::new(),
            listen_https: Vec::new(),
            tls: None,
            cookies: Cookies::Drawn,
            prefetch: true,
            udp_size: 1232,
            limits: Limits::default(),
        };
        let shared = Arc::new(Shared::new(Active::new(settings, None).unwrap(), 1));
        World { worker: Rc::new(Worker::new(shared, 0)), _silent: silent }
    }

    /// A connection that holds so many octets in each direction, and the task that serves it.
    fn connect(&self, octets: usize) -> (DuplexStream, JoinHandle<()>) {
        let (client, served) = tokio::io::duplex(octets);
        let (read, write) = tokio::io::split(served);
        let from = Client { address: [0, 0, 0, 0, 0, 0, 0, 1].into(), transport: Transport::Tcp };
        let worker = Rc::clone(&self.worker);
        (client, spawn_here(serve(Box::new(read), Box::new(write), from, network(), IDLE, worker)))
    }
}

/// That of clients.
fn network() -> Network {
    Network::of([0, 0, 0, 0, 0, 0, 0, 1].into(), ClientLen::default())
}

/// A query for AAAA, with its length in front.
fn query(name: &str) -> Vec<u8> {
    let mut message = Message::new(1, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), RecordType::AAAA));
    let octets = message.to_vec().unwrap();
    [&(octets.len() as u16).to_be_bytes()[..], &octets].concat()
}

async fn answer(client: &mut DuplexStream) -> Message {
    let mut octets = vec![0; client.read_u16().await.unwrap().into()];
    client.read_exact(&mut octets).await.unwrap();
    Message::from_vec(&octets).unwrap()
}

/// How long it takes until the server has closed the connection, and what was left to read.
async fn closed(client: &mut DuplexStream) -> (Duration, usize) {
    let begun = Instant::now();
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.unwrap();
    (begun.elapsed(), rest.len())
}

/// Runs a test whose tasks stay in its thread.
async fn run(test: impl Future<Output = ()>) {
    LocalSet::new().run_until(test).await;
}

#[tokio::test(start_paused = true)]
async fn silence_ends_a_connection_but_not_one_that_waits() {
    run(async {
        let world = World::new();
        let (mut silent, _) = world.connect(4096);
        assert_eq!(closed(&mut silent).await, (IDLE, 0));

        // A message that does not end.
        let (mut half, _) = world.connect(4096);
        half.write_all(&[0, 30, 1, 2, 3]).await.unwrap();
        assert_eq!(closed(&mut half).await, (IDLE, 0));

        let (mut waiting, _) = world.connect(4096);
        let begun = Instant::now();
        waiting.write_all(&query("www.example.net.")).await.unwrap();
        assert_eq!(answer(&mut waiting).await.metadata.response_code, ResponseCode::ServFail);
        assert!(begun.elapsed() > 2 * IDLE, "the upstream server is asked for longer than that");
        let (after, rest) = closed(&mut waiting).await;
        assert!(after <= IDLE && rest == 0, "after the answer, silence counts: {after:?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_left() {
    run(async {
        let world = World::new();
        // Room for less than one answer.
        let (mut client, serving) = world.connect(64);
        let begun = Instant::now();
        let all = query("ipv4only.arpa.").repeat(10_000);
        let writing = tokio::task::spawn_local(async move { client.write_all(&all).await });
        // Reading stops where writing does.
        tokio::time::sleep(IDLE - Duration::from_millis(1)).await;
        assert_eq!(world.worker.counters().tcp_queries.get(), PIPELINE as u64);
        writing.await.unwrap().unwrap_err();
        assert_eq!(begun.elapsed(), IDLE);
        serving.await.unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_makes_the_server_hold_little() {
    run(async {
        // Answers of 56 kB.
        let prefix = |number: u32| format!("2001:db8:{number:x}::/96").parse().unwrap();
        let world = World::with((1..=1000).map(prefix).collect());
        let (mut client, serving) = world.connect(64);
        let all = query("ipv4only.arpa.").repeat(100);
        let writing = tokio::task::spawn_local(async move { client.write_all(&all).await });
        tokio::time::sleep(IDLE - Duration::from_millis(1)).await;
        assert_eq!(world.worker.counters().tcp_queries.get(), 2);
        let held = world.worker.shared.unread.count();
        assert!((110_000..120_000).contains(&held), "{held}");
        writing.await.unwrap().unwrap_err();
        serving.await.unwrap();
        assert_eq!(world.worker.shared.unread.count(), 0);
        assert_eq!(world.worker.counters().connections_unread.get(), 0);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_client_whose_others_hold_too_much_is_closed() {
    run(async {
        let world = World::new();
        let most = 8 << 20;
        let others = world.worker.shared.unread.enter_many(network(), most, 8 * most, most);
        let (mut client, serving) = world.connect(4096);
        client.write_all(&query("ipv4only.arpa.")).await.unwrap();
        assert_eq!(closed(&mut client).await, (Duration::ZERO, 0));
        serving.await.unwrap();
        assert_eq!(world.worker.counters().connections_unread.get(), 1);
        drop(others);
        let (mut client, _) = world.connect(4096);
        client.write_all(&query("ipv4only.arpa.")).await.unwrap();
        assert_eq!(answer(&mut client).await.answers.len(), 2);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn octets_that_come_one_by_one_are_a_message() {
    run(async {
        let world = World::new();
        let (mut client, _) = world.connect(4096);
        for octet in query("ipv4only.arpa.") {
            client.write_all(&[octet]).await.unwrap();
            tokio::time::sleep(IDLE / 100).await;
        }
        assert_eq!(answer(&mut client).await.answers.len(), 2);
    })
    .await;
}
