//! Waits for whatever an automatic CLAT has to look at.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::{Duration, Instant};

use fordway_config::Translator;
use fordway_discovery::{Settings, Watcher};
use fordway_net::{NeighbourSocket, Netlink, Topic};
use sd_notify::NotifyState;
use tokio::sync::Notify;
use tracing::warn;

use super::hear::{self, Asker, Claim, Hearing, News};
use super::{AGAIN, Seen};
use crate::daemon::handle::Handle;
use crate::daemon::notify;
use crate::daemon::watch::Watch;
use crate::failure::Failure;

/// Shortest time between two looks, for hosts whose routes never rest.
const GAP: Duration = Duration::from_millis(20);

/// Longest time between them: whatever was not heard of is seen then.
const LONGEST: Duration = Duration::from_secs(10);

/// What the decision rests on.
const TOPICS: [Topic; 5] =
    [Topic::Links, Topic::Addresses4, Topic::Addresses6, Topic::Routes4, Topic::Routes6];

/// Sockets that need privileges to be opened.
pub(crate) struct Opened {
    settings: Settings,
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
        let watcher = hear::open(name, &settings)?;
        Ok(Opened { settings, watcher, neighbours: neighbours.ok() })
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

    /// Somebody on an automatic CLAT's link claims an address.
    fn hear_neighbour(&self, name: &str, claim: &Claim) {
        self.with_automatic(|auto| {
            if auto.name() == name {
                auto.hear(claim, Instant::now());
            }
        });
    }
}

async fn attend(daemon: Handle, name: String, opened: Opened, kick: Rc<Notify>) {
    let Opened { settings, watcher, neighbours } = opened;
    let mut asker = neighbours.map(Asker::new);
    let mut hearing = Hearing::start(&name, settings, watcher, asker.as_ref());
    let mut changes = Watch::open(&TOPICS);
    let mut netlink = Netlink::open().ok();
    let mut down = BTreeSet::new();
    let mut names = daemon.names();
    loop {
        let now = Instant::now();
        let again = match &mut netlink {
            Some(netlink) => {
                let (found, asker) = (hearing.found(), asker.as_mut());
                let seen = Seen { found, down: &down, asker, netlink, now };
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
            news = hearing.next(asker.as_ref()) => if let News::Claimed(claim) = news {
                daemon.hear_neighbour(&name, &claim);
            },
            () = changes.changed(&mut down) => {}
            () = kick.notified() => {}
            () = tokio::time::sleep_until(again.into()) => {}
        }
        // What happens at once is seen at once; what goes on and on, from time to time.
        tokio::time::sleep_until((now + GAP).into()).await;
    }
}
