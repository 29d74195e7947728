//! The client: sockets and time around `fordway_dstm::Client`.
//!
//! It reads what servers send, so it belongs on a thread without privileges; changes of the host are made by the owner
//! of its addresses and routes ([`Host`]).

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fordway_dstm::{Client, ClientSettings, Effect, Grant, LONGEST, Phase, Reason};
use socket2::{SockAddr, SockRef};
use tokio::net::UdpSocket;
use tokio::sync::Notify;
use tracing::{debug, info, warn};

use super::clock::{Clock, Timer};
use super::waiting::Waiting;
use super::{ClientStats, Error, random};
use fordway_serve::clock;

/// How long a client that ends waits for the server to take the lease back.
const FAREWELL: Duration = Duration::from_secs(1);

/// Changes of the host that a client needs.
pub trait Host {
    /// This host's end of the tunnel if its messages come from `source`: `source`, or another address of the same /64
    /// that is routed into the tunnel.
    fn tunnel_end(&mut self, source: Ipv6Addr) -> Ipv6Addr;

    /// Sets up the tunnel for `grant`, with `own` as this host's end. Either may differ from an earlier one.
    ///
    /// # Errors
    ///
    /// A text for the log. The lease is given back then.
    fn bound(&mut self, grant: &Grant, own: Ipv6Addr) -> Result<(), String>;

    /// Called once the waiting packets are sent: what only an earlier lease needed can be removed.
    fn settle(&mut self);

    /// Removes the tunnel.
    fn unbound(&mut self);

    /// Sends an IPv4 packet again, as if it came from this host.
    fn send(&mut self, packet: &[u8]) -> io::Result<()>;

    /// How many packets the tunnel has carried.
    fn carried(&mut self) -> u64;
}

/// Settings of a client.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// For the log.
    pub name: String,
    /// Servers, name and key.
    pub client: ClientSettings,
    /// The address that it sends from; `None`: the one that leads to the server.
    pub own: Option<Ipv6Addr>,
    /// After so long without a packet the lease is given back; `None`: never.
    pub idle: Option<Duration>,
}

/// A handle of a running client.
#[derive(Clone, Debug)]
pub struct ClientHandle {
    stats: Arc<Mutex<ClientStats>>,
    end: Arc<Notify>,
}

impl ClientHandle {
    /// State and counters.
    pub fn stats(&self) -> ClientStats {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends [`Runner::run`], which gives the lease back.
    pub fn end(&self) {
        self.end.notify_one();
    }
}

/// A client that is to be run.
#[derive(Debug)]
pub struct Runner<H> {
    options: ClientOptions,
    core: Client,
    host: H,
    waiting: Arc<Waiting>,
    clock: Clock,
    handle: ClientHandle,
    stats: ClientStats,
    /// With this host's end of the tunnel.
    socket: Option<(UdpSocket, Ipv6Addr)>,
    /// The lease that the host has set up.
    applied: Option<(Grant, Ipv6Addr)>,
    /// The number of packets that the tunnel had carried when it last changed, and when that was.
    used: (u64, Instant),
}

impl<H: Host> Runner<H> {
    /// A client without a lease. Packets that wait come by `waiting`.
    ///
    /// # Errors
    ///
    /// [`Error::Random`].
    pub fn new(options: ClientOptions, host: H, waiting: Arc<Waiting>) -> Result<Self, Error> {
        let clock = Clock::start();
        let core = Client::new(options.client.clone(), clock.number(), random()?);
        let handle = ClientHandle { stats: Arc::default(), end: Arc::default() };
        let mut runner = Runner {
            options,
            core,
            host,
            waiting,
            clock,
            handle,
            stats: ClientStats::default(),
            socket: None,
            applied: None,
            used: (0, clock::now()),
        };
        runner.tell();
        Ok(runner)
    }

    /// For its owner.
    pub fn handle(&self) -> ClientHandle {
        self.handle.clone()
    }

    /// Runs until [`ClientHandle::end`]; then gives the lease back, and returns the host.
    pub async fn run(mut self) -> H {
        let end = Arc::clone(&self.handle.end);
        let timer = Timer::new();
        // The first packet then need not wait for the socket and for the end of the tunnel.
        self.follow_host();
        loop {
            let due = self.due();
            tokio::select! {
                () = end.notified() => break,
                () = self.waiting.come() => self.come(),
                received = receive(self.socket.as_ref()) => self.received(received),
                () = timer.until(due) => self.tick(),
            }
            self.tell();
        }
        self.farewell().await;
        self.host
    }

    /// Gives the lease back, and waits for a while for the server's confirmation.
    async fn farewell(&mut self) {
        let give_up = clock::now() + FAREWELL;
        let effects = self.core.release(self.clock.now());
        self.take_down();
        self.carry_out(effects);
        while self.core.phase() == Phase::Releasing {
            let due = self.due().min(give_up);
            tokio::select! {
                received = receive(self.socket.as_ref()) => self.received(received),
                () = tokio::time::sleep_until(due.into()) => self.tick(),
            }
            if clock::now() >= give_up {
                info!("{}: the server has not confirmed the end of the lease", self.options.name);
                break;
            }
        }
        self.waiting.clear();
        self.tell();
    }

