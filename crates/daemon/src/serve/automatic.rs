//! The task of an automatic CLAT: waits for events that may change its decision.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::{Duration, Instant};

use fordway_net::{Netlink, Topic};
use sd_notify::NotifyState;
use tokio::sync::Notify;

use super::handle::Handle;

use crate::reconcile::auto::discovery::{Claim, Discovery, News, Opened, Prober};
use crate::reconcile::auto::{AGAIN, Seen};
use crate::reconcile::watch::Watch;
use crate::systemd::notify;

/// Shortest time between two decisions, for hosts whose routes change all the time.
const GAP: Duration = Duration::from_millis(20);

/// Longest time between two decisions, in case an event was lost.
const LONGEST: Duration = Duration::from_secs(10);

/// Kernel messages that may change the decision.
const TOPICS: [Topic; 5] =
    [Topic::Links, Topic::Addresses4, Topic::Addresses6, Topic::Routes4, Topic::Routes6];

impl Handle {
    /// Starts a task for each automatic CLAT that has none.
    pub(crate) fn start_automatic(&self) {
        self.with_automatic(|auto| {
            if let Some((opened, kick)) = auto.take_opened() {
                let work = follow(self.clone(), auto.name().to_owned(), opened, kick);
                auto.set_task(tokio::task::spawn_local(work).abort_handle());
            }
        });
    }

    /// A neighbour on an automatic CLAT's link claims an address.
    fn address_claimed(&self, name: &str, claim: &Claim) {
        self.with_automatic(|auto| {
            if auto.name() == name {
                auto.address_claimed(claim, Instant::now());
            }
        });
    }
}

async fn follow(daemon: Handle, name: String, opened: Opened, kick: Rc<Notify>) {
    let Opened { settings, watcher, neighbours } = opened;
    let mut prober = neighbours.map(Prober::new);
    let mut discovery = Discovery::start(&name, settings, watcher, prober.as_ref());
    let mut changes = Watch::open(&TOPICS);
    let mut netlink = Netlink::open().ok();
    let mut down = BTreeSet::new();
    let mut names = daemon.names();
    loop {
        let now = Instant::now();
        let again = match &mut netlink {
            Some(netlink) => {
                let (found, prober) = (discovery.found(), prober.as_mut());
                let seen = Seen { found, down: &down, prober, netlink, now };
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
            news = discovery.next(prober.as_ref()) => if let News::Claimed(claim) = news {
                daemon.address_claimed(&name, &claim);
            },
            () = changes.changed(&mut down) => {}
            () = kick.notified() => {}
            () = tokio::time::sleep_until(again.into()) => {}
        }
        // A single event is handled at once, a series of them with a delay.
        tokio::time::sleep_until((now + GAP).into()).await;
    }
}
