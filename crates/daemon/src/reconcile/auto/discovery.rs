//! Messages from the network for an automatic CLAT: prefixes from routers and resolvers, address claims from neighbours.
//!
//! A thread without capabilities (`{name}-hear`) receives and parses them. It hands over typed values, of which only the
//! latest is kept: messages from the network can't make the privileged thread read or store more than that.

use std::future::pending;
use std::time::{Duration, Instant};

use fordway_config::Translator;
use fordway_discovery::{Settings, Watcher};
use fordway_dns64::discovery::{Found, Report};
use fordway_net::{NeighbourReceiver, NeighbourSocket};
use tokio::sync::{oneshot, watch};
use tracing::{debug, warn};

use super::AGAIN;
use super::duplicate::{Mac, Question};
use crate::apply::privilege;
use crate::failure::Failure;
use crate::reconcile::watch::own_fd;

/// The longest Neighbor Discovery message that matters.
const MESSAGE: usize = 1500;

/// How many messages are read before other tasks run.
const BURST: usize = 64;

/// A neighbour uses the address that is being probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// Its answer to this; another question's is void.
    pub(crate) question: Question,
    /// Who.
    pub(crate) by: Mac,
}

/// What has been received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// Prefixes have changed.
    Found,
    /// A neighbour has the address.
    Claimed(Claim),
}

/// Asks neighbours whether an address is free. Their answers are heard elsewhere: it can't receive.
#[derive(Debug)]
pub(crate) struct Prober {
    socket: NeighbourSocket,
    question: watch::Sender<Option<Question>>,
}

impl Prober {
    pub(crate) fn new(socket: NeighbourSocket) -> Prober {
        Prober { socket, question: watch::Sender::new(None) }
    }

    /// Hears answers to `question` from now on, those to `groups` too.
    pub(crate) fn listen(
        &mut self,
        question: Question,
        groups: &[Mac],
    ) -> Result<(), fordway_net::Error> {
        // Before the first answer can come.
        self.question.send_replace(Some(question));
        self.socket.listen(question.index, groups)
    }

    /// Hears nothing any more.
    pub(super) fn stop_listening(&mut self) {
        self.socket.silence();
        self.question.send_replace(None);
    }

    pub(crate) fn send(
        &self,
        packet: &[u8],
        index: u32,
        to: Mac,
    ) -> Result<(), fordway_net::Error> {
        self.socket.send(packet, index, to)
    }
}

/// Sockets that need privileges to be opened.
pub(crate) struct Opened {
    pub(crate) settings: Settings,
    pub(crate) watcher: Watcher,
    pub(crate) neighbours: Option<NeighbourSocket>,
}

impl Opened {
    pub(crate) fn open(template: &Translator) -> Result<Opened, Failure> {
        let name = template.name.as_str();
        let neighbours = NeighbourSocket::open();
        if let Err(error) = &neighbours {
            warn!("{name}: no duplicate address detection for the CLAT's address: {error}");
        }
        let device = template.clat().and_then(|clat| clat.uplink.as_ref());
        let settings = Settings {
            device: device.map(ToString::to_string),
            // Ours is one host among others that has been waiting for nothing.
            solicitation_delay: Duration::ZERO,
            ..Settings::default()
        };
        let watcher = open(name, &settings)?;
        Ok(Opened { settings, watcher, neighbours: neighbours.ok() })
    }

    pub(super) fn can_check(&self) -> bool {
        self.neighbours.is_some()
    }
}

/// The receiving thread, which is restarted if it ends by itself.
pub(crate) struct Discovery {
    name: String,
    /// To open it again.
    settings: Settings,
    receiver: Option<Receiver>,
    /// When to begin anew.
    retry: Instant,
    found: Found,
}

/// What the thread hands over.
struct Receiver {
    found: watch::Receiver<Found>,
    report: watch::Receiver<Report>,
    claims: watch::Receiver<Option<Claim>>,
    /// The thread ends when this is dropped.
    _listening: oneshot::Sender<()>,
}

impl Discovery {
    /// Starts the thread with open sockets.
    pub(crate) fn start(
        name: &str,
        settings: Settings,
        watcher: Watcher,
        prober: Option<&Prober>,
    ) -> Discovery {
        let mut hearing = Discovery {
            name: name.to_owned(),
            settings,
            receiver: None,
            retry: Instant::now(),
            found: Found::default(),
        };
        hearing.begin(Ok(watcher), prober);
        hearing
    }

    fn begin(&mut self, watcher: Result<Watcher, Failure>, prober: Option<&Prober>) {
        let receiver = watcher.and_then(|watcher| Receiver::open(&self.name, watcher, prober));
        self.retry = Instant::now() + AGAIN;
        if let Err(failure) = &receiver {
            warn!(
                "{}: router advertisements are not received: {}; will retry",
                self.name,
                failure.line()
            );
        }
        self.receiver = receiver.ok();
    }

    /// The prefixes that the network tells.
    pub(crate) fn found(&mut self) -> Found {
        if let Some(receiver) = &mut self.receiver {
            let found = receiver.found.borrow_and_update().clone();
            // A restarted thread does not know yet what the earlier one has received.
            if !found.prefixes.is_empty() || receiver.report.borrow().settled {
                self.found = found;
            }
        }
        self.found.clone()
    }

    /// Waits for news. May be dropped while it waits.
    pub(crate) async fn next(&mut self, prober: Option<&Prober>) -> News {
        loop {
            if self.receiver.is_none() {
                tokio::time::sleep_until(self.retry.into()).await;
                self.begin(open(&self.name, &self.settings), prober);
            }
            let Some(receiver) = &mut self.receiver else { continue };
            if let Some(news) = receiver.next().await {
                return news;
            }
            warn!("{}: the discovery thread has ended; it is restarted", self.name);
            self.receiver = None;
            self.retry = Instant::now() + AGAIN;
        }
    }
}

