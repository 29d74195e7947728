//! A proxy, servers that say what they are told, and clients that send what they like.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use fordway_proxy::{
    Authority, Backend, Destination, Eyeballs, Forward, Forwarded, Limits, Mode, Ports, Reverse,
    Rule, Rules, SendProxy, Server, Settings,
};
use fordway_serve::{Acl, Service as _};
use fordway_testhost::{PATIENCE, poll};

/// What a server answers to its n-th request on a connection: `None` ends the connection.
type Reply = dyn Fn(usize, &str) -> Option<Vec<u8>> + Send + Sync;

/// A server of raw octets on loopback.
pub(crate) struct RawServer {
    pub(crate) address: SocketAddr,
    connections: Heard,
    ended: Arc<AtomicUsize>,
}

/// What was heard on each connection.
type Heard = Arc<Mutex<Vec<Arc<Mutex<Vec<u8>>>>>>;

impl RawServer {
    /// Answers each header section, as soon as it is there.
    pub(crate) fn start(
        reply: impl Fn(usize, &str) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> RawServer {
        RawServer::at("[::1]:0", reply)
    }

    pub(crate) fn at(
        listen: &str,
        reply: impl Fn(usize, &str) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> RawServer {
        RawServer::on(TcpListener::bind(listen).unwrap(), reply)
    }

    pub(crate) fn on(
        listener: TcpListener,
        reply: impl Fn(usize, &str) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> RawServer {
        let address = listener.local_addr().unwrap();
        let (connections, ended) = (Heard::default(), Arc::<AtomicUsize>::default());
        let (list, count, reply) = (Arc::clone(&connections), Arc::clone(&ended), Arc::new(reply));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let received = Arc::default();
                list.lock().unwrap().push(Arc::clone(&received));
                let reply: Arc<Reply> = Arc::clone(&reply) as Arc<Reply>;
                let Ok(stream) = stream else { return };
                let count = Arc::clone(&count);
                thread::spawn(move || {
                    serve(stream, &received, &*reply);
                    count.fetch_add(1, Ordering::Release);
                });
            }
        });
        RawServer { address, connections, ended }
    }

    /// One that always says this.
    pub(crate) fn saying(answer: &'static str) -> RawServer {
        RawServer::start(move |_, _| Some(answer.as_bytes().to_vec()))
    }

    /// All that has come, by connection.
    pub(crate) fn received(&self) -> Vec<String> {
        let connections = self.connections.lock().unwrap();
        connections
            .iter()
            .map(|it| String::from_utf8_lossy(&it.lock().unwrap()).into_owned())
            .collect()
    }

    /// How many octets have come.
    pub(crate) fn octets(&self) -> usize {
        self.connections.lock().unwrap().iter().map(|it| it.lock().unwrap().len()).sum()
    }

    /// How many connections have ended.
    pub(crate) fn ended(&self) -> usize {
        self.ended.load(Ordering::Acquire)
    }

    /// Waits until what has come on the first connection fits.
    pub(crate) fn wait(&self, fits: impl Fn(&str) -> bool) -> String {
        poll("the server gets it", || self.received().into_iter().next().filter(|it| fits(it)))
    }

    /// Where clients ask for it.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }
}

fn serve(mut stream: TcpStream, received: &Mutex<Vec<u8>>, reply: &Reply) {
    let (mut buffer, mut answered, mut requests) = ([0; 65536], 0, 0);
    loop {
        let len = match stream.read(&mut buffer) {
            Ok(len @ 1..) => len,
            _ => return,
        };
        let heads: Vec<String> = {
            let mut all = received.lock().unwrap();
            all.extend_from_slice(&buffer[..len]);
            let mut heads = Vec::new();
            while let Some(end) = all[answered..].windows(4).position(|it| it == b"\r\n\r\n") {
                let head = &all[answered..answered + end + 4];
                answered += end + 4;
                // A trailer section ends alike; it begins with no method.
                if head.windows(5).any(|it| it == b"HTTP/") {
                    heads.push(String::from_utf8_lossy(head).into_owned());
                }
            }
            heads
        };
        for head in heads {
            match reply(requests, &head) {
                Some(answer) if stream.write_all(&answer).is_ok() => requests += 1,
                _ => return,
            }
        }
    }
}

/// A client of raw octets.
pub(crate) struct RawClient(pub(crate) TcpStream);

