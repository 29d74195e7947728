//! Waits for whatever an automatic CLAT has to look at.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::{Duration, Instant};

use fordway_net::{Netlink, Topic};
use sd_notify::NotifyState;
use tokio::sync::Notify;

use super::handle::Handle;
use super::systemd::notify;
use crate::daemon::reconcile::auto::hear::{Asker, Claim, Hearing, News, Opened};
use crate::daemon::reconcile::auto::{AGAIN, Seen};
use crate::daemon::reconcile::watch::Watch;

/// Shortest time between two looks, for hosts whose routes never rest.
const GAP: Duration = Duration::from_millis(20);

/// Longest time between them: whatever was not heard of is seen then.
const LONGEST: Duration = Duration::from_secs(10);

/// What the decision rests on.
const TOPICS: [Topic; 5] =
    [Topic::Links, Topic::Addresses4, Topic::Addresses6, Topic::Routes4, Topic::Routes6];

impl Handle {
    /// Attends to automatic CLATs that nobody attends to so far.
    pub(crate) fn attend(&self) {
        self.with_automatic(|auto| {
            if let Some((opened, kick)) = auto.take_opened() {
                let work = attend(self.clone(), auto.name().to_owned(), opened, kick);
                auto.set_task(tokio::task::spawn_local(work).abort_handle());
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
