//! The thread: waits for messages, changes, timers and commands.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddrV6;
use std::os::fd::AsRawFd;
use std::sync::mpsc::SyncSender;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use dhcproto::v6::CLIENT_PORT;
use fordway_dns64::ndp::ALL_ROUTERS;
use fordway_net::{ChangeWatch, Changes, Netlink};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc::UnboundedReceiver;
use tracing::{debug, error, warn};

use super::device::{Link, Outgoing};
use super::dhcp::{self, ALL_SERVERS};
use super::host::{Host, forwards};
use super::settings::Settings;
use fordway_counters::router::Stats;
use fordway_serve::message::{MESSAGE_MAX, MessageSocket};
use fordway_serve::readiness::watched;
use fordway_serve::thread::Ready;

/// Changes of the network come in bursts: how long to wait before the new state is read.
const CALM: Duration = Duration::from_millis(50);

/// Longest DHCPv6 message that is read, in octets: a request has no more in it than its client.
const REQUEST_MAX: usize = 1500;

/// Messages that are read before timers are looked at.
const AT_ONCE: usize = 64;

/// What was opened with privileges.
#[derive(Debug)]
pub(super) struct Sockets {
    pub(super) icmp: MessageSocket,
    pub(super) dhcp: Option<MessageSocket>,
    pub(super) watch: ChangeWatch,
    pub(super) netlink: Netlink,
    /// This server's identifier.
    pub(super) duid: Vec<u8>,
}

/// What the owner wants.
#[derive(Debug)]
pub(super) enum Command {
    /// Whether there is a socket for DHCPv6.
    HasDhcpv6(SyncSender<bool>),
    /// A socket for DHCPv6.
    Dhcpv6(MessageSocket),
    /// Other settings; the answer comes once they are in use.
    Replace(Settings, SyncSender<()>),
    /// Withdraws everything and ends.
    Stop,
}

/// Runs until [`Command::Stop`], or until its owner is gone. Signals `ready` once it runs.
pub(super) async fn run(
    sockets: Sockets,
    settings: Settings,
    commands: UnboundedReceiver<Command>,
    stats: &Mutex<Stats>,
    ready: Ready,
) -> io::Result<()> {
    let mut router = Router::new(sockets, settings)?;
    router.look(&Changes::default());
    router.publish(stats);
    ready.tell();
    router.serve(commands, stats).await;
    Ok(())
}

struct Router {
    icmp: AsyncFd<MessageSocket>,
    dhcp: Option<AsyncFd<MessageSocket>>,
    watch: AsyncFd<ChangeWatch>,
    netlink: Netlink,
    duid: Vec<u8>,
    links: Vec<Link>,
    /// Interfaces, by index, on which groups were joined: of routers, and of DHCPv6 servers.
    joined: BTreeMap<u32, (bool, bool)>,
    /// Changes that were reported, and when to read the new state.
    changes: Option<(Changes, Instant)>,
    buffer: Vec<u8>,
}

impl Router {
    fn new(sockets: Sockets, settings: Settings) -> io::Result<Router> {
        Ok(Router {
            icmp: watched(sockets.icmp)?,
            dhcp: sockets.dhcp.map(watched).transpose()?,
            watch: watched(sockets.watch)?,
            netlink: sockets.netlink,
            duid: sockets.duid,
            links: settings.devices.into_iter().map(Link::new).collect(),
            joined: BTreeMap::new(),
            changes: None,
            buffer: vec![0; MESSAGE_MAX],
        })
    }

