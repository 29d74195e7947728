//! TCP: a thread's connections.

mod connection;
mod flow;
#[cfg(test)]
mod tests;

use std::net::{Ipv4Addr, SocketAddrV4, SocketAddrV6, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use fordway_net::syn_traffic_class;
use fordway_xlat::TrafficClass;
use nix::sys::socket::{setsockopt, sockopt};
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use rustix::net::{self as sock, AddressFamily, SocketFlags, SocketType, sockopt as option};
use slotmap::SlotMap;

use super::core::{Core, Key, TCP_V4, TCP_V6, token};
use super::settings::Settings;
use super::sockets::keepalive;
use super::timers::Timers;
pub(super) use connection::Side;
use connection::{Connection, End, Next};
use fordway_serve::pipe::Pipes;

/// Connections that are accepted before other work is done.
const ACCEPTS: usize = 64;

/// How long no connection is accepted after descriptors or memory ran out.
const PAUSE: Duration = Duration::from_millis(100);

/// Events of a connection's sockets.
const EVENTS: EventFlags = EventFlags::IN
    .union(EventFlags::OUT)
    .union(EventFlags::RDHUP)
    .union(EventFlags::PRI)
    .union(EventFlags::ET);

/// A thread's connections.
#[derive(Debug)]
pub(super) struct Tcp {
    listener: TcpListener,
    connections: SlotMap<Key, Connection>,
    pipes: Pipes,
    /// Connections with more to do for which no event will come.
    again: Vec<Key>,
    /// Connections that wait for a pipe.
    starved: Vec<Key>,
    timers: Timers<Key>,
    /// How many times a connection's timer has fired.
    looks: u64,
    /// Until when no connection is accepted.
    paused: Option<Instant>,
}

impl Tcp {
    pub(super) fn new(listener: TcpListener) -> Tcp {
        Tcp {
            listener,
            connections: SlotMap::default(),
            pipes: Pipes::default(),
            again: Vec::new(),
            starved: Vec::new(),
            timers: Timers::default(),
            looks: 0,
            paused: None,
        }
    }

    pub(super) fn listener(&self) -> &TcpListener {
        &self.listener
    }

    /// How soon after `now` there is something to do without an event, if at all.
    pub(super) fn waits(&self, now: Instant) -> Option<Duration> {
        if !self.again.is_empty() {
            return Some(Duration::ZERO);
        }
        let starved = (!self.starved.is_empty()).then(|| now + PAUSE);
        let next = [self.timers.next(), self.paused, starved].into_iter().flatten().min();
        next.map(|next| next.saturating_duration_since(now))
    }

    /// Accepts connections.
    pub(super) fn accept(&mut self, core: &mut Core) {
        if self.paused.is_some() {
            return;
        }
        for _ in 0..ACCEPTS {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            match sock::acceptfrom_with(&self.listener, flags) {
                Ok((v6, peer)) => {
                    core.counters.tcp_accepted.add(1);
                    let client = peer.and_then(|peer| SocketAddrV6::try_from(peer).ok());
                    let asked = sock::getsockname(&v6).ok();
                    let asked = asked.and_then(|it| SocketAddrV6::try_from(it).ok());
                    match (client, asked) {
                        (Some(client), Some(asked)) => self.open(v6, client, asked, core),
                        _ => abort(v6),
                    }
                }
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    core.no_resources("no descriptor or memory left for another connection");
                    self.pause(core);
                    return;
                }
                Err(Errno::AGAIN) => return,
                // An error of one connection, which is gone.
                Err(_) => {}
            }
        }
    }

    /// Stops accepting for a while: the listening socket would be ready all the time.
    fn pause(&mut self, core: &Core) {
        let nothing = EventFlags::empty();
        let _ = epoll::modify(&core.epoll, &self.listener, core.listener_token(), nothing);
        self.paused = Some(core.now + PAUSE);
    }

    /// Checks a connection, and connects to the server.
    fn open(&mut self, v6: OwnedFd, client: SocketAddrV6, asked: SocketAddrV6, core: &mut Core) {
        let v4 = match core.settings.destination(*client.ip(), *asked.ip()) {
            Ok(v4) => SocketAddrV4::new(v4, asked.port()),
            Err(refusal) => {
                core.refused(refusal);
                tracing::debug!(%client, to = %asked, "refused: {refusal}");
                return abort(v6);
            }
        };
        let network = core.settings.network(*client.ip());
        let limits = core.settings.limits;
        let tally = &core.shared.connections;
        let ticket = match tally.enter(network, limits.connections, limits.per_client) {
            Ok(ticket) => ticket,
            Err(over) => {
                core.limited(over, "connections", client);
                return abort(v6);
            }
        };
        let source = core.settings.source(core.shared.hash(network));
        let class = class(&core.settings, &v6);
        match connect(&core.settings, source, class, v4) {
            Ok(socket) => {
                let connection = Connection::new(v6, socket, (client, asked, v4), ticket, core.now);
                self.register(connection, core);
            }
            Err(errno) => {
                failed(errno, core);
                tracing::debug!(%client, server = %v4, "not connected: {errno}");
                abort(v6);
            }
        }
    }

    fn register(&mut self, connection: Connection, core: &mut Core) {
        let key = self.connections.insert(connection);
        let Some(connection) = self.connections.get_mut(key) else { return };
        let add =
            |socket: &OwnedFd, kind: u8| epoll::add(&core.epoll, socket, token(key, kind), EVENTS);
        let added = add(&connection.v6, TCP_V6).and_then(|()| add(&connection.v4, TCP_V4));
        let next = if added.is_err() { Next::End(End::Failed(Errno::NOMEM)) } else { Next::Wait };
        self.follow(key, next, core);
    }

    /// Handles an event of a side of a connection.
    pub(super) fn event(&mut self, key: Key, side: Side, flags: EventFlags, core: &mut Core) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let next = match connection.heard(side, flags, core) {
            Some(end) => Next::End(end),
            None => connection.run(&mut self.pipes, core),
        };
        self.follow(key, next, core);
    }

    fn follow(&mut self, key: Key, next: Next, core: &mut Core) {
        match next {
            Next::Wait => {}
            Next::Again => self.again.push(key),
            Next::End(end) => return self.end(key, end, core),
        }
        let Some(connection) = self.connections.get_mut(key) else { return };
        let due = connection.due(&core.settings.limits);
        self.timers.arm(key, &mut connection.timer, due);
        if connection.is_starved() && !std::mem::replace(&mut connection.listed, true) {
            self.starved.push(key);
        }
    }

    /// Does what is due without an event.
    pub(super) fn tend(&mut self, core: &mut Core) {
        if self.paused.is_some_and(|until| core.now >= until) {
            self.paused = None;
            let flags = EventFlags::IN;
            let _ = epoll::modify(&core.epoll, &self.listener, core.listener_token(), flags);
        }
        for key in std::mem::take(&mut self.again) {
            if let Some(connection) = self.connections.get_mut(key) {
                let next = connection.run(&mut self.pipes, core);
                self.follow(key, next, core);
            }
        }
        while let Some((at, key)) = self.timers.due(core.now) {
            let Some(connection) = self.connections.get_mut(key) else { continue };
            if connection.timer != Some(at) {
                continue;
            }
            connection.timer = None;
            self.looks += 1;
            let next = connection.look(&core.settings.limits, core.now);
            self.follow(key, next, core);
        }
    }

    /// Lets the connections go on that had no pipe.
    pub(super) fn feed(&mut self) {
        for key in std::mem::take(&mut self.starved) {
            if let Some(connection) = self.connections.get_mut(key) {
                connection.listed = false;
                self.again.push(key);
            }
        }
    }

    /// Other settings: times may have become shorter.
    pub(super) fn take_settings(&mut self, core: &Core) {
        let keys: Vec<Key> = self.connections.iter().map(|(key, _)| key).collect();
        for key in keys {
            if let Some(connection) = self.connections.get_mut(key) {
                let due = connection.due(&core.settings.limits);
                self.timers.arm(key, &mut connection.timer, due);
            }
        }
    }

    fn end(&mut self, key: Key, end: End, core: &mut Core) {
        let Some(connection) = self.connections.remove(key) else { return };
        self.timers.tidy(self.connections.len(), |key, at| {
            self.connections.get(key).is_some_and(|connection| connection.timer == Some(at))
        });
        count(end, core);
        connection.close(end, core.now);
    }
}

