//! A server and clients on the loopback, with hosts that only note what they are told.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use fordway_dstmd::protocol::{
    Binding, ClientId, ClientKey, ClientSettings, Grant, Key, ServerSettings,
};
use fordway_dstmd::{
    Bindings, ClientHandle, ClientOptions, ClientStats, Host, Runner, Server, Settings, TepPlace,
    Waiting,
};
use fordway_serve::Service as _;

use fordway_testhost::still::Still;

/// Where servers listen that start again: a port of a namespace of the test's own.
pub(crate) const PORT: u16 = 13_653;

pub(crate) fn key(number: u8) -> Key {
    Key::from_hex(&format!("{number:02x}").repeat(32)).unwrap()
}

/// The bindings of a tunnel end point that has no packets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table(Arc<Mutex<Vec<Binding>>>);

impl Table {
    pub(crate) fn all(&self) -> Vec<Binding> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn clear(&self) {
        self.0.lock().unwrap().clear();
    }
}

impl Bindings for Table {
    fn insert(&self, binding: &Binding) -> Result<(), String> {
        self.remove(binding);
        self.0.lock().unwrap().push(*binding);
        Ok(())
    }

    fn remove(&self, binding: &Binding) {
        self.0.lock().unwrap().retain(|it| (it.v4, it.ports) != (binding.v4, binding.ports));
    }
}

pub(crate) struct Bench {
    pub(crate) table: Table,
    pub(crate) tep: Ipv6Addr,
    pub(crate) state: PathBuf,
    here: Arc<dyn Bindings>,
    _folder: tempfile::TempDir,
    port: Mutex<u16>,
}

/// Settings for clients a, b and c, which have the keys 1, 2 and 3.
pub(crate) fn server_settings(bench: &Bench) -> Settings {
    let client = |(name, number): (&str, u8)| ClientKey {
        id: ClientId::new(name).unwrap(),
        key: key(number),
        slot: None,
    };
    Settings {
        listen: vec![SocketAddrV6::new(Ipv6Addr::LOCALHOST, 0, 0, 0)],
        server: ServerSettings {
            pool: vec!["192.0.2.0/30".parse().unwrap()],
            ports: None,
            lifetime: 600,
            max_lifetime: 600,
            rest: 0,
            tep: bench.tep,
            clients: [("a", 1), ("b", 2), ("c", 3)].map(client).to_vec(),
            prefixes: Vec::new(),
        },
        state: bench.state.clone(),
        tep: TepPlace::Here(Arc::clone(&bench.here)),
    }
}

/// A client of this name, with its key.
pub(crate) fn options(port: u16, name: &str) -> ClientOptions {
    ClientOptions {
        name: name.to_owned(),
        client: ClientSettings {
            servers: vec![SocketAddrV6::new(Ipv6Addr::LOCALHOST, port, 0, 0)],
            id: Some(ClientId::new(name).unwrap()),
            key: key(name.as_bytes()[0] - b'a' + 1),
            sharing: true,
            lifetime: 0,
        },
        own: None,
        idle: None,
    }
}

impl Bench {
    pub(crate) fn new() -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let table = Table::default();
        Bench {
            here: Arc::new(table.clone()),
            table,
            tep: "2001:db8:f::1".parse().unwrap(),
            state: folder.path().join("leases"),
            _folder: folder,
            port: Mutex::default(),
        }
    }

    pub(crate) fn start(&self) -> Server {
        self.start_with(|_| {})
    }

    pub(crate) fn start_with(&self, change: impl FnOnce(&mut Settings)) -> Server {
        let mut settings = server_settings(self);
        change(&mut settings);
        let bound = Server::bind(&settings).unwrap();
        let address: SocketAddr = bound.addresses().next().unwrap().unwrap();
        let server = Server::start(bound).unwrap();
        *self.port.lock().unwrap() = address.port();
        server
    }

    /// The port of the server that was started last.
    pub(crate) fn port(&self, _server: &Server) -> u16 {
        *self.port.lock().unwrap()
    }

    pub(crate) fn client(&self, server: &Server, name: &str) -> TestClient {
        self.run(options(self.port(server), name))
    }

    /// Runs a client whose time stands still: it never asks twice, and is never tired of waiting.
    pub(crate) fn run(&self, options: ClientOptions) -> TestClient {
        let waiting = Arc::new(Waiting::default());
        let host = Notes::default();
        let (notes, queue) = (host.clone(), Arc::clone(&waiting));
        let (sender, started) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            let runtime = builder.enable_all().start_paused(true).build().unwrap();
            runtime.block_on(async {
                let runner = Runner::new(options, host, queue).unwrap();
                sender.send((runner.handle(), Still::begin())).unwrap();
                runner.run().await;
            });
        });
        let (handle, still) = started.recv().unwrap();
        TestClient { waiting, notes, handle, still: Some(still), thread: Some(thread) }
    }
}

/// What the host of a client was told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    bound: Arc<Mutex<Option<(Grant, Ipv6Addr)>>>,
    sent: Arc<Mutex<Vec<String>>>,
    refuses: Arc<AtomicBool>,
}

impl Host for Notes {
    fn tunnel_end(&mut self, source: Ipv6Addr) -> Ipv6Addr {
        let [a, b, c, d, ..] = source.segments();
        Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0x46)
    }

    fn bound(&mut self, grant: &Grant, own: Ipv6Addr) -> Result<(), String> {
        if self.refuses.load(Ordering::Relaxed) {
            return Err("this host will not".to_owned());
        }
        *self.bound.lock().unwrap() = Some((*grant, own));
        Ok(())
    }

    fn settle(&mut self) {}

    fn unbound(&mut self) {
        *self.bound.lock().unwrap() = None;
    }

    fn send(&mut self, packet: &[u8]) -> io::Result<()> {
        self.sent.lock().unwrap().push(String::from_utf8(packet.to_vec()).unwrap());
        Ok(())
    }

    fn carried(&mut self) -> u64 {
        self.sent.lock().unwrap().len() as u64
    }
}

/// A client that runs. Dropped, it ends; it gives its lease back if the server is quick.
pub(crate) struct TestClient {
    pub(crate) waiting: Arc<Waiting>,
    notes: Notes,
    handle: ClientHandle,
    still: Option<Still>,
    thread: Option<JoinHandle<()>>,
}

impl TestClient {
    pub(crate) fn stats(&self) -> ClientStats {
        self.handle.stats()
    }

    pub(crate) fn bound(&self) -> Option<(Grant, Ipv6Addr)> {
        *self.notes.bound.lock().unwrap()
    }

    pub(crate) fn sent(&self) -> Vec<String> {
        self.notes.sent.lock().unwrap().clone()
    }

    pub(crate) fn refuse(&self) {
        self.notes.refuses.store(true, Ordering::Relaxed);
    }

    pub(crate) fn end(&self) {
        self.handle.end();
    }
}

impl Drop for TestClient {
    fn drop(&mut self) {
        self.handle.end();
        // It does not wait for a server that is gone.
        drop(self.still.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || thread::panicking(), "the client panicked");
        }
    }
}
