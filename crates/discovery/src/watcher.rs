//! The watcher of a host's networks.

use std::collections::BTreeSet;
use std::future::Future;
use std::io;
use std::net::Ipv6Addr;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use fordway_dns64::discovery::{
    Action, Advertisement, Discovery, Event, Failure, Found, Report, Settings,
};
use fordway_dns64::ndp;
use fordway_net::{ChangeWatch, Netlink, Topic};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hickory_proto::op::Message;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

use super::resolvers::ResolvConf;
use super::{Error, ask, links};
use fordway_serve::boottime::{self, Alarm, Slept};
use fordway_serve::message::{MESSAGE_MAX, MessageSocket};
use fordway_serve::readiness::watched;
use fordway_serve::resolv_conf;

/// How long changes of the network are collected before it is looked at again, at least.
const COLLECT: Duration = Duration::from_millis(50);
/// Looking takes no more than one part of so many of the time, however much changes.
const SHARE: u32 = 20;
/// Octets of a solicitation with a link-layer address.
const SOLICITATION_MAX: usize = 64;
/// How many advertisements are read before other work is done.
const BURST: usize = 64;

/// Watches the networks of a host: its own, those of the thread's network namespace.
///
/// [`Watcher::open`] opens what needs privileges; [`Watcher::run`] needs none.
#[derive(Debug)]
pub struct Watcher {
    discovery: Discovery,
    /// None: router advertisements are not listened to.
    socket: Option<MessageSocket>,
    changes: ChangeWatch,
    view: View,
    resolv_conf: ResolvConf,
    found: watch::Sender<Found>,
    report: watch::Sender<Report>,
}

/// What the kernel knows, and when to ask it again.
#[derive(Debug)]
struct View {
    netlink: Netlink,
    /// Interfaces that were down since the last look.
    down: BTreeSet<u32>,
    /// How often each interface had lost its carrier at the last look.
    losses: links::Losses,
    /// Indices of the interfaces that were up at the last look.
    up: BTreeSet<u32>,
    /// Not before this time again.
    earliest: Duration,
    /// Something has changed since.
    stale: bool,
}

type Answers = FuturesUnordered<Pin<Box<dyn Future<Output = (u64, Answer)>>>>;
type Answer = Result<Box<Message>, Failure>;

impl Watcher {
    /// Opens the sockets, in the network namespace of the calling thread. Needs CAP_NET_RAW where
    /// router advertisements are wanted ([`Settings::advertisements`]).
    ///
    /// # Errors
    ///
    /// [`Error::RawSocket`], [`Error::Net`], [`Error::Random`].
    pub fn open(settings: Settings) -> Result<Self, Error> {
        let wanted = settings.advertisements && settings.configured.is_empty();
        let open = || MessageSocket::icmp6(&[ndp::ROUTER_ADVERTISEMENT]).map_err(Error::RawSocket);
        let socket = wanted.then(open).transpose()?;
        // Before the state is read, so that no change is missed.
        let changes = ChangeWatch::open(&[Topic::Links, Topic::Addresses6, Topic::Routes6])?;
        let view = View {
            netlink: Netlink::open()?,
            down: BTreeSet::new(),
            losses: links::Losses::new(),
            up: BTreeSet::new(),
            earliest: Duration::ZERO,
            stale: true,
        };
        let seed = getrandom::u64().map_err(|error| Error::Random(error.to_string()))?;
        Ok(Self {
            discovery: Discovery::new(settings, seed),
            socket,
            changes,
            view,
            resolv_conf: ResolvConf::new(Path::new(resolv_conf::PATH)),
            found: watch::Sender::new(Found::default()),
            report: watch::Sender::new(Report::default()),
        })
    }

    /// Reads the host's resolvers from another file than `/etc/resolv.conf`.
    #[must_use]
    pub fn resolv_conf(self, path: &Path) -> Self {
        Self { resolv_conf: ResolvConf::new(path), ..self }
    }

    /// Asks these resolvers, and not those of the host.
    #[must_use]
    pub fn resolvers(self, resolvers: Vec<SocketAddr>) -> Self {
        Self { resolv_conf: ResolvConf::given(resolvers), ..self }
    }

    /// The prefixes, as they change. Nothing is known before [`Watcher::run`].
    pub fn found(&self) -> watch::Receiver<Found> {
        self.found.subscribe()
    }

    /// How the prefixes were found.
    pub fn report(&self) -> watch::Receiver<Report> {
        self.report.subscribe()
    }

