//! A server and a client in one runtime, over sockets of loopback, while time passes as a test says.

use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

use fordway_dstm::{Binding, ClientId, ClientKey, ClientSettings, Grant, Key};
use tempfile::TempDir;
use tokio::task::{JoinHandle, LocalSet, spawn_local};

use super::super::{ClientHandle, ClientOptions, ClientStats, Host, Runner, Waiting};
use tokio::sync::mpsc::{self, UnboundedSender};

use super::*;
use fordway_testhost::still::{Still, until};

const SECOND: Duration = Duration::from_secs(1);

fn key() -> Key {
    Key::from_hex(&"07".repeat(32)).unwrap()
}

/// The bindings of a tunnel end point that has no packets.
#[derive(Debug, Default)]
struct Table(Mutex<Vec<Binding>>);

impl Bindings for Table {
    fn insert(&self, binding: &Binding) -> Result<(), String> {
        self.remove(binding);
        self.0.lock().unwrap().push(*binding);
        Ok(())
    }

    fn remove(&self, binding: &Binding) {
        self.0.lock().unwrap().retain(|it| it.v4 != binding.v4);
    }
}

/// Settings of a server, and what is beside it.
struct Bench {
    table: Arc<Table>,
    folder: TempDir,
    lifetime: u32,
}

/// A server that runs.
struct Running {
    to: SocketAddrV6,
    shared: Arc<Mutex<Stats>>,
    commands: UnboundedSender<Command>,
    task: JoinHandle<()>,
}

impl Bench {
    fn new(lifetime: u32) -> Bench {
        Bench { table: Arc::default(), folder: tempfile::tempdir().unwrap(), lifetime }
    }

    fn bind(&self) -> Bound {
        let client = ClientKey { id: ClientId::new("a").unwrap(), key: key(), slot: None };
        Server::bind(&Settings {
            listen: vec![SocketAddrV6::new(Ipv6Addr::LOCALHOST, 0, 0, 0)],
            server: ServerSettings {
                pool: vec!["192.0.2.0/30".parse().unwrap()],
                ports: None,
                lifetime: self.lifetime,
                max_lifetime: self.lifetime,
                rest: 0,
                tep: "2001:db8:f::1".parse().unwrap(),
                clients: vec![client],
                prefixes: Vec::new(),
            },
            state: self.folder.path().join("leases"),
            tep: TepPlace::Here(Arc::clone(&self.table) as Arc<dyn Bindings>),
        })
        .unwrap()
    }

    fn start(&self) -> Running {
        let bound = self.bind();
        let Some(Ok(SocketAddr::V6(to))) = bound.addresses().next() else { panic!("IPv6") };
        let shared = Arc::new(Mutex::new(Stats::default()));
        let (commands, receiver) = mpsc::unbounded_channel();
        let (state, sockets) = bound.into_state(&shared).unwrap();
        let task = spawn_local(async move {
            // Its tasks end with it, as with its thread.
            let own = LocalSet::new();
            own.run_until(serve::run(state, sockets, receiver, || {})).await.unwrap();
        });
        Running { to, shared, commands, task }
    }
}

impl Running {
    fn stats(&self) -> Stats {
        *self.shared.lock().unwrap()
    }

    async fn stop(self) {
        drop(self.commands);
        self.task.await.unwrap();
    }
}

/// The host of a client: how many packets were sent through the tunnel, and whether it is there.
#[derive(Clone, Debug, Default)]
struct Notes(Arc<Mutex<(u64, bool)>>);

impl Host for Notes {
    fn tunnel_end(&mut self, source: Ipv6Addr) -> Ipv6Addr {
        source
    }

    fn bound(&mut self, _: &Grant, _: Ipv6Addr) -> Result<(), String> {
        self.0.lock().unwrap().1 = true;
        Ok(())
    }

    fn settle(&mut self) {}

    fn unbound(&mut self) {
        self.0.lock().unwrap().1 = false;
    }

    fn send(&mut self, _: &[u8]) -> io::Result<()> {
        self.0.lock().unwrap().0 += 1;
        Ok(())
    }

    fn carried(&mut self) -> u64 {
        self.0.lock().unwrap().0
    }
}

/// A client that runs.
struct Client {
    waiting: Arc<Waiting>,
    notes: Notes,
    handle: ClientHandle,
    task: JoinHandle<Notes>,
}

