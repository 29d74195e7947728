//! UDP: sessions of clients.
//!
//! A client's port has one IPv4 socket for all servers (endpoint-independent mapping, RFC 4787 REQ-1); datagrams of
//! servers to which the client has not sent are dropped. Answers leave by a raw socket, which can have any source
//! address and port, so that no descriptor per server is needed.

mod errors;
mod session;

use std::collections::HashMap;
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::time::{Duration, Instant};

use foldhash::quality::RandomState;
use fordway_net::{Datagram, Peer, RecvBatch, SendBatch};
use fordway_xlat::TrafficClass;
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use rustix::net::sockopt::{Ipv4PathMtuDiscovery, set_ip_mtu_discover};
use slotmap::SlotMap;
use socket2::Socket;

use super::core::{Core, Key, UDP_V4, token};
use super::icmp::{Errors, IcmpError, Quoted, checksum};
use super::timers::Timers;
use fordway_serve::Network;
use session::{Mapping, Session};

/// Datagrams that are taken with one system call.
const BATCH: usize = 32;

/// Octets of the longest datagram.
const LONGEST: usize = 65_536;

/// Batches that are read before other work is done.
const TURN: usize = 8;

/// A client's address and port.
type Client = SocketAddrV6;

/// A thread's sessions.
pub(super) struct Udp {
    socket: UdpSocket,
    /// Sends what answers clients.
    answers: Socket,
    errors: Errors,
    mappings: SlotMap<Key, Mapping>,
    clients: HashMap<Client, Key, RandomState>,
    sessions: HashMap<(Key, SocketAddrV4), Session, RandomState>,
    timers: Timers<(Key, SocketAddrV4)>,
    received: RecvBatch,
    to_clients: SendBatch,
    to_servers: SendBatch,
}

impl Udp {
    pub(super) fn new(socket: UdpSocket, answers: Socket, errors: Errors) -> Udp {
        Udp {
            socket,
            answers,
            errors,
            mappings: SlotMap::default(),
            clients: HashMap::default(),
            sessions: HashMap::default(),
            timers: Timers::default(),
            received: RecvBatch::new(BATCH, LONGEST),
            to_clients: SendBatch::default(),
            to_servers: SendBatch::default(),
        }
    }

    /// How soon after `now` there is something to do without an event, if at all.
    pub(super) fn waits(&self, now: Instant) -> Option<Duration> {
        self.timers.next().map(|next| next.saturating_duration_since(now))
    }

    /// Takes datagrams of clients.
    pub(super) fn hear_clients(&mut self, core: &mut Core) {
        for _ in 0..TURN {
            match self.received.recv(&self.socket) {
                Ok(count) => {
                    self.pass_up(core);
                    if count < BATCH {
                        return;
                    }
                }
                Err(_) => return,
            }
        }
    }

    /// Forwards what was received; datagrams from one client are sent together.
    fn pass_up(&mut self, core: &mut Core) {
        let received = std::mem::replace(&mut self.received, RecvBatch::new(0, 0));
        let mut current: Option<Key> = None;
        for datagram in received.iter() {
            let Some((client, asked)) = ends(&datagram) else {
                core.counters.udp_unsent.add(1);
                continue;
            };
            let about = Quoted { client, asked, octets: datagram.octets };
            let Some((key, server)) = self.session(about, core) else { continue };
            if current.is_some_and(|current| current != key) {
                self.flush_up(current, core);
            }
            current = Some(key);
            let class = match core.settings.class {
                TrafficClass::Copy => datagram.told.class,
                TrafficClass::Set(class) => Some(class),
            };
            let peer = Peer::new(SocketAddr::V4(server)).with_class(class);
            self.to_servers.push(&peer, |octets| octets.extend(datagram.octets));
            if datagram.octets.is_empty() {
                self.send_empty(key, server);
            }
            core.counters.udp_datagrams_up.add(1);
            core.counters.udp_octets_up.add(datagram.octets.len() as u64);
            if datagram.told.fragmented {
                // The client has fragmented it, so it may be fragmented again (RFC 7915 section 5.1).
                self.flush_fragmented(key, core);
            }
        }
        self.flush_up(current, core);
        self.received = received;
    }