    async fn serve(&mut self, mut commands: UnboundedReceiver<Command>, stats: &Mutex<Stats>) {
        loop {
            let deadline = self.deadline();
            let timer = async {
                match deadline {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                command = commands.recv() => match command {
                    Some(Command::Stop) => {
                        self.stop();
                        break;
                    }
                    None => break,
                    Some(command) => self.execute(command),
                },
                ready = self.watch.readable_mut() => match ready {
                    Ok(mut ready) => match ready.get_inner_mut().take() {
                        Ok(heard) => {
                            ready.clear_ready();
                            self.note(heard);
                        }
                        Err(error) => {
                            error!(%error, "router advertisements end: changes of the network can't be read");
                            break;
                        }
                    },
                    Err(error) => {
                        error!(%error, "router advertisements end");
                        break;
                    }
                },
                ready = readable(Some(&self.icmp)) => if !ready || !self.receive() {
                    error!("router advertisements end: no message can be received");
                    break;
                },
                ready = readable(self.dhcp.as_ref()) => if !ready || !self.receive_dhcpv6() {
                    error!("DHCPv6 ends: no message can be received");
                    self.dhcp = None;
                },
                () = timer => {}
            }
            self.tend();
            self.publish(stats);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let links = self.links.iter().filter_map(Link::deadline);
        links.chain(self.changes.as_ref().map(|(_, at)| *at)).min()
    }

    fn execute(&mut self, command: Command) {
        match command {
            Command::HasDhcpv6(answer) => {
                let _gone = answer.send(self.dhcp.is_some());
            }
            Command::Dhcpv6(socket) => match watched(socket) {
                Ok(socket) => self.dhcp = Some(socket),
                Err(error) => warn!(%error, "DHCPv6 can't be answered"),
            },
            Command::Replace(settings, done) => {
                self.replace(settings);
                let _gone = done.send(());
            }
            // The loop ends with it.
            Command::Stop => {}
        }
    }

    fn replace(&mut self, settings: Settings) {
        let now = Instant::now();
        if !settings.devices.iter().any(|device| device.dhcpv6) {
            self.dhcp = None;
        }
        let mut old = std::mem::take(&mut self.links);
        for device in settings.devices {
            let same = old.iter().position(|link| link.name() == device.device);
            let link = match same {
                Some(at) => {
                    let mut link = old.remove(at);
                    link.replace(device, now);
                    link
                }
                None => Link::new(device),
            };
            self.links.push(link);
        }
        for mut link in old {
            let last = link.farewell(now);
            self.send(&mut link, last);
        }
        self.look(&Changes::default());
    }

    fn stop(&mut self) {
        let mut links = std::mem::take(&mut self.links);
        for link in &mut links {
            let last = link.farewell(Instant::now());
            self.send(link, last);
        }
        self.links = links;
    }

    /// Changes come in bursts, after each of which the state is read once.
    fn note(&mut self, heard: Option<Changes>) {
        let Some(heard) = heard else {
            return;
        };
        let (changes, _) =
            self.changes.get_or_insert_with(|| (Changes::default(), Instant::now() + CALM));
        changes.down.extend(heard.down);
        changes.lost |= heard.lost;
    }

    /// Reads the state of the devices.
    fn look(&mut self, changes: &Changes) {
        let host = match Host::read(&mut self.netlink) {
            Ok(host) => host,
            Err(error) => {
                warn!(%error, "can't read devices and addresses; the last state stays in use");
                return;
            }
        };
        let now = Instant::now();
        for link in &mut self.links {
            let facts = host.facts(link.name());
            let was_down = facts.as_ref().is_some_and(|it| changes.down.contains(&it.index));
            link.observe(facts, was_down, now);
        }
        self.join();
    }

    /// Joins groups on interfaces that need it, and leaves them on others (RFC 4861 section 6.2.2).
    fn join(&mut self) {
        let has_dhcp = self.dhcp.is_some();
        let wanted: BTreeMap<u32, bool> = self
            .links
            .iter()
            .filter_map(|link| Some((link.index()?, has_dhcp && link.dhcpv6().is_some())))
            .collect();
        let icmp = self.icmp.get_ref();
        let dhcp = self.dhcp.as_ref().map(AsyncFd::get_ref);
        // An interface that is gone has taken its groups with it.
        self.joined.retain(|index, (router, server)| {
            if !wanted.contains_key(index) {
                let _gone = router.then(|| icmp.leave(ALL_ROUTERS, *index));
                let _gone = dhcp.filter(|_| *server).map(|it| it.leave(ALL_SERVERS, *index));
            }
            wanted.contains_key(index)
        });
        for (index, serves) in wanted {
            let (router, server) = self.joined.entry(index).or_default();
            if !*router {
                *router = settled(icmp.join(ALL_ROUTERS, index), index);
            }
            match dhcp {
                None => *server = false,
                Some(dhcp) if serves && !*server => {
                    *server = settled(dhcp.join(ALL_SERVERS, index), index);
                }
                Some(dhcp) if !serves && *server => {
                    let _gone = dhcp.leave(ALL_SERVERS, index);
                    *server = false;
                }
                _ => {}
            }
        }
    }

    /// Reads solicitations and advertisements; `false` if the socket is of no use any more.
    fn receive(&mut self) -> bool {
        for _ in 0..AT_ONCE {
            let buffer = &mut self.buffer;
            let received = match self.icmp.try_io(Interest::READABLE, |it| it.recv(buffer)) {
                Ok(Some(received)) => received,
                Ok(None) => continue,
                Err(error) => return passing(&error),
            };
            let link = self.links.iter_mut().find(|it| it.index() == Some(received.device));
            if let (Some(link), Some(message)) = (link, self.buffer.get(..received.len)) {
                let now = Instant::now();
                link.receive(message, received.source, received.hop_limit, random(), now);
            }
        }
        true
    }

    /// Reads and answers DHCPv6; `false` if the socket is of no use any more.
    fn receive_dhcpv6(&mut self) -> bool {
        let Some(socket) = &self.dhcp else {
            return true;
        };
        for _ in 0..AT_ONCE {
            let mut buffer = [0; REQUEST_MAX];
            let request = match socket.try_io(Interest::READABLE, |it| it.recv(&mut buffer)) {
                Ok(Some(request)) => request,
                Ok(None) => continue,
                Err(error) => return passing(&error),
            };
            let link = self.links.iter_mut().find(|it| it.index() == Some(request.device));
            let Some(link) = link else {
                continue;
            };
            let message = buffer.get(..request.len).unwrap_or_default();
            // RFC 8415 section 16: none that was sent to this host alone. A client's address is one
            // of the link (section 17), which also makes sure that the reply stays there.
            let on_link = request.source.is_unicast_link_local();
            let answer = match link.dhcpv6() {
                Some((source, told)) if request.destination == ALL_SERVERS && on_link => {
                    dhcp::reply(message, &self.duid, told).ok().map(|it| (source, it))
                }
                _ => None,
            };
            let Some((source, reply)) = answer else {
                link.stats_mut().dhcpv6_ignored += 1;
                continue;
            };
            if !link.admit(Instant::now()) {
                link.stats_mut().dhcpv6_limited += 1;
                continue;
            }
            let client = SocketAddrV6::new(request.source, CLIENT_PORT, 0, request.device);
            match socket.get_ref().send_from(&reply, source, client) {
                Ok(()) => link.stats_mut().dhcpv6_replies += 1,
                Err(error) => debug!(device = link.name(), %error, "can't send a DHCPv6 reply"),
            }
        }
        true
    }

    /// Does what has become due.
    fn tend(&mut self) {
        let now = Instant::now();
        if let Some((changes, _)) = self.changes.take_if(|(_, at)| *at <= now) {
            self.look(&changes);
        }
        let mut links = std::mem::take(&mut self.links);
        for link in &mut links {
            if link.deadline().is_some_and(|at| at <= now) {
                link.set_forwarding(forwards(link.name()), now);
                let due = link.due(random(), now);
                self.send(link, due);
            }
        }
        self.links = links;
    }

    fn send(&self, link: &mut Link, outgoing: Vec<Outgoing>) {
        let mut unsent = false;
        for Outgoing { index, source, to, message } in outgoing {
            match self.icmp.get_ref().send_from(
                &message,
                source,
                SocketAddrV6::new(to, 0, 0, index),
            ) {
                Ok(()) if to.is_multicast() => link.stats_mut().sent += 1,
                Ok(()) => link.stats_mut().sent_unicast += 1,
                Err(error) => {
                    link.stats_mut().unsent += 1;
                    unsent |= to.is_multicast();
                    debug!(device = link.name(), %to, %error, "can't send a router advertisement");
                }
            }
        }
        // Once for all messages of one time: they are repeated together.
        if unsent {
            link.unsent(Instant::now());
        }
    }

    fn publish(&self, stats: &Mutex<Stats>) {
        let devices = self.links.iter().map(|link| link.stats().clone()).collect();
        *stats.lock().unwrap_or_else(PoisonError::into_inner) = Stats { devices };
    }
}

/// Waits until there is something to read; for ever without a socket. `false` if that is impossible.
///
/// Readiness stays until a read finds nothing: a caller that stops before that is woken at once.
async fn readable<T: AsRawFd>(socket: Option<&AsyncFd<T>>) -> bool {
    match socket {
        Some(socket) => socket.readable().await.is_ok(),
        None => std::future::pending().await,
    }
}

/// Whether a socket stays usable after an error: there is nothing to read, or the error is temporary.
fn passing(error: &io::Error) -> bool {
    use nix::libc::{EHOSTUNREACH, ENETDOWN, ENETUNREACH, ENOBUFS, ENODEV, ENOMEM};
    let moments = [EHOSTUNREACH, ENETDOWN, ENETUNREACH, ENOBUFS, ENODEV, ENOMEM];
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
        || error.raw_os_error().is_some_and(|number| moments.contains(&number))
}

/// Whether a group is joined.
fn settled(joined: io::Result<()>, index: u32) -> bool {
    match joined {
        Ok(()) => true,
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => true,
        Err(error) => {
            debug!(index, %error, "can't join a multicast group yet");
            false
        }
    }
}

/// A random number; without randomness, timers only lose their jitter.
fn random() -> u64 {
    getrandom::u64().unwrap_or(u64::MAX / 2)
}