    /// When something is due.
    fn due(&self) -> Instant {
        let far = clock::now() + Duration::from_secs(3600);
        let core = self.core.next().map_or(far, |at| self.clock.instant(at));
        let idle = self.options.idle.filter(|_| self.applied.is_some());
        idle.map_or(core, |idle| core.min(self.used.1 + idle))
    }

    /// A packet waits.
    fn come(&mut self) {
        if self.applied.is_some() {
            // The packet was queued while the tunnel was set up.
            self.send_waiting();
            return;
        }
        if matches!(self.core.phase(), Phase::Idle | Phase::Refused) {
            self.follow_host();
        }
        let effects = self.core.wanted(self.clock.now());
        self.carry_out(effects);
        if self.core.phase() == Phase::Refused {
            self.waiting.clear();
        }
    }

    fn received(&mut self, received: io::Result<(SocketAddrV6, Vec<u8>)>) {
        match received {
            Ok((from, octets)) => {
                let effects = self.core.receive(from, &octets, self.clock.now());
                self.carry_out(effects);
            }
            Err(error) => self.lose_socket(&error),
        }
    }

    fn tick(&mut self) {
        let effects = self.core.tick(self.clock.now());
        self.carry_out(effects);
        let Some(idle) = self.options.idle.filter(|_| self.applied.is_some()) else { return };
        let carried = self.host.carried();
        if carried != self.used.0 {
            self.used = (carried, clock::now());
        } else if clock::since(self.used.1) >= idle {
            info!(
                "{}: the address was idle for the configured time; it is given back",
                self.options.name
            );
            let effects = self.core.release(self.clock.now());
            self.take_down();
            self.carry_out(effects);
        }
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Send(to, octets) => self.send(to, &octets),
                Effect::Bound(grant) => {
                    self.stats.granted += 1;
                    self.stats.refused = None;
                    self.bound(grant);
                }
                Effect::Renewed(grant) => {
                    self.stats.renewed += 1;
                    debug!("{}: {} is renewed", self.options.name, grant.slot());
                    let own = self.socket.as_ref().map(|(_, own)| *own);
                    match &mut self.applied {
                        Some((before, at)) if own.is_none_or(|own| own == *at) => *before = grant,
                        // This host has moved, and has told the server.
                        _ => self.bound(grant),
                    }
                }
                Effect::Lost => {
                    self.stats.lost += 1;
                    warn!("{}: the lease has ended", self.options.name);
                    self.take_down();
                }
                Effect::Refused(reason) => self.refused(reason),
                Effect::Released => self.stats.released += 1,
            }
        }
    }

    fn bound(&mut self, grant: Grant) {
        let Some(own) = self.socket.as_ref().map(|(_, own)| *own) else { return };
        match self.host.bound(&grant, own) {
            Ok(()) => {
                let name = &self.options.name;
                info!("{name}: {} by {}, from {own}", grant.slot(), grant.tep);
                self.applied = Some((grant, own));
                // Packets wait: what takes time follows them.
                self.send_waiting();
                self.used = (self.host.carried(), clock::now());
                self.host.settle();
            }
            Err(why) => {
                warn!("{}: {why}; the address is given back", self.options.name);
                let effects = self.core.release(self.clock.now());
                self.take_down();
                self.waiting.clear();
                self.carry_out(effects);
            }
        }
    }

    fn refused(&mut self, reason: Reason) {
        self.stats.refusals += 1;
        let text = reason.to_string();
        if self.stats.refused.as_ref() != Some(&text) {
            warn!("{}: no address: {text}", self.options.name);
        }
        self.stats.refused = Some(text);
        self.waiting.clear();
    }

    fn send_waiting(&mut self) {
        let packets = self.waiting.take();
        self.stats.sent += packets.len() as u64;
        // The statistics have the lease before an answer to one of the packets can come.
        self.tell();
        for packet in packets {
            if let Err(error) = self.host.send(&packet) {
                debug!("{}: can't send a packet that has waited: {error}", self.options.name);
                self.stats.sent -= 1;
                self.stats.dropped += 1;
            }
        }
    }

    fn take_down(&mut self) {
        if self.applied.take().is_some() {
            self.host.unbound();
        }
    }

    /// Sees to it that there is a socket, with the address that leads to the first server now.
    fn follow_host(&mut self) {
        let Some(to) = self.options.client.servers.first().copied() else { return };
        if let Some((socket, _)) = &self.socket {
            let has = socket.local_addr().map(|address| address.ip());
            if source(self.options.own, to).ok().map(IpAddr::V6) != has.ok() {
                self.socket = None;
            }
        }
        if self.socket.is_none() {
            self.open(to);
        }
    }

    fn open(&mut self, to: SocketAddrV6) {
        match open(self.options.own, to) {
            Ok((socket, source)) => {
                let end = self.host.tunnel_end(source);
                self.core.set_tunnel(Some(end).filter(|end| *end != source));
                self.socket = Some((socket, end));
            }
            Err(error) => debug!("{}: to {to}: {error}", self.options.name),
        }
    }

    fn send(&mut self, to: SocketAddrV6, octets: &[u8]) {
        if self.socket.is_none() {
            self.open(to);
        }
        let Some((socket, _)) = &self.socket else { return };
        // The runtime takes a new socket for unwritable until it has polled it; the first message would be lost until
        // its repetition.
        if let Err(error) = SockRef::from(socket).send_to(octets, &SockAddr::from(to)) {
            self.lose_socket(&error);
        }
    }

    /// The address may have been removed: the next message opens another socket.
    fn lose_socket(&mut self, error: &io::Error) {
        if error.kind() != io::ErrorKind::WouldBlock {
            debug!("{}: {error}", self.options.name);
            self.socket = None;
        }
    }

    fn tell(&mut self) {
        let now = self.clock.now();
        self.stats.state = match self.core.phase() {
            Phase::Idle => "idle",
            Phase::Asking => "asking",
            Phase::Refused => "refused",
            Phase::Bound => "bound",
            Phase::Releasing => "releasing",
        }
        .to_owned();
        let (grant, own) = match &self.applied {
            Some((grant, own)) => (Some(grant), Some(*own)),
            None => (None, None),
        };
        let range = grant.and_then(|grant| grant.slot().range());
        let stats = ClientStats {
            v4: grant.map(|grant| grant.v4),
            ports: range.map(|range| (*range.start(), *range.end())),
            tep: grant.map(|grant| grant.tep),
            own,
            seconds: grant.map(|grant| grant.until.saturating_sub(now).div_ceil(1000)),
            waited: self.waiting.held(),
            dropped: self.stats.dropped + self.waiting.dropped(),
            foreign: self.core.foreign(),
            ..self.stats.clone()
        };
        *self.handle.stats.lock().unwrap_or_else(PoisonError::into_inner) = stats;
    }
}