impl RawClient {
    pub(crate) fn to(address: SocketAddr) -> RawClient {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        RawClient(stream)
    }

    pub(crate) fn send(&mut self, octets: impl AsRef<[u8]>) -> &mut RawClient {
        // The proxy may have ended the connection with an answer.
        let _ = self.0.write_all(octets.as_ref());
        self
    }

    /// Reads until what has come fits, or the connection ends.
    pub(crate) fn until(&mut self, fits: impl Fn(&str) -> bool) -> String {
        let (mut all, mut buffer) = (Vec::new(), [0; 65536]);
        loop {
            let text = String::from_utf8_lossy(&all).into_owned();
            if fits(&text) {
                return text;
            }
            match self.0.read(&mut buffer) {
                Ok(len @ 1..) => all.extend_from_slice(&buffer[..len]),
                Ok(_) => return text,
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return text,
                Err(error) => panic!("{error} after {text}"),
            }
        }
    }

    /// All until the connection ends.
    pub(crate) fn all(&mut self) -> String {
        self.until(|_| false)
    }

    /// One response whose length is told, or that has no content.
    pub(crate) fn response(&mut self) -> String {
        self.until(|text| {
            let Some((head, content)) = text.split_once("\r\n\r\n") else { return false };
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
            content.len() >= length.map_or(0, |it| it.parse().unwrap())
        })
    }
}

/// A running proxy.
pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) address: SocketAddr,
}

impl World {
    pub(crate) fn new(settings: &Settings) -> World {
        let server = Server::start(Server::bind(settings).unwrap()).unwrap();
        World { address: server.local_addrs()[0], server }
    }

    /// A forward proxy that may reach loopback.
    pub(crate) fn forward() -> World {
        World::new(&forward())
    }

    pub(crate) fn client(&self) -> RawClient {
        RawClient::to(self.address)
    }

    /// Sends octets on a new connection, and reads all that comes.
    pub(crate) fn ask(&self, octets: impl AsRef<[u8]>) -> String {
        self.client().send(octets).all()
    }

    pub(crate) fn refused(&self, reason: &str) -> u64 {
        self.server.stats().refused[reason]
    }

    /// How many requests ended because their clients had gone.
    pub(crate) fn abandoned(&self) -> u64 {
        self.server.stats().abandoned
    }
}

pub(crate) fn all_ports() -> Ports {
    Ports(vec![1..=u16::MAX])
}

/// A rule that opens loopback.
pub(crate) fn loopback() -> Rule {
    let nets = ["::1/128", "127.0.0.0/8"].map(|it| Destination::Net(it.parse().unwrap()));
    Rule { clients: None, to: nets.to_vec(), ports: None, allow: true }
}

pub(crate) fn settings(mode: Mode) -> Settings {
    let host = |address: IpAddr| address.into();
    Settings {
        name: "test".to_owned(),
        listen: vec![(Ipv6Addr::LOCALHOST, 0).into()],
        threads: NonZeroUsize::MIN,
        mode,
        allow: Acl::new([host(Ipv6Addr::LOCALHOST.into())]),
        resolver: None,
        pref64: Vec::new(),
        translated: Vec::new(),
        eyeballs: Eyeballs::default(),
        tls: Vec::new(),
        accept_proxy: Acl::default(),
        http2: true,
        via: Some("px".to_owned()),
        forwarded: Forwarded::Off,
        upgrade: vec!["websocket".to_owned()],
        limits: Limits { drain: Duration::from_millis(100), ..Limits::default() },
        log: None,
    }
}

pub(crate) fn forward() -> Settings {
    settings(Mode::Forward(Forward {
        connect_ports: all_ports(),
        ports: all_ports(),
        rules: Rules { rules: vec![loopback()], default: true },
    }))
}

/// In front of these servers.
pub(crate) fn reverse(upstream: &[SocketAddr]) -> Settings {
    let upstream = upstream.iter().map(|it| Authority::from(*it)).collect();
    let mode = Mode::Reverse(Reverse { upstream, host: None, backend: backend() });
    Settings { forwarded: Forwarded::Replace, ..settings(mode) }
}

/// The first server, and nothing else.
pub(crate) fn backend() -> Backend {
    let pause = Duration::from_secs(60);
    Backend { balance: false, pause, send_proxy: SendProxy::Off, check: None }
}

pub(crate) const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
