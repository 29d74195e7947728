//! Tells programs in front of routing when the kernel's answers to where packets go have changed.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use fordway_bpf::RoutingNews;
use fordway_net::{Error, Netlink, RoutingWatch};
use tokio::time::timeout;
use tracing::warn;

use super::watch::{SHARE, own_fd};
use crate::apply::kernel::routing::made;
use crate::apply::privilege;
use crate::failure::Failure;

/// How often programs are told that changes are heard.
const BEAT: Duration = Duration::from_millis(200);

/// For how long they may believe it. A daemon that is stopped or has no processor tells nothing; a change of routes takes
/// effect after this time then.
const LEASE: Duration = Duration::from_millis(500);

/// Sees to it that somebody listens if there are programs in front of routing: a thread of its own, without privileges, so
/// that nothing that the daemon does delays the news. Privileges have been given up before.
pub(crate) fn hear() {
    static IS_STARTED: AtomicBool = AtomicBool::new(false);
    let Some(news) = made() else { return };
    if IS_STARTED.swap(true, Relaxed) {
        return;
    }
    if let Err(failure) = start(news) {
        unheard(&failure.line());
    }
}

fn unheard(why: &dyn std::fmt::Display) {
    warn!("changes of routes are not heard, so programs ask for routes again and again: {why}");
}

fn start(news: Arc<RoutingNews>) -> Result<(), Failure> {
    let (watch, netlink) = (RoutingWatch::open(RoutingNews::CELLS)?, Netlink::open()?);
    let listen = async move || {
        if let Err(error) = listen(&news, watch, netlink).await {
            unheard(&error);
        }
    };
    privilege::apart("fordway-routing", listen).map(drop)
}

async fn listen(
    news: &RoutingNews,
    watch: RoutingWatch,
    mut netlink: Netlink,
) -> Result<(), Error> {
    let failed = |source| Error::Netlink { operation: "listen".to_owned(), source, detail: None };
    let mut watch = own_fd(watch).map_err(failed)?;
    let mut not_before = Instant::now();
    loop {
        let now = Instant::now();
        let heard = watch.get_mut();
        let looked = heard.wants_look() && now >= not_before;
        if looked {
            // What can't be listed may depend on sources.
            let _ = heard.look(&mut netlink);
            not_before = Instant::now() + now.elapsed().saturating_mul(SHARE).max(BEAT);
        }
        let changed = heard.take()?;
        if let Some(fine) = heard.other_fine() {
            news.set_fine(fine);
        }
        if changed || looked {
            news.changed();
        }
        news.set_by_destination(heard.is_by_destination());
        news.heard(LEASE);
        if let Ok(ready) = timeout(BEAT, watch.readable_mut()).await {
            // All there is gets read.
            ready.map_err(failed)?.clear_ready();
        }
    }
}

#[cfg(test)]
mod tests {
    use fordway_testhost::namespace::{in_namespace, ip};
    use fordway_testhost::poll;

    use super::*;

    #[test]
    fn programs_hear_of_changes_and_of_what_decides() {
        if !fordway_testhost::namespace::can_test() {
            return;
        }
        in_namespace(|| {
            ip("link add veth0 type veth peer name veth1");
            ip("link set veth0 up");
            ip("link set veth1 up");
            ip("address add 192.0.2.1/24 dev veth0");
            let news = Arc::new(RoutingNews::new(Duration::from_secs(1)).unwrap());
            start(Arc::clone(&news)).unwrap();
            let is_by_destination = |wanted: bool, what: &str| {
                poll(what, || (news.is_by_destination() == wanted).then_some(()));
            };
            is_by_destination(true, "rules and routes have been listed");
            for (add, delete) in [
                (
                    "rule add from 192.0.2.0/24 lookup 100",
                    "rule delete from 192.0.2.0/24 lookup 100",
                ),
                (
                    "route add 198.51.100.0/24 nexthop via 192.0.2.9 nexthop via 192.0.2.8",
                    "route delete 198.51.100.0/24",
                ),
            ] {
                let before = news.changes();
                ip(add);
                is_by_destination(false, add);
                assert!(news.changes() > before);
                ip(delete);
                is_by_destination(true, delete);
            }
            let before = news.changes();
            ip("route add 198.51.100.0/24 via 192.0.2.9");
            poll("the route has been told of", || (news.changes() > before).then_some(()));
            assert!(news.is_by_destination());
        });
    }
}