fn count(end: End, core: &mut Core) {
    let counters = &core.counters;
    match end {
        End::Finished => counters.tcp_finished.add(1),
        End::Abandoned => counters.tcp_abandoned.add(1),
        End::Reset(Side::V6) => counters.tcp_reset_client.add(1),
        End::Reset(Side::V4) => counters.tcp_reset_server.add(1),
        End::Idle => counters.tcp_idle.add(1),
        End::Failed(errno) => failed(errno, core),
    }
}

/// Counts a connection that could not be made.
fn failed(errno: Errno, core: &mut Core) {
    let counters = &core.counters;
    match errno {
        Errno::CONNREFUSED => counters.failed_refused.add(1),
        Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::ACCESS | Errno::PERM | Errno::NETDOWN => {
            counters.failed_unreachable.add(1);
        }
        Errno::TIMEDOUT => counters.failed_timeout.add(1),
        Errno::ADDRNOTAVAIL
        | Errno::MFILE
        | Errno::NFILE
        | Errno::NOBUFS
        | Errno::NOMEM
        | Errno::AGAIN => {
            counters.failed_resources.add(1);
            core.no_resources("no port, descriptor or memory left for a connection to a server");
        }
        _ => counters.failed_other.add(1),
    }
}

/// Begins a connection to a server.
fn connect(
    settings: &Settings,
    source: Option<Ipv4Addr>,
    class: u8,
    to: SocketAddrV4,
) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = sock::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    option::set_tcp_nodelay(&socket, true)?;
    // Urgent octets are read in their place of the stream.
    option::set_socket_oobinline(&socket, true)?;
    keepalive(&socket, settings.keepalive)?;
    if class != 0 {
        option::set_ip_tos(&socket, class)?;
    }
    if let Some(source) = source {
        // The port is chosen when the destination is known, so that each destination has all ports.
        let _ = setsockopt(&socket, sockopt::IpBindAddressNoPort, &true);
        sock::bind(&socket, &SocketAddrV4::new(source, 0))?;
    }
    match sock::connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(errno) => Err(errno),
    }
}

/// The class of both sides of a connection: the DSCP of the client's SYN, if that is wanted.
fn class(settings: &Settings, v6: &OwnedFd) -> u8 {
    const DSCP: u8 = 0xfc;
    match settings.class {
        // The client's side has it from the listening socket.
        TrafficClass::Set(class) => class,
        TrafficClass::Copy => {
            let class = syn_traffic_class(v6).ok().flatten().unwrap_or(0) & DSCP;
            if class != 0 {
                let _ = option::set_ipv6_tclass(v6, class.into());
            }
            class
        }
    }
}

/// Closes a connection with a reset.
fn abort(socket: OwnedFd) {
    let _ = option::set_socket_linger(socket.as_fd(), Some(Duration::ZERO));
    drop(socket);
}