    /// Runs until it is dropped. Has to run in the network namespace that it was opened in, on a tokio
    /// runtime with I/O and time.
    ///
    /// # Errors
    ///
    /// [`Error::Wait`] and [`Error::Net`]: the system can't be watched any more.
    pub async fn run(self) -> Result<(), Error> {
        let Watcher { mut discovery, socket, changes, mut view, resolv_conf, found, report } = self;
        let alarm = Alarm::new().map_err(Error::Wait)?;
        let mut changes = watched(changes).map_err(Error::Wait)?;
        let socket = socket.map(watched).transpose().map_err(Error::Wait)?;
        let resolvers = resolv_conf.watch();
        let mut slept = Slept::until_now();
        let mut answers = Answers::new();
        discovery.handle(boottime::now(), Event::Resolvers(resolv_conf.read()));
        loop {
            view.look_if_due(&mut discovery)?;
            let now = boottime::now();
            while let Some(action) = discovery.poll(now) {
                match action {
                    Action::Solicit { device } => {
                        if let Some(socket) = &socket {
                            solicit(socket.get_ref(), &mut view.netlink, device);
                        }
                    }
                    Action::Ask(question) => answers.push(Box::pin(async move {
                        let answer = ask::ask(&question).await;
                        if let Err(failure) = &answer {
                            tracing::debug!(server = %question.server, "the resolver {failure}");
                        }
                        (question.id, answer)
                    })),
                }
            }
            publish(&found, discovery.found(now));
            publish(&report, discovery.report(now));
            let look = view.stale.then_some(view.earliest);
            let wake = discovery.deadline(now).into_iter().chain(look).min();
            alarm.set(wake).map_err(Error::Wait)?;

            tokio::select! {
                woken = alarm.wait() => woken.map_err(Error::Wait)?,
                ready = changes.readable_mut() => {
                    let mut ready = ready.map_err(Error::Wait)?;
                    let taken = ready.get_inner_mut().take()?;
                    ready.clear_ready();
                    if let Some(changed) = taken {
                        view.down.extend(changed.down);
                        view.stale = true;
                    }
                }
                heard = hear(socket.as_ref()) => {
                    for (device, router, advertisement) in heard? {
                        // The kernel may not have reported yet that it is up.
                        if !view.up.contains(&device) {
                            view.stale = true;
                            view.look_if_due(&mut discovery)?;
                        }
                        let event = Event::Advertisement { device, router, advertisement };
                        discovery.handle(boottime::now(), event);
                    }
                }
                Some((id, answer)) = answers.next(), if !answers.is_empty() => {
                    discovery.handle(boottime::now(), Event::Answer { id, answer });
                }
                () = changed(resolvers.as_ref()) => {
                    discovery.handle(boottime::now(), Event::Resolvers(resolv_conf.read()));
                }
            }
            if slept.again() {
                view.stale = true;
                discovery.handle(boottime::now(), Event::Resumed);
            }
        }
    }

    /// Runs until all immediate answers have come, or for `timeout`.
    ///
    /// # Errors
    ///
    /// As [`Watcher::run`].
    pub async fn look(self, timeout: Duration) -> Result<(Found, Report), Error> {
        let (found, mut report) = (self.found(), self.report());
        let settled = async {
            // The sender lives as long as the run.
            let _ = report.wait_for(|report| report.settled).await;
        };
        tokio::select! {
            ended = self.run() => ended?,
            _ = tokio::time::timeout(timeout, settled) => {}
        }
        let found = found.borrow().clone();
        let report = report.borrow().clone();
        Ok((found, report))
    }
}

impl View {
    /// Reads the state of the network if it has changed, but not too often.
    fn look_if_due(&mut self, discovery: &mut Discovery) -> Result<(), Error> {
        let begun = boottime::now();
        if !self.stale || begun < self.earliest {
            return Ok(());
        }
        let links = links::list(&mut self.netlink, &self.down, &mut self.losses)?;
        self.up = links.iter().filter(|link| link.up).map(|link| link.device.index).collect();
        self.down.clear();
        self.stale = false;
        let now = boottime::now();
        self.earliest = now + ((now - begun) * SHARE).max(COLLECT);
        discovery.handle(now, Event::Links(links));
        // After any change: resolvers that could not be reached may be reachable now.
        discovery.handle(now, Event::Reachable);
        Ok(())
    }
}

/// The router advertisements that have come in: interface, router, content.
async fn hear(
    socket: Option<&AsyncFd<MessageSocket>>,
) -> Result<Vec<(u32, Ipv6Addr, Advertisement)>, Error> {
    let Some(socket) = socket else { return std::future::pending().await };
    let mut buffer = vec![0; MESSAGE_MAX];
    loop {
        let mut ready = socket.readable().await.map_err(Error::Wait)?;
        let mut heard = Vec::new();
        for _ in 0..BURST {
            let received = match ready.get_inner().recv(&mut buffer) {
                Ok(Some(received)) => received,
                Ok(None) => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready.clear_ready();
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // An error of an interface that is gone; the socket stays usable.
                Err(error) => {
                    tracing::debug!("receiving a router advertisement failed: {error}");
                    continue;
                }
            };
            let message = buffer.get(..received.len).unwrap_or_default();
            match ndp::Advertisement::receive(received.source, received.hop_limit, message) {
                Ok((header, options)) => {
                    let advertisement = Advertisement::read(&header, options);
                    heard.push((received.device, received.source, advertisement));
                }
                // RFC 4861 section 6.1.2: silently discarded.
                Err(error) => tracing::trace!(source = %received.source, ?error, "discarded"),
            }
        }
        if !heard.is_empty() {
            return Ok(heard);
        }
    }
}

/// Sends a solicitation, with the link-layer address (RFC 4861 section 6.3.7). A failure counts as a lost message.
fn solicit(socket: &MessageSocket, netlink: &mut Netlink, device: u32) {
    let link = netlink.find_link_by_index(device).ok().flatten();
    let address = link.map(|link| link.hardware_address).unwrap_or_default();
    let mut buffer = [0; SOLICITATION_MAX];
    let written = ndp::Writer::solicitation(&mut buffer).map(|mut writer| {
        if !address.is_empty() {
            // One that does not fit is left out.
            let _ = writer.source_link_layer(&address);
        }
        // The kernel puts in the checksum, and the source with it.
        writer.finish(Ipv6Addr::UNSPECIFIED, ndp::ALL_ROUTERS).to_vec()
    });
    let Ok(message) = written else { return };
    if let Err(error) = socket.send(&message, ndp::ALL_ROUTERS, device) {
        tracing::debug!(device, "sending a router solicitation failed: {error}");
    }
}

async fn changed(resolvers: Option<&super::resolvers::Watch>) {
    match resolvers {
        Some(watch) => watch.changed().await,
        None => std::future::pending().await,
    }
}

fn publish<T: PartialEq>(sender: &watch::Sender<T>, value: T) {
    sender.send_if_modified(|old| {
        let differs = *old != value;
        if differs {
            *old = value;
        }
        differs
    });
}