/// Opens what hears routers and asks resolvers. Without advertisements, if they can't be heard.
pub(crate) fn open(name: &str, settings: &Settings) -> Result<Watcher, Failure> {
    let watcher = Watcher::open(settings.clone()).or_else(|error| {
        warn!("{name}: router advertisements are not received: {error}");
        Watcher::open(Settings { advertisements: false, ..settings.clone() })
    });
    watcher.map_err(|error| {
        Failure::failed(format!("{name}: cannot discover the prefix: {error}")).hint(
            "it needs CAP_NET_RAW; a daemon that was started without an automatic CLAT has given it up: \
             restart it",
        )
    })
}

impl Receiver {
    fn open(name: &str, watcher: Watcher, prober: Option<&Prober>) -> Result<Receiver, Failure> {
        let (found, report) = (watcher.found(), watcher.report());
        let (tell, claims) = watch::channel(None);
        let (listening, end) = oneshot::channel::<()>();
        let neighbours = prober.map(|prober| {
            let receiver = prober.socket.receiver()?;
            Ok::<_, fordway_net::Error>((receiver, prober.question.subscribe()))
        });
        let neighbours = neighbours.transpose()?;
        let label = name.to_owned();
        let work = move || async move {
            tokio::select! {
                ended = watcher.run() => if let Err(error) = ended {
                    warn!("{label}: discovery of prefixes has ended: {error}");
                },
                () = receive_claims(neighbours, &tell) => {}
                _ = end => {}
            }
        };
        privilege::apart(&format!("{name}-hear"), work)?;
        Ok(Receiver { found, report, claims, _listening: listening })
    }

    /// Waits for news; `None`: the thread has ended.
    async fn next(&mut self) -> Option<News> {
        loop {
            tokio::select! {
                changed = self.found.changed() => return changed.ok().map(|()| News::Found),
                changed = self.claims.changed() => {
                    changed.ok()?;
                    if let Some(claim) = *self.claims.borrow_and_update() {
                        return Some(News::Claimed(claim));
                    }
                }
            }
        }
    }
}

/// Hears what neighbours say, and tells who claims the address that is asked about.
async fn receive_claims(
    neighbours: Option<(NeighbourReceiver, watch::Receiver<Option<Question>>)>,
    tell: &watch::Sender<Option<Claim>>,
) {
    let Some((receiver, question)) = neighbours else { return pending().await };
    let receiver = match own_fd(receiver) {
        Ok(receiver) => receiver,
        Err(error) => {
            debug!("neighbours: {error}");
            return pending().await;
        }
    };
    let mut packet = [0; MESSAGE];
    loop {
        let Ok(mut ready) = receiver.readable().await else { return pending().await };
        for _ in 0..BURST {
            match ready.get_inner().receive(&mut packet) {
                Ok(Some(heard)) => {
                    let asked = *question.borrow();
                    let packet = &packet[..heard.len.min(MESSAGE)];
                    if let Some(question) = asked
                        && question.index == heard.index
                        && question.is_claim(packet, heard.sender)
                    {
                        tell.send_replace(Some(Claim { question, by: heard.sender }));
                    }
                }
                Ok(None) => {
                    ready.clear_ready();
                    break;
                }
                // The link went down, which is told elsewhere.
                Err(error) => debug!("{error}"),
            }
        }
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use fordway_dns64::discovery::{Prefix, Source, Validation};

    use super::*;

    fn found(pool6: &str) -> Found {
        let pool6 = pool6.parse().unwrap();
        let validation = Validation::NotNeeded;
        let source = Source::Configured;
        let prefix = Prefix { pool6, source, device: None, until: None, validation, stale: false };
        Found { prefixes: vec![prefix] }
    }

    /// With a configured prefix nothing is sent.
    #[tokio::test(start_paused = true)]
    async fn a_thread_that_has_ended_is_followed_by_another() {
        let settings = Settings {
            configured: vec!["2001:db8:65::/96".parse().unwrap()],
            ..Settings::default()
        };
        let (tell, heard) = watch::channel(found("2001:db8:64::/96"));
        let (report, claims) = (watch::channel(Report::default()), watch::channel(None));
        let receiver = Receiver {
            found: heard,
            report: report.1,
            claims: claims.1,
            _listening: oneshot::channel().0,
        };
        let mut hearing = Discovery {
            name: "clat0".to_owned(),
            settings,
            receiver: Some(receiver),
            retry: Instant::now(),
            found: Found::default(),
        };
        assert_eq!(hearing.found(), found("2001:db8:64::/96"));
        // It has panicked.
        drop((tell, report.0, claims.0));
        assert_eq!(hearing.found(), found("2001:db8:64::/96"));
        assert_eq!(hearing.next(None).await, News::Found);
        assert_eq!(hearing.found(), found("2001:db8:65::/96"));
        // What has begun anew and knows nothing yet is not asked.
        let nothing = watch::channel(Found::default());
        let receiver = hearing.receiver.as_mut().unwrap();
        receiver.found = nothing.1;
        receiver.report = watch::channel(Report::default()).1;
        assert_eq!(hearing.found(), found("2001:db8:65::/96"));
        let settled = Report { settled: true, ..Report::default() };
        hearing.receiver.as_mut().unwrap().report = watch::channel(settled).1;
        assert_eq!(hearing.found(), Found::default());
    }
}