    /// The session of a datagram; a new one, if policy and limits allow it.
    fn session(&mut self, about: Quoted<'_>, core: &mut Core) -> Option<(Key, SocketAddrV4)> {
        let (client, asked) = (about.client, about.asked);
        let v4 = match core.settings.destination(*client.ip(), *asked.ip()) {
            Ok(v4) => SocketAddrV4::new(v4, asked.port()),
            Err(refusal) => {
                core.refused(refusal);
                self.tell(IcmpError::PROHIBITED, about, core);
                return None;
            }
        };
        let known = self.clients.get(&client).copied();
        if let Some(key) = known
            && let Some(session) = self.sessions.get_mut(&(key, v4))
        {
            session.active = core.now;
            session.asked = asked;
            return Some((key, v4));
        }
        // A mapping counts for the network that its client had when it was made.
        let mapping = known.and_then(|key| self.mappings.get(key));
        let network =
            mapping.map_or_else(|| core.settings.network(*client.ip()), |mapping| mapping.network);
        let limits = core.settings.limits;
        let tally = &core.shared.sessions;
        let ticket = match tally.enter(network, limits.sessions, limits.per_client) {
            Ok(ticket) => ticket,
            Err(over) => {
                core.limited(over, "UDP sessions", client);
                self.tell(IcmpError::NO_ROOM, about, core);
                return None;
            }
        };
        let key = match known {
            Some(key) => Ok(key),
            None => self.map(client, network, core),
        };
        let key = match key {
            Ok(key) => key,
            Err(errno) => {
                core.counters.failed_resources.add(1);
                core.no_resources(&format!("no socket for a UDP session: {errno}"));
                self.tell(IcmpError::NO_ROOM, about, core);
                return None;
            }
        };
        let mapping = self.mappings.get_mut(key)?;
        mapping.sessions += 1;
        let mut session = Session::new(asked, ticket, core.now);
        self.timers.arm((key, v4), &mut session.timer, core.now + limits.udp_idle);
        self.sessions.insert((key, v4), session);
        core.counters.udp_opened.add(1);
        tracing::debug!(%client, %asked, server = %v4, "UDP session");
        Some((key, v4))
    }

    /// Gives a client's port an IPv4 socket.
    fn map(&mut self, client: Client, network: Network, core: &mut Core) -> Result<Key, Errno> {
        let source = core.settings.source(core.shared.hash(network));
        let socket = session::socket(&core.settings, source)?;
        let mapping = Mapping { socket, client, network, sessions: 0, cut: false };
        let key = self.mappings.insert(mapping);
        let Some(mapping) = self.mappings.get_mut(key) else { return Err(Errno::NOMEM) };
        let data = token(key, UDP_V4);
        if let Err(errno) = epoll::add(&core.epoll, &mapping.socket, data, EventFlags::IN) {
            self.mappings.remove(key);
            return Err(errno);
        }
        self.clients.insert(client, key);
        Ok(key)
    }

    fn flush_up(&mut self, key: Option<Key>, core: &mut Core) {
        let Some(mapping) = key.and_then(|key| self.mappings.get_mut(key)) else { return };
        // The pending error of an earlier datagram is reported once; the error queue has the details.
        let unsent = self.to_servers.send_or(&mapping.socket, |_| true);
        core.counters.udp_unsent.add(unsent as u64);
    }

    fn flush_fragmented(&mut self, key: Key, core: &mut Core) {
        let Some(mapping) = self.mappings.get_mut(key) else { return };
        if mapping.cut {
            return;
        }
        if set_ip_mtu_discover(&mapping.socket, Ipv4PathMtuDiscovery::WANT).is_ok() {
            self.flush_up(Some(key), core);
        }
        if let Some(mapping) = self.mappings.get_mut(key) {
            let _ = set_ip_mtu_discover(&mapping.socket, Ipv4PathMtuDiscovery::DO);
        }
    }

    /// A datagram without octets, which a batch leaves out.
    fn send_empty(&mut self, key: Key, server: SocketAddrV4) {
        use rustix::net::{SendFlags, sendto};
        if let Some(mapping) = self.mappings.get_mut(key) {
            let _ = sendto(&mapping.socket, &[], SendFlags::DONTWAIT, &server);
        }
    }

    /// Handles an event of a client's IPv4 socket.
    pub(super) fn event(&mut self, key: Key, flags: EventFlags, core: &mut Core) {
        if flags.contains(EventFlags::ERR) {
            self.hear_errors(key, core);
        }
        if flags.contains(EventFlags::IN) {
            self.hear_servers(key, core);
        }
    }

