//! The relay: sockets, threads, and its handle.

use std::io;
use std::sync::Arc;

use fordway_net::Intercept;
use socket2::Socket;

use super::core::Shared;
use super::settings::Settings;
use super::sockets::{self, Datagrams, Sockets};
use super::worker::Start;
use fordway_counters::trt::Stats;
use fordway_serve::thread::Threads;
use fordway_serve::{Service, differing};

/// Why a relay does not start, or does not take other settings.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The sockets.
    #[error("cannot open {what}")]
    Socket {
        /// Which one.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The threads.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
    /// What a running relay can't change.
    #[error("`{0}` cannot be changed while it runs")]
    Fixed(&'static str),
}

/// The ports of the sockets, on ::1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ports {
    tcp: Option<u16>,
    udp: Option<u16>,
}

impl Ports {
    fn intercept(self, settings: &Settings, mark: u32, table: u32, own: bool) -> Intercept {
        Intercept {
            name: settings.name.clone(),
            mark,
            table,
            prefixes: settings.pool6.iter().map(|pool6| pool6.net()).collect(),
            tcp: self.tcp,
            udp: self.udp,
            own,
        }
    }
}

/// A relay with its sockets but without threads.
#[derive(Debug)]
pub struct Bound {
    settings: Settings,
    threads: Vec<Sockets>,
    ports: Ports,
    listens: Option<Socket>,
}

impl Bound {
    /// The rules by which packets reach the relay, with this mark and this routing table; `own`: also packets of the
    /// host itself.
    pub fn intercept(&self, mark: u32, table: u32, own: bool) -> Intercept {
        self.ports.intercept(&self.settings, mark, table, own)
    }
}

/// A running relay. Dropping it stops it, and resets its connections.
#[derive(Debug)]
pub struct Server {
    ports: Ports,
    threads: Threads<Shared>,
    /// While it is open, the kernel learns path MTUs.
    _listens: Option<Socket>,
}

impl Server {
    /// As [`Bound::intercept`], with the settings of now.
    pub fn intercept(&self, mark: u32, table: u32, own: bool) -> Intercept {
        self.ports.intercept(&self.threads.shared.settings.load(), mark, table, own)
    }

    /// Its counters, of all threads together.
    pub fn stats(&self) -> Stats {
        self.threads.shared.stats()
    }
}

impl Service for Server {
    const NAME: &'static str = "trt";
    type Settings = Settings;
    type Bound = Bound;
    type Error = Error;

    /// Opens the sockets for the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// [`Error::Socket`], most often for want of CAP_NET_ADMIN and CAP_NET_RAW.
    fn bind(settings: &Settings) -> Result<Bound, Error> {
        let fails = |what| move |source| Error::Socket { what, source };
        let (tcp_fails, udp_fails) =
            (fails("a transparent TCP socket"), fails("a transparent UDP socket"));
        let mut threads = Vec::new();
        let mut ports = Ports { tcp: None, udp: None };
        for _ in 0..settings.threads.get() {
            let mut sockets = Sockets { tcp: None, udp: None };
            if settings.tcp {
                let socket = sockets::tcp(settings, ports.tcp.unwrap_or(0)).map_err(tcp_fails)?;
                ports.tcp = Some(socket.local_addr().map_err(tcp_fails)?.port());
                sockets.tcp = Some(socket);
            }
            if settings.udp {
                let socket = sockets::udp(ports.udp.unwrap_or(0)).map_err(udp_fails)?;
                ports.udp = Some(socket.local_addr().map_err(udp_fails)?.port());
                let answers = sockets::answers().map_err(fails("a raw UDP socket"))?;
                let errors = sockets::errors().map_err(fails("a raw ICMPv6 socket"))?;
                sockets.udp = Some(Datagrams { socket, answers, errors });
            }
            threads.push(sockets);
        }
        let listens = settings.udp.then(sockets::listens_for_errors).transpose();
        let listens = listens.map_err(fails("a raw UDP socket"))?;
        Ok(Bound { settings: settings.clone(), threads, ports, listens })
    }

    fn start(bound: Bound) -> Result<Server, Error> {
        let Bound { settings, threads: sockets, ports, listens } = bound;
        let name = settings.name.clone();
        let shared = Shared::new(settings).map_err(Error::Thread)?;
        let threads =
            Threads::start("relay", &name, shared, sockets, Start::new, |_, _, start| start.run());
        Ok(Server { ports, threads: threads.map_err(Error::Thread)?, _listens: listens })
    }

    fn fixed(from: &Settings, to: &Settings) -> Option<&'static str> {
        differing([
            ("name", from.name == to.name),
            ("threads", from.threads == to.threads),
            ("tcp", from.tcp == to.tcp),
            ("udp", from.udp == to.udp),
        ])
    }

    /// Applies other settings. Connections and sessions stay, also those that would be refused now.
    ///
    /// # Errors
    ///
    /// [`Error::Fixed`]; then everything stays as it was.
    fn replace(&self, settings: Settings) -> Result<(), Error> {
        if let Some(key) = Server::fixed(&self.threads.shared.settings.load(), &settings) {
            return Err(Error::Fixed(key));
        }
        self.threads.shared.settings.store(Arc::new(settings));
        self.threads.shared.wake();
        Ok(())
    }

    fn is_whole(&self) -> bool {
        self.threads.are_running()
    }
}
