//! A routing table of the kernel, kept as it is wanted by a thread that alone needs privileges.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fordway_net::{Netlink, PROTOCOL, Route, RouteFilter, RouteKind};
use ipnet::IpNet;
use nix::errno::Errno;

/// After what time the kernel is asked again for what it has refused.
const AGAIN: Duration = Duration::from_secs(1);
/// How long the thread waits where nothing is to be done.
const REST: Duration = Duration::from_secs(3600);

/// What the table has: destinations with their metrics.
pub(super) type Has = BTreeSet<(IpNet, u32)>;

/// What the thread is told.
#[derive(Default)]
struct Order {
    /// Each destination with its metric, if that has changed since the thread looked.
    wanted: Option<BTreeMap<IpNet, u32>>,
    is_over: bool,
}

#[derive(Default)]
struct Shared {
    order: Mutex<Order>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread. When it is dropped, the last that was wanted is done, or was tried.
pub(super) struct Routes {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Routes {
    /// Begins with what an earlier process has left in the table, which it gives.
    pub(super) fn take_over(table: u32) -> fordway_net::Result<(Self, Has)> {
        let mut netlink = Netlink::open()?;
        let filter = RouteFilter { table: Some(table), ..RouteFilter::default() };
        let routes = netlink.routes(filter)?;
        let ours = routes.iter().filter(|route| route.protocol == PROTOCOL);
        let has: Has = ours.map(|route| (route.destination, route.metric)).collect();
        let shared = Arc::<Shared>::default();
        let (of_thread, found) = (Arc::clone(&shared), has.clone());
        let keeper = Keeper { table, netlink, has };
        let run = move || keeper.run(&of_thread);
        let thread = thread::Builder::new().name("fordway-routes".into()).spawn(run);
        let thread = thread.map_err(|source| fordway_net::Error::Netlink {
            operation: "make a thread for routes".into(),
            source,
            detail: None,
        })?;
        Ok((Self { shared, thread: Some(thread) }, found))
    }

    /// Says what is wanted from now on.
    pub(super) fn want(&self, wanted: BTreeMap<IpNet, u32>) {
        self.shared.lock().wanted = Some(wanted);
        self.shared.changed.notify_one();
    }
}

impl Drop for Routes {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic of its own was reported where it happened.
            let _ = thread.join();
        }
    }
}

/// The thread's own.
struct Keeper {
    table: u32,
    netlink: Netlink,
    has: Has,
}

impl Keeper {
    fn run(mut self, shared: &Shared) {
        let mut wanted = None;
        let mut is_done = true;
        loop {
            let mut order = shared.lock();
            if order.wanted.is_none() && !order.is_over {
                let pause = if is_done { REST } else { AGAIN };
                let waited = shared.changed.wait_timeout(order, pause);
                order = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            let (new, is_over) = (order.wanted.take(), order.is_over);
            drop(order);
            let has_changed = new.is_some();
            wanted = new.or(wanted);
            if let Some(wanted) = &wanted
                && (has_changed || !is_done)
            {
                is_done = self.settle(wanted);
            }
            if is_over {
                return;
            }
        }
    }

    fn route(&self, to: IpNet, metric: u32) -> Route {
        let (kind, table) = (RouteKind::Blackhole, self.table);
        Route { kind, table, metric, device: None, ..Route::new(to, "") }
    }

    /// Makes the table what is wanted. Whether the kernel has refused nothing.
    fn settle(&mut self, wanted: &BTreeMap<IpNet, u32>) -> bool {
        // Another metric is another route for the kernel: the new one is there before the old one goes.
        let mut failed = BTreeSet::new();
        for (to, metric) in wanted.iter().map(|(to, metric)| (*to, *metric)) {
            if self.has.contains(&(to, metric)) {
                continue;
            }
            let route = self.route(to, metric);
            let added = self.netlink.add_route(&route);
            if self.is_done(to, added, Errno::EEXIST) {
                self.has.insert((to, metric));
            } else {
                failed.insert(to);
            }
        }
        let old = self.has.iter().filter(|(to, metric)| wanted.get(to) != Some(metric));
        for (to, metric) in old.copied().collect::<Vec<_>>() {
            if failed.contains(&to) {
                continue;
            }
            let route = self.route(to, metric);
            let deleted = self.netlink.delete_route(&route);
            if self.is_done(to, deleted, Errno::ESRCH) {
                self.has.remove(&(to, metric));
            } else {
                failed.insert(to);
            }
        }
        failed.is_empty()
    }

    /// Whether the kernel has done it, or it was so before.
    fn is_done(&self, to: IpNet, result: fordway_net::Result<()>, was_so: Errno) -> bool {
        match result {
            Err(error) if error.errno() != Some(was_so as i32) => {
                tracing::error!("the route for {to} in table {}: {error}", self.table);
                false
            }
            _ => true,
        }
    }
}