/// A socket, and the address of this host that it sends from to `server`.
fn open(own: Option<Ipv6Addr>, server: SocketAddrV6) -> io::Result<(UdpSocket, Ipv6Addr)> {
    let own = source(own, server)?;
    let socket = super::server::listen_on(SocketAddrV6::new(own, 0, 0, 0));
    let socket = socket.map_err(|error| match error {
        Error::Listen { source, .. } => source,
        other => io::Error::other(other),
    })?;
    Ok((UdpSocket::from_std(socket)?, own))
}

/// `own`, or the address of this host that leads to `server`.
fn source(own: Option<Ipv6Addr>, server: SocketAddrV6) -> io::Result<Ipv6Addr> {
    if let Some(own) = own {
        return Ok(own);
    }
    // Nothing is sent: connecting only selects the source address.
    let probe = super::server::listen_on(any()).map_err(io::Error::other)?;
    probe.connect(SocketAddr::V6(server))?;
    match probe.local_addr()? {
        SocketAddr::V6(address) => Ok(*address.ip()),
        SocketAddr::V4(_) => Err(io::ErrorKind::AddrNotAvailable.into()),
    }
}

fn any() -> SocketAddrV6 {
    SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, 0)
}

/// The next message; never, while there is no socket.
async fn receive(socket: Option<&(UdpSocket, Ipv6Addr)>) -> io::Result<(SocketAddrV6, Vec<u8>)> {
    let Some((socket, _)) = socket else { return std::future::pending().await };
    let mut buffer = [0; LONGEST + 1];
    loop {
        if let (len, SocketAddr::V6(from)) = socket.recv_from(&mut buffer).await? {
            return Ok((from, buffer[..len].to_vec()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use fordway_dstm::{ClientId, Key};

    use super::*;

    struct Nobody;

    impl Host for Nobody {
        fn tunnel_end(&mut self, source: Ipv6Addr) -> Ipv6Addr {
            source
        }

        fn bound(&mut self, _: &Grant, _: Ipv6Addr) -> Result<(), String> {
            Ok(())
        }

        fn settle(&mut self) {}

        fn unbound(&mut self) {}

        fn send(&mut self, _: &[u8]) -> io::Result<()> {
            Ok(())
        }

        fn carried(&mut self) -> u64 {
            0
        }
    }

    /// The runtime has not looked at the socket yet, and does not until the message is here.
    #[tokio::test]
    async fn the_first_message_leaves_at_once() {
        let server = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).unwrap();
        server.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let SocketAddr::V6(to) = server.local_addr().unwrap() else { panic!("IPv6") };
        let options = ClientOptions {
            name: "test".to_owned(),
            client: ClientSettings {
                servers: vec![to],
                id: Some(ClientId::new("a").unwrap()),
                key: Key::from_hex(&"07".repeat(32)).unwrap(),
                sharing: false,
                lifetime: 0,
            },
            own: None,
            idle: None,
        };
        let mut runner = Runner::new(options, Nobody, Arc::default()).unwrap();
        runner.send(to, b"hello");
        let mut buffer = [0; 16];
        let (len, from) = server.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..len], from.ip()), (&b"hello"[..], to.ip().to_owned().into()));
    }
}
