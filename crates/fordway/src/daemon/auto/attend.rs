//! Waits for whatever an automatic CLAT has to look at.

use std::collections::BTreeSet;
use std::future::pending;
use std::rc::Rc;
use std::time::{Duration, Instant};

use fordway_config::Translator;
use fordway_dns64::discovery::Found;
use fordway_net::{NeighbourSocket, Netlink, Topic};
use fordway_services::discovery::{Settings, Watcher};
use sd_notify::NotifyState;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tracing::{debug, warn};

use super::{AGAIN, Seen};
use crate::daemon::handle::Handle;
use crate::daemon::notify;
use crate::daemon::watch::{Watch, own_fd};
use crate::failure::Failure;

/// Shortest time between two looks, for hosts whose routes never rest.
const GAP: Duration = Duration::from_millis(20);

/// Longest time between them: whatever was not heard of is seen then.
const LONGEST: Duration = Duration::from_secs(10);

/// What the decision rests on.
const TOPICS: [Topic; 5] =
    [Topic::Links, Topic::Addresses4, Topic::Addresses6, Topic::Routes4, Topic::Routes6];

/// The longest Neighbor Discovery message that matters.
const MESSAGE: usize = 1500;

/// Sockets that need privileges to be opened.
pub(crate) struct Opened {
    watcher: Watcher,
    neighbours: Option<NeighbourSocket>,
}

impl Opened {
    pub(super) fn open(template: &Translator) -> Result<Opened, Failure> {
        let name = template.name.as_str();
        let neighbours = NeighbourSocket::open();
        if let Err(error) = &neighbours {
            warn!("{name}: nobody is asked whether the CLAT's address is free: {error}");
        }
        let device = template.clat().and_then(|clat| clat.uplink.as_ref());
        let settings = Settings {
            device: device.map(ToString::to_string),
            // Ours is one host among others that has been waiting for nothing.
            solicitation_delay: Duration::ZERO,
            ..Settings::default()
        };
        let watcher = Watcher::open(settings.clone()).or_else(|error| {
            warn!("{name}: router advertisements can't be heard: {error}");
            Watcher::open(Settings { advertisements: false, ..settings })
        });
        let watcher = watcher.map_err(|error| {
            Failure::failed(format!("{name}: cannot discover the prefix: {error}")).hint(
                "it needs CAP_NET_RAW; a daemon that was started without an automatic CLAT has given it up: \
                 restart it",
            )
        })?;
        Ok(Opened { watcher, neighbours: neighbours.ok() })
    }

    pub(super) fn can_check(&self) -> bool {
        self.neighbours.is_some()
    }
}

impl Handle {
    /// Attends to automatic CLATs that nobody attends to so far.
    pub(in crate::daemon) fn attend(&self) {
        self.with_automatic(|auto| {
            if let Some(opened) = auto.opened.take() {
                let name = auto.name().to_owned();
                let work = attend(self.clone(), name, opened, Rc::clone(&auto.kick));
                auto.task = Some(tokio::task::spawn_local(work).abort_handle());
            }
        });
    }
}

async fn attend(daemon: Handle, name: String, opened: Opened, kick: Rc<Notify>) {
    let Opened { watcher, neighbours } = opened;
    let mut found = watcher.found();
    let _discovery = Task::spawn(name.clone(), watcher);
    let mut neighbours = Neighbours::new(neighbours);
    let mut changes = Watch::open(&TOPICS);
    let mut netlink = Netlink::open().ok();
    let mut down = BTreeSet::new();
    let mut names = daemon.names();
    loop {
        let now = Instant::now();
        let again = match &mut netlink {
            Some(netlink) => {
                let found: Found = found.borrow_and_update().clone();
                let socket = neighbours.socket();
                let seen = Seen { found, down: &down, socket, netlink, now };
                match daemon.step_automatic(&name, seen) {
                    Some(again) => again.unwrap_or(now + LONGEST).min(now + LONGEST),
                    None => return,
                }
            }
            None => {
                netlink = Netlink::open().ok();
                now + AGAIN
            }
        };
        down.clear();
        let now_names = daemon.names();
        if now_names != names {
            notify(&[NotifyState::Status(&format!("Running: {now_names}"))]);
            names = now_names;
        }
        tokio::select! {
            _ = told(&mut found) => {}
            () = changes.changed(&mut down) => {}
            () = kick.notified() => {}
            () = tokio::time::sleep_until(again.into()) => {}
            () = neighbours.heard(|packet, from| daemon.hear_neighbour(&name, packet, from)) => {}
        }
        // What happens at once is seen at once; what goes on and on, from time to time.
        tokio::time::sleep_until((now + GAP).into()).await;
    }
}

/// Waits for another set of prefixes.
async fn told(found: &mut watch::Receiver<Found>) {
    if found.changed().await.is_err() {
        pending::<()>().await;
    }
}

/// A task that ends with this.
struct Task(AbortHandle);

impl Task {
    fn spawn(name: String, watcher: Watcher) -> Task {
        let work = async move {
            if let Err(error) = watcher.run().await {
                warn!("{name}: prefixes are not followed any more: {error}; restart the daemon");
            }
        };
        Task(tokio::task::spawn_local(work).abort_handle())
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The socket for duplicate address detection, if there is one.
struct Neighbours(Option<AsyncFd<NeighbourSocket>>);

impl Neighbours {
    fn new(socket: Option<NeighbourSocket>) -> Neighbours {
        let socket = socket.map(own_fd).transpose();
        Neighbours(socket.inspect_err(|error| debug!("neighbours: {error}")).ok().flatten())
    }

    fn socket(&mut self) -> Option<&mut NeighbourSocket> {
        self.0.as_mut().map(AsyncFd::get_mut)
    }

    /// Hears what neighbours say, until there is something new to look at.
    async fn heard(&mut self, mut hear: impl FnMut(&[u8], &fordway_net::Heard) -> bool) {
        let Some(socket) = &mut self.0 else { return pending().await };
        let mut packet = [0; MESSAGE];
        loop {
            let Ok(mut ready) = socket.readable_mut().await else { return pending().await };
            ready.clear_ready();
            let mut news = false;
            loop {
                match ready.get_inner().receive(&mut packet) {
                    Ok(Some(heard)) => news |= hear(&packet[..heard.len.min(MESSAGE)], &heard),
                    Ok(None) => break,
                    // The link went down, which is told elsewhere.
                    Err(error) => {
                        debug!("{error}");
                        break;
                    }
                }
            }
            if news {
                return;
            }
        }
    }
}