    /// Forwards answers of servers.
    fn hear_servers(&mut self, key: Key, core: &mut Core) {
        for _ in 0..TURN {
            let Some(mapping) = self.mappings.get_mut(key) else { return };
            let Ok(count) = self.received.recv(&mapping.socket) else { return };
            for datagram in self.received.iter() {
                let SocketAddr::V4(server) = datagram.peer.address() else { continue };
                let Some(session) = self.sessions.get_mut(&(key, server)) else {
                    core.counters.udp_unsolicited.add(1);
                    continue;
                };
                session.active = core.now;
                session.down += datagram.octets.len() as u64;
                let class = match core.settings.class {
                    TrafficClass::Copy => datagram.told.class,
                    TrafficClass::Set(class) => Some(class),
                };
                // A raw socket has no ports.
                let client =
                    SocketAddrV6::new(*mapping.client.ip(), 0, 0, mapping.client.scope_id());
                let peer = Peer::new(client.into()).from_source(*session.asked.ip());
                self.to_clients.push(&peer.with_class(class), |octets| {
                    write(octets, session.asked, mapping.client, datagram.octets);
                });
                core.counters.udp_datagrams_down.add(1);
                core.counters.udp_octets_down.add(datagram.octets.len() as u64);
            }
            let unsent = self.to_clients.send(&self.answers);
            core.counters.udp_unsent.add(unsent as u64);
            if count < BATCH {
                return;
            }
        }
    }

    /// Ends sessions whose time is over.
    pub(super) fn tend(&mut self, core: &mut Core) {
        let idle = core.settings.limits.udp_idle;
        while let Some((at, key)) = self.timers.due(core.now) {
            let Some(session) = self.sessions.get_mut(&key) else { continue };
            if session.timer != Some(at) {
                continue;
            }
            session.timer = None;
            let end = session.active + idle;
            if core.now < end {
                self.timers.arm(key, &mut session.timer, end);
            } else {
                self.end(key, core);
            }
        }
    }

    /// Other settings: times may have become shorter.
    pub(super) fn take_settings(&mut self, core: &Core) {
        for (key, session) in &mut self.sessions {
            let end = session.active + core.settings.limits.udp_idle;
            self.timers.arm(*key, &mut session.timer, end);
        }
    }

    fn end(&mut self, session: (Key, SocketAddrV4), core: &mut Core) {
        let (key, server) = session;
        let Some(session) = self.sessions.remove(&session) else { return };
        core.counters.udp_idle.add(1);
        let Some(mapping) = self.mappings.get_mut(key) else { return };
        let seconds = core.now.saturating_duration_since(session.opened).as_secs_f32();
        tracing::debug!(client = %mapping.client, %server, down = session.down, seconds, "UDP session ended");
        mapping.sessions -= 1;
        if mapping.sessions == 0 {
            self.clients.remove(&mapping.client);
            self.mappings.remove(key);
        }
    }

    /// Sends a client an ICMPv6 error about its datagram.
    fn tell(&mut self, trouble: IcmpError, about: Quoted<'_>, core: &mut Core) {
        let sent = self.errors.send(&core.settings, trouble, None, about, core.now);
        core.count_icmp(sent);
    }
}

/// Source and original destination of a client's datagram.
fn ends(datagram: &Datagram<'_>) -> Option<(SocketAddrV6, SocketAddrV6)> {
    match (datagram.peer.address(), datagram.told.original) {
        (SocketAddr::V6(client), Some(asked)) if !datagram.truncated => {
            // The flow label does not identify the client.
            Some((SocketAddrV6::new(*client.ip(), client.port(), 0, client.scope_id()), asked))
        }
        _ => None,
    }
}

/// A datagram with its header.
fn write(out: &mut Vec<u8>, from: SocketAddrV6, to: SocketAddrV6, octets: &[u8]) {
    let length = octets.len() as u16 + 8;
    let mut header = [0; 8];
    header[..2].copy_from_slice(&from.port().to_be_bytes());
    header[2..4].copy_from_slice(&to.port().to_be_bytes());
    header[4..6].copy_from_slice(&length.to_be_bytes());
    let sum = checksum(*from.ip(), *to.ip(), &header[..6], octets);
    header[6..].copy_from_slice(&sum.to_be_bytes());
    out.extend(header);
    out.extend(octets);
}