impl Client {
    fn start(server: &Running, idle: Option<Duration>) -> Client {
        let options = ClientOptions {
            name: "a".to_owned(),
            client: ClientSettings {
                servers: vec![server.to],
                id: Some(ClientId::new("a").unwrap()),
                key: key(),
                sharing: false,
                lifetime: 0,
            },
            own: None,
            idle,
        };
        let (waiting, notes) = (Arc::new(Waiting::default()), Notes::default());
        let runner = Runner::new(options, notes.clone(), Arc::clone(&waiting)).unwrap();
        let handle = runner.handle();
        let task = spawn_local(runner.run());
        Client { waiting, notes, handle, task }
    }

    fn stats(&self) -> ClientStats {
        self.handle.stats()
    }

    fn sent(&self) -> u64 {
        self.notes.0.lock().unwrap().0
    }

    fn has_tunnel(&self) -> bool {
        self.notes.0.lock().unwrap().1
    }

    /// Has a packet wait, and waits until it is sent.
    async fn use_it(&self) {
        let before = self.sent();
        self.waiting.push(b"x", false);
        until("a packet is sent", || self.sent() == before + 1 && self.stats().v4.is_some()).await;
    }
}

/// Runs a test whose time stands still.
async fn run(test: impl AsyncFnOnce(Still)) {
    LocalSet::new().run_until(async { test(Still::begin()).await }).await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed() {
    run(async |still| {
        let bench = Bench::new(600);
        let server = bench.start();
        let client = Client::start(&server, None);
        client.use_it().await;
        for renewed in 1..=3 {
            still.pass(299 * SECOND).await;
            assert_eq!(server.stats().renewed, renewed - 1);
            still.pass(SECOND).await;
            until("renewed", || client.stats().renewed == renewed).await;
        }
        let stats = client.stats();
        assert_eq!((stats.granted, stats.lost, stats.seconds), (1, 0, Some(600)));
        assert_eq!((server.stats().renewed, server.stats().leases), (3, 1));
        assert!(client.has_tunnel());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_nobody_renews_ends_on_both_sides() {
    run(async |still| {
        let bench = Bench::new(1);
        let server = bench.start();
        let client = Client::start(&server, None);
        client.use_it().await;
        assert_eq!((server.stats().leases, server.stats().free), (1, 3));
        server.stop().await;
        still.pass(Duration::from_millis(999)).await;
        assert!(client.has_tunnel() && client.stats().lost == 0);
        still.pass(Duration::from_millis(1)).await;
        until("lost", || client.stats().lost == 1).await;
        assert!(!client.has_tunnel());
        // Another life of the server finds that it is over; that goes by the host's clock.
        until("another life without it", || bench.bind().core.leases().next().is_none()).await;
        let server = bench.start();
        until("it has started", || server.stats().free == 4).await;
        assert_eq!(server.stats().leases, 0);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_vanishes_keeps_its_address_for_as_long_as_the_lease() {
    run(async |still| {
        let bench = Bench::new(600);
        let server = bench.start();
        let client = Client::start(&server, None);
        client.use_it().await;
        client.task.abort();
        still.pass(599 * SECOND).await;
        assert_eq!((server.stats().expired, server.stats().leases), (0, 1));
        assert_eq!(bench.table.0.lock().unwrap().len(), 1);
        still.pass(SECOND).await;
        until("its end", || server.stats().expired == 1).await;
        assert_eq!((server.stats().leases, server.stats().free), (0, 4));
        assert!(bench.table.0.lock().unwrap().is_empty(), "the tunnel end point is told");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_address_that_nobody_uses_is_given_back_and_taken_again() {
    run(async |still| {
        let bench = Bench::new(86_400);
        let server = bench.start();
        let client = Client::start(&server, Some(60 * SECOND));
        client.use_it().await;
        still.pass(59 * SECOND).await;
        assert_eq!(server.stats().released, 0);
        still.pass(SECOND).await;
        until("given back", || client.stats().released == 1).await;
        assert_eq!((server.stats().released, client.stats().state.as_str()), (1, "idle"));
        assert!(bench.table.0.lock().unwrap().is_empty() && !client.has_tunnel());
        client.use_it().await;
        assert_eq!((client.sent(), server.stats().granted), (2, 2));
    })
    .await;
}
